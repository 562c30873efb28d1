"""What must hold of a limited topic on any machine, by the times its publisher measured. No machine must reach a rate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Limit(NamedTuple):
    """`rate` messages a second, and `burst` more, which have been saved up."""

    rate: float
    burst: float

    def most(self, seconds: float) -> float:
        """Messages that can pass in this time."""
        return self.rate * seconds + self.burst

    def __str__(self) -> str:
        return f"{self.rate:g}/s with a burst of {self.burst:g}"


class Message(NamedTuple):
    """One message and its answer; times in seconds of `time.monotonic`."""

    sent: float  # before it was written
    answered: float  # when the answer had been read
    passed: bool  # confirmed; otherwise refused


class Window(NamedTuple):
    """Messages that met the same limits. `seconds`: from before the first met them until the last answer."""

    offered: int
    passed: int
    seconds: float

    @property
    def refused(self) -> int:
        return self.offered - self.passed

    def tightest(self, limits: Sequence[Limit]) -> Limit:
        """The one that lets least pass."""
        return min(limits, key=lambda limit: limit.most(self.seconds))

    def within(self, limits: Sequence[Limit]) -> bool:
        return self.passed <= self.tightest(limits).most(self.seconds)

    def keeps_burst(self, limits: Sequence[Limit]) -> bool:
        """Whether at least what had been saved up passed, or all that was offered. Holds of a topic's first messages."""
        return self.passed >= min(self.offered, *(int(limit.burst) for limit in limits))


def window(messages: Iterable[Message], begins: float, ends: float = float("inf")) -> Window:
    """Of `messages`, those sent from `begins` on and before `ends`."""
    chosen = [message for message in messages if begins <= message.sent < ends]
    last = max((message.answered for message in chosen), default=begins)
    return Window(len(chosen), sum(message.passed for message in chosen), last - begins)


def must_pass(rate: float, unanswered: int, seconds: float, limits: Sequence[Limit]) -> bool:
    """Whether none of the messages may be refused of a publisher that sends `rate` a second and awaits at most `unanswered` answers.

    Whatever stalls, in a time of t no more than `unanswered + rate * t` of them meet the limits, and one for fractions.
    """
    return all(unanswered + 1 + rate * time <= limit.most(time) for limit in limits for time in (0, seconds))
