"""What a client's methods change outside of open channels: the handshake, and the opening of channels.

They pass in any case. The broker answers what is wrong with them, except where that would confuse the gateway.
"""

from __future__ import annotations

from gateway.pipeline.context import ConversationContext
from gateway.pipeline.errors import ProtocolError
from gateway.protocols.amqp.channel import AmqpChannel
from gateway.protocols.amqp.channel_states import CLIENT_IGNORED
from gateway.protocols.amqp.deliveries.deliveries import Deliveries
from gateway.protocols.amqp.frames import (
    BASIC_PUBLISH,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    COMMAND_INVALID,
    CONNECTION_OPEN,
    CONNECTION_START_OK,
    CONNECTION_TUNE_OK,
    NOT_ALLOWED,
    client_error,
)
from gateway.protocols.amqp.handshake import Handshake
from gateway.protocols.amqp.publishes import Publishes
from limiter.keys import Origin
from limiter.operations import CONNECT


class ClientMethods:
    """Overhears one client."""

    def __init__(
        self,
        context: ConversationContext,
        channels: dict[int, AmqpChannel],
        handshake: Handshake,
        deliveries: Deliveries,
        publishes: Publishes,
    ) -> None:
        self.context = context
        self.channels = channels
        self.handshake = handshake
        self.deliveries = deliveries
        self.publishes = publishes
        self.connecting: Origin | None = None  # of a connection.open that a rule may limit, until the client is let in

    def limits_opens(self) -> bool:
        """Whether a rule may limit who connects."""
        return self.context.judge.rules.may_limit(CONNECT)

    def on_connection(self, method: int, arguments: bytes) -> None:
        """A method on channel 0."""
        if method == CONNECTION_START_OK:
            if self.handshake.answered:
                raise client_error(COMMAND_INVALID, "connection.start-ok a second time")
            self.handshake.start_ok(arguments)
        elif method == CONNECTION_TUNE_OK:
            self.handshake.tune_ok(arguments)
        elif method == CONNECTION_OPEN:
            self.handshake.open(arguments)
            if self.connecting is None and self.publishes.origin is None and self.limits_opens():
                self.connecting = self._origin()
            if self.handshake.opened:  # by a broker that was not asked
                self.begin()
        elif method == BASIC_PUBLISH:
            raise client_error(COMMAND_INVALID, "basic.publish on channel 0")

    def on_closed_channel(self, method: int, channel_id: int, channel: AmqpChannel | None) -> None:
        """A method on a channel that is not open."""
        if method == CHANNEL_OPEN:
            if self.handshake.vhost is None:
                raise client_error(COMMAND_INVALID, "channel.open before connection.open")
            if channel is None:
                if len(self.channels) > self.handshake.most_channels():
                    raise self._too_many()
                channel = self.channels[channel_id] = AmqpChannel(channel_id)
            if channel.client_state != CLIENT_IGNORED:
                channel.open()
        elif method == CHANNEL_CLOSE_OK and channel is not None and channel.client_state == CLIENT_IGNORED:
            channel.close_by_client()

    def _too_many(self) -> ProtocolError:
        """Like RabbitMQ, which refuses the first channel too many itself, by number of channels."""
        return client_error(NOT_ALLOWED, f"more channels opened than the {self.handshake.most_channels()} that were agreed on")

    def begin(self) -> None:
        """The broker has let the client in: now it is known whose keys its requests are counted by."""
        context, handshake = self.context, self.handshake
        if self.publishes.origin is None and handshake.vhost is not None:
            connecting = self.connecting
            self.connecting = None
            self.publishes.origin = self._origin() if connecting is None else context.judge.own(connecting, context.connection)
            self.deliveries.consumers.origin = self.publishes.origin
            self.publishes.origin.introduce(handshake.library(), handshake.properties.get("connection_name", ""))

    def _origin(self) -> Origin:
        context, handshake = self.context, self.handshake
        assert handshake.vhost is not None
        return context.judge.origin("amqp", context.listener, context.client, handshake.user, handshake.vhost, context.connection)

    def end(self) -> None:
        """The connection has ended."""
        if self.connecting is not None:
            self.context.judge.release(self.connecting)
            self.connecting = None

    def __repr__(self) -> str:
        return f"<ClientMethods channels={len(self.channels)}>"
