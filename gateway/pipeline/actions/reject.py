"""Reject: tell the client at once, in its protocol's own words.

Where no truthful refusal exists (an AMQP channel without confirms), the rule's `fallback` says what happens. The part waits for its turn
(delay, the default), its channel is closed (close), or the part is lost without a word (drop). The last is possible only where no
transaction counts on the part.
"""

from __future__ import annotations

from gateway.pipeline.actions.close import close
from gateway.pipeline.actions.counting import count_outcome
from gateway.pipeline.actions.holding import wait
from gateway.pipeline.conversation import DROPPED, UNABLE, Conversation
from gateway.pipeline.parts import Part


def reject(conversation: Conversation, part: Part, now: int) -> int:
    """Refuse natively; one-way requests are dropped and counted as dropped."""
    outcome = conversation.refuse(part)
    if count_outcome(part, outcome):
        return outcome
    fallback = part.rule.fallback if outcome == UNABLE and part.rule is not None else ""
    if fallback == "close":
        return close(conversation, part, now)
    if fallback == "drop" and conversation.drop(part):
        count_outcome(part, DROPPED)
        return DROPPED
    return wait(conversation, part, now)
