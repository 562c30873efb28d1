"""How many messages passed in a stretch of time, and whether that fits a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def let_through(offered_per_100ms: Mapping[int, int], rate: float, burst: float) -> float:
    """What a bucket of `burst`, full at first, lets pass of what was offered: no more than a flood gets, less where the flood paused.

    For lower bounds: a limit cannot let pass what a busy machine has not sent.
    """
    tokens, passed = burst, 0.0
    for slot in range(min(offered_per_100ms), max(offered_per_100ms) + 1):
        now = min(offered_per_100ms.get(slot, 0), tokens)
        passed += now
        tokens = min(burst, tokens - now + rate / 10)
    return passed


def in_its_best_second(passed_per_100ms: Mapping[int, int]) -> int:
    """The most messages that ten slots in a row have: what is held up all the time has none such, and a machine that stumbles has."""
    return max(sum(passed_per_100ms.get(first + number, 0) for number in range(10)) for first in passed_per_100ms)


def bounds(rate: float, seconds: float, burst: float) -> tuple[float, float]:
    """What an endless flood gets through in `seconds`: at least 99 % of the rate, at most the rate, one burst and one message more."""
    return 0.99 * rate * seconds, rate * seconds + burst + 1
