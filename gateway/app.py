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
import secrets
import signal
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from admin.ports import ReloadFailedError
from gateway import log, metrics, view
from gateway.access_log import AccessLog, Rolling
from gateway.accounts import Accounts
from gateway.assembly import Place, Shared
from gateway.build import build
from gateway.channel import Channel
from gateway.event_loop import EventLoop
from gateway.listeners import Listener
from gateway.session import Session
from gateway.sweep import Sweeper, now_ns
from limiter.executor import Executor
from limiter.judge import Judge
from limiter.units import format_byte_rate, format_rate

if TYPE_CHECKING:
    import socket

    from admin.store import Store
    from gateway.settings import Settings
    from limiter.keys import Key, Tally
    from limiter.limits import Limit
    from limiter.rules import RuleSet

DRAIN_S: Final = 30.0  # reliability.md A5
FAREWELL_S: Final = 2.0  # for clients to close after they were told
QUIET_NS: Final = 200_000_000  # a broker that has said nothing for so long has answered what it was asked (a guess)
TICK_S: Final = 0.25  # deadlines and heartbeats; heartbeats are at least 1 s apart
LAG_PROBE_S: Final = 0.05
BACKLOG_BYTES: Final = 262_144  # per side and connection: one read; above it the other side waits
GC_THRESHOLDS: Final = (50_000, 50, 1000)  # defaults paused 195 ms at 4,000 connections (reliability.md 0.3)


