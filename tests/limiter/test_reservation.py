"""Reservations: taken from all levels or none, settled later, first come first served."""

from __future__ import annotations

from dataclasses import replace

import pytest

from limiter.algorithms import OF_RATES
from limiter.decisions.reserve_and_settle import BEHIND_NS, DEBT_NS, GONE_NS
from limiter.judge import Judge
from limiter.keys import Key
from limiter.limits import NEVER
from limiter.request import Request
from limiter.reservation import Overdraft, Refund, Reservation
from support.models import asking
from support.models.asking import SECOND, Limit, Match, Rate, Rule, RuleSet, ask, judge_of, key_of

BEGIN = 5 * SECOND


def per_topic(messages_per_second: int, *, open_for_ns: int = 0, mode: str = "enforce") -> Rule:
    """As a rule for consumers: without a breaker."""
    return asking.per_topic(messages_per_second, open_for_ns=open_for_ns, mode=mode)


def reserve(judge: Judge, key: Key, now: int, messages: int, size: int = 0, since: int = 0) -> Request:
    return again(judge, key, now, Reservation(messages, size, since))


def again(judge: Judge, key: Key, now: int, reservation: Reservation) -> Request:
    request = Request(key, 1, 0, 0)
    request.reservation = reservation
    judge.decide([request], now)
    return request


def settle(judge: Judge, request: Request, now: int, messages: int, size: int = 0, *, answered: bool = True) -> None:
    settlement = Request(request.key, 1 if answered else 0, messages, size)
    settlement.reservation = request.reservation
    judge.decide([settlement], now)


def left(judge: Judge, now: int) -> list[float]:
    return [state.fill for state in judge.states(now)]


def test_the_expected_messages_are_taken_and_the_difference_is_settled() -> None:
    judge = judge_of(per_topic(100))
    key = key_of(judge, "orders")
    first = reserve(judge, key, BEGIN, 40)
    assert (first.passed, left(judge, BEGIN)) == (1, [0.6])
    settle(judge, first, BEGIN, 10)
    assert left(judge, BEGIN) == [0.9]
    second = reserve(judge, key, BEGIN, 40)
    settle(judge, second, BEGIN, 90)
    assert left(judge, BEGIN) == [0.0]
    (state,) = judge.states(BEGIN)
    assert (state.admitted, state.over_limit, state.refused) == (100, 0, 0)
    assert judge.checks() == {"ok": 100, "limited_shadow": 0, "limited_enforced": 0}


