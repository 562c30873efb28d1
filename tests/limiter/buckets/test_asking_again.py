"""What a client gets of its limit that asks again after a fixed time, as docs/choosing-an-algorithm.md says it."""

from __future__ import annotations

from random import Random

import pytest

from limiter.judge import Judge
from limiter.limits import SECOND, Limit, Rate
from limiter.request import Request
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from limiter.topics import rocketmq_topic

BEGIN = 10**15
ASKS_NS = SECOND // 4
SEND_NS = 100_000
LASTS_S = 300


def share(rate: int, *, open_for_ns: int, late_ns: int, burst_ns: int = SECOND) -> float:
    """What passes, of rate x time: the client sends until it is refused, and again 0.25 s later, or up to `late_ns` more."""
    rule = Rule("all", match=Match(protocol="rocketmq"), limit=Limit(messages=Rate(rate), burst_ns=burst_ns), open_for_ns=open_for_ns)
    judge = Judge(RuleSet((rule,)))
    key = judge.key(judge.origin("rocketmq", "l", "10.0.0.1", None), b"orders", rocketmq_topic(b"orders"))
    chance = Random(1)
    now, passed = BEGIN, -rate * burst_ns // SECOND  # what is full at the start is no part of the rate
    while now < BEGIN + LASTS_S * SECOND:
        request = Request(key, 1, 1, 0)
        judge.decide([request], now)
        passed += request.passed
        now += SEND_NS if request.passed else ASKS_NS + int(late_ns * chance.random())
    return passed / (rate * LASTS_S)


@pytest.mark.parametrize("rate", [1, 10, 100])
def test_a_client_that_asks_on_time_gets_99_percent_with_the_breaker(rate: int) -> None:
    assert 0.99 <= share(rate, open_for_ns=SECOND, late_ns=0) <= 1.01
    assert 0.99 <= share(rate, open_for_ns=SECOND, late_ns=2_000_000) <= 1.01


@pytest.mark.parametrize("rate", [1, 10, 100])
def test_a_late_one_loses_its_delay_and_a_burst_of_2_s_gives_it_back(rate: int) -> None:
    late = 20_000_000
    assert 0.95 <= share(rate, open_for_ns=SECOND, late_ns=late) <= 0.97
    assert 0.99 <= share(rate, open_for_ns=SECOND, late_ns=late, burst_ns=2 * SECOND) <= 1.02


@pytest.mark.parametrize(("rate", "least"), [(1, 0.95), (10, 0.99), (100, 0.99)])
def test_without_the_breaker_only_a_bucket_of_one_message_loses(rate: int, least: float) -> None:
    assert least <= share(rate, open_for_ns=0, late_ns=20_000_000) <= 1.01
