"""AMQP frames for models that play thousands of conversations: built from templates and read by hand, without pamqp.

`Side` is one channel in its present life, as a pretend client or a pretend broker sees it. Channel numbers up to 255.
"""

from __future__ import annotations

OPEN, CLOSE, CLOSE_OK = b"\x00\x14\x00\x0a", b"\x00\x14\x00\x28", b"\x00\x14\x00\x29"
PUBLISH, RETURN, DELIVER = b"\x00\x3c\x00\x28", b"\x00\x3c\x00\x32", b"\x00\x3c\x00\x3c"
ACK, NACK = b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78"
SELECT, TX_SELECT = b"\x00\x55\x00\x0a", b"\x00\x5a\x00\x0a"
ANSWERS = frozenset({b"\x00\x14\x00\x0b", b"\x00\x55\x00\x0b", b"\x00\x5a\x00\x0b"})  # open-ok, select-ok of both
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"

TAKEN, REJECTED, UNROUTABLE, FATAL = b"t", b"r", b"u", b"k"  # exchanges: what the broker does with a publish to them


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return b"%c\x00%c%b%b\xce" % (kind, channel, len(payload).to_bytes(4, "big"), payload)


def cut_frames(data: bytes) -> tuple[list[tuple[int, int, bytes]], bytes]:
    """All whole frames of `data` as (type, channel, payload), and the rest."""
    found = []
    at, end = 0, len(data)
    while end - at >= 8:
        stop = at + 8 + int.from_bytes(data[at + 3 : at + 7], "big")
        if stop > end:
            break
        assert data[stop - 1] == 0xCE
        found.append((data[at], data[at + 2], data[at + 7 : stop - 1]))
        at = stop
    return found, data[at:]


class Side:
    """One channel in its present life, as one side sees it."""

    def __init__(self, life: int) -> None:
        self.life = life
        self.state = "open"  # open, closing (said close, awaits close-ok), closed
        self.confirms = False
        self.tx = False
        self.count = 0  # publishes since confirm.select: the last delivery tag
        self.outstanding: dict[int, bytes] = {}  # tag: identity, in order
        self.said = 0  # client: the last number given; broker: the last number received
        self.arrived = 0  # broker: numbers received
        self.content: list[bytes] = []  # exchange and bits, then the body, of a message coming in
        self.missing = -1  # body bytes of it; -1: no message, -2: its header
        self.refused = 0  # client: publishes the judge refused on this life
        self.dropped = 0  # client: publishes swallowed without a word, where nobody was promised one
        self.nacked = 0  # client: publishes nacked that the broker never had

    def follow(self, kind: int, payload: bytes, starts: tuple[bytes, ...]) -> bool:
        """Follow the messages of the channel: True while `payload` belongs to one."""
        if kind == 1:
            assert self.missing == -1, "a method within a message"
            if payload[:4] not in starts:
                return False
            self.content = [b"r" if payload[:4] == RETURN else payload[7:8] + payload[-1:] if payload[:4] == PUBLISH else b"", b""]
            self.missing = -2
        elif kind == 2:
            assert self.missing == -2, "a header without its method"
            self.missing = int.from_bytes(payload[4:12], "big") or -1
        else:
            assert kind == 3
            assert self.missing >= len(payload), "more body than was announced"
            self.content[1] += payload
            self.missing -= len(payload)
            self.missing = self.missing or -1
        return True
