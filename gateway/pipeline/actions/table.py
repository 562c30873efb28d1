"""What happens to refused messages: one action per file (`docs/design/limiter.md` 4).

An action takes the conversation, the refused part (`part.rule` and `part.wait_ns` say by which rule and for how long) and the time, and
settles every request of the part: told the client, held, or dropped, and counted as such. What is refused for what it is (`part.unfit`)
is rejected whatever the action: no wait would help. Where a limit is shared, and its owner has not said yet how much there is, nothing is
refused for it: the part is held for a moment. It returns which (`counting.py`). Each record of `limiter.rules.actions.ACTION_RECORDS` has
its function in a file of its name here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from gateway.pipeline.actions.counting import HELD
from gateway.pipeline.actions.hold_poll import hold_poll
from gateway.pipeline.actions.hold_request import hold_request
from gateway.pipeline.actions.holding import wait_until
from gateway.pipeline.actions.reject import reject
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import Part
from limiter.rules.actions import ACTION_RECORDS, PATIENT
from limiter.rules.rule import FIT, Rule

Action = Callable[[Conversation, Part, int], int]

OWNER_NS: Final = 250_000_000  # ns; so long a part waits for a shared limit's owner at most; some rounds of a fleet, a guess
ROOM: Final = __name__.rpartition(".")[0]
ACTIONS: Final[dict[str, Action]] = {name: getattr(import_module(f"{ROOM}.{name}"), name) for name in ACTION_RECORDS}


def apply_action(conversation: Conversation, part: Part, now: int) -> int:
    """Settle `part`, which was refused. Returns REFUSED, DROPPED or HELD."""
    rule = part.rule
    assert rule is not None, "a refusal names its rule"
    if part.reservation is not None:
        return hold_poll(conversation, part, now)
    if part.only_waits():
        return hold_request(conversation, part, now)
    if waits_for_owner(part, rule) and wait_until(conversation, part, now, now + min(OWNER_NS, conversation.lines.patience_ns)):
        return HELD
    if (
        rule.action == "reject" or part.unfit != FIT
    ):  # the commonest, and the one of floods: a look into the table costs compiled code 300 instructions more
        return reject(conversation, part, now)
    return ACTIONS[rule.action](conversation, part, now)


def waits_for_owner(part: Part, rule: Rule) -> bool:
    """Whether `part` is over a shared limit of whose owner it is not known whether it has more."""
    bucket = part.bucket
    return bucket is not None and part.unfit == FIT and bucket.algorithm.awaits_owner() and rule.action not in PATIENT
