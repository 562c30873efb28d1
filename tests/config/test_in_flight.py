"""How limits on what is in flight are written, and what is said of those written wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from config import ConfigProblem, load
from limiter.limits import Limit, Rate

LISTENERS = "listeners:\n  - {name: rabbit, protocol: amqp, bind: 127.0.0.1:5672, upstream: 127.0.0.1:5673}\n"


@pytest.mark.parametrize(
    ("text", "limit", "breaker_ns"),
    [
        ("algorithm: concurrency, limit: {concurrent: 64}", Limit(concurrent=64), 0),
        (
            "algorithm: concurrency, limit: {concurrent: 64, messages: 5/s}, breaker: {open_for: 2s}",
            Limit(Rate(5), concurrent=64),
            2_000_000_000,
        ),
        ("algorithm: adaptive, limit: {concurrent: 9}", Limit(concurrent=9), 0),
        ("algorithm: adaptive, limit: {concurrent: 9}, adaptive: {at_least: 2, start: 3}", Limit(concurrent=9, at_least=2, start=3), 0),
        ("algorithm: adaptive, limit: {concurrent: 9}, adaptive: {start: 3}", Limit(concurrent=9, start=3), 0),
    ],
)
def test_limits_on_requests_in_flight_read_and_write_back_as_the_same(
    write: Callable[..., Path], text: str, limit: Limit, breaker_ns: int
) -> None:
    settings = load(write(LISTENERS + f"rules: [{{name: a, {text}}}]\n"))
    (rule,) = settings.rules
    assert (rule.limit, rule.breaker_ns()) == (limit, breaker_ns)
    (again,) = load(write(yaml.safe_dump(settings.describe()))).rules
    assert (again.algorithm, again.limit, again.breaker_ns()) == (rule.algorithm, limit, breaker_ns)


@pytest.mark.parametrize(
    ("text", "path", "said", "remedy"),
    [
        ("limit: {concurrent: 64}", "limit.concurrent", "this rule's is token_bucket", "set one of them"),
        ("algorithm: concurrency, limit: {messages: 5/s}", "", "needs the most requests in flight", "add limit: {concurrent: 64}"),
        ("algorithm: adaptive", "", "needs the most requests in flight", "add limit: {concurrent: 64}"),
        ("algorithm: concurrency, limit: {concurrent: 0}", "limit.concurrent", "0 is too small", "the least is 1"),
        ("algorithm: concurrency, limit: {concurent: 5}", "limit.concurent", "unknown key", "did you mean `concurrent`?"),
        (
            "algorithm: concurrency, limit: {concurrent: 5}, match: {operation: consume}",
            "algorithm",
            "counts requests of publishers",
            "use algorithm: token_bucket",
        ),
        (
            "algorithm: concurrency, limit: {concurrent: 5}, adaptive: {start: 3}",
            "adaptive",
            "is for algorithm: adaptive",
            "or leave it out",
        ),
        ("limit: {messages: 5/s}, adaptive: {start: 3}", "adaptive", "is for algorithm: adaptive", "leave it out"),
        (
            "algorithm: adaptive, limit: {concurrent: 5}, adaptive: {at_least: 6}",
            "adaptive.at_least",
            "6 is outside 1 to 5",
            "lower at_least",
        ),
        (
            "algorithm: adaptive, limit: {concurrent: 50}, adaptive: {at_least: 6, start: 5}",
            "adaptive.start",
            "5 is outside 6",
            "choose a number between the two",
        ),
        (
            "algorithm: concurrency, limit: {concurrent: 5}, candidate: {messages: 1/s}",
            "candidate",
            "not for algorithm: concurrency",
            "leave it out",
        ),
    ],
)
def test_a_wrong_limit_is_named_with_the_way_out(
    faults: Callable[..., list[ConfigProblem]], text: str, path: str, said: str, remedy: str
) -> None:
    (problem,) = faults(LISTENERS + f"rules: [{{name: a, {text}}}]\n")
    assert problem.path == f"rules[0].{path}".rstrip(".") or not path
    assert said in problem.message
    assert remedy in problem.remedy
