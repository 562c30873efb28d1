"""The messages between a gateway's parent and its workers, and their frames on the socket between them.

A frame is four bytes of length and a MessagePack array: the message's name and its fields, in order. Both ends are the same version of the
same program on the same machine, so there is no version in it; what does not decode is a fault, and ends the connection.

Parent to worker: `Begin` first, then `NewRules`, `NewRaise`, `Reload`, `Grants`, `StateQuery`, `Describe`, `LimitRequestDone`, and the
commands of `gateway/data_plane.py`.
Worker to parent: `Up` once it waits for `Begin`, `WorkerReady` once it serves, then `BucketAnnounced`, `Asks`, `BucketsForgotten`,
`ChangeDone`, `StateReport`, `Described`, `LimitRequested`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec
import trio

from common.views.connections import ConnectionView
from gateway.data_plane import AnyCommand, Message
from limiter.rules.sender import Sender

HEAD: Final = struct.Struct("!I")
MAX_FRAME_BYTES: Final = 1 << 30  # bytes; far above 10,000 connections' states, below what a torn length would be; a guess
READ_BYTES: Final = 262_144  # bytes; one read

Identity = tuple[str, str, str, str]


class Begin(Message, frozen=True):
    """What a worker is, and under which rules it begins."""

    worker: int  # its place, from 1
    workers: int
    generation: int  # how many workers have been at that place before it
    boot: str
    settings: str  # as YAML, without rules
    sockets: dict[str, int]  # listener -> descriptor
    revision: int
    rules: bytes  # `rules.encode`
    counts: int = -1  # descriptor of the memory in which workers count their connections; -1: there is none
    texts: dict[str, str] = msgspec.field(default_factory=dict)  # files of TLS, by path, as they are in force


class NewRules(Message, frozen=True):
    number: int  # answered by `ChangeDone` when they are in force
    rules: bytes


class NewRaise(Message, frozen=True):
    """The intraday raise that holds from now on; None: none."""

    number: int  # answered by `ChangeDone` when it is in force
    hourly: tuple[float, list[tuple[str, str, float, float]], list[tuple[str, str, float, float]]] | None  # as `rules.raise_of` has it


class Reload(Message, frozen=True):
    """These settings hold, with these files of TLS."""

    number: int  # answered by `ChangeDone` when they do
    settings: str
    texts: dict[str, str] = msgspec.field(default_factory=dict)  # as in `Begin`


class Grants(Message, frozen=True):
    """The answers to one `Asks`, in its order: bucket, messages, bytes."""

    grants: list[tuple[int, int, int]]


class StateQuery(Message, frozen=True):
    """Which views of its state the worker is to report."""

    number: int  # answered by `StateReport`
    views: list[str]


class Describe(Message, frozen=True):
    """Describe these connections, as a page of `GET /v1/connections` shows them."""

    number: int  # answered by `Described`
    connections: list[int]


class LimitRequestDone(Message, frozen=True):
    """The answer to `LimitRequested`."""

    number: int
    why: str = ""  # a change could not be done
    body: bytes = b""  # of a view


class LimitRequested(Message, frozen=True):
    """A RocketMQ console asks for limits, or for a change of one: `limit_requests.py`."""

    number: int  # answered by `LimitRequestDone`
    kind: str
    who: list[str]  # action, client, access key, id of the request
    topic: bytes = b""
    rate: float = 0.0  # messages a second
    why: str = ""  # it is refused


class Up(Message, frozen=True):
    """The process has started, and waits for `Begin`."""


class WorkerReady(Message, frozen=True):
    pid: int


class BucketAnnounced(Message, frozen=True):
    """A bucket that the parent does not know yet: its id from now on, and whose message it was for."""

    bucket: int
    identity: Identity
    protocol: str
    vhost: bytes
    exchange: bytes
    topic: bytes
    text: str
    sender: Sender
    group: bytes | None
    operation: str
    connection: int
    overflow: bool = False


class Asks(Message, frozen=True):
    """What buckets want from the parent's: bucket, messages, bytes; below 0: given back."""

    asks: list[tuple[int, int, int]]


