"""The bounds of the ledger, and that made-up names gain nothing by them: packed buckets, memory, work."""

from __future__ import annotations

import tracemalloc
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.buckets.ledger import MAX_PROBES, at_hand
from limiter.judge import Judge
from limiter.keys import Key
from limiter.request import Request
from limiter.reservation import Reservation
from limiter.topics import rocketmq_topic
from support.models.asking import SECOND, Limit, Match, Rate, Rule, RuleSet, ask, judge_of, key_of, per_topic

BEGIN = 100 * SECOND
ROUNDING = 1000  # ns, more than what 2^-24 of a burst of one second takes
SLOW = Rule("slow", limit=Limit(messages=Rate(1, 3600 * SECOND), messages_burst=5), open_for_ns=0)


def passes(judge: Judge, topic: str, now: int, count: int, size: int = 0) -> int:
    """How many of `count` messages of a made-up topic pass, from a client whose keys are all new."""
    name = rocketmq_topic(topic.encode())
    origin = judge.origin("rocketmq", "l", "10.0.0.1", None)
    return ask(judge, Key(origin, name, None, "produce"), now, count=count, size=size).passed


@settings(max_examples=150, deadline=None)
@given(
    live=st.integers(1, 4),
    more=st.integers(0, 6),
    rate=st.sampled_from([1, 3, 10]),
    burst=st.integers(1, 8),
    open_for_ns=st.sampled_from([0, SECOND]),
    moves=st.lists(
        st.tuples(st.integers(0, 15), st.sampled_from([0, 1, 10**6, 10**8, SECOND, 3 * SECOND]), st.integers(1, 12)),
        min_size=20,
        max_size=150,
    ),
)
def test_made_up_names_get_no_more_than_a_burst_and_a_rate_for_each_place_and_the_overflow(
    live: int, more: int, rate: int, burst: int, open_for_ns: int, moves: list[tuple[int, int, int]]
) -> None:
    """The bound of `limiter.buckets.ledger`, in every window that begins with the first message."""
    judge = judge_of(
        Rule("topics", limit=Limit(messages=Rate(rate), messages_burst=burst), open_for_ns=open_for_ns), max_keys=live + more, live=live
    )
    now = BEGIN
    admitted = 0
    for topic, later, count in moves:
        now += later
        admitted += passes(judge, f"t{topic}", now, count)
        assert admitted <= (live + more + 1) * (burst + rate * (now - BEGIN) / SECOND)
        assert judge.usage()["levels"] <= live


@settings(max_examples=150, deadline=None)
@given(
    limit=st.builds(
        Limit,
        messages=st.sampled_from([Rate(1), Rate(7), Rate(1, 60 * SECOND)]),
        messages_burst=st.sampled_from([None, 3, 50]),
        bytes=st.sampled_from([None, Rate(1000)]),
    ),
    size=st.sampled_from([0, 1, 700, 9000]),
    moves=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([1, 10**7, SECOND, 20 * SECOND]), st.integers(1, 9)), max_size=80),
)
def test_a_shelved_bucket_gives_what_it_would_have_given_at_hand(limit: Limit, size: int, moves: list[tuple[int, int, int]]) -> None:
    """But for what rounding takes: never more in all, and less by at most one message each time that one came back."""
    rule = Rule("topics", limit=limit, open_for_ns=0)
    roomy, tight = judge_of(rule), judge_of(rule, max_keys=1000, live=2)
    now = BEGIN
    more: dict[int, int] = {}
    for topic, later, count in moves:
        now += later
        there = passes(roomy, f"t{topic}", now, count, size)
        here = passes(tight, f"t{topic}", now, count, size)
        more[topic] = more.get(topic, 0) + here - there
        assert more[topic] <= 0
    assert tight.usage()["levels"] <= 2
    assert tight.usage()["overflowed"] == 0
    assert sum(more.values()) >= -2 * tight.usage()["shelved"]


