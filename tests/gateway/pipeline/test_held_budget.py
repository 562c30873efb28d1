"""HeldBudget: what counts against one connection begins at nothing, and is added up."""

from __future__ import annotations

from gateway.pipeline.held_budget import HeldBudget
from limiter.limits import NEVER


def test_a_new_connection_holds_nothing_and_nothing_is_due() -> None:
    budget = HeldBudget()
    assert (budget.next_due, budget.ask_due) == (NEVER, NEVER)
    assert (budget.held_bytes, budget.reply_bytes, budget.parked_bytes, budget.unanswered_bytes, budget.total_bytes()) == (0, 0, 0, 0, 0)
    assert (budget.held_messages, budget.held_polls, budget.parked_messages, budget.waiting()) == (0, 0, 0, 0)
    assert (budget.paged_queues, budget.paging_bytes, budget.paged_bytes) == (0, 0, 0)
    assert (budget.blocking, budget.held_back, budget.frame_left) == (0, False, 0)


def test_what_waits_and_its_bytes_are_added_up() -> None:
    budget = HeldBudget()
    budget.held_messages, budget.held_polls, budget.parked_messages = 1, 20, 300
    budget.held_bytes, budget.parked_bytes, budget.reply_bytes, budget.unanswered_bytes = 1, 20, 300, 4000
    assert (budget.waiting(), budget.total_bytes()) == (321, 4321)


def test_a_client_that_is_held_back_counts_once_among_what_blocks() -> None:
    budget = HeldBudget()
    for yes, blocking in ((True, 1), (True, 1), (False, 0), (False, 0)):
        budget.hold_back(yes=yes)
        assert (budget.held_back, budget.blocking) == (yes, blocking)
