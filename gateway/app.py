"""The composition root: builds the rooms, connects them, runs them, stops them.

::

    settings ──► Store (admin) ── RuleSet ──► Judge ◄── Executor ◄── Sweeper ◄── Listeners
                   ▲                            ▲                       │
                   │ changes, durable first     │ enforce               ▼
               Admin server ───────────────── Gateway (this) ──► Accounts ──► access log, metrics, log events

Nothing is decided here but the order of things: how to start, what happens once a second, and how to stop.
"""

from __future__ import annotations

import gc
import logging
import resource
import secrets
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import trio

import admin.ports
from admin.ports import ReloadFailedError
from admin.remote_admin import LimitRequestService
from gateway import log, systemd
from gateway.assembly import assemble
from gateway.broker_load.adaptive_caps import Caps
from gateway.broker_load.lag_watch import Backlogs, follow_backlogs, logins_of
from gateway.build import build
from gateway.clock import now_ns
from gateway.counting.access_log import AccessLog, Rolling
from gateway.counting.accounts import Accounts
from gateway.counting.histogram import Histogram
from gateway.event_loop.batch_routing import split_by_session
from gateway.event_loop.event_loop import EventLoop
from gateway.event_loop.memory_watermark import MemoryWatermark
from gateway.event_loop.sweeper import Sweeper
from gateway.lifecycle.drain import begin, drain
from gateway.lifecycle.fill_levels import Fills
from gateway.lifecycle.periodic_tasks import (
    Rounds,
    every_second,
    every_tick,
    expire_changes,
    in_turns,
    joined,
    keep_fills,
    probe_broker,
    probe_brokers,
    probe_lag,
)
from gateway.lifecycle.reload import Found, Reloads, reload_on_hangup
from gateway.listeners.broker_listeners import brokers_of, put_entries
from gateway.listeners.connection_errors import SHARED, Refusal
from gateway.listeners.factory import Protection, changed_tls, listeners_of, open_listeners, put_tls, say_ending
from gateway.listeners.listener import Arrival, Listener
from gateway.remote_admin import RemoteAdmin
from gateway.session.ending import close_gracefully
from gateway.session.session import Session
from gateway.session.shared import Shared
from gateway.telemetry import collector, exposition, status
from gateway.telemetry.limit_events import LimitEvents
from gateway.telemetry.refused_clients import RefusedClients
from limiter.bypass import Bypass
from limiter.executor import Executor
from limiter.judge import Judge

if TYPE_CHECKING:
    from admin.store import Store
    from gateway.fleet.fleet import Fleet
    from gateway.settings import Settings
    from limiter.rules.rule_set import RuleSet

BACKLOG_BYTES: Final = 262_144  # per side and connection: one read; above it the other side waits
ADMIN_AGAIN_S: Final = 1.0  # after a fault that ended the admin server
COUNTED: Final = ("/metrics", "/v1/topics")  # paths of the admin API whose answers fold the accounts first
# Defaults paused 195 ms at 4,000 connections (docs/design/reliability.md 1.2). A collection of the young takes 0.5 µs for each: of 50,000
# it was what a client felt most, 25 ms, once a minute (2026-11). The second number keeps the next ones as rare: after 2,500,000 more that
# have stayed.
GC_THRESHOLDS: Final = (5_000, 500, 1000)


