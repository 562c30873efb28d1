"""AMQP 0-9-1, as RabbitMQ speaks it."""

from __future__ import annotations

from typing import Final

from gateway.protocols.amqp import handshake
from gateway.protocols.amqp.conversation import AmqpConversation
from gateway.protocols.amqp.rejection import Rejection
from gateway.protocols.protocol import BACKLOGS_OF_QUEUES, BLOCKED, SLOW_CONFIRMS, Opening, Protocol

AMQP: Final = Protocol(
    name="amqp",
    conversation=AmqpConversation,
    opening=Opening(8, handshake.opening),
    close_causes=(
        "access_refused", "broker_heartbeat", "heartbeat", "max_connections_per_user", "wrong_protocol_amqp_1_0",
        "wrong_protocol_amqp_version", "wrong_protocol_http", "wrong_protocol_http2", "wrong_protocol_mqtt", "wrong_protocol_proxy",
        "wrong_protocol_stomp", "wrong_protocol_tls", "wrong_protocol_unknown",
    ),
    rejection=Rejection,
    adapt_reasons=(BLOCKED, SLOW_CONFIRMS),
    confirms=True,
    backlogs=BACKLOGS_OF_QUEUES,
)  # fmt: skip
