"""RocketMQ's remoting protocol, to a broker."""

from __future__ import annotations

from typing import Final

from gateway.protocols.protocol import BACKLOGS_OF_GROUPS, Opening, Protocol
from gateway.protocols.rocketmq import busy, protocol_detection
from gateway.protocols.rocketmq.conversation import RocketmqConversation
from gateway.protocols.rocketmq.question import QUESTION
from limiter import protocols

ROCKETMQ: Final = Protocol(
    name=protocols.ROCKETMQ.name,
    names=protocols.ROCKETMQ,
    conversation=RocketmqConversation,
    opening=Opening(4, protocol_detection.check_opening),
    close_causes={
        **protocol_detection.CLOSE_CAUSES,
        "broker_moved": "The broker's address in the name server's routes is another one: the client connects again, and gets there.",
    },
    adapt_reasons=tuple(reason for reason in busy.REASONS if reason != busy.COLD_DATA),  # fewer sends do not help consumers that read it
    busy_reasons=busy.REASONS,
    backlogs=BACKLOGS_OF_GROUPS,
    retry_prefix=protocols.RETRY_PREFIX,
    question=QUESTION,
    messaging_system="rocketmq",
)
