"""The parent of several workers: starts and ends them, and holds what there is only one of. Runs where `gateway.workers` is more than 1.

::

    settings ──► Store (admin) ── RuleSet ──► Judge (owns the buckets) ◄── asks, counts ── Child ◄── socket ──► worker: a whole data plane
                   ▲                                                                      Child ◄── socket ──► worker
               Admin server ──────── Parent (this)

It opens the listening sockets and hands them to each worker, so they outlive every one of them. On each address there is one per worker
(SO_REUSEPORT; the kernel spreads clients by a hash of their address and port), or the one that systemd has opened, from which the first
worker accepts. While a worker is being replaced its clients wait in the kernel's queue.

A change is in force when all workers have answered so (`in_force`). A worker that does not answer within ANSWER_S is killed, and its
successor begins under the new rules. A worker that ends is replaced, at once or, if it lived shortly or could not be started,
after a pause that doubles; the others notice nothing.

What operators see and do is `control_plane/control_plane.py`'s, over the workers as its data planes; what has ended with a worker stays
in it.
"""

from __future__ import annotations

import logging
import math
import secrets
import signal
import socket
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, Final

import trio
from msgspec.structs import replace

from admin.remote_admin import LimitRequestService
from common import log
from common.supervised_loop import SupervisedLoop
from config.worker_settings import describe
from control_plane.control_plane import ControlPlane
from control_plane.process import watch_signals
from control_plane.takeover import TakeoverError
from control_plane.workers import named_series, scrapes
from control_plane.workers.child import Child
from control_plane.workers.retired_topics import RetiredTopics
from control_plane.workers.summed_seconds import SummedSeconds
from control_plane.workers.topic_lists import ListedTopics
from gateway import systemd
from gateway.clock import now_ns
from gateway.counting.access_log import LogWriter, Rolling, safe_name
from gateway.data_plane import Drain, LogLevel, StandStill
from gateway.lifecycle.apply_settings import apply_listeners, disk_directory
from gateway.lifecycle.disk_watch import delete_left_behind
from gateway.lifecycle.drain import AFTER_S
from gateway.lifecycle.scheduling import run_cooperatively
from gateway.listeners.factory import listeners_of
from gateway.listeners.listener import listen
from gateway.remote_admin import FAILED
from gateway.telemetry import exposition
from gateway.telemetry.views import LASTING
from gateway.workers import rules as rule_sets
from gateway.workers.limit_requests import do_request
from gateway.workers.shared_counts import SharedCounts
from gateway.workers.wire import Begin, LimitRequestDone, LimitRequested, Reload
from limiter.buckets.factory import BucketFactory
from limiter.judge import Judge
from limiter.leases.owner import LeaseOwner

if TYPE_CHECKING:
    from admin.store.store import Store
    from common.views.status import StatusView
    from config import Settings
    from control_plane.control_plane import FirstSteps
    from control_plane.takeover import Takeover
    from gateway.counting.accounts import Place
    from gateway.data_plane import TopicSource
    from gateway.listeners.broker_listeners import BrokerListeners
    from limiter.limits import Rate
    from limiter.rules.rule_set import Identity, RuleSet

SILENT_S: Final = 15.0  # seconds; a worker is asked every second, and hangs when silent for so long; above a busy machine's stalls, a guess
ROUND_S: Final = 3.0  # seconds; between two such looks at most, the time for answers included: in a longer time the parent was not awake
UP_S: Final = 45.0  # seconds; until the workers of a process that takes over have started; below the 60 that the running one waits; a guess
DRAIN_S: Final = AFTER_S + 1.0  # seconds; after `drain.timeout`, until the workers must be gone
LEFTOVERS_S: Final = 1.0  # seconds; before the replacement, for the log files of the worker that has ended (a guess)
PAUSE_S: Final = 0.1  # seconds; before the first replacement; doubles while workers live shortly
MAX_PAUSE_S: Final = 5.0  # seconds; before a replacement
SHORT_LIFE_S: Final = 10.0  # seconds; a worker that ends within them has lived shortly
FORGET_S: Final = 60.0  # seconds; between two looks for topics that no worker knows any more; a guess
# Once a second: what remains of a killed worker, what is shown without asking, and what has happened since.
GATHERED: Final = (*LASTING, "events", "series")


