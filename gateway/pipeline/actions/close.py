"""Close: refuse by closing what the request came on, saying why: an AMQP channel (`channel.close` 506), a RocketMQ connection.

For clients that must notice. What the client had sent behind the refused request is lost, as after a close by the broker itself.
"""

from __future__ import annotations

from gateway.pipeline.actions.counting import count_outcome
from gateway.pipeline.actions.holding import wait
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import Part


def close(conversation: Conversation, part: Part, now: int) -> int:
    """Close, and count the part as refused; wait where something is held before it, which the close would lose."""
    outcome = conversation.close(part)
    if count_outcome(part, outcome):
        return outcome
    return wait(conversation, part, now)
