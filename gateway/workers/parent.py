"""The parent of several workers: governs them, and holds what there is only one of. Runs where `gateway.workers` is more than 1.

::

    settings ──► Store (admin) ── RuleSet ──► Judge (owns the buckets) ◄── asks, counts ── Child ◄── socket ──► worker: a whole data plane
                   ▲                                                                      Child ◄── socket ──► worker
               Admin server ──────── Parent (this)

It opens the listening sockets and hands them to each worker, so they outlive every one of them. On each address there is one per worker
(SO_REUSEPORT; the kernel spreads clients by a hash of their address and port), or the one that systemd has opened, from which the first
worker accepts. While a worker is being replaced its clients wait in the kernel's queue.

A change is in force when all workers have answered so (`in_force`). A worker that does not answer within ANSWER_S is killed, and its
successor begins under the new rules. A worker that ends is replaced, at once or, if it lived shortly, after a pause that doubles; the
others notice nothing.

What operators see is gathered from the workers when they ask (`gather`), within GATHER_S; a worker that does not answer in time is shown
as it was. Of connections only the numbers are gathered, and those of a page are described after that (`overview.describe_connections`).

What it has as `standalone.py` has it, is `control_plane.py`'s.
"""

from __future__ import annotations

import logging
import secrets
import signal
import socket
import time
from collections.abc import Collection, Iterator, Sequence
from functools import partial, reduce
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Final

import trio

from common import log
from common.supervised_loop import SupervisedLoop
from config.worker_settings import described
from gateway import systemd
from gateway.clock import now_ns
from gateway.control_plane import ControlPlane
from gateway.counting.access_log import LogWriter, Rolling, safe_name
from gateway.lifecycle.apply_settings import spool_directory
from gateway.lifecycle.drain import AFTER_S
from gateway.lifecycle.hourly_raises import Sources
from gateway.lifecycle.process import watch_signals
from gateway.lifecycle.scheduling import result_cooperatively, run_cooperatively
from gateway.lifecycle.spool_watch import clear_spool
from gateway.lifecycle.takeover import TakeoverError
from gateway.listeners.factory import listeners_of
from gateway.listeners.listener import listen
from gateway.telemetry import exposition, glance, live_snapshot
from gateway.workers import named_series, overview, scrapes, summing
from gateway.workers import rules as rule_sets
from gateway.workers.child import Child
from gateway.workers.retired_topics import RetiredTopics
from gateway.workers.shared_counts import SharedCounts
from gateway.workers.summed_seconds import SummedSeconds
from gateway.workers.wire import Begin, Close, Drain, LogLevel, Message, NewRaise, NewRules, Reload, StandStill
from limiter.buckets.factory import BucketFactory
from limiter.judge import Judge
from limiter.leases.owner import LeaseOwner

if TYPE_CHECKING:
    from admin.store.store import Store
    from config import Settings
    from gateway.control_plane import FirstSteps
    from gateway.lifecycle.takeover import Takeover
    from gateway.listeners.broker_listeners import BrokerListeners
    from limiter.rules.rule_set import RuleSet

# Seconds; until a worker has put new rules in force. It takes milliseconds, seconds with 20,000 live changes; a guess.
ANSWER_S: Final = 5.0
GATHER_S: Final = 1.0  # seconds; until a worker has reported what operators ask for
SILENT_S: Final = 15.0  # seconds; a worker is asked every second, and hangs when silent for so long; above a busy machine's stalls, a guess
ROUND_S: Final = 3.0  # seconds; between two such looks at most, the time for answers included: in a longer time the parent was not awake
UP_S: Final = 45.0  # seconds; until the workers of a process that takes over have started; below the 60 that the running one waits; a guess
DRAIN_S: Final = AFTER_S + 1.0  # seconds; after `drain.timeout`, until the workers must be gone
PAUSE_S: Final = 0.1  # seconds; before the first replacement; doubles while workers live shortly
MAX_PAUSE_S: Final = 5.0  # seconds; before a replacement
SHORT_LIFE_S: Final = 10.0  # seconds; a worker that ends within them has lived shortly
FORGET_S: Final = 60.0  # seconds; between two looks for topics that no worker knows any more; a guess
OVER: Final = "over"  # the limits that are over
GATHERED: Final = ("status", "listeners", "topics", "metrics", "events", "series", OVER)  # once a second: what remains of a killed worker
DEMAND: Final = "demand"  # once an hour, for the intraday raise
NEEDS: Final[dict[str, list[str]]] = {  # paths of the admin API -> views that their answers are made of
    "/metrics": ["metrics", "status"],
    "/readyz": ["status"],
    "/v1/status": ["status"],
    "/v1/topics": ["topics"],
    "/v1/clients": ["clients"],
    "/v1/listeners": ["listeners"],
    "/v1/spool": ["spool"],
    "/v1/connections": ["connections"],
    "/v1/connections/{id}": ["connections"],
    "/v1/events": ["events"],
}


