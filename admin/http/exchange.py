"""One connection of the admin server: request after request, answer after answer.

Every request gets an h11 connection of its own, fed with exactly the bytes that belong to it; bytes received beyond stay in our
buffer. So pipelined requests are checked as strictly as the first, and are answered in order, one by one.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import AsyncGenerator, Callable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeAlias

import h11
import trio
import trio.abc

from admin.authentication.auth import counted_address
from admin.http.parsing import CONTENT_SECURITY, MAX_HEAD, BodyFrame, RequestRefusedError, check_head, parse_head
from admin.http.places import FRESH, TOKEN, Claim
from admin.http.routing import Answer, LiveBody, encode
from admin.http.slices import yield_to_loop
from common.loop_turns import LoopTurns
from common.records import dataclass

if TYPE_CHECKING:
    from admin.http.first_look import FirstLook
    from admin.http.parsing import Head
    from admin.http.peer import Peer
    from admin.http.places import ConnectionPlaces
    from admin.http.server import Respond

Pieces: TypeAlias = Iterator[str | bytes] | AsyncGenerator[str | bytes, None]

RECEIVE: Final = 64 * 1024  # bytes per read, and per write
OPENING_S: Final = 0.5  # seconds; from a request's first byte to its last when all places are taken; a guess
STALLED_S: Final = 1.0  # seconds; that a client may leave a piece of its answer when all places are taken; a guess
PIECE: Final = 32 * 1024  # bytes a stream is gathered to before it is written
LINGER: Final = 1024 * 1024  # bytes read and thrown away after an early answer, so that a reset does not overtake it
WITHOUT_BODY: Final = frozenset({204, 304})  # they end with their head, and say no length (RFC 9110, 8.6)
FIXED_HEADERS: Final = {  # of every answer; one that an answer states itself takes the place of ours
    "Cache-Control": "no-store",
    "Content-Security-Policy": CONTENT_SECURITY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds (docs/design/reliability.md 5; `idle` and `linger` are guesses)."""

    head: float = 5.0  # from a request's first byte, or the connection's begin, to the end of its head
    body: float = 10.0  # for the whole body
    write: float = 5.0  # for every piece of the answer
    idle: float = 60.0  # between two requests
    linger: float = 1.0  # reading on after an early answer


class Stage(enum.Enum):
    """What a connection is doing, and so whether another may have its place (`Exchange.rank`)."""

    OPENING = "opening"  # no whole head yet
    IDLE = "idle"  # between two requests
    BODY = "body"  # waits for a body
    BUSY = "busy"  # a request is being worked on
    WRITING = "writing"  # the client is to take a piece of the answer
    LINGERING = "lingering"  # has had its answer; what it still sends is thrown away


class SlowPeerError(Exception):
    """The client did not take written bytes in time."""


