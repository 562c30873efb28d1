"""What a suite of somebody else's tests says: one outcome per test, and how two runs of it differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
MISSING: Final = "missing"  # the other run has it, this one has not: the program ended before it


class SuiteError(RuntimeError):
    """A suite could not be prepared or run to its end: there is nothing to compare."""


@dataclass(frozen=True)
class Outcome:
    """One test's end: passed, failed, skipped or missing; `detail` is the first line of what it complained about."""

    word: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.word} ({self.detail})" if self.detail else self.word


Outcomes = dict[str, Outcome]  # by the test's name, in the order they ran


@dataclass(frozen=True)
class Difference:
    """A test that ended differently on the two sides."""

    test: str
    direct: Outcome
    gateway: Outcome

    def __str__(self) -> str:
        return f"{self.test}: directly {self.direct}, through the gateway {self.gateway}"


@dataclass
class Comparison:
    """One suite, run directly and through the gateway."""

    suite: str
    direct: Outcomes
    gateway: Outcomes
    seconds: dict[str, float]
    differences: list[Difference] = field(default_factory=list)  # differed again
    flaky: list[Difference] = field(default_factory=list)  # differed, but directly they do not always pass either
    once: list[Difference] = field(default_factory=list)  # differed while the whole suite ran, and never again
    complaints: list[str] = field(default_factory=list)  # errors the gateway logged meanwhile

    @property
    def same(self) -> bool:
        return not self.differences and not self.complaints

    def count(self, side: str, word: str) -> int:
        outcomes: Outcomes = getattr(self, side)
        return sum(outcome.word == word for outcome in outcomes.values())

    def remarks(self) -> list[str]:
        """A line for every test that differed and is yet no difference."""
        lines = [f"  flaky      {difference} - also directly, when run again" for difference in self.flaky]
        return lines + [f"  once       {difference} - the same each time it was run again" for difference in self.once]

    def report(self) -> str:
        """One line of figures, then a line for every test worth one."""
        lines = [f"{self.suite}: {len(self.direct)} tests, {len(self.differences)} differences"]
        for side in ("direct", "gateway"):
            counts = ", ".join(f"{self.count(side, word)} {word}" for word in (PASSED, FAILED, SKIPPED))
            lines.append(f"  {side:8} {counts} in {self.seconds[side]:.0f} s")
        lines += [f"  DIFFERENT  {difference}" for difference in self.differences]
        lines += self.remarks()
        lines += [f"  the gateway logged  {complaint[:600]}" for complaint in self.complaints]
        for test, outcome in self.direct.items():
            if outcome.word == FAILED and self.gateway.get(test, outcome).word == FAILED:
                lines.append(f"  fails both ways  {test}: {outcome.detail}")
        return "\n".join(lines)


def differences(direct: Mapping[str, Outcome], gateway: Mapping[str, Outcome]) -> list[Difference]:
    """The tests that did not end with the same word, in the order of the direct run."""
    found = []
    for test in dict.fromkeys([*direct, *gateway]):
        one, other = direct.get(test, Outcome(MISSING)), gateway.get(test, Outcome(MISSING))
        if one.word != other.word:
            found.append(Difference(test, one, other))
    return found


def is_flaky(direct: Sequence[Outcome], gateway: Sequence[Outcome]) -> bool:
    """Whether a test that differed is uncertain in itself, by its outcomes in the same runs of both sides.

    It is where it has not always passed directly either, and has once ended the same way on both sides.
    """
    always_passed = all(outcome.word == PASSED for outcome in direct)
    agreed = {outcome.word for outcome in direct} & {outcome.word for outcome in gateway}
    return bool(agreed) and not always_passed


def was_once(direct: Sequence[Outcome], gateway: Sequence[Outcome]) -> bool:
    """Whether a test that differed in the first of these runs, of both sides, passed in all others on both.

    The first is of the whole suite, both sides at a time; a machine busy with it lets time limits of a test pass that say nothing of the
    gateway (amqp091-go waits 200 ms for 3.7 MB).
    """
    return all(outcome.word == PASSED for outcome in [*direct[1:], *gateway[1:]])