class Parent(ControlPlane):
    """A running gateway of several processes (`ControlPlane`). Implements `admin.ports.Gateway`."""

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
        self._told = store.rules()  # what the workers have, or will have as soon as they begin
        self.owner = LeaseOwner()
        self.listening = listeners_of(settings)
        self.brokers: dict[str, BrokerListeners] = {}  # none: `settings.checks` refuses a name server's listener here
        self.children: dict[int, Child] = {}  # by place
        self.replaced = 0
        self.retired_topics = RetiredTopics()
        self.retired_families: scrapes.Families = {}  # of workers that have ended, without what `named_series` have
        self.seconds = SummedSeconds()
        self.named_series = named_series.all_named()
        self._sockets: dict[str, list[socket.socket]] = {}  # by listener: one for all workers, or one for each
        self._govern(self, lambda: chain.from_iterable(self.views(OVER)))
        self.counts = SharedCounts.made(settings.gateway.workers)
        self.request_numbers: Iterator[int] = count(1)  # of messages that workers answer
        self._enforced: list[tuple[Child, trio.Event]] = []

    @property
    def governed(self) -> Parent:
        return self

    # ---- what operators see and do (admin.ports.Gateway) -----------------------------------------------------------

    async def gather(self, route: str) -> None:
        """Ask the workers for what the answer to `route` is made of."""
        views = NEEDS.get(route)
        if views is None and route.startswith("/v1/limits"):
            views = ["topics"] if route == "/v1/limits" else []  # of one key the counters, and its rates of a second ago
        if views is not None:
            await self._gather(views)

    async def _gather(self, views: list[str]) -> None:
        number = next(self.request_numbers)
        answers = [child.ask(number, views) for child in self.serving()]
        with trio.move_on_after(GATHER_S):
            for answer in answers:
                await answer.wait()

    async def _demand(self) -> Sources:
        """What each worker that serves has counted since it began; None of one that does not answer in time."""
        await self._gather([DEMAND])
        return {f"{child.worker}.{child.generation}": child.reported.pop(DEMAND, None) for child in self.serving()}

    async def in_force(self) -> None:
        """Wait until every worker has put in force what was enforced last; one that has not within ANSWER_S is killed."""
        enforced = list(self._enforced)
        with trio.move_on_after(ANSWER_S) as scope:
            for _, done in enforced:
                await done.wait()
        if scope.cancelled_caught:
            for child, done in enforced:
                if not done.is_set():
                    child.kill(f"it has not put a change in force within {ANSWER_S:g} s")
                    await child.over.wait()

    def pids(self) -> list[int]:
        """The workers' processes, for signals. Called from any thread."""
        return [child.pid for child in list(self.children.values()) if child.pid and not child.over.is_set()]

    def serving(self) -> list[Child]:
        return [child for child in self.children.values() if child.serves]

    def views(self, name: str) -> list[Any]:
        return [child.reported[name] for child in self.serving() if name in child.reported]

    def status(self) -> dict[str, object]:
        return overview.summed_status(self)

    def ready(self) -> list[str]:
        if self.draining:
            return ["draining"]
        reasons = [
            f"worker {place} is not running"
            for place in range(1, self.settings.gateway.workers + 1)
            if place not in self.children or not self.children[place].serves
        ]
        for child in self.serving():
            status = child.reported.get("status")
            because = ["has not reported its state yet"] if status is None else status["not_ready_because"]
            reasons += [f"worker {child.worker}: {reason}" for reason in because]
        return reasons

    def warnings(self) -> list[str]:
        states = [(child.worker, child.reported.get("status") or {}) for child in self.serving()]
        told = [f"worker {worker}: {warning}" for worker, status in states for warning in status.get("warnings", [])]
        return [*told, *self.log_keeping.warnings(), *self.webhooks.warnings()]

    def listeners(self) -> list[dict[str, object]]:
        return summing.listeners(self.views("listeners"))

    def connections(self) -> dict[int, str]:
        return {number: protocol for view in self.views("connections") for number, protocol in view.items()}

    async def describe_connections(self, numbers: Sequence[int]) -> list[dict[str, object]]:
        return await overview.describe_connections(self, numbers)

    def close_connection(self, connection: int, reason: str) -> bool:
        for child in self.serving():
            if connection in child.connections():
                child.send(Close(connection, reason))
                return True
        return False

    def spool(self) -> dict[str, object]:
        return summing.spools(view["figures"] for view in self.views("spool"))

    async def spooled_topics(self) -> list[dict[str, object]]:
        return summing.spooled_topics(view["topics"] for view in self.views("spool"))

    def clients(self) -> list[dict[str, object]]:
        return summing.clients(self.views("clients"))

    async def topic_numbers(self, name: str | None) -> dict[tuple[str, str, str], float]:
        views = [self.retired_topics.view(), *(child.topics() for child in self.serving())]
        return await result_cooperatively(summing.topic_numbers(views, name))

    async def topics(self, wanted: Collection[tuple[str, str, str]] | None = None) -> list[dict[str, object]]:
        views = [self.retired_topics.view(), *(child.topics() for child in self.serving())]
        if wanted is None:
            return summing.topics(views)
        order = {place: at for at, place in enumerate(wanted)}
        chosen = summing.topics([[item for item in view if summing.place(item) in order] for view in views])
        return sorted(chosen, key=lambda item: order[summing.place(item)])

    async def snapshot(self) -> dict[str, object]:
        """Of what the workers have reported last, a second ago at most."""
        views = [self.retired_topics.view(), *(child.topics() for child in self.serving())]
        none: dict[str, Any] = {}
        memory = reduce(summing.add, (view["memory"] for view in self.views("status")), none)
        counts = [view["overhead"] for view in self.views("status") if "overhead" in view]
        summed = await result_cooperatively(
            live_snapshot.summed({**self.status(), "memory": memory}, views, summing.topics, self.retired_topics.sums)
        )
        return {
            **summed,
            "listeners": glance.in_short(self.listeners()),
            "over": glance.over_limits(*self.views(OVER)),
            "overhead_ms": self.recent_overhead.look([sum(column) for column in zip(*counts, strict=True)], time.monotonic())
            if counts
            else None,
        }

    async def series_of(self, place: tuple[str, str, str] | None, *, day: bool, since: int = 0) -> dict[str, object]:
        """The sum over the workers; what has ended with a worker stays in it."""
        found = await result_cooperatively(self.series.read(place, day=day, since=since))
        missing = [worker for worker in range(1, self.settings.gateway.workers + 1) if worker not in self.seconds.seen]
        return {**found, "missing": missing if self.series.most else []}

    def metrics(self, others: exposition.Samples) -> Iterator[str]:
        living = [(str(child.worker), child.families) for child in self.serving()]
        scrapes.forget_gone_rules(self.retired_families, [families for _, families in living])
        more = {**self.webhooks.samples(), **self.handover.samples(), **others}
        workers = scrapes.lines(scrapes.merged(living, self.retired_families, self.named_series, now_ns()))
        return exposition.pieces(chain(workers, overview.metric_lines(self), exposition.families(more)))

    def set_log_level(self, level: str) -> None:
        super().set_log_level(level)
        self._tell_all(LogLevel(level))

    def reloaded(self) -> None:
        """The workers read no files: they are told what was found."""
        number = next(self.request_numbers)
        self._forget_done()
        message = Reload(number, described(self.settings), self._texts())
        for child in self.serving():
            self._enforced.append((child, child.expect(number)))
            child.send(message)

    def enforce(self, rules: RuleSet) -> None:
        """Put `rules` in force here, and tell the workers; `in_force` waits for them."""
        self.judge.replace(rules, now_ns())
        number = next(self.request_numbers)
        before, self._told = self._told, rules
        message: Message
        if rule_sets.differ_in_raise_only(before, rules):
            message = NewRaise(number, rule_sets.raise_of(rules))
        else:
            message = NewRules(number, rule_sets.encode(rules))
        self._forget_done()
        for child in self.children.values():
            if child.begun and not child.over.is_set():
                self._enforced.append((child, child.expect(number)))
                child.send(message)

    def _forget_done(self) -> None:
        self._enforced = [(child, done) for child, done in self._enforced if not done.is_set()]

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
            await nursery.start(watch_signals, self._reload_everywhere, self.drain_requested)
            async with trio.open_nursery() as starting:
                for place in range(1, self.settings.gateway.workers + 1):
                    self.children[place] = self._child(place, 0)
                    starting.start_soon(nursery.start, self._attend, place)
                if self._takeover is not None:
                    await self._take_over(self._takeover)
            await self._gather(list(GATHERED))
            await nursery.start(self.admin_server.run)
            for task in (*self.tasks(), self._every_second):
                nursery.start_soon(task)
            await self.started(self.settings.gateway.workers)
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

    def stand_still(self) -> None:
        self._tell_all(StandStill(yes=True))

    def go_on(self) -> None:
        self._tell_all(StandStill(yes=False))

    def hand_over(self) -> None:
        self._tell_all(Drain(handed_over=True))
        self.drain_requested.set()

    def _tell_all(self, message: Message) -> None:
        for child in self.children.values():
            if child.begun:
                child.send(message)

    def _passed_sockets(self) -> list[socket.socket]:
        return [*chain.from_iterable(self._sockets.values()), *self.admin_server.sockets()]

    def _open(self) -> None:
        workers = self.settings.gateway.workers
        taken = {name: self._inherited_at(listener.bind) for name, listener in self.listening.items()}
        for name, listener in self.listening.items():
            named = None if taken[name] else self.inheritance.named(name)
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

    def _inherited_at(self, bind: tuple[str, int]) -> list[socket.socket]:
        """One for all workers, of systemd, or one for each, of the process that this one takes over from."""
        found = []
        while (sock := self.inheritance.at(bind)) is not None:
            found.append(sock)
        return found

    def _child(self, place: int, generation: int) -> Child:
        return Child(place, generation, self.judge, self.owner, self.recent_events.add, self.retired_topics, self.seconds)

    def _tell_to_begin(self, child: Child) -> None:
        child.begun = True
        child.send(self._begin(child))
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
            child = self.children[place] if generation == 0 else self._child(place, generation)
            self.children[place] = child
            if self._may_begin.is_set():
                self._tell_to_begin(child)  # before anything is awaited: it is the first message
            code: list[int] = []
            async with trio.open_nursery() as nursery:

                async def live(child: Child = child, code: list[int] = code) -> None:
                    code.append(await child.live([*self._socket_numbers(child.worker).values(), self.counts.descriptor]))

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
            self._close_leftovers(f"w{place}l{generation}")
            if self.draining:
                return
            await clear_spool(spool_directory(self.settings), tells=False)
            pause = PAUSE_S if time.monotonic() - child.started > SHORT_LIFE_S else min(2 * pause, MAX_PAUSE_S)
            ended = f"signal {-code[0]}" if code[0] < 0 else f"exit code {code[0]}"
            self.replaced += 1
            log.event(
                logging.ERROR, "worker_ended", worker=place, pid=child.pid, how=ended, replaced_after_ms=round(pause * 1e3),
                remedy="its connections are closed; the other workers go on",
            )  # fmt: skip
            with trio.move_on_after(pause):
                await self.drain_requested.wait()
            if self.drain_requested.is_set():
                if not started:
                    task_status.started()  # it never will: nobody need wait for it
                return

    def _socket_numbers(self, place: int) -> dict[str, int]:
        return {name: sockets[(place - 1) % len(sockets)].fileno() for name, sockets in self._sockets.items()}

    def _begin(self, child: Child) -> Begin:
        rules = self.store.rules()
        return Begin(
            child.worker,
            self.settings.gateway.workers,
            child.generation,
            self.boot,
            described(self.settings),
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
                await self._gather(list(GATHERED))
                for second, elapsed_s, rows in self.seconds.take({child.worker for child in self.serving()}, time.monotonic()):
                    await run_cooperatively(self.series.close_second(second, elapsed_s, rows, self.store.rules()))
                for child in self.serving():
                    for each in self.named_series:
                        each.report(str(child.worker), child.families, now_ns())
                if trio.current_time() >= forget_at:
                    forget_at = trio.current_time() + FORGET_S
                    await run_cooperatively(self.retired_topics.forget([child.topics() for child in self.serving()], time.monotonic()))
                self._kill_silent(time.monotonic())

    def _excuse(self, asleep_s: float, now: float) -> None:
        """For so long this process was stopped or suspended itself: nobody was asked."""
        for child in self.serving():
            child.last_heard = min(now, child.last_heard + asleep_s)

    def _kill_silent(self, now: float) -> None:
        """First by SIGPROF, so that it says what it was doing; the next time by SIGKILL."""
        for child in self.serving():
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
        for path in settings.directory.glob(f"dt=*/hr=*/{stem}{worker}-*.jsonl.open"):
            try:
                path.rename(path.with_suffix(""))
            except OSError as error:
                log.event(logging.ERROR, "access_log_failed", err=f"cannot close {path.name}: {error.strerror}")


async def wait_any(*events: trio.Event) -> None:
    """Until one of them is set."""
    async with trio.open_nursery() as nursery:

        async def one(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        for event in events:
            nursery.start_soon(partial(one, event))
