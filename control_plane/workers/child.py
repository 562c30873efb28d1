"""One worker as its parent sees it: the process, what is sent to it and what it has reported. The process that replaces it is another
`Child`, of the next generation. A data plane behind a socket (`gateway/data_plane.py`).
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import time
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from common import log
from common.views.status import WorkerView
from control_plane.child_processes import child_environment, python
from control_plane.workers import scrapes
from control_plane.workers.topic_lists import TopicList
from gateway.clock import now_ns
from gateway.data_plane import FollowBacklog
from gateway.telemetry.views import DECODERS
from gateway.workers import rules as rule_sets
from gateway.workers.wire import (
    FOR_PARENTS,
    Asks,
    Begin,
    BucketAnnounced,
    BucketsForgotten,
    ChangeDone,
    Describe,
    Described,
    FaultyFrameError,
    Grants,
    LimitRequested,
    NewRaise,
    NewRules,
    Outbox,
    StateQuery,
    StateReport,
    Up,
    WorkerReady,
    listen,
)  # fmt: skip
from limiter.buckets.leased_bucket_ref import LeasedBucketRef
from limiter.leases.owner import LeaseOwner
from limiter.rules.subject import Subject
from limiter.topics import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from common.views.connections import ConnectionView
    from common.views.topics import TopicView
    from control_plane.workers.named_series import NamedSeries
    from control_plane.workers.retired_topics import RetiredTopics
    from control_plane.workers.summed_seconds import SummedSeconds
    from gateway.data_plane import AnyCommand, Message
    from gateway.workers.wire import AnyMessage
    from limiter.judge import Judge
    from limiter.rules.rule_set import RuleSet

MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024  # bytes; what waits for a worker, above which it is taken for one that hangs; a guess
# Seconds; until it has put new rules in force. It takes milliseconds, seconds with 20,000 live changes; a guess.
ANSWER_S: Final = 5.0
DESCRIBE_S: Final = 1.0  # seconds; until it has described a slice of its connections; it takes milliseconds; a guess
END_S: Final = 2.0  # seconds; between the end of its socket and the end of its process; a guess

NO_COUNTS: Final = (0,) * 6


class Child(TopicList):
    """A worker's process, from its start to its end."""

    def __init__(
        self,
        worker: int,
        generation: int,
        judge: Judge,
        owner: LeaseOwner,
        take_event: Callable[[dict[str, object]], None] | None = None,
        retired_topics: RetiredTopics | None = None,
        summed_seconds: SummedSeconds | None = None,
        take_limit_request: Callable[[Child, LimitRequested], None] = lambda *_: None,
    ) -> None:
        """`take_event` is called with each event of the worker's log, at most a second or so after it was logged.

        What the worker has counted of a topic that it forgets is added to `retired_topics`, what it has counted in each second to
        `summed_seconds`. `take_limit_request` is called with each limit request of its clients.
        """
        self.worker = worker
        self.generation = generation
        self.judge = judge
        self.owner = owner
        self.take_event = take_event
        self.retired_topics = retired_topics
        self.summed_seconds = summed_seconds
        self.take_limit_request = take_limit_request
        self.pid = 0
        self.started = time.monotonic()
        self.last_heard = self.started  # when its last message came
        self.up = trio.Event()  # its process has started
        self.begun = False  # it was told what to serve; before that it is told nothing else
        self.ready = trio.Event()
        self.over = trio.Event()
        self.killed = False  # it was told to end, and should not be there any more
        self.signals: set[int] = set()  # that it was sent: of several who wait for one change, the first kills it
        self.faults: list[str] = []  # what it could not do
        self.outbox = Outbox(MAX_UNSENT_BYTES)
        self.reported: dict[str, Any] = {}  # its views, as it reported them last
        self.families: scrapes.Families = {}
        self._leased: dict[int, LeasedBucketRef] = {}  # by the worker's own ids
        self._bucket_counters: dict[int, tuple[int, ...]] = {}  # by the same ids, as reported last
        self._candidate_counters: dict[int, tuple[int, int, int, dict[str, int]]] = {}  # by the same ids, as reported last
        self._told: RuleSet | None = None  # the rules that it has, or will have when it has read what was sent
        self.unanswered: list[trio.Event] = []  # changes that it has not put in force yet
        self._numbers = count(1)  # of requests
        self._waiting: dict[int, trio.Event] = {}  # by the number of the request
        self._described: dict[int, list[ConnectionView]] = {}  # connections, until they are fetched; by the same numbers

    @property
    def serves(self) -> bool:
        return self.ready.is_set() and not self.over.is_set()

    # ---- sent to it --------------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        if not self.over.is_set():
            self.outbox.put(message)

    def request(self, make: Callable[[int], Message]) -> tuple[int, trio.Event]:
        """Send what `make` makes with a number; that, and what is set when it is answered, or the worker is over."""
        number = next(self._numbers)
        answered = self._waiting[number] = trio.Event()
        if self.over.is_set():
            answered.set()
        self.send(make(number))
        return number, answered

    def begin(self, message: Begin, rules: RuleSet) -> None:
        """Tell it what to serve, under these rules."""
        self.begun = True
        self._told = rules
        self.send(message)

    def change(self, make: Callable[[int], Message]) -> None:
        """Send a change that it answers when it holds there."""
        self.unanswered = [done for done in self.unanswered if not done.is_set()]
        if self.begun and not self.over.is_set():
            self.unanswered.append(self.request(make)[1])

    # ---- a data plane ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return f"{self.worker}.{self.generation}"

    async def report(self, views: Collection[str]) -> None:
        """Counters of buckets come with each report."""
        await self.request(lambda number: StateQuery(number, list(views)))[1].wait()

    def view(self, name: str) -> Any:
        return self.reported.get(name)

    async def describe(self, connections: Sequence[int]) -> list[ConnectionView]:
        """Nothing when the worker is over. Raises trio.TooSlowError after DESCRIBE_S."""
        number, answered = self.request(lambda number: Describe(number, list(connections)))
        try:
            with trio.fail_after(DESCRIBE_S):
                await answered.wait()
            return self._described.get(number, [])
        finally:
            self._waiting.pop(number, None)
            self._described.pop(number, None)

    def items(self) -> Sequence[TopicView]:
        found: Sequence[TopicView] = self.reported.get("topics", ())
        return found

    def rows(self, name: str) -> Iterator[list[Any]]:
        return iter([self.reported.get(name, [])])

    def metric_lines(self) -> Iterator[str]:
        return scrapes.lines(self.families)

    def act(self, command: AnyCommand) -> None:
        if self.begun:
            self.send(command)

    def enforce(self, rules: RuleSet) -> None:
        encoded = rule_sets.change_of(self._told, rules)
        self._told = rules
        if encoded is None:
            self.change(lambda number: NewRaise(number, rule_sets.raise_of(rules)))
        else:
            self.change(lambda number: NewRules(number, encoded))

    async def in_force(self) -> None:
        """A worker that has not put in force within ANSWER_S what it was told is killed: its successor begins with it."""
        with trio.move_on_after(ANSWER_S) as late:
            for done in list(self.unanswered):
                await done.wait()
        if late.cancelled_caught and not self.over.is_set():
            self.kill(f"it has not put a change in force within {ANSWER_S:g} s")
            await self.over.wait()

    def take_faults(self) -> list[str]:
        faults, self.faults = self.faults, []
        return [f"worker {self.worker} goes on with what it had before, the others have the new: {fault}; reload again" for fault in faults]

    # ---- the process -------------------------------------------------------------------------------------------------

    def kill(self, why: str, number: signal.Signals = signal.SIGKILL) -> None:
        """SIGPROF: it writes its threads' stacks to stderr before it ends (`gateway/lifecycle/signals.py`), if it can."""
        if self.pid and not self.over.is_set() and number not in self.signals:
            self.signals.add(number)
            log.event(logging.ERROR, "worker_killed", worker=self.worker, pid=self.pid, err=why, remedy="another one takes its place")
            os.kill(self.pid, number)  # our own child that is not waited for yet: the number is still its own
            self.killed = True

    async def run_to_end(self, descriptors: Sequence[int]) -> int:
        """Start it, and listen to it until it is over; its exit code (below 0: a signal's number).

        Raises OSError, or RuntimeError where there is no thread for it, when it cannot be started: it is over then.
        """
        try:
            process, mine = await self._start(descriptors)
        except BaseException:
            self._end()
            raise
        self.pid = process.pid
        mine.setblocking(False)
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(mine))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.outbox.send_to, stream)
                try:
                    await listen(stream, FOR_PARENTS, self.take)
                except FaultyFrameError as error:
                    self.kill(f"what it has sent does not decode: {error}")
                except Exception as error:  # let it crash: this worker only
                    log.failure("worker_failed", error, worker=self.worker, pid=self.pid)
                    self.kill("a message of its could not be handled")
                nursery.cancel_scope.cancel()
            with trio.move_on_after(END_S):
                return await process.wait()
            self.kill("it has closed its socket and does not end")
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
            self._end()
            with trio.CancelScope(shield=True):
                await stream.aclose()
                await process.wait()

    async def _start(self, descriptors: Sequence[int]) -> tuple[trio.Process, socket.socket]:
        """The process, and this end of the socket to it."""
        mine, theirs = socket.socketpair()
        try:
            with theirs:
                process = await trio.lowlevel.open_process(
                    python(f"{rule_sets.__package__}.worker", str(theirs.fileno())),
                    pass_fds=[theirs.fileno(), *descriptors],
                    env=child_environment(),
                    stdin=subprocess.DEVNULL,
                )
        except BaseException:
            mine.close()
            raise
        return process, mine

    def _end(self) -> None:
        self.over.set()
        self.owner.member_left(self.worker)
        for event in self._waiting.values():
            event.set()

    # ---- what it sends -----------------------------------------------------------------------------------------------

    def take(self, message: AnyMessage) -> None:
        self.last_heard = time.monotonic()
        match message:
            case Asks(asks):
                self._lend(asks)
            case BucketAnnounced():
                self._leased[message.bucket] = ref = leased_bucket(message)
                self._tell_rate(ref)
            case BucketsForgotten(buckets):
                for bucket in buckets:
                    self._leased.pop(bucket, None)
                    self._bucket_counters.pop(bucket, None)
                    self._candidate_counters.pop(bucket, None)
            case Up():
                self.up.set()
            case WorkerReady():
                self.ready.set()
            case ChangeDone(number, fault):
                if fault:
                    self.faults.append(fault)
                self._wake_waiter(number)
            case StateReport(number, views, buckets, candidates):
                self._remember(views)
                for candidate in candidates:
                    self._add_candidate(*candidate)
                for bucket, *counters in buckets:
                    self._add_bucket(bucket, counters)
                self._wake_waiter(number)
            case LimitRequested():
                self.take_limit_request(self, message)
            case Described(number, connections):
                if number in self._waiting:  # else it is too late
                    self._described[number] = connections
                    self._wake_waiter(number)

    def _wake_waiter(self, number: int) -> None:
        event = self._waiting.pop(number, None)
        if event is not None:
            event.set()

    def _tell_rate(self, ref: LeasedBucketRef) -> None:
        """A worker's part of a limit that follows a backlog begins at the fastest rate: it hears that of now before the next look."""
        rate = self.judge.find_followed_rate(ref, now_ns())
        if rate is not None:
            self.send(FollowBacklog(ref.identity, rate.amount, rate.per_ns))

    def _lend(self, asks: list[tuple[int, int, int]]) -> None:
        """Answer in the order of the asks."""
        known = [(self._leased[bucket], messages, size) for bucket, messages, size in asks]
        granted = self.judge.lend(self.owner, known, self.worker, now_ns())
        self.send(Grants([(bucket, *got) for (bucket, _, _), got in zip(asks, granted, strict=True)]))

    def _remember(self, views: dict[str, bytes]) -> None:
        """A view that cannot be read stays as it was: it must not cost the worker's clients their connections."""
        for name, data in views.items():
            try:
                self._remember_view(name, data)
            except Exception as error:
                log.failure("view_failed", error, worker=self.worker, view=name)

    def _remember_view(self, name: str, data: bytes) -> None:
        if name == "metrics":
            self.families = scrapes.parse(msgspec.msgpack.decode(data, type=str))
        elif name == "events":
            if self.take_event is not None:
                for event in msgspec.msgpack.decode(data):
                    self.take_event(event)
        elif name == "series":
            if self.summed_seconds is not None:
                self.summed_seconds.add(self.worker, msgspec.msgpack.decode(data), time.monotonic())
        elif name == "forgotten":
            if self.retired_topics is not None:
                self.retired_topics.add_forgotten(DECODERS["topics"].decode(data))
        else:
            self.reported[name] = DECODERS[name].decode(data)

    def _add_bucket(self, bucket: int, counters: Sequence[int]) -> None:
        """Add what a worker's bucket has counted since the last report to the parent's own; take over the rest of its state."""
        *sums, last_refused_at, open_until, fill = counters
        before = self._bucket_counters.get(bucket, NO_COUNTS)
        self._bucket_counters[bucket] = tuple(sums)
        now = now_ns()
        own = self.judge.leased_bucket(self._leased[bucket], now)
        if own is None:
            return
        admitted, size, over, held, refused, shadow = (new - old for new, old in zip(sums, before, strict=True))
        own.admitted += admitted
        own.admitted_bytes += size
        own.over_limit += over
        own.held += held
        own.refused += refused
        own.shadow_refused += shadow
        own.last_refused_at = max(own.last_refused_at, last_refused_at)
        own.breaker.open_until = max(own.breaker.open_until, open_until)
        if fill >= 0:
            own.algorithm.set_fill(fill / 1e6, now)

    def _add_candidate(self, bucket: int, admitted: int, refused: int, since: int, clients: dict[str, int]) -> None:
        """Add what a candidate has counted since the last report. One that counts since a later time has begun anew."""
        before = self._candidate_counters.get(bucket)
        self._candidate_counters[bucket] = (admitted, refused, since, clients)
        if before is not None and before[2] == since:
            clients = {client: of_client - before[3].get(client, 0) for client, of_client in clients.items()}
            clients = {client: of_client for client, of_client in clients.items() if of_client > 0}
            admitted, refused = admitted - before[0], refused - before[1]
        self.judge.add_candidate_counts(self._leased[bucket], admitted, refused, clients, since, now_ns())

    def summary(self) -> WorkerView:
        """Its part of `GET /v1/status`."""
        status = self.reported.get("status")
        told = ("connections", "event_loop", "limits", "memory_full", "memory", "warnings")
        return WorkerView(
            worker=self.worker,
            pid=self.pid,
            lives=self.generation + 1,
            serves=self.serves,
            uptime_seconds=round(time.monotonic() - self.started, 3),
            **{name: getattr(status, name, None) for name in told},
        )

    def retire(self, topics: RetiredTopics, families: scrapes.Families, named: Sequence[NamedSeries]) -> None:
        """Add what it has counted to what the workers before it have."""
        scrapes.add(families, self.families, None, named)
        topics.add_ended(self.items(), time.monotonic())
        for each in named:
            each.report(str(self.worker), self.families, now_ns())
            each.retire_worker(str(self.worker), now_ns())

    def __repr__(self) -> str:
        state = "over" if self.over.is_set() else "serves" if self.ready.is_set() else "starts"
        return f"<Child {state} worker={self.worker} generation={self.generation} pid={self.pid} buckets={len(self._leased)}>"


def leased_bucket(announced: BucketAnnounced) -> LeasedBucketRef:
    name = TopicName(announced.protocol, announced.vhost, announced.exchange, announced.topic)
    thing = announced.identity[3]
    subject = Subject(
        name, announced.text, announced.sender, announced.group, announced.operation, announced.connection,
        grouped=thing.endswith("#") and thing != announced.text,
    )  # fmt: skip
    return LeasedBucketRef(announced.identity, subject, overflow=announced.overflow)
