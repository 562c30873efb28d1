"""Costs: what a rule counts for a message, its copies and an operation, so that one limit may stand for all the work of a broker.

A message costs one for each started `step` of its body, at least one, and `copy` for each copy that it names (CC, BCC). A batch costs as
many as it has messages, or as it has steps, whichever is more: nothing says how large each of them is. What is no message costs what its
operation is said to, else one.

The bytes of a limit are counted as ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from limiter.operations import OPERATIONS, WITH_BODIES
from limiter.units import format_size

PRICED: Final = tuple(each for each in OPERATIONS if each not in WITH_BODIES)  # operations that may cost more than one
MAX_COST: Final = 1_000_000  # of one operation or copy; more is a typing error (guess)
MAX_STEP: Final = 1 << 30  # bytes; as large as a message may be


@dataclass(frozen=True)
class Cost:
    """What a rule counts. Raises ValueError for numbers out of bounds."""

    step: int | None = None  # bytes; None: a message costs one, however large it is
    copy: int = 1
    operations: tuple[tuple[str, int], ...] = ()  # those that do not cost one

    def __post_init__(self) -> None:
        for name, number in (("copy", self.copy), *self.operations):
            if not 1 <= number <= MAX_COST:
                raise ValueError(f"{name}: {number} is outside 1 to {MAX_COST}")
        if self.step is not None and not 1 <= self.step <= MAX_STEP:
            raise ValueError(f"step: {self.step} is outside 1 to {MAX_STEP} bytes")

    def of(self, operation: str, messages: int, size: int) -> int:
        """What `messages` of `size` bytes together cost, or so many times `operation`."""
        for name, number in self.operations:
            if name == operation:
                return messages * number
        return messages if self.step is None else max(messages, -(-size // self.step))

    def shown(self) -> dict[str, str | int]:
        """What does not cost one, as the rules file has it."""
        step: dict[str, str | int] = {} if self.step is None else {"step": format_size(self.step)}
        copy = {} if self.copy == 1 else {"copy": self.copy}
        return {**step, **copy, **dict(self.operations)}
