"""The intraday raise at work: published quotas are raised at each full hour by the last hour's demand (`limiter.rules.hourly_raise`), and
every ten seconds by that of the surges (`limiter.rules.surges`).

Once a second it is asked whether a new hour has begun by the wall clock, which may jump. An hour is closed when at least MIN_OBSERVED_NS of
demand are known: a gateway that starts at 13:55 raises at 14:05, and then at 15:00. Surges go by the monotonic clock. Nothing of it is
durable: after a restart the published quotas hold until an hour is closed, or a surge is seen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import trio

from common import log
from common.supervised_loop import SupervisedLoop
from gateway.clock import now_ns
from gateway.counting.hourly_demand import HourlyDemand
from gateway.lifecycle.scheduling import run_cooperatively, tick_time
from limiter.rules.hourly_raise import Demand, HourlyRaise
from limiter.rules.surges import LOOK_S as SURGE_LOOK_S
from limiter.rules.surges import Surges

if TYPE_CHECKING:
    from admin.store.store import Store
    from config.known_settings import QuotaSettings
    from gateway.counting.hourly_demand import Reading
    from limiter.quota_snapshot import Quota
    from limiter.topics import TopicName

MIN_OBSERVED_NS: Final = 600_000_000_000  # ns, 10 min; of demand that is known before quotas are raised by it; a guess
SURGE_LOOK_NS: Final = SURGE_LOOK_S * 1_000_000_000 - 500_000_000  # ns; looks come once a second, and not to the nanosecond
LOOK_S: Final = 1.0  # seconds, whole ticks; between two looks at the clocks
HOUR_S: Final = 3600
NO_DEMAND: Final[Demand] = {}

Sources = Mapping[str, "list[Reading] | None"]


class HourlyRaises:
    """Raises quotas while the settings say so. `read` gives the totals of all topics, by their source.

    Made before the first message, so that the first hour counts from the start.
    """

    def __init__(
        self,
        store: Store,
        settings: Callable[[], QuotaSettings],
        read: Callable[[], Awaitable[Sources]],
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], int] = now_ns,
    ) -> None:
        self._store = store
        self._settings = settings
        self._read = read
        self._wall_clock = wall_clock
        self._clock = clock
        self._demand: HourlyDemand | None = None  # of the hour; None: off
        self._hour = 0  # the one that has begun, hours since 1970
        self._seconds: HourlyDemand | None = None  # of the last seconds; None: off
        self._surges = Surges()
        self._raise: HourlyRaise | None = None  # as put in force
        self._quotas: Mapping[TopicName, Quota] | None = None  # those it raises
        self._raised = 0  # how many quotas are
        if settings().hourly_raise == "on":  # nothing is counted yet
            self._hour = self._hour_now()
            self._demand = HourlyDemand(clock())
        if settings().surge_raise == "on":
            self._seconds = HourlyDemand(clock())

    async def run(self) -> None:
        loop = SupervisedLoop("hourly raise")
        while True:
            await trio.sleep_until(tick_time(LOOK_S))
            with loop:
                await self.look()

    async def look(self) -> None:
        """Begin, close an hour, follow surges, changed settings or quotas, or end, where one of them is due."""
        settings = self._settings()
        hour_s = await self._look_at_hour(settings.hourly_raise == "on")
        surging = await self._look_at_surges(settings.surge_raise == "on")
        demand = NO_DEMAND if self._demand is None else self._demand.means
        last = self._raise
        if last is None:
            if hour_s is None and not surging:
                return
        elif (
            hour_s is None
            and not surging
            and last.demand is demand
            and last.most == settings.hourly_raise_max
            and self._store.rules().quotas is self._quotas  # else published since; raised already
        ):
            return
        await self._put_in_force(HourlyRaise(demand, settings.hourly_raise_max, self._surges.wanted), hour_s)

    async def _look_at_hour(self, on: bool) -> int | None:  # noqa: FBT001  -- what the setting says
        """The seconds of demand in the hour that was closed just now; None: none was."""
        if not on:
            self._demand = None
            return None
        if self._demand is None:
            self._hour = self._hour_now()
            self._demand = await self._begin()
            return None
        hour = self._hour_now()
        if hour == self._hour or self._clock() - self._demand.looked_at < MIN_OBSERVED_NS:
            return None
        self._hour = hour
        observed_s = round((self._clock() - self._demand.looked_at) / 1e9)
        await self._close(self._demand)
        return observed_s

    async def _look_at_surges(self, on: bool) -> bool:  # noqa: FBT001  -- what the setting says
        """Whether surges want other rates than before."""
        if not on:
            wanted, self._surges, self._seconds = self._surges.wanted, Surges(), None
            return bool(wanted)
        if self._seconds is None:
            self._seconds = await self._begin()
            return False
        before = self._seconds.looked_at
        if self._clock() - before < SURGE_LOOK_NS:
            return False
        await self._close(self._seconds)
        seconds = (self._seconds.looked_at - before) / 1e9
        await run_cooperatively(self._surges.look(self._seconds.means, self._store.rules().quotas, seconds))
        return self._surges.changed

    def _hour_now(self) -> int:
        return int(self._wall_clock() // HOUR_S)

    async def _begin(self) -> HourlyDemand:
        """Switched on by a reload: what was counted before does not count."""
        demand = HourlyDemand(self._clock())
        await self._close(demand)
        demand.means = {}
        return demand

    async def _close(self, demand: HourlyDemand) -> None:
        sources = await self._read()
        await run_cooperatively(demand.look(sources, self._clock()))

    async def _put_in_force(self, now: HourlyRaise, observed_s: int | None = None) -> None:
        """Count what it raises, in slices, and put it in force; nothing at all where both are off."""
        quotas = self._store.rules().quotas
        raised, most, example = 0, 0.0, None
        for pairs in now.raise_all(quotas):
            for before, after in pairs:
                raised += 1
                factor = factor_of(before, after)
                if factor > most:
                    most, example = factor, after
            await trio.lowlevel.checkpoint()
        off = self._demand is None and self._seconds is None
        last, self._raise = self._raise, None if off else now
        was_raised, self._raised = self._raised, raised
        self._quotas = quotas
        self._store.raise_quotas(self._raise, raised)
        if off:
            return
        joined = bool(now.surges.keys() - (last.surges.keys() if last is not None else ()))
        if (raised and (observed_s is not None or joined or not was_raised)) or (was_raised and not raised):
            hour = datetime.fromtimestamp(self._wall_clock() // HOUR_S * HOUR_S, UTC).isoformat()
            log.event(
                logging.INFO, "quotas_raised", hour=hour, raised=raised, of=len(quotas), surges=len(now.surges) or None,
                observed_s=observed_s, protocol=None if example is None else example.protocol,
                topic=None if example is None else example.topic, factor=round(most, 3) or None,
            )  # fmt: skip

    def __repr__(self) -> str:
        return f"<HourlyRaises {'off' if self._demand is None else self._demand} {self._surges} raised={self._raised}>"


def factor_of(before: Quota, after: Quota) -> float:
    """How many times the published quota the raised one is, in the dimension that is raised more."""
    pairs = ((before.messages, after.messages), (before.bytes, after.bytes))
    return max((new[0] / old[0] for old, new in pairs if old is not None and new is not None and old[0] > 0), default=1.0)
