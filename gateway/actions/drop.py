"""Drop: swallow the refused part without a word, only where a rule says so and the client was promised no answer."""

from __future__ import annotations

from gateway.actions.reject import reject
from gateway.conversation import Conversation
from gateway.messages import Part


def drop(conversation: Conversation, part: Part, now: int) -> None:
    """Drop and count; where an answer was promised (AMQP confirms), reject instead."""
    key = part.key
    assert key is not None
    if conversation.drop(part):
        key.tally.dropped += part.count * part.messages
        key.tally.dropped_bytes += part.count * part.size
        return
    reject(conversation, part, now)
