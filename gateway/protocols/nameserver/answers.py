"""Answers: a name server's stream to its client, the routes in it rewritten.

Everything passes at once but the answers to requests for routes: those are kept until they are whole (`max_frame` at most), because a
length stands before each frame and the rewritten route is longer or shorter than it was. An answer that says an error passes as it is.
"""

from __future__ import annotations

from typing import Final

import msgspec
from mypy_extensions import i64

from common.octets import u16, u32
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.routes import RouteError, Routes
from gateway.protocols.nameserver.pending_requests import PendingRequests
from gateway.protocols.nameserver.rewriting import rewrite
from gateway.protocols.rocketmq.headers import BINARY, JSON, RESPONSE, signed32
from gateway.protocols.rocketmq.outstanding import decode_head
from gateway.protocols.rocketmq.refusals import build_refusals

SYSTEM_ERROR: Final = 1  # to every client: this request has failed, with a remark to show
MAX_FRAME_LENGTH: Final = 0x7FFF_FFFF  # a Java int
MIN_FRAME_LENGTH: Final = 4  # the header's own length word
LENGTH: Final = 4  # bytes that say how long a frame is
PREFIX: Final = 8  # bytes before the header
MAX_HEADER_BYTES: Final = 1 << 20  # bytes; of an answer: a guess
FIXED: Final = 13  # bytes of a binary header up to and with its flag
INCOMPLETE: Final = -1


