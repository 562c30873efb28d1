"""What one channel keeps from its client for a while, and what is asked of its parts. The theory is in `deliveries.py`."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from common.octets import u32
from gateway.pipeline.parts import REQUEST, Part
from gateway.protocols.amqp.frames import BASIC_GET_OK, short_string
from gateway.protocols.amqp.refusals import publish_end
from limiter.limits import NEVER

if TYPE_CHECKING:
    from gateway.protocols.amqp.deliveries.subscription import Consumer
    from limiter.keys import Key


class ParkedPart:
    """A part that is parked, and its consumer; None: it is no delivery, or its consumer is not known."""

    __slots__ = ("consumer", "part")

    def __init__(self, part: Part, consumer: Consumer | None) -> None:
        self.part = part
        self.consumer = consumer


class Parking:
    """What one channel keeps back. REQUEST parts are runs of deliveries, BODY parts continue the last one, PLAIN parts are methods."""

    __slots__ = ("consumer", "due", "method", "method_end", "parked_parts", "passing", "read", "swallows")

    def __init__(self) -> None:
        self.parked_parts: deque[ParkedPart] = deque()
        self.due = NEVER  # monotonic ns when to ask the judge for what has no verdict
        self.consumer: Consumer | None = None  # of the delivery whose header is to come
        self.method = b""  # its method frame
        self.method_end = 0  # where in which read it ended
        self.read = 0
        self.passing = False  # the content that is coming in overtakes what is parked, as it comes
        self.swallows = False  # nobody wants the content that is coming in: it is taken out of the stream, and not kept

    def stands_free(self) -> bool:
        """Whether the first parked part may leave."""
        return len(self.parked_parts) > 0 and (self.parked_parts[0].part.kind != REQUEST or self.parked_parts[0].part.paid)

    def unjudged(self, room: int) -> list[Part]:
        """The runs that need a verdict, in order: about `room` deliveries."""
        parts: list[Part] = []
        for parked_part in self.parked_parts:
            part = parked_part.part
            if part.kind == REQUEST and not part.paid:
                parts.append(part)
                room -= part.count
                if room <= 0:
                    break
        return parts

    def joinable(self, consumer: Consumer | None, data: bytes, pos: int) -> Part | None:
        """The run, parked last, which whole deliveries for `consumer` at `data[pos]` may join if their bodies are of its size."""
        if consumer is None or self.method or not self.parked_parts:
            return None
        last = self.parked_parts[-1]
        part = last.part
        return part if last.consumer is consumer and extends(part, consumer.key, part.size, data, pos) else None

    def __repr__(self) -> str:
        return f"<Parking {[parked_part.part for parked_part in self.parked_parts]}>"


def extends(last: Part, key: Key, size: int, data: bytes, start: int) -> bool:
    """Whether a delivery that begins at `data[start]` is one more of the run `last`, which has no verdict yet."""
    alike = last.kind == REQUEST and last.complete and last.key is key and last.size == size
    return alike and last.data is data and last.end == start and not last.again


def release_read_buffer(part: Part) -> None:
    """Let go of the read `part` came in where it is less than half of it; not for each delivery, it is a copy."""
    if (part.end - part.start) * 2 < len(part.data):
        part.copy_out()


def give_clients_tag(part: Part, consumer: Consumer) -> None:
    """`part`, a run of deliveries for `consumer`, leaves: under the tag by which the client knows it."""
    subscription = consumer.subscription
    if not consumer.tag or subscription is None:
        return
    data = part.data
    name = short_string(subscription.tag)
    pieces: list[bytes] = []
    at: int = part.start
    for left in range(part.count, 0, -1):
        stop: int = part.end if left == 1 else publish_end(data, at, part.end)  # a delivery is built like a publish
        before = data[at + 11] + 1
        size = int.from_bytes(data[at + 3 : at + 7], "big") + len(name) - before
        pieces.append(
            b"%b%b%b%b%b" % (data[at : at + 3], size.to_bytes(4, "big"), data[at + 7 : at + 11], name, data[at + 11 + before : stop])
        )
        at = stop
    part.data = b"".join(pieces)
    part.start = 0
    part.end = len(part.data)


def count_shadow_and_bypass(part: Part) -> None:
    """Count what the verdict says beside passing and refusing."""
    key = part.key
    assert key is not None
    if part.bypassed:
        key.tally.bypassed += part.count
    key.tally.shadow_refused += part.shadow_refused


def refuse(part: Part) -> None:
    """Count the deliveries of `part`, which have to wait."""
    key = part.key
    bucket = part.bucket
    assert key is not None
    assert bucket is not None, "a refusal names its limit"
    key.tally.refused_by = bucket
    key.tally.retry_after_ns = part.wait_ns
    if not part.again:
        part.again = True
        key.tally.delayed += part.count
        bucket.held += part.count


def delivery_tag(data: bytes, start: int) -> int:
    """The tag of the basic.deliver, or basic.get-ok, that begins at `data[start]`."""
    at = start + 11 if u32(data, start + 7) == BASIC_GET_OK else start + 12 + data[start + 11]
    return int.from_bytes(data[at : at + 8], "big")
