"""Block: hold the refused part and stop reading its client until it may pass, as a broker short of memory does.

AMQP clients wait as long as it takes, and are told so (`connection.blocked`). RocketMQ's clients give a request up after 3 s. So their
lines' `patience_ns` is shorter than that, and then the part is rejected.
"""

from __future__ import annotations

from gateway.pipeline.actions.counting import HELD
from gateway.pipeline.actions.holding import wait_until
from gateway.pipeline.actions.reject import reject
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import Part
from gateway.waiting.lines import BLOCKING
from limiter.limits import NEVER


def block(conversation: Conversation, part: Part, now: int) -> int:
    """Hold and block, or refuse when the client's patience is at its end or the protocol cannot hold this one."""
    patience_ns = conversation.lines.patience_ns
    deadline = now + patience_ns if patience_ns < NEVER else NEVER
    if wait_until(conversation, part, now, deadline, BLOCKING):
        return HELD
    return reject(conversation, part, now)
