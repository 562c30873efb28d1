"""Which queue a delivery comes from: found by consumer tags, and by the order of answers.

`basic.deliver` names the consumer tag, the exchange and the routing key of the publish, but not the queue it comes from, and
`basic.get-ok` names none of them. So the client's requests are overheard (as decoded), and the broker's answers are laid beside them (as
relayed):

* basic.consume: the tag holds from consume-ok on, which also brings the tag where the broker makes it. Several may be pending; an answer is
  to the one of its tag, else to the first that names none. Without an answer (nowait) it holds at once, and the gateway makes the tag
  where the client names none.
* basic.get: get-ok and get-empty come in order.
* An empty queue name is the one declared last on that channel; where the broker makes that name, it comes with declare-ok.
* basic.cancel, overheard when it goes on to the broker: until cancel-ok, deliveries still come. Without an answer (nowait) the tag is kept
  for a while (`MAX_CANCELLED_TAGS`).

The answers of each kind come in their own order only: RabbitMQ sends a consume-ok by way of the queue, behind a get-ok asked for later.
Closing a channel forgets all of it; a close-ok forgets what was asked before the close, because a client may already have asked for more.

What the gateway itself has asked of the broker (`windows.py`) is answered here, too, and not for the client: it is told nothing, or
something else.

Names are bytes. At most MAX_REMEMBERED things are remembered per connection; a consumer beyond that is not known, and what is not known
passes.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from os import urandom
from typing import TYPE_CHECKING, Final

from gateway.pipeline.empties import NO_ENTRIES, put
from gateway.protocols.amqp.broker_requests import cancel, consume
from gateway.protocols.amqp.deliveries.pending_requests import ChannelConsumers, PendingRequest
from gateway.protocols.amqp.deliveries.subscription import (
    ASKED,
    AWAY,
    HERE,
    NO_ACK,
    NO_WAIT,
    QUEUE,
    STREAM,
    Consumer,
    Declared,
    Subscription,
)
from gateway.protocols.amqp.frames import (
    BASIC_CANCEL,
    BASIC_CANCEL_OK,
    BASIC_CONSUME,
    BASIC_CONSUME_OK,
    BASIC_DELIVER,
    BASIC_GET,
    BASIC_GET_EMPTY,
    BASIC_QOS,
    BASIC_QOS_OK,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    NOT_ALLOWED,
    QUEUE_DECLARE,
    QUEUE_DECLARE_OK,
    client_error,
    method_frame,
    read_short_string,
    short_string,
)
from limiter.topics import amqp_topic

if TYPE_CHECKING:
    from gateway.protocols.amqp.deliveries.mover import SubscriptionMover
    from limiter.judge import Judge
    from limiter.keys import Key, Origin

MAX_REMEMBERED: Final = 16_384  # consumers and pending requests of one connection, below 1 kB each: a guess, more than any client has
MAX_CANCELLED_TAGS: Final = 16  # of one channel, cancelled without an answer; deliveries on their way are still limited: a guess

ASKS: Final = frozenset({QUEUE_DECLARE, BASIC_QOS, BASIC_CONSUME, BASIC_GET, CHANNEL_CLOSE})  # of the client, as decoded
ANSWERS: Final = frozenset(
    {QUEUE_DECLARE_OK, BASIC_QOS_OK, BASIC_CONSUME_OK, BASIC_CANCEL, BASIC_CANCEL_OK, BASIC_GET_EMPTY, CHANNEL_CLOSE, CHANNEL_CLOSE_OK}
)  # of the broker

CANCEL_NO_WAIT: Final = 1
DECLARE_PASSIVE: Final = 1
DECLARE_AUTO_DELETE: Final = 8
DECLARE_NO_WAIT: Final = 16
EXPIRES: Final = b"\x09x-expires"  # of queue.declare's arguments, as it stands there
STREAM_TYPE: Final = b"\x0cx-queue-typeS\x00\x00\x00\x06stream"  # the same
STREAM_OFFSET: Final = b"\x0fx-stream-offset"  # of basic.consume's arguments
GLOBAL: Final = 1  # the bit of basic.qos
MADE_TAG_BYTES: Final = 16  # of chance in a tag that the gateway makes, as many as RabbitMQ has in its own


class Consumers:
    """The consumers of one connection, by channel."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.origin: Origin | None = None  # known from connection.open on
        self.channels: dict[int, ChannelConsumers] = NO_ENTRIES
        self.windows: SubscriptionMover | None = None
        self.follows = False  # something was consumed
        self.kept = 0  # entries remembered, of all channels
        self.max_kept = MAX_REMEMBERED
        self.staying: dict[bytes, Declared] = NO_ENTRIES  # queues declared here whose consumers must stay at the broker, by name

    # ---- what the client asks for ----------------------------------------------------------------------------------

    def ask(self, method: int, channel_id: int, arguments: bytes) -> bytes:
        """The client says one of ASKS, or basic.cancel, on channel `channel_id`.

        Returns what goes to the broker in its place; b"": it goes as it is. Arguments that do not parse are the broker's to judge. Raises
        ProtocolError for a tag that is in use.
        """
        channel = self.channels.get(channel_id)
        if method == CHANNEL_CLOSE:
            if channel is not None:
                self._mark_close(channel, channel_id)
            return b""
        if self.kept >= self.max_kept and method not in (BASIC_CANCEL, BASIC_QOS):
            if channel is not None:
                self._ask_beyond(channel, method)
            return b""
        if channel is None:
            if method == BASIC_CANCEL:
                return b""
            channel = ChannelConsumers()
            self.channels = put(self.channels, channel_id, channel)
        before = channel.size()
        instead = b""
        if method == BASIC_CONSUME:
            instead = self._ask_consume(channel, channel_id, arguments)
        elif method == BASIC_QOS:
            if len(arguments) >= 7 and not arguments[6] & GLOBAL:
                channel.prefetch = int.from_bytes(arguments[4:6], "big")
        elif method == BASIC_GET:
            queue, at = read_short_string(arguments, 2)
            channel.gets.put(PendingRequest(channel.queue(queue), b"", no_ack=(octet(arguments, at) & 1) != 0))
        elif method == QUEUE_DECLARE:
            self._ask_declare(channel, arguments)
        else:
            instead = self._ask_cancel(channel, arguments)
        self.kept += channel.size() - before
        return instead

    def _ask_declare(self, channel: ChannelConsumers, arguments: bytes) -> None:
        queue, at = read_short_string(arguments, 2)
        bits = octet(arguments, at)
        declared = Declared(queue or None)
        if not bits & DECLARE_PASSIVE:
            declared.stream = STREAM_TYPE in arguments
            declared.stays_while_consumed = bits & DECLARE_AUTO_DELETE != 0 or EXPIRES in arguments
            self._keep_declared(declared)
        channel.declared = declared
        if not bits & DECLARE_NO_WAIT:
            channel.declares.append(declared)

    def _keep_declared(self, declared: Declared) -> None:
        """A queue has its name."""
        if declared.name and (declared.stream or declared.stays_while_consumed) and len(self.staying) < self.max_kept:
            self.staying = put(self.staying, declared.name, declared)

    def _ask_cancel(self, channel: ChannelConsumers, arguments: bytes) -> bytes:
        tag, at = read_short_string(arguments, 0)
        subscription = channel.drop(tag)
        if subscription is None:
            return b""
        if self.windows is not None:
            self.windows.end(subscription)
        consumer = subscription.consumer
        if consumer is None or subscription.state != HERE:
            return b""
        bits = octet(arguments, at)
        if bits & CANCEL_NO_WAIT:
            self._keep_cancelled(channel, consumer.tag or tag)
        else:
            consumer.cancel()
        return cancel(subscription.channel, consumer.tag, answered=not bits & CANCEL_NO_WAIT) if consumer.tag else b""

    def _ask_consume(self, channel: ChannelConsumers, channel_id: int, arguments: bytes) -> bytes:
        queue, at = read_short_string(arguments, 2)
        tag, at = read_short_string(arguments, at)
        bits = octet(arguments, at)
        self.follows = True
        before = channel.subscriptions.get(tag)
        if before is not None and (before.state != HERE or (before.consumer is not None and before.consumer.tag)):
            raise client_error(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag.decode('utf-8', 'replace')}'")
        declared = self.staying.get(queue) or channel.queue(queue)
        if STREAM_OFFSET in arguments:
            declared.stream = True
        subscription = Subscription(channel_id, tag, declared, bits, arguments[at + 1 :] or bytes(4), channel.prefetch)
        if not tag and bits & NO_WAIT:
            tag = subscription.tag = make_tag()  # else nobody would know it but the broker
        instead = b""
        if self.windows is not None and declared.name is not None:
            instead = self.windows.begin(subscription)
        if subscription.state == AWAY:
            subscription.tag = tag or make_tag()
            channel.keep(subscription)
            sought = Declared(declared.name)
            sought.sought_for = subscription
            channel.declares.append(sought)
            return instead
        if tag and not instead and not octet(arguments, 3 + len(queue)):  # the client has named none
            instead = consume(channel_id, queue, subscription.tag, bits, subscription.rest)
        request = PendingRequest(declared, tag, no_ack=subscription.without_ack() and subscription.window == 0, subscription=subscription)
        if bits & NO_WAIT:
            self._begin(channel, tag, request)
        else:
            channel.consumes.put(request)
        return instead

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
        self._end(channel)
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

    def answer(self, method: int, channel_id: int, arguments: bytes) -> bytes | None:
        """The broker says one of ANSWERS on channel `channel_id`: what the client is told instead, b"" nothing; None: it passes."""
        channel = self.channels.get(channel_id)
        if channel is None:
            return None
        before = channel.size()
        told: bytes | None = None
        if method == CHANNEL_CLOSE:
            self._end(channel)
            del self.channels[channel_id]
            self.kept -= before
            return sought_refused(channel, arguments)
        if method == CHANNEL_CLOSE_OK:
            channel.forget_closed()
            if channel.size() == 0 and channel.declared is None and channel.prefetch == 0:
                del self.channels[channel_id]
        elif method == BASIC_CONSUME_OK:
            tag, _ = read_short_string(arguments, 0)
            request = channel.consumes.answer_tag(tag)
            if request is not None and channel.consumes.closes():
                consumer = self._consumer(request)
                if consumer is not None:
                    channel.old_tags[tag] = consumer
            elif request is not None:
                self._begin(channel, tag, request)
        elif method == BASIC_QOS_OK:
            if channel.closing > 0:
                channel.closing -= 1
                told = b""
            elif channel.hidden_qos > 0:
                channel.hidden_qos -= 1
                told = b""
        elif method == QUEUE_DECLARE_OK:
            name, _ = read_short_string(arguments, 0)
            consumers = int.from_bytes(arguments[-4:], "big")
            asker = channel.take_asker(name)
            declared = channel.declares.popleft() if asker is None and channel.declares else None
            if asker is not None and self.windows is not None:
                self.windows.source_answered(asker, consumers)
                told = b""
            elif declared is not None and declared.sought_for is not None:
                told = self._begin_away(channel, declared.sought_for, consumers)
            elif declared is not None:
                declared.name = name
                self._keep_declared(declared)
        elif method == BASIC_GET_EMPTY:
            request = channel.gets.answer()
            consumer = None if request is None else self._consumer(request)
            if request is not None and request.reservation is not None and consumer is not None and self.windows is not None:
                self.windows.get_answered(consumer.key, request.reservation, 0, 0)
        else:  # cancel-ok, or the broker's own cancel, because the queue is gone
            told = self._cancelled(channel, method, arguments)
        self.kept += channel.size() - before
        return told

    def _begin_away(self, channel: ChannelConsumers, subscription: Subscription, consumers: int) -> bytes:
        """The queue of one that stays away is there, with so many consumers: the client gets its consume-ok, if it waits for one."""
        assert self.windows is not None
        if not subscription.ended and not self.windows.sought(subscription, consumers):
            request = PendingRequest(subscription.queue, subscription.tag, no_ack=subscription.without_ack(), subscription=subscription)
            channel.consumes.put(request)
            return b""
        if subscription.bits & NO_WAIT:
            return b""
        return method_frame(subscription.channel, BASIC_CONSUME_OK, short_string(subscription.tag))

    def _cancelled(self, channel: ChannelConsumers, method: int, arguments: bytes) -> bytes | None:
        tag, _ = read_short_string(arguments, 0)
        for tags in (channel.tags, channel.old_tags):
            consumer = tags.get(tag)
            subscription = None if consumer is None else consumer.subscription
            if consumer is None or subscription is None or self.windows is None:
                continue
            if consumer.leaves:
                del tags[tag]
                self.windows.left(subscription, consumer)
                return b""
            if method == BASIC_CANCEL_OK and not subscription.ended:
                return None  # of one before it, of the same tag
            if channel.subscriptions.get(subscription.tag) is subscription:
                channel.drop(subscription.tag)
            self.windows.end(subscription)
            del tags[tag]
            if consumer.tag:
                return method_frame(subscription.channel, method, short_string(subscription.tag) + arguments[1 + len(tag) :])
            return None
        return None

    def ask_source(self, subscription: Subscription, consumer: Consumer) -> bool:
        """Whether there is room to remember that the broker is asked for the queue of `consumer`."""
        if self.kept >= self.max_kept:
            return False
        self.channels[subscription.channel].asked.append(consumer)
        self.kept += 1
        return True

    def meet_stream(self, declared: Declared) -> None:
        """`declared` is a stream."""
        declared.stream = True
        self._keep_declared(declared)

    def takes(self, channel_id: int) -> bool:
        """Whether channel `channel_id` has taken messages, or asked for some; to declare a queue is none of it."""
        channel = self.channels.get(channel_id)
        return channel is not None and channel.takes()

    def end_channel(self, channel_id: int) -> None:
        """Nothing is consumed on channel `channel_id` any more."""
        channel = self.channels.get(channel_id)
        if channel is not None:
            self._end(channel)

    def _end(self, channel: ChannelConsumers) -> None:
        """What is consumed on `channel` ends with it."""
        assert self.windows is not None
        for subscription in channel.subscriptions.values():
            self.windows.end(subscription)
        for request in channel.consumes.kept:
            if request.subscription is not None:
                self.windows.end(request.subscription)

    def of_tag(self, channel_id: int, tag: bytes) -> Consumer | None:
        """The consumer a basic.deliver with that tag is for; None: not known."""
        channel = self.channels.get(channel_id)
        return None if channel is None else channel.consumer(tag)

    def delivered(self, method: int, channel_id: int, arguments: bytes) -> Consumer | None:
        """The consumer of the delivery that begins with `method` (BASIC_DELIVER or BASIC_GET_OK); None: not known."""
        channel = self.channels.get(channel_id)
        if channel is None:
            return None
        if method == BASIC_DELIVER:
            tag, _ = read_short_string(arguments, 0)
            return channel.consumer(tag)
        before = len(channel.gets.kept)
        request = channel.gets.answer()
        self.kept += len(channel.gets.kept) - before
        consumer = None if request is None else self._consumer(request)
        if request is not None and consumer is not None:
            consumer.reservation = request.reservation
        return consumer

    def _begin(self, channel: ChannelConsumers, tag: bytes, request: PendingRequest) -> None:
        consumer = self._consumer(request)
        if consumer is None:
            channel.tags.pop(tag, None)
        else:
            channel.tags[tag] = consumer
            subscription = request.subscription
            if subscription is not None and self.windows is not None:
                subscription.tag = tag
                channel.keep(subscription)
                self.windows.begun(subscription, consumer)
        if tag in channel.cancelled_tags:
            channel.cancelled_tags.remove(tag)

    def _consumer(self, request: PendingRequest) -> Consumer | None:
        queue = None if request.queue is None else request.queue.name
        origin = self.origin
        if queue is None or origin is None:
            return None
        return Consumer(queue, self._key(origin, queue), no_ack=request.no_ack)

    def begin_anew(self, subscription: Subscription) -> Consumer:
        """What the broker sends for `subscription` from now on is of another consumer than what it has sent before."""
        queue = subscription.queue.name
        origin = self.origin
        assert queue is not None
        assert origin is not None
        consumer = Consumer(queue, self._key(origin, queue), no_ack=subscription.without_ack() and subscription.window == 0)
        before_it = subscription.consumer
        if before_it is not None and before_it.source == QUEUE:
            consumer.source = QUEUE
        consumer.subscription = subscription
        consumer.tag = make_tag()
        subscription.consumer = consumer
        channel = self.channels[subscription.channel]
        before = channel.size()
        channel.tags[consumer.tag] = consumer
        self.kept += channel.size() - before
        return consumer

    def subscriptions(self) -> list[Subscription]:
        """All that the client consumes."""
        found: list[Subscription] = []
        for channel in self.channels.values():
            found.extend([subscription for subscription in channel.subscriptions.values() if not subscription.ended])
        return found

    def end(self) -> None:
        """The connection is over."""
        for channel in self.channels.values():
            self._end(channel)

    def key_of(self, queue: bytes) -> Key | None:
        """The key of what is consumed from `queue`."""
        return None if self.origin is None else self._key(self.origin, queue)

    def _key(self, origin: Origin, queue: bytes) -> Key:
        raw = b"\xff" + queue  # no publish has such: its exchange would be 255 bytes long, and this is 256 at most
        key = origin.keys.get(raw)
        if key is None:
            assert origin.vhost is not None
            key = self.judge.key(origin, raw, amqp_topic(origin.vhost, b"", queue), None, "consume", told_apart=True)
        return key

    def move(self, origin: Origin) -> None:
        """The connection has another origin now: its keys are that one's."""
        self.origin = origin
        for channel in self.channels.values():
            for consumer in [*channel.tags.values(), *channel.old_tags.values()]:
                consumer.key = self._key(origin, consumer.queue)

    def declared(self, channel_id: int) -> Declared | None:
        """The queue that the client has declared last on channel `channel_id`."""
        channel = self.channels.get(channel_id)
        return None if channel is None else channel.declared

    def any_stream(self, channel_id: int) -> bool:
        """Whether a consumer of channel `channel_id` reads a stream, or may do so."""
        channel = self.channels.get(channel_id)
        consumers = [] if channel is None else [*channel.tags.values(), *channel.old_tags.values()]
        return any(consumer.source in (STREAM, ASKED) for consumer in consumers)

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


def make_tag() -> bytes:
    """A consumer tag, as RabbitMQ makes them."""
    return b"amq.ctag-" + urlsafe_b64encode(urandom(MADE_TAG_BYTES)).rstrip(b"=")


def sought_refused(channel: ChannelConsumers, arguments: bytes) -> bytes | None:
    """The broker closes `channel`: where the gateway's own passive declare is to blame, the client's basic.consume is instead."""
    first = channel.declares[0] if channel.declares else None
    subscription = None if first is None else first.sought_for
    if first is None and channel.asked:  # the queue has gone since its first message came
        subscription = channel.asked[0].subscription
    if subscription is None or arguments[-4:] != QUEUE_DECLARE.to_bytes(4, "big"):
        return None
    return method_frame(subscription.channel, CHANNEL_CLOSE, arguments[:-4] + BASIC_CONSUME.to_bytes(4, "big"))


def octet(data: bytes, at: int) -> int:
    return data[at] if at < len(data) else 0
