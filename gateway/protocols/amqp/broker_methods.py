"""What the broker's rare methods change: the handshake, connection.blocked, what is consumed, the ends of the connection and of channels.

All but basic.deliver and confirms are rare. Channels that have ended are left for the conversation in `closed`, `crossed` and
`finished`; it looks there after every read.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from gateway.pipeline.empties import NO_ITEMS, added
from gateway.pipeline.reports import FULL, FULL_FOR_USER, FULL_FOR_VHOST, ROOM
from gateway.protocols.amqp.channel import AmqpChannel
from gateway.protocols.amqp.channel_states import CLOSE_WAITS, WITHOUT_ANSWER
from gateway.protocols.amqp.deliveries.consumers import ANSWERS
from gateway.protocols.amqp.deliveries.deliveries import Deliveries
from gateway.protocols.amqp.frames import (
    BASIC_GET_OK,
    BASIC_RECOVER_OK,
    BASIC_RETURN,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CONNECTION_BLOCKED,
    CONNECTION_CLOSE,
    CONNECTION_CLOSE_OK,
    CONNECTION_OPEN_OK,
    CONNECTION_START,
    CONNECTION_TUNE,
    CONNECTION_UNBLOCKED,
    TX_COMMIT_OK,
)
from gateway.protocols.amqp.handshake import Handshake
from gateway.protocols.amqp.passthrough import Passthrough
from gateway.protocols.amqp.replies import GatewayReplies

# What RabbitMQ says of its limits on connections (rabbit_reader.erl)
CONNECTION_LIMIT: Final = b"connection limit ("
USER_LIMIT: Final = b"user connection limit ("
VHOST_LIMIT: Final = b"access to vhost "


class BrokerMethods:
    """Overhears one broker."""

    def __init__(self, channels: dict[int, AmqpChannel], handshake: Handshake, deliveries: Deliveries, replies: GatewayReplies) -> None:
        self.channels = channels
        self.handshake = handshake
        self.deliveries = deliveries
        self.replies = replies
        self.closed: list[AmqpChannel] = NO_ITEMS  # channels the broker has closed since the conversation last looked
        self.crossed: list[AmqpChannel] = NO_ITEMS  # the same where the gateway was closing it: not told to the client, to be answered
        self.finished: list[AmqpChannel] = NO_ITEMS  # channels whose close by the gateway the broker has answered since then
        self.connection_closed = False  # the broker has sent connection.close
        self.closed_in_words = False  # either: nothing is to be said any more
        self.asked_to_close = False  # the gateway has sent the connection.close itself: its client does not wait for the answer
        self.full = ROOM  # it has refused the client because there are too many connections
        self.blocked = False  # it has sent connection.blocked
        self.blocked_reason = ""  # as it said with that: "low on memory"

    def on_channel(self, method: int, passthrough: Passthrough, pos: i64, stop: i64, channel: AmqpChannel) -> None:
        """Any method on a channel but basic.deliver and confirms, whole at `pos`. The channel may be gone after it."""
        intake = self.deliveries.intake
        if method == BASIC_RETURN:
            intake.overtake(channel)
            return
        if method == BASIC_GET_OK:
            self.deliveries.costly_methods.refund_get()
            taken = intake.begin(channel, method, passthrough.data, pos, stop)
        else:
            channel.broker_left = 0
            told: bytes | None = None
            if method == TX_COMMIT_OK:
                channel.committing = False
                self.deliveries.requests.notice(channel)
            recover = channel.take_recover() if method == BASIC_RECOVER_OK else b""
            if channel.leave is not None and channel.leave.hear(method, passthrough.data[pos + 11 : stop - 1], recover):
                passthrough.take_out(pos, stop)
                return
            if method in ANSWERS:
                told = self.deliveries.consumers.answer(method, channel.number, passthrough.data[pos + 11 : stop - 1])
            if channel.gateway_close == CLOSE_WAITS and method == CHANNEL_CLOSE_OK:
                passthrough.take_out(pos, stop)
                passthrough.insert(stop, self.replies.take_close(channel))
                self.on_closed_by_gateway(method, channel)
                return
            if channel.gateway_close == CLOSE_WAITS and method == CHANNEL_CLOSE:
                self.crossed = added(self.crossed, channel)  # the client's answer will be to the gateway's close
            if method in (CHANNEL_CLOSE, CHANNEL_CLOSE_OK):
                if channel.parking is not None:
                    passthrough.insert(pos, self.deliveries.ends.lose(channel, by_client=method == CHANNEL_CLOSE_OK))
                if method == CHANNEL_CLOSE:
                    self.deliveries.requests.forget(channel.number)
                self._on_close(method, channel)
                if told is not None:
                    passthrough.take_out(pos, stop)
                    passthrough.insert(stop, told)
                return
            if told is not None:
                self._tell_instead(told, passthrough, pos, stop, channel)
                return
            if method == BASIC_RECOVER_OK:
                self.deliveries.ends.recover(channel)
                if channel.settlements is not None:
                    channel.settlements.recovered()
                if recover == WITHOUT_ANSWER:
                    passthrough.take_out(pos, stop)
                    return
            taken = intake.other(channel, passthrough.data, pos, stop)
        if taken:
            passthrough.take_out(pos, stop)
        else:
            channel.answer(method)

    def _tell_instead(self, told: bytes, passthrough: Passthrough, pos: i64, stop: i64, channel: AmqpChannel) -> None:
        """The answer at `pos` is to something that the gateway has asked: the client gets `told`, if it is to get anything."""
        passthrough.take_out(pos, stop)
        if told and not self.deliveries.intake.other(channel, told, 0, len(told)):
            passthrough.insert(stop, told)

    def on_connection(self, method: int, passthrough: Passthrough, pos: i64, stop: i64) -> None:
        """A method on channel 0."""
        if method == CONNECTION_START:
            self.handshake.started = True
        elif method == CONNECTION_TUNE:
            arguments = passthrough.data[pos + 11 : stop - 1]
            changed = self.handshake.tune(arguments)
            if changed is not arguments:
                passthrough.take_out(pos, stop)
                passthrough.insert(stop, passthrough.data[pos : pos + 11] + changed + passthrough.data[stop - 1 : stop])
        elif method == CONNECTION_OPEN_OK:
            self.handshake.let_in()
        elif method == CONNECTION_CLOSE:
            if self.deliveries.lot.parked:
                passthrough.insert(pos, self.deliveries.ends.lose_all(by_client=False))
            self.connection_closed = self.closed_in_words = True
            if not self.handshake.opened and CONNECTION_LIMIT in passthrough.data[pos:stop]:
                text = passthrough.data[pos:stop]
                self.full = FULL_FOR_USER if USER_LIMIT in text else FULL_FOR_VHOST if VHOST_LIMIT in text else FULL
            for channel in self.channels.values():
                self._on_close(CHANNEL_CLOSE, channel)
        elif method == CONNECTION_CLOSE_OK:
            self.closed_in_words = True
            if self.asked_to_close:
                passthrough.take_out(pos, stop)
        elif method in (CONNECTION_BLOCKED, CONNECTION_UNBLOCKED):
            self.blocked = method == CONNECTION_BLOCKED
            reason = passthrough.data[pos + 11 : stop - 1][1:]  # a short string, as long as the method: its length is not read
            self.blocked_reason = reason.decode(errors="replace") if self.blocked else ""
            if not self.replies.notices.take_broker_notice(blocked=self.blocked):
                passthrough.take_out(pos, stop)

    def _on_close(self, method: int, channel: AmqpChannel) -> None:
        """The broker closes a channel, or agrees to the client's closing it (CHANNEL_CLOSE_OK): nothing more may be sent on it."""
        channel.release_all_slots()
        if channel.leave is not None:
            self.deliveries.leaving.forget(channel)
        if channel.settlements is not None:
            channel.settlements.delivered = 0  # what was counted since the client opened it anew was the old channel's
        if method == CHANNEL_CLOSE or channel.unanswered_opens == 0:  # else the client has opened it anew, and has been answered since
            self.replies.discard(channel)
        if method == CHANNEL_CLOSE:
            if channel.close_by_broker():
                self.closed = added(self.closed, channel)
        elif channel.over():
            del self.channels[channel.number]

    def on_closed_by_gateway(self, method: int, channel: AmqpChannel) -> None:
        """A method of the broker's on a channel the gateway has closed, until its close-ok; or on its own."""
        if channel is self.deliveries.leaving.exclusive.channel:
            self.deliveries.leaving.exclusive.hear(method)
        elif method == CHANNEL_CLOSE_OK:
            channel.finish_close()
            channel.broker_left = 0
            self.deliveries.ends.lose(channel, by_client=True)
            self.deliveries.consumers.answer(CHANNEL_CLOSE_OK, channel.number, b"")
            self.deliveries.leaving.forget(channel)
            self.finished = added(self.finished, channel)
        elif method == CHANNEL_CLOSE:
            self.crossed = added(self.crossed, channel)

    def __repr__(self) -> str:
        return f"<BrokerMethods closed={len(self.closed)} crossed={len(self.crossed)} finished={len(self.finished)} blocked={self.blocked}>"
