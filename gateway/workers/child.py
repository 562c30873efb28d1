"""One worker as its parent sees it: the process, what is said to it and what it has told. One `Child` is one life; the next is another."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from gateway import log
from gateway.clock import now_ns
from gateway.workers import scrapes, summing
from gateway.workers.wire import (
    FOR_PARENTS,
    Asks,
    Describe,
    Described,
    Done,
    FaultyFrameError,
    Grants,
    Left,
    Met,
    Outbox,
    Ready,
    Tell,
    Told,
    listen,
)  # fmt: skip
from limiter.buckets.leased_bucket_ref import LeasedBucketRef
from limiter.leases.owner import LeaseOwner
from limiter.rules.subject import Subject
from limiter.topics import TopicName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.workers.wire import AnyMessage, Message
    from limiter.judge import Judge

MOST_OUT: Final = 64 * 1024 * 1024  # bytes that wait for a worker; beyond them it does not listen any more
END_S: Final = 2.0  # between the end of its socket and the end of its process

NO_COUNTS: Final = (0,) * 6


class Child:
    """A worker's process, from its start to its end."""

    def __init__(self, worker: int, life: int, judge: Judge, owner: LeaseOwner) -> None:
        self.worker = worker
        self.life = life
        self.judge = judge
        self.owner = owner
        self.pid = 0
        self.started = time.monotonic()
        self.heard = self.started  # when it has said something last
        self.ready = trio.Event()
        self.over = trio.Event()
        self.faults: list[str] = []  # what it could not do of what it was told last
        self.outbox = Outbox(MOST_OUT)
        self.told: dict[str, Any] = {}  # its views, as it told them last
        self.families: dict[str, scrapes.Family] = {}
        self._lent: dict[int, LeasedBucketRef] = {}  # by its own numbers
        self._counts: dict[int, tuple[int, ...]] = {}  # counters of its buckets as told last
        self._tried: dict[int, tuple[int, int, int, dict[str, int]]] = {}  # those of their candidates
        self._waiting: dict[int, trio.Event] = {}  # by the number of what is to be answered
        self._described: dict[int, list[dict[str, Any]]] = {}  # connections, until they are fetched; by the same numbers

    @property
    def serves(self) -> bool:
        return self.ready.is_set() and not self.over.is_set()

    # ---- said to it ------------------------------------------------------------------------------------------------

    def say(self, message: Message) -> None:
        if not self.over.is_set():
            self.outbox.put(message)

    def expect(self, number: int) -> trio.Event:
        """Set when the message of that number is answered, or the worker is over."""
        answered = self._waiting[number] = trio.Event()
        if self.over.is_set():
            answered.set()
        return answered

    def ask(self, number: int, what: list[str]) -> trio.Event:
        answered = self.expect(number)
        self.say(Tell(number, what))
        return answered

    async def describe_connections(self, number: int, connections: list[int]) -> list[dict[str, Any]]:
        """Those of its connections that there still are; none when it is over."""
        answered = self.expect(number)
        self.say(Describe(number, connections))
        try:
            await answered.wait()
            return self._described.get(number, [])
        finally:
            self._waiting.pop(number, None)
            self._described.pop(number, None)

    def kill(self, why: str) -> None:
        if self.pid and not self.over.is_set():
            log.event(logging.ERROR, "worker_killed", worker=self.worker, pid=self.pid, err=why, remedy="another one takes its place")
            os.kill(self.pid, 9)  # its own child that nobody has waited for yet: the number is still its

    # ---- its life --------------------------------------------------------------------------------------------------

    async def live(self, descriptors: Sequence[int]) -> int:
        """Start it, and listen to it until it is over; its exit code (below 0: a signal's number). `Begin` was said before."""
        mine, theirs = socket.socketpair()
        with theirs:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "gateway.workers.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno(), *descriptors],
                env=environment(),
                stdin=subprocess.DEVNULL,
            )
        self.pid = process.pid
        mine.setblocking(False)
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(mine))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.outbox.send_to, stream)
                try:
                    await listen(stream, FOR_PARENTS, self.take)
                except FaultyFrameError as error:
                    self.kill(f"it talks nonsense: {error}")
                except Exception as error:  # let it crash: this worker only
                    log.failure("worker_failed", error, worker=self.worker, pid=self.pid)
                    self.kill("what it said could not be taken")
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

    def _end(self) -> None:
        self.over.set()
        self.owner.gone(self.worker)
        for event in self._waiting.values():
            event.set()

    # ---- what it says ----------------------------------------------------------------------------------------------

    def take(self, message: AnyMessage) -> None:
        self.heard = time.monotonic()
        match message:
            case Asks(asks):
                self._lend(asks)
            case Met():
                self._lent[message.bucket] = lent(message)
            case Left(buckets):
                for bucket in buckets:
                    self._lent.pop(bucket, None)
                    self._counts.pop(bucket, None)
                    self._tried.pop(bucket, None)
            case Ready():
                self.ready.set()
            case Done(number, fault):
                if fault:
                    self.faults.append(fault)
                self._answered(number)
            case Told(number, told, buckets, tried):
                self._remember(told)
                for counted in tried:
                    self._try(*counted)
                for counts in buckets:
                    self._count(counts[0], counts[1:])
                self._answered(number)

            case Described(number, connections):
                if number in self._waiting:  # else it is too late
                    self._described[number] = connections
                    self._answered(number)

    def _answered(self, number: int) -> None:
        event = self._waiting.pop(number, None)
        if event is not None:
            event.set()

    def _lend(self, asks: list[tuple[int, int, int]]) -> None:
        """Answer in the order in which it was asked."""
        known = [(self._lent[bucket], messages, size) for bucket, messages, size in asks]
        granted = self.judge.lend(self.owner, known, self.worker, now_ns())
        self.say(Grants([(bucket, *got) for (bucket, _, _), got in zip(asks, granted, strict=True)]))

    def _remember(self, told: dict[str, bytes]) -> None:
        for name, data in told.items():
            if name == "metrics":
                self.families = scrapes.parse(data.decode())
            else:
                self.told[name] = msgspec.msgpack.decode(data)

    def _count(self, bucket: int, counts: tuple[int, ...]) -> None:
        """Add what a worker's bucket has counted since it was told last to the parent's own; take over the rest of its state."""
        *sums, last_refused_at, open_until, fill = counts
        before = self._counts.get(bucket, NO_COUNTS)
        self._counts[bucket] = tuple(sums)
        now = now_ns()
        own = self.judge.lent_bucket(self._lent[bucket], now)
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

    def _try(self, bucket: int, admitted: int, refused: int, since: int, clients: dict[str, int]) -> None:
        """Add what a candidate has counted since it was told last. One that counts since later has begun anew."""
        before = self._tried.get(bucket)
        self._tried[bucket] = (admitted, refused, since, clients)
        if before is not None and before[2] == since:
            clients = {client: of_client - before[3].get(client, 0) for client, of_client in clients.items()}
            clients = {client: of_client for client, of_client in clients.items() if of_client > 0}
            admitted, refused = admitted - before[0], refused - before[1]
        self.judge.tried(self._lent[bucket], admitted, refused, clients, since, now_ns())

    def describe(self) -> dict[str, object]:
        """Its part of `GET /v1/status`."""
        status = self.told.get("status", {})
        return {
            "worker": self.worker,
            "pid": self.pid,
            "lives": self.life + 1,
            "serves": self.serves,
            "uptime_seconds": round(time.monotonic() - self.started, 3),
            **{name: status.get(name) for name in ("connections", "event_loop", "limits", "memory_full", "memory", "warnings")},
        }

    def connections(self) -> dict[int, str]:
        """The protocol of each, by its number."""
        view: dict[int, str] = self.told.get("connections", {})
        return view

    def topics(self) -> list[dict[str, Any]]:
        view: list[dict[str, Any]] = self.told.get("topics", [])
        return view

    def leave(self, topics: list[dict[str, Any]], families: dict[str, scrapes.Family]) -> list[dict[str, Any]]:
        """Add what it has counted to what those before it have; the topics of all of them."""
        scrapes.add(families, self.families, None)
        return summing.topics([topics, summing.ended(self.topics())])

    def __repr__(self) -> str:
        state = "over" if self.over.is_set() else "serves" if self.ready.is_set() else "starts"
        return f"<Child {state} worker={self.worker} life={self.life} pid={self.pid} buckets={len(self._lent)}>"


def lent(met: Met) -> LeasedBucketRef:
    name = TopicName(met.protocol, met.vhost, met.exchange, met.topic)
    subject = Subject(name, met.text, met.listener, met.client, met.user, met.group, met.operation, met.connection)
    return LeasedBucketRef(met.identity, subject, overflow=met.overflow)


def environment() -> dict[str, str]:
    """This process's, without what is meant for it alone, and with the way to the modules that it has found itself."""
    found = {name: text for name, text in os.environ.items() if name != "NOTIFY_SOCKET" and not name.startswith("LISTEN_")}
    found["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return found
