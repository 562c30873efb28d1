"""The quick answer and the exact one are within the bound that `spark_jobs.backtest.quick` states."""

from __future__ import annotations

import random

import numpy as np
import pytest

from limiter.limits import Limit, Rate
from limiter.quota_snapshot import Quota
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from spark_jobs.backtest.contender import make_contender
from spark_jobs.backtest.quick import StateDay, judge_quickly
from spark_jobs.backtest.replay import Replay, ReplayedLine
from spark_jobs.days import Day
from spark_jobs.state.topic_day import TopicSeconds, make_topic_rows

DAY = Day("2026-11-20")
SECONDS = 1800  # of the day that a generated topic is awake
SURFACE_ERROR = 0.04  # of the day's demand, between grid points, for bursts of about ten seconds (`state.loss_surface`)


def steady(chance: random.Random, second: int) -> int:
    return max(0, round(chance.gauss(30, 6)))


def bursty(chance: random.Random, second: int) -> int:
    return 300 if second % 60 < 3 else 5


def flood(chance: random.Random, second: int) -> int:
    return 900 if 1200 <= second < 1260 else 12


def sparse(chance: random.Random, second: int) -> int:
    return chance.choice([0, 0, 0, 0, 0, 0, 0, 0, 9])


LOADS = [steady, bursty, flood, sparse]


def state_of(asked: dict[str, list[int]]) -> StateDay:
    batch = []
    for topic, amounts in asked.items():
        seconds = np.flatnonzero(amounts)
        passed = np.asarray(amounts)[seconds]
        none = np.zeros_like(passed)
        batch.append(
            TopicSeconds(
                "rocketmq", topic, second=seconds + DAY.start, tick=seconds, passed=passed, refused=none, delayed=none, dropped=none,
                passed_bytes=100 * passed, refused_bytes=none, peak_100ms=-(-passed // 10), largest=none + 100,
                gateways=[("g1", int(passed.sum()), int(100 * passed.sum()))],
            )
        )  # fmt: skip
    return StateDay(make_topic_rows(batch, DAY, SECONDS).to_pylist())


def bucket(amounts: list[int], rate: float, burst: float) -> float:
    """Refused by a bucket that is fed once a second."""
    level, lost = burst, 0.0
    for amount in amounts:
        taken = min(level, amount)
        lost += amount - taken
        level = min(burst, level - taken + rate)
    return lost


def exact(amounts: list[int], quota: Quota, open_for_ns: int, seed: int) -> tuple[int, int]:
    """Refused messages, and the seconds in which some were, by the limiter."""
    chance = random.Random(seed)
    rule = Rule("all", Match(protocol="rocketmq"), limit=Limit(Rate(1)), open_for_ns=open_for_ns)
    replay = Replay([make_contender("tried", [rule], [quota])[0]])
    for second, amount in enumerate(amounts):
        if amount:
            peak = chance.randrange(amount + 1)
            replay.replay_second(
                DAY.start + second, [ReplayedLine("rocketmq", "t", "10.0.0.1", None, None, amount, 100 * amount, 0, 0, 0, 0, peak)]
            )
    count = replay.sides[0].counts.get(0)
    return (0, 0) if count is None else (count.refused, count.limited_seconds)


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.__name__)
@pytest.mark.parametrize("open_for_s", [0, 1], ids=["no breaker", "breaker"])
def test_quick_and_exact_are_within_the_stated_bound(load: object, open_for_s: int) -> None:
    assert callable(load)
    chance = random.Random(5)
    amounts = [load(chance, second) for second in range(SECONDS)]
    total = sum(amounts)
    state = state_of({"t": amounts})
    refusing = 0
    for factor in (0.3, 0.7, 1.0, 1.5, 4.0):
        rate = max(0.1, round(factor * total / SECONDS, 2))
        burst = max(3, round(10 * rate))
        quota = Quota("rocketmq", "t", (rate, burst))
        refused, limited_seconds = exact(amounts, quota, open_for_s * 10**9, seed=9)
        breaker = limited_seconds * (rate * open_for_s + 1)  # and a message in parts that a bucket of whole ones keeps
        least, most = bucket(amounts, rate, burst + rate), bucket(amounts, rate, burst - rate) + breaker
        assert least - 1 <= refused <= most
        quick = judge_quickly(state, make_contender("tried", (), [quota])[0])[0][0].refused
        assert least - SURFACE_ERROR * total <= quick <= most + SURFACE_ERROR * total
        refusing += refused > 0
    assert refusing >= 2


def test_the_share_of_messages_or_bytes_counts_whichever_is_larger() -> None:
    state = state_of({"t": [10] * SECONDS})
    plenty, tight = (100, 1000), (500, 5000)
    by_bytes = judge_quickly(state, make_contender("tried", (), [Quota("rocketmq", "t", plenty, tight)])[0])[0][0]
    assert by_bytes.refused_share == pytest.approx(0.5, abs=0.02)
    assert by_bytes.refused_bytes == pytest.approx(100 * by_bytes.refused, rel=0.01)


def test_what_a_rate_of_zero_refuses_is_everything_and_no_limit_nothing() -> None:
    state = state_of({"a": [10] * 60, "b": [10] * 60})
    found, notes = judge_quickly(state, make_contender("tried", (), [Quota("rocketmq", "a", (0, 0))])[0])
    assert [(each.topic, each.refused) for each in found] == [("a", 600), ("b", 0)]
    assert notes == []
    assert found[0].blackout is None


def test_rules_of_other_levels_are_named_as_left_out() -> None:
    rules = [Rule("each-client", Match(protocol="rocketmq"), per="client", limit=Limit(Rate(1)))]
    _, notes = judge_quickly(state_of({"t": [5] * 60}), make_contender("tried", rules)[0])
    assert notes == ["the quick answer leaves out rules that are not per topic: each-client"]
