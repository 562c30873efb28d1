"""What a gateway's parent and its workers say to each other: messages, and how they lie on the socket between them.

A frame is four bytes of length and a MessagePack array: the message's name and its fields, in order. Both ends are the same version of the
same program on the same machine, so there is no version in it; what does not decode is a fault, and ends the connection.

Parent to worker: `Begin` first, then `NewRules`, `Reload`, `Grants`, `Tell`, `Describe`, `Close`, `Drain`.
Worker to parent: `Ready` once it serves, then `Met`, `Asks`, `Left`, `Done`, `Told`, `Described`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec
import trio

HEAD: Final = struct.Struct("!I")
MOST_BYTES: Final = 1 << 30  # a guess: far above 10,000 connections' states, below what a torn length would say
READ_BYTES: Final = 262_144

Identity = tuple[str, str, str, str]


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One message; its name goes before its fields."""


class Begin(Message, frozen=True):
    """What a worker is, and under which rules it begins."""

    worker: int  # its place, from 1
    workers: int
    life: int  # how many have been at that place before it
    boot: str
    settings: str  # as YAML, without rules
    sockets: dict[str, int]  # listener -> descriptor
    revision: int
    rules: bytes  # `rules.encode`


class NewRules(Message, frozen=True):
    number: int  # answered by `Done` when they are in force
    rules: bytes


class Reload(Message, frozen=True):
    """Read the files of TLS again, as these settings say."""

    number: int
    settings: str


class Grants(Message, frozen=True):
    """The answers to one `Asks`, in its order: bucket, messages, bytes."""

    grants: list[tuple[int, int, int]]


class Tell(Message, frozen=True):
    number: int  # answered by `Told`
    what: list[str]


class Describe(Message, frozen=True):
    """Say more of these connections."""

    number: int  # answered by `Described`
    connections: list[int]


class Close(Message, frozen=True):
    connection: int
    reason: str


class Drain(Message, frozen=True):
    """Stop gracefully."""


class Ready(Message, frozen=True):
    pid: int


class Met(Message, frozen=True):
    """A bucket that was not spoken of before, what it will be called, and whose message it was for."""

    bucket: int
    identity: Identity
    protocol: str
    vhost: bytes
    exchange: bytes
    topic: bytes
    text: str
    listener: str | None
    client: str | None
    user: str | None
    group: bytes | None
    operation: str
    connection: int
    overflow: bool = False


class Asks(Message, frozen=True):
    """Bucket, messages, bytes; below 0: given back."""

    asks: list[tuple[int, int, int]]


class Left(Message, frozen=True):
    """Buckets that the worker has forgotten."""

    buckets: list[int]


class Done(Message, frozen=True):
    number: int
    fault: str = ""  # why not


class Told(Message, frozen=True):
    number: int
    told: dict[str, bytes]  # by what was asked for, as MessagePack
    buckets: list[tuple[int, int, int, int, int, int, int, int, int, int]]  # see `numbers.Counts`
    tried: list[tuple[int, int, int, int, dict[str, int]]] = []  # see `numbers.Tried`


class Described(Message, frozen=True):
    """Those of the connections that there still are, as `GET /v1/connections` has them."""

    number: int
    connections: list[dict[str, Any]]


ToWorker: TypeAlias = Begin | NewRules | Reload | Grants | Tell | Describe | Close | Drain
ToParent: TypeAlias = Ready | Met | Asks | Left | Done | Told | Described
AnyMessage: TypeAlias = ToWorker | ToParent

FOR_WORKERS: Final = msgspec.msgpack.Decoder(ToWorker)
FOR_PARENTS: Final = msgspec.msgpack.Decoder(ToParent)


class FaultyFrameError(Exception):
    """The other end talks nonsense."""


def frame(message: Message) -> bytes:
    body = msgspec.msgpack.encode(message)
    return HEAD.pack(len(body)) + body


class Frames:
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
            if size > MOST_BYTES:
                raise FaultyFrameError(f"a frame of {size} bytes")
            if len(held) - at - HEAD.size < size:
                break
            found.append(bytes(held[at + HEAD.size : at + HEAD.size + size]))
            at += HEAD.size + size
        del held[:at]
        return found

    def __repr__(self) -> str:
        return f"<Frames {len(self._held)} bytes held>"


async def listen(stream: trio.abc.ReceiveStream, decoder: msgspec.msgpack.Decoder[AnyMessage], take: Callable[[AnyMessage], None]) -> None:
    """Take every message that comes in, until the other end is gone. Raises FaultyFrameError, and what `take` raises."""
    frames = Frames()
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
    """What is to be sent to the other end, in order, without waiting for it. Holds at most `most` bytes; beyond them it is `overfull`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.overfull = False
        self._frames: list[bytes] = []
        self._bytes = 0
        self._news = trio.Event()

    def put(self, message: Message) -> None:
        data = frame(message)
        if self._bytes + len(data) > self.most and self._frames:
            self.overfull = True
            return
        self._frames.append(data)
        self._bytes += len(data)
        self._news.set()

    async def send_to(self, stream: trio.abc.SendStream) -> None:
        """Send until the other end is gone."""
        while True:
            await self._news.wait()
            self._news = trio.Event()
            frames, self._frames, self._bytes = self._frames, [], 0
            try:
                await stream.send_all(b"".join(frames))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    def __repr__(self) -> str:
        return f"<Outbox {len(self._frames)} frames, {self._bytes} bytes{' overfull' if self.overfull else ''}>"
