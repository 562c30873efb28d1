"""The judge: verdicts over all levels, against a brute-force model and in examples."""

from __future__ import annotations

import threading
from array import array
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.buckets.leased_bucket_ref import LeasedBucketRef
from limiter.decisions.origins import KEYS_PER_ORIGIN
from limiter.judge import STATES_PER_SLICE, Judge
from limiter.leases.owner import LeaseOwner
from limiter.limit_state import LimitState
from limiter.limits import NEVER
from limiter.operations import CONSUME
from limiter.quota_snapshot import Quota
from limiter.recent_keys import recent_of_group
from limiter.request import Request
from limiter.rules.hourly_raise import HourlyRaise
from limiter.rules.rule_set import Override
from limiter.topics import TopicName, rocketmq_topic
from support.models.asking import SECOND, Limit, Match, Rate, Rule, RuleSet, ask, judge_of, key_of, orders, per_topic
from support.models.limiter_model import ModelJudge, ModelLevel

BEGIN = 5 * SECOND


def topic_state(judge: Judge, name: TopicName, now: int) -> LimitState | None:
    """The limit in use of one topic, at its own level."""
    return next(filter(None, (judge.state_of(each.identity, now) for each in judge.rules.effective(name) if each.per == "topic")), None)


some_rates = st.none() | st.builds(Rate, st.sampled_from([0, 1, 3, 10, 50, 1000]), st.sampled_from([SECOND, 7 * SECOND]))
some_limits = st.builds(Limit, messages=some_rates, bytes=some_rates, messages_burst=st.none() | st.integers(1, 30)).filter(
    lambda limit: not limit.limits_nothing()
)
some_levels = st.lists(
    st.tuples(some_limits, st.sampled_from([0, SECOND // 100, SECOND, 5 * SECOND]), st.sampled_from(["enforce", "enforce", "shadow"])),
    min_size=1,
    max_size=3,
)
some_asks = st.lists(
    st.tuples(
        st.integers(0, 50_000_000) | st.sampled_from([0, 1, SECOND, 3 * SECOND]),
        st.integers(1, 25),
        st.integers(1, 6),
        st.sampled_from([0, 1, 40, 700]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=250, deadline=None)
@given(levels=some_levels, asks=some_asks, waits=st.booleans())
def test_verdicts_are_those_of_the_brute_force_model(
    levels: list[tuple[Limit, int, str]], asks: list[tuple[int, int, int, int]], waits: bool
) -> None:
    """Runs, levels that add up, breakers, debts, shadows: as many pass as one by one, and every wait is true to the nanosecond."""
    rules = tuple(
        Rule(per, per=per, limit=limit, open_for_ns=open_for_ns, mode=mode)
        for per, (limit, open_for_ns, mode) in zip(("topic", "client", "user"), levels, strict=False)
    )
    judge = Judge(RuleSet(rules))
    key = key_of(judge, "orders")
    model = ModelJudge([ModelLevel(limit, open_for, BEGIN, shadow=mode == "shadow") for limit, open_for, mode in levels])
    now = BEGIN
    hint = 0
    for later, count, messages, size in asks:
        now += hint if waits and 0 < hint < 10**15 else later
        request = ask(judge, key, now, count=count, messages=messages, size=size)
        answers = [model.ask(messages, size, now) for _ in range(count)]
        assert request.passed == sum(passed for passed, _ in answers)
        assert all(passed for passed, _ in answers[: request.passed])
        assert request.shadow_refused == sum(refused for _, refused in answers)
        hint = request.wait_ns
        if request.passed == count:
            assert (request.wait_ns, request.rule) == (0, None)
        else:
            assert request.rule is not None
            if hint < 10**17:
                assert not model.would_pass(messages, size, now + hint - 1)
                assert model.would_pass(messages, size, now + hint)


def test_a_refusal_at_one_level_spends_nothing_at_another() -> None:
    judge = judge_of(per_topic(100, open_for_ns=0), Rule("clients", per="client", limit=Limit(messages=Rate(10))))
    key = key_of(judge, "orders")
    assert ask(judge, key, BEGIN, count=50).passed == 10
    other_client = key_of(judge, "orders", client="10.0.0.2")
    third_client = key_of(judge, "orders", client="10.0.0.3")
    assert ask(judge, other_client, BEGIN, count=10).passed == 10
    assert ask(judge, third_client, BEGIN, count=10).passed == 10
    state = topic_state(judge, rocketmq_topic(b"orders"), BEGIN)
    assert state is not None
    assert (state.admitted, state.over_limit) == (30, 0)  # 40 were refused for their client, none of them charged to the topic


def test_the_rule_named_is_the_one_that_makes_wait_longest() -> None:
    judge = judge_of(
        per_topic(1, open_for_ns=0),
        Rule("clients", per="client", limit=Limit(messages=Rate(1, 10 * SECOND)), open_for_ns=0),
    )
    refused = ask(judge, key_of(judge, "orders"), BEGIN, count=2)
    assert refused.passed == 1
    assert refused.rule is not None
    assert (refused.rule.name, refused.wait_ns) == ("clients", 10 * SECOND)
    assert refused.bucket is not None
    assert refused.bucket.owner_text() == "client 10.0.0.1"


@pytest.mark.parametrize(
    ("per", "whose"),
    [
        ("topic", "%2F/orders/order.1"), ("exchange", "exchange %2F/orders"), ("vhost", "vhost %2F"), ("listener", "listener tcp"),
        ("client", "client 10.0.0.1"), ("user", "user shop"), ("connection", "connection 17"), ("rule", "rule r"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_owner_of_the_empty_bucket(per: str, whose: str) -> None:
    judge = judge_of(Rule("r", Match(protocol="amqp"), per=per, limit=Limit(messages=Rate(1)), open_for_ns=0))
    origin = judge.origin("amqp", "tcp", "10.0.0.1", "shop", b"/", 17)
    name = orders(routing_key=b"order.1")
    refused = ask(judge, judge.key(origin, b"raw", name), BEGIN, count=2)
    assert refused.bucket is not None
    assert refused.bucket.owner_text() == whose


def test_the_buckets_of_clients_without_a_user_and_of_the_overflow_are_named_as_such() -> None:
    judge = Judge(RuleSet((Rule("r", per="user", limit=Limit(messages=Rate(1))),)), 1)
    for user, whose in ((None, "whoever has no user"), ("shop", "the overflow bucket per user")):
        origin = judge.origin("rocketmq", "tcp", "10.0.0.1", user)
        refused = ask(judge, judge.key(origin, b"raw", rocketmq_topic(b"orders")), BEGIN, count=2)
        assert refused.bucket is not None
        assert refused.bucket.owner_text() == whose


def test_messages_that_no_rule_matches_pass() -> None:
    judge = judge_of(per_topic(1, match=Match(topic="other")))
    assert ask(judge, key_of(judge, "orders"), BEGIN, count=10**6).passed == 10**6
    assert ask(judge, None, BEGIN, count=7).passed == 7


def test_a_batch_costs_its_messages() -> None:
    judge = judge_of(per_topic(100))
    assert ask(judge, key_of(judge, "orders"), BEGIN, count=10, messages=32).passed == 3


def test_a_verdict_is_written_anew_each_time() -> None:
    judge = judge_of(per_topic(1))
    request = Request(key_of(judge, "orders"), 2, 1, 0)
    request.bypassed = True
    judge.decide([request], BEGIN)
    assert (request.passed, request.bypassed, request.rule is None) == (1, False, False)
    request.count = 1
    judge.decide([request], BEGIN + SECOND)
    assert (request.passed, request.wait_ns, request.rule) == (1, 0, None)


def test_zero_refuses_everything() -> None:
    judge = judge_of(per_topic(0))
    refused = ask(judge, key_of(judge, "orders"), BEGIN)
    assert (refused.passed, refused.wait_ns) == (0, NEVER)


def test_a_wait_beyond_146_years_is_never() -> None:
    judge = Judge(RuleSet((Rule("topics", limit=Limit(bytes=Rate(1, 86_400 * SECOND))),)))
    key = key_of(judge, "orders")
    assert ask(judge, key, BEGIN, size=10**9).passed == 1  # into debt: more than a full bucket is
    refused = ask(judge, key, BEGIN, size=1)
    assert (refused.passed, refused.wait_ns) == (0, NEVER)


def test_shadow_counts_and_never_refuses() -> None:
    judge = judge_of(per_topic(10, mode="shadow"))
    request = ask(judge, key_of(judge, "orders"), BEGIN, count=25)
    assert (request.passed, request.shadow_refused, request.rule) == (25, 15, None)
    state = topic_state(judge, rocketmq_topic(b"orders"), BEGIN)
    assert state is not None
    assert (state.admitted, state.over_limit, state.shadow_refused, state.breaker) == (10, 0, 15, "open")


def test_a_shadow_rule_does_not_count_what_the_rule_before_it_has_counted() -> None:
    """Regression: a rule just added showed what the one before it would have refused, as a topic's bucket goes on from rule to rule."""
    judge = judge_of(per_topic(10, mode="shadow"))
    ask(judge, key_of(judge, "orders"), BEGIN, count=25)
    before = topic_state(judge, rocketmq_topic(b"orders"), BEGIN)
    judge.replace(RuleSet((replace(per_topic(10, mode="shadow"), name="another"),)), BEGIN)
    state = topic_state(judge, rocketmq_topic(b"orders"), BEGIN)
    assert before is not None
    assert state is not None
    assert (before.would_refuse, state.would_refuse, state.shadow_refused) == (15, 0, 15)
    ask(judge, key_of(judge, "orders"), BEGIN, count=5)
    after = topic_state(judge, rocketmq_topic(b"orders"), BEGIN)
    assert after is not None
    assert after.would_refuse == 5


def test_a_shadow_sees_what_the_enforced_levels_let_pass() -> None:
    judge = judge_of(per_topic(10), Rule("all", per="rule", limit=Limit(messages=Rate(8)), mode="shadow"))
    request = ask(judge, key_of(judge, "orders"), BEGIN, count=25)
    assert (request.passed, request.shadow_refused) == (10, 2)


def test_off_exempts() -> None:
    judge = judge_of(Rule("vip", match=Match(topic="vip"), mode="off"), per_topic(1))
    assert ask(judge, key_of(judge, "vip"), BEGIN, count=1000).passed == 1000
    assert ask(judge, key_of(judge, "orders"), BEGIN, count=1000).passed == 1


@pytest.mark.parametrize(
    ("per", "same", "other"),
    [
        ("topic", {"listener": "vip", "client": "10.9.9.9", "user": "u"}, {"topic": "b"}),
        ("client", {"topic": "b", "listener": "vip"}, {"client": "10.0.0.2"}),
        ("user", {"topic": "b", "client": "10.0.0.2"}, {"user": "bob"}),
        ("listener", {"topic": "b", "client": "10.0.0.2"}, {"listener": "vip"}),
        ("rule", {"topic": "b", "client": "10.0.0.2", "listener": "vip", "user": "u"}, None),
    ],
)
def test_per_says_what_shares_a_bucket(per: str, same: dict[str, str], other: dict[str, str] | None) -> None:
    judge = judge_of(Rule("r", per=per, limit=Limit(messages=Rate(10))))
    ask(judge, key_of(judge, topic="a"), BEGIN, count=10)
    assert ask(judge, key_of(judge, **({"topic": "a"} | same)), BEGIN).passed == 0
    if other is not None:
        assert ask(judge, key_of(judge, **({"topic": "a"} | other)), BEGIN).passed == 1


def test_a_new_limit_holds_from_the_next_batch_and_keeps_the_fill() -> None:
    judge = judge_of(per_topic(1000, open_for_ns=0))
    key = key_of(judge, "orders")
    assert ask(judge, key, BEGIN, count=750).passed == 750
    judge.replace(RuleSet((per_topic(100, open_for_ns=0),)))
    assert ask(judge, key, BEGIN, count=1000).passed == 25


def test_a_new_limit_counts_from_the_moment_it_came_into_force_however_long_nobody_asks() -> None:
    judge = judge_of(per_topic(0, open_for_ns=0))
    key = key_of(judge, "orders")
    assert ask(judge, key, BEGIN, count=10).passed == 0
    judge.replace(RuleSet((per_topic(100, open_for_ns=0),)), BEGIN + SECOND)
    assert ask(judge, key, BEGIN + SECOND + SECOND // 2, count=100).passed == 50
    late = judge_of(per_topic(0, open_for_ns=0))
    key = key_of(late, "orders")
    assert ask(late, key, BEGIN, count=10).passed == 0
    late.replace(RuleSet((per_topic(100, open_for_ns=0),)), BEGIN + SECOND)
    assert ask(late, key, BEGIN + SECOND // 2, count=10).passed == 0, "a submission of before that"
    assert ask(late, key, BEGIN + SECOND, count=100).passed == 50


def test_making_room_credits_no_time_twice() -> None:
    """A level that is looked at, not taken from, between a change of rules and its next use."""

    def rules(rate: Rate) -> RuleSet:
        return RuleSet((Rule("r", limit=Limit(messages=rate, messages_burst=100), open_for_ns=0),))

    judge = Judge(rules(Rate(30, 60 * SECOND)), 1)
    orders, other = (key_of(judge, topic) for topic in ("orders", "other"))
    assert ask(judge, orders, BEGIN, count=100).passed == 100
    judge.replace(rules(Rate(1)), BEGIN)
    ask(judge, other, BEGIN + 4 * SECOND)  # looks whether the first is full, to take its place
    assert ask(judge, orders, BEGIN + 4 * SECOND, count=100).passed == 4


def test_raising_the_limit_closes_an_open_breaker() -> None:
    judge = judge_of(per_topic(10, open_for_ns=SECOND))
    key = key_of(judge, "orders")
    assert ask(judge, key, BEGIN, count=20).passed == 10
    judge.replace(RuleSet((per_topic(1000, open_for_ns=SECOND),)))
    assert ask(judge, key, BEGIN).passed == 0  # still empty: no free burst
    judge.replace(RuleSet((per_topic(2000, open_for_ns=SECOND),)))
    assert ask(judge, key, BEGIN + SECOND // 10, count=1000).passed == 200  # a tenth full by then, and a tenth it stays
    assert ask(judge, key, BEGIN + 2 * SECOND, count=3000).passed == 2000


def test_an_unchanged_limit_keeps_bucket_and_breaker_over_a_reload() -> None:
    judge = judge_of(per_topic(10))
    key = key_of(judge, "orders")
    ask(judge, key, BEGIN, count=20)
    judge.replace(RuleSet((per_topic(10),)))
    refused = ask(judge, key, BEGIN + SECOND // 2)
    assert (refused.passed, refused.wait_ns) == (0, SECOND // 2)


@pytest.mark.parametrize("match", [Match(), Match(listener="l"), Match(client="10.0.0.0/8")])
def test_an_override_buys_no_burst_and_is_one_bucket_for_all(match: Match) -> None:
    """Also where the rule asks for a listener or client, so that the override moves the topic from a bucket of its own to a shared one."""
    rules = (per_topic(100, match=match, open_for_ns=0),)
    judge = Judge(RuleSet(rules))
    key = key_of(judge, "orders")
    ask(judge, key, BEGIN, count=90)
    judge.replace(RuleSet(rules, overrides={rocketmq_topic(b"orders"): Override(messages=Rate(1000))}))
    assert ask(judge, key, BEGIN, count=1000).passed == 100
    assert ask(judge, key_of(judge, "orders", client="10.0.0.9"), BEGIN).passed == 0


@pytest.mark.parametrize("algorithm", ["token_bucket", "warm_up", "pacing"])
def test_an_override_that_moves_a_topic_takes_its_debt_along(algorithm: str) -> None:
    rules = (per_topic(100, match=Match(protocol="rocketmq", client="10.0.0.0/8"), algorithm=algorithm, open_for_ns=0),)
    judge = Judge(RuleSet(rules))
    key = key_of(judge, "orders")
    ask(judge, key, BEGIN, messages=3000)
    before = ask(judge, key, BEGIN).wait_ns
    judge.replace(RuleSet(rules, overrides={rocketmq_topic(b"orders"): Override(messages=Rate(100))}), BEGIN)
    assert ask(judge, key, BEGIN).wait_ns == pytest.approx(before, rel=0.001)


def test_an_override_buys_no_burst_for_a_client_that_comes_after_it() -> None:
    rules = (per_topic(100, match=Match(protocol="rocketmq", client="10.0.0.0/8"), open_for_ns=0),)
    judge = Judge(RuleSet(rules))
    ask(judge, key_of(judge, "orders"), BEGIN, count=100)
    judge.replace(RuleSet(rules, overrides={rocketmq_topic(b"orders"): Override(messages=Rate(1000))}), BEGIN)
    assert ask(judge, key_of(judge, "orders", client="10.0.0.9"), BEGIN).passed == 0


def test_a_bucket_does_not_begin_with_the_fill_of_a_quota_that_is_only_tried() -> None:
    rules = (per_topic(100, match=Match(protocol="rocketmq", client="10.0.0.0/8"), open_for_ns=0),)
    name = rocketmq_topic(b"orders")
    tried = {name: Quota("rocketmq", "orders", (1.0, 10))}
    judge = Judge(RuleSet(rules, shadow_quotas=tried))
    key = key_of(judge, "orders")
    ask(judge, key, BEGIN, count=50)
    judge.replace(RuleSet(rules, overrides={name: Override(messages=Rate(100))}, shadow_quotas=tried), BEGIN)
    assert ask(judge, key, BEGIN, count=100).passed == 50


def test_a_rule_that_asks_for_the_client_keeps_its_own_bucket_per_topic() -> None:
    judge = judge_of(
        Rule("few", match=Match(client="10.0.0.7"), limit=Limit(messages=Rate(5))),
        Rule("many", limit=Limit(messages=Rate(100))),
    )
    assert ask(judge, key_of(judge, "orders", client="10.0.0.7"), BEGIN, count=50).passed == 5
    assert ask(judge, key_of(judge, "orders", client="10.0.0.8"), BEGIN, count=500).passed == 100


def test_states_show_what_holds_now_even_for_topics_nobody_used_since() -> None:
    judge = judge_of(per_topic(100))
    ask(judge, key_of(judge, "orders"), BEGIN, count=150)
    change = Override(messages=Rate(7), by="alice", reason="incident 12", at=1000.0)
    judge.replace(RuleSet((per_topic(100),), overrides={rocketmq_topic(b"orders"): change}))
    (state,) = judge.states(BEGIN)
    assert state.effective.limit.messages == Rate(7)
    assert (state.effective.origin, state.effective.by, state.effective.reason, state.effective.at) == (
        "override",
        "alice",
        "incident 12",
        1000.0,
    )
    assert (state.thing, state.per, state.admitted, state.over_limit, state.last_refused_at) == ("orders", "topic", 100, 50, BEGIN)
    judge.replace(RuleSet(()))
    assert judge.states(BEGIN) == []


def test_state_tells_fill_breaker_and_wait() -> None:
    judge = judge_of(per_topic(100))
    key = key_of(judge, "orders")
    assert topic_state(judge, rocketmq_topic(b"orders"), BEGIN) is None
    ask(judge, key, BEGIN, count=75)
    state = topic_state(judge, rocketmq_topic(b"orders"), BEGIN)
    assert state is not None
    assert (state.fill, state.breaker, state.wait_ns, state.last_refused_at) == (0.25, "closed", 0, None)
    ask(judge, key, BEGIN, count=75)
    state = topic_state(judge, rocketmq_topic(b"orders"), BEGIN + SECOND // 4)
    assert state is not None
    assert (state.fill, state.breaker, state.wait_ns) == (0.25, "open", 3 * SECOND // 4)


def test_a_long_look_at_all_limits_credits_no_time_twice() -> None:
    """Many limits are looked at in slices, for seconds; the time of the request is long past for the last of them. Found by a reader."""
    judge = judge_of(per_topic(100))
    keys = [key_of(judge, f"orders-{number}") for number in range(2 * STATES_PER_SLICE)]
    for key in keys:
        ask(judge, key, BEGIN, count=100)
    slices = judge.states_in_slices(BEGIN)
    found = next(slices)
    later = BEGIN + 3 * SECOND
    assert [ask(judge, key, later, count=100).passed for key in keys] == [100] * len(keys)
    found += [state for some in slices for state in some]
    assert [state.fill for state in found] == [0.0] * len(keys)
    assert [ask(judge, key, later).passed for key in keys] == [0] * len(keys)


def test_a_look_on_behalf_of_a_request_that_had_to_wait_credits_no_time_twice() -> None:
    judge = judge_of(per_topic(100))
    key = key_of(judge, "orders")
    ask(judge, key, BEGIN + 3 * SECOND, count=100)
    for state in (topic_state(judge, rocketmq_topic(b"orders"), BEGIN), judge.state_of(key.buckets[0].effective.identity, BEGIN)):
        assert state is not None
        assert (state.fill, state.wait_ns) == (0.0, SECOND // 100)
    assert ask(judge, key, BEGIN + 3 * SECOND).passed == 0


@pytest.mark.parametrize("late_ns", [1, SECOND // 2, 3 * SECOND // 2, 30 * SECOND])
def test_a_batch_that_waited_while_later_ones_were_judged_credits_no_time_twice(late_ns: int) -> None:
    """In the queue of a thread that was not run, as where a process was stopped or swapped out."""
    judge = judge_of(per_topic(100, open_for_ns=0))
    key = key_of(judge, "orders")
    now = BEGIN + 100 * SECOND
    passed = ask(judge, key, now, count=1000).passed
    for _ in range(10):
        now += SECOND // 2
        passed += ask(judge, key, now, count=1000).passed
        passed += ask(judge, key, now - late_ns, count=1000).passed
        passed += ask(judge, key, now + 1, count=1000).passed
    assert passed == 100 + 10 * 50


@pytest.mark.parametrize("late_ns", [1, SECOND // 2, 3 * SECOND // 2, 30 * SECOND])
def test_a_batch_that_waited_while_later_ones_were_judged_credits_no_time_twice_under_new_rules(late_ns: int) -> None:
    judge = judge_of(per_topic(100, open_for_ns=0))
    key = key_of(judge, "orders")
    now = BEGIN + 100 * SECOND
    passed = ask(judge, key, now, count=1000).passed
    for each in range(10):
        now += SECOND
        passed += ask(judge, key, now, count=1000).passed
        judge.replace(RuleSet((Rule("topics", limit=Limit(messages=Rate(100), messages_burst=100 + each % 2), open_for_ns=0),)), now)
        passed += ask(judge, key, now - late_ns, count=1000).passed
    assert passed == 100 + 10 * 100


def test_the_owner_of_a_limit_lends_nothing_twice_for_a_look_that_is_late() -> None:
    """With workers it is the parent that operators ask, and that only lends."""
    judge, member = judge_of(per_topic(100)), judge_of(per_topic(100))
    key = key_of(member, "orders")
    ask(member, key, BEGIN)
    ref = LeasedBucketRef(key.buckets[0].effective.identity, key.buckets[0].subject)
    later = BEGIN + 3 * SECOND
    assert judge.lend(LeaseOwner(), [(ref, 100, 0)], 1, later) == [(100, 0)]
    assert [state.fill for state in judge.states(BEGIN)] == [0.0]
    assert judge.lend(LeaseOwner(), [(ref, 100, 0)], 1, later) == [(0, 0)]


def test_a_restart_gives_no_free_burst() -> None:
    before = judge_of(per_topic(100))
    ask(before, key_of(before, "idle"), BEGIN - 10 * SECOND, count=1)
    ask(before, key_of(before, "orders"), BEGIN, count=100)
    rows = sum(before.fills(BEGIN), array("q"))
    assert len(rows) == 4  # one row: of the bucket that is not full
    after = judge_of(per_topic(100))
    after.restore(before.secret, rows, now=50 * SECOND, away_ns=SECOND // 10)
    assert ask(after, key_of(after, "orders"), 50 * SECOND, count=100).passed == 10
    assert ask(after, key_of(after, "idle"), 50 * SECOND, count=100).passed == 100


def test_origins_are_shared_and_forgotten_with_their_last_session() -> None:
    judge = judge_of()
    first = judge.origin("rocketmq", "l", "10.0.0.1", None)
    assert judge.origin("rocketmq", "l", "10.0.0.1", None) is first
    key = judge.key(first, b"t", rocketmq_topic(b"t"))
    assert judge.key(first, b"t", rocketmq_topic(b"t")) is key
    judge.release(first)
    assert judge.usage()["keys"] == 1
    judge.release(first)
    judge.release(first)  # once too often: no harm
    assert (judge.usage()["keys"], judge.usage()["origins"]) == (0, 0)
    assert judge.origin("rocketmq", "l", "10.0.0.1", None) is not first


PER_CONNECTION = Rule("each", per="connection", limit=Limit(messages=Rate(10)), open_for_ns=0)


def test_a_connection_has_a_bucket_of_its_own_which_ends_with_it() -> None:
    judge = judge_of(PER_CONNECTION)
    first, second = (judge.origin("rocketmq", "l", "10.0.0.1", None, connection=number) for number in (1, 2))
    keys = [judge.key(origin, b"t", rocketmq_topic(b"t")) for origin in (first, second)]
    other_topic = judge.key(first, b"u", rocketmq_topic(b"u"))
    assert [ask(judge, key, BEGIN, count=15).passed for key in keys] == [10, 10]
    assert ask(judge, other_topic, BEGIN).passed == 0
    assert {(state.per, state.thing) for state in judge.states(BEGIN)} == {("connection", "1"), ("connection", "2")}
    assert sum(len(rows) for rows in judge.fills(BEGIN)) == 0  # numbers mean nothing after a restart
    judge.release(first)
    assert {state.thing for state in judge.states(BEGIN)} == {"2"}
    assert judge.usage()["levels"] == 1


def test_connections_are_told_apart_only_where_a_rule_does() -> None:
    judge = judge_of(per_topic(10))
    shared = judge.origin("rocketmq", "l", "10.0.0.1", None, connection=1)
    assert judge.origin("rocketmq", "l", "10.0.0.1", None, connection=2) is shared
    assert judge.own(shared, 1) is shared
    judge.replace(RuleSet((PER_CONNECTION,)))
    first, second = judge.own(shared, 1), judge.own(shared, 2)
    assert (first.connection, second.connection) == (1, 2)
    assert judge.own(first, 1) is first
    assert judge.usage()["origins"] == 2
    judge.release(first)
    judge.release(second)
    assert judge.usage()["origins"] == 0


def test_names_with_ids_in_them_cost_one_bucket() -> None:
    judge = judge_of(Rule("by-words", match=Match(protocol="amqp"), limit=Limit(messages=Rate(100)), routing_key_words=1, open_for_ns=0))
    passed = [ask(judge, key_of(judge, orders(routing_key=b"order.%d" % number)), BEGIN).passed for number in range(300)]
    assert passed == [1] * 100 + [0] * 200
    (state,) = judge.states(BEGIN)
    assert (state.thing, state.admitted) == ("%2F/orders/order.#", 100)
    assert state.name == orders(routing_key=b"order.#")  # by which its limit can be changed


def test_topics_of_a_group_share_a_key_and_an_override_takes_its_topic_out() -> None:
    rules = (Rule("by-words", match=Match(protocol="amqp"), limit=Limit(messages=Rate(100)), routing_key_words=1, open_for_ns=0),)
    judge = Judge(RuleSet(rules))
    name = orders(routing_key=b"order.1")
    first = key_of(judge, name)
    assert key_of(judge, orders(routing_key=b"order.2")) is first
    assert first.text == "%2F/orders/order.#"
    assert key_of(judge, orders(routing_key=b"order.1", exchange=b"other")) is not first
    judge.replace(RuleSet(rules, overrides={name: Override(messages=Rate(3))}))
    alone = key_of(judge, name)
    assert alone.text == "%2F/orders/order.1"
    assert ask(judge, alone, BEGIN, count=5).passed == 3
    assert ask(judge, key_of(judge, orders(routing_key=b"order.2")), BEGIN, count=500).passed == 100
    judge.replace(RuleSet((per_topic(7),)))
    assert key_of(judge, orders(routing_key=b"order.2")).text == "%2F/orders/order.2"


def test_a_raise_of_quotas_leaves_keys_of_groups_as_they_are() -> None:
    by_words = Rule("by-words", match=Match(protocol="amqp"), limit=Limit(messages=Rate(1)), routing_key_words=1, open_for_ns=0)
    group = orders(routing_key=b"order.#")
    quotas = {group: Quota("amqp", group.text(), (10, 10), hourly_messages=3.0)}
    rules = RuleSet((by_words,), quotas=quotas, overrides={rocketmq_topic(b"t"): Override(messages=Rate(5))})
    judge = Judge(rules)
    key = key_of(judge, orders(routing_key=b"order.1"))
    raised = rules.raised_by(HourlyRaise({("amqp", "%2F/orders/order.#"): (5.0, 0.0)}, 4.0))
    assert (judge.replace(raised), judge.usage()["keys"]) == (False, 1)
    assert ask(judge, key, BEGIN, count=50).passed == 15
    assert judge.replace(rules.raised_by(None)) is False
    assert (judge.replace(RuleSet((by_words,))), judge.usage()["keys"]) == (True, 0)


@pytest.mark.parametrize("what", ["override", "quota", "rule"])
def test_what_waits_of_a_group_is_not_under_what_names_one_of_its_topics_alone(what: str) -> None:
    rule = Rule("by-words", match=Match(protocol="amqp"), limit=Limit(messages=Rate(10)), routing_key_words=1, open_for_ns=0)
    judge = judge_of(rule)
    first = orders(routing_key=b"order.1")
    key_of(judge, first)
    held = Request(key_of(judge, orders(routing_key=b"order.2")), 5, 1, 100)
    ask(judge, held.key, BEGIN, count=10)
    judge.decide([held], BEGIN)
    shut = Limit(messages=Rate(0))
    exact = Rule("one", match=Match(protocol="amqp", vhost="/", exchange="orders", routing_key="order.1"), limit=shut, open_for_ns=0)
    judge.replace({
        "override": RuleSet((rule,), overrides={first: Override(messages=Rate(0))}),
        "quota": RuleSet((rule,), quotas={first: Quota("amqp", first.text(), (0.0, 0))}),
        "rule": RuleSet((exact, rule)),
    }[what], BEGIN)  # fmt: skip
    judge.decide([held], BEGIN + SECOND // 2)
    assert (held.passed, held.key and [bucket.thing() for bucket in held.key.buckets]) == (5, ["%2F/orders/order.#"])
    assert ask(judge, key_of(judge, first), BEGIN + SECOND).wait_ns == NEVER


def test_what_waits_of_names_that_are_not_told_apart_is_not_shut_with_one_of_them() -> None:
    rules = (per_topic(10), Rule("client", per="client", limit=Limit(messages=Rate(10)), open_for_ns=0, action="block"))
    judge = Judge(RuleSet(rules), bounds_names=True)
    first = rocketmq_topic(b"a")
    origin = judge.origin("rocketmq", "l", "10.0.0.1", None)
    assert origin.new_names is not None
    while origin.new_names.take(0):
        pass
    key_of(judge, first)
    key = key_of(judge, "b")
    assert key.name == first
    held = Request(key, 1, 1, 0)
    ask(judge, key, BEGIN, count=10)
    judge.decide([held], BEGIN)
    judge.replace(RuleSet(rules, overrides={first: Override(messages=Rate(0))}), BEGIN)
    judge.decide([held], BEGIN + SECOND)
    assert held.passed == 1


def test_an_override_of_a_groups_name_is_in_force_at_once_and_its_one_bucket_keeps_its_fill() -> None:
    rules = (Rule("by-words", match=Match(protocol="amqp"), limit=Limit(messages=Rate(100)), routing_key_words=1, open_for_ns=0),)
    judge = Judge(RuleSet(rules))
    assert ask(judge, key_of(judge, orders(routing_key=b"order.1")), BEGIN, count=50).passed == 50
    judge.replace(RuleSet(rules, overrides={orders(routing_key=b"order.#"): Override(messages=Rate(10))}))
    assert ask(judge, key_of(judge, orders(routing_key=b"order.2")), BEGIN, count=50).passed == 5
    (state,) = judge.states(BEGIN)
    assert (state.thing, state.effective.origin, state.admitted) == ("%2F/orders/order.#", "override", 55)
    assert topic_state(judge, orders(routing_key=b"order.#"), BEGIN) is not None


@pytest.mark.slow
def test_an_origin_with_too_many_topics_forgets_the_oldest_one_at_a_time() -> None:
    judge = Judge(RuleSet(()), 10**6)
    judge.origins.limit = 2 * KEYS_PER_ORIGIN
    origin = judge.origin("rocketmq", "l", "10.0.0.1", None)
    for number in range(KEYS_PER_ORIGIN + 3):
        judge.key(origin, number.to_bytes(4, "big"), rocketmq_topic(b"t"))
    assert len(origin.keys) == judge.usage()["keys"] == KEYS_PER_ORIGIN >= 100_000
    assert next(iter(origin.keys)) == (3).to_bytes(4, "big")


def test_all_keys_are_bounded_together() -> None:
    judge = judge_of(max_keys=10)
    origins = [judge.origin("rocketmq", "l", f"10.0.0.{host}", None) for host in range(5)]
    for number in range(100):
        judge.key(origins[number % 5], b"%d" % number, rocketmq_topic(b"t"))
        assert judge.usage()["keys"] == sum(len(origin.keys) for origin in origins) <= 10


def test_a_key_that_is_forgotten_is_no_recent_one_of_its_group() -> None:
    judge = judge_of(max_keys=2)
    origin = judge.origin("rocketmq", "l", "10.0.0.1", None)
    keys = [judge.key(origin, name, rocketmq_topic(name), b"workers", CONSUME) for name in (b"a", b"b")]
    recent = recent_of_group(keys[0])
    assert recent is not None
    for key in keys:
        recent.note(key.name.topic, key)
    judge.key(origin, b"c", rocketmq_topic(b"c"), b"workers", CONSUME)
    assert [recent.find(name, 0, 1) for name in (b"a", b"b")] == [None, keys[1]]


def test_decide_is_safe_while_rules_are_swapped_and_others_decide() -> None:
    """Four threads decide while rules change: every request gets a verdict, and together no more than the limit passes."""
    judge = judge_of(per_topic(1000, open_for_ns=0))
    keys = [key_of(judge, "orders", client=f"10.0.0.{host}") for host in range(4)]
    passed = [0] * 4

    def flood(number: int) -> None:
        for _ in range(200):
            request = Request(keys[number], 10, 1, 0)
            request.passed = -1
            judge.decide([request], BEGIN)
            assert 0 <= request.passed <= 10
            passed[number] += request.passed

    threads = [threading.Thread(target=flood, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for revision in range(50):
        judge.replace(RuleSet((per_topic(1000, open_for_ns=0),), revision=revision))
    for thread in threads:
        thread.join()
    assert sum(passed) == 1000


def test_repr_says_how_full_it_is() -> None:
    judge = judge_of(per_topic(10))
    ask(judge, key_of(judge, "orders"), BEGIN)
    assert repr(judge) == "<Judge revision=0 keys=1 <Ledger 1/1000 overflow=0 evicted=0 packed=0>>"


def test_held_messages_that_are_over_the_limit_again_are_counted_once() -> None:
    judge = Judge(RuleSet((Rule("r", limit=Limit(messages=Rate(1), messages_burst=1)),)))
    key = key_of(judge, "orders")
    request = Request(key, 3, 1, 10)
    judge.decide([request], BEGIN)
    request.again = True
    judge.decide([request], BEGIN + 1)
    (state,) = judge.states(BEGIN + 1)
    assert (state.over_limit, state.refused) == (2, 0)  # what becomes of them is not the judge's to count


# ---- what has been judged ----------------------------------------------------------------------------------------------


def checks_of(judge: Judge) -> tuple[int, int, int]:
    found = judge.checks()
    assert list(found) == ["ok", "limited_shadow", "limited_enforced"]
    return found["ok"], found["limited_shadow"], found["limited_enforced"]


def test_a_message_is_counted_by_its_first_verdict_and_only_once() -> None:
    judge = judge_of(per_topic(10, open_for_ns=0))
    key = key_of(judge, "orders")
    request = ask(judge, key, BEGIN, count=6, messages=2)
    assert (request.passed, checks_of(judge)) == (5, (10, 0, 2))
    request.again = True  # held, and judged again until it passes
    for later in range(3):
        judge.decide([request], BEGIN + later * SECOND)
    assert (request.passed, checks_of(judge)) == (5, (10, 0, 2))


def test_messages_that_a_shadow_would_have_refused_pass_but_do_not_count_as_ok() -> None:
    judge = judge_of(
        Rule("enforced", limit=Limit(messages=Rate(10)), open_for_ns=0),
        Rule("shadow", per="client", limit=Limit(messages=Rate(4)), open_for_ns=0, mode="shadow"),
    )
    assert ask(judge, key_of(judge, "orders"), BEGIN, count=15).passed == 10
    assert checks_of(judge) == (4, 6, 5)


def test_messages_that_no_rule_is_for_are_not_counted_as_judged() -> None:
    judge = judge_of(Rule("orders", Match(topic="orders"), limit=Limit(messages=Rate(1))))
    assert ask(judge, key_of(judge, "others"), BEGIN, count=50).passed == 50
    assert ask(judge, None, BEGIN, count=50).passed == 50
    assert checks_of(judge) == (0, 0, 0)
    assert checks_of(judge_of()) == (0, 0, 0)
