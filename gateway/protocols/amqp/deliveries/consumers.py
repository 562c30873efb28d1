"""Which queue a delivery comes from: found by consumer tags, and by the order of answers.

`basic.deliver` names the consumer tag, the exchange and the routing key of the publish, but not the queue it comes from, and
`basic.get-ok` names none of them. So the client's requests are overheard (as decoded), and the broker's answers are laid beside them (as
relayed):

* basic.consume: the tag holds from consume-ok on, which also brings the tag where the broker makes it. Several may be pending, and their
  answers come in order. Without an answer (nowait) it holds at once.
* basic.get: get-ok and get-empty come in order.
* An empty queue name is the one declared last on that channel; where the broker makes that name, it comes with declare-ok.
* basic.cancel, overheard when it goes on to the broker: until cancel-ok, deliveries still come. Without an answer (nowait) the tag is kept
  for a while (`MAX_CANCELLED_TAGS`).

The answers of each kind come in their own order only: RabbitMQ sends a consume-ok by way of the queue, behind a get-ok asked for later.
Closing a channel forgets all of it; a close-ok forgets what was asked before the close, because a client may already have asked for more.

Names are bytes. At most MAX_REMEMBERED things are remembered per connection; a consumer beyond that is not known, and what is not known
passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.protocols.amqp.deliveries.pending_requests import ChannelConsumers, Consumer, Declared, PendingRequest
from gateway.protocols.amqp.frames import (
    BASIC_CANCEL,
    BASIC_CANCEL_OK,
    BASIC_CONSUME,
    BASIC_CONSUME_OK,
    BASIC_DELIVER,
    BASIC_GET,
    BASIC_GET_EMPTY,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    QUEUE_DECLARE,
    QUEUE_DECLARE_OK,
    read_short_string,
)
from limiter.topics import amqp_topic

if TYPE_CHECKING:
    from limiter.judge import Judge
    from limiter.keys import Key, Origin

MAX_REMEMBERED: Final = 16_384  # consumers and pending requests of one connection, about 300 bytes each: a guess, more than any client has
MAX_CANCELLED_TAGS: Final = 16  # of one channel, cancelled without an answer; deliveries on their way are still limited: a guess

ASKS: Final = frozenset({QUEUE_DECLARE, BASIC_CONSUME, BASIC_GET, CHANNEL_CLOSE})  # of the client, as decoded
ANSWERS: Final = frozenset(
    {QUEUE_DECLARE_OK, BASIC_CONSUME_OK, BASIC_CANCEL, BASIC_CANCEL_OK, BASIC_GET_EMPTY, CHANNEL_CLOSE, CHANNEL_CLOSE_OK}
)  # of the broker

NO_ACK: Final = 2  # basic.consume's bits; in basic.get it is the first
NO_WAIT: Final = 8
CANCEL_NO_WAIT: Final = 1
DECLARE_NO_WAIT: Final = 16


class Consumers:
    """The consumers of one connection, by channel."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.origin: Origin | None = None  # known from connection.open on
        self.channels: dict[int, ChannelConsumers] = {}
        self.kept = 0  # entries remembered, of all channels
        self.max_kept = MAX_REMEMBERED

    # ---- what the client asks for ----------------------------------------------------------------------------------

    def ask(self, method: int, channel_id: int, arguments: bytes) -> None:
        """The client says one of ASKS, or basic.cancel, on channel `channel_id`. Arguments that do not parse are the broker's to judge."""
        channel = self.channels.get(channel_id)
        if method == CHANNEL_CLOSE:
            if channel is not None:
                self._mark_close(channel, channel_id)
            return
        if self.kept >= self.max_kept and method != BASIC_CANCEL:
            if channel is not None:
                self._ask_beyond(channel, method)
            return
        if channel is None:
            if method == BASIC_CANCEL:
                return
            channel = self.channels[channel_id] = ChannelConsumers()
        before = channel.size()
        if method == BASIC_CONSUME:
            self._ask_consume(channel, arguments)
        elif method == BASIC_GET:
            queue, at = read_short_string(arguments, 2)
            channel.gets.put(PendingRequest(channel.queue(queue), b"", no_ack=(octet(arguments, at) & 1) != 0))
        elif method == QUEUE_DECLARE:
            queue, at = read_short_string(arguments, 2)
            declared = Declared(queue or None)
            channel.declared = declared
            if not octet(arguments, at) & DECLARE_NO_WAIT:
                channel.declares.append(declared)
        else:
            tag, at = read_short_string(arguments, 0)
            consumer = channel.tags.get(tag)
            if consumer is not None and octet(arguments, at) & CANCEL_NO_WAIT:
                self._keep_cancelled(channel, tag)
            elif consumer is not None:
                consumer.cancel()
        self.kept += channel.size() - before

    def _ask_consume(self, channel: ChannelConsumers, arguments: bytes) -> None:
        queue, at = read_short_string(arguments, 2)
        tag, at = read_short_string(arguments, at)
        bits = octet(arguments, at)
        request = PendingRequest(channel.queue(queue), tag, no_ack=(bits & NO_ACK) != 0)
        if bits & NO_WAIT:
            self._begin(channel, tag, request)
        else:
            channel.consumes.put(request)

    def _ask_beyond(self, channel: ChannelConsumers, method: int) -> None:
        """There is no room to remember what is asked, only that it is."""
        if method == BASIC_CONSUME:
            channel.consumes.beyond += 1
        elif method == BASIC_GET:
            channel.gets.beyond += 1
        else:
            channel.declared = None

    def _mark_close(self, channel: ChannelConsumers, channel_id: int) -> None:
        before = channel.size()
        if self.kept >= self.max_kept:
            del self.channels[channel_id]
            self.kept -= before
            return
        channel.mark_close()
        self.kept += channel.size() - before

    def _keep_cancelled(self, channel: ChannelConsumers, tag: bytes) -> None:
        channel.cancelled_tags.append(tag)
        if len(channel.cancelled_tags) > MAX_CANCELLED_TAGS:
            channel.tags.pop(channel.cancelled_tags.popleft(), None)

    # ---- what the broker answers -----------------------------------------------------------------------------------

    def answer(self, method: int, channel_id: int, arguments: bytes) -> None:
        """The broker says one of ANSWERS on channel `channel_id`."""
        channel = self.channels.get(channel_id)
        if channel is None:
            return
        before = channel.size()
        if method == CHANNEL_CLOSE:
            del self.channels[channel_id]
            self.kept -= before
            return
        if method == CHANNEL_CLOSE_OK:
            channel.forget_closed()
            if channel.size() == 0 and channel.declared is None:
                del self.channels[channel_id]
        elif method == BASIC_CONSUME_OK:
            tag, _ = read_short_string(arguments, 0)
            request = channel.consumes.answer()
            if request is not None and request.tag in {b"", tag}:
                self._begin(channel, tag, request)
        elif method == QUEUE_DECLARE_OK:
            declared = channel.declares.popleft() if channel.declares else None
            if declared is not None:
                declared.name, _ = read_short_string(arguments, 0)
        elif method == BASIC_GET_EMPTY:
            channel.gets.answer()
        else:  # cancel-ok, or the broker's own cancel, because the queue is gone
            tag, _ = read_short_string(arguments, 0)
            channel.tags.pop(tag, None)
        self.kept += channel.size() - before

    def of_tag(self, channel_id: int, tag: bytes) -> Consumer | None:
        """The consumer a basic.deliver with that tag is for; None: not known."""
        channel = self.channels.get(channel_id)
        return None if channel is None else channel.tags.get(tag)

    def delivered(self, method: int, channel_id: int, arguments: bytes) -> Consumer | None:
        """The consumer of the delivery that begins with `method` (BASIC_DELIVER or BASIC_GET_OK); None: not known."""
        channel = self.channels.get(channel_id)
        if channel is None:
            return None
        if method == BASIC_DELIVER:
            tag, _ = read_short_string(arguments, 0)
            return channel.tags.get(tag)
        before = len(channel.gets.kept)
        request = channel.gets.answer()
        self.kept += len(channel.gets.kept) - before
        return None if request is None else self._consumer(request)

    def _begin(self, channel: ChannelConsumers, tag: bytes, request: PendingRequest) -> None:
        consumer = self._consumer(request)
        if consumer is None:
            channel.tags.pop(tag, None)
        else:
            channel.tags[tag] = consumer
        if tag in channel.cancelled_tags:
            channel.cancelled_tags.remove(tag)

    def _consumer(self, request: PendingRequest) -> Consumer | None:
        queue = None if request.queue is None else request.queue.name
        origin = self.origin
        if queue is None or origin is None:
            return None
        return Consumer(queue, self._key(origin, queue), no_ack=request.no_ack)

    def _key(self, origin: Origin, queue: bytes) -> Key:
        raw = b"\xff" + queue  # no publish has such: its exchange would be 255 bytes long, and this is 256 at most
        key = origin.keys.get(raw)
        if key is None:
            assert origin.vhost is not None
            key = self.judge.key(origin, raw, amqp_topic(origin.vhost, b"", queue), None, "consume")
        return key

    def move(self, origin: Origin) -> None:
        """The connection has another origin now: its keys are that one's."""
        self.origin = origin
        for channel in self.channels.values():
            for consumer in channel.tags.values():
                consumer.key = self._key(origin, consumer.queue)

    def any_limited(self, channel_id: int) -> bool:
        """Whether a rule limits a consumer of channel `channel_id`."""
        channel = self.channels.get(channel_id)
        return channel is not None and any(self.judge.limited(consumer.key) for consumer in channel.tags.values())

    def count(self) -> int:
        """How many consumers are known."""
        return sum(len(channel.tags) for channel in self.channels.values())

    def __repr__(self) -> str:
        return f"<Consumers channels={len(self.channels)} kept={self.kept}>"


def takes_without_ack(method: int, arguments: bytes) -> bool:
    """Whether a basic.consume or basic.get asks for messages that need no acknowledgement."""
    _, at = read_short_string(arguments, 2)
    if method == BASIC_GET:
        return (octet(arguments, at) & 1) != 0
    _, at = read_short_string(arguments, at)
    return (octet(arguments, at) & NO_ACK) != 0


def octet(data: bytes, at: int) -> int:
    return data[at] if at < len(data) else 0