def test_a_reservation_over_the_limit_waits_the_true_time_and_spends_nothing() -> None:
    judge = judge_of(per_topic(10))
    key = key_of(judge, "orders")
    reserve(judge, key, BEGIN, 8)
    late = reserve(judge, key, BEGIN, 7)
    assert (late.passed, late.wait_ns) == (0, SECOND // 2)
    assert late.rule is not None
    assert late.reservation is not None
    assert again(judge, key, BEGIN + SECOND // 2 - 1, late.reservation).passed == 0
    assert again(judge, key, BEGIN + SECOND // 2, late.reservation).passed == 1


def test_more_than_a_bucket_holds_needs_a_full_one_and_is_paid_off_in_full() -> None:
    judge = judge_of(per_topic(5))
    key = key_of(judge, "orders")
    assert reserve(judge, key, BEGIN, 32).passed == 1
    assert reserve(judge, key, BEGIN, 32).wait_ns == 32 * SECOND // 5


@pytest.mark.parametrize("messages", [0, 1])
def test_nothing_expected_passes_unless_there_is_a_debt(messages: int) -> None:
    judge = judge_of(per_topic(10))
    key = key_of(judge, "orders")
    settle(judge, reserve(judge, key, BEGIN, messages), BEGIN, 30)
    assert reserve(judge, key, BEGIN, 0).wait_ns == 2 * SECOND
    assert reserve(judge, key, BEGIN + 2 * SECOND, 0).passed == 1


def test_a_debt_that_nobody_asked_for_is_bounded_in_time() -> None:
    judge = judge_of(per_topic(10))
    key = key_of(judge, "orders")
    settle(judge, reserve(judge, key, BEGIN, 0), BEGIN, 1_000_000)
    assert reserve(judge, key, BEGIN, 0).wait_ns == DEBT_NS
    settle(judge, reserve(judge, key, BEGIN + DEBT_NS, 0), BEGIN + DEBT_NS, 5)
    assert ask(judge, key, BEGIN + DEBT_NS).wait_ns == SECOND * 6 // 10, (
        "five owed, and the one asked for: a debt within the bound is owed in full"
    )


def test_a_debt_made_by_reserving_is_not_forgiven_by_a_later_settlement() -> None:
    judge = judge_of(per_topic(1))
    key = key_of(judge, "orders")
    first = reserve(judge, key, BEGIN, 32)
    settle(judge, first, BEGIN, 33)
    assert ask(judge, key, BEGIN).wait_ns == 32 * SECOND, "31 owed, and the one asked for; the one beyond was forgiven"


def test_a_reservation_is_given_back_while_its_answer_is_missing_and_never_beyond_a_full_bucket() -> None:
    judge = judge_of(per_topic(10))
    key = key_of(judge, "orders")
    request = reserve(judge, key, BEGIN, 10)
    later = BEGIN + SECOND // 2
    settle(judge, request, later, 0, answered=False)
    assert left(judge, later) == [1.0]
    assert judge.states(later)[0].admitted == 0
    settle(judge, request, later, 4)
    assert (left(judge, later), judge.states(later)[0].admitted) == ([0.6], 4)


def test_bytes_are_reserved_and_settled_likewise() -> None:
    judge = judge_of(Rule("bytes", limit=Limit(bytes=Rate(1000)), open_for_ns=0))
    key = key_of(judge, "orders")
    settle(judge, reserve(judge, key, BEGIN, 32, 500), BEGIN, 3, 1200)
    assert reserve(judge, key, BEGIN, 1, 0).wait_ns == SECOND // 5
    assert judge.states(BEGIN)[0].admitted_bytes == 1200


def test_a_rate_of_zero_lets_nothing_pass_not_even_nothing() -> None:
    judge = judge_of(per_topic(0))
    request = reserve(judge, key_of(judge, "orders"), BEGIN, 0)
    assert (request.passed, request.wait_ns) == (0, NEVER)


def test_settling_never_opens_a_breaker_and_an_open_one_is_waited_for() -> None:
    judge = judge_of(per_topic(10, open_for_ns=SECOND))
    key = key_of(judge, "orders")
    settle(judge, reserve(judge, key, BEGIN, 0), BEGIN, 15)
    assert judge.states(BEGIN)[0].breaker == "closed"
    assert reserve(judge, key, BEGIN, 1).wait_ns == SECOND, "0.6 s by the bucket alone"
    assert judge.states(BEGIN)[0].breaker == "open"


def test_a_reservation_that_no_rule_is_for_passes_and_its_settlement_is_counted_nowhere() -> None:
    judge = judge_of()
    request = reserve(judge, key_of(judge, "orders"), BEGIN, 32)
    settle(judge, request, BEGIN, 32)
    assert request.passed == 1
    assert judge.checks() == {"ok": 0, "limited_shadow": 0, "limited_enforced": 0}


def test_a_reservation_is_settled_where_it_was_taken_whatever_rules_hold_by_then() -> None:
    judge = judge_of(per_topic(10))
    key = key_of(judge, "orders")
    request = reserve(judge, key, BEGIN, 10)
    judge.replace(RuleSet((per_topic(20),)), BEGIN)
    settle(judge, request, BEGIN, 5)
    assert left(judge, BEGIN) == [0.25], "empty in proportion, and five given back of twenty"
    judge.replace(RuleSet(()), BEGIN)
    settle(judge, request, BEGIN, 5)
    assert judge.states(BEGIN) == []


# ---- more than one level -----------------------------------------------------------------------------------------------


def both(topic: int, client: int) -> Judge:
    return judge_of(per_topic(topic), Rule("clients", per="client", limit=Limit(messages=Rate(client)), open_for_ns=0))


def test_all_levels_or_none() -> None:
    judge = both(100, 10)
    key = key_of(judge, "orders")
    reserve(judge, key, BEGIN, 8)
    refused = reserve(judge, key, BEGIN, 8)
    assert refused.bucket is not None
    assert (refused.passed, refused.bucket.effective.per) == (0, "client")
    assert sorted(left(judge, BEGIN)) == [0.2, 0.92]


def test_shadow_levels_count_what_they_would_have_kept() -> None:
    judge = judge_of(per_topic(10, mode="shadow"))
    key = key_of(judge, "orders")
    first, second = reserve(judge, key, BEGIN, 10), reserve(judge, key, BEGIN, 10)
    assert (first.passed, first.shadow_refused) == (1, 0)
    assert (second.passed, second.shadow_refused) == (1, 1)
    settle(judge, first, BEGIN, 10)
    settle(judge, second, BEGIN, 7)
    (state,) = judge.states(BEGIN)
    assert (state.admitted, state.shadow_refused, state.fill) == (10, 7, 0.0)
    assert judge.checks() == {"ok": 10, "limited_shadow": 7, "limited_enforced": 0}


# ---- first come, first served ------------------------------------------------------------------------------------------


def test_no_younger_reservation_passes_the_one_that_has_waited_longest() -> None:
    judge = judge_of(per_topic(10))
    key, other = key_of(judge, "orders"), key_of(judge, "orders", client="10.0.0.2")
    reserve(judge, key, BEGIN, 10)
    old = reserve(judge, key, BEGIN, 10)
    assert old.reservation is not None
    young = reserve(judge, other, BEGIN + SECOND // 5, 1)
    assert (young.passed, young.wait_ns) == (0, SECOND * 4 // 5), "there is a token for it, but not its turn before the older one's"
    assert young.reservation is not None
    again(judge, key, BEGIN + 3 * SECOND // 5, old.reservation)
    assert again(judge, other, BEGIN + 3 * SECOND // 5, young.reservation).passed == 0
    assert again(judge, key, BEGIN + SECOND, old.reservation).passed == 1
    assert again(judge, other, BEGIN + SECOND * 11 // 10, young.reservation).passed == 1


def test_a_reservation_that_waits_only_for_an_older_one_that_may_pass_asks_again_soon() -> None:
    judge = judge_of(per_topic(10))
    key, other = key_of(judge, "orders"), key_of(judge, "orders", client="10.0.0.2")
    reserve(judge, key, BEGIN, 10)
    reserve(judge, key, BEGIN, 2)
    young = reserve(judge, other, BEGIN + SECOND // 5, 1)
    assert (young.passed, young.wait_ns) == (0, BEHIND_NS), "the older one has not asked since it may"


def test_a_reservation_that_is_no_longer_asked_for_keeps_no_other_waiting() -> None:
    judge = judge_of(per_topic(10))
    key = key_of(judge, "orders")
    reserve(judge, key, BEGIN, 10)
    reserve(judge, key, BEGIN, 10)
    assert reserve(judge, key, BEGIN + GONE_NS, 1).passed == 0
    assert reserve(judge, key, BEGIN + GONE_NS + 1, 1).passed == 1


def test_a_reservation_asked_for_anew_keeps_the_place_of_the_earlier_one() -> None:
    judge = judge_of(per_topic(10))
    key = key_of(judge, "orders")
    reserve(judge, key, BEGIN, 10)
    old = reserve(judge, key, BEGIN, 10)
    young = reserve(judge, key, BEGIN + 1, 10)
    assert old.reservation is not None
    assert young.reservation is not None
    renewed = Reservation(10, 0, old.reservation.since)
    assert again(judge, key, BEGIN + 3 * SECOND // 5, renewed).passed == 0
    assert again(judge, key, BEGIN + SECOND, young.reservation).passed == 0
    assert again(judge, key, BEGIN + SECOND, renewed).passed == 1


def test_a_reservation_that_waits_for_its_client_holds_up_no_other_at_the_topic() -> None:
    judge = both(10, 10)
    one, other = key_of(judge, "orders"), key_of(judge, "orders", client="10.0.0.2")
    ask(judge, key_of(judge, "mail"), BEGIN, count=10)
    ask(judge, one, BEGIN, count=1)
    ask(judge, other, BEGIN, count=10)
    kept = reserve(judge, one, BEGIN, 4)
    assert kept.reservation is not None
    now = BEGIN + SECOND // 4
    ask(judge, key_of(judge, "mail"), now, count=3)
    assert again(judge, one, now + SECOND // 5, kept.reservation).passed == 0
    assert reserve(judge, other, now + SECOND // 5, 1).passed == 1


def test_a_rule_of_another_group_is_not_touched() -> None:
    judge = judge_of(Rule("slow", match=Match(topic="orders", operation="consume"), limit=Limit(messages=Rate(1))))
    assert reserve(judge, key_of(judge, "orders"), BEGIN, 99).passed == 1, "that is for who produces"
    assert reserve(judge, key_of(judge, "orders", operation="consume"), BEGIN, 99).passed == 1
    assert reserve(judge, key_of(judge, "orders", operation="consume"), BEGIN, 1).passed == 0


def test_a_reservation_from_before_the_clock_was_set_back_keeps_no_other_waiting() -> None:
    judge = judge_of(per_topic(10))
    key = key_of(judge, "orders")
    reserve(judge, key, 3600 * SECOND, 10)
    assert reserve(judge, key, 3600 * SECOND, 10).passed == 0  # it waits first, and goes away
    assert reserve(judge, key, SECOND, 0).passed == 1


# ---- overdrafts ----------------------------------------------------------------------------------------------------------


def overdraw(judge: Judge, key: Key, now: int, count: int, overdraft: Overdraft) -> Request:
    request = Request(key, count, 1, 5)
    request.reservation = overdraft
    judge.decide([request], now)
    return request


@pytest.mark.parametrize("algorithm", sorted(set(OF_RATES) - {"warm_up"}))
def test_an_overdraft_passes_at_once_is_charged_in_full_and_keeps_the_next_waiting(algorithm: str) -> None:
    rule = replace(per_topic(10), algorithm=algorithm, limit=Limit(messages=Rate(10)))
    judge = judge_of(rule)
    key = key_of(judge, "orders")
    first = Overdraft()
    assert overdraw(judge, key, BEGIN, 500, first).passed == 500
    assert overdraw(judge, key, BEGIN, 510, first).passed == 510  # the rest of the same consumer, however much
    assert ask(judge, key, BEGIN + 90 * SECOND).passed == 0
    second = Overdraft()
    refused = overdraw(judge, key, BEGIN, 10, second)
    assert (refused.passed, refused.rule, second.taken) == (0, rule, False)
    assert 85 * SECOND <= refused.wait_ns <= 101 * SECOND - DEBT_NS
    assert overdraw(judge, key, BEGIN + refused.wait_ns - 1, 10, second).passed == 0
    assert overdraw(judge, key, BEGIN + refused.wait_ns, 10, second).passed == 10
    (state,) = judge.states(BEGIN)
    assert state.admitted == 1020


def test_what_fits_is_no_overdraft() -> None:
    judge = judge_of(per_topic(100))
    key = key_of(judge, "orders")
    assert overdraw(judge, key, BEGIN, 100, Overdraft()).passed == 100
    assert overdraw(judge, key, BEGIN, 1001, Overdraft()).passed == 1001  # nothing was owed
    assert overdraw(judge, key, BEGIN, 1, Overdraft()).wait_ns == SECOND // 100
    assert overdraw(judge, key, BEGIN + SECOND // 100, 1, Overdraft()).passed == 1


def test_an_overdraft_at_a_rate_of_nothing_is_never_paid_until_the_rate_changes() -> None:
    judge = judge_of(per_topic(0))
    key = key_of(judge, "orders")
    assert overdraw(judge, key, BEGIN, 100, Overdraft()).passed == 100
    assert overdraw(judge, key, BEGIN + 1000 * SECOND, 1, Overdraft()).wait_ns > NEVER // 2
    judge.replace(RuleSet((per_topic(10),)))
    assert overdraw(judge, key, BEGIN + 1000 * SECOND, 1, Overdraft()).passed == 1


def test_what_has_passed_already_is_charged_by_the_next_decision() -> None:
    judge = judge_of(per_topic(10))
    key = key_of(judge, "orders")
    owed = Request(key, 30, 1, 5)
    owed.reservation = Overdraft(taken=True)
    judge.owe(owed)
    assert ask(judge, key, BEGIN).passed == 0
    assert ask(judge, key, BEGIN + 2 * SECOND).passed == 0
    assert ask(judge, key, BEGIN + 2 * SECOND + SECOND // 10).passed == 1


def test_bytes_alone_are_settled() -> None:
    judge = judge_of(Rule("topics", limit=Limit(bytes=Rate(1000)), open_for_ns=0))
    key = key_of(judge, "orders")
    for taken, found, fill in ((500, 400, 0.6), (100, 101, 0.499)):
        request = reserve(judge, key, BEGIN, 1, taken)
        settle(judge, request, BEGIN, 1, found)
        assert left(judge, BEGIN) == [pytest.approx(fill)]


def test_whoever_passes_out_of_line_leaves_the_line_as_it_is() -> None:
    """A small one that came before passes while the first in the line waits for more."""
    judge = judge_of(per_topic(100))
    key = key_of(judge, "orders")
    assert reserve(judge, key, BEGIN, 60).passed
    large = reserve(judge, key, BEGIN + 2, 90)
    assert not large.passed
    assert reserve(judge, key, BEGIN + 3, 10, since=BEGIN + 1).passed, "it came before"
    late = reserve(judge, key, BEGIN + 4, 10)
    assert not late.passed, "the first in the line is still kept for"


@pytest.mark.parametrize(("empty", "full", "refused"), [(1, 0, 491), (1, 1, 491), (1, 3, 491), (0, 1, 0)])
def test_a_limit_on_gets_that_is_only_tried_has_nothing_back_for_what_it_would_have_refused(empty: int, full: int, refused: int) -> None:
    """A hundred times a second, for 5 s: so many of an empty queue, and so many that bring a message. `refused`: of the empty ones."""
    limit = Limit(messages=Rate(1), messages_burst=5 if empty else 1)
    judge = judge_of(Rule("gets", Match(operation="get"), per="client", limit=limit, mode="shadow", action="delay"))
    key = key_of(judge, "x", operation="get")
    found = 0
    for now in range(BEGIN, BEGIN + 5 * SECOND, SECOND // 100):
        found += sum(ask(judge, key, now).shadow_refused for _ in range(empty))
        for _ in range(full):
            brought = ask(judge, key, now).shadow_refused
            found += 0 if empty else brought
            request = Request(key, 1, 1, 0)
            request.reservation = Refund()
            judge.owe(request)
    assert found == refused
