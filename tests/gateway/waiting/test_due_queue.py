"""The due queue gives lines in the order they are due, whatever has been taken out or moved before."""

from __future__ import annotations

import random

import pytest

from gateway.waiting.due_queue import DueLine, DueQueue
from limiter.limits import NEVER


def lying(queue: DueQueue, *dues: int) -> list[DueLine]:
    lines = [DueLine() for _ in dues]
    for line, due in zip(lines, dues, strict=True):
        queue.set_due(line, due)
    return lines


def test_an_empty_queue_is_never_due() -> None:
    queue = DueQueue()
    assert queue.next_due == NEVER
    assert repr(queue) == "<DueQueue 0 lines, next due never>"


def test_lines_are_taken_by_due_time_and_in_the_order_of_coming_where_they_are_due_together() -> None:
    queue = DueQueue()
    late, early, together = lying(queue, 9, 3, 3)
    assert (queue.next_due, repr(queue)) == (3, "<DueQueue 3 lines, next due 3>")
    assert [queue.take(), queue.take(), queue.take()] == [early, together, late]
    assert queue.next_due == NEVER


def test_a_line_that_is_taken_out_is_not_due_any_more() -> None:
    queue = DueQueue()
    early, late = lying(queue, 3, 9)
    queue.set_due(early, NEVER)
    assert (queue.next_due, early.due_at, late.due_at) == (9, NEVER, 9)
    queue.set_due(early, NEVER)  # which does not lie there: no harm
    assert queue.take() is late


@pytest.mark.parametrize("again", [7, 3, 1])
def test_a_line_that_is_due_at_another_time_keeps_its_number_and_comes_once(again: int) -> None:
    queue = DueQueue()
    (line,) = lying(queue, 3)
    number = line.number
    queue.set_due(line, 5)
    queue.set_due(line, again)
    assert (line.number, queue.next_due) == (number, again)
    assert queue.take() is line
    assert queue.next_due == NEVER


def test_nothing_is_left_of_a_cleared_queue() -> None:
    queue = DueQueue()
    lines = lying(queue, 3, 9)
    queue.clear()
    assert (queue.next_due, [line.due_at for line in lines]) == (NEVER, [NEVER, NEVER])


@pytest.mark.parametrize("seed", range(20))
def test_it_agrees_with_a_look_at_every_line(seed: int) -> None:
    chance = random.Random(seed)
    queue = DueQueue()
    there: list[DueLine] = []
    resting: list[DueLine] = []
    for _ in range(400):
        step = chance.choice(["new", "again", "move", "out", "take", "take"])
        if step == "new":
            there.extend(lying(queue, chance.randrange(50)))
        elif step == "again" and resting:
            there.append(resting.pop(chance.randrange(len(resting))))
            queue.set_due(there[-1], chance.randrange(50))
        elif step == "move" and there:
            queue.set_due(chance.choice(there), chance.randrange(50))
        elif step == "out" and there:
            resting.append(there.pop(chance.randrange(len(there))))
            queue.set_due(resting[-1], NEVER)
        elif step == "take" and there:
            first = min(there, key=lambda line: (line.due_at, line.number))
            taken = queue.take()
            assert taken is first
            there.remove(taken)
            resting.append(taken)
        assert queue.next_due == min([line.due_at for line in there], default=NEVER)