class BucketsForgotten(Message, frozen=True):
    """Buckets whose ids mean nothing any more."""

    buckets: list[int]


class ChangeDone(Message, frozen=True):
    """The answer to `NewRules`, `NewRaise` and `Reload`."""

    number: int
    fault: str = ""  # why not


class StateReport(Message, frozen=True):
    """The views that were asked for, and all counters that have changed since the last report."""

    number: int
    views: dict[str, bytes]  # by name, as MessagePack
    buckets: list[tuple[int, int, int, int, int, int, int, int, int, int]]  # see `bucket_ids.BucketCounters`
    candidates: list[tuple[int, int, int, int, dict[str, int]]] = msgspec.field(default_factory=list)  # see `bucket_ids.CandidateCounters`


class Described(Message, frozen=True):
    """Those of the connections that are still open, as `GET /v1/connections` has them."""

    number: int
    connections: list[ConnectionView]


ToWorker: TypeAlias = Begin | NewRules | NewRaise | Reload | Grants | StateQuery | Describe | LimitRequestDone | AnyCommand
ToParent: TypeAlias = Up | WorkerReady | BucketAnnounced | Asks | BucketsForgotten | ChangeDone | StateReport | Described | LimitRequested
AnyMessage: TypeAlias = ToWorker | ToParent

FOR_WORKERS: Final = msgspec.msgpack.Decoder(ToWorker)
FOR_PARENTS: Final = msgspec.msgpack.Decoder(ToParent)


class FaultyFrameError(Exception):
    """What the other end has sent does not decode."""


def frame(message: Message) -> bytes:
    body = msgspec.msgpack.encode(message)
    return HEAD.pack(len(body)) + body


class WireFrames:
    """Bytes in, bodies of frames out. Holds at most one unfinished frame and one read."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are complete now; raises FaultyFrameError."""
        held = self._held
        held += data
        found = []
        at = 0
        while len(held) - at >= HEAD.size:
            (size,) = HEAD.unpack_from(held, at)
            if size > MAX_FRAME_BYTES:
                raise FaultyFrameError(f"a frame of {size} bytes")
            if len(held) - at - HEAD.size < size:
                break
            found.append(bytes(held[at + HEAD.size : at + HEAD.size + size]))
            at += HEAD.size + size
        del held[:at]
        return found

    def __repr__(self) -> str:
        return f"<WireFrames {len(self._held)} bytes held>"


async def listen(stream: trio.abc.ReceiveStream, decoder: msgspec.msgpack.Decoder[AnyMessage], take: Callable[[AnyMessage], None]) -> None:
    """Call `take` with every message that comes in, until the other end is gone. Raises FaultyFrameError, and what `take` raises."""
    frames = WireFrames()
    while True:
        try:
            data = await stream.receive_some(READ_BYTES)
        except trio.BrokenResourceError:
            return
        if not data:
            return
        for body in frames.feed(bytes(data)):
            try:
                message = decoder.decode(body)
            except msgspec.MsgspecError as error:
                raise FaultyFrameError(str(error)) from error
            take(message)


class Outbox:
    """Messages on their way to the other end, in order; nobody waits for it. Holds at most `max_bytes`; beyond them it is `overfull`."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.overfull = False
        self._frames: list[bytes] = []
        self._bytes = 0
        self._filled = trio.Event()

    def put(self, message: Message) -> None:
        data = frame(message)
        if self._bytes + len(data) > self.max_bytes and self._frames:
            self.overfull = True
            return
        self._frames.append(data)
        self._bytes += len(data)
        self._filled.set()

    async def send_to(self, stream: trio.abc.SendStream) -> None:
        """Send until the other end is gone."""
        while True:
            await self._filled.wait()
            self._filled = trio.Event()
            frames, self._frames, self._bytes = self._frames, [], 0
            try:
                await stream.send_all(b"".join(frames))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    def __repr__(self) -> str:
        return f"<Outbox {len(self._frames)} frames, {self._bytes} bytes{' overfull' if self.overfull else ''}>"
