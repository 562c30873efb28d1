"""A gateway that is a process of its own: with the state directory, the admin API, and the signals of its service manager.

::

    settings ──► Store (admin) ──► Gateway
                   ▲                 ▲
                   │ changes,        │ enforce, reload, drain
                   │ durable first   │
               Admin server ───── Standalone (this) ◄── SIGHUP, SIGTERM

`workers/parent.py` is its counterpart for several processes: an admin endpoint that asks something new of a gateway needs it in both.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from admin.alerting.webhooks import Webhooks
from admin.remote_admin import LimitRequestService
from common import log
from config.effective import values_with_origins
from gateway.app import Gateway
from gateway.clock import now_ns
from gateway.counting.hourly_demand import readings_of
from gateway.fleet.figures import OwnFigures
from gateway.lifecycle.admin_server import AdminServer
from gateway.lifecycle.file_watch import reload_on_change
from gateway.lifecycle.fill_levels import FillLevelsFile
from gateway.lifecycle.handover import Handover
from gateway.lifecycle.hourly_raises import HourlyRaises, Sources
from gateway.lifecycle.log_keeping import LogKeeping
from gateway.lifecycle.periodic_tasks import expire_changes, keep_fill_levels
from gateway.lifecycle.process import freeze_heap, log_started, watch_signals
from gateway.lifecycle.reload import Reloads
from gateway.lifecycle.scheduling import collect_cooperatively, result_cooperatively, run_cooperatively
from gateway.lifecycle.spool_watch import clear_spool
from gateway.remote_admin import RemoteAdmin
from gateway.systemd import Inheritance
from gateway.telemetry import collector, exposition, live_snapshot, spool, status
from gateway.telemetry.glance import RecentOverhead
from gateway.telemetry.moving_topics import MovingTopics
from gateway.telemetry.recent_events import RecentEvents
from gateway.telemetry.series import SeriesStore
from gateway.telemetry.topic_limits import messages_limit
from limiter.judge import Judge

if TYPE_CHECKING:
    from admin.store.store import Store
    from config import Settings
    from gateway.fleet.fleet import Fleet
    from gateway.lifecycle.takeover import Takeover
    from limiter.rules.rule_set import RuleSet

COUNTED: Final = ("/metrics", "/v1/topics", "/v1/clients")  # paths of the admin API whose answers fold the accounts first


class Standalone:
    """Hosts one gateway and governs it. Implements `gateway.app.Host` and `admin.ports.Gateway`."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        log_handler: log.QueueHandler,
        inheritance: Inheritance | None = None,
        takeover: Takeover | None = None,
    ) -> None:
        """With `takeover` the store only observes: another process serves until everything here is built and open (`run`)."""
        self.began = time.monotonic()
        self.store = store
        self.inheritance = inheritance or Inheritance([])
        self._takeover = takeover
        self.reloads = Reloads(store)
        boot = secrets.token_hex(4)
        self.recent_events = RecentEvents(boot)
        self.judge = Judge(store.rules(), settings.limiter.max_keys, bounds_names=True)
        fleet = join_fleet(settings, self.judge, boot)
        self.fill_levels = FillLevelsFile(settings.gateway.state_directory, self.judge)
        if takeover is None:
            self.fill_levels.restore()
        self.log_keeping = LogKeeping(settings)
        self.gateway = Gateway(
            settings, self.judge, store, log_handler,
            boot=boot, fill_levels=self.fill_levels, fleet=fleet, last_reload=self.reloads.last, tidy_access_log=takeover is None,
        )  # fmt: skip
        self.gateway.accounts.on_dry = self.fill_levels.want
        remote_admin = RemoteAdmin(LimitRequestService(self, store), self.gateway.wake)
        self.gateway.remote_admin = remote_admin
        self.gateway.shared.take_gateway_request = remote_admin.take
        self.hourly_raises = HourlyRaises(store, lambda: self.gateway.settings.quotas, self._demand)
        self.admin_server = AdminServer(self, store, settings)
        self.handover = Handover(store, self.admin_server, self.fill_levels, self)
        self.webhooks = Webhooks(settings, self.gateway.limit_events.over)
        self.reloads.members += [
            self.admin_server.prepare, lambda new: partial(self.log_keeping.take_settings, new), self.webhooks.prepare,
        ]  # fmt: skip
        self.recent_overhead = RecentOverhead(self.gateway.overhead.bounds)
        self.moving_topics = MovingTopics(self.gateway.accounts)
        self.own_figures = OwnFigures(settings.gateway.name)
        self.series = SeriesStore(settings.admin.series_topics, messages_limit)
        self.gateway.each_second.append(self._note_second)
        self.reloads.members.append(lambda new: partial(self.series.resize, new.admin.series_topics))
        self._begun = False

    # ---- what operators see and do (admin.ports.Gateway) -----------------------------------------------------------

    def status(self) -> dict[str, object]:
        return {**status.status(self.gateway), "warnings": self.warnings()}

    def ready(self) -> list[str]:
        return self.gateway.ready()

    def begun(self) -> bool:
        return self._begun

    def warnings(self) -> list[str]:
        return [*status.warnings(self.gateway), *self.log_keeping.warnings(), *self.webhooks.warnings()]

    def listeners(self) -> list[dict[str, object]]:
        return status.listeners(self.gateway)

    def connections(self) -> dict[int, str]:
        return self.gateway.connections()

    async def describe_connections(self, numbers: Sequence[int]) -> list[dict[str, object]]:
        return await collect_cooperatively(status.connections(self.gateway, numbers))

    def close_connection(self, connection: int, reason: str) -> bool:
        return self.gateway.close_connection(connection, reason)

    def spool(self) -> dict[str, object]:
        return spool.figures(self.gateway.disk)

    async def spooled_topics(self) -> list[dict[str, object]]:
        return await collect_cooperatively(spool.topics(self.gateway.disk, now_ns()))

    def clients(self) -> list[dict[str, object]]:
        return status.clients(self.gateway)

    async def topic_numbers(self, name: str | None) -> dict[tuple[str, str, str], float]:
        return await result_cooperatively(status.topic_numbers(self.gateway, name))

    async def topics(self, wanted: Collection[tuple[str, str, str]] | None = None) -> list[dict[str, object]]:
        known = self.gateway.accounts.topics
        chosen = None if wanted is None else [known[place] for place in wanted if place in known]
        return await collect_cooperatively(status.topics(self.gateway, chosen))

    async def snapshot(self) -> dict[str, object]:
        found = await result_cooperatively(live_snapshot.snapshot(self.gateway))
        overhead = self.recent_overhead.look(self.gateway.overhead.counts, time.monotonic())
        return {**found, "overhead_ms": overhead, "warnings": self.warnings()}

    async def series_of(self, place: tuple[str, str, str] | None, *, day: bool, since: int = 0) -> dict[str, object]:
        return {**await result_cooperatively(self.series.read(place, day=day, since=since)), "missing": []}

    def received_lately(self, place: tuple[str, str, str], seconds: int) -> list[float | None]:
        return self.series.received(place, seconds)

    def _note_second(self, second: int, elapsed_s: float) -> Iterator[None]:
        """Write down what happened in a second that is over, and what the other gateways of a fleet are told of it."""
        fleet = self.gateway.fleet
        if not self.series.most and fleet is None:
            return
        rows = yield from self.moving_topics.rows()
        if fleet is not None:
            fleet.figures = self.own_figures.note(rows, len(self.gateway.sweeper.sessions))
        if self.series.most:
            yield from self.series.close_second(second, elapsed_s, rows, self.store.rules())

    def metrics(self, others: exposition.Samples) -> Iterator[str]:
        more = {**self.log_keeping.samples(), **self.webhooks.samples(), **self.handover.samples(), **others}
        return exposition.pieces(collector.metric_lines(self.gateway, more))

    def configuration(self) -> dict[str, object]:
        return self.gateway.settings.describe()

    def origins(self) -> list[dict[str, object]]:
        return values_with_origins(self.gateway.settings)

    def log_level(self) -> str:
        return log.level_of(self.gateway.log_handler)

    def configured_log_level(self) -> str:
        return self.gateway.settings.log.level

    def set_log_level(self, level: str) -> None:
        log.set_level(self.gateway.log_handler, level)

    async def reload(self, *, dry_run: bool = False) -> dict[str, object]:
        """Read the configuration and the files of TLS again (`Reloads.reload`). Raises ReloadFailedError."""
        return await self.reloads.reload(self.gateway, dry_run=dry_run)

    def enforce(self, rules: RuleSet) -> None:
        self.gateway.enforce(rules)

    def drain(self) -> None:
        self.gateway.drain_requested.set()

    async def gather(self, route: str) -> None:
        """Fold most of the accounts in slices, for routes that show topics: little is left to fold in one piece."""
        if route in COUNTED:
            await run_cooperatively(self.gateway.accounts.slices(now_ns()))

    async def _demand(self) -> Sources:
        await run_cooperatively(self.gateway.accounts.slices(now_ns()))
        return {"": readings_of(self.gateway.accounts)}

    async def in_force(self) -> None:
        """What is enforced holds from the next batch on."""

    # ---- what the gateway needs of its host (gateway.app.Host) -----------------------------------------------------

    async def run(self) -> None:
        """Open, serve, and drain when asked to. Raises OSError when an address cannot be bound."""
        with self.recent_events:
            self.gateway.open(self.inheritance)
            self.admin_server.take_sockets(self.inheritance)
            if self._takeover is not None:
                await self.admin_server.open()
                await self._take_over(self._takeover)
            self.gateway.open_brokers(self.inheritance)
            self.inheritance.close_rest()
            await self.gateway.run(self)

    async def _take_over(self, takeover: Takeover) -> None:
        """The running process gives up what only one can have; this is the next one. Raises TakeoverError, and as `Store.open`."""
        await trio.to_thread.run_sync(takeover.commit)
        self.store.take()
        self.gateway.enforce(self.store.rules())
        self.fill_levels.restore()
        self.gateway.took_over_at = time.time()

    def stand_still(self) -> None:
        self.gateway.stand_still()

    def go_on(self) -> None:
        self.gateway.go_on()

    def hand_over(self) -> None:
        self.gateway.hand_over()

    def _sockets(self) -> list[socket.socket]:
        """All that listen, for the next process."""
        listening = [sock for listener in self.gateway.listening.values() for sock in listener.sockets()]
        return [*listening, *self.admin_server.sockets()]

    def tasks(self) -> Iterable[Callable[[], Awaitable[None]]]:
        return [
            *self.handover.tasks(self.gateway.settings.gateway, self._sockets, lambda: self.gateway.draining),
            partial(expire_changes, self.store),
            partial(reload_on_change, lambda: self.gateway.settings, self.reload),
            partial(keep_fill_levels, self.fill_levels),
            partial(clear_spool, self.gateway.disk.directory),
            self.log_keeping.run,
            self.hourly_raises.run,
            partial(self.webhooks.run, self.gateway.drain_requested),
        ]

    async def administer(self, *, task_status: trio.TaskStatus[None]) -> None:
        await self.admin_server.run(task_status=task_status)

    async def watch_signals(self, *, task_status: trio.TaskStatus[None]) -> None:
        await watch_signals(self.reload, self.gateway.drain_requested, task_status=task_status)

    async def started(self) -> None:
        self._begun = True
        if self._takeover is not None:
            await trio.to_thread.run_sync(self._takeover.confirm)
        freeze_heap()
        log_started(self.gateway.settings, self.gateway.listening.values(), self.began, self.admin_server.sign_in_link)


def join_fleet(settings: Settings, judge: Judge, boot: str) -> Fleet | None:
    """This gateway's part in a fleet, where it is in one. Raises OSError where Redis' client is not installed."""
    if settings.fleet is None:
        return None
    try:
        from gateway.fleet.fleet import Fleet
    except ModuleNotFoundError as error:
        raise OSError(f"fleet.redis needs the Python package {error.name}: pip install 'sluice-gateway[redis]'") from error
    return Fleet(settings.fleet.redis, judge, boot)
