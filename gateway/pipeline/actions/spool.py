"""Spool: hold the refused part for as long as it takes, and what comes behind it, on disk where it is too much for memory.

The client goes on sending. It gets the broker's own answers when its messages have been forwarded, at the limit and in order, and none
before (`docs/spooling.md`).
"""

from __future__ import annotations

from gateway.pipeline.actions.counting import HELD
from gateway.pipeline.actions.holding import wait_until
from gateway.pipeline.actions.reject import reject
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import Part
from limiter.limits import NEVER


def spool(conversation: Conversation, part: Part, now: int) -> int:
    """Hold, or refuse where the protocol cannot hold this one."""
    if wait_until(conversation.spool, part, now, NEVER):
        return HELD
    return reject(conversation, part, now)
