"""Hold a refused part until the judge may let it pass: what `delay`, `block` and refusals that cannot be said have in common.

Not an action that a rule can name. The part is judged again after the wait that the judge has named, within two bounds:

* not sooner than REJUDGE_AFTER_NS: a bucket of 1,000/s frees a message each millisecond; asking for each costs more than it brings;
* not later than REJUDGE_WITHIN_NS: a limit that an operator raises must free what waits within 0.5 s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.pipeline.actions.counting import HELD, count_held
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import Part
from limiter.limits import NEVER

REJUDGE_AFTER_NS: Final = 2_000_000  # 2 ms; no token is lost, since a bucket holds at least 20 ms of its rate (`sluice check` warns below)
REJUDGE_WITHIN_NS: Final = 100_000_000  # 100 ms; between the promise of 0.5 s and the cost of asking; a guess


def due(now: int, wait_ns: int) -> int:
    """When to judge again what was refused at `now` and told to wait `wait_ns`."""
    return now + min(max(wait_ns, REJUDGE_AFTER_NS), REJUDGE_WITHIN_NS)


def wait_until(hold: Callable[[Part, int], bool], part: Part, now: int, deadline: int) -> bool:
    """Hold `part`, by the conversation's own way to `hold`, until it passes or `deadline` (monotonic ns) is there.

    False when that time has come, or where the protocol cannot hold this one.
    """
    first = part.deadline == 0
    if (
        part.again and not first
    ):  # else what it has is of having waited unjudged in the spool (`RateLimit`), where another rule may have put it
        deadline = part.deadline
    if now >= deadline:
        return False
    before = part.again, part.deadline
    part.again = True  # before it is held, since it may be written to a file at once
    part.deadline = deadline
    if not hold(part, min(due(now, part.wait_ns), deadline)):
        part.again, part.deadline = before
        return False
    if first:
        count_held(part)
    return True


def wait(conversation: Conversation, part: Part, now: int) -> int:
    """Hold `part` for as long as it takes."""
    key = part.key
    assert key is not None
    part.again = True
    if part.deadline == 0:
        count_held(part)
        part.deadline = NEVER
    held = conversation.hold(part, due(now, part.wait_ns))
    assert held, "a protocol that cannot refuse a request can hold it"
    return HELD
