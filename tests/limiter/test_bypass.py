"""How much may pass without a verdict: never more than the share of any window, and not much less than it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.bypass import PARTS, SLOTS, Bypass, BypassBound
from limiter.judge import Judge
from limiter.limits import SECOND, Limit, Rate
from limiter.request import Request
from limiter.rules.rule_set import Match, Rule, RuleSet
from limiter.topics import rocketmq_topic

WINDOW = 10 * SECOND
SLOT = WINDOW // SLOTS
steps = st.tuples(st.sampled_from(["judge", "pass", "fail"]), st.integers(0, 200), st.integers(0, 3 * SLOT) | st.integers(0, 2 * WINDOW))


class Model:
    """Remembers every message: when, how many, and whether without a verdict."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int, bool]] = []

    def passed(self, since: int) -> int:
        return sum(count for at, count, unjudged in self.events if at >= since and unjudged)

    def settled(self, since: int) -> int:
        return sum(count for at, count, _ in self.events if at >= since)


@given(parts=st.sampled_from([0, 1000, 100_000, 333_333, 900_000]), script=st.lists(steps, max_size=60))
@settings(max_examples=300, deadline=None)
def test_the_share_holds_in_every_window_and_is_what_the_slots_allow(parts: int, script: list[tuple[str, int, int]]) -> None:
    judged = 0
    bypass = Bypass(BypassBound(parts, WINDOW), lambda: judged)
    model = Model()
    now = 12 * SECOND + 345
    for what, count, later in script:
        now += later
        bypass.look(now)  # as the executor does at every submission
        if what == "judge":
            judged += count
            model.events.append((now, count, False))
        elif what == "fail":
            bypass.add(count)
            model.events.append((now, count, True))
        else:
            slot = now // SLOT
            passed = model.passed((slot - SLOTS) * SLOT) + count
            settled = model.settled((slot - SLOTS + 1) * SLOT) + count
            allowed = bypass.take(count, now)
            assert allowed == (passed * PARTS <= settled * parts)
            if allowed:
                model.events.append((now, count, True))
                assert model.passed(now - WINDOW) * PARTS <= model.settled(now - WINDOW) * parts
    assert bypass.passed == model.passed(0)


def test_without_anything_judged_nothing_passes() -> None:
    bypass = Bypass(BypassBound(100_000, WINDOW), lambda: 0)
    assert not bypass.take(1, SECOND)


def test_all_of_it_means_no_bound() -> None:
    bypass = Bypass(BypassBound(PARTS, WINDOW), lambda: 0)
    assert all(bypass.take(1000, now * SECOND) for now in range(40))


def test_messages_judged_before_the_window_allow_no_bypass_in_it() -> None:
    judged = 0
    bypass = Bypass(BypassBound(100_000, WINDOW), lambda: judged)
    bypass.look(SECOND)
    judged = 1_000_000
    bypass.look(2 * SECOND)
    assert bypass.take(1000, 2 * SECOND)
    assert not bypass.take(1, 2 * SECOND + WINDOW)


@pytest.mark.parametrize(
    "wrong",
    [BypassBound(-1, WINDOW), BypassBound(PARTS + 1, WINDOW), BypassBound(1, 0), BypassBound(1, SLOTS - 1), BypassBound(1, SLOTS + 1)],
)
def test_an_invalid_share_is_refused(wrong: BypassBound) -> None:
    with pytest.raises(ValueError, match="a share is"):
        Bypass(wrong, lambda: 0)


def test_it_shows_what_it_has_let_pass() -> None:
    bypass = Bypass(BypassBound(100_000, WINDOW), lambda: 0)
    bypass.add(7)
    assert repr(bypass) == "<Bypass passed=7 of at most 10 %>"


def test_the_judge_tells_how_many_messages_it_has_judged() -> None:
    rule = Rule("orders", Match(protocol="rocketmq", topic="orders"), "topic", Limit(Rate(10), messages_burst=10), open_for_ns=0)
    judge = Judge(RuleSet((rule,)))
    origin = judge.origin("rocketmq", "here", "10.0.0.7", None)
    limited = judge.key(origin, b"orders", rocketmq_topic(b"orders"))
    free = judge.key(origin, b"free", rocketmq_topic(b"free"))
    judge.decide([Request(limited, 15, 2, 10), Request(free, 100, 1, 10), Request(None, 7, 0, 0)], SECOND)
    assert judge.count_judged() == 30 == sum(judge.checks().values())
