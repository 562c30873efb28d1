"""Protocols: what a listener may speak. One package each, named in PROTOCOLS; `tests/contracts/test_protocols.py` runs over every member.

To add one: write `gateway/protocols/<name>/` with a subclass of `gateway.pipeline.conversation.Conversation`, and name it here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.pipeline.conversation import Conversation
from gateway.protocols.amqp import handshake
from gateway.protocols.amqp.conversation import AmqpConversation
from gateway.protocols.nameserver.conversation import NameserverConversation
from gateway.protocols.rocketmq import protocol_detection
from gateway.protocols.rocketmq.conversation import RocketmqConversation


class Opening:
    """How a connection in a protocol begins: `size` bytes, and who looks at them (they may be fewer where the client has finished).

    `check(head, max_frame, others_pass)` raises ProtocolError, named after what is spoken instead.
    """

    def __init__(self, size: int, check: Callable[[bytes, int, bool], None]) -> None:
        self.size = size
        self.check = check


PROTOCOLS: Final[dict[str, type[Conversation]]] = {
    "amqp": AmqpConversation,
    "rocketmq": RocketmqConversation,
    "rocketmq-nameserver": NameserverConversation,
}

OPENINGS: Final[dict[str, Opening]] = {
    "amqp": Opening(8, handshake.opening),
    "rocketmq": Opening(4, protocol_detection.opening),
    "rocketmq-nameserver": Opening(4, protocol_detection.opening),
}
