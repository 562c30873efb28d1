"""One connection of the admin server: request after request, answer after answer.

Every request gets an h11 connection of its own, fed with exactly the bytes that belong to it; bytes received beyond stay in our
buffer. So pipelined requests are checked as strictly as the first, and are answered in order, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import h11
import trio
import trio.abc

from admin.http import CONTENT_SECURITY, MAX_HEAD, BodyFrame, RefusedError, check_head, parse_head
from admin.routing import Answer, encode

if TYPE_CHECKING:
    from admin.server import Respond

RECEIVE: Final = 64 * 1024  # bytes per read, and per write
PIECE: Final = 32 * 1024  # bytes a stream is gathered to before it is written
LINGER: Final = 1024 * 1024  # bytes read and thrown away after an early answer, so that a reset does not overtake it
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


class SlowPeerError(Exception):
    """The client did not take written bytes in time."""


class Exchange:
    """A connection, and the bytes received on it but not yet used (at most one head and one read)."""

    def __init__(self, stream: trio.abc.Stream, address: str, respond: Respond, deadlines: Deadlines) -> None:
        self._stream = stream
        self._respond = respond
        self._deadlines = deadlines
        self._buffer = bytearray()
        self._idle: trio.CancelScope | None = None  # while waiting for a request's first byte
        self.address = address
        self.requests = 0

    def give_way(self) -> bool:
        """Make the connection end if it is idle; whether it was."""
        if self._idle is None:
            return False
        self._idle.cancel()
        self._idle = None
        return True

    async def turn(self, keep: Callable[[], bool]) -> bool:
        """Serve the next request; whether another may follow. `keep()` says whether the server wants one."""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * MAX_HEAD)
        try:
            raw = await self._receive_head()
            if raw is None:
                return False
            head = parse_head(raw, connection)
        except RefusedError as refused:
            self._buffer.clear()
            await self._send(connection, await self._respond(refused, _no_body, self.address), "GET", close=True)
            await self._linger()
            return False
        self.requests += 1
        body = Body(self, connection, BodyFrame(head.length), self._deadlines.body)
        answer = await self._respond(head, body.receive, self.address)
        close = not (body.finish() and keep())
        await self._send(connection, answer, head.method, close=close)
        if not close and connection.our_state is h11.DONE:
            return True
        await self._linger()
        return False

    async def receive(self) -> bool:
        """Read once into the buffer; False at the client's end of stream."""
        data = await self._stream.receive_some(RECEIVE)
        self._buffer += data
        return bool(data)

    @property
    def buffer(self) -> bytearray:
        return self._buffer

    async def _receive_head(self) -> bytes | None:
        """The next request's head; None when the client has finished, or the connection was idle too long or gave way."""
        if not self._buffer:
            wait = self._deadlines.idle if self.requests else self._deadlines.head
            with trio.move_on_after(wait) as self._idle:
                if not await self.receive():
                    return None
            expired, self._idle = not self._buffer, None
            if expired:
                return None
        with trio.move_on_after(self._deadlines.head):
            while not (size := check_head(self._buffer)):
                if not await self.receive():
                    return None
            raw = bytes(self._buffer[:size])
            del self._buffer[:size]
            return raw
        raise RefusedError(408, f"the request's head took longer than {self._deadlines.head:g} s")

    async def write(self, data: bytes) -> None:
        """Raises SlowPeerError when the client does not take a piece of `data` in time."""
        for at in range(0, len(data), RECEIVE):
            with trio.move_on_after(self._deadlines.write) as scope:
                await self._stream.send_all(data[at : at + RECEIVE])
            if scope.cancelled_caught:
                raise SlowPeerError

    async def _send(self, connection: h11.Connection, answer: Answer, method: str, *, close: bool) -> None:
        headers = [("Content-Type", answer.content_type), *{**FIXED_HEADERS, **answer.headers}.items()]
        if answer.etag is not None:
            headers.append(("ETag", answer.etag))
        if close:
            headers.append(("Connection", "close"))
        if isinstance(answer.body, Iterator):
            await self._stream_out(connection, answer, headers, method)
            return
        body = answer.body if isinstance(answer.body, bytes) else encode(answer.body)
        headers.append(("Content-Length", str(len(body))))
        out = connection.send(h11.Response(status_code=answer.status, headers=headers, reason=_phrase(answer.status))) or b""
        if body and method != "HEAD":
            out += connection.send(h11.Data(data=body)) or b""
        await self.write(out + (connection.send(h11.EndOfMessage()) or b""))

    async def _stream_out(self, connection: h11.Connection, answer: Answer, headers: list[tuple[str, str]], method: str) -> None:
        """Write an iterator of text, giving the loop a turn after each of its pieces. Its failure cuts the answer short, visibly."""
        assert isinstance(answer.body, Iterator)
        out = connection.send(h11.Response(status_code=answer.status, headers=headers, reason=_phrase(answer.status))) or b""
        gathered = bytearray()
        for piece in answer.body if method != "HEAD" else ():
            gathered += piece.encode()
            await trio.lowlevel.checkpoint()
            if len(gathered) >= PIECE:
                await self.write(out + (connection.send(h11.Data(data=bytes(gathered))) or b""))
                out = b""
                gathered.clear()
        if gathered:
            out += connection.send(h11.Data(data=bytes(gathered))) or b""
        await self.write(out + (connection.send(h11.EndOfMessage()) or b""))

    async def _linger(self) -> None:
        """End our direction, then read and discard the client's bytes for a moment."""
        if not isinstance(self._stream, trio.abc.HalfCloseableStream):
            return
        with trio.move_on_after(self._deadlines.linger):
            await self._stream.send_eof()
            left = LINGER
            while left > 0 and (data := await self._stream.receive_some(RECEIVE)):
                left -= len(data)

    def __repr__(self) -> str:
        return f"<Exchange {'idle' if self._idle else 'busy'} with {self.address}, {self.requests} requests>"


