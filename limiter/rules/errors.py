"""What is wrong with a rule, and the way out. The settings add file, line and column."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

NOT_YET: Final[dict[str, tuple[str, ...]]] = {}  # words of the contract that this version does not support: refused, never ignored


class RuleError(ValueError):
    """A fault of a rule: `field` as in `match.topic`, the message with the remedy."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def check_choice(field: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise RuleError unless `value` is one of `choices`."""
    if value in choices:
        return
    if value in NOT_YET.get(field, ()):
        raise RuleError(field, f"{value!r} is not supported yet; this version has {', '.join(choices)}")
    near = get_close_matches(value, choices, 1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(choices)}"
    raise RuleError(field, f"{value!r} is unknown; {hint}")
