"""What governs a gateway, and is the same whether its clients are served by this process or by workers.

::

    settings ──► Store (admin) ── RuleSet ──► what is governed: one gateway, or the workers
                   ▲                            ▲
                   │ changes, durable first     │ enforce, reload, drain
               Admin server ───────── ControlPlane (this) ◄── SIGHUP, files that have changed

`standalone.py` governs the gateway of its own process, `workers/parent.py` those of its workers. An admin endpoint that asks something new
of a gateway needs it in both, as far as it is not here.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from admin.alerting.webhooks import Webhooks
from admin.recent_events import RecentEvents
from admin.series_store import SeriesStore
from common import log
from config.effective import values_with_origins
from gateway.lifecycle.admin_server import AdminServer
from gateway.lifecycle.apply_settings import spool_directory
from gateway.lifecycle.file_watch import reload_on_change
from gateway.lifecycle.fill_levels import FillLevelsFile
from gateway.lifecycle.handover import Handover, Host
from gateway.lifecycle.hourly_raises import HourlyRaises, Sources
from gateway.lifecycle.log_keeping import LogKeeping
from gateway.lifecycle.periodic_tasks import expire_changes, keep_fill_levels
from gateway.lifecycle.process import freeze_heap, log_started
from gateway.lifecycle.reload import Reloadable, Reloads
from gateway.lifecycle.spool_watch import clear_spool
from gateway.telemetry import exposition
from gateway.telemetry.glance import RecentOverhead
from gateway.telemetry.topic_limits import messages_limit

if TYPE_CHECKING:
    import socket

    from admin.alerting.alerts import Facts
    from admin.ports import Gateway
    from admin.store.store import Store
    from config import Settings
    from gateway.lifecycle.admin_server import SignInLink
    from gateway.lifecycle.takeover import Takeover
    from gateway.systemd import Inheritance
    from limiter.judge import Judge

    # Lines for the person at the terminal once it serves; they ask for a link to the dashboard themselves.
    FirstSteps = Callable[[Settings, Callable[[], SignInLink | None]], Iterable[str]]


class Governed(Reloadable, Host, Protocol):
    """The gateway of this process, or the parent of several."""

    draining: bool
    drain_requested: trio.Event
    took_over_at: float | None  # Unix time, in seconds; None: it began without a process before it


class ControlPlane(ABC):
    """The store and the admin API of a gateway, what a reload changes, what is told to operators, and the tasks for that."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        judge: Judge,
        boot: str,
        inheritance: Inheritance,
        takeover: Takeover | None,
        first_steps: FirstSteps,
    ) -> None:
        """With `takeover` the store only observes: another process serves until everything here is built and open (`run`)."""
        self.began = time.monotonic()
        self.store = store
        self.judge = judge
        self.boot = boot
        self.inheritance = inheritance
        self._takeover = takeover
        self._first_steps = first_steps
        self.recent_events = RecentEvents(boot)
        self.reloads = Reloads(store)
        self.fill_levels = FillLevelsFile(settings.gateway.state_directory, judge)
        if takeover is None:
            self.fill_levels.restore()
        self.log_keeping = LogKeeping(settings)
        self.recent_overhead = RecentOverhead(exposition.OVERHEAD_BUCKETS)
        self.series = SeriesStore(settings.admin.series_topics, messages_limit)
        self._begun = False

    def _govern(self, shown: Gateway, over: Callable[[], Iterable[Facts]]) -> None:
        """What needs the governed gateway. `shown`: this, as the admin API sees it; `over`: the limits that are over."""
        settings = self.governed.settings
        self.hourly_raises = HourlyRaises(self.store, lambda: self.governed.settings.quotas, self._demand)
        self.admin_server = AdminServer(shown, self.store, settings)
        self.handover = Handover(self.store, self.admin_server, self.fill_levels, self.governed)
        self.webhooks = Webhooks(settings, over)
        self.reloads.members += [
            self.admin_server.prepare, lambda new: partial(self.log_keeping.take_settings, new), self.webhooks.prepare,
            lambda new: partial(self.series.resize, new.admin.series_topics),
        ]  # fmt: skip

    # ---- whose clients are served elsewhere --------------------------------------------------------------------------

    @property
    @abstractmethod
    def governed(self) -> Governed: ...

    @abstractmethod
    async def in_force(self) -> None: ...

    @abstractmethod
    async def _demand(self) -> Sources:
        """What all topics have counted, for the intraday raise."""

    @abstractmethod
    def _passed_sockets(self) -> list[socket.socket]:
        """All that listen, for the next process."""

    # ---- what operators see and do (admin.ports.Gateway) -------------------------------------------------------------

    def begun(self) -> bool:
        return self._begun

    def received_lately(self, place: tuple[str, str, str], seconds: int) -> list[float | None]:
        return self.series.received(place, seconds)

    def configuration(self) -> dict[str, object]:
        return self.governed.settings.describe()

    def origins(self) -> list[dict[str, object]]:
        return values_with_origins(self.governed.settings)

    def log_level(self) -> str:
        return log.level_of(self.governed.log_handler)

    def configured_log_level(self) -> str:
        return self.governed.settings.log.level

    def set_log_level(self, level: str) -> None:
        log.set_level(self.governed.log_handler, level)

    async def reload(self, *, dry_run: bool = False) -> dict[str, object]:
        """Read the configuration and the files of TLS again (`Reloads.reload`). Raises ReloadFailedError."""
        return await self.reloads.reload(self.governed, dry_run=dry_run)

    def drain(self) -> None:
        self.governed.drain_requested.set()

    # ---- life --------------------------------------------------------------------------------------------------------

    async def _reload_everywhere(self) -> None:
        await self.reload()
        await self.in_force()

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        governed = self.governed
        return [
            *self.handover.tasks(governed.settings.gateway, self._passed_sockets, lambda: governed.draining),
            partial(expire_changes, self.store),
            partial(reload_on_change, lambda: governed.settings, self._reload_everywhere),
            partial(keep_fill_levels, self.fill_levels),
            partial(clear_spool, spool_directory(governed.settings)),
            self.log_keeping.run,
            self.hourly_raises.run,
            partial(self.webhooks.run, governed.drain_requested),
        ]

    async def _take_over(self, takeover: Takeover) -> None:
        """The running process gives up what only one can have; this is the next one. Raises TakeoverError, and as `Store.open`."""
        await trio.to_thread.run_sync(takeover.commit)
        self.store.take()
        self.governed.enforce(self.store.rules())
        self.fill_levels.restore()
        self.governed.took_over_at = time.time()

    async def started(self, workers: int | None = None) -> None:
        """It serves from now on."""
        self._begun = True
        if self._takeover is not None:
            await trio.to_thread.run_sync(self._takeover.confirm)
        freeze_heap()
        governed = self.governed
        log_started(governed.settings, governed.listening.values(), self.began, workers)
        log.tell(self._first_steps(governed.settings, self.admin_server.sign_in_link))
