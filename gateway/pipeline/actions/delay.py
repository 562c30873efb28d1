"""Delay: hold the refused part up to the rule's `max_delay`, then reject it.

In RocketMQ that request alone is held, in AMQP its channel. Clients time out: RocketMQ's sends after 3 s, writes of some AMQP clients
after 10 s. So a delay ends in an answer, and the request is passed or refused. An AMQP channel without confirms takes no answer: it goes
on waiting unless the rule's `fallback` says otherwise.
"""

from __future__ import annotations

from gateway.pipeline.actions.counting import HELD
from gateway.pipeline.actions.holding import wait_until
from gateway.pipeline.actions.reject import reject
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import Part


def delay(conversation: Conversation, part: Part, now: int) -> int:
    """Hold, or refuse when the time is up or the protocol cannot hold this one."""
    rule = part.rule
    assert rule is not None
    if wait_until(conversation, part, now, now + min(rule.max_delay_ns, conversation.lines.patience_ns)):
        return HELD
    return reject(conversation, part, now)
