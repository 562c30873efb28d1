"""Drop: swallow the refused part without a word, only where a rule says so and the client was promised no answer."""

from __future__ import annotations

from gateway.actions.outcome import counted
from gateway.actions.reject import reject
from gateway.conversation import DROPPED, Conversation
from gateway.messages import Part


def drop(conversation: Conversation, part: Part, now: int) -> None:
    """Drop and count; where an answer was promised (AMQP confirms), reject instead."""
    if conversation.drop(part):
        counted(part, DROPPED)
        return
    reject(conversation, part, now)
