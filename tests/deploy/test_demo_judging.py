"""What the demo judges by: bounds that hold on any machine, and that a gateway which lets more pass does not keep."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def program() -> Any:
    spec = importlib.util.spec_from_file_location("judging", ROOT / "deploy" / "demo" / "judging.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


judging = program()
LIMIT = judging.Limit(100, 50)


def messages(count: int, *, passed: int, every: float = 0.001, delay: float = 0.5) -> list[Any]:
    """`count` messages from 10 s on, the first `passed` of them confirmed."""
    return [judging.Message(10 + at * every, 10 + at * every + delay, at < passed) for at in range(count)]


def test_a_window_has_the_messages_sent_in_it_and_lasts_until_their_last_answer() -> None:
    seen = judging.window(messages(1000, passed=600), 10.5, 11.0)
    assert (seen.offered, seen.passed, seen.refused) == (500, 100, 400)
    assert seen.seconds == pytest.approx(0.999)  # sent at 10.999, answered half a second later


def test_a_window_begins_before_the_first_message() -> None:
    assert judging.window(messages(10, passed=10), 8.0).seconds == pytest.approx(2.509)


def test_a_window_without_messages_is_within_every_limit() -> None:
    seen = judging.window([], 10.0)
    assert seen == (0, 0, 0.0)
    assert seen.within([LIMIT])
    assert seen.keeps_burst([LIMIT])


@pytest.mark.parametrize(("passed", "held"), [(250, True), (251, False)])
def test_no_more_passes_than_the_rate_and_what_was_saved_up(passed: int, held: bool) -> None:
    assert judging.Window(5000, passed, 2.0).within([LIMIT]) == held


def test_the_tightest_of_several_limits_judges() -> None:
    slow, small = judging.Limit(10, 500), judging.Limit(1000, 5)
    assert judging.Window(5000, 500, 0.1).tightest([slow, small]) == small
    assert judging.Window(5000, 500, 10.0).tightest([slow, small]) == slow
    assert not judging.Window(5000, 500, 0.1).within([slow, small])


@pytest.mark.parametrize(("offered", "passed", "held"), [(30, 30, True), (30, 29, False), (900, 50, True), (900, 49, False)])
def test_what_was_saved_up_passes_however_slow_the_machine(offered: int, passed: int, held: bool) -> None:
    assert judging.Window(offered, passed, 60.0).keeps_burst([LIMIT]) == held


@pytest.mark.parametrize(
    ("rate", "unanswered", "seconds", "held"),
    [
        (100, 49, 1e6, True),  # at the limit, and as many under way as were saved up
        (100, 50, 1e6, False),  # a stall, and all of them come at once
        (140, 9, 1.0, True),  # beyond the limit, but not for long enough
        (140, 10, 1.0, False),
    ],
)
def test_a_calm_publisher_is_one_that_no_stall_can_bring_over_its_limit(rate: float, unanswered: int, seconds: float, held: bool) -> None:
    assert judging.must_pass(rate, unanswered, seconds, [LIMIT]) == held
    assert judging.must_pass(rate, unanswered, seconds, [LIMIT, judging.Limit(1e9, 1e9)]) == held
