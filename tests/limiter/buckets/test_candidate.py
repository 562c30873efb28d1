"""The candidate of a rule: judged beside the enforced limit, counted, never enforced."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.buckets.candidate import CLIENTS_KEPT, CandidateCounts
from limiter.judge import Judge
from limiter.limits import LimitChange, as_change
from limiter.quota_snapshot import Quota
from limiter.request import Request
from limiter.reservation import Reservation
from limiter.rules.rule_set import Override
from limiter.topics import rocketmq_topic
from support.models.asking import SECOND, Limit, Match, Rate, Rule, RuleSet, ask, judge_of, key_of, per_topic

BEGIN = 5 * SECOND
some_rates = st.none() | st.builds(Rate, st.sampled_from([0, 1, 7, 100, 2000]))
some_limits = st.builds(
    Limit, messages=some_rates, bytes=some_rates, messages_burst=st.none() | st.integers(1, 30), burst_ns=st.none() | st.just(2 * SECOND)
).filter(lambda limit: not limit.limits_nothing())
ORDERS = rocketmq_topic(b"orders")


def tried(messages: int) -> LimitChange:
    return LimitChange(messages=Rate(messages))


def counted(judge: Judge, rule: str = "topics", now: int = BEGIN) -> tuple[int, int]:
    """(admitted, refused) by the rule's candidate, over all its buckets."""
    counts = judge.candidates(now)[rule]
    return counts.admitted, counts.refused