class Body:
    """A request's body, received when it is asked for."""

    def __init__(self, exchange: Exchange, connection: h11.Connection, frame: BodyFrame, deadline: float) -> None:
        self._exchange = exchange
        self._connection = connection
        self._frame = frame
        self._deadline = deadline

    async def receive(self, most: int) -> bytes:
        """The whole body; raises RefusedError 413 where it is longer than `most` bytes, 408 where it takes too long."""
        if self._frame.announced > most:
            raise RefusedError(413, f"the body is longer than {most} bytes")
        if self._frame.done:
            return b""
        if self._connection.they_are_waiting_for_100_continue:
            await self._exchange.write(self._connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        parts: list[bytes] = []
        with trio.move_on_after(self._deadline):
            while not self._frame.done:
                if not self._exchange.buffer and not await self._exchange.receive():
                    raise RefusedError(400, "the connection ended within the body")
                self._connection.receive_data(self._frame.take(self._exchange.buffer))
                if self._frame.received > most:
                    raise RefusedError(413, f"the body is longer than {most} bytes")
                parts.extend(self._decoded())
            return b"".join(parts)
        raise RefusedError(408, f"the body took longer than {self._deadline:g} s")

    def _decoded(self) -> Iterator[bytes]:
        while True:
            try:
                event = self._connection.next_event()
            except h11.RemoteProtocolError as error:
                raise RefusedError(400, f"malformed body: {error}") from error
            if not isinstance(event, h11.Data):
                return
            yield bytes(event.data)

    def finish(self) -> bool:
        """Whether the body was received to its end, so that the next request begins where the buffer does."""
        if not self._frame.done:
            return False
        for _ in self._decoded():
            return False
        return self._connection.their_state in (h11.DONE, h11.MUST_CLOSE)


def _phrase(status: int) -> bytes:
    return HTTPStatus(status).phrase.encode()


async def _no_body(most: int) -> bytes:
    del most
    return b""
