"""A gateway that is a process of its own: with the state directory, the admin API, and the signals of its service manager."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import trio

from admin.remote_admin import LimitRequestService
from common import log
from gateway.app import Gateway
from gateway.clock import now_ns
from gateway.control_plane import ControlPlane
from gateway.counting.hourly_demand import readings_of
from gateway.fleet.figures import OwnFigures
from gateway.lifecycle.hourly_raises import Sources
from gateway.lifecycle.process import watch_signals
from gateway.lifecycle.scheduling import collect_cooperatively, result_cooperatively, run_cooperatively
from gateway.remote_admin import RemoteAdmin
from gateway.systemd import Inheritance
from gateway.telemetry import collector, exposition, live_snapshot, spool, status
from gateway.telemetry.moving_topics import MovingTopics
from limiter.judge import Judge

if TYPE_CHECKING:
    from admin.store.store import Store
    from config import Settings
    from gateway.control_plane import FirstSteps
    from gateway.fleet.fleet import Fleet
    from gateway.lifecycle.takeover import Takeover
    from limiter.rules.rule_set import RuleSet

COUNTED: Final = ("/metrics", "/v1/topics", "/v1/clients")  # paths of the admin API whose answers fold the accounts first


class Standalone(ControlPlane):
    """Hosts one gateway and governs it (`ControlPlane`). Implements `gateway.app.Host` and `admin.ports.Gateway`."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        log_handler: log.QueueHandler,
        inheritance: Inheritance | None = None,
        takeover: Takeover | None = None,
        first_steps: FirstSteps = lambda *_: (),
    ) -> None:
        boot = secrets.token_hex(4)
        judge = Judge(store.rules(), settings.limiter.max_keys, bounds_names=True)
        fleet = join_fleet(settings, judge, boot)
        super().__init__(settings, store, judge, boot, inheritance or Inheritance([]), takeover, first_steps)
        self.gateway = Gateway(
            settings, judge, store, log_handler,
            boot=boot, fill_levels=self.fill_levels, fleet=fleet, last_reload=self.reloads.last, tidy_access_log=takeover is None,
        )  # fmt: skip
        self.gateway.accounts.on_dry = self.fill_levels.want
        remote_admin = RemoteAdmin(LimitRequestService(self, store), self.gateway.wake)
        self.gateway.remote_admin = remote_admin
        self.gateway.shared.take_gateway_request = remote_admin.take
        self.moving_topics = MovingTopics(self.gateway.accounts)
        self.own_figures = OwnFigures(settings.gateway.name)
        self.gateway.each_second.append(self._note_second)
        self._govern(self, self.gateway.limit_events.over)

    @property
    def governed(self) -> Gateway:
        return self.gateway

    # ---- what operators see and do (admin.ports.Gateway) -----------------------------------------------------------

    def status(self) -> dict[str, object]:
        return {**status.status(self.gateway), "warnings": self.warnings()}

    def ready(self) -> list[str]:
        return self.gateway.ready()

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

    def enforce(self, rules: RuleSet) -> None:
        self.gateway.enforce(rules)

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

    def _passed_sockets(self) -> list[socket.socket]:
        listening = [sock for listener in self.gateway.listening.values() for sock in listener.sockets()]
        return [*listening, *self.admin_server.sockets()]

    async def administer(self, *, task_status: trio.TaskStatus[None]) -> None:
        await self.admin_server.run(task_status=task_status)

    async def watch_signals(self, *, task_status: trio.TaskStatus[None]) -> None:
        await watch_signals(self._reload_everywhere, self.gateway.drain_requested, task_status=task_status)


def join_fleet(settings: Settings, judge: Judge, boot: str) -> Fleet | None:
    """This gateway's part in a fleet, where it is in one. Raises OSError where Redis' client is not installed."""
    if settings.fleet is None:
        return None
    try:
        from gateway.fleet.fleet import Fleet
    except ModuleNotFoundError as error:
        raise OSError(f"fleet.redis needs the Python package {error.name}: pip install 'sluice-gateway[redis]'") from error
    return Fleet(settings.fleet.redis, judge, boot)
