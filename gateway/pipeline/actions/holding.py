"""Wait: keep a refused part until the judge may let it pass. The common ground of `delay`, `block` and of refusals that cannot be said.

Not an action of its own. When to ask again: after the true wait, but never sooner than REJUDGE_AFTER (a bucket of 1,000/s frees a
message each millisecond; asking for each would cost more than it brings) and never later than REJUDGE_WITHIN (a limit raised
by an operator must free what waits "within 0.5 s", issue 3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.pipeline.actions.counting import count_held
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import Part
from limiter.limits import NEVER

REJUDGE_AFTER_NS: Final = 2_000_000  # 2 ms; a bucket holds at least 20 ms of its rate (`sluice check` warns below), so no token is lost
REJUDGE_WITHIN_NS: Final = 100_000_000  # 100 ms; a guess between the promise of 0.5 s and the cost of asking


def due(now: int, wait_ns: int) -> int:
    """When to judge again what was refused at `now` and told to wait `wait_ns`."""
    return now + min(max(wait_ns, REJUDGE_AFTER_NS), REJUDGE_WITHIN_NS)


def wait_until(hold: Callable[[Part, int], bool], part: Part, now: int, deadline: int) -> bool:
    """Hold `part`, by the conversation's own way to `hold`, until it passes or `deadline` (monotonic ns) is there.

    False when that time has come, or where the protocol cannot hold this one.
    """
    first = part.deadline == 0
    if not first:
        deadline = part.deadline
    if now >= deadline or not hold(part, min(due(now, part.wait_ns), deadline)):
        return False
    part.again = True
    if first:
        part.deadline = deadline
        count_held(part)
    return True


def wait(conversation: Conversation, part: Part, now: int) -> None:
    """Hold `part` for as long as it takes."""
    key = part.key
    assert key is not None
    part.again = True
    if part.deadline == 0:
        count_held(part)
        part.deadline = NEVER
    held = conversation.hold(part, due(now, part.wait_ns))
    assert held, "a protocol that cannot refuse a request can hold it"
