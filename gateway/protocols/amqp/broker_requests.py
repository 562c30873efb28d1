"""What the gateway asks of the broker by itself, on a client's channel: to cancel a consumer there, to begin it anew, to take deliveries
back, to take them for acknowledged.

Such frames go at a boundary between two messages of that channel: a method within a message costs the connection (505). So they wait here
for the next take (`HeldParts.take_due`), and overtake what is held for the channel, because they have no order with it. They wait for the
answer to tx.commit, too (504). On a channel that either side has closed nothing is said any more.

The client must not see the answers to what it has not asked. `basic.consume` and `basic.cancel` can be said without an answer (nowait);
where the moment of a cancel counts, and of `basic.qos`, which has no such bit, the answers are counted by the caller and left out
(`Consumers.answer`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.pipeline.empties import NO_ENTRIES, put
from gateway.pipeline.parts import PLAIN, Part
from gateway.protocols.amqp.channel import AmqpChannel
from gateway.protocols.amqp.channel_states import CLIENT_OPEN, NO_CLOSE, PASSING
from gateway.protocols.amqp.frames import (
    BASIC_ACK,
    BASIC_CANCEL,
    BASIC_CONSUME,
    BASIC_NACK,
    BASIC_QOS,
    QUEUE_DECLARE,
    method_frame,
    short_string,
)

NO_ANSWER: Final = b"\x01"  # the only bit of basic.cancel
PASSIVE: Final = b"\x01"  # of queue.declare
REQUEUE: Final = b"\x02"  # of basic.nack
MULTIPLE: Final = b"\x01"  # of basic.ack


def qos(channel: int, prefetch: int) -> bytes:
    """For the consumers of `channel` that begin from now on: so many messages on their way to each; 0: any number."""
    return method_frame(channel, BASIC_QOS, bytes(4) + prefetch.to_bytes(2, "big") + b"\x00")


def consume(channel: int, queue: bytes, tag: bytes, bits: int, rest: bytes) -> bytes:
    """basic.consume; `rest` is its table of arguments."""
    return method_frame(channel, BASIC_CONSUME, b"\x00\x00%b%b%c%b" % (short_string(queue), short_string(tag), bits, rest))


def cancel(channel: int, tag: bytes, *, answered: bool) -> bytes:
    return method_frame(channel, BASIC_CANCEL, short_string(tag) + (b"\x00" if answered else NO_ANSWER))


def look_for(channel: int, queue: bytes) -> bytes:
    """queue.declare, passive: declare-ok where the queue is there and may be used, else the broker closes the channel, saying why."""
    return method_frame(channel, QUEUE_DECLARE, b"\x00\x00" + short_string(queue) + PASSIVE + bytes(4))


def give_back(channel: int, first: int, count: int) -> bytes:
    """The deliveries with `count` tags from `first` on go back to where they stood in their queue."""
    return b"".join([method_frame(channel, BASIC_NACK, tag.to_bytes(8, "big") + REQUEUE) for tag in range(first, first + count)])


def acknowledge(channel: int, first: int, count: int, *, all_before: bool) -> bytes:
    """The deliveries with `count` tags from `first` on are settled; `all_before`: and so may be all before them."""
    if all_before:
        return method_frame(channel, BASIC_ACK, (first + count - 1).to_bytes(8, "big") + MULTIPLE)
    return b"".join([method_frame(channel, BASIC_ACK, tag.to_bytes(8, "big") + b"\x00") for tag in range(first, first + count)])


class BrokerRequests:
    """Those of one connection that have not gone yet."""

    def __init__(self) -> None:
        self.channels: dict[int, AmqpChannel] = NO_ENTRIES  # those with frames that wait
        self.frames: dict[int, bytes] = NO_ENTRIES  # of each
        self.wake: Callable[[], None] | None = None  # `HeldParts.update_due`

    def send(self, channel: AmqpChannel, frames: bytes) -> None:
        """Say `frames`, whole ones, to the broker as soon as may be."""
        self.channels = put(self.channels, channel.number, channel)
        self.frames = put(self.frames, channel.number, self.frames.get(channel.number, b"") + frames)
        if self.wake is not None:
            self.wake()

    def forget(self, channel_id: int) -> None:
        """Channel `channel_id` is closed."""
        if self.channels.pop(channel_id, None) is not None:
            del self.frames[channel_id]

    def notice(self, channel: AmqpChannel) -> None:
        """The broker takes methods on `channel` again."""
        if channel.number in self.channels and self.wake is not None:
            self.wake()

    def any_ready(self) -> bool:
        """Whether `take` has something to give."""
        return len(self.channels) > 0 and any(not (channel.forwarding or channel.committing) for channel in self.channels.values())

    def take(self) -> list[Part]:
        """What goes to the broker now."""
        found: list[Part] = []
        for channel in list(self.channels.values()):
            if channel.forwarding or channel.committing:
                continue  # the rest of its message comes first, or the broker's tx.commit-ok (`take_of`)
            part = self.take_of(channel)
            if part is not None:
                found.append(part)
        return found

    def take_of(self, channel: AmqpChannel) -> Part | None:
        """The same of one channel, which stands between two messages."""
        if channel.number not in self.channels or channel.committing:
            return None
        data = self.frames[channel.number]
        self.forget(channel.number)
        if not takes_requests(channel):
            return None
        return Part(PLAIN, 0, data, 0, len(data))  # on channel 0, where it waits for no channel

    def __repr__(self) -> str:
        return f"<BrokerRequests {list(self.channels)}>"


def takes_requests(channel: AmqpChannel) -> bool:
    """Whether `channel` is open for both sides, as far as they have said."""
    return (
        channel.client_state == CLIENT_OPEN
        and channel.settled_state == PASSING
        and channel.gateway_close == NO_CLOSE
        and channel.unsettled_opens == 0
    )
