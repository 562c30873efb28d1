"""Mean rates over ten seconds: exact, steady while the traffic is, and gone with it."""

from __future__ import annotations

import pytest

from gateway.counting.accounts import Accounts
from gateway.counting.recent_rates import TICKS, RecentCounts
from support.models.asking import SECOND, ask, judge_of, key_of, per_topic


def test_a_window_that_is_not_full_yet_is_as_long_as_it_is_filled() -> None:
    counts = RecentCounts(2)
    assert counts.rates() == (0.0, 0.0)
    counts.add(1.0, (1500, 10))
    assert counts.rates() == (1500.0, 10.0)
    counts.add(1.0, (0, 10))
    assert counts.rates() == (750.0, 10.0)


def test_the_mean_is_of_the_last_ten_ticks_whatever_they_lasted() -> None:
    counts = RecentCounts(1)
    for number in range(37):
        counts.add(0.5 + number % 3, (number * 10,))
    seconds = sum(0.5 + number % 3 for number in range(37 - TICKS, 37))
    assert counts.rates()[0] == pytest.approx(sum(number * 10 for number in range(37 - TICKS, 37)) / seconds)


def test_a_window_is_empty_ten_ticks_after_the_last_count_and_exactly_so() -> None:
    counts = RecentCounts(1)
    counts.add(1.0, (2**40 + 1,))
    for _ in range(TICKS - 1):
        counts.add(1.0, (0,))
        assert not counts.empty()
    counts.add(1.0, (0,))
    assert counts.empty()
    assert counts.rates() == (0.0,)


def test_a_steady_flood_behind_the_default_breaker_shows_the_limit_look_after_look() -> None:
    """1,500/s against 500/s: the single seconds jump between nothing and all, what is shown does not."""
    judge = judge_of(per_topic(500))
    key = key_of(judge, "orders")
    accounts = Accounts()
    passed_in_a_second, looks = set(), []
    now = SECOND
    for second in range(60):
        for _ in range(100):
            now += SECOND // 100
            request = ask(judge, key, now, count=15)
            tally = key.tally
            tally.received += 15
            tally.messages += int(request.passed)
            tally.refused += 15 - int(request.passed)
            if not key.dirty:
                accounts.note(key)
        accounts.fold(now)
        for _ in accounts.tick(1.0):
            pass
        (totals,) = accounts.topics.values()
        passed_in_a_second.add(totals.last_rates[1])
        if second >= TICKS:
            looks.append(totals.rates)
    assert max(passed_in_a_second) - min(passed_in_a_second) > 150, "else the means would prove nothing"
    for received, forwarded, refused, _ in looks:
        assert received == pytest.approx(1500)
        assert forwarded == pytest.approx(500, rel=0.1)
        assert refused == pytest.approx(1000, rel=0.1)


def test_a_topic_that_falls_silent_is_forgotten_by_the_tick() -> None:
    judge = judge_of(per_topic(500))
    key = key_of(judge, "orders")
    accounts = Accounts()
    key.tally.received = key.tally.messages = 30
    accounts.note(key)
    accounts.fold(1)
    for _ in accounts.tick(1.0):
        pass
    (totals,) = accounts.topics.values()
    for _ in range(TICKS):
        assert totals.rates[1] > 0
        assert len(list(accounts.tick(1.0))) == 1
    assert totals.rates[1] == 0.0
    assert accounts.topics
    assert not totals.moving
    assert totals.recent is None
    assert list(accounts.tick(1.0)) == []


def test_what_is_dropped_is_in_the_rate_of_what_is_refused() -> None:
    """One-way sends get no answer: what a limit drops of them is lost, and a topic that loses it is not within its limit."""
    accounts = Accounts()
    totals = accounts.totals("rocketmq", "orders")
    totals.received, totals.forwarded, totals.dropped, totals.refused = 1000, 10, 700, 290
    totals.tick(1.0)
    assert totals.rates == totals.last_rates == (1000.0, 10.0, 990.0, 0.0)
    totals.tick(1.0)
    assert totals.last_rates == (0.0, 0.0, 0.0, 0.0)
