"""RocketMQ's remoting protocol, to a name server, whose answers are made to lead clients through this gateway."""

from __future__ import annotations

from typing import Final

from gateway.protocols.nameserver.conversation import NameserverConversation
from gateway.protocols.protocol import Opening, Protocol
from gateway.protocols.rocketmq import protocol_detection
from gateway.protocols.rocketmq.question import QUESTION
from limiter import protocols

NAMESERVER: Final = Protocol(
    name=protocols.ROCKETMQ.name_server,
    names=protocols.ROCKETMQ,
    conversation=NameserverConversation,
    opening=Opening(4, protocol_detection.check_opening),
    close_causes=protocol_detection.CLOSE_CAUSES,
    question=QUESTION,
    brokers_speak=protocols.ROCKETMQ.name,
)
