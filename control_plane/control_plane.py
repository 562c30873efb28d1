"""What governs a gateway, over one data plane or several: the store, the admin API, what a reload changes, and what operators are told.

::

    settings ──► Store (admin) ── RuleSet ──► data planes: the gateway of this process, or workers
                   ▲                            ▲
                   │ changes, durable first     │ report, describe, act, enforce
               Admin server ───────── ControlPlane (this) ◄── SIGHUP, files that have changed

All that an admin endpoint asks of a gateway is here, once, over `planes()`. `standalone.py` has one data plane, in its own process;
`workers/parent.py` has one for each worker, and only what makes them processes: their start, their end, and what is left of them.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from msgspec.structs import replace

from admin.alerting.webhooks import Webhooks
from admin.http.slices import in_steps
from admin.ports import ReloadFailedError
from admin.series_store import SeriesStore
from common import log
from common.recent_events import RecentEvents
from common.views.connections import SilentConnectionView
from common.views.status import LimitsInUseView, StatusView
from common.views.view import merge_all
from config.effective import values_with_origins
from control_plane.admin_server import AdminServer
from control_plane.file_watch import list_watched, look, reload_on_change
from control_plane.handover import Handover
from control_plane.hourly_raises import HourlyRaises, Sources
from control_plane.log_keeping import LogKeeping
from control_plane.process import log_started
from control_plane.reload import Reloadable, Reloads
from gateway.broker_load.lag_watch import LagWatch, logins_of
from gateway.build import build
from gateway.clock import now_ns
from gateway.data_plane import Close, Drain, FollowBacklog, LogLevel, StandStill
from gateway.lifecycle.apply_settings import disk_directory
from gateway.lifecycle.disk_watch import delete_left_behind
from gateway.lifecycle.fill_levels import FillLevelsFile
from gateway.lifecycle.periodic_tasks import expire_changes, keep_fill_levels, watch_lag
from gateway.lifecycle.process import freeze_heap
from gateway.lifecycle.scheduling import collect_cooperatively, compute_cooperatively
from gateway.telemetry import collector, exposition, glance, live_snapshot, status
from gateway.telemetry.topic_limits import messages_limit
from gateway.telemetry.views import merge

if TYPE_CHECKING:
    import socket

    from admin.store.store import Store
    from common.views.connections import AnyConnection
    from common.views.limits import OverLimitView
    from common.views.listeners import ListenerView
    from common.views.snapshot import SnapshotView
    from common.views.spool import SpooledTopicView, SpoolView
    from common.views.topics import TopicView
    from config import Settings
    from control_plane.admin_server import SignInLink
    from control_plane.takeover import Takeover
    from gateway.counting.accounts import Place
    from gateway.counting.hourly_demand import Reading
    from gateway.data_plane import AnyCommand, DataPlane, TopicSource
    from gateway.systemd import Inheritance
    from limiter.judge import Judge
    from limiter.limits import Rate
    from limiter.rules.rule_set import Identity, RuleSet

    # Lines for the person at the terminal once it serves; they ask for a link to the dashboard themselves.
    FirstSteps = Callable[[Settings, Callable[[], SignInLink | None]], Iterable[str]]


REPORT_S: Final = 1.0  # seconds; until a data plane has reported what operators ask for


class Governed(Reloadable, Protocol):
    """The gateway of this process, or the parent of several."""

    draining: bool
    drain_requested: trio.Event
    took_over_at: float | None  # Unix time, in seconds; None: it began without a process before it

    def find_topics(self, protocol: str | None, text: str) -> Generator[None, None, list[list[Place]]]:
        """`TopicIndex.find`, of all its processes."""


def name_plane(plane: DataPlane, text: str) -> str:
    return f"worker {plane.worker}: {text}" if plane.worker else text


class ControlPlane:
    """The store and the admin API of a gateway, what a reload changes, what is told to operators, and the tasks for that.

    Implements `admin.ports.OperatedGateway` and `handover.HandoverHost`.
    """

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
        self.recent_events = RecentEvents(boot, settings.gateway.workers)
        self.reloads = Reloads(store)
        self.fill_levels = FillLevelsFile(settings.gateway.state_directory, judge)
        if takeover is None:
            self.fill_levels.restore()
        self.log_keeping = LogKeeping(settings)
        self.recent_overhead = glance.RecentOverhead(exposition.OVERHEAD_BUCKETS)
        self.series = SeriesStore(settings.admin.series_topics, messages_limit)
        self._begun = False
        self.up = trio.Event()  # systemd is told READY=1 before anybody who waits for it goes on
        self._files_read = (
            look(list_watched(settings)) if settings.gateway.reload_on_change else {}
        )  # before those of TLS and tokens are read

    def _govern(self, governed: Governed, planes: Mapping[int, DataPlane]) -> None:
        """What needs the governed gateway: that of this process, or the parent of several. `planes`: by the place of their process."""
        self.governed = governed
        self._planes = planes
        settings = governed.settings
        self.hourly_raises = HourlyRaises(self.store, lambda: self.governed.settings.quotas, self._demand)
        self.admin_server = AdminServer(self, self.store, settings)
        self.handover = Handover(self.store, self.admin_server, self.fill_levels, self)
        self.webhooks = Webhooks(settings, self.over)
        self.lag_watch = LagWatch(self.judge, governed.listening, logins_of(settings), self.follow)
        self.reloads.members += [
            self.admin_server.prepare, lambda new: partial(self.log_keeping.take_settings, new), self.webhooks.prepare,
            lambda new: partial(self.series.resize, new.admin.series_topics),
        ]  # fmt: skip

    # ---- its data planes ---------------------------------------------------------------------------------------------

    def planes(self) -> Collection[DataPlane]:
        """Those that are told what holds, whether they serve already or not."""
        return self._planes.values()

    def list_serving(self) -> list[DataPlane]:
        return [plane for plane in self.planes() if plane.serves]

    def explain_missing(self) -> list[str]:
        """Sentences on data planes that should serve and do not."""
        return []

    async def gather(self, views: Collection[str] | None) -> None:
        """Bring these views up to date, side by side; what is not reported within REPORT_S is shown as it was. None: nothing is asked."""
        if views is None:
            return
        with trio.move_on_after(REPORT_S):
            async with trio.open_nursery() as nursery:
                for plane in self.list_serving():
                    nursery.start_soon(plane.report, views)

    def views(self, name: str) -> list[Any]:
        """A view of each data plane that serves, as it was reported last."""
        return [found for plane in self.list_serving() if (found := plane.view(name)) is not None]

    def view(self, name: str) -> Any:
        """A view of all data planes as one."""
        found = self.views(name)
        return found[0] if len(found) == 1 else merge(name, found)

    def act(self, command: AnyCommand) -> None:
        """Tell all data planes."""
        for plane in self.planes():
            plane.act(command)

    def topic_sources(self) -> list[TopicSource]:
        return [*self.list_serving()]

    async def _demand(self) -> Sources:
        """What each data plane has counted of all topics since it began; None of one that does not answer in time."""
        asked = self.list_serving()
        found: dict[str, list[Reading] | None] = {plane.name: None for plane in asked}

        async def ask(plane: DataPlane) -> None:
            await plane.report(["demand"])
            found[plane.name] = plane.view("demand")

        with trio.move_on_after(REPORT_S):
            async with trio.open_nursery() as nursery:
                for plane in asked:
                    nursery.start_soon(ask, plane)
        return found

    def over(self) -> list[OverLimitView]:
        found: list[OverLimitView] = self.view("over")
        return found

    # ---- what operators see (admin.ports.OperatedGateway) --------------------------------------------------------------------

    def has_begun(self) -> bool:
        return self._begun

    def explain_unready(self) -> list[str]:
        if self.governed.draining:
            return ["draining"]
        reasons = self.explain_missing()
        for plane in self.list_serving():
            state = plane.view("status")
            because = ["has not reported its state yet"] if state is None else state.not_ready_because
            reasons += [name_plane(plane, reason) for reason in because]
        return reasons

    def warnings(self) -> list[str]:
        states = [(plane, plane.view("status")) for plane in self.list_serving()]
        found = [name_plane(plane, text) for plane, state in states if state is not None for text in state.warnings]
        return [*found, *self.log_keeping.warnings(), *self.webhooks.warnings()]

    def status(self) -> StatusView:
        governed, reasons = self.governed, self.explain_unready()
        found: StatusView = self.view("status")
        counted: LimitsInUseView = found.limits
        return replace(
            found,
            **status.identity(governed.settings.gateway.name, self.boot, self.began),
            taken_over_at=None if governed.took_over_at is None else log.moment(governed.took_over_at),
            ready=not reasons,
            draining=governed.draining,
            revision=self.store.revision,
            config_last_reload_successful=self.reloads.last.ok,
            needs_restart=self.reloads.last.needs_restart,
            not_ready_because=reasons,
            warnings=self.warnings(),
            limits=LimitsInUseView(**{**self.judge.usage(), "keys": counted.keys, "origins": counted.origins}),
        )

    def listeners(self) -> list[ListenerView]:
        found: list[ListenerView] = self.view("listeners")
        return found

    def connections(self) -> dict[int, str]:
        found: dict[int, str] = self.view("connections")
        return found

    async def describe_connections(self, numbers: Sequence[int]) -> list[AnyConnection]:
        """Asks the data planes side by side, slice by slice. One that is too slow is not asked again: of its other connections only number,
        protocol and worker are known.
        """
        found: dict[int, AnyConnection] = {}

        async def ask(plane: DataPlane) -> None:
            known = plane.view("connections") or {}
            asked = [number for number in numbers if number in known]
            for first in range(0, len(asked), status.MAX_CONNECTIONS_PER_SLICE):
                try:
                    described = await plane.describe(asked[first : first + status.MAX_CONNECTIONS_PER_SLICE])
                except trio.TooSlowError:
                    found.update(
                        (number, SilentConnectionView(id=number, protocol=known[number], worker=plane.worker)) for number in asked[first:]
                    )
                    return
                found.update((each.id, each) for each in described)

        async with trio.open_nursery() as nursery:
            for plane in self.list_serving():
                nursery.start_soon(ask, plane)
        return [found[number] for number in numbers if number in found]

    def spool(self) -> SpoolView:
        found: SpoolView = self.view("spool")
        return found

    async def spooled_topics(self) -> list[SpooledTopicView]:
        parts = [await collect_cooperatively(plane.rows("spooled_topics")) for plane in self.list_serving()]
        return parts[0] if len(parts) == 1 else merge_all(parts)

    async def topic_places(self, protocol: str | None = None, text: str = "") -> list[list[Place]]:
        return await in_steps(self.governed.find_topics(protocol, text))

    async def topic_numbers(self, name: str, wanted: Sequence[Place] | None = None) -> dict[Place, float]:
        parts = [await in_steps(source.topic_numbers(name, wanted)) for source in self.topic_sources()]
        if len(parts) == 1:
            return parts[0]
        found: dict[Place, float] = {}
        for part in parts:
            for place, number in part.items():
                found[place] = found.get(place, 0.0) + number
            await trio.lowlevel.checkpoint()
        return found

    async def topics(self, wanted: Collection[Place] | None = None) -> list[TopicView]:
        parts = [await collect_cooperatively(source.topics(wanted)) for source in self.topic_sources()]
        found = parts[0] if len(parts) == 1 else merge_all(parts)
        if wanted is None or len(parts) == 1:
            return found
        order = {place: at for at, place in enumerate(wanted)}
        return sorted(found, key=lambda item: order[item.key()])

    async def snapshot(self) -> SnapshotView:
        moving = live_snapshot.join([await compute_cooperatively(source.gather_moving()) for source in self.topic_sources()])
        topics = await self.topics(live_snapshot.rank_worst(moving))
        await trio.lowlevel.checkpoint()
        overhead = self.recent_overhead.look(self.view("overhead"), time.monotonic())
        return live_snapshot.assemble(self.status(), moving, topics, self.listeners(), self.over(), overhead)

    def list_unseen(self) -> list[int]:
        """The workers that are not in the last second of the series."""
        return []

    async def series_of(self, place: Place | None, *, day: bool, since: int = 0) -> dict[str, Any]:
        """The sum over the data planes; what has ended with a worker stays in it."""
        found = await compute_cooperatively(self.series.read(place, day=day, since=since))
        return {**found, "missing": self.list_unseen() if self.series.most else []}

    def received_lately(self, place: Place, seconds: int) -> list[float | None]:
        return self.series.received(place, seconds)

    def traffic_lines(self) -> Iterator[str]:
        """The metrics of the data planes."""
        return chain.from_iterable([plane.metric_lines() for plane in self.planes()])

    def metrics(self, others: exposition.Samples) -> Iterator[str]:
        rules, last = self.store.rules(), self.reloads.last
        own: exposition.Samples = {
            "sluice_build_info": [((build().version, build().kind, build().python), 1)],
            "sluice_limit_rate": collector.rate_samples(rules),
            "sluice_candidate_messages_total": collector.candidate_samples(self.judge.candidates(now_ns())),
            "sluice_config_last_reload_successful": [((), last.ok)],
            "sluice_config_last_reload_timestamp_seconds": [((), last.at)],
            "sluice_config_version": [((), self.store.revision)],
            **collector.backlog_samples(self.lag_watch),
            **self.log_keeping.samples(),
            **self.webhooks.samples(),
            **self.handover.samples(),
        }
        return exposition.pieces(chain(self.traffic_lines(), exposition.families({**own, **others})))

    def configuration(self) -> dict[str, object]:
        return self.governed.settings.describe()

    def origins(self) -> list[dict[str, object]]:
        return values_with_origins(self.governed.settings)

    def log_level(self) -> str:
        return log.level_of(self.governed.log_handler)

    def configured_log_level(self) -> str:
        return self.governed.settings.log.level

    # ---- what operators do (admin.ports.OperatedGateway) ---------------------------------------------------------------------

    def close_connection(self, connection: int, reason: str) -> bool:
        for plane in self.list_serving():
            if connection in (plane.view("connections") or {}):
                plane.act(Close(connection, reason))
                return True
        return False

    def set_log_level(self, level: str) -> None:
        log.set_level(self.governed.log_handler, level)
        self.act(LogLevel(level))

    def enforce(self, rules: RuleSet) -> None:
        for plane in self.planes():
            plane.enforce(rules)

    async def in_force(self) -> None:
        """Wait until what was enforced last holds everywhere."""
        async with trio.open_nursery() as nursery:
            for plane in self.planes():
                nursery.start_soon(plane.in_force)

    def follow(self, identity: Identity, rate: Rate) -> None:
        """A limit that follows a backlog lets so much pass from now on."""
        self.act(FollowBacklog(identity, rate.amount, rate.per_ns))

    async def reload(self, *, dry_run: bool = False) -> dict[str, object]:
        """Read the configuration and the files of TLS again (`Reloads.reload`). Raises ReloadFailedError."""
        return await self.reloads.reload(self.governed, dry_run=dry_run)

    async def reloaded_everywhere(self) -> None:
        """Wait until what was reloaded last holds in all processes. Raises ReloadFailedError where one could not put it in force."""
        await self.in_force()
        faults = [fault for plane in self.planes() for fault in plane.take_faults()]
        if faults:
            raise self.reloads.record_failure(ReloadFailedError(faults, passing=True, holds="all other workers have the new one"))

    def drain(self) -> None:
        self.governed.drain_requested.set()

    # ---- one process after another (handover.HandoverHost) ----------------------------------------------------------------

    def stand_still(self) -> None:
        self.act(StandStill(yes=True))

    def go_on(self) -> None:
        self.act(StandStill(yes=False))

    def hand_over(self) -> None:
        self.act(Drain(handed_over=True))
        self.drain()

    def passed_sockets(self) -> list[socket.socket]:
        """All that listen, for the next process."""
        listening = [sock for listener in self.governed.listening.values() for sock in listener.sockets()]
        return [*listening, *self.admin_server.sockets()]

    # ---- life --------------------------------------------------------------------------------------------------------

    async def _reload_everywhere(self) -> None:
        await self.reload()
        await self.reloaded_everywhere()

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        governed = self.governed
        return [
            *self.handover.tasks(governed.settings.gateway, self.passed_sockets, lambda: governed.draining),
            partial(expire_changes, self.store),
            partial(reload_on_change, lambda: governed.settings, self._reload_everywhere, self._files_read),
            partial(keep_fill_levels, self.fill_levels),
            partial(watch_lag, self.lag_watch),
            partial(delete_left_behind, disk_directory(governed.settings)),
            self.log_keeping.run,
            self.hourly_raises.run,
            partial(self.webhooks.run, governed.drain_requested),
        ]

    async def _take_over(self, takeover: Takeover) -> None:
        """The running process gives up what only one can have; this is the next one. Raises TakeoverError, and as `Store.open`."""
        await trio.to_thread.run_sync(takeover.commit)
        self.store.take()
        self.enforce(self.store.rules())
        self.fill_levels.restore()
        self.governed.took_over_at = time.time()

    async def announce_serving(self, workers: int | None = None) -> None:
        """It serves from now on."""
        self._begun = True
        if self._takeover is not None:
            await trio.to_thread.run_sync(self._takeover.confirm)
        freeze_heap()
        governed = self.governed
        log_started(governed.settings, governed.listening.values(), self.began, workers)
        log.tell(self._first_steps(governed.settings, self.admin_server.sign_in_link))
        self.up.set()