class Exchange:
    """A connection, and the bytes received on it but not yet used (at most one head and one read)."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        peer: Peer,
        respond: Respond,
        deadlines: Deadlines,
        places: ConnectionPlaces[Exchange],
        first_look: FirstLook,
        goes_live: Callable[[Exchange], None],
    ) -> None:
        """`goes_live` is called when a body without a foreseeable end begins; the connection ends with it."""
        self._stream = stream
        self._respond = respond
        self._deadlines = deadlines
        self._places = places
        self._first_look = first_look
        self._claim = Claim.STRANGER  # of its request
        self._goes_live = goes_live
        self._buffer = bytearray()
        self._stage = Stage.OPENING
        self.since = trio.current_time()  # when the stage began; of a request that is not whole, when that did
        self._request_since = self.since
        self._answered = False
        self.scope = trio.CancelScope()  # of all that it does
        self.peer = peer
        self.address = counted_address(peer.address)
        self.requests = 0
        self.turned_away = False  # it ends because it got no place

    def _enter(self, stage: Stage) -> None:
        self._stage = stage
        self.since = self._request_since if stage in (Stage.OPENING, Stage.BODY) else trio.current_time()

    def waits_for_a_request(self) -> bool:
        """Whether nothing has come of a next request."""
        return self._stage in (Stage.OPENING, Stage.IDLE) and not self._buffer

    def rank(self, now: float) -> int | None:
        """Who loses a place first: the connection with the least rank. None: it keeps its place, a request is being worked on.

        Without a good token a connection has one answer, and loses first from then on, whatever it does. A slow request or answer is next.
        """
        age = now - self.since
        if not self.peer.authenticated:
            if self._answered:
                return 0 if self._stage in (Stage.IDLE, Stage.LINGERING) else 1
            return 2 if self._stage is Stage.WRITING and age > OPENING_S else None
        match self._stage:
            case Stage.OPENING:
                return 2 if age > OPENING_S else FRESH
            case Stage.LINGERING:
                return 2
            case Stage.IDLE:
                return TOKEN
            case Stage.BODY:
                return FRESH + (1 if age > OPENING_S else 2)
            case Stage.WRITING if age > STALLED_S:
                return FRESH + 3
        return None

    async def turn(self, keep: Callable[[], bool]) -> bool:
        """Serve the next request; whether another may follow. `keep()` says whether the server wants one."""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * MAX_HEAD)
        raw: bytes | None = b""
        try:
            raw = await self._receive_head()
            if raw is None:
                return False
            if (probe := self._first_look.probe(raw)) is not None:
                return await self._answer_probe(probe, keep)
            await self._begin(Claim.KNOWN if self._first_look.is_known(raw) else Claim.STRANGER)
            head = parse_head(raw, connection)
        except RequestRefusedError as refused:
            self._buffer.clear()
            if not raw:
                await self._begin(Claim.STRANGER)
            was_parsed = connection.their_state in (h11.SEND_BODY, h11.DONE)  # then h11 takes no body in the answer to HEAD
            method = "HEAD" if was_parsed and raw is not None and raw.startswith(b"HEAD ") else "GET"
            await self._send(connection, await self._respond(refused, _no_body, self.peer), method, close=True)
            await self._linger()
            return False
        self.requests += 1
        await yield_to_loop()
        body = Body(self, connection, BodyFrame(head.length), self._deadlines.body)
        answer = await self._respond(head, body.receive, self.peer)
        if isinstance(answer.body, LiveBody):
            await self._send_live(connection, answer, answer.body, head.method)
            return False
        close = not (body.finish() and keep()) or self._is_to_go()
        await self._send(connection, answer, head.method, close=close)
        self._has_answer()
        if not close and connection.our_state is h11.DONE:
            return True
        await self._linger()
        return False

    async def _answer_probe(self, head: Head, keep: Callable[[], bool]) -> bool:
        """Serve a probe's request: without h11, and without turns, of which others might have many."""
        self._claim = Claim.PROBE
        await self._need_place()
        self.requests += 1
        answer = await self._respond(head, _no_body, self.peer)
        close = not keep() or self._is_to_go() or b"close" in head.headers.get("connection", b"").lower()
        await self.write(_plain(answer, close=close))
        self._has_answer()
        if not close:
            return True
        await self._linger()
        return False

    def _is_to_go(self) -> bool:
        """Whether it has its last answer, since others wait."""
        return self._places.are_short and not self.peer.authenticated

    async def _begin(self, claim: Claim) -> None:
        """Wait until the request may be worked on."""
        self._claim = claim
        await self._need_place()
        await yield_to_loop()

    async def _need_place(self) -> None:
        """Wait for a place, and end the connection where there is none."""
        if not await self._places.enter(self, self._claim):
            self.turned_away = True
            self.scope.cancel()
            await trio.lowlevel.checkpoint()

    def _has_answer(self) -> None:
        self._answered = True
        if not self.peer.authenticated:
            self._places.usher()

    async def receive_body(self) -> bool:
        """Read once of a body; False at the client's end of stream."""
        if self._stage is not Stage.BODY:
            self._enter(Stage.BODY)
            if not self.peer.authenticated:
                self._places.step_back(self)
        return await self.receive()

    async def has_body(self) -> None:
        """The body is here, and will be worked on."""
        await self._need_place()
        self._enter(Stage.BUSY)

    async def receive(self, most: int = RECEIVE) -> bool:
        """Read once into the buffer; False at the client's end of stream."""
        data = await self._stream.receive_some(most)
        self._buffer += data
        return bool(data)

    @property
    def buffer(self) -> bytearray:
        return self._buffer

    async def _receive_head(self) -> bytes | None:
        """The next request's head; None when the client has finished, or the connection was idle too long or gave way."""
        if not self._buffer:
            self._enter(Stage.IDLE if self.requests else Stage.OPENING)
            with trio.move_on_after(self._deadlines.idle if self.requests else self._deadlines.head):
                if not await self.receive(MAX_HEAD):
                    return None
            if not self._buffer:
                self.turned_away = not self.requests and self._places.are_taken
                return None
        if self.requests:
            self._request_since = trio.current_time()  # the first request: since the connection began
            self._enter(Stage.OPENING)
        with trio.move_on_after(self._deadlines.head):
            while not (size := check_head(self._buffer)):
                if not await self.receive(MAX_HEAD):
                    return None
            raw = bytes(self._buffer[:size])
            del self._buffer[:size]
            self._enter(Stage.BUSY)
            return raw
        raise RequestRefusedError(408, f"the request's head took longer than {self._deadlines.head:g} s")

    async def write(self, data: bytes) -> None:
        """Raises SlowPeerError when the client does not take a piece of `data` in time."""
        self._places.leave_seat(self)
        for at in range(0, len(data), RECEIVE):
            self._enter(Stage.WRITING)
            with trio.move_on_after(self._deadlines.write) as scope:
                await self._stream.send_all(data[at : at + RECEIVE])
            if scope.cancelled_caught:
                raise SlowPeerError
            self._enter(Stage.BUSY)

    async def _send_live(self, connection: h11.Connection, answer: Answer, body: LiveBody, method: str) -> None:
        """Send the body until it ends, the client is gone or does not take a piece in time. Then the connection ends."""
        with body.place():
            self._goes_live(self)
            out = connection.send(h11.Response(status_code=answer.status, headers=_headers(answer, close=True))) or b""
            await self.write(out)
            if method == "HEAD":
                return

            async def write(data: bytes) -> None:
                await self.write(connection.send(h11.Data(data=data)) or b"")

            failed: Exception | None = None
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._until_gone, nursery.cancel_scope)
                try:
                    await body.send(write)
                    await self.write(connection.send(h11.EndOfMessage()) or b"")
                except Exception as error:
                    failed = error
                nursery.cancel_scope.cancel()
            if failed is not None:
                raise failed

    async def _until_gone(self, scope: trio.CancelScope) -> None:
        """Cancel `scope` when the client ends its side, or talks on and on where it has nothing to say."""
        left = LINGER
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while left > 0 and (data := await self._stream.receive_some(RECEIVE)):
                left -= len(data)
        scope.cancel()

    async def _send(self, connection: h11.Connection, answer: Answer, method: str, *, close: bool) -> None:
        await yield_to_loop()
        headers = _headers(answer, close=close)
        if isinstance(answer.body, Iterator | AsyncGenerator):
            await self._stream_out(connection, answer, headers, iter(()) if method == "HEAD" else answer.body)
            return
        body = answer.body
        if not isinstance(body, bytes):
            body = encode(body)
            await yield_to_loop()
        if answer.status not in WITHOUT_BODY:
            headers.append(("Content-Length", str(len(body))))
        out = connection.send(h11.Response(status_code=answer.status, headers=headers, reason=_phrase(answer.status))) or b""
        if body and method != "HEAD":
            out += connection.send(h11.Data(data=body)) or b""
        await self.write(out + (connection.send(h11.EndOfMessage()) or b""))

    async def _stream_out(self, connection: h11.Connection, answer: Answer, headers: list[tuple[str, str]], body: Pieces) -> None:
        """Write text or bytes as they are made, with turns of the loop between pieces. Its failure cuts the answer short, visibly."""
        out = connection.send(h11.Response(status_code=answer.status, headers=headers, reason=_phrase(answer.status))) or b""
        gathered = bytearray()
        turns = LoopTurns(trio.current_time, trio.lowlevel.checkpoint)
        async with contextlib.aclosing(body if isinstance(body, AsyncGenerator) else _one_by_one(body)) as pieces:
            async for piece in pieces:
                gathered += piece if isinstance(piece, bytes) else piece.encode()
                await turns.give()
                if len(gathered) >= PIECE:
                    await self.write(out + (connection.send(h11.Data(data=bytes(gathered))) or b""))
                    out = b""
                    gathered.clear()
        if gathered:
            out += connection.send(h11.Data(data=bytes(gathered))) or b""
        await self.write(out + (connection.send(h11.EndOfMessage()) or b""))

    async def _linger(self) -> None:
        """End our direction, then read and discard the client's bytes for a moment. Not where others wait and it has no good token."""
        self._enter(Stage.LINGERING)
        self._has_answer()
        if self._is_to_go():
            return
        stream = getattr(self._stream, "transport_stream", self._stream)  # of TLS: what still comes is not decrypted
        if not isinstance(stream, trio.abc.HalfCloseableStream):
            return
        with trio.move_on_after(self._deadlines.linger):
            await stream.send_eof()
            left = LINGER
            while left > 0 and (data := await stream.receive_some(RECEIVE)):
                left -= len(data)

    def __repr__(self) -> str:
        return f"<Exchange {self._stage.value} with {self.peer.address}, {self.requests} requests>"


