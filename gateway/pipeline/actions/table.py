"""What happens to refused messages: one action per file, named here (`docs/design/limiter.md` 4).

An action takes the conversation, the refused part (`part.rule` and `part.wait_ns` say by which rule and for how long) and the time, and
settles every request of the part: told the client, held, or dropped, and counted as such. It returns which (`counting.py`). The names are
those of `limiter.rules.actions.ACTION_RECORDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.pipeline.actions.block import block
from gateway.pipeline.actions.close import close
from gateway.pipeline.actions.delay import delay
from gateway.pipeline.actions.drop import drop
from gateway.pipeline.actions.hold_poll import hold_poll
from gateway.pipeline.actions.reject import reject
from gateway.pipeline.actions.spool import spool
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import Part

Action = Callable[[Conversation, Part, int], int]

ACTIONS: Final[dict[str, Action]] = {
    "reject": reject,
    "delay": delay,
    "block": block,
    "drop": drop,
    "close": close,
    "spool": spool,
}


def apply_action(conversation: Conversation, part: Part, now: int) -> int:
    """Settle `part`, which was refused. Returns REFUSED, DROPPED or HELD."""
    rule = part.rule
    assert rule is not None, "a refusal names its rule"
    if part.reservation is not None:
        return hold_poll(conversation, part, now)
    if rule.action == "reject":  # the commonest, and the one of floods: a look into the table costs compiled code 300 instructions more
        return reject(conversation, part, now)
    return ACTIONS[rule.action](conversation, part, now)
