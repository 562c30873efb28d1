"""The due queue gives heads in the order they are due, whatever has led and given way before."""

from __future__ import annotations

import random

import pytest

from gateway.protocols.due_queue import DueQueue, HeldRequest
from gateway.protocols.rocketmq.requests import Poll
from limiter.limits import NEVER


def led(queue: DueQueue, *dues: int) -> list[HeldRequest]:
    requests: list[HeldRequest] = [Poll(b"", 0, 0, 11, 0, None, limited=True) for _ in dues]
    for request, due in zip(requests, dues, strict=True):
        request.due = due
        queue.number(request)
        queue.lead(request)
    return requests


def test_an_empty_queue_is_never_due() -> None:
    queue = DueQueue()
    assert queue.next_due == NEVER
    assert repr(queue) == "<DueQueue 0 heads, next due never>"


def test_heads_are_taken_by_due_time_and_in_the_order_of_coming_where_they_are_due_together() -> None:
    queue = DueQueue()
    late, early, together = led(queue, 9, 3, 3)
    assert (queue.next_due, repr(queue)) == (3, "<DueQueue 3 heads, next due 3>")
    assert [queue.take(), queue.take(), queue.take()] == [early, together, late]
    assert queue.next_due == NEVER


def test_a_head_that_gives_way_is_not_due_any_more() -> None:
    queue = DueQueue()
    early, late = led(queue, 3, 9)
    queue.give_way(early)
    assert (queue.next_due, queue.leads(early), queue.leads(late)) == (9, False, True)
    queue.give_way(early)  # which leads nothing: no harm
    assert queue.take() is late


def test_a_head_that_leads_again_keeps_its_number_and_is_due_at_its_new_time() -> None:
    queue = DueQueue()
    (head,) = led(queue, 3)
    queue.give_way(head)
    number, head.due = head.order, 7
    queue.number(head)
    queue.lead(head)
    assert (head.order, queue.next_due) == (number, 7)
    assert queue.take() is head
    assert queue.next_due == NEVER


def test_nothing_is_left_of_a_cleared_queue() -> None:
    queue = DueQueue()
    requests = led(queue, 3, 9)
    queue.clear()
    assert (queue.next_due, [queue.leads(request) for request in requests]) == (NEVER, [False, False])


@pytest.mark.parametrize("seed", range(20))
def test_it_agrees_with_a_look_at_every_head(seed: int) -> None:
    chance = random.Random(seed)
    queue = DueQueue()
    heads: list[HeldRequest] = []
    resting: list[HeldRequest] = []
    for _ in range(400):
        step = chance.choice(["new", "again", "give_way", "take", "take"])
        if step == "new":
            heads.extend(led(queue, chance.randrange(50)))
        elif step == "again" and resting:
            request = resting.pop(chance.randrange(len(resting)))
            request.due = chance.randrange(50)
            queue.lead(request)
            heads.append(request)
        elif step == "give_way" and heads:
            resting.append(heads.pop(chance.randrange(len(heads))))
            queue.give_way(resting[-1])
        elif step == "take" and heads:
            taken = queue.take()
            assert taken is min(heads, key=lambda head: (head.due, head.order))
            heads.remove(taken)
            resting.append(taken)
        assert queue.next_due == min([head.due for head in heads], default=NEVER)
