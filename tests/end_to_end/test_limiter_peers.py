"""Our algorithms beside Guava's and beside the design's that this comes from: the same schedule, what passes, message by message.

Guava's SmoothBursty passes a request if nothing is owed, whatever it costs, and lets it owe: it lends the future. That is our `pacing`,
with Guava's burst in place of the tolerance. For single permits it is also our `token_bucket`, which asks for the price beforehand, with
one token more than Guava stores, namely the one that is lent. Guava starts with nothing stored, ours full; so both rest before they are
compared.
Needs no broker, only Guava's jar.
"""

from __future__ import annotations

import random
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from limiter.algorithms import ALGORITHMS
from limiter.algorithms.base import Algorithm
from limiter.algorithms.pacing import TOLERANCE_NS
from limiter.limits import Limit, Rate
from support.java import MavenUnreachableError
from support.models.asking import SECOND, Rule, ask, judge_of, key_of
from support.models.other_limiters import Case, put_to

pytestmark = pytest.mark.rocketmq  # runs with what needs Java and Maven Central

RATES = (1, 2, 5, 10, 100, 1000, 10_000)  # whose intervals are whole microseconds, as Guava needs them to be exact
REST_US = 20_000_000
Asks = list[tuple[int, int | str]]


def compared(home: Path, *cases: Case) -> None:
    try:
        put_to(list(cases), home)
    except MavenUnreachableError as error:
        pytest.skip(f"THE LIMITER IS NOT COMPARED WITH GUAVA'S, its jar is not here and Maven Central cannot be reached: {error}")


def passed(bucket: Algorithm, asks: Asks) -> list[bool]:
    """Which of them pass here."""
    found = []
    for at, permits in asks:
        assert isinstance(permits, int)
        found.append(bucket.available(1, permits, 0, at * 1000) == 1)
        if found[-1]:
            bucket.take(1, permits, 0)
    return found


def schedule(rate: int, most: int) -> Asks:
    """3,000 requests after a rest: bunches, floods, pauses, in quarters of an interval; of up to `most` permits."""
    source = random.Random(rate * 100 + most)
    quarter = 250_000 // rate
    now = REST_US
    asks: Asks = []
    while len(asks) < 3000:
        gap = source.choice([0, 0, 2, 2, 3, 9, 200])
        for _ in range(source.randint(5, 40)):
            now += gap * quarter * source.randint(0, 2)
            asks.append((now, source.randint(1, most)))
    return asks


def test_a_token_bucket_passes_what_smooth_bursty_passes(tmp_path: Path) -> None:
    """Guava's burst of 20 permits, ours of 21."""
    cases = [Case("bursty", rate, 20 / rate, schedule(rate, 1)) for rate in RATES]
    compared(tmp_path, *cases)
    for case in cases:
        bucket = ALGORITHMS["token_bucket"](Limit(messages=Rate(int(case.rate)), messages_burst=21), 0)
        assert passed(bucket, case.asks) == case.passed, case.rate
        assert 0.2 < sum(case.passed) / len(case.passed) < 0.9, "nothing was compared"


def test_pacing_passes_what_smooth_bursty_passes_batches_too(tmp_path: Path) -> None:
    cases = [Case("bursty", rate, TOLERANCE_NS / SECOND, schedule(rate, 8)) for rate in RATES]
    compared(tmp_path, *cases)
    for case in cases:
        assert passed(ALGORITHMS["pacing"](Limit(messages=Rate(int(case.rate))), 0), case.asks) == case.passed, case.rate
        assert 0.1 < sum(case.passed) / len(case.passed) < 0.9, "nothing was compared"


def test_where_a_token_bucket_and_smooth_bursty_differ(tmp_path: Path) -> None:
    """Guava begins with nothing stored, and passes a batch that has not come in yet."""
    start: Asks = [(0, 1)] * 100
    batch: Asks = [*[(REST_US, 1)] * 101, (REST_US + 10_000, 50), (REST_US + 500_000, 1), (REST_US + 510_000, 1)]
    cases = [Case("bursty", 100, 1, start), Case("bursty", 100, 1, batch)]
    compared(tmp_path, *cases)
    assert sum(cases[0].passed) == 1
    assert sum(passed(ALGORITHMS["token_bucket"](Limit(messages=Rate(100)), 0), start)) == 100
    assert cases[1].passed == [True] * 102 + [False, True]  # lent: half a second of silence after it
    ours = passed(ALGORITHMS["token_bucket"](Limit(messages=Rate(100), messages_burst=101), 0), batch)
    assert ours == [True] * 101 + [False, True, True]  # it waits for its tokens; who comes later may pass


def test_warm_up_rises_as_smooth_warming_up_does(tmp_path: Path) -> None:
    """Where ours has no burst to speak of."""
    rate, over_us = 100, 10_000_000
    asks: Asks = [(at, 1) for at in range(0, 14_000_000, 100)]
    case = Case("warming_up", rate, over_us, asks)
    compared(tmp_path, case)
    ours = passed(ALGORITHMS["warm_up"](Limit(messages=Rate(rate), messages_burst=1, warm_up_ns=over_us * 1000), 0), asks)
    totals, theirs = ([sum(found[: 10_000 * second]) for second in range(1, 15)] for found in (ours, case.passed))
    assert totals == pytest.approx(theirs, abs=2)
    assert (totals[0], totals[-1] - totals[-2]) == (35, 100)


# ---- the design this comes from --------------------------------------------------------------------------------------


def arrivals(rate: float, load: float, seconds: int) -> Asks:
    """Evenly, `load` times the rate."""
    return [(round(number * 1_000_000 / (rate * load)), 1) for number in range(int(rate * load * seconds))]