class Gateway:
    """A running gateway. Implements `admin.ports.Gateway`."""

    def __init__(self, settings: Settings, store: Store, log_handler: log.QueueHandler) -> None:
        self.settings = settings
        self.store = store
        self.log_handler = log_handler
        self.boot = secrets.token_hex(4)
        self.started = time.monotonic()
        self.draining = False
        self.drain_requested = trio.Event()
        self.last_reload_ok = True
        self.last_reload_at = time.time()
        self.lag_s = 0.0
        self.lag = metrics.Histogram(metrics.LAG_BUCKETS)
        self.overhead = metrics.Histogram(metrics.OVERHEAD_BUCKETS)
        self.blocked_ns = {"reader": 0, "limiter": 0}  # of sessions that are over
        self.judge = Judge(store.rules(), settings.limiter.max_keys)
        limiter = settings.limiter
        self.executor = Executor(self.judge.decide, limiter.threads, limiter.queue, limiter.on_rejection, self._judge_failed)
        self.accounts = Accounts()
        self.accounts.listeners.append(self._limit_event)
        self.limit_events = log.LimitEvents()
        self.access_log = self._open_access_log()
        self.shared = Shared(
            self.judge, self.accounts, settings.credit.initial, settings.credit.more_after, settings.memory.per_connection, BACKLOG_BYTES
        )
        self.sweeper = Sweeper(self.executor, self._session_over, self.overhead.observe)
        self.event_loop = EventLoop(self.sweeper)
        self.listening = {
            entry.name: Listener(Place(entry.name, entry.protocol, entry.max_frame, entry.handshake_timeout_ns), entry.bind, entry.upstream)
            for entry in settings.listeners
        }
        self._numbers = 0

    def _open_access_log(self) -> AccessLog | None:
        settings = self.settings.access_log
        if settings is None:
            return None
        access_log = AccessLog(
            settings.directory,
            self.settings.gateway.name,
            self.boot,
            Rolling(settings.roll_every_ns // 1_000_000_000, settings.roll_size, self.settings.disk.low_watermark),
        )
        access_log.revision = self.store.revision
        access_log.on_problem(lambda problem: log.event(logging.ERROR, "access_log_failed", err=problem))
        self.accounts.listeners.append(access_log.add)
        return access_log

    # ---- sessions --------------------------------------------------------------------------------------------------

    def _handover(self, listener: Listener, client: socket.socket, address: tuple[str, int], upstream: socket.socket) -> None:
        self._numbers += 1
        try:
            session = Session(self._numbers, Channel(client), address, Channel(upstream), listener.place, self.shared)
        except Exception as error:  # let it crash: this client only
            client.close()
            upstream.close()
            listener.active -= 1
            listener.count_closed("gateway_error")
            log.failure("session_failed", error, listener=listener.name, client=f"{address[0]}:{address[1]}")
            return
        self.sweeper.add(session, now_ns())
        if self.draining:
            session.begin_drain()
        self.event_loop.wake()

    def _session_over(self, session: Session, error: BaseException | None) -> None:
        listener = self.listening[session.place.listener]
        listener.active -= 1
        listener.count_closed(session.cause)
        now = now_ns()
        self.blocked_ns["reader"] += session.decode.credit.blocked_ns(now)
        self.blocked_ns["limiter"] += session.forward.credit.blocked_ns(now)
        circumstances = session.conversation.circumstances
        fields = {
            "listener": session.place.listener,
            "protocol": session.place.protocol,
            "conn": session.number,
            "client": f"{circumstances.client}:{circumstances.client_port}",
            "user": session.conversation.user,
            "cause": session.cause,
            "detail": session.detail or None,
        }
        if error is not None:
            log.failure("session_failed", error, **fields)
        elif session.cause in ("client", "broker", "drain", "admin", "shutdown"):
            log.event(logging.DEBUG, "connection_closed", **fields)
        else:
            log.event(logging.WARNING, "connection_closed", **fields)

    def _judge_failed(self, error: BaseException) -> None:
        log.failure("judge_failed", error, remedy="messages pass without a verdict and are counted as bypassed")

    def _limit_event(self, key: Key, tally: Tally) -> None:
        rule = tally.refused_by
        if rule is None:
            return
        origin = key.origin
        refused = tally.refused + tally.dropped
        self.limit_events.add(
            origin.listener, origin.protocol, key.text, origin.client, origin.user, refused, delayed=tally.delayed,
            rule=rule.name, limit=limit_text(rule.limit), rate=tally.received, retry_after_ms=round(tally.retry_after_ns / 1e6, 3),
        )  # fmt: skip

    # ---- what operators see and do (admin.ports.Gateway) -----------------------------------------------------------

    def status(self) -> dict[str, object]:
        return view.status(self)

    def ready(self) -> list[str]:
        """A listener whose broker was unreachable at the last dial makes the gateway not ready: health must not lie."""
        if self.draining:
            return ["draining"]
        reasons = [f"listener {x.name} is not open" for x in self.listening.values() if x.sock is None]
        reasons += [
            f"listener {x.name}: broker {view.address(*x.upstream)} is unreachable"
            for x in self.listening.values()
            if x.upstream_ok is False
        ]
        return reasons

    def listeners(self) -> list[dict[str, object]]:
        return view.listeners(self)

    def connections(self) -> list[dict[str, object]]:
        now = now_ns()
        return [session.describe(now) for session in self.sweeper.sessions.values()]

    def close_connection(self, connection: int) -> bool:
        session = self.sweeper.sessions.get(connection)
        if session is None:
            return False
        session.say_farewell("closed by an operator", "admin", now_ns())
        self.sweeper.end(session)
        self.event_loop.wake()
        return True

    def topics(self) -> list[dict[str, object]]:
        return view.topics(self)

    def metrics(self) -> Iterator[str]:
        return metrics.pieces(view.metric_lines(self))

    def configuration(self) -> dict[str, object]:
        return self.settings.describe()

    def reload(self) -> dict[str, object]:
        """Read the configuration again; its rules take effect, the rest is named where it needs a restart."""
        from gateway.settings import ConfigError

        self.last_reload_at = time.time()
        try:
            settings = self.settings.reload()
        except ConfigError as error:
            self.last_reload_ok = False
            log.event(logging.ERROR, "reload_failed", err=str(error), remedy="the last good configuration stays in force")
            raise ReloadFailedError([str(problem) for problem in error.errors]) from error
        difference: dict[str, object] = dict(self.settings.diff(settings))
        self.settings = self.settings.with_rules(settings)
        self.store.replace_file_rules(settings.rules)
        self.enforce(self.store.rules())
        self.last_reload_ok = True
        log.event(logging.INFO, "reloaded", **difference)
        return difference

    def enforce(self, rules: RuleSet) -> None:
        self.judge.replace(rules)
        if self.access_log is not None:
            self.access_log.revision = rules.revision

    def drain(self) -> None:
        self.drain_requested.set()

    # ---- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Open, serve, and drain when asked to. Raises OSError when an address cannot be bound."""
        from admin.app import serve

        for listener in self.listening.values():
            listener.open()
        if self.access_log is not None:
            self.access_log.start()
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve, self.settings.admin.bind, self, self.store, tokens=self.settings.admin.tokens))
            async with trio.open_nursery() as accepting:
                nursery.start_soon(self.event_loop.run)
                nursery.start_soon(self._every_tick)
                nursery.start_soon(self._every_second)
                nursery.start_soon(self._probe_lag)
                nursery.start_soon(self._watch_signals)
                for listener in self.listening.values():
                    accepting.start_soon(listener.accept_forever, self._handover)
                self._say_started()
                await self.drain_requested.wait()
                self.draining = True
                accepting.cancel_scope.cancel()
            await self._drain()
            nursery.cancel_scope.cancel()

    def _say_started(self) -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        for listener in self.listening.values():
            log.event(
                logging.INFO, "listening", listener=listener.name, protocol=listener.protocol,
                bind=view.address(*listener.address), upstream=view.address(*listener.upstream),
            )  # fmt: skip
        log.event(logging.INFO, "started", after_ms=round((time.monotonic() - self.started) * 1e3), build=build().kind)

    async def _watch_signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                if number == signal.SIGHUP:
                    try:
                        self.reload()
                    except ReloadFailedError:
                        continue  # logged where it happened; the last good configuration stays
                else:
                    log.event(logging.INFO, "stopping", signal=signal.Signals(number).name)
                    self.drain_requested.set()

    async def _every_tick(self) -> None:
        """Deadlines, heartbeats and the memory watermark."""
        while True:
            await trio.sleep(TICK_S)
            self.sweeper.tick(now_ns())
            held = sum(session.conversation.held_bytes + session.upstream.backlog for session in self.sweeper.sessions.values())
            full = held >= self.settings.memory.high_watermark
            if full != self.shared.memory_full:
                self.shared.memory_full = full
                log.event(logging.WARNING if full else logging.INFO, "memory_watermark", full=full, held_bytes=held)
                self.sweeper.poke_all()
            self.event_loop.wake()

    async def _every_second(self) -> None:
        """The access log's second, rates, limit events, overrides that expire."""
        second = int(time.time())
        previous = now_ns()
        while True:
            await trio.sleep(max(0.0, second + 1 - time.time()))
            now = now_ns()
            try:
                self._close_second(second, max((now - previous) / 1e9, 1e-6), now)
            except Exception as error:  # a fault in bookkeeping must not take the data plane down
                log.failure("bookkeeping_failed", error)
            previous = now
            current = int(time.time())
            second = max(second + 1, current) if current >= second else current  # the wall clock may jump
            for listener in self.listening.values():
                if listener.upstream_ok is False:
                    await listener.probe()

    def _close_second(self, second: int, elapsed_s: float, now: int) -> None:
        self.accounts.fold(now)
        self.accounts.tick(elapsed_s)
        self.limit_events.tick()
        if self.access_log is not None:
            self.access_log.close_second(second)

    async def _probe_lag(self) -> None:
        while True:
            due = trio.current_time() + LAG_PROBE_S
            await trio.sleep_until(due)
            self.lag_s = max(0.0, trio.current_time() - due)
            self.lag.observe(self.lag_s)

    async def _drain(self) -> None:
        """Let what is in flight go its way, tell the clients, then stop."""
        for listener in self.listening.values():
            listener.close()
        started = now_ns()
        deadline = started + int(DRAIN_S * 1e9)
        sessions = self.sweeper.sessions
        for session in list(sessions.values()):
            session.begin_drain()
        while sessions and now_ns() < deadline:
            now = now_ns()
            for session in list(sessions.values()):
                if session.drained(now, QUIET_NS):
                    session.say_farewell("the gateway is stopping", "drain", now)
                self.sweeper.end(session)
            self.event_loop.wake()
            if all(session.conversation.draining for session in sessions.values()):
                break
            await trio.sleep(0.02)
        await self._farewells(deadline)
        self.event_loop.stop()
        self.sweeper.close()
        self.executor.close(1.0)
        self.accounts.fold(now_ns())
        if self.access_log is not None:
            await trio.to_thread.run_sync(self.access_log.stop, int(time.time()), 5.0)
        log.event(logging.INFO, "stopped", after_ms=round((now_ns() - started) / 1e6))

    async def _farewells(self, deadline: int) -> None:
        """Tell those that are left, and give all of them a moment to close."""
        sessions = self.sweeper.sessions
        now = now_ns()
        for session in list(sessions.values()):
            if not session.conversation.draining:
                log.event(logging.WARNING, "drain_deadline", conn=session.number, state=session.state())
                session.say_farewell("the gateway is stopping", "drain", now)
            self.sweeper.end(session)
        self.event_loop.wake()
        with trio.move_on_after(FAREWELL_S):
            while sessions:
                await trio.sleep(0.01)


def limit_text(limit: Limit) -> str:
    """A limit as people write it: `500/s, 10MiB/s`."""
    messages = [] if limit.messages is None else [format_rate(limit.messages)]
    return ", ".join(messages + ([] if limit.bytes is None else [format_byte_rate(limit.bytes)])) or "unlimited"


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The exceptions in a group of groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


def run(settings: Settings) -> int:
    """Run a gateway until it is told to stop; the process's exit code."""
    from admin.auth import TokenError
    from admin.store import Store, StoreError

    handler = log.start(settings.log.level, settings.log.format)
    try:
        store = Store.open(settings.gateway.state_directory, settings.rules, time.time)
        gateway = Gateway(settings, store, handler)
        trio.run(gateway.run)
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