class Gateway:
    """A running gateway. Implements `admin.ports.Gateway`."""

    TASKS: ClassVar[tuple[Callable[[Gateway], Awaitable[None]], ...]] = (
        every_tick, every_second, expire_changes, keep_fills, probe_lag, probe_brokers, follow_backlogs,
    )  # fmt: skip
    TIDY: ClassVar[bool] = True  # access-log files that earlier runs left open are this one's to close

    def __init__(
        self, settings: Settings, store: Store, log_handler: log.QueueHandler, inheritance: systemd.Inheritance | None = None
    ) -> None:
        self.settings = settings
        self.inheritance = inheritance or systemd.Inheritance([])
        self.store = store
        self.log_handler = log_handler
        self.boot = self._boot()
        self.started = time.monotonic()
        self.draining = False
        self.limits_lifted = False  # near the end of a drain: what is held passes, whatever the rules say by now
        self.drain_requested = trio.Event()
        self.reloads = Reloads()
        self.lag_s = 0.0
        self.lag = Histogram(exposition.LAG_BUCKETS)
        self.overhead = Histogram(exposition.OVERHEAD_BUCKETS)
        self.blocked_ns = {"reader": 0, "limiter": 0}  # of sessions that are over
        self.judge = Judge(store.rules(), settings.limiter.max_keys)
        self.fleet = self._join_fleet()
        self.fills = Fills(settings.gateway.state_directory, self.judge)
        self._recall()
        limiter, judge = settings.limiter, self.judge
        self.executor = Executor(
            judge.decide,
            limiter.threads,
            limiter.queue,
            limiter.on_rejection,
            self._judge_failed,
            judge.lock,
            Bypass(limiter.max_bypass, judge.judged),
            split_by_session,
        )
        self.accounts = Accounts()
        self.limit_events = LimitEvents()
        self.refused_clients = RefusedClients()
        self.caps = Caps(judge)
        self.accounts.observers += [self.limit_events.add, self.refused_clients.add]
        self.access_log = self._open_access_log()
        self.shared = Shared(
            self.judge, self.accounts, settings.credit.initial, settings.credit.more_after, settings.memory.per_connection, BACKLOG_BYTES
        )
        self.memory = MemoryWatermark(settings.memory.high_watermark, self.shared)
        self.remote_admin = RemoteAdmin(LimitRequestService(self, store), self._wake)
        self.shared.take_gateway_request = self.remote_admin.take
        self.sweeper = Sweeper(self.executor, self._session_over, self.overhead)
        self.event_loop = EventLoop(self.sweeper)
        self.listening = listeners_of(settings)
        self.brokers = brokers_of(settings, self.listening)
        self.backlogs = Backlogs(judge, self.listening, logins_of(settings), now_ns)
        self._numbers = 0  # of the last connection

    def _boot(self) -> str:
        """What tells this run from others of the same name."""
        return secrets.token_hex(4)

    def _join_fleet(self) -> Fleet | None:
        """This gateway's part in a fleet, where it is in one. Raises OSError where Redis' client is not installed."""
        if self.settings.fleet is None:
            return None
        try:
            from gateway.fleet.fleet import Fleet
        except ModuleNotFoundError as error:
            raise OSError(f"fleet.redis needs the Python package {error.name}: pip install 'sluice-gateway[redis]'") from error
        return Fleet(self.settings.fleet.redis, self.judge, self.boot)

    def _recall(self) -> None:
        """Give the judge what it has to know before the first key."""
        self.fills.restore()

    def _open_access_log(self) -> AccessLog | None:
        settings = self.settings.access_log
        if settings is None:
            return None
        access_log = AccessLog(
            settings.directory,
            self.settings.gateway.name,
            self.boot,
            Rolling(settings.roll_every_ns // 1_000_000_000, settings.roll_size, self.settings.disk.low_watermark, tidy=self.TIDY),
        )
        access_log.revision = self.store.revision
        access_log.on_problem(
            lambda problem: log.event(logging.ERROR, "access_log_failed", err=problem),
            lambda lost: log.event(logging.INFO, "access_log_recovered", lost_lines=lost),
        )
        self.accounts.observers.append(access_log.gathering.add)
        return access_log

    # ---- sessions --------------------------------------------------------------------------------------------------

    def _handover(self, listener: Listener, arrival: Arrival) -> None:
        client, address, upstream, permit = arrival.client, arrival.address, arrival.upstream, arrival.permit
        assert upstream is not None
        assert permit is not None
        self._numbers += 1
        try:
            session = assemble(self._numbers, client, address, upstream, listener.config, self.shared, permit)
        except Exception as error:  # let it crash: this client only
            client.close()
            upstream.close()
            permit.release()
            listener.active -= 1
            listener.count_closed("gateway_error")
            log.failure("session_failed", error, listener=listener.name, client=f"{address[0]}:{address[1]}")
            return
        if self.draining:
            begin(session, now_ns())
        self.sweeper.add(session, now_ns())
        self.event_loop.wake()

    def _wake(self, session: Session) -> None:
        self.sweeper.wake(session)
        self.event_loop.wake()

    def _session_over(self, session: Session, error: BaseException | None) -> None:
        listener = self.listening[session.listener_config.name]
        listener.active -= 1
        listener.count_closed(session.cause)
        now = now_ns()
        self.blocked_ns["reader"] += session.decode.credit.blocked_ns(now)
        self.blocked_ns["limiter"] += session.forward.credit.blocked_ns(now)
        session.flow.close(now)
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
        elif session.cause in SHARED:
            refusal = Refusal(session.cause, session.detail, user=session.conversation.user)
            listener.refusals.add(refusal, (context.client, context.client_port), now)
        elif session.cause in ("client", "broker", "drain", "admin", "shutdown"):
            log.event(logging.DEBUG, "connection_closed", **fields)
        else:
            log.event(logging.WARNING, "connection_closed", **fields)

    def _judge_failed(self, error: BaseException) -> None:
        log.failure("judge_failed", error, remedy="messages pass without a verdict and are counted as bypassed")

    # ---- what operators see and do (admin.ports.Gateway) -----------------------------------------------------------

    def status(self) -> dict[str, object]:
        return status.status(self)

    def ready(self) -> list[str]:
        """Ready is who has reached each listener's broker, at the last dial or look, and one of a name server's: health must not lie."""
        if self.draining:
            return ["draining"]
        reasons = [f"listener {x.name} is not open" for x in self.listening.values() if x.sock is None]
        for name, brokers in self.brokers.items():
            named = brokers.named()
            if named and all(listener.upstream.ok is False for listener in named):
                reasons.append(f"listener {name}: none of the {len(named)} brokers in its routes can be reached")
        for listener in self.configured():
            upstream = listener.upstream
            if upstream.ok is None:
                reasons.append(f"listener {listener.name}: broker {upstream.text} has not been dialled yet")
            elif not upstream.ok:
                reasons.append(f"listener {listener.name}: broker {upstream.text} is unreachable")
        return reasons

    def warnings(self) -> list[str]:
        return status.warnings(self)

    def configured(self) -> list[Listener]:
        """Those that stand in the configuration; the others were opened for brokers of a name server."""
        return [self.listening[entry.name] for entry in self.settings.listeners]

    def listeners(self) -> list[dict[str, object]]:
        return status.listeners(self)

    def connections(self) -> dict[int, str]:
        return {number: session.listener_config.protocol for number, session in self.sweeper.sessions.items()}

    async def describe_connections(self, numbers: Sequence[int]) -> list[dict[str, object]]:
        return await joined(status.connections(self, numbers))

    def close_connection(self, connection: int, reason: str) -> bool:
        session = self.sweeper.sessions.get(connection)
        if session is None:
            return False
        words = f"closed by an operator: {reason}" if reason else "closed by an operator"
        self.sweeper.attempt(session, partial(close_gracefully, session, words, "admin", now_ns()))
        self.sweeper.end(session)
        self.event_loop.wake()
        return True

    async def topics(self) -> list[dict[str, object]]:
        return await joined(status.topics(self))

    def metrics(self, others: exposition.Samples) -> Iterator[str]:
        return exposition.pieces(collector.metric_lines(self, others))

    def configuration(self) -> dict[str, object]:
        return self.settings.describe()

    async def reload(self, *, dry_run: bool = False) -> dict[str, object]:
        """Read the configuration and the files of TLS again; rules and TLS take effect, the rest is named where it needs a restart.

        A dry run says the same and changes nothing, the outcome of the last reload included. Traffic goes on while the files are read
        (`lifecycle.reload`). Raises ReloadFailedError.
        """
        async with self.reloads.turn:
            try:
                found = await self.reloads.read(self.settings, self.store.file_rules)
                protection = found.with_derived(self.brokers)
            except ReloadFailedError as error:
                if not dry_run:
                    self.reloads.failed(error)
                raise
            if dry_run:
                in_force = found.difference["in_force"] + changed_tls(self.listening, protection)
                return {**found.difference, "in_force": in_force, "dry_run": True}
            return self._put(found, protection)

    def _put(self, found: Found, protection: dict[str, Protection]) -> dict[str, object]:
        """Put in force what was read; says what changed. Live changes made since the reading began hold as well."""
        self.settings = found.merged
        if found.compiled is not None:
            self.store.replace_file_rules(found.settings.rules, found.compiled)
            self.enforce(self.store.rules())
        found.difference["in_force"] += put_tls(self.listening, protection)
        put_entries(self.brokers, found.merged)
        self.reloads.done(found)
        return {**found.difference}

    def enforce(self, rules: RuleSet) -> None:
        if not self.limits_lifted and self.judge.replace(rules, now_ns()):
            for session in list(self.sweeper.sessions.values()):
                self.sweeper.attempt(session, session.conversation.rules_changed)
        if self.access_log is not None:
            self.access_log.revision = rules.revision

    def drain(self) -> None:
        self.drain_requested.set()

    async def gather(self, route: str) -> None:
        """Most of what is to be counted is, for who tells of topics: what is left to do at once is little."""
        if route in COUNTED:
            await in_turns(self.accounts.slices(now_ns()))

    async def in_force(self) -> None:
        """What is enforced holds from the next batch on."""

    # ---- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Open, serve, and drain when asked to. Raises OSError when an address cannot be bound."""
        open_listeners(self.listening.values(), self.inheritance)
        for brokers in self.brokers.values():
            brokers.restore(self.inheritance)
        admin_socket = self.inheritance.at(self.settings.admin.bind) or self.inheritance.named("admin")
        self.inheritance.close_rest()
        if self.access_log is not None:
            self.access_log.start()
        async with trio.open_nursery() as nursery:
            await nursery.start(self._administer, admin_socket)
            async with trio.open_nursery() as accepting:
                nursery.start_soon(self.event_loop.run)
                if self.fleet is not None:
                    self.fleet.start()
                for task in self.TASKS:
                    nursery.start_soon(task, self)
                await nursery.start(self._watch_signals)
                nursery.start_soon(self.remote_admin.run)
                for listener in self.configured():
                    accepting.start_soon(listener.accept_forever, self._handover)
                for brokers in self.brokers.values():
                    brokers.begin(partial(self._attend, accepting))
                self._say_started()
                systemd.tell("READY=1")
                await self.drain_requested.wait()
                asked = now_ns()
                systemd.tell("STOPPING=1")
                self.draining = True
                for brokers in self.brokers.values():
                    brokers.end()
                accepting.cancel_scope.cancel()
            await drain(self, asked)
            if self.fleet is not None:
                await trio.to_thread.run_sync(self.fleet.stop)
            nursery.cancel_scope.cancel()

    def _attend(self, accepting: trio.Nursery, listener: Listener, wanted: Callable[[], bool]) -> Callable[[], None]:
        """Serve a listener of a name server's broker, which is probed while `wanted`; what is returned ends that."""
        scope = trio.CancelScope()

        async def serve() -> None:
            with scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(probe_broker, listener, wanted)
                    nursery.start_soon(listener.accept_forever, self._handover)
            listener.close()

        accepting.start_soon(serve)
        return scope.cancel

    async def _administer(self, inherited: socket.socket | None = None, *, task_status: trio.TaskStatus[None]) -> None:
        await administer(self, inherited, task_status=task_status)

    def _say_started(self) -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        for listener in self.listening.values():
            log.event(logging.INFO, "listening", **status.listening(listener))
        say_ending(self.settings)
        log.event(logging.INFO, "started", after_ms=round((time.monotonic() - self.started) * 1e3), build=build().kind)

    async def _watch_signals(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(reload_on_hangup, self.reload)
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                task_status.started()
                async for number in signals:
                    log.event(logging.INFO, "stopping", signal=signal.Signals(number).name)
                    self.drain_requested.set()


class Administered(admin.ports.Gateway, Protocol):
    """A gateway, and what its admin server is made of."""

    @property
    def settings(self) -> Settings: ...
    @property
    def store(self) -> Store: ...


async def administer(gateway: Administered, inherited: socket.socket | None, *, task_status: trio.TaskStatus[None]) -> None:
    """The admin API. Once it is up no fault in it ends the gateway: it is begun again."""
    from admin.app import serve

    def where() -> tuple[str, int] | list[trio.SocketListener]:
        if inherited is None:
            return gateway.settings.admin.bind
        return [trio.SocketListener(trio.socket.from_stdlib_socket(inherited.dup()))]  # the server closes what it is given

    rounds = Rounds("admin", "admin_failed")
    up = False
    while True:
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(serve, where(), gateway, gateway.store, tokens=gateway.settings.admin.tokens))
                if not up:
                    up = True
                    task_status.started()
        except Exception as error:
            if not up:
                raise
            rounds.fail(error)
        await trio.sleep(ADMIN_AGAIN_S)


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The exceptions in a group of groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


def raise_descriptor_limit() -> None:
    """Use what the system allows: a proxied connection takes two descriptors, and the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def composed(
    settings: Settings, store: Store, handler: log.QueueHandler, inheritance: systemd.Inheritance
) -> Callable[[], Awaitable[None]]:
    """What runs the gateway: it alone, or the parent of its workers."""
    if settings.gateway.workers == 1:
        return Gateway(settings, store, handler, inheritance).run
    from gateway.workers.parent import Parent

    return Parent(settings, store, handler, inheritance).run


def run(settings: Settings) -> int:
    """Run a gateway until it is told to stop; the process's exit code."""
    from admin.auth import TokenError
    from admin.store import Store, StoreError

    handler = log.start(settings.log.level, settings.log.format)
    inheritance = systemd.inherit()
    raise_descriptor_limit()
    try:
        store = Store.open(settings.gateway.state_directory, settings.rules, time.time)
        trio.run(composed(settings, store, handler, inheritance))
    except (OSError, StoreError) as error:
        log.event(logging.CRITICAL, "cannot_start", err=str(error))
        return 1
    except BaseExceptionGroup as group:  # out of the nursery: an address is taken, a token file is empty
        expected, rest = group.split((OSError, TokenError))
        if expected is None or rest is not None:
            raise
        for leaf in leaves(expected):
            log.event(logging.CRITICAL, "cannot_start", err=str(leaf))
        return 1
    finally:
        handler.close()
    return 0
