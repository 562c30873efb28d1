"""A line gives what stands first and is due, and knows what has to go behind something else."""

from __future__ import annotations

import pytest

from gateway.pipeline.parts import PLAIN, REQUEST, Part
from gateway.waiting.line import Line
from limiter.limits import NEVER


@pytest.fixture
def line() -> Line:
    return Line(1)


def requests(line: Line, *dues: tuple[int, int]) -> list[Part]:
    """Held requests: (due, count)."""
    found = [Part(REQUEST, 1, b"", 0, 0, None, count, 1) for _, count in dues]
    for part, (due, _) in zip(found, dues, strict=True):
        part.begin_hold().due = due
        line.parts.append(part)
    return found


def test_what_stands_first_and_is_due_is_taken_as_far_as_there_is_room(line: Line) -> None:
    assert line.due() == NEVER
    first, second, third = requests(line, (5, 3), (7, 4), (8, 1))
    parts: list[Part] = []
    assert (line.due(), line.take(4, 10, parts), parts) == (5, 10, [])
    assert (line.take(7, 3, parts), parts, line.taken) == (0, [first], 1)
    assert (line.take(7, 10, parts), parts, line.taken) == (6, [first, second], 2)
    assert (line.waits(), line.due()) == (False, 8), "what is settled meanwhile goes on, but for what is held anew"
    line.returned.append(second)
    assert line.waits()
    line.taken = 0
    assert line.waits()
    assert line.forget_held() == [second, third]
    assert not line.waits()


def test_what_waits_for_what_was_before_it_alone_is_not_judged(line: Line) -> None:
    """Due at 0: a method, and a request that has passed."""
    first, paid = requests(line, (0, 1), (0, 1))
    paid.paid = True
    line.parts.append(Part(PLAIN, 1, b"", 0, 0))
    parts: list[Part] = []
    line.take(1, 10, parts)
    assert parts == [first]
    line.parts[0].begin_hold().due = 1
    line.take(1, 10, parts)
    assert parts == [first, paid], "unless it is made due"
