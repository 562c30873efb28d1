"""Hold a request of an operation that only waits (`limiter.operations.WAITING`) until it may pass, or its client can wait no longer.

Not an action that a rule can name: these are held whatever the rule's `action` is. At the end of that time the request is refused; in AMQP
there is no such time, its clients wait.
"""

from __future__ import annotations

from gateway.pipeline.actions.counting import HELD
from gateway.pipeline.actions.holding import wait_until
from gateway.pipeline.actions.reject import reject
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import Part
from limiter.limits import NEVER


def hold_request(conversation: Conversation, part: Part, now: int) -> int:
    """Hold `part` for as long as its client has patience, counted from the first time."""
    if wait_until(conversation, part, now, min(now + conversation.lines.patience_ns, NEVER)):
        return HELD
    return reject(conversation, part, now)
