"""Block: hold the refused part and stop reading its client until it may pass, as a broker short of memory does.

AMQP clients wait as long as it takes, and are told so (`connection.blocked`). RocketMQ's clients give a request up after 3 s. So their
conversation's `patience_ns` is shorter than that, and then the part is rejected.
"""

from __future__ import annotations

from gateway.pipeline.actions.counting import HELD
from gateway.pipeline.actions.holding import wait_until
from gateway.pipeline.actions.reject import reject
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import Part
from limiter.limits import NEVER


def block(conversation: Conversation, part: Part, now: int) -> int:
    """Hold and block, or refuse when the client's patience is at its end or the protocol cannot hold this one."""
    deadline = now + conversation.patience_ns if conversation.patience_ns < NEVER else NEVER
    if wait_until(conversation, conversation.block, part, now, deadline):
        return HELD
    return reject(conversation, part, now)
