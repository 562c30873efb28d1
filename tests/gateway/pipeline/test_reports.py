"""The two records a conversation speaks through: what it reports is noticed, what it holds is summed up."""

from __future__ import annotations

import pytest

from gateway.pipeline.held_budget import HeldBudget
from gateway.pipeline.parts import PLAIN, Part
from gateway.pipeline.reports import CONFIRMED, NOT_SAMPLED, SAMPLED, Reports
from limiter.limits import NEVER

PART = Part(PLAIN, 0, b"abc", 0, 3)


def test_a_new_conversation_has_nothing_to_report() -> None:
    reports = Reports()
    assert (reports.unread, reports.broker_blocked, reports.sample) == (False, False, NOT_SAMPLED)
    assert repr(reports) == "<Reports read 0/0/0/0/0>"


@pytest.mark.parametrize("kind", ["give_up", "ask_gateway", "set_blocked", "set_sample"])
def test_each_report_is_noticed(kind: str) -> None:
    reports = Reports()
    if kind == "give_up":
        reports.give_up(PART)
        assert reports.abandoned == [PART]
    elif kind == "ask_gateway":
        reports.ask_gateway(PART)
        assert reports.gateway_requests == [PART]
    elif kind == "set_blocked":
        reports.set_blocked(blocked=True)
        assert reports.broker_blocked
    else:
        reports.set_sample(SAMPLED)
        assert reports.sample == SAMPLED
    assert reports.unread


def test_a_sample_that_has_not_changed_is_no_report() -> None:
    reports = Reports()
    reports.set_sample(SAMPLED)
    reports.unread = False
    reports.set_sample(SAMPLED)
    assert not reports.unread
    reports.set_sample(CONFIRMED)
    assert reports.unread


def test_a_new_budget_is_empty_and_nothing_is_due() -> None:
    budget = HeldBudget()
    assert (budget.waiting(), budget.total_bytes(), budget.blocking) == (0, 0, 0)
    assert budget.next_due == budget.ask_due == NEVER


def test_a_budget_sums_up_what_waits_and_all_bytes() -> None:
    budget = HeldBudget()
    budget.held_messages, budget.held_polls, budget.parked_messages = 1, 20, 300
    budget.held_bytes, budget.reply_bytes, budget.parked_bytes, budget.unanswered_bytes = 1, 20, 300, 4000
    assert (budget.waiting(), budget.total_bytes()) == (321, 4321)
    assert repr(budget) == f"<HeldBudget held=1 parked=300 bytes=4321 due={NEVER}>"
