"""What happens to refused messages: one action per file (`docs/design/limiter.md` 4).

An action takes the conversation, the refused part (`part.rule` and `part.wait_ns` say by which rule and for how long) and the time, and
settles every request of the part: told the client, held, or dropped, and counted as such. What is refused for what it is (`part.unfit`)
is rejected whatever the action: no wait would help. It returns which (`counting.py`). Each record of
`limiter.rules.actions.ACTION_RECORDS` has its function in a file of its name here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from gateway.pipeline.actions.hold_poll import hold_poll
from gateway.pipeline.actions.hold_request import hold_request
from gateway.pipeline.actions.reject import reject
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import Part
from limiter.rules.actions import ACTION_RECORDS
from limiter.rules.rule import FIT

Action = Callable[[Conversation, Part, int], int]

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
    if (
        rule.action == "reject" or part.unfit != FIT
    ):  # the commonest, and the one of floods: a look into the table costs compiled code 300 instructions more
        return reject(conversation, part, now)
    return ACTIONS[rule.action](conversation, part, now)
