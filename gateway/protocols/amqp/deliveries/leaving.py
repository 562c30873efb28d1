"""What the broker is told in the name of a client that has gone, or has closed a channel, while its publishes still wait here.

The naive way leaves the broker alone until all is forwarded: then a dead client goes on consuming for as long as its publishes wait, and
the one that takes its place gets nothing. So at once, on each channel of its that consumes, and ahead of what waits there::

    basic.cancel     of every consumer that is known, or shows itself by a delivery or by consume-ok; without an answer
    basic.recover    with `requeue`: everything unacknowledged goes back to its place in its queue
    basic.nack       of a delivery that was on its way all the same, once recover-ok has come

Deliveries that come meanwhile are swallowed. Those consumed without acknowledgement the broker has forgotten, as it does when a connection
ends under them.

Settlements of the client's may wait behind its publishes. Recovered first, what they settle would be delivered again, and the settlement
itself would cost the channel (406, unknown delivery tag) with all that waits there. So while something waits on the channel, what the
client has not settled is given back one by one, as far as `Settlements` knows it; where it does not (tag 0, transactions), recover follows
what waits. Settlements that are decoded after that are dropped.

What is of a stream cannot be given back: RabbitMQ ends the connection (540), also where recover finds such among others. It is left as it
is, and beside it what the client has not settled goes back one by one, too.

Within a message the broker takes no method on that channel. A client that has gone within one never ends it: `stuck`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from common.octets import u32
from gateway.pipeline.empties import NO_ENTRIES, put
from gateway.pipeline.parts import PLAIN, Part
from gateway.protocols.amqp.broker_requests import cancel, give_back
from gateway.protocols.amqp.channel_states import CLIENT_CLOSED, NO_CLOSE, OF_GATEWAY, PASSING
from gateway.protocols.amqp.deliveries.exclusive_queues import ExclusiveQueues, is_exclusive, is_passive
from gateway.protocols.amqp.deliveries.leave import Leave
from gateway.protocols.amqp.deliveries.subscription import UNSEEN
from gateway.protocols.amqp.frames import (
    BASIC_CONSUME,
    BASIC_GET,
    BASIC_RECOVER,
    BASIC_RECOVER_ASYNC,
    METHOD,
    OVERHEAD,
    QUEUE_DECLARE,
    method_frame,
)

if TYPE_CHECKING:
    from gateway.protocols.amqp.broker_requests import BrokerRequests
    from gateway.protocols.amqp.channel import AmqpChannel
    from gateway.protocols.amqp.deliveries.consumers import Consumers

TAKES_MORE: Final = frozenset({BASIC_CONSUME, BASIC_GET, BASIC_RECOVER, BASIC_RECOVER_ASYNC})  # what is not passed on for such a client
QUEUE_CLASS: Final = QUEUE_DECLARE >> 16
REQUEUE: Final = b"\x01"  # basic.recover's bit


class Leaving:
    """The channels of one connection that leave their queues."""

    def __init__(self, consumers: Consumers, requests: BrokerRequests) -> None:
        self.consumers = consumers
        self.requests = requests
        self.channels: dict[int, AmqpChannel] = NO_ENTRIES  # those that leave, until the broker has closed them
        self.everything = False  # the client has gone: no channel consumes any more
        self.exclusive = ExclusiveQueues()
        self.recovers: Callable[[AmqpChannel], None] | None = None  # everything goes back: `Requeues.close`

    def leave_all(self, channels: dict[int, AmqpChannel], most: int) -> None:
        """The client, which may open `most` channels, has gone, or has closed the connection."""
        self.everything = True
        for channel in channels.values():
            self.leave(channel)
        self.exclusive.leave()
        self.exclusive.begin(channels, most)

    def leave(self, channel: AmqpChannel) -> None:
        """The client has closed `channel`, or gone."""
        if channel.leave is None and (channel.settlements is not None or self.consumers.takes(channel.number)):
            leave = channel.leave = Leave()
            leave.first = self.requests.frames.get(channel.number, b"")  # of what has passed on without acknowledgement, for one
            self.requests.forget(channel.number)
            self.consumers.end_channel(channel.number)
            self.channels = put(self.channels, channel.number, channel)

    def forget(self, channel: AmqpChannel) -> None:
        """The broker has closed `channel`, or answers the client's closing it: what it had is given back."""
        channel.leave = None
        if self.channels.pop(channel.number, None) is not None and self.everything:
            self.leave(channel)  # the client may have opened it anew before it went

    def take_words(self, *, quiet: bool) -> bytes:
        """What the broker is to be told now; the upstream stands between two frames.

        `quiet`: all that the client has settled is decoded, and none of it is with the judge.
        """
        words: list[bytes] = []
        if self.exclusive.waiting():
            words.append(self.exclusive.take_words())
        for channel in self.channels.values():
            leave = channel.leave
            if leave is not None and not channel.forwarding and not channel.committing and is_open(channel):
                words.append(leave.first)
                leave.first = b""
                if channel.unsettled_opens == 0:
                    self._cancel(channel, leave, words)
                if quiet and not leave.given_back and channel.unsettled_opens == 0:
                    self._give_all_back(channel, leave, words)
                words += [give_back(channel.number, tag, 1) for tag in leave.late]
                leave.late = []
        return b"".join(words)

    def stuck(self) -> bool:
        """Whether the broker waits for the rest of a message on a channel that still consumes. The client sends nothing more."""
        return any(channel.forwarding and not channel.line.waits() and not channel.line.taken for channel in self.channels.values())

    def without_takes(self, part: Part) -> Part | None:
        """`part`, methods of a channel that leaves, without those that would take more messages; None: nothing is left."""
        data = part.data
        kept: list[bytes] = []
        at = start = part.start
        while at < part.end:
            stop = at + u32(data, at + 3) + OVERHEAD
            # Publishes that the broker throws away follow; compiled code cuts no piece that ends before it begins.
            if data[at] == METHOD and self._takes(part.ordering_key, u32(data, at + 7), data[at + 11 : max(at + 11, stop - 1)]):
                kept.append(data[start:at])
                start = stop
            at = stop
        if start == part.start:
            return part
        kept.append(data[start : part.end])
        rest = b"".join(kept)
        return Part(PLAIN, part.ordering_key, rest, 0, len(rest)) if rest else None

    def _takes(self, channel_id: int, method: int, arguments: bytes) -> bool:
        """Whether `method` would take messages, or is about a queue that goes with its client."""
        if method == QUEUE_DECLARE and (is_exclusive(arguments) or is_passive(arguments)):
            return True  # nobody waits for an answer; one in the negative would cost the channel
        if method >> 16 == QUEUE_CLASS:
            return self.exclusive.takes(arguments, self.consumers.declared(channel_id))
        return method in TAKES_MORE

    def _cancel(self, channel: AmqpChannel, leave: Leave, words: list[bytes]) -> None:
        """Cancel every consumer that was not cancelled yet."""
        tags = leave.tags
        leave.tags = []
        known = None if leave.begun else self.consumers.channels.get(channel.number)
        leave.begun = True
        if known is not None:
            tags = [*known.tags, *known.old_tags, *[request.tag for request in known.consumes.kept], *tags]
        for tag in tags:
            if tag and tag not in leave.cancelled:
                leave.cancelled.add(tag)
                words.append(cancel(channel.number, tag, answered=False))

    def _give_all_back(self, channel: AmqpChannel, leave: Leave, words: list[bytes]) -> None:
        """Give back what the client has not settled, or nothing yet where that is not known."""
        settlements = channel.settlements
        parking = channel.parking
        coming = channel.consumer if parking is None or not parking.method else parking.consumer
        known = self.consumers.channels.get(channel.number)
        if (coming is not None and coming.source == UNSEEN) or (known is not None and known.asked):
            return  # whether it is of a stream its header will say, or the broker
        if not channel.line.waits() and not channel.line.taken and not self._reads_stream(channel):
            if self.recovers is not None:
                self.recovers(channel)
            words.append(method_frame(channel.number, BASIC_RECOVER, REQUEUE))
            leave.recovering = True
            channel.recovers += OF_GATEWAY
        elif settlements is not None and not settlements.unsure:
            words += [give_back(channel.number, tag, 1) for tag in settlements.to_give_back()]
        else:
            return
        leave.given_back = True
        if settlements is not None:
            settlements.given_back = True

    def _reads_stream(self, channel: AmqpChannel) -> bool:
        """Whether something of a stream may be unsettled on `channel`."""
        if channel.settlements is not None and channel.settlements.of_streams:
            return True
        known = self.consumers.channels.get(channel.number)
        consumers = [] if known is None else [*known.tags.values(), *known.old_tags.values()]
        return any(consumer.subscription is not None and consumer.subscription.queue.stream for consumer in consumers)

    def __repr__(self) -> str:
        return f"<Leaving {list(self.channels)}>"


def is_open(channel: AmqpChannel) -> bool:
    """Whether the broker has the channel open, and the client's channel.close has not gone on to it."""
    if channel.settled_state != PASSING or channel.gateway_close != NO_CLOSE:
        return False
    return channel.client_state != CLIENT_CLOSED or channel.line.waits() or channel.line.taken > 0
