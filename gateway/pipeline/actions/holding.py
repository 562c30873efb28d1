"""Hold a refused part until the judge may let it pass: what `delay`, `block` and refusals that cannot be said have in common.

Not an action that a rule can name. The part is judged again after the wait that the judge has named, within two bounds:

* not sooner than REJUDGE_AFTER_NS: a bucket of 1,000/s frees a message each millisecond; asking for each costs more than it brings;
* not later than REJUDGE_WITHIN_NS: a limit that an operator raises must free what waits within 0.5 s.

Several may wait for one limit, on connections or channels of their own: publishers, and consumers whose deliveries are parked. Were each
to ask when its wait is over, all would ask at once; the one that asks first gets what there is, is told the next moment, and asks first
again. The others get nothing, for minutes. So whoever has just got something lets a random part of the next wait pass as well, in which
the others ask; these ask at once, in an order that is another each time. Where only one waits none of this holds, so no token is lost to
it; where several do, another one takes it.

Turns are the connections'. All that one connection has waiting for a limit, on 200 channels or as 200 requests, asks together, as often as
one request of another's: else channels would buy shares.
"""

from __future__ import annotations

from random import random
from typing import TYPE_CHECKING, Final

from gateway.pipeline.actions.counting import HELD, count_held
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.empties import put
from gateway.pipeline.parts import Part
from gateway.waiting.lines import IN_MEMORY
from limiter.limits import NEVER

if TYPE_CHECKING:
    from limiter.buckets.bucket import Bucket

REJUDGE_AFTER_NS: Final = 2_000_000  # 2 ms; no token is lost, since a bucket holds at least 20 ms of its rate (`sluice check` warns below)
REJUDGE_WITHIN_NS: Final = 100_000_000  # 100 ms; between the promise of 0.5 s and the cost of asking; a guess
SHUFFLE_NS: Final = 200_000  # 0.2 ms; within which those that are told the same moment ask: a token is late by less of it the more wait
CONTENDED_NS: Final = 2 * REJUDGE_WITHIN_NS  # within which each that waits has asked
MAX_TURNS: Final = 64  # limits that a connection waits for; of more, its channels ask by themselves for a moment; a guess


def compute_due(now: int, wait_ns: int) -> int:
    """When to judge again what was refused at `now` and told to wait `wait_ns`."""
    return now + min(max(wait_ns, REJUDGE_AFTER_NS), REJUDGE_WITHIN_NS)


def next_turn(conversation: Conversation, part: Part, now: int) -> int:
    """When to judge `part` again, which was refused at `now`: with all else that its connection has waiting for this limit."""
    who = conversation.context.connection  # AMQP's channels take turns by themselves
    if part.ordering_key == 0:
        who = -id(part.key) - who
    when = turn_of(who, part, now, had_turn=conversation.lines.had_turn)
    bucket = part.bucket
    if bucket is None or not is_contended(bucket, now):
        return when
    turns = conversation.lines.turns
    known = turns.get(bucket, 0)
    if known > now:
        return known
    if len(turns) >= MAX_TURNS:
        for past in [each for each, moment in turns.items() if moment <= now]:
            del turns[past]
        if len(turns) >= MAX_TURNS:
            turns.clear()
    conversation.lines.turns = put(turns, bucket, when)
    return when


def is_contended(bucket: Bucket, now: int) -> bool:
    """Whether several wait for it, as far as they have asked lately."""
    return bucket.contended_at != NEVER and now - bucket.contended_at <= CONTENDED_NS


def turn_of(who: int, part: Part, now: int, *, had_turn: bool) -> int:
    """When to judge `part` of `who` again, refused at `now`: as `compute_due` says where it waits alone, else so that all get turns.

    `had_turn`: one of its line (`Lines.name_of`), or of its connection and key, has just passed.
    """
    when = compute_due(now, part.wait_ns)
    bucket = part.bucket
    if bucket is None:
        return when
    if bucket.waiter != who:
        if bucket.waiter != 0:
            bucket.contended_at = now
        bucket.waiter = who
    if not is_contended(bucket, now):
        return when
    wait_ns = when - now
    if part.wait_ns >= REJUDGE_WITHIN_NS:  # all ask ten times a second: at moments of their own, each time
        return now + int(wait_ns * (0.5 + 0.5 * random()))  # noqa: S311  -- jitter, as the next
    if had_turn:
        return min(when + int(wait_ns * random()), now + REJUDGE_WITHIN_NS)  # noqa: S311
    return when + int(min(wait_ns, SHUFFLE_NS) * random())  # noqa: S311


def wait_until(conversation: Conversation, part: Part, now: int, deadline: int, manner: int = IN_MEMORY) -> bool:
    """Hold `part`, in a `manner` of `Lines.hold`, until it passes or `deadline` (monotonic ns) is there.

    False when that time has come, or where the protocol cannot hold this one.
    """
    first = part.deadline == 0
    if part.again and not first:  # else what it has is of having waited unjudged (`Lines.postpone`), where another rule may have put it
        deadline = part.deadline
    if now >= deadline:
        return False
    before = part.again, part.deadline
    part.again = True  # before it is held, since it may be written to a file at once
    part.deadline = deadline
    if not conversation.lines.hold(part, min(next_turn(conversation, part, now), deadline), manner):
        part.again, part.deadline = before
        return False
    if first:
        count_held(part)
    return True


def wait(conversation: Conversation, part: Part, now: int, *, expires: bool = False) -> int:
    """Hold `part` for as long as it takes; one that `expires`, because it may wait on disk, until it can be given up."""
    key = part.key
    assert key is not None
    part.again = True
    if part.deadline == 0:
        count_held(part)
    if part.deadline <= now and not expires:  # nothing refuses it, so it has none any more
        part.deadline = NEVER
    held = conversation.lines.hold(part, next_turn(conversation, part, now))
    assert held, "a protocol that cannot refuse a request can hold it"
    return HELD