class Body:
    """A request's body, received when it is asked for."""

    def __init__(self, exchange: Exchange, connection: h11.Connection, frame: BodyFrame, deadline: float) -> None:
        self._exchange = exchange
        self._connection = connection
        self._frame = frame
        self._deadline = deadline

    async def receive(self, most: int) -> bytes:
        """The whole body; raises RequestRefusedError 413 where it is longer than `most` bytes, 408 where it takes too long."""
        if self._frame.announced > most:
            raise RequestRefusedError(413, f"the body is longer than {most} bytes")
        if self._frame.done:
            return b""
        if self._connection.they_are_waiting_for_100_continue:
            await self._exchange.write(self._connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        parts: list[bytes] = []
        with trio.move_on_after(self._deadline):
            while not self._frame.done:
                if not self._exchange.buffer and not await self._exchange.receive_body():
                    raise RequestRefusedError(400, "the connection ended within the body")
                self._connection.receive_data(self._frame.take(self._exchange.buffer))
                if self._frame.received > most:
                    raise RequestRefusedError(413, f"the body is longer than {most} bytes")
                parts.extend(self._decoded())
        if not self._frame.done:
            raise RequestRefusedError(408, f"the body took longer than {self._deadline:g} s")
        await self._exchange.has_body()
        return b"".join(parts)

    def _decoded(self) -> Iterator[bytes]:
        while True:
            try:
                event = self._connection.next_event()
            except h11.RemoteProtocolError as error:
                raise RequestRefusedError(400, f"malformed body: {error}") from error
            if not isinstance(event, h11.Data):
                return
            yield bytes(event.data)

    def finish(self) -> bool:
        """Whether the body was received to its end, so that the next request begins where the buffer does."""
        if not self._frame.done:
            return False
        for _ in self._decoded():
            return False
        return self._connection.their_state not in (h11.IDLE, h11.SEND_BODY, h11.ERROR)


async def _one_by_one(pieces: Iterator[str | bytes]) -> AsyncGenerator[str | bytes, None]:
    for piece in pieces:
        yield piece


def _headers(answer: Answer, *, close: bool) -> list[tuple[str, str]]:
    headers = [("Content-Type", answer.content_type), *{**FIXED_HEADERS, **answer.headers}.items()]
    if answer.etag is not None:
        headers.append(("ETag", answer.etag))
    if close:
        headers.append(("Connection", "close"))
    return headers


def _plain(answer: Answer, *, close: bool) -> bytes:
    """The whole answer to a probe."""
    body = encode(answer.body)
    headers = [*_headers(answer, close=close), ("Content-Length", str(len(body)))]
    lines = b"".join(b"%s: %s\r\n" % (name.encode(), value.encode()) for name, value in headers)
    return b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (answer.status, _phrase(answer.status), lines, body)


def _phrase(status: int) -> bytes:
    return HTTPStatus(status).phrase.encode()


async def _no_body(most: int) -> bytes:
    del most
    return b""
