"""Many rules: what each of them costs, counted in calls, however many there are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from config import Settings, diff, lint, load
from config.reloading import merge

LISTENERS = """\
listeners:
  - {name: rabbit, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2}
  - {name: rocket, protocol: rocketmq, bind: 127.0.0.1:3, upstream: 127.0.0.1:4}
rules_file: limits.yaml
"""
ONE = "match: {{protocol: rocketmq, topic: orders-{0}}}, limit: {{messages: 100/s}}"
KINDS = {  # rules of which none precedes another, in turn
    "one topic each": (ONE,),
    "patterns": ("match: {{protocol: rocketmq, topic: 'orders-{0}-*'}}, limit: {{messages: 100/s}}",),
    "networks": ("match: {{protocol: rocketmq, topic: 'orders*', client: 10.{0}.0.0/16}}, limit: {{messages: 100/s}}",),
    "words": ("match: {{protocol: amqp, routing_key: 'eu.{0}.#'}}, limit: {{messages: 100/s}}, action: delay",),
    "without limit": ("match: {{protocol: rocketmq, topic: share-{0}}}, weight: 3", ONE),
}
FEW, MANY = 50, 150

Loads = Callable[[int, tuple[str, ...]], Settings]


@pytest.fixture
def of_rules(write: Callable[..., Path]) -> Loads:
    def loaded(count: int, kinds: tuple[str, ...]) -> Settings:
        rules = "".join(f"  - {{name: r{number}, {kinds[number % len(kinds)].format(number)}}}\n" for number in range(count))
        cap = "  - {name: cap, per: listener, limit: {messages: 1000/s}}\n"
        return load(write(LISTENERS, limits=f"rules:\n{rules}{cap}"))

    return loaded


def calls(work: Callable[[], object]) -> int:
    """The calls of functions written in Python while `work` is done."""
    count = 0

    def note(_frame: FrameType, event: str, _value: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def calls_a_rule(of_rules: Loads, kinds: tuple[str, ...], work: Callable[[Settings], object]) -> float:
    few, many = of_rules(FEW, kinds), of_rules(MANY, kinds)
    work(few)  # what is made once is there
    return (calls(lambda: work(many)) - calls(lambda: work(few))) / (MANY - FEW)


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_a_reload_looks_at_each_rule_once_to_see_what_it_changes(of_rules: Loads, kinds: tuple[str, ...]) -> None:
    assert calls_a_rule(of_rules, kinds, lambda settings: merge(settings, settings)) < 15
    assert calls_a_rule(of_rules, kinds, lambda settings: diff(settings, settings)) < 25


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_a_rule_is_not_compared_with_each_other_rule(of_rules: Loads, kinds: tuple[str, ...]) -> None:
    assert calls_a_rule(of_rules, kinds, lint) < 300


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_to_read_a_rule_takes_few_calls(of_rules: Loads, kinds: tuple[str, ...]) -> None:
    of_rules(FEW, kinds)  # what is made once is there
    assert (calls(lambda: of_rules(MANY, kinds)) - calls(lambda: of_rules(FEW, kinds))) / (MANY - FEW) < 208
