"""The gateway itself: builds the rooms, connects them, runs them, stops them.

::

    rules ──► Judge ◄── Executor ◄── Sweeper ◄── Listeners
                ▲                        │
                │ enforce                ▼
            Gateway (this) ─────────► Accounts ──► access log, metrics, log events

Only the order of things is decided here: how to start, how a client becomes a session, and how to stop. A host governs the gateway:
`control_plane/standalone.py` (a process of its own, with its store and its admin API) or `workers/worker.py` (one of several, under a
parent).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import trio
from msgspec.structs import asdict

from common import log
from gateway import systemd
from gateway.admission import BY_ADDRESS, BY_ALL, BY_DESCRIPTORS
from gateway.assembly import assemble
from gateway.broker_load.adaptive_caps import AdaptiveCaps
from gateway.clock import now_ns
from gateway.counting.access_log import AccessLog
from gateway.counting.accounts import Accounts, Place
from gateway.counting.histogram import Histogram
from gateway.event_loop.batch_routing import split_by_session
from gateway.event_loop.event_loop import EventLoop
from gateway.event_loop.memory_limit import MemoryLimit
from gateway.event_loop.memory_watermark import MemoryWatermark
from gateway.event_loop.sweeper import Sweeper
from gateway.fleet.figures import OwnFigures
from gateway.lifecycle.apply_settings import apply_settings, disk_directory, disk_settings_of, memory_limit_of, rolling_of, watermarks_of
from gateway.lifecycle.disk_watch import DiskWatch
from gateway.lifecycle.drain import LATECOMERS_S, begin_drain, begin_drain_once_open, drain, hold
from gateway.lifecycle.periodic_tasks import every_second, every_tick, probe_broker, probe_brokers, probe_lag
from gateway.listeners.broker_listeners import apply_entries, brokers_of
from gateway.listeners.connection_errors import OFTEN_MANY, Refusal
from gateway.listeners.factory import listeners_of, open_listeners
from gateway.listeners.listener import Arrival, Listener
from gateway.listeners.resolver import Resolver
from gateway.pipeline.reports import FULL_FOR_USER, FULL_FOR_VHOST
from gateway.ports import RuleSource
from gateway.remote_admin import RemoteAdmin
from gateway.session.ending import close_gracefully, send_close
from gateway.session.session import Session
from gateway.session.shared import Shared
from gateway.session.states import CLOSING, OPEN
from gateway.telemetry import exposition
from gateway.telemetry.client_ranking import ClientRanking
from gateway.telemetry.limit_events import LimitEvents
from gateway.telemetry.moving_topics import MovingTopics
from gateway.telemetry.refused_clients import RefusedClients
from gateway.telemetry.topic_limits import TopicLimits
from gateway.waiting.disk.waiting_disk import WaitingDisk
from limiter.bypass import Bypass
from limiter.executor import Executor

if TYPE_CHECKING:
    from common.tls.context import Texts
    from config import Settings
    from gateway.admission import OtherProcesses
    from gateway.fleet.fleet import Fleet
    from gateway.lifecycle.fill_levels import FillLevelsFile
    from gateway.remote_admin import LimitRequestService
    from gateway.telemetry.moving_topics import Row
    from gateway.telemetry.span_export import SpanExport
    from limiter.judge import Judge
    from limiter.rules.rule_set import RuleSet

ARRIVING_ROUND_S: Final = 0.02  # seconds; between two looks whether all that were accepted are served
SLICE_SESSIONS: Final = 1000  # looked at in one go: 1 ms; a guess
QUIET: Final = ("client", "broker", "broker_moved", "drain", "admin", "shutdown")  # causes of an end that are no warning
UNSENT_BYTES: Final = 262_144  # bytes; that wait for a client, above which its broker is not read: one read


OnSecond = Callable[[int, float, "list[Row]"], Iterator[None]]


class Host(Protocol):
    """The process around a gateway."""

    def tasks(self) -> Iterable[Callable[[], Awaitable[None]]]:
        """What it does beside the gateway's own tasks."""

    async def administer(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Let the gateway be governed. Started before the first client is accepted, ended after the last."""

    async def watch_signals(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Ask for a drain when the process is told to stop."""

    async def announce_serving(self) -> None:
        """The gateway serves."""


class Gateway:
    """A gateway from its listeners to its brokers, with what operators see of it (`gateway.ports.RunningGateway`)."""

    def __init__(
        self,
        settings: Settings,
        judge: Judge,
        rule_source: RuleSource,
        log_handler: log.QueueHandler,
        *,
        boot: str,
        fill_levels: FillLevelsFile | None = None,
        worker: int = 0,
        first_connection: int = 1,
        tidy_access_log: bool = True,
        texts: Texts | None = None,
    ) -> None:
        """`judge` must not have judged yet. `boot` tells this run from others of the same name.

        `worker`: the place of this process, where it is one of several. `fill_levels` and `tidy_access_log` (close the access-log files
        that earlier runs left open) are for the process that has the state directory, which a worker has not. `texts`: files of TLS
        that need not be read, as a worker has them from its parent.
        """
        self.settings = settings
        self.judge = judge
        self.rule_source = rule_source
        self.log_handler = log_handler
        self.boot = boot
        self.fill_levels = fill_levels
        self.fleet = self._join_fleet()
        self.started = time.monotonic()
        self.took_over_at: float | None = None  # Unix time, in seconds; None: it began without a process before it
        self.draining = False
        self.holding = False  # it drains, and clients are served until they leave
        self.orphaned = False  # a worker whose parent has ended: another one may serve beside it
        self.limits_lifted = False  # near the end of a drain: what is held passes, whatever the rules say by now
        self.drain_requested = trio.Event()
        self.handed_over = False  # another process has taken over
        self.lag_s = 0.0
        self.lag = Histogram(exposition.LAG_BUCKETS)
        self.overhead = Histogram(exposition.OVERHEAD_BUCKETS)
        self.blocked_ns = {"reader": 0, "limiter": 0}  # of sessions that are over
        limiter = settings.limiter
        self.executor = Executor(
            judge.decide,
            limiter.threads,
            limiter.queue,
            limiter.on_rejection,
            self._judge_failed,
            judge.lock,
            Bypass(limiter.max_bypass, judge.count_judged),
            split_by_session,
            limiter.inline,
        )
        self.accounts = Accounts(settings.gateway.max_topics)
        self.limit_events = LimitEvents(self.accounts.topics)
        self.refused_clients = RefusedClients()
        self.client_ranking = ClientRanking()
        self.topic_limits = TopicLimits(self.accounts.shown)
        self.moving_topics = MovingTopics(self.accounts)
        self.own_figures = OwnFigures(f"{settings.gateway.name}{f' (worker {worker})' if worker else ''}")
        self.on_second: OnSecond = lambda *_: iter(())  # of the host: called with a second that is over, and what moved in it
        self.adaptive_caps = AdaptiveCaps(judge)
        self.accounts.observers += [self.limit_events.add, self.refused_clients.add, self.client_ranking.add, self.topic_limits.add]
        self.access_log = self._open_access_log(tidy=tidy_access_log)
        self.shared = Shared(
            judge, self.accounts, settings.credit.initial, settings.credit.more_after, settings.memory.per_connection, UNSENT_BYTES,
            settings.credit.bytes,
        )  # fmt: skip
        self.span_export = self._export_spans()
        high, deliveries = watermarks_of(settings)
        self.memory = MemoryWatermark(high, self.shared, deliveries)
        self.remote_admin: RemoteAdmin | None = None
        self.sweeper = Sweeper(self.executor, self._session_over, self.overhead)
        self.event_loop = EventLoop(self.sweeper)
        self.listening = listeners_of(settings, texts)
        slots = next(iter(self.listening.values())).admission.slots  # all listeners have the same
        self.disk = WaitingDisk(disk_directory(settings), *disk_settings_of(settings), workers=settings.gateway.workers)
        self.shared.disk = self.disk
        self.shared.make_room = self._make_room
        slots.make_room = self._make_room_at_the_door
        self.disk_watch = DiskWatch(self.disk)
        self.sweeper.take_disk(self.disk)
        self.memory_limit = MemoryLimit(memory_limit_of(settings), self.shared, self.memory, slots)
        self.sweeper.watch_volume(self.shared, self.check_memory)
        self.brokers = brokers_of(settings, self.listening)
        self._last_connection = first_connection - 1

    def _open_access_log(self, *, tidy: bool) -> AccessLog | None:
        settings = self.settings.access_log
        if settings is None:
            return None
        access_log = AccessLog(
            settings.directory,
            self.settings.gateway.name,
            self.boot,
            rolling_of(self.settings, tidy=tidy),
        )
        access_log.revision = self.rule_source.revision
        access_log.on_problem(
            lambda problem: log.event(logging.ERROR, "access_log_failed", err=problem),
            lambda lost: log.event(logging.INFO, "access_log_recovered", lost_lines=lost),
        )
        self.accounts.observers.append(access_log.running.add)
        return access_log

    def _join_fleet(self) -> Fleet | None:
        """Raises OSError where Redis' client is not installed."""
        if self.settings.fleet is None:
            return None
        try:
            from gateway.fleet.fleet import join_fleet
        except ModuleNotFoundError as error:
            raise OSError(f"fleet.redis needs the Python package {error.name}: pip install 'sluice-gateway[redis]'") from error
        return join_fleet(self.settings, self.judge, self.boot)

    def close_second(self, second: int, elapsed_s: float) -> Iterator[None]:
        """Tell the fleet and the host what happened in a second that is over."""
        if not self.settings.admin.series_topics and self.fleet is None:
            return
        rows = yield from self.moving_topics.rows()
        if self.fleet is not None:
            self.fleet.figures, self.fleet.figures_at = self.own_figures.note(rows, len(self.sweeper.sessions)), now_ns()
        if self.settings.admin.series_topics:
            yield from self.on_second(second, elapsed_s, rows)

    def _export_spans(self) -> SpanExport | None:
        """Raises OSError where OpenTelemetry is not installed as a whole, and for the file of headers."""
        if self.settings.tracing is None:
            return None
        from gateway.telemetry.span_export import SpanExport

        export = SpanExport(self.settings.tracing, self.settings.gateway.name, self.boot)
        self.shared.spans = export.recorder
        return export

    # ---- sessions --------------------------------------------------------------------------------------------------

    def _begin_session(self, listener: Listener, arrival: Arrival) -> None:
        """Take over a client whose broker was dialled."""
        client, address, upstream, permit = arrival.client, arrival.address, arrival.upstream, arrival.permit
        greeted = arrival.broker_greeted
        assert upstream is not None
        assert permit is not None
        self._last_connection += 1
        try:
            session = assemble(
                self._last_connection, client, address, upstream, listener.config, self.shared, permit, broker_greeted=greeted
            )
        except Exception as error:  # let it crash: this client only
            client.close()
            upstream.close()
            permit.release()
            listener.active -= 1
            listener.count_closed("gateway_error")
            log.failure("session_failed", error, listener=listener.name, client=f"{address[0]}:{address[1]}")
            return
        upstream.heard.connections += 1
        if self.draining and not self.holding and not self.handed_over:
            begin_drain(session, now_ns())
        self.sweeper.add(session, now_ns())
        self.event_loop.wake()

    def wake(self, session: Session) -> None:
        """Let the session take a turn."""
        self.sweeper.wake(session)
        self.event_loop.wake()

    def _session_over(self, session: Session, error: BaseException | None) -> None:
        listener = self.listening[session.listener_config.name]
        listener.active -= 1
        listener.count_closed(session.cause)
        heard = session.upstream.heard
        heard.connections -= 1
        heard.doubted = heard.doubted or not session.upstream.received
        now = now_ns()
        self.blocked_ns["reader"] += session.decode.credit.blocked_ns(now)
        self.blocked_ns["limiter"] += session.forward.credit.blocked_ns(now)
        session.flow.close(now)
        if error is None and session.cause in QUIET and not log.logger.isEnabledFor(logging.DEBUG):
            return
        context = session.conversation.context
        fields = {
            "listener": session.listener_config.name,
            "protocol": session.listener_config.protocol,
            "conn": session.number,
            "client": f"{context.client}:{context.client_port}",
            "user": session.conversation.user,
            "cause": session.cause,
            "detail": session.detail or None,
        }
        if error is not None:
            log.failure("session_failed", error, **fields)
        elif session.cause in OFTEN_MANY:
            refusal = Refusal(session.cause, session.detail, user=session.conversation.user)
            listener.refusal_log.add(refusal, (context.client, context.client_port), now)
        elif session.cause in QUIET:
            log.event(logging.DEBUG, "connection_closed", **fields)
        else:
            log.event(logging.WARNING, "connection_closed", **fields)

    def _make_room(self, refused: object) -> None:
        """A client was refused by a limit on connections, its broker's or its user's."""
        assert isinstance(refused, Session)
        user = refused.conversation.user if refused.reports.full == FULL_FOR_USER else None
        vhost = refused.conversation.describe().get("vhost") if refused.reports.full == FULL_FOR_VHOST else None
        self._give_one_up(refused.listener_config.name, None, user, vhost)

    def _make_room_at_the_door(self, listener: str, cause: str, address: str) -> None:
        """A client was refused by a limit on connections before it said anything."""
        if cause in (BY_ALL, BY_ADDRESS, BY_DESCRIPTORS):
            self._give_one_up(None if cause == BY_DESCRIPTORS else listener, address if cause == BY_ADDRESS else None, None, None)
            self.event_loop.wake()

    def _give_one_up(self, listener: str | None, address: str | None, user: str | None, vhost: object) -> None:
        """Of the connections like these whose client is gone, the one with the fewest messages goes."""
        least = find_in_the_way(self.sweeper.sessions.values(), listener, address, user, vhost)
        if least is not None:
            words = f"its client is gone, and another was refused by a limit on connections: {_count_waiting(least)} messages are given up"
            self.sweeper.attempt(least, partial(send_close, least, words, "connection_limit", now_ns()))
            self.sweeper.end(least)

    def close_left_behind(self, now: int) -> Iterator[None]:
        """Once a second: close what is connected to an address that a name server's broker has left; clients then dial its port again.

        In slices: what waits of clients that are gone stays there, for hours where its limit is low, and is looked for each time.
        """
        left = {listener.name: listener for brokers in self.brokers.values() for listener in brokers.list_left_behind()}
        if not left:
            return
        for number, session in enumerate(list(self.sweeper.sessions.values()), 1):
            if number % SLICE_SESSIONS == 0:
                self.event_loop.wake()
                yield
            listener = left.get(session.listener_config.name)
            if listener is None or listener.upstreams.has(session.upstream.heard):
                continue
            if session.state != OPEN or session.graceful_close is not None or session.gone_at:
                continue  # it closes already, or what waits of it goes on without its client
            words = f"the broker has moved to {listener.upstreams.text}"
            self.sweeper.attempt(session, partial(close_gracefully, session, words, "broker_moved", now))
            self.sweeper.end(session)
        self.event_loop.wake()

    def check_memory(self, now: int) -> None:
        """On each tick, and as often as enough was read: the process's limit, then the watermarks."""
        if self.memory_limit.check(self.sweeper, now):
            limit = self.memory_limit
            log.event(
                logging.WARNING if limit.step else logging.INFO, "memory_limit", step=limit.step, size_bytes=limit.size, limit=limit.limit
            )
        memory = self.memory
        memory.listener_configs = [listener.config for listener in self.listening.values()]
        if memory.check(self.sweeper, now):
            log.event(logging.WARNING if memory.full else logging.INFO, "memory_watermark", **asdict(memory.describe()))

    def _judge_failed(self, error: BaseException) -> None:
        log.failure("judge_failed", error, remedy="messages pass without a verdict and are counted as bypassed")

    # ---- what its host sees and does -------------------------------------------------------------------------------

    def find_topics(self, protocol: str | None, text: str) -> Generator[None, None, list[list[Place]]]:
        return self.accounts.index.find(protocol, text)

    def explain_unready(self) -> list[str]:
        """Why the gateway is not ready; empty when it is: when of every listener one broker has answered when it was asked last.

        Of a name server's brokers one suffices. Health must not lie.
        """
        if self.draining:
            return ["draining"]
        reasons = [f"listener {x.name} is not open" for x in self.listening.values() if x.sock is None]
        for name, brokers in self.brokers.items():
            named = brokers.list_named()
            if named and all(listener.upstreams.ok is False for listener in named):
                last = named[-1].upstreams
                none = f"none of the {len(named)} brokers in its routes can be reached"
                reasons.append(f"listener {name}: {none}; {last.text}: {last.why}")
        for listener in self.list_configured():
            upstreams = listener.upstreams
            if upstreams.ok is None:
                reasons.append(f"listener {listener.name}: broker {upstreams.text} has not been dialled yet")
            elif not upstreams.ok and len(upstreams.members) == 1:
                reasons.append(f"listener {listener.name}: broker {upstreams.text} is unreachable: {upstreams.why}")
            elif not upstreams.ok:
                reasons.append(f"listener {listener.name}: none of its {len(upstreams.members)} brokers is reachable: {upstreams.why}")
        return reasons

    def list_configured(self) -> list[Listener]:
        """The listeners of the configuration; the others were opened for brokers of a name server."""
        return [self.listening[entry.name] for entry in self.settings.listeners]

    def connections(self) -> dict[int, str]:
        """The protocol of each connection, by its number."""
        return {number: session.listener_config.protocol for number, session in self.sweeper.sessions.items()}

    def administer_remotely(self, service: LimitRequestService) -> None:
        """Have limit requests of clients done by `service`."""
        self.remote_admin = RemoteAdmin(service, self.wake)
        self.shared.take_gateway_request = self.remote_admin.take

    def count_with(self, others: OtherProcesses) -> None:
        """Caps on connections hold over all of them. Before the first client."""
        for listener in self.listening.values():
            listener.admission.count_with(others)

    def apply_reload(self) -> None:
        """Called when `settings` are those of a reload: what it changes holds, later listeners of brokers are made after them."""
        apply_settings(self)
        apply_entries(self.brokers, self.settings)

    def close_connection(self, connection: int, reason: str) -> bool:
        """Close one connection in its protocol's words, the reason (may be "") among them; False when there is none of that number."""
        session = self.sweeper.sessions.get(connection)
        if session is None:
            return False
        words = f"closed by an operator: {reason}" if reason else "closed by an operator"
        self.sweeper.attempt(session, partial(close_gracefully, session, words, "admin", now_ns()))
        self.sweeper.end(session)
        self.event_loop.wake()
        return True

    def enforce(self, rules: RuleSet) -> None:
        """Put `rules` in force for the next batch."""
        if not self.limits_lifted:
            renamed = self.judge.replace(rules, now_ns())
            for session in list(self.sweeper.sessions.values()):
                if renamed:
                    self.sweeper.attempt(session, session.conversation.renew_keys)
                lines = session.conversation.lines
                if lines.follows_limits():
                    self.sweeper.attempt(session, lines.limits_changed)
                    self.sweeper.wake(session)
        if self.access_log is not None:
            self.access_log.revision = rules.revision

    # ---- life ------------------------------------------------------------------------------------------------------

    def open(self, inheritance: systemd.Inheritance) -> None:
        """Open the listeners of the configuration, on inherited sockets where there are any. Raises OSError where one cannot be bound."""
        open_listeners(self.listening.values(), inheritance)

    def open_brokers(self, inheritance: systemd.Inheritance) -> None:
        """Open what was open for the brokers of name servers, as the state directory has it."""
        for brokers in self.brokers.values():
            brokers.restore(inheritance)

    async def run(self, host: Host) -> None:
        """Serve, and drain when asked to. The listeners are open."""
        trio.socket.set_custom_hostname_resolver(Resolver())
        if self.access_log is not None:
            self.access_log.start()
        if self.span_export is not None:
            self.span_export.start()
        async with trio.open_nursery() as nursery:
            await nursery.start(host.administer)
            async with trio.open_nursery() as accepting:
                nursery.start_soon(self.event_loop.run)
                if self.fleet is not None:
                    self.fleet.start()
                for task in (*self._tasks(), *host.tasks()):
                    nursery.start_soon(task)
                await nursery.start(host.watch_signals)
                for listener in self.list_configured():
                    accepting.start_soon(listener.accept_forever, self._begin_session)
                for brokers in self.brokers.values():
                    brokers.begin(partial(self._serve_broker, accepting))
                await host.announce_serving()
                systemd.notify("READY=1")
                await self.drain_requested.wait()
                asked = now_ns()
                self.draining = True
                if self.handed_over:
                    with trio.move_on_after(LATECOMERS_S):
                        await self._all_in()
                else:
                    systemd.notify("STOPPING=1")
                    self.holding = True
                    await hold(self, asked)
                    self.holding = False
                for brokers in self.brokers.values():
                    brokers.end()
                accepting.cancel_scope.cancel()
            await drain(self, asked)
            if self.fleet is not None:
                await trio.to_thread.run_sync(self.fleet.stop)
            if self.span_export is not None:
                await trio.to_thread.run_sync(self.span_export.stop)
            nursery.cancel_scope.cancel()

    def stand_still(self) -> None:
        """Accept nobody and read no client, until it is known whether the next process serves: `go_on` or `hand_over`."""
        for listener in self.listening.values():
            listener.stop_accepting()
        for brokers in self.brokers.values():
            brokers.hand_over()
        self.shared.standing_still = True

    def go_on(self) -> None:
        """The next process has come to nothing."""
        for brokers in self.brokers.values():
            brokers.take_back()
        for listener in self.listening.values():
            listener.accept_again()
        self._move()

    def hand_over(self) -> None:
        """The next process serves: take nothing new from whoever is served here, and drain."""
        self.handed_over = True
        for session in list(self.sweeper.sessions.values()):
            self.sweeper.attempt(session, partial(begin_drain_once_open, session, now_ns()))
        self._move()
        self.drain_requested.set()

    def _move(self) -> None:
        self.shared.standing_still = False
        self.sweeper.poke_all()
        self.event_loop.wake()

    async def _all_in(self) -> None:
        """Until all clients that were accepted are served, or have gone."""
        while any(listener.arriving for listener in self.listening.values()):
            await trio.sleep(ARRIVING_ROUND_S)

    def _tasks(self) -> list[Callable[[], Awaitable[None]]]:
        tasks: list[Callable[[], Awaitable[None]]] = [
            partial(every_tick, self), partial(every_second, self), partial(probe_lag, self),
            partial(probe_brokers, self.list_configured()),
        ]  # fmt: skip
        return tasks if self.remote_admin is None else [*tasks, self.remote_admin.run]

    def _serve_broker(self, accepting: trio.Nursery, listener: Listener, wanted: Callable[[], bool]) -> Callable[[], None]:
        """Serve a listener of a name server's broker, which is probed while `wanted`. Calling what is returned ends that."""
        scope = trio.CancelScope()

        async def serve() -> None:
            with scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(probe_broker, listener, wanted)
                    nursery.start_soon(listener.accept_forever, self._begin_session)
            listener.close()

        accepting.start_soon(serve)
        return scope.cancel


def find_in_the_way(
    sessions: Iterable[Session], listener: str | None, address: str | None, user: str | None, vhost: object
) -> Session | None:
    """Of those to that listener, of that address, user and virtual host (None: of any) that only what a gone client had sent keeps: the
    one with the fewest messages."""
    gone = [
        session
        for session in sessions
        if session.gone_at
        and session.state < CLOSING
        and listener in (None, session.listener_config.name)
        and address in (None, session.conversation.context.client)
        and user in (None, session.conversation.user)
        and (vhost is None or session.conversation.describe().get("vhost") == vhost)
    ]
    return min(gone, key=_count_waiting, default=None)


def _count_waiting(session: Session) -> int:
    """Messages that wait in it."""
    return session.budget.held_messages
