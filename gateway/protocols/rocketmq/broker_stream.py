"""The broker's stream to the client, with the gateway's own frames between the broker's.

Nothing of the broker's is kept back or altered: its bytes pass at once. On the way the head of each frame is looked at (`Outstanding` is
shown every answer), and where it ends: a reply of the gateway may stand between two frames only.

A head that comes in pieces is copied until it is whole, so at most MAX_HEAD_BYTES bytes are kept, and only while it is incomplete.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from common.octets import u32
from gateway.pipeline.empties import NO_ITEMS, added
from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.outstanding import Outstanding
from gateway.protocols.rocketmq.size_checks import PREFIX

MAX_FRAME_LENGTH: Final = 0x3FFF_FFFF  # 1 GiB; clients take 16 to 128 MiB (`docs/design/rocketmq.md` 1.1); a first letter (`HTTP`) is more
MIN_FRAME_LENGTH: Final = 4  # the header's own length word
MAX_HEAD_BYTES: Final = 1 << 18  # of a head that is looked at; properties are at most 32,767, six times that if each were escaped


class BrokerStream:
    """Knows where the broker's frames begin and end; holds the gateway's replies until one ends."""

    __slots__ = ("head", "head_size", "left", "outstanding", "replies", "reply_bytes")

    def __init__(self, outstanding: Outstanding) -> None:
        self.outstanding = outstanding
        self.left: i64 = 0  # bytes still to come of the frame under way, where its head has been looked at
        self.head = bytearray()  # the head of a frame, as far as it has come in pieces
        self.head_size: i64 = 0  # how long it is: 8 until its prefix is there, then with the header; 0: none has come in pieces
        self.replies: list[bytes] = NO_ITEMS
        self.reply_bytes = 0

    def add(self, frames: bytes) -> None:
        """Whole frames of the gateway's own."""
        self.replies = added(self.replies, frames)
        self.reply_bytes += len(frames)

    def at_boundary(self) -> bool:
        return self.left == 0 and self.head_size == 0

    def take(self) -> bytes:
        """What waits, if the broker's stream stands between two frames."""
        if self.reply_bytes == 0 or not self.at_boundary():
            return b""
        taken = self.replies[0] if len(self.replies) == 1 else b"".join(self.replies)
        self.replies = NO_ITEMS
        self.reply_bytes = 0
        return taken

    def relay(self, data: bytes, out: list[bytes]) -> None:
        """Append `data`, the broker's next bytes, to `out`, and what waits at the first boundary. Raises ProtocolError(whose="broker")."""
        size: i64 = len(data)
        if size == 0:
            return
        if self.reply_bytes and self.at_boundary():
            out.append(self.take())
        sent: i64 = 0  # data before it is in `out`
        at: i64 = 0
        while True:
            if self.head_size > 0:
                at = self._go_on_with_head(data, at, size)
            if self.left > 0:
                step: i64 = min(self.left, size - at)
                if self.outstanding.watched is not None:
                    self.outstanding.body(data, at, at + step, self.left == step)
                self.left -= step
                at += step
            if at == size:
                break
            if self.reply_bytes and at > 0:
                out.append(data[sent:at])
                out.append(self.take())
                sent = at
            if size - at >= PREFIX:
                length: i64 = self._check_length(u32(data, at))
                header: i64 = u32(data, at + 4) & 0xFFFFFF
                head_end: i64 = at + PREFIX + header
                if header + 4 > length:
                    raise make_broker_error(f"a header of {header} bytes in a frame of {length + 4}")
                if head_end <= size:
                    self.outstanding.look_at(data, at + 4, head_end, length - 4 - header)
                    at = head_end
                    self.left = length - 4 - header
                    continue
            self.head_size = PREFIX
            at = self._go_on_with_head(data, at, size)
        out.append(data[sent:] if sent > 0 else data)
        if self.reply_bytes and self.at_boundary():
            out.append(self.take())

    def _go_on_with_head(self, data: bytes, at: i64, size: i64) -> i64:
        """Copy what is there of a head that comes in pieces; look at it once it is whole. Returns the index of the first byte after it."""
        while True:
            there: i64 = len(self.head)
            step: i64 = min(self.head_size - there, size - at)
            if step > 0:
                self.head += data[at : at + step]
                there += step
                at += step
            if there >= 4 and self.head_size == PREFIX:
                self._check_length(u32(bytes(self.head), 0))
            if there < self.head_size:
                return at
            head = bytes(self.head)
            length: i64 = u32(head, 0)
            header: i64 = u32(head, 4) & 0xFFFFFF
            if header + 4 > length:
                raise make_broker_error(f"a header of {header} bytes in a frame of {length + 4}")
            if self.head_size == PREFIX and 0 < header <= MAX_HEAD_BYTES:
                self.head_size = PREFIX + header
                continue
            self.head = bytearray()
            size_of_head = self.head_size
            self.head_size = 0
            if size_of_head == PREFIX:
                self.left = length - 4  # no header, or one too long to be looked at: passes
            else:
                self.outstanding.look_at(head, 4, size_of_head, length - 4 - header)
                self.left = length - 4 - header
            return at

    def _check_length(self, length: i64) -> i64:
        if length < MIN_FRAME_LENGTH or length > MAX_FRAME_LENGTH:
            raise make_broker_error(f"a frame of {length} bytes{what_it_may_be(length)}")
        return length

    def __repr__(self) -> str:
        return f"<BrokerStream {'between frames' if self.at_boundary() else 'within a frame'} replies={len(self.replies)}>"


def what_it_may_be(length: i64) -> str:
    """What an absurd length may be instead: the first words of another protocol."""
    first = int(length).to_bytes(4, "big")
    return f": it begins with {first.decode()!r}, is `upstream` a RocketMQ broker?" if first.isalnum() else ""


def make_broker_error(what: str) -> ProtocolError:
    return ProtocolError(f"the broker announced {what}", whose="broker", cause="broker_protocol_error")