class Answers:
    """Knows where the name server's frames end; keeps those that hold routes until they are whole."""

    __slots__ = (
        "client", "kept", "kept_bytes", "left", "max_frame", "need", "opaque", "pending_requests", "route", "routes", "skip", "waiting",
        "waiting_bytes",
    )  # fmt: skip

    def __init__(self, pending_requests: PendingRequests, routes: Routes, client: str, max_frame: int) -> None:
        self.pending_requests = pending_requests
        self.routes = routes
        self.client = client
        self.max_frame = max_frame
        self.left: i64 = 0  # bytes still to come of a frame that passes as it comes
        self.skip: i64 = 0  # the same of one that is answered with an error instead
        self.kept: list[bytes] = []  # a frame from its first byte, as far as it has come
        self.kept_bytes = 0
        self.need: i64 = PREFIX  # how much of it must be there to get further
        self.route = False  # it is an answer that may hold a route,
        self.opaque = 0  # to this request
        self.waiting: list[bytes] = []  # frames of the gateway's own
        self.waiting_bytes = 0

    def add(self, frames: bytes) -> None:
        """Whole frames of the gateway's own."""
        self.waiting.append(frames)
        self.waiting_bytes += len(frames)

    def take(self) -> bytes:
        """What waits, if what the client has got so far ends with a frame."""
        if not self.waiting or self.left > 0:
            return b""
        taken = b"".join(self.waiting)
        self.waiting = []
        self.waiting_bytes = 0
        return taken

    def at_boundary(self) -> bool:
        """Whether all that has come is passed on, and ended with a frame."""
        return self.left == 0 and self.kept_bytes == 0

    def relay(self, data: bytes, out: list[bytes]) -> None:
        """Append to `out` what of `data`, the name server's next bytes, goes to the client. Raises ProtocolError(whose="broker")."""
        size: i64 = len(data)
        at: i64 = 0
        if self.skip > 0:
            at = min(self.skip, size)
            self.skip -= at
        if self.left > 0:
            at = min(self.left, size)
            self.left -= at
            out.append(data[:at] if at < size else data)
        if at == size:
            return
        if self.kept:
            self.kept.append(data)
            self.kept_bytes += size
            if self.kept_bytes < self.need:
                return
            data = b"".join(self.kept)
            size = len(data)
            at = 0
            self.kept = []
            self.kept_bytes = 0
        self._split(data, at, size, out)

    def _split(self, data: bytes, at: i64, size: i64, out: list[bytes]) -> None:
        """Frames from `data[at:]` on, the first of which begins there."""
        sent: i64 = at  # bytes from here to `at` are to be passed
        while True:
            header_end: i64 = self._header_end(data, at, size)
            if header_end == INCOMPLETE:
                break
            end: i64 = at + 4 + u32(data, at)
            if not self.route:
                self._look(data, at + PREFIX, header_end, data[at + 4])
            if not self.route or header_end == end:
                self.route = False
                if end > size:
                    self.left = end - size
                    at = size
                    break
                at = end
                continue
            _put(data, sent, at, out)
            sent = at
            if end - at > self.max_frame:
                out.append(self._error(f"the name server's route has {end - at} bytes, more than the listener's max_frame: raise it"))
                self.skip = max(end - size, 0)
            elif end > size:
                self.need = end - at
                break
            else:
                out.append(self._rewrite_routes(data, at, header_end, end))
            self.route = False
            at = sent = min(end, size)
        _put(data, sent, at, out)
        if at < size:
            self.kept = [data[at:]]
            self.kept_bytes = size - at

    def _header_end(self, data: bytes, at: i64, size: i64) -> i64:
        """Where the header of the frame at `at` ends; INCOMPLETE, with `need` set, where it is not all there. Raises ProtocolError."""
        self.need = LENGTH
        if size - at < LENGTH:
            return INCOMPLETE
        length: i64 = u32(data, at)
        if length < MIN_FRAME_LENGTH or length > MAX_FRAME_LENGTH:
            raise make_broker_error(f"a frame of {length} bytes")
        self.need = PREFIX
        if size - at < PREFIX:
            return INCOMPLETE
        word: i64 = u32(data, at + 4)
        header: i64 = word & 0xFFFFFF
        if word >> 24 > BINARY or header > length - 4 or header > MAX_HEADER_BYTES:
            raise make_broker_error(f"a header of {header} bytes, type {word >> 24}, in a frame of {length + 4}")
        self.need = PREFIX + header
        return at + self.need if size - at >= self.need else INCOMPLETE

    def _look(self, data: bytes, start: i64, end: i64, kind: i64) -> None:
        """Whether the frame with the header `data[start:end]` answers a request for a route, with success."""
        if kind == JSON:
            try:
                head = decode_head(data[start:end])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise make_broker_error(f"a header that cannot be read: {error}") from None
            code: int = head.code
            flag: int = head.flag
            self.opaque = head.opaque
        else:
            if end - start < FIXED:
                raise make_broker_error(f"a binary header of {end - start} bytes")
            code = u16(data, start)
            self.opaque = signed32(u32(data, start + 5))
            flag = signed32(u32(data, start + 9))
        self.route = flag & RESPONSE != 0 and self.pending_requests.answer(self.opaque) and code == 0

    def _rewrite_routes(self, data: bytes, start: i64, body: i64, end: i64) -> bytes:
        """The frame `data[start:end]`, whose body begins at `body`, with its routes leading here; an error where they cannot."""
        try:
            rewritten = rewrite(data[body:end], self.routes)
        except RouteError as error:
            return self._error(str(error))
        self.routes.note_answer("rewritten", "", self.client)
        length: i64 = body - start - 4 + len(rewritten)
        return b"%b%b%b" % (int(length).to_bytes(4, "big"), data[start + 4 : body], rewritten)

    def _error(self, why: str) -> bytes:
        """The answer to a request whose route cannot be passed on: an error, or the client would go past this gateway unseen."""
        self.routes.note_answer("failed", why, self.client)
        return build_refusals([self.opaque], SYSTEM_ERROR, f"sluice: {why}")

    def __repr__(self) -> str:
        return f"<Answers left={self.left} kept={self.kept_bytes}/{self.need} waiting={len(self.waiting)}>"


def _put(data: bytes, start: i64, end: i64, out: list[bytes]) -> None:
    """Append `data[start:end]` to `out`, if there is anything."""
    if end > start:
        out.append(data[start:end] if end - start < len(data) else data)


def make_broker_error(what: str) -> ProtocolError:
    return ProtocolError(f"the name server announced {what}", whose="broker", cause="broker_protocol_error")