class Parent(ControlPlane):
    """A running gateway of several processes (`ControlPlane`). Implements `admin.ports.OperatedGateway`."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        log_handler: log.QueueHandler,
        inheritance: systemd.Inheritance,
        takeover: Takeover | None = None,
        first_steps: FirstSteps = lambda *_: (),
    ) -> None:
        judge = Judge(store.rules(), settings.limiter.max_keys)
        judge.make_buckets_with(BucketFactory(settings.gateway.workers, None))
        super().__init__(settings, store, judge, secrets.token_hex(4), inheritance, takeover, first_steps)
        self.settings = settings
        self.took_over_at: float | None = None  # Unix time, in seconds; None: it began without a process before it
        self._may_begin = trio.Event()  # workers: the state is this process's
        if takeover is None:
            self._may_begin.set()
        self._committed = False  # of a takeover: from then on another worker takes the place of one that cannot start
        self.log_handler = log_handler
        self.draining = False
        self.drain_requested = trio.Event()
        self.owner = LeaseOwner()
        self.listening = listeners_of(settings)
        self.brokers: dict[str, BrokerListeners] = {}  # none: `settings.checks` refuses a name server's listener here
        self.children: dict[int, Child] = {}  # by place
        self.replaced = 0
        self.retired_topics = RetiredTopics()
        self._listed = ListedTopics()
        self.retired_families: scrapes.Families = {}  # of workers that have ended, without what `named_series` have
        self.seconds = SummedSeconds()
        self.named_series = named_series.all_named()
        self._files_left = trio.Event()  # a worker has ended, whose files may be on disk
        self._sockets: dict[str, list[socket.socket]] = {}  # by listener: one for all workers, or one for each
        self.counts = SharedCounts.create(settings.gateway.workers)
        self._govern(self, self.children)
        self._limit_request_service = LimitRequestService(self, store)
        # By place, a queue for each: a change waits until every worker has it, and whoever asks another worker does not wait behind it.
        self._limit_requests = {
            place: trio.open_memory_channel[tuple[Child, LimitRequested]](math.inf) for place in range(1, settings.gateway.workers + 1)
        }

    # ---- its data planes (ControlPlane) ------------------------------------------------------------------------------

    def explain_missing(self) -> list[str]:
        places = range(1, self.settings.gateway.workers + 1)
        return [f"worker {place} is not running" for place in places if place not in self.children or not self.children[place].serves]

    def topic_sources(self) -> list[TopicSource]:
        return [self.retired_topics, *self.list_serving()]

    def find_topics(self, protocol: str | None, text: str) -> Generator[None, None, list[list[Place]]]:
        yield from self._listed.take([self.retired_topics.items(), *self.views("topics")])
        return (yield from self._listed.index.find(protocol, text))

    def list_unseen(self) -> list[int]:
        return [worker for worker in range(1, self.settings.gateway.workers + 1) if worker not in self.seconds.seen]

    def enforce(self, rules: RuleSet) -> None:
        """Put `rules` in force here, and tell the workers; `in_force` waits for them."""
        self.judge.replace(rules, now_ns())
        super().enforce(rules)

    def follow(self, identity: Identity, rate: Rate) -> None:
        self.judge.set_rate(identity, rate, now_ns())
        super().follow(identity, rate)

    def status(self) -> StatusView:
        workers = [self.children[place].summary() for place in sorted(self.children)]
        return replace(super().status(), workers=workers, workers_replaced=self.replaced)

    def traffic_lines(self) -> Iterator[str]:
        living = [(str(child.worker), child.families) for child in self.children.values() if child.serves]
        scrapes.forget_gone_rules(self.retired_families, [families for _, families in living])
        asked = {"full": self.owner.granted, "short": self.owner.refused}
        own = exposition.families({
            "sluice_workers": [((), len(living))],
            "sluice_workers_replaced_total": [((), self.replaced)],
            "sluice_slices_total": [((result,), count) for result, count in asked.items()],
        })  # fmt: skip
        return chain(scrapes.lines(scrapes.merge_families(living, self.retired_families, self.named_series, now_ns())), own)

    def passed_sockets(self) -> list[socket.socket]:
        return [*chain.from_iterable(self._sockets.values()), *self.admin_server.sockets()]

    def pids(self) -> list[int]:
        """The workers' processes, for signals. Called from any thread."""
        return [child.pid for child in self.children.values() if child.pid and not child.over.is_set()]

    def apply_reload(self) -> None:
        """The workers read no files: they are told what was found."""
        apply_listeners(self.listening, self.settings)
        settings, texts = describe(self.settings), self._texts()
        for child in self.children.values():
            child.change(lambda number: Reload(number, settings, texts))

    # ---- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Open, start the workers, and drain when asked to. Raises OSError when an address cannot be bound or no worker can start."""
        with self.recent_events, self.counts:
            await self._run()

    async def _run(self) -> None:
        self._open()
        self.admin_server.take_sockets(self.inheritance)
        if self._takeover is None:
            self._close_leftovers("")
        else:
            await self.admin_server.open()
        self.inheritance.close_rest()
        async with trio.open_nursery() as nursery:
            await nursery.start(watch_signals, self._reload_everywhere, self.drain_requested, self.up)
            async with trio.open_nursery() as starting:
                for place in range(1, self.settings.gateway.workers + 1):
                    self.children[place] = self._make_child(place, 0)
                    starting.start_soon(nursery.start, self._attend, place)
                if self._takeover is not None:
                    await self._take_over(self._takeover)
            await self.gather(GATHERED)
            await nursery.start(self.admin_server.run)
            for task in (*self.tasks(), self._every_second, self._delete_left_behind):
                nursery.start_soon(task)
            for place in self._limit_requests:
                nursery.start_soon(self._do_limit_requests, place)
            await self.announce_serving(self.settings.gateway.workers)
            systemd.notify("READY=1")
            await self.drain_requested.wait()
            if not self.handover.asked:
                systemd.notify("STOPPING=1")
            await self._drain()
            nursery.cancel_scope.cancel()

    # ---- one process after another -----------------------------------------------------------------------------------

    async def _take_over(self, takeover: Takeover) -> None:
        """Once all workers are up, the running process gives up what only one can have. Raises TakeoverError, and as `Store.open`."""
        with trio.move_on_after(UP_S) as late:
            for child in list(self.children.values()):
                await wait_any(child.up, child.over, self.drain_requested)
                if child.over.is_set():
                    return  # its `_attend` ends this process; the running one goes on
        if self.drain_requested.is_set():
            raise TakeoverError("told to stop before it had taken over; the running gateway goes on")
        if late.cancelled_caught:
            raise TakeoverError(f"not all workers have started within {UP_S:g} s; the running gateway goes on; try again")
        self._committed = True
        await super()._take_over(takeover)
        self._may_begin.set()

    def _open(self) -> None:
        workers = self.settings.gateway.workers
        taken = {name: self._take_inherited(listener.bind) for name, listener in self.listening.items()}
        for name, listener in self.listening.items():
            named = None if taken[name] else self.inheritance.take_named(name)
            inherited = taken[name] if named is None else [named]
            if inherited:
                listener.open(inherited[0])
                self._sockets[name] = inherited
                continue
            listener.open()  # alone on its address: another program that listens there is found now, as without workers
            assert listener.sock is not None
            address = listener.sock.getsockname()
            listener.sock.close()
            self._sockets[name] = [listen(address, name, shared=True) for _ in range(workers)]
            listener.sock = self._sockets[name][0]

    def _take_inherited(self, bind: tuple[str, int]) -> list[socket.socket]:
        """One for all workers, of systemd, or one for each, of the process that this one takes over from."""
        found = []
        while (sock := self.inheritance.take_at(bind)) is not None:
            found.append(sock)
        return found

    def _make_child(self, place: int, generation: int) -> Child:
        return Child(
            place, generation, self.judge, self.owner, self.recent_events.add, self.retired_topics, self.seconds, self._take_limit_request
        )

    def _take_limit_request(self, child: Child, asked: LimitRequested) -> None:
        to_do, _ = self._limit_requests[child.worker]
        to_do.send_nowait((child, asked))  # a worker sends its next one when it has the answer

    async def _do_limit_requests(self, place: int) -> None:
        _, asked_for = self._limit_requests[place]
        async for child, asked in asked_for:
            try:
                child.send(await do_request(self._limit_request_service, asked))
            except Exception as error:  # let it crash: this request only
                log.failure("remote_admin_failed", error, worker=child.worker)
                child.send(LimitRequestDone(asked.number, why=FAILED))

    def _tell_to_begin(self, child: Child) -> None:
        child.begin(self._begin(child), self.store.rules())
        child.send(LogLevel(self.log_level()))
        if self.handover.lent:
            child.send(StandStill(yes=True))

    async def _attend(self, place: int, *, task_status: trio.TaskStatus[None]) -> None:
        """Keep a worker running at this place until the end. Started when the first one serves.

        Raises OSError where the first one cannot; not after a takeover, as nobody else would serve.
        """
        pause = PAUSE_S
        started = False
        for generation in count():
            child = self.children[place] if generation == 0 else self._make_child(place, generation)
            self.children[place] = child
            if self._may_begin.is_set():
                self._tell_to_begin(child)  # before anything is awaited: it is the first message
            ended: list[str] = []
            async with trio.open_nursery() as nursery:

                async def live(child: Child = child, ended: list[str] = ended) -> None:
                    try:
                        code = await child.run_to_end([*self._socket_numbers(child.worker).values(), self.counts.descriptor])
                    except (OSError, RuntimeError) as error:  # as `Child.run_to_end`: no memory, no process, no descriptor at the moment
                        if child.generation == 0 and not self._committed:
                            raise
                        ended.append(f"cannot be started: {error}")
                    else:
                        ended.append(f"signal {-code}" if code < 0 else f"exit code {code}")

                nursery.start_soon(live)
                if not child.begun:
                    await wait_any(self._may_begin, child.over)
                    if not child.over.is_set():
                        self._tell_to_begin(child)
                if not started:
                    await wait_any(child.ready, child.over)
                    if child.ready.is_set():
                        started = True
                        task_status.started()
            if generation == 0 and not started and not self._committed:
                raise OSError(0, f"worker {place} has ended before it could serve; its own log says why")
            self.counts.clear(place)
            child.retire(self.retired_topics, self.retired_families, self.named_series)
            with trio.move_on_after(LEFTOVERS_S), suppress(RuntimeError):  # no thread for it, or a disk that hangs: the next start does it
                await trio.to_thread.run_sync(self._close_leftovers, f"w{place}l{generation}", abandon_on_cancel=True)
            if self.draining:
                return
            self._files_left.set()
            pause = PAUSE_S if time.monotonic() - child.started > SHORT_LIFE_S else min(2 * pause, MAX_PAUSE_S)
            self.replaced += child.pid != 0
            log.event(
                logging.ERROR, "worker_ended", worker=place, pid=child.pid, how=ended[0], replaced_after_ms=round(pause * 1e3),
                remedy="its connections are closed; the other workers go on",
            )  # fmt: skip
            with trio.move_on_after(pause):
                await self.drain_requested.wait()
            if self.drain_requested.is_set():
                if not started:
                    task_status.started()  # it never will: nobody need wait for it
                return

    async def _delete_left_behind(self) -> None:
        """A task. Deletes what workers that have ended left on disk, beside their replacement: the disk may hang."""
        while True:
            await self._files_left.wait()
            self._files_left = trio.Event()
            with suppress(RuntimeError):  # no thread for it: the next start deletes it
                await delete_left_behind(disk_directory(self.settings), tells=False)

    def _socket_numbers(self, place: int) -> dict[str, int]:
        return {name: sockets[(place - 1) % len(sockets)].fileno() for name, sockets in self._sockets.items()}

    def _begin(self, child: Child) -> Begin:
        rules = self.store.rules()
        return Begin(
            child.worker,
            self.settings.gateway.workers,
            child.generation,
            self.boot,
            describe(self.settings),
            self._socket_numbers(child.worker),
            rules.revision,
            rule_sets.encode(rules),
            self.counts.descriptor,
            self._texts(),
        )

    def _texts(self) -> dict[str, str]:
        """The files of TLS of all listeners, by path, as they are in force; a worker that comes later has them so, too."""
        hops = chain.from_iterable((listener.tls, listener.upstreams.tls) for listener in self.listening.values())
        return {file: text for hop in hops if hop is not None for file, text in hop.texts.items()}

    async def _every_second(self) -> None:
        """Gather what would remain of a worker that is killed, and kill one that hangs."""
        loop = SupervisedLoop("workers")
        last = time.monotonic()
        forget_at = trio.current_time() + FORGET_S
        while True:
            await trio.sleep(1.0)
            now = time.monotonic()
            asleep_s, last = max(0.0, now - last - ROUND_S), now
            with loop:
                self._excuse(asleep_s, now)
                self.owner.expire(now_ns())
                await self.gather(GATHERED)
                for second, elapsed_s, rows in self.seconds.take({plane.worker for plane in self.list_serving()}, time.monotonic()):
                    await run_cooperatively(self.series.close_second(second, elapsed_s, rows, self.store.rules()))
                for child in self.children.values():
                    for each in self.named_series if child.serves else ():
                        each.report(str(child.worker), child.families, now_ns())
                if trio.current_time() >= forget_at:
                    forget_at = trio.current_time() + FORGET_S
                    await run_cooperatively(self.retired_topics.forget(self.views("topics"), time.monotonic()))
                self._kill_silent(time.monotonic())

    def _excuse(self, asleep_s: float, now: float) -> None:
        """For so long this process was stopped or suspended itself: nobody was asked."""
        for child in self.children.values():
            child.last_heard = min(now, child.last_heard + asleep_s)

    def _kill_silent(self, now: float) -> None:
        """First by SIGPROF, so that it says what it was doing; the next time by SIGKILL."""
        for child in [each for each in self.children.values() if each.serves]:
            silent = now - child.last_heard
            if child.outbox.overfull or silent > SILENT_S:
                child.kill(f"it has been silent for {silent:.0f} s", signal.SIGKILL if child.killed else signal.SIGPROF)

    async def _drain(self) -> None:
        asked = time.monotonic()
        self.draining = True
        for child in self.children.values():
            if not child.begun:
                child.kill("it has not begun to serve")
            elif not self.handover.asked:
                child.send(Drain())
        for sockets in self._sockets.values():
            for sock in sockets:
                sock.close()
        with trio.move_on_after(self.settings.drain.timeout_ns / 1e9 + DRAIN_S):
            for child in self.children.values():
                await child.over.wait()
        for child in self.children.values():
            child.kill("it has not stopped in time")
            await child.over.wait()
        await trio.to_thread.run_sync(self.fill_levels.save)
        log.event(logging.INFO, "stopped", after_ms=round((time.monotonic() - asked) * 1e3), workers=len(self.children))

    def _close_leftovers(self, worker: str) -> None:
        """Give open access-log files their final names: those of an ended `worker` (as in their names: w1l0), or of earlier runs."""
        settings = self.settings.access_log
        if settings is None:
            return
        stem = f"{safe_name(self.settings.gateway.name)}-{self.boot}"
        if not worker:
            LogWriter(settings.directory, self.settings.gateway.name, self.boot, Rolling(0, 0, 0)).close_leftovers()
            return
        try:
            for path in settings.directory.glob(f"dt=*/hr=*/{stem}{worker}-*.jsonl.open"):
                path.rename(path.with_suffix(""))
        except OSError as error:
            log.event(logging.ERROR, "access_log_failed", err=f"cannot close files of {stem}{worker}: {error.strerror}")


async def wait_any(*events: trio.Event) -> None:
    """Until one of them is set."""
    async with trio.open_nursery() as nursery:

        async def one(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        for event in events:
            nursery.start_soon(partial(one, event))
