"""A worker: one of several processes that serve a gateway's clients, under one parent.

It hosts a gateway without what there can be only one of: the admin API, the state directory with its fill levels, reloads at SIGHUP.
Clients come in by sockets that the parent has opened. Its judge has parts of the limits (`limiter.leases.leased_bucket`) and asks the
parent for more every ASK_S while anything is in use. When the parent is gone, so is the socket between them: the worker then stops
gracefully.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from common import log
from common.quick_switches import quick_switches
from common.recent_events import RecentEvents
from common.supervised_loop import SupervisedLoop
from common.tls.certificates import TlsFileError
from common.tls.context import Texts
from config import ConfigError, Settings
from config.reloading import merge
from config.worker_settings import settings_of
from gateway.app import Gateway
from gateway.clock import now_ns
from gateway.data_plane import Close, Drain, FollowBacklog, LocalPlane, LogLevel, StandStill
from gateway.event_loop.heap import bound_free_heap
from gateway.lifecycle.apply_settings import apply_log
from gateway.lifecycle.process import freeze_heap, raise_descriptor_limit
from gateway.lifecycle.signals import Signals, wait_for_stop
from gateway.lifecycle.watchdog import Watchdog
from gateway.listeners.factory import Protection, apply_tls, read_tls
from gateway.systemd import Inheritance
from gateway.telemetry import status
from gateway.telemetry.moving_topics import SecondsToReport
from gateway.workers import rules as rule_sets
from gateway.workers.bucket_ids import BucketIds
from gateway.workers.limit_requests import ParentsLimitRequests
from gateway.workers.shared_counts import SharedCounts
from gateway.workers.wire import (
    FOR_WORKERS,
    HEAD,
    Asks,
    Begin,
    BucketsForgotten,
    ChangeDone,
    Describe,
    Described,
    Grants,
    LimitRequestDone,
    NewRaise,
    NewRules,
    Outbox,
    Reload,
    StateQuery,
    StateReport,
    Up,
    WorkerReady,
    frame,
    listen,
)  # fmt: skip
from limiter.buckets.factory import BucketFactory
from limiter.judge import Judge
from limiter.leases.lease import Lease

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from gateway.counting.accounts import TopicTotals
    from gateway.workers.wire import AnyMessage
    from limiter.buckets.lease_ask import LeaseAsk
    from limiter.rules.rule_set import RuleSet

# By default they would end a worker that waits for `Begin`: whoever signals the parent, or a terminal's group, does not mean that.
UNTIL_IT_SERVES: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
ASK_S: Final = 0.01  # seconds; between asks. Slices are for 75 ms, so an answer may take a few of these (limiter.leases.leased_bucket)
FORGET_S: Final = 10.0  # seconds; between looks for buckets that the ledger has let go
MAX_UNSENT_BYTES: Final = 256 * 1024 * 1024  # bytes; what waits for the parent, above which it does not listen any more; a guess
CONNECTIONS_PER_GENERATION: Final = 1_000_000_000  # numbers; for the connections of one worker process: 1000000017 is worker 1's
MAX_RELOADS: Final = 10_000  # reloads that wait for one another; their parent waits for each before the next; a guess
MAX_WORKERS: Final = 1024  # workers; as the settings allow


class RuleCache:
    """The rules that the parent has sent last, in the place of its store. Implements `gateway.ports.RuleSource`."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules

    @property
    def revision(self) -> int:
        return self._rules.revision

    def rules(self) -> RuleSet:
        return self._rules

    def put(self, rules: RuleSet) -> None:
        self._rules = rules

    def __repr__(self) -> str:
        return f"<RuleCache revision={self.revision}>"


