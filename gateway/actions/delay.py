"""Delay: hold the refused part up to the rule's `max_delay`, then reject it.

RocketMQ holds that request only; AMQP holds its channel. Clients time out (RocketMQ sends after 3 s, some AMQP clients' writes after
10 s), so a delay ends in an answer, passed or refused; only an AMQP channel without confirms, to which nothing can be answered, goes on
waiting unless the rule's `fallback` says otherwise.
"""

from __future__ import annotations

from gateway.actions.outcome import count_held
from gateway.actions.reject import reject
from gateway.actions.wait import due
from gateway.conversation import Conversation
from gateway.messages import Part


def delay(conversation: Conversation, part: Part, now: int) -> None:
    """Hold, or refuse when the time is up or the protocol cannot hold this one."""
    key = part.key
    rule = part.rule
    assert key is not None
    assert rule is not None
    first = part.deadline == 0
    deadline = now + min(rule.max_delay_ns, conversation.patience_ns) if first else part.deadline
    if now < deadline and conversation.hold(part, min(due(now, part.wait_ns), deadline)):
        part.again = True
        if first:
            part.deadline = deadline
            count_held(part)
        return
    reject(conversation, part, now)
