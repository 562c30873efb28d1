"""Hold a poll (a request for messages) that is over its limit until it may pass, or its client can wait no longer.

Not an action that a rule can name: consumers are held whatever the rule's `action` is. At the end of its time the poll is refused, which
means an answer that there is no message for now; of AMQP with `action: close`, a channel error.
"""

from __future__ import annotations

from gateway.pipeline.actions.counting import HELD, count_held
from gateway.pipeline.actions.holding import compute_due
from gateway.pipeline.conversation import REFUSED, Conversation
from gateway.pipeline.parts import Part


def hold_poll(conversation: Conversation, part: Part, now: int) -> int:
    """Hold `part`, which has a reservation, for as long as its client has patience, counted from the first time."""
    if part.deadline == 0:
        part.deadline = now + conversation.lines.patience_with(part)
        count_held(part)
    part.again = True
    if now >= part.deadline or not conversation.lines.hold(part, min(compute_due(now, part.wait_ns), part.deadline)):
        conversation.refuse(part)
        return REFUSED
    return HELD
