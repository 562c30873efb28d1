"""Drop: swallow the refused part without a word, only where a rule says so.

In AMQP only where no confirm was promised; a RocketMQ client that waits for an answer sees its own time-out.
"""

from __future__ import annotations

from gateway.pipeline.actions.counting import count_outcome
from gateway.pipeline.actions.reject import reject
from gateway.pipeline.conversation import DROPPED, Conversation
from gateway.pipeline.parts import Part


def drop(conversation: Conversation, part: Part, now: int) -> int:
    """Drop and count; where an answer was promised (AMQP confirms), reject instead."""
    if conversation.drop(part):
        count_outcome(part, DROPPED)
        return DROPPED
    return reject(conversation, part, now)
