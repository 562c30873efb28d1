"""Work that is done step by step, done at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")


def result(steps: Generator[None, None, T]) -> T:
    """What a piece of work returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