def of_levels(judge: Judge, now: int = BEGIN) -> list[tuple[int, int]]:
    return [(state.candidate.admitted, state.candidate.refused) for state in judge.states(now) if state.candidate is not None]


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
@pytest.mark.parametrize(("limit", "candidate"), [(10, 3), (3, 10), (5, 5)])
def test_the_candidate_sees_all_demand_and_changes_no_verdict(mode: str, limit: int, candidate: int) -> None:
    plain = judge_of(per_topic(limit, mode=mode))
    judge = judge_of(per_topic(limit, mode=mode, candidate=tried(candidate)))
    for now in (BEGIN, BEGIN + SECOND // 2, BEGIN + 4 * SECOND):
        asked = ask(judge, key_of(judge, "orders"), now, count=12)
        alone = ask(plain, key_of(plain, "orders"), now, count=12)
        assert (asked.passed, asked.wait_ns, asked.shadow_refused) == (alone.passed, alone.wait_ns, alone.shadow_refused)
    admitted, refused = counted(judge)
    assert admitted + refused == 36
    assert of_levels(judge) == [(admitted, refused)]


def test_it_admits_what_it_would_admit_if_it_were_the_limit() -> None:
    judge = judge_of(per_topic(1000, candidate=tried(3)))
    alone = judge_of(per_topic(3))
    passed = 0
    for step in range(40):
        now = BEGIN + step * SECOND // 7
        ask(judge, key_of(judge, "orders"), now, count=2)
        passed += ask(alone, key_of(alone, "orders"), now, count=2).passed
    assert counted(judge) == (passed, 80 - passed)


@settings(max_examples=80, deadline=None)
@given(
    limit=some_limits,
    candidate=some_limits,
    open_for_ns=st.sampled_from([0, SECOND // 50, SECOND, 3 * SECOND]),
    algorithm=st.sampled_from(["token_bucket", "warm_up"]),
    asks=st.lists(
        st.tuples(st.sampled_from([0, 1, 10_000_000, SECOND // 3, 2 * SECOND]), st.integers(1, 30), st.integers(1, 4)), max_size=12
    ),
)
def test_any_candidate_counts_what_it_would_admit_and_refuse_as_the_limit(
    limit: Limit, candidate: Limit, open_for_ns: int, algorithm: str, asks: list[tuple[int, int, int]]
) -> None:
    def rule(limit: Limit, candidate: LimitChange | None = None) -> Rule:
        return Rule("topics", limit=limit, open_for_ns=open_for_ns, algorithm=algorithm, candidate=candidate)

    whole = as_change(candidate).apply_to(limit)
    judge, alone = judge_of(rule(limit, as_change(candidate))), judge_of(rule(whole))
    now, passed, demand = BEGIN, 0, 0
    for later, count, messages in asks:
        now += later
        ask(judge, key_of(judge, "orders"), now, count=count, messages=messages, size=100)
        passed += ask(alone, key_of(alone, "orders"), now, count=count, messages=messages, size=100).passed * messages
        demand += count * messages
    assert counted(judge, now=now) == (passed, demand - passed)


def test_messages_that_another_level_refuses_are_demand_too() -> None:
    judge = judge_of(per_topic(100, candidate=tried(5)), Rule("clients", per="client", limit=Limit(messages=Rate(0))))
    assert ask(judge, key_of(judge, "orders"), BEGIN, count=7).passed == 0
    assert counted(judge) == (5, 2)


def test_a_held_message_that_is_judged_again_is_seen_once() -> None:
    judge = judge_of(per_topic(2, candidate=tried(1), action="delay"))
    request = ask(judge, key_of(judge, "orders"), BEGIN, count=5)
    request.again = True
    for later in range(1, 4):
        judge.decide([request], BEGIN + later * SECOND)
    assert counted(judge) == (1, 4)


def test_messages_of_a_reservation_are_seen_when_they_have_come() -> None:
    consume = Match(operation="consume")
    judge = judge_of(per_topic(100, match=consume, candidate=tried(20)))
    key = key_of(judge, "orders", operation="consume")
    for brought in (15, 15, 0):
        request = Request(key, 1, 0, 0)
        request.reservation = Reservation(32, 0)
        judge.decide([request], BEGIN)
        assert request.passed == 1
        settlement = Request(key, 1, brought, 0)
        settlement.reservation = request.reservation
        judge.decide([settlement], BEGIN)
    assert counted(judge) == (15, 15)


def test_a_batch_costs_its_messages_and_bytes_count_too() -> None:
    judge = judge_of(per_topic(100, candidate=LimitChange(bytes=Rate(50))))
    ask(judge, key_of(judge, "orders"), BEGIN, count=3, messages=4, size=20)
    assert counted(judge) == (8, 4)


def test_it_has_the_rules_breaker() -> None:
    judge = judge_of(per_topic(100, candidate=tried(10), open_for_ns=SECOND))
    key = key_of(judge, "orders")
    ask(judge, key, BEGIN, count=11)
    ask(judge, key, BEGIN + SECOND // 2, count=1)
    assert counted(judge) == (10, 2)
    ask(judge, key, BEGIN + SECOND, count=1)
    assert counted(judge) == (11, 2)


def test_levels_count_apart_and_their_rule_in_all() -> None:
    judge = judge_of(per_topic(100, candidate=tried(5)))
    for topic, count in (("orders", 8), ("bills", 6)):
        ask(judge, key_of(judge, topic), BEGIN, count=count)
    assert sorted(of_levels(judge)) == [(5, 1), (5, 3)]
    assert counted(judge) == (10, 4)


def test_the_clients_that_would_be_refused_most_are_named_first_and_a_handful_at_most() -> None:
    judge = judge_of(per_topic(1000, candidate=tried(0)))
    for number in range(1, 40):
        ask(judge, key_of(judge, "orders", client=f"10.0.0.{number}"), BEGIN, count=1)
    ask(judge, key_of(judge, "orders", client="10.0.1.7"), BEGIN, count=90)
    for number in range(40, 60):
        ask(judge, key_of(judge, "orders", client=f"10.0.0.{number}"), BEGIN, count=1)
    clients = judge.candidates(BEGIN)["topics"].clients
    assert len(clients) == CLIENTS_KEPT
    assert next(iter(clients)) == "10.0.1.7"
    assert clients["10.0.1.7"] >= 90


def test_no_count_of_a_client_is_too_low_and_they_add_up_to_the_refusals() -> None:
    counts = CandidateCounts(BEGIN)
    true: dict[str, int] = {}
    for step in range(500):
        client = f"c{step * step % 23}"
        refused = step % 5
        true[client] = true.get(client, 0) + refused
        counts.add(1, refused, client, BEGIN)
    assert all(counts.clients[client] >= true[client] for client in counts.clients)
    assert sum(counts.clients.values()) == counts.refused == sum(true.values())


def test_it_counts_since_its_first_message_or_since_it_came_into_force() -> None:
    judge = judge_of(per_topic(100, candidate=tried(5)))
    assert judge.candidates(BEGIN)["topics"].since == -1
    ask(judge, key_of(judge, "orders"), BEGIN)
    assert judge.candidates(BEGIN)["topics"].since == BEGIN
    judge.replace(RuleSet((per_topic(100, candidate=tried(6)),)), BEGIN + SECOND)
    counts = judge.candidates(BEGIN + 2 * SECOND)["topics"]
    assert (counts.since, counts.admitted, counts.refused) == (BEGIN + SECOND, 0, 0)


def test_a_changed_candidate_counts_anew_and_gets_no_free_burst() -> None:
    judge = judge_of(per_topic(100, candidate=tried(10), open_for_ns=0))
    ask(judge, key_of(judge, "orders"), BEGIN, count=10)
    judge.replace(RuleSet((per_topic(100, candidate=tried(20), open_for_ns=0),)), BEGIN)
    ask(judge, key_of(judge, "orders"), BEGIN, count=5)
    assert counted(judge) == (0, 5)
    assert of_levels(judge) == [(0, 5)]


def test_a_live_change_that_is_undone_leaves_the_counts_as_they_were() -> None:
    rules = (per_topic(100, candidate=tried(10), open_for_ns=0),)
    judge = judge_of(*rules)
    ask(judge, key_of(judge, "orders"), BEGIN, count=12)
    judge.replace(RuleSet(rules, overrides={ORDERS: Override(messages=Rate(50))}), BEGIN)
    ask(judge, key_of(judge, "orders"), BEGIN, count=5)
    assert of_levels(judge) != [(10, 2)]
    judge.replace(RuleSet(rules), BEGIN)
    key_of(judge, "orders")
    ask(judge, key_of(judge, "orders"), BEGIN, count=1)
    (admitted, refused) = of_levels(judge)[0]
    assert admitted + refused == 13, "as before, and one more"


def test_an_unchanged_candidate_goes_on_over_a_reload() -> None:
    judge = judge_of(per_topic(100, candidate=tried(10)))
    ask(judge, key_of(judge, "orders"), BEGIN, count=12)
    judge.replace(RuleSet((per_topic(100, candidate=tried(10)), Rule("more", per="client", limit=Limit(messages=Rate(9))))), BEGIN)
    ask(judge, key_of(judge, "orders"), BEGIN, count=1)
    assert counted(judge) == (10, 3)
    assert of_levels(judge) == [(10, 3)]


def test_a_removed_candidate_is_gone_and_a_new_one_starts_to_count() -> None:
    judge = judge_of(per_topic(100))
    key = key_of(judge, "orders")
    ask(judge, key, BEGIN, count=50)
    assert judge.candidates(BEGIN) == {}
    judge.replace(RuleSet((per_topic(100, candidate=tried(10)),)), BEGIN)
    ask(judge, key, BEGIN, count=12)
    assert of_levels(judge) == [(10, 2)]
    judge.replace(RuleSet((per_topic(100),)), BEGIN)
    ask(judge, key, BEGIN, count=12)
    assert (of_levels(judge), judge.candidates(BEGIN)) == ([], {})


def test_the_counts_of_a_rule_outlive_its_buckets() -> None:
    judge = judge_of(per_topic(100, candidate=tried(0), open_for_ns=0), max_keys=2)
    for number in range(9):
        ask(judge, key_of(judge, f"t{number}"), BEGIN + number * 10 * SECOND)
    assert counted(judge, now=BEGIN + 100 * SECOND) == (0, 9)


# ---- beside live changes and quotas ------------------------------------------------------------------------------------


def limits_of(rules: RuleSet) -> tuple[Limit, Limit | None]:
    (effective,) = rules.effective(ORDERS)
    return effective.rule.limit, effective.rule.candidate_limit()


RULE = Rule("topics", limit=Limit(messages=Rate(500), bytes=Rate(9000), burst_ns=2 * SECOND), candidate=tried(300))


def test_fields_that_a_candidate_does_not_name_are_those_of_the_limit() -> None:
    assert limits_of(RuleSet((RULE,)))[1] == Limit(messages=Rate(300), bytes=Rate(9000), burst_ns=2 * SECOND)


def test_a_live_change_of_the_rule_leaves_the_candidate_as_it_is() -> None:
    rules = RuleSet((RULE,), rule_overrides={"topics": Override(messages=Rate(400), bytes=Rate(7000))})
    assert limits_of(rules)[1] == Limit(messages=Rate(300), bytes=Rate(7000), burst_ns=2 * SECOND)


def test_a_live_change_of_the_rule_may_bring_take_and_replace_a_candidate() -> None:
    replaced = RuleSet((RULE,), rule_overrides={"topics": Override(candidate=tried(200))})
    assert limits_of(replaced) == (RULE.limit, Limit(messages=Rate(200), bytes=Rate(9000), burst_ns=2 * SECOND))
    taken = RuleSet((RULE,), rule_overrides={"topics": Override(candidate=LimitChange())})
    assert (limits_of(taken), taken.has_candidates) == ((RULE.limit, None), False)


def test_a_live_change_of_a_key_holds_over_the_candidate_as_it_would_if_it_were_promoted() -> None:
    rules = RuleSet((RULE,), overrides={ORDERS: Override(messages=Rate(50))})
    held = Limit(messages=Rate(50), bytes=Rate(9000), burst_ns=2 * SECOND)
    assert limits_of(rules) == (held, held)
    rules = RuleSet((RULE,), overrides={ORDERS: Override(bytes=Rate(50))})
    assert limits_of(rules)[1] == Limit(messages=Rate(300), bytes=Rate(50), burst_ns=2 * SECOND)


@pytest.mark.parametrize(
    "changed",
    [
        RuleSet((RULE,), overrides={ORDERS: Override(messages=Rate(50))}),
        RuleSet((RULE,), quotas={ORDERS: Quota("rocketmq", "orders", messages=(70, 90))}),
    ],
)
def test_what_holds_over_a_rule_leaves_its_limit_and_its_candidate_as_they_are_set(changed: RuleSet) -> None:
    (effective,) = changed.effective(ORDERS)
    assert effective.rule.limit != RULE.limit
    assert (effective.ruled, effective.candidate_limit()) == (RULE, RULE.candidate_limit())


def test_the_candidate_of_a_key_is_its_own_and_none_where_the_key_has_none() -> None:
    (own,) = RuleSet((RULE,), overrides={ORDERS: Override(messages=Rate(50), candidate=tried(5))}).effective(ORDERS)
    assert own.candidate_limit() == Limit(messages=Rate(5), bytes=Rate(9000), burst_ns=2 * SECOND)
    (none,) = RuleSet((RULE,), overrides={ORDERS: Override(messages=Rate(50), candidate=LimitChange())}).effective(ORDERS)
    assert none.candidate_limit() is None


def test_a_quota_holds_over_the_candidate() -> None:
    rules = RuleSet((RULE,), quotas={ORDERS: Quota("rocketmq", "orders", messages=(70, 90))})
    limit = Limit(messages=Rate(70), bytes=Rate(9000), messages_burst=90, burst_ns=2 * SECOND)
    assert limits_of(rules) == (limit, limit)


def test_a_key_may_have_a_candidate_of_its_own_which_its_rule_does_not_count() -> None:
    judge = Judge(RuleSet((RULE,), overrides={ORDERS: Override(messages=Rate(50), burst_ns=SECOND, candidate=tried(5))}))
    ask(judge, key_of(judge, "orders"), BEGIN, count=7)
    assert of_levels(judge) == [(5, 2)]
    assert counted(judge) == (0, 0)
    ask(judge, key_of(judge, "others"), BEGIN, count=7)
    assert counted(judge) == (7, 0)


def test_a_keys_candidate_is_left_out_where_its_rule_has_come_to_limit_something_else() -> None:
    """The file may change under a live change; the judge must not fail on it."""
    counting = Rule("topics", limit=Limit(concurrent=4), algorithm="concurrency")
    judge = Judge(RuleSet((counting,), overrides={ORDERS: Override(candidate=tried(5), action="drop")}))
    assert ask(judge, key_of(judge, "orders"), BEGIN, count=6).passed == 4
    assert of_levels(judge) == []
    (state,) = judge.states(BEGIN)
    assert (state.effective.origin, state.effective.rule.action) == ("override", "drop")


def test_repr() -> None:
    judge = judge_of(per_topic(100, candidate=tried(5)))
    ask(judge, key_of(judge, "orders"), BEGIN, count=7)
    assert repr(judge.candidates(BEGIN)["topics"]) == "<CandidateCounts refused=2 of 7>"


def test_merged_counts_begin_when_the_first_of_them_began() -> None:
    counts = CandidateCounts(-1)
    for since, begins in ((7, 7), (9, 7), (3, 3)):
        counts.merge(1, 2, {"10.0.0.1": 2}, since)
        assert counts.since == begins
    assert (counts.admitted, counts.refused, counts.clients) == (3, 6, {"10.0.0.1": 6})
