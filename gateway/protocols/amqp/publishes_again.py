"""Messages out of what a client has sent, to be published again: with a header that says so.

The bytes are those of one channel, method frames of `basic.publish` with their content, in pieces that may end anywhere. A message that is
published again is framed anew, because the limits of the new connection may be others.
"""

from __future__ import annotations

import struct
from typing import Final

from gateway.protocols.amqp.frames import BODY_FRAME, HEADER, METHOD, OVERHEAD

AGAIN: Final = b"x-sluice-replayed"
ENTRY: Final = bytes([len(AGAIN)]) + AGAIN + b"t\x01"  # a boolean, as the specification 4.2.5.5 has it
HEAD: Final = struct.Struct(">BHI")
BASIC_PUBLISH: Final = b"\x00\x3c\x00\x28"
CONTENT_TYPE_FLAG: Final = 0x8000
CONTENT_ENCODING_FLAG: Final = 0x4000
HEADERS_FLAG: Final = 0x2000
FIXED_BYTES: Final = 14  # of a content header's payload: class 2, weight 2, size of the body 8, flags 2
END: Final = b"\xce"


class AgainMessage:
    """One message: payloads of its method and its content header as the client wrote them, and its body."""

    __slots__ = ("body", "end", "exchange", "file", "header", "mandatory", "method", "routing_key")

    def __init__(self, method: bytes, header: bytes, body: bytes, file: str, end: int) -> None:
        self.method = method
        self.header = header
        self.body = body
        self.file = file  # and in it:
        self.end = end  # where it ends
        at = 6
        size = method[at]
        self.exchange = method[at + 1 : at + 1 + size]
        at += 1 + size
        size = method[at]
        self.routing_key = method[at + 1 : at + 1 + size]
        self.mandatory = method[at + 1 + size] & 1 != 0

    def frames(self, channel: int, frame_max: int) -> bytes:
        """As it is published again, with the header. `frame_max` 0: no limit."""
        pieces = [frame(METHOD, channel, self.method), frame(HEADER, channel, marked(self.header))]
        most = (frame_max or 1 << 30) - OVERHEAD
        pieces.extend(frame(BODY_FRAME, channel, self.body[at : at + most]) for at in range(0, len(self.body), most))
        return b"".join(pieces)

    def __repr__(self) -> str:
        return f"<AgainMessage {self.exchange!r} {self.routing_key!r} {len(self.body)}>"


class Messages:
    """Collects messages out of pieces."""

    def __init__(self) -> None:
        self._rest = b""  # of a frame
        self._method = b""
        self._header = b""
        self._body: list[bytes] = []
        self._left = 0  # bytes of the body that are to come

    def begin(self) -> None:
        """A new publish begins: what was not complete before it was never sent as a whole."""
        self._rest = self._method = self._header = b""
        self._body = []
        self._left = 0

    def add(self, piece: bytes, file: str, at: int) -> list[AgainMessage]:
        """The messages that are complete with `piece`, which begins at `at` of `file`."""
        found: list[AgainMessage] = []
        data = self._rest + piece
        start = at - len(self._rest)  # of `data`
        place = 0
        while len(data) - place >= HEAD.size:
            kind, _, size = HEAD.unpack_from(data, place)
            end = place + HEAD.size + size + 1
            if end > len(data):
                break
            payload = data[place + HEAD.size : end - 1]
            place = end
            if kind == METHOD and payload[:4] == BASIC_PUBLISH:
                self._method = payload
                self._header = b""
            elif kind == HEADER and self._method:
                self._header = payload
                self._body = []
                self._left = int.from_bytes(payload[4:12], "big")
                if self._left == 0:
                    found.append(self._end(file, start + place))
            elif kind == BODY_FRAME and self._header:
                self._body.append(payload)
                self._left -= len(payload)
                if self._left <= 0:
                    found.append(self._end(file, start + place))
        self._rest = data[place:]
        return found

    def _end(self, file: str, end: int) -> AgainMessage:
        message = AgainMessage(self._method, self._header, b"".join(self._body), file, end)
        self._method = self._header = b""
        self._body = []
        return message


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return HEAD.pack(kind, channel, len(payload)) + payload + END


def marked(header: bytes) -> bytes:
    """The payload of a content header with the entry in its table `headers`. One that has it is left as it is."""
    flags = int.from_bytes(header[12:14], "big")
    place = FIXED_BYTES
    for flag in (CONTENT_TYPE_FLAG, CONTENT_ENCODING_FLAG):
        if flags & flag:
            place += 1 + header[place]
    if not flags & HEADERS_FLAG:
        table = len(ENTRY).to_bytes(4, "big") + ENTRY
        return header[:12] + (flags | HEADERS_FLAG).to_bytes(2, "big") + header[FIXED_BYTES:place] + table + header[place:]
    size = int.from_bytes(header[place : place + 4], "big")
    entries = header[place + 4 : place + 4 + size]
    if bytes([len(AGAIN)]) + AGAIN in entries:
        return header
    table = (size + len(ENTRY)).to_bytes(4, "big") + entries + ENTRY
    return header[:place] + table + header[place + 4 + size :]