class Worker:
    """Hosts one gateway, which the parent governs. Implements `gateway.app.Host`."""

    def __init__(self, begin: Begin, settings: Settings, log_handler: log.QueueHandler, parent: socket.socket) -> None:
        self.begin = begin
        self.parent = parent
        self.rule_cache = RuleCache(rule_sets.decode(begin.rules))
        self.outbox = Outbox(MAX_UNSENT_BYTES)
        self.recent_events = RecentEvents(begin.boot)
        self.lease = Lease(begin.workers)
        self.bucket_ids = BucketIds(self.lease)
        self._forgotten_topics: list[TopicTotals] = []  # since the last report of topics
        self._asked: list[list[LeaseAsk]] = []  # without an answer yet, in order
        self._to_reload, self._reloads = trio.open_memory_channel[Reload](MAX_RELOADS)
        judge = Judge(self.rule_cache.rules(), settings.limiter.max_keys, bounds_names=True)
        judge.make_buckets_with(BucketFactory(begin.workers, self.lease))
        self.gateway = Gateway(
            settings, judge, self.rule_cache, log_handler,
            boot=f"{begin.boot}w{begin.worker}l{begin.generation}",
            first_connection=(begin.generation * MAX_WORKERS + begin.worker) * CONNECTIONS_PER_GENERATION + 1,
            worker=begin.worker,
            tidy_access_log=False,
            texts=Texts(begin.texts),
        )  # fmt: skip
        if begin.counts >= 0:
            os.set_inheritable(begin.counts, False)
            self.gateway.count_with(SharedCounts(begin.counts, begin.workers, begin.worker, [entry.name for entry in settings.listeners]))
        self.limit_requests = ParentsLimitRequests(self.outbox)
        self.gateway.administer_remotely(self.limit_requests)
        self.plane = LocalPlane(self.gateway, begin.worker)
        self.seconds = SecondsToReport()
        self.gateway.on_second = self.seconds.close_second
        self.gateway.accounts.observers.append(self.bucket_ids.note_change)
        self.gateway.accounts.forget_observers.append(self._note_forgotten)

    # ---- what the gateway needs of its host (gateway.app.Host) -----------------------------------------------------

    async def run(self) -> None:
        """Open, serve, and drain when the parent says so, or is gone."""
        sockets = SocketsByName([(name, _adopt_socket(descriptor)) for name, descriptor in self.begin.sockets.items()])
        with self.recent_events:
            self.gateway.open(sockets)
            self.gateway.open_brokers(sockets)
            sockets.close_rest()
            await self.gateway.run(self)

    def tasks(self) -> Iterable[Callable[[], Awaitable[None]]]:
        return ()

    async def administer(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Talk with the parent, which administers it."""
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(self.parent))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.outbox.send_to, stream)
            nursery.start_soon(self._ask)
            nursery.start_soon(self._forget)
            nursery.start_soon(self._reload_in_turn)
            task_status.started()
            await listen(stream, FOR_WORKERS, self.take)
            if not self.gateway.draining:
                log.event(logging.ERROR, "parent_gone", remedy="this worker stops gracefully")
            self.lease.owner_lost(now_ns())
            self.gateway.orphaned = True
            self.gateway.drain_requested.set()
            nursery.cancel_scope.cancel()

    async def watch_signals(self, *, task_status: trio.TaskStatus[None]) -> None:
        """A service manager may signal all processes of a group: the worker stops with its parent, and leaves reloading to it."""
        with trio.open_signal_receiver(signal.SIGHUP):
            await wait_for_stop(task_status=task_status)
            self.gateway.drain_requested.set()
            await trio.sleep_forever()

    async def announce_serving(self) -> None:
        freeze_heap()
        self.outbox.put(WorkerReady(os.getpid()))
        after_ms = round((time.monotonic() - self.gateway.started) * 1e3)
        log.event(logging.INFO, "worker_started", pid=os.getpid(), after_ms=after_ms)

    # ---- leased buckets ----------------------------------------------------------------------------------------------

    async def _ask(self) -> None:
        loop = SupervisedLoop("slices")
        while True:
            with loop:
                if self.lease.active:
                    self.ask(now_ns())
            await trio.sleep(ASK_S)

    def ask(self, now: int) -> None:
        asks = self.gateway.judge.asks(self.lease, now)
        if asks:
            self._asked.append(asks)
            self.outbox.put(Asks([(self.bucket_ids.id_of(ask.bucket, self.outbox), ask.messages, ask.size) for ask in asks]))

    async def _forget(self) -> None:
        while True:
            await trio.sleep(FORGET_S)
            gone = self.bucket_ids.forget()
            if gone:
                self.outbox.put(BucketsForgotten(gone))

    # ---- what the parent sends ---------------------------------------------------------------------------------------

    def take(self, message: AnyMessage) -> None:
        match message:
            case Grants(grants):
                pairs = zip(self._asked.pop(0), grants, strict=True)
                self.gateway.judge.take_grants([(ask, messages, size) for ask, (_, messages, size) in pairs], now_ns())
            case NewRules(number, rules):
                self._put_in_force(number, rule_sets.decode(rules))
            case NewRaise(number, hourly):
                self._put_in_force(number, self.rule_cache.rules().raised_by(rule_sets.hourly_raise(hourly)))
            case Reload():
                self._to_reload.send_nowait(message)
            case StateQuery(number, views):
                self.outbox.put(self._report(number, views))
            case Describe(number, connections):
                try:
                    self.outbox.put(Described(number, self.plane.describe_connections(connections)))
                except Exception as error:  # without an answer they are shown by what the parent knows of them
                    log.failure("view_failed", error, view="connections")
            case LimitRequestDone():
                self.limit_requests.take(message)
            case Close() | LogLevel() | StandStill() | Drain() | FollowBacklog():
                self.plane.act(message)

    def _put_in_force(self, number: int, rules: RuleSet) -> None:
        self.rule_cache.put(rules)
        self.gateway.enforce(rules)
        self.gateway.event_loop.wake()
        self.outbox.put(ChangeDone(number))

    async def _reload_in_turn(self) -> None:
        async for message in self._reloads:
            self.outbox.put(ChangeDone(message.number, await self._reload(message)))

    async def _reload(self, message: Reload) -> str:
        """Put in force what a reload changes. Returns why that failed, or "". A thread takes the settings and the files apart."""
        before = self.gateway.settings

        def read() -> tuple[Settings, dict[str, Protection]]:
            settings = merge(before, settings_of(message.settings))
            return settings, read_tls(settings.listeners, Texts(message.texts))

        try:
            with quick_switches():
                settings, protection = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
            apply_tls(self.gateway.listening, protection)
            self.gateway.settings = settings
            self.gateway.apply_reload()
            apply_log(self.gateway.log_handler, before.log, settings.log)
        except (ConfigError, TlsFileError) as error:
            log.event(logging.ERROR, "reload_failed", err=str(error), remedy="what this worker had before stays in force")
            return str(error)
        except Exception as error:  # no thread, say: as in `reload_or_go_on`, it must not end what serves
            log.failure("reload_failed", error)
            return f"{type(error).__name__}: {error}"
        return ""

    def _report(self, number: int, names: list[str]) -> StateReport:
        views: dict[str, bytes] = {}
        for name in names:
            try:
                views[name] = self._view(name)
            except Exception as error:  # one view that cannot be told must not cost this worker's clients their connections
                log.failure("view_failed", error, view=name)
        if "topics" in names:
            views["forgotten"] = self._take_forgotten()  # after all others: they fold, and only that forgets
        self.gateway.accounts.fold(now_ns())
        candidates = self.bucket_ids.candidate_counters(self.outbox)
        return StateReport(number, views, self.bucket_ids.counters(self.outbox, now_ns()), candidates)

    def _note_forgotten(self, totals: TopicTotals) -> None:
        """Observes `Accounts`."""
        self._forgotten_topics.append(totals)

    def _take_forgotten(self) -> bytes:
        """What was counted of the topics that are forgotten since the last report."""
        forgotten, self._forgotten_topics = self._forgotten_topics, []
        told = []
        for totals in forgotten:
            try:
                told.append(msgspec.Raw(encode(status.topic(self.gateway, totals, now_ns()))))
            except Exception as error:  # as in `_report`; the others are told
                log.failure("view_failed", error, view="forgotten")
        return encode(told)

    def _view(self, name: str) -> bytes:
        match name:
            case "events":  # this and the next since the last report
                return encode([{**event, "worker": self.begin.worker} for event in self.recent_events.take_new()])
            case "series":
                return encode(self.seconds.take())
            case _:
                return encode(self.plane.view(name))


def encode(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


class SocketsByName(Inheritance):
    """The parent's sockets, found by their listeners' names alone."""

    def take_at(self, bind: tuple[str, int]) -> socket.socket | None:
        del bind
        return None


def _adopt_socket(descriptor: int) -> socket.socket:
    os.set_inheritable(descriptor, False)
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(False)
    return sock


def begin_of(parent: socket.socket) -> Begin:
    """The first message, read before there is a loop."""

    def exactly(size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = parent.recv(size - len(data))
            if not more:
                raise EOFError("the parent was gone before it had sent what to serve")
            data += more
        return data

    (size,) = HEAD.unpack(exactly(HEAD.size))
    message = FOR_WORKERS.decode(exactly(size))
    assert isinstance(message, Begin)
    return message


def main(descriptor: int) -> int:
    """Serve until the parent asks for a drain; the process's exit code."""
    bound_free_heap()
    parent = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    for number in UNTIL_IT_SERVES:
        signal.signal(number, signal.SIG_IGN)
    try:
        parent.sendall(frame(Up()))
        begin = begin_of(parent)
    except (OSError, EOFError):  # the parent is gone, and says why; this process had nothing yet
        return 1
    settings = settings_of(begin.settings)
    handler = log.start(settings.log.level, settings.log.format, worker=begin.worker)
    raise_descriptor_limit()
    try:
        with Signals(handler), Watchdog(settings.gateway.watchdog_ns, handler) as watchdog:
            trio.run(watchdog.run_watched, Worker(begin, settings, handler, parent).run)
    except OSError as error:
        log.event(logging.CRITICAL, "cannot_start", err=str(error))
        return 1
    finally:
        handler.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
