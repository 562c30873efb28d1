"""The intraday raise at work: at each full hour published quotas are raised by the last hour's demand (`limiter.rules.hourly_raise`).

Once a second it is asked whether a new hour has begun by the wall clock, which may jump. An hour is closed when at least MIN_OBSERVED_NS of
demand are known: a gateway that starts at 13:55 raises at 14:05, and then at 15:00. Nothing of it is durable: after a restart the published
quotas hold until an hour is closed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

import trio

from common import log
from common.supervised_loop import SupervisedLoop
from gateway.clock import now_ns
from gateway.counting.hourly_demand import HourlyDemand
from gateway.lifecycle.scheduling import run_cooperatively, tick_time
from limiter.rules.hourly_raise import HourlyRaise

if TYPE_CHECKING:
    from config.known_settings import Quotas
    from gateway.counting.hourly_demand import Reading
    from limiter.quota_snapshot import Quota
    from limiter.rules.rule_set import RuleSet
    from limiter.topics import TopicName

MIN_OBSERVED_NS: Final = 600_000_000_000  # ns, 10 min; of demand that is known before quotas are raised by it; a guess
LOOK_S: Final = 1.0  # seconds, whole ticks; between two looks at the wall clock
HOUR_S: Final = 3600

Sources = Mapping[str, "list[Reading] | None"]


class QuotaStore(Protocol):
    """Whose quotas are raised: `admin.store.store.Store`."""

    def rules(self) -> RuleSet: ...

    def raise_quotas(self, hourly: HourlyRaise | None, raised: int) -> None: ...


class HourlyRaises:
    """Raises quotas while the settings say so. `read` gives the totals of all topics, by their source.

    Made before the first message, so that the first hour counts from the start.
    """

    def __init__(
        self,
        store: QuotaStore,
        settings: Callable[[], Quotas],
        read: Callable[[], Awaitable[Sources]],
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], int] = now_ns,
    ) -> None:
        self._store = store
        self._settings = settings
        self._read = read
        self._wall_clock = wall_clock
        self._clock = clock
        self._demand: HourlyDemand | None = None  # None: off
        self._hour = 0  # the one that has begun, hours since 1970
        self._hourly: HourlyRaise | None = None  # as put in force
        self._quotas: Mapping[TopicName, Quota] | None = None  # those it raises
        self._raised = 0  # how many quotas are
        if settings().hourly_raise == "on":  # nothing is counted yet
            self._hour = self._hour_now()
            self._demand = HourlyDemand(clock())

    async def run(self) -> None:
        loop = SupervisedLoop("hourly raise")
        while True:
            await trio.sleep_until(tick_time(LOOK_S))
            with loop:
                await self.look()

    async def look(self) -> None:
        """Begin, close an hour, follow changed settings or quotas, or end, where one of them is due."""
        settings = self._settings()
        if settings.hourly_raise != "on":
            self._end()
            return
        if self._demand is None:
            self._hour = self._hour_now()
            self._demand = HourlyDemand(self._clock())
            await self._close(self._demand)  # switched on by a reload: what was counted before is not of this hour
            self._demand.means = {}
            return
        hour = self._hour_now()
        if hour != self._hour and self._clock() - self._demand.looked_at >= MIN_OBSERVED_NS:
            self._hour = hour
            observed_s = round((self._clock() - self._demand.looked_at) / 1e9)
            await self._close(self._demand)
            await self._raise(HourlyRaise(self._demand.means, settings.hourly_raise_max), observed_s)
        elif self._hourly is not None and self._hourly.most != settings.hourly_raise_max:
            await self._raise(HourlyRaise(self._hourly.demand, settings.hourly_raise_max))
        elif self._hourly is not None and self._store.rules().quotas is not self._quotas:  # published since; raised already
            await self._raise(self._hourly)

    def _hour_now(self) -> int:
        return int(self._wall_clock() // HOUR_S)

    async def _close(self, demand: HourlyDemand) -> None:
        sources = await self._read()
        await run_cooperatively(demand.look(sources, self._clock()))

    async def _raise(self, hourly: HourlyRaise, observed_s: int | None = None) -> None:
        """Count what it raises, in slices, and put it in force."""
        quotas = self._store.rules().quotas
        raised, most, example = 0, 0.0, None
        for pairs in hourly.all_over(quotas):
            for before, after in pairs:
                raised += 1
                factor = factor_of(before, after)
                if factor > most:
                    most, example = factor, after
            await trio.lowlevel.checkpoint()
        was_raised, self._raised = self._raised, raised
        self._quotas = quotas
        self._hourly = hourly
        self._store.raise_quotas(hourly, raised)
        if raised or was_raised:
            hour = datetime.fromtimestamp(self._hour * HOUR_S, UTC).isoformat()
            log.event(
                logging.INFO, "quotas_raised", hour=hour, raised=raised, of=len(quotas), observed_s=observed_s,
                protocol=None if example is None else example.protocol, topic=None if example is None else example.topic,
                factor=round(most, 3) or None,
            )  # fmt: skip

    def _end(self) -> None:
        if self._demand is not None:
            self._demand = self._hourly = self._quotas = None
            self._raised = 0
            self._store.raise_quotas(None, 0)

    def __repr__(self) -> str:
        return f"<HourlyRaises {'off' if self._demand is None else self._demand} raised={self._raised}>"


def factor_of(before: Quota, after: Quota) -> float:
    """How many times the published quota the raised one is, in the dimension that is raised more."""
    pairs = ((before.messages, after.messages), (before.bytes, after.bytes))
    return max((new[0] / old[0] for old, new in pairs if old is not None and new is not None and old[0] > 0), default=1.0)
