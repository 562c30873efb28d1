"""Replies: the broker's stream to the client, with the gateway's own frames between the broker's.

Nothing of the broker's is kept back or copied: only the four bytes of each frame's length are looked at, to know where one ends and the
next begins. There, and only there, a reply of the gateway may stand.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from gateway.messages import ProtocolError
from gateway.protocols.octets import u32

LONGEST: Final = 0x7FFF_FFFF  # the length is a signed int to the broker (NettyEncoder)
SHORTEST: Final = 4  # the header's own length word


class Replies:
    """Knows where the broker's frames end; holds the gateway's replies until one does."""

    __slots__ = ("left", "prefix", "prefix_bytes", "waiting", "waiting_bytes")

    def __init__(self) -> None:
        self.left: i64 = 0  # bytes of the broker's frame under way that are still to come
        self.prefix: i64 = 0  # the value so far of a length that came in pieces,
        self.prefix_bytes: i64 = 0  # and how many of its bytes have come
        self.waiting: list[bytes] = []
        self.waiting_bytes = 0

    def add(self, frames: bytes) -> None:
        """Whole frames of the gateway's own."""
        self.waiting.append(frames)
        self.waiting_bytes += len(frames)

    def at_boundary(self) -> bool:
        return self.left == 0 and self.prefix_bytes == 0

    def take(self) -> bytes:
        """What waits, if the broker's stream stands between two frames."""
        if not self.waiting or not self.at_boundary():
            return b""
        taken = self.waiting[0] if len(self.waiting) == 1 else b"".join(self.waiting)
        self.waiting = []
        self.waiting_bytes = 0
        return taken

    def relay(self, data: bytes, out: list[bytes]) -> None:
        """Append `data`, the broker's next bytes, to `out`, and what waits at the first boundary. Raises ProtocolError(whose="broker")."""
        size: i64 = len(data)
        if size == 0:
            return
        if self.waiting and self.at_boundary():
            out.append(self.take())
        sent: i64 = 0  # data before it is in `out`
        at: i64 = self.left  # where the frame under way ends
        if self.prefix_bytes > 0:
            while self.prefix_bytes < 4:
                if at == size:
                    out.append(data)
                    return
                octet: i64 = data[at]
                self.prefix = (self.prefix << 8) | octet
                self.prefix_bytes += 1
                at += 1
            at += self._checked(self.prefix)
            self.prefix_bytes = 0
        while at < size:
            if self.waiting and at > 0:
                self.left = 0
                out.append(data[sent:at])
                out.append(self.take())
                sent = at
            if size - at < 4:
                self._begin_prefix(data, at)
                at = size
                break
            at += 4 + self._checked(u32(data, at))
        self.left = at - size
        out.append(data[sent:] if sent > 0 else data)
        if self.waiting and self.at_boundary():
            out.append(self.take())

    def _begin_prefix(self, data: bytes, at: i64) -> None:
        self.prefix = 0
        self.prefix_bytes = 0
        while at < len(data):
            octet: i64 = data[at]
            self.prefix = (self.prefix << 8) | octet
            self.prefix_bytes += 1
            at += 1

    def _checked(self, length: i64) -> i64:
        if length < SHORTEST or length > LONGEST:
            raise ProtocolError(f"the broker announced a frame of {length} bytes", whose="broker", cause="broker_protocol_error")
        return length

    def __repr__(self) -> str:
        return f"<Replies {'between frames' if self.at_boundary() else 'within a frame'} waiting={len(self.waiting)}>"
