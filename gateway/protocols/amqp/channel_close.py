"""Closing a channel from the middle: the gateway's own channel.close, to both sides.

::

    client                                gateway                                 broker
       │ publish                             │                                       │
       ├────────────────────────────────────►│ refused, action close                 │
       │            channel.close 506        │        channel.close 506              │
       │◄────────────────────────────────────┼──────────────────────────────────────►│
       │ what it still sends: discarded      │ what it still sends: discarded        │
       ├────────────────────────────────────►│◄──────────────────────────────────────┤
       │ channel.close-ok                    │                      channel.close-ok │
       ├────────────────────────────────────►│◄──────────────────────────────────────┤
       │ channel.open, the same number: held until the broker's close-ok has come    │
       ├────────────────────────────────────►├──────────────────────────────────────►│

The naive way tells only the client. Then the broker's channel lives on: the next channel.open of that number gets `504 second
'channel.open' seen`, and the whole connection dies (py-amqp opens the channel again by itself: measured, `docs/design/amqp.md` 1.4). So
both sides are told, and neither's close-ok reaches the other.

When the broker is told, its channel stands between two messages: a request is settled only after everything before it on its channel
has gone whole. The client may stand within a message, in either direction. Its own message is interrupted, as by a broker's close. A
delivery is not: the close is sent when the one under way is complete.

Either side may have closed the channel at the same moment. A close of the client's own is answered here with close-ok, and the client's
close-ok still comes, because every channel.close is answered. Likewise the broker's: it gets a close-ok, and its own close-ok to our close
still comes (RabbitMQ answers a close on a channel it is closing: rabbit_channel.erl, `handle_method(#'channel.close'{}, _,
State = #ch{state = closing})`). Its reason is not passed on: the client has one already.
"""

from __future__ import annotations

from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import PLAIN, REQUEST, Part
from gateway.protocols.amqp.broker_stream import BrokerStream
from gateway.protocols.amqp.channel import AmqpChannel
from gateway.protocols.amqp.channel_states import NO_CLOSE
from gateway.protocols.amqp.frames import (
    BASIC_GET,
    BASIC_PUBLISH,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    PRECONDITION_FAILED,
    RESOURCE_ERROR,
    channel_close,
    method_frame,
    method_of,
)
from gateway.protocols.amqp.held_parts import HeldParts
from gateway.protocols.amqp.refusals import over_limit
from limiter.rules.rule import FIT


class ChannelCloses:
    """The channels of one connection that the gateway has closed."""

    def __init__(
        self, conversation: Conversation, channels: dict[int, AmqpChannel], held_parts: HeldParts, broker_stream: BrokerStream
    ) -> None:
        self.conversation = conversation
        self.channels = channels
        self.held_parts = held_parts
        self.broker_stream = broker_stream

    def begin(self, channel: AmqpChannel, part: Part) -> None:
        """Close `channel`, because `part`, the next on it, was refused."""
        code = RESOURCE_ERROR if part.unfit == FIT else PRECONDITION_FAILED
        frame = channel_close(channel.number, code, over_limit(part), BASIC_PUBLISH if part.reservation is None else BASIC_GET)
        ours = self.held_parts.requests.take_of(channel)
        if ours is not None:  # what its client has had is not delivered again
            self.conversation.outbox.append(ours)
        channel.close_by_gateway()
        self.held_parts.requeues.close(channel)
        self.conversation.outbox.append(Part(PLAIN, channel.number, frame, 0, len(frame)))
        self.broker_stream.close(channel, frame)
        for held in self.held_parts.forget(channel.line):
            self.discard(channel, held)

    def discard(self, channel: AmqpChannel, part: Part) -> None:
        """`part` comes from the client on a channel that the gateway has closed: nothing of it goes on."""
        if part.kind == REQUEST:
            self.conversation.reports.give_up(part)
            return
        method = method_of(part)
        if method == CHANNEL_CLOSE:
            self.broker_stream.replies.reply_behind_close(channel, method_frame(channel.number, CHANNEL_CLOSE_OK, b""))
        elif method == CHANNEL_CLOSE_OK:
            channel.begin()
            self._forget(channel)
        elif method == CHANNEL_OPEN:
            channel.unsettled_opens = max(channel.unsettled_opens - 1, 0)

    def cross(self, channel: AmqpChannel) -> None:
        """The broker has closed `channel` at the same time: it gets its close-ok."""
        frame = method_frame(channel.number, CHANNEL_CLOSE_OK, b"")
        part = Part(PLAIN, 0, frame, 0, len(frame))  # on channel 0, where it waits for no channel
        part.paid = True  # nor for what the client's connection.close waits for: what is held may go on the channel that this frees
        self.held_parts.add_ready(part)

    def finish(self, channel: AmqpChannel) -> None:
        """The broker's close-ok has come: the client's next channel.open may go on."""
        if channel.line.parts:
            self.held_parts.make_due(channel.line)
        else:
            self._forget(channel)

    def _forget(self, channel: AmqpChannel) -> None:
        if channel.over():
            self.channels.pop(channel.number, None)

    def __repr__(self) -> str:
        busy = [channel.number for channel in self.channels.values() if channel.is_closed_by_gateway() or channel.gateway_close != NO_CLOSE]
        return f"<ChannelCloses {busy}>"