def judged(rate: Rate, open_for_ns: int, asks: Asks) -> list[bool]:
    """What our judge lets pass, with a burst of a second and a breaker of so long."""
    judge = judge_of(Rule("r", limit=Limit(messages=rate), open_for_ns=open_for_ns))
    key = key_of(judge, "orders")
    return [ask(judge, key, SECOND + at * 1000).passed == 1 for at, _ in asks]


def average(found: list[bool], asks: Asks, since_s: int) -> float:
    """Messages per second after the first `since_s` seconds, in which bursts are used up."""
    counted = [good for good, (at, _) in zip(found, asks, strict=True) if at >= since_s * 1_000_000]
    return sum(counted) / (asks[-1][0] / 1e6 - since_s)


def longest_gap_s(found: list[bool], asks: Asks) -> float:
    times = [at for good, (at, _) in zip(found, asks, strict=True) if good]
    return max(after - before for before, after in pairwise(times)) / 1e6


def most_in_a_second(found: list[bool], asks: Asks) -> int:
    """The fullest window of one second, once the first burst is used up."""
    totals = [0, *accumulate(map(int, found))]
    each_second = round(1_000_000 / (asks[1][0] - asks[0][0]))
    return max(totals[end] - totals[end - each_second] for end in range(5 * each_second, len(totals)))


def test_a_longer_breaker_cost_most_of_the_rate_and_costs_nothing_now(tmp_path: Path) -> None:
    """At twice the rate of 1,000/s. Its bucket, of one second, ran over while the breaker was open."""
    asks = arrivals(1000, 2, 60)
    cases = {open_for_s: Case("original", 1000, open_for_s * 1e6, asks) for open_for_s in (2, 5)}
    compared(tmp_path, *cases.values())
    assert [average(case.passed, asks, 0) for case in cases.values()] == pytest.approx([667, 334], rel=0.1)
    for open_for_s, case in cases.items():
        ours = judged(Rate(1000), open_for_s * SECOND, asks)
        assert 0.99 * 60_000 <= sum(ours) <= 61_000
        assert longest_gap_s(ours, asks) <= 1.001 < longest_gap_s(case.passed, asks)


def test_the_originals_breaker_makes_seconds_of_silence_and_ours_need_not(tmp_path: Path) -> None:
    """At 1.5 times the rate: a second of silence again and again, as its breaker has it. Ours has that too, and need not."""
    asks = arrivals(1000, 1.5, 20)
    case = Case("original", 1000, 1e6, asks)
    compared(tmp_path, case)
    with_breaker, without = judged(Rate(1000), SECOND, asks), judged(Rate(1000), 0, asks)
    assert (longest_gap_s(case.passed, asks), longest_gap_s(with_breaker, asks)) == pytest.approx((1.0, 1.0), abs=0.01)
    assert longest_gap_s(without, asks) <= 0.002
    assert [average(found, asks, 5) for found in (case.passed, with_breaker, without)] == pytest.approx([1000] * 3, rel=0.1)
    assert most_in_a_second(case.passed, asks) >= 1400
    assert most_in_a_second(without, asks) <= 1001


def test_the_original_charged_refused_messages_and_ours_does_not(tmp_path: Path) -> None:
    """Without a breaker its refusals moved the next free ticket on: half of the rate was lost."""
    asks = arrivals(1000, 10, 10)
    case = Case("original", 1000, 0, asks)
    compared(tmp_path, case)
    assert 450 <= average(case.passed, asks, 2) <= 650
    assert average(judged(Rate(1000), 0, asks), asks, 2) == pytest.approx(1000, abs=1)


def test_low_rates_lost_up_to_half_and_lose_nothing_now(tmp_path: Path) -> None:
    rates = [(10, 1), (5, 1), (1, 1), (1, 2)]
    cases = [Case("original", rate / per_s, 1e6, arrivals(rate / per_s, 10, 200)) for rate, per_s in rates]
    compared(tmp_path, *cases)
    assert [average(case.passed, case.asks, 10) for case in cases] == pytest.approx([9.5, 4.5, 0.67, 0.25], rel=0.12)
    for (rate, per_s), case in zip(rates, cases, strict=True):
        assert average(judged(Rate(rate, per_s * SECOND), SECOND, case.asks), case.asks, 10) >= 0.99 * rate / per_s


def test_the_originals_wait_hint_was_a_thousandth_of_the_true_wait_and_ours_is_true(tmp_path: Path) -> None:
    """A client that comes back after the wait it was told: refused then, admitted now."""
    asks: Asks = [(10, 1)] * 2000
    case = Case("original", 1000, 1e6, asks)
    compared(tmp_path, case)
    first = case.passed.index(False)
    told = case.told_us[first]
    assert told <= 1000
    again = Case("original", 1000, 1e6, [*asks[: first + 1], (10 + told, 1), (990_000, 1), (1_003_000, 1)])
    compared(tmp_path, again)
    assert again.passed[first + 1 :] == [False, False, True]
    judge = judge_of(Rule("r", limit=Limit(messages=Rate(1000)), open_for_ns=SECOND))
    key = key_of(judge, "orders")
    refused = ask(judge, key, SECOND, count=1001)
    assert ask(judge, key, SECOND + refused.wait_ns - 1).passed == 0
    assert ask(judge, key, SECOND + refused.wait_ns).passed == 1


def test_a_rate_of_zero_switched_the_original_off_and_refuses_everything_in_ours(tmp_path: Path) -> None:
    asks: Asks = [(0, "0.0"), *((at, 1) for at in range(1000, 3000))]
    case = Case("original", 1000, 1e6, [(1, "rate 0"), *asks[1:]])
    compared(tmp_path, case)
    assert sum(case.passed) == 2000
    assert sum(judged(Rate(0), SECOND, asks[1:])) == 0
