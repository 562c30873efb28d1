"""Protocols: what a listener may speak. One package each, named in PROTOCOLS; `tests/contracts/test_protocols.py` runs over every member.

To add one: write `gateway/protocols/<name>/` with a subclass of `gateway.conversation.Conversation`, and name it here.
"""

from __future__ import annotations

from typing import Final

from gateway.conversation import Conversation
from gateway.protocols.amqp.conversation import AmqpConversation
from gateway.protocols.rocketmq.conversation import RocketmqConversation

PROTOCOLS: Final[dict[str, type[Conversation]]] = {
    "amqp": AmqpConversation,
    "rocketmq": RocketmqConversation,
}