def test_the_longest_idle_is_shelved_and_comes_back_as_empty_as_it_would_be() -> None:
    judge = judge_of(per_topic(10, open_for_ns=0), max_keys=100_000, live=2)
    assert [passes(judge, topic, BEGIN + at, 10) for at, topic in enumerate("abc")] == [10, 10, 10]
    assert (judge.usage()["levels"], judge.usage()["shelved"], judge.usage()["forgotten"]) == (2, 1, 0)
    assert {state.thing for state in judge.states(BEGIN + 3)} == {"b", "c"}
    assert passes(judge, "a", BEGIN + SECOND // 2 + ROUNDING, 10) == 5
    assert passes(judge, "a", BEGIN + SECOND // 2 + ROUNDING, 10) == 0


def test_a_full_bucket_is_forgotten_and_not_shelved() -> None:
    judge = judge_of(per_topic(10), max_keys=100_000, live=1)
    passes(judge, "a", BEGIN, 10)
    passes(judge, "b", BEGIN + SECOND, 10)
    assert (judge.usage()["forgotten"], judge.usage()["shelved"]) == (1, 0)


def test_a_debt_is_not_forgiven_by_being_shelved() -> None:
    judge = judge_of(Rule("bytes", limit=Limit(bytes=Rate(100)), open_for_ns=0), max_keys=100_000, live=1)
    assert passes(judge, "a", BEGIN, 1, size=1000) == 1  # nine seconds of debt, and one more to be full
    passes(judge, "b", BEGIN + 1, 1, size=100)
    assert judge.usage()["shelved"] == 1
    assert passes(judge, "a", BEGIN + 9 * SECOND, 1, size=1) == 0
    passes(judge, "b", BEGIN + 9 * SECOND, 1, size=100)
    assert passes(judge, "a", BEGIN + 9 * SECOND + SECOND // 2, 1, size=49) == 1


def test_a_debt_too_deep_to_be_shelved_keeps_its_level_at_hand() -> None:
    judge = judge_of(Rule("bytes", limit=Limit(bytes=Rate(1)), open_for_ns=0), max_keys=100_000, live=1)
    assert passes(judge, "a", BEGIN, 1, size=130) == 1
    passes(judge, "b", BEGIN + SECOND, 1, size=1)
    assert judge.usage()["overflowed"] == 1
    assert {state.thing for state in judge.states(BEGIN + SECOND) if not state.overflow} == {"a"}


def test_a_shelved_bucket_fills_at_its_old_rate_until_the_rules_change_and_at_the_new_one_from_then_on() -> None:
    judge = judge_of(per_topic(10, open_for_ns=0), max_keys=100_000, live=1)
    passes(judge, "a", BEGIN, 10)
    passes(judge, "b", BEGIN + 1, 10)
    half = BEGIN + SECOND // 2
    judge.replace(RuleSet((Rule("topics", limit=Limit(messages=Rate(1), messages_burst=100), open_for_ns=0),)), half)
    assert passes(judge, "a", half + 5 * SECOND + 100 * ROUNDING, 1000) == 55  # half of the burst then, and 5 since


def test_a_level_not_used_since_the_rules_changed_is_shelved_as_it_was_then() -> None:
    judge = judge_of(per_topic(10, open_for_ns=0), max_keys=100_000, live=1)
    passes(judge, "a", BEGIN, 10)
    judge.replace(RuleSet((Rule("topics", limit=Limit(messages=Rate(1), messages_burst=10), open_for_ns=0),)), BEGIN + SECOND // 10)
    passes(judge, "b", BEGIN + SECOND // 2, 10)
    assert judge.usage()["shelved"] == 1
    assert passes(judge, "a", BEGIN + SECOND // 10 + 2 * SECOND + 10 * ROUNDING, 10) == 3  # 1 of 10 then, and 2 since


def test_a_bucket_on_the_shelf_that_is_full_by_now_hides_no_empty_one_that_the_key_comes_from() -> None:
    """An override moves the topic to a bucket that it had long ago."""
    clients = Rule("of-one", Match(client="10.0.0.1"), limit=Limit(messages=Rate(10)), open_for_ns=0)  # narrower: buckets of its own
    plain, moved = RuleSet((per_topic(10, open_for_ns=0),)), RuleSet((clients, per_topic(10, open_for_ns=0)))
    judge = Judge(plain, 100, live=1)
    key = key_of(judge, "a")
    ask(judge, key, BEGIN, count=10)
    passes(judge, "b", BEGIN + 1, 10)
    assert judge.usage()["shelved"] == 1
    judge.replace(moved, BEGIN + 10 * SECOND)
    now = BEGIN + 10 * SECOND
    assert ask(judge, key, now, count=10).passed == 10
    judge.replace(plain, now + 1)
    assert ask(judge, key, now + 1, count=10).passed == 0


def test_an_answer_settles_on_the_bucket_that_has_come_back_meanwhile() -> None:
    judge = judge_of(Rule("slow", limit=Limit(messages=Rate(1, 3600 * SECOND), messages_burst=32), open_for_ns=0), max_keys=100_000, live=1)
    key = key_of(judge, "orders")
    request = Request(key, 1, 1, 0)
    request.reservation = Reservation(32, 0)
    judge.decide([request], BEGIN)
    assert request.passed == 1
    passes(judge, "other", BEGIN + 1, 1)
    assert judge.usage()["shelved"] == 1
    request.messages = 2
    judge.decide([request], BEGIN + 2)  # it brought 2: 30 are given back
    assert passes(judge, "orders", BEGIN + 3, 40) == 30


def test_a_restart_keeps_what_is_shelved_and_what_is_at_hand() -> None:
    before, after = judge_of(SLOW, max_keys=100_000, live=3), judge_of(SLOW, max_keys=100_000, live=3)
    for number in range(20):
        assert passes(before, f"t{number}", BEGIN + number, 9) == 5
    after.restore(before.secret, sum(before.fills(BEGIN + 20), array("q")), SECOND, 10 * SECOND)
    assert [passes(after, f"t{number}", SECOND + number, 9) for number in range(20)] == [0] * 20
    assert passes(after, "t20", SECOND + 20, 9) == 5


def test_a_million_addresses_of_one_network_are_one_client() -> None:
    judge = judge_of(Rule("clients", per="client", limit=Limit(messages=Rate(1, 3600 * SECOND), messages_burst=5), open_for_ns=0))
    passed = [ask(judge, key_of(judge, "t", client=f"2001:db8::{host:x}:1"), BEGIN + host, count=3).passed for host in range(50)]
    assert sum(passed) == 5
    assert [state.thing for state in judge.states(BEGIN)] == ["2001:db8::/64"]
    assert ask(judge, key_of(judge, "t", client="2001:db8:0:1::1"), BEGIN, count=9).passed == 5


def test_addresses_that_are_made_up_get_no_more_than_topics_that_are() -> None:
    rule = Rule("clients", per="client", limit=Limit(messages=Rate(1, 3600 * SECOND), messages_burst=5), open_for_ns=0)
    judge = judge_of(rule, max_keys=100, live=10)
    passed = 0
    for host in range(3000):
        key = key_of(judge, "t", client=f"10.1.{host // 250}.{host % 250}")
        passed += ask(judge, key, BEGIN + host, count=5).passed
        judge.release(key.origin)
    assert passed <= 101 * 5
    usage = judge.usage()
    assert (usage["levels"], usage["keys"], usage["origins"]) == (10, 0, 0)
    assert usage["overflowed"] > 0


def test_making_room_costs_no_more_however_many_levels_there_are() -> None:
    """Every level that is in the way is looked at, at most `MAX_PROBES` of them for one new name, and a scan would let more go."""
    judge = judge_of(SLOW, per_topic(1), max_keys=300, live=200)
    for number in range(200):
        passes(judge, f"t{number}", BEGIN + number, 5)
    for number in range(150):  # there is no room to pack more after a hundred
        passes(judge, f"u{number}", BEGIN + 200 + number, 5)
    order = [state.thing for state in judge.states(BEGIN + 400) if not state.overflow]
    passes(judge, "one-more", BEGIN + 400, 5)
    after = [state.thing for state in judge.states(BEGIN + 400) if not state.overflow]
    assert after == [*order[MAX_PROBES:], *order[:MAX_PROBES]]


@pytest.mark.slow
@pytest.mark.parametrize("clients", [1, 100])
def test_a_topic_that_was_seen_costs_less_than_three_hundred_bytes(clients: int) -> None:
    """Everything in proportion: of 4,000 topics 400 are at hand, as 100,000 of a million are. No bucket is full again in this time."""
    topics = 4000  # what one page of packed buckets has room for
    judge = judge_of(SLOW, max_keys=topics, live=at_hand(1_000_000) * topics // 1_000_000)
    judge.origins.limit = at_hand(1_000_000) * topics // 1_000_000
    origins = [judge.origin("rocketmq", "l", f"10.0.0.{host}", None) for host in range(clients)]
    tracemalloc.start()
    try:
        for number in range(topics):
            raw = b"a-topic-that-was-made-up-%06d" % number
            ask(judge, judge.key(origins[number % clients], raw, rocketmq_topic(raw)), BEGIN + number)
        used, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 300 * topics, f"{most / topics:.0f} bytes at most, {used / topics:.0f} at the end"
    assert judge.usage()["shelved"] > 0.7 * topics  # 0.79 to 0.85, by the secret


def test_a_twentieth_of_the_buckets_is_at_hand_and_at_least_100_000() -> None:
    assert [at_hand(number) for number in (10, 1_000_000, 10_000_000)] == [100_000, 100_000, 500_000]


def test_keys_of_all_clients_together_are_bounded() -> None:
    judge = judge_of(max_keys=10_000)
    judge.origins.limit = 100
    origins = [judge.origin("rocketmq", "l", f"10.0.0.{host}", None) for host in range(7)]
    for number in range(1000):
        judge.key(origins[number % 7], b"%d" % number, rocketmq_topic(b"t"))
        assert judge.usage()["keys"] == sum(len(origin.keys) for origin in origins) <= 100


def test_reading_all_states_lets_others_judge_in_between() -> None:
    """The lock is taken for a slice of levels at a time: what is judged in between is seen, nothing is left out or told twice."""
    judge = judge_of(per_topic(10), max_keys=5000)
    for number in range(2500):
        passes(judge, f"t{number}", BEGIN, 1)
    rows = judge.fills(BEGIN)
    next(rows)
    assert not judge.lock.locked()
    assert passes(judge, "t2400", BEGIN, 1) == 1
    assert len({state.thing for state in judge.states(BEGIN)}) == 2500
