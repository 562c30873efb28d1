"""Reject: tell the client at once, in its protocol's own words.

Where no truthful refusal exists (an AMQP channel without confirms), the part waits for its turn instead: silence would lose messages.
Only a rule that says `fallback: drop` loses them, and only where no transaction counts on them.
"""

from __future__ import annotations

from gateway.actions.wait import wait
from gateway.conversation import DROPPED, REFUSED, Conversation
from gateway.messages import Part


def reject(conversation: Conversation, part: Part, now: int) -> None:
    """Refuse natively; one-way requests are dropped and counted as dropped."""
    key = part.key
    assert key is not None
    messages = part.count * part.messages
    size = part.count * part.size
    outcome = conversation.refuse(part, now)
    if outcome == REFUSED:
        key.tally.refused += messages
        key.tally.refused_bytes += size
    elif outcome == DROPPED:
        key.tally.dropped += messages
        key.tally.dropped_bytes += size
    elif part.rule is not None and part.rule.fallback == "drop" and conversation.drop(part):
        key.tally.dropped += messages
        key.tally.dropped_bytes += size
    else:
        wait(conversation, part, now)
