"""Spool: hold the refused part for as long as it takes, and what comes behind it, on disk where it is too much for memory.

The client goes on sending. It gets the broker's own answers when its messages have been forwarded, at the limit and in order, and none
before (`docs/spooling.md`). What has waited for longer than the rule's `max_age`, or (`drop_expired`) than it is of use by its own word, is
refused; where no refusal can be said, it is dropped.
"""

from __future__ import annotations

from gateway.pipeline.actions.counting import HELD, count_outcome
from gateway.pipeline.actions.holding import wait, wait_until
from gateway.pipeline.actions.reject import reject
from gateway.pipeline.conversation import DROPPED, REFUSED, UNABLE, Conversation
from gateway.pipeline.parts import EXPIRED, Part
from gateway.waiting.lines import PAGED
from limiter.buckets.bucket import Bucket
from limiter.keys import Key
from limiter.limits import NEVER


def spool(conversation: Conversation, part: Part, now: int) -> int:
    """Hold, or refuse where the protocol cannot hold this one."""
    rule = part.rule
    assert rule is not None
    if part.deadline != 0:  # it may have come long ago, and waited unjudged since
        return _hold(conversation, part, now, part.deadline)
    last = NEVER if rule.max_age_ns is None else now + rule.max_age_ns
    if not rule.drop_expired:
        return _hold(conversation, part, now, last)
    outcome = HELD
    for run, lifetime in conversation.lines.lifetimes(part):
        outcome = _hold(conversation, run, now, min(last, now + lifetime, NEVER))
    return outcome


def _hold(conversation: Conversation, part: Part, now: int, deadline: int) -> int:
    if wait_until(conversation, part, now, deadline, PAGED):
        return HELD
    part.unjudged = EXPIRED if 0 < deadline <= now else 0
    outcome = reject(conversation, part, now)
    part.unjudged = 0
    return outcome


def expire(conversation: Conversation, part: Part, now: int) -> int:
    """Give up `part`, which has waited for too long: that counts for the limit that spools."""
    part.unjudged = EXPIRED
    outcome = conversation.refuse(part)
    part.unjudged = 0
    if outcome == UNABLE and conversation.drop(part):
        outcome = DROPPED
    if outcome in (REFUSED, DROPPED):
        if part.rule is None:
            bucket = spooling_bucket(part.key)
            if bucket is not None:
                part.bucket = bucket
                part.rule = bucket.effective.rule
        count_outcome(part, outcome)
        return outcome
    return wait(conversation, part, now, expires=True)


def spooling_bucket(key: Key | None) -> Bucket | None:
    """The first bucket of `key` whose rule spools: what comes from the disk, or was not judged, does not know which one it was."""
    if key is None:
        return None
    for bucket in key.buckets:
        rule = bucket.effective.rule
        if rule.action == "spool" and rule.mode == "enforce":
            return bucket
    return None
