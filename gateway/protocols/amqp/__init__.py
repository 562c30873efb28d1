"""AMQP 0-9-1, as RabbitMQ speaks it."""

from __future__ import annotations

from typing import Final

from gateway.protocols.amqp import handshake
from gateway.protocols.amqp.conversation import AmqpConversation
from gateway.protocols.amqp.frames import PROTOCOL_HEADER
from gateway.protocols.amqp.question import QUESTION
from gateway.protocols.amqp.rejection import Rejection
from gateway.protocols.protocol import BACKLOGS_OF_QUEUES, BLOCKED, SLOW_CONFIRMS, Opening, Protocol
from limiter import protocols

CLOSE_CAUSES: Final = {
    "access_refused": "The client logs in with a certificate (EXTERNAL) but has shown none to the gateway.",
    "broker_heartbeat": "The broker was silent for longer than the negotiated heartbeat allows; the client was told.",
    "heartbeat": "The client was silent for longer than the negotiated heartbeat allows.",
    "max_connections_per_user": "Refused: the user had `max_connections_per_user` already.",
    "spool_damaged": "What this client's messages became in the spool on disk cannot be read back; they are given up, none was confirmed.",
    "wrong_protocol_amqp_1_0": "The client speaks AMQP 1.0; the gateway and this listener speak 0-9-1.",
    "wrong_protocol_amqp_version": "The client speaks another version of AMQP than 0-9-1.",
    "wrong_protocol_http": "The client speaks HTTP: perhaps it means RabbitMQ's management port.",
    "wrong_protocol_http2": "The client speaks HTTP/2, as gRPC does.",
    "wrong_protocol_mqtt": "The client speaks MQTT.",
    "wrong_protocol_proxy": "A load balancer sends a PROXY header the listener does not take: `accept_proxy_protocol`, `trusted_proxies`.",
    "wrong_protocol_stomp": "The client speaks STOMP.",
    "wrong_protocol_tls": "The client speaks TLS on a listener without `tls`.",
    "wrong_protocol_unknown": "The client's first bytes are of no protocol that the gateway knows.",
}

AMQP: Final = Protocol(
    name=protocols.AMQP.name,
    names=protocols.AMQP,
    conversation=AmqpConversation,
    opening=Opening(8, handshake.check_opening, PROTOCOL_HEADER),
    close_causes=CLOSE_CAUSES,
    rejection=Rejection,
    adapt_reasons=(BLOCKED, SLOW_CONFIRMS),
    confirms=True,
    backlogs=BACKLOGS_OF_QUEUES,
    question=QUESTION,
    messaging_system="rabbitmq",
    send_operation="publish",
)  # fmt: skip
