"""Requests: the bytes of a name server's client, cut into requests that pass and those that the gateway answers itself.

Requests pass byte for byte, the bodies of large ones as they come. Only those that brokers send (REGISTRATIONS) are held back. A broker
registered through this listener would be known by an address that its own replicas and every other client of the name server could not
use, and the addresses in its answers would lead it back here. Their bodies are thrown away as they come, whatever their size.

A request of an operation that a rule limits (`costly_requests.py`) is kept until it is whole, `max_frame` at most: it may have to wait.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from common.octets import u16, u32
from gateway.pipeline.parts import PLAIN, Part
from gateway.protocols.nameserver.held_requests import LimitedRequest
from gateway.protocols.nameserver.pending_requests import PendingRequests
from gateway.protocols.rocketmq.costly_requests import OPERATION_OF
from gateway.protocols.rocketmq.header_ambiguity import unreadable
from gateway.protocols.rocketmq.headers import (
    JSON,
    ONE_WAY,
    RESPONSE,
    read_binary,
    read_fields,
    read_json,
    refuse_without_opaque,
    signed32,
)
from gateway.protocols.rocketmq.operation_keys import find_operation_key
from gateway.protocols.rocketmq.origins import Origins
from gateway.protocols.rocketmq.size_checks import check_header, check_length, header_too_long

PREFIX: Final = 8  # bytes before the header
FIXED: Final = 21  # bytes of a binary header without remark and extFields
BRACE: Final = 123

# Sent to name servers by BrokerOuterAPI of 4.9.8 and 5.3.3 only. It also asks for routes, as clients do; without these requests no name
# server knows it for a broker.
REGISTRATIONS: Final[dict[int, str]] = {
    103: "REGISTER_BROKER", 104: "UNREGISTER_BROKER", 217: "REGISTER_TOPIC_IN_NAMESRV", 322: "QUERY_DATA_VERSION", 904: "BROKER_HEARTBEAT",
}  # fmt: skip


class Requests:
    """Where one client's stream of frames stands."""

    def __init__(self, pending_requests: PendingRequests, max_frame: int, origins: Origins) -> None:
        self.pending_requests = pending_requests
        self.origins = origins
        self.judge = origins.context.judge
        self.code = 0  # of the request whose header was read last, and what else it says
        self.opaque = 0
        self.flag = 0
        self.max_frame = max_frame
        self.need = 4  # bytes that must be there from the first undecoded one to get further
        self.at: i64 = 0  # index of the frame being decoded
        self.streaming: i64 = 0  # bytes still to come of a frame that passes as it comes
        self.swallowing: i64 = 0  # the same of one that is thrown away
        self.language = ""  # of the client, as its first request says
        self.version = -1
        self.refused: list[int] = []  # codes of registrations; the conversation counts them
        self.unanswered: list[tuple[int, int]] = []  # requests that the gateway has to answer itself: (opaque, code)

    def decode(self, data: bytes, start: int, room: int, parts: list[Part]) -> int:
        """Append the parts in `data[start:]`, at most `room` requests; the index of the first byte not decoded. Raises ProtocolError."""
        size: i64 = len(data)
        at: i64 = start
        left: i64 = room
        plain: Part | None = None
        while True:
            self.at = at
            if self.swallowing > 0:
                step: i64 = min(self.swallowing, size - at)
                self.swallowing -= step
                at += step
                plain = None
            elif self.streaming > 0:
                step = min(self.streaming, size - at)
                if step > 0:
                    self.streaming -= step
                    plain = self._pass(data, at, at + step, plain, parts)
                    at += step
            if self.swallowing > 0 or self.streaming > 0:
                self.need = 1
                return at
            self.at = at
            there: i64 = size - at
            if there < PREFIX:
                if there >= 4:
                    check_length(data, at, self.max_frame)
                self.need = PREFIX if there >= 4 else 4
                return at
            if left <= 0:
                self.need = 1
                return at
            length: i64 = check_length(data, at, self.max_frame)
            word: i64 = u32(data, at + 4)
            header: i64 = word & 0xFFFFFF
            looked_at: i64 = header if word >> 24 == JSON else min(header, FIXED)
            if not check_header(word >> 24, header, length):  # it is taken nevertheless, if it begins like one
                if there == PREFIX:
                    looked_at = 1
                elif word >> 24 == JSON and data[at + PREFIX] != BRACE:
                    raise header_too_long(header)
            if there < PREFIX + looked_at:
                self.need = PREFIX + looked_at
                return at
            self._read(data, at + PREFIX, at + PREFIX + looked_at, word >> 24)
            operation = "" if self.flag & RESPONSE else OPERATION_OF.get(self.code, "")
            if operation and self.judge.rules.may_limit(operation):
                if there < 4 + length:
                    self.need = 4 + length
                    return at
                limited = self._make_limited(data, at, at + PREFIX + header, at + 4 + length, word >> 24, operation)
                if limited is not None:
                    left -= 1
                    at += 4 + length
                    plain = None
                    parts.append(limited)
                    continue
            left -= 1
            if self._passes():
                self.streaming = 4 + length
            else:
                self.swallowing = 4 + length

    def _pass(self, data: bytes, start: i64, end: i64, plain: Part | None, parts: list[Part]) -> Part:
        if plain is None:
            plain = Part(PLAIN, 0, data, start, end)
            parts.append(plain)
        else:
            plain.end = end
        plain.complete = self.streaming == 0
        return plain

    def _make_limited(self, data: bytes, at: i64, header_end: i64, end: i64, kind: i64, operation: str) -> LimitedRequest | None:
        """The whole request `data[at:end]`, for the judge; None: nothing limits it."""
        header = read_json(data[at + PREFIX : header_end]) if kind == JSON else read_binary(data, at + PREFIX, header_end)
        key = find_operation_key(self.judge, self.origins.of(header.user), header, operation)
        if key is None:
            return None
        return LimitedRequest(data, at, end, key, self.code, self.opaque, self.flag & ONE_WAY != 0)

    def _read(self, data: bytes, start: i64, end: i64, kind: i64) -> None:
        """Read the header `data[start:end]`, of a binary one the fixed part."""
        if kind == JSON:
            fields = read_fields(data[start:end])
            code: int = fields.code
            flag: int = fields.flag
            opaque: int = fields.opaque
            refuse_without_opaque(opaque)
            for number in (code, flag, opaque):
                if not -0x8000_0000 <= number <= 0x7FFF_FFFF:
                    raise unreadable(f"{number} is no 32-bit number")
            if self.version < 0:
                self.language = str(fields.language or "")[:16]
                version = fields.version
                self.version = version if type(version) is int and 0 <= version < 1 << 31 else 0  # Java's int, as `rocketmq/frames.py`
        else:
            if end - start < FIXED:
                raise unreadable(f"{end - start} bytes, the fixed part alone has {FIXED}")
            code = u16(data, start)
            opaque = signed32(u32(data, start + 5))
            flag = signed32(u32(data, start + 9))
            if self.version < 0:
                self.language = str(data[start + 2])
                self.version = u16(data, start + 3)
        self.code, self.opaque, self.flag = code, opaque, flag

    def _passes(self) -> bool:
        """Whether the request that was read last goes to the name server."""
        if self.flag & RESPONSE:
            return True
        one_way = self.flag & ONE_WAY != 0
        if self.code in REGISTRATIONS:
            self.refused.append(self.code)
        elif one_way or self.pending_requests.ask(self.opaque, self.code):
            return True
        if not one_way:
            self.unanswered.append((self.opaque, self.code))
        return False

    def __repr__(self) -> str:
        return f"<Requests need={self.need} streaming={self.streaming} swallowing={self.swallowing} {self.pending_requests}>"
