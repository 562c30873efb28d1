"""One check names every fault of a file, once, in the order of the file: no fault hides another."""

# ruff: noqa: E501  -- tables, one case a line

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from config import ConfigProblem, lint, load

Faults = Callable[..., list[ConfigProblem]]

LISTENERS = "listeners:\n  - {name: rabbit, protocol: amqp, bind: 127.0.0.1:5672, upstream: 127.0.0.1:5673}\n"


def named(problems: list[ConfigProblem]) -> list[tuple[int, int, str]]:
    return [(each.line, each.column, each.path) for each in problems]


def test_values_that_cannot_be_read_do_not_hide_values_that_do_not_fit(faults: Faults) -> None:
    problems = faults(
        LISTENERS + "rules:\n"
        "  - {name: a, match: {protocol: rocketmq, exchange: x}, action: blok, limit: {messages: 5/s}}\n"
        "  - {name: b, match: {protocol: amqp, client: 10.0.0.300}, max_delay: 10s, algorithm: pace, limit: {messages: 5/s}}\n"
    )
    assert named(problems) == [
        (4, 53, "rules[0].match.exchange"),
        (4, 65, "rules[0].action"),
        (5, 47, "rules[1].match.client"),
        (5, 71, "rules[1].max_delay"),
        (5, 87, "rules[1].algorithm"),
    ]
    said = [
        "exchange is AMQP's",
        "is not one of reject, delay, block, drop, close",
        "10.0.0.300",
        "10s is too much",
        "is not one of token_bucket, pacing, warm_up",
    ]
    assert all(words in each.message for words, each in zip(said, problems, strict=True))


def test_a_backlog_of_the_other_protocol_is_one_fault(faults: Faults) -> None:
    lag = "limit: {messages: 5/s}, algorithm: lag, lag: {group: g, target: 10, slowest: 1/s}"
    (problem,) = faults(LISTENERS + f"rules: [{{name: a, match: {{protocol: amqp}}, {lag}}}]\n")
    assert (problem.path, problem.message) == ("rules[0].lag.group", "is RocketMQ's")


def test_a_name_given_twice_does_not_hide_an_empty_limit(faults: Faults) -> None:
    problems = faults(
        LISTENERS + "rules:\n"
        "  - {name: a, limit: {messages: 5/s}}\n"
        "  - {name: a, limit: {messages: 5/s}}\n"
        "  - {name: c, match: {protocol: rocketmq, topic: x}, limit: {}}\n"
        "  - {name: a, limit: {}}\n"
    )
    assert named(problems) == [(5, 12, "rules[1].name"), (6, 61, "rules[2].limit"), (7, 12, "rules[3].name"), (7, 22, "rules[3].limit")]


def test_a_wrong_role_does_not_hide_a_missing_token_file(faults: Faults, tmp_path: Path) -> None:
    problems = faults(LISTENERS + "admin: {bind: 0.0.0.0:9180, tokens: [{name: t, role: root, file: nofile}]}\n")
    assert named(problems) == [(3, 15, "admin.bind"), (3, 54, "admin.tokens[0].role"), (3, 66, "admin.tokens[0].file")]
    assert problems[2].message == f"{tmp_path / 'nofile'} cannot be read: No such file or directory"


def test_a_missing_token_file_alone_is_a_warning(write: Callable[..., Path]) -> None:
    """The file may come after the check; the gateway asks for it at its start."""
    settings = load(
        write(LISTENERS + "rules: [{name: a, limit: {messages: 1/s}}]\nadmin: {tokens: [{name: t, role: admin, file: nofile}]}\n")
    )
    assert [each.path for each in lint(settings)] == ["admin.tokens[0].file"]


# one rule, the paths below rules[0] that are named
RULES = [
    ("{name: a, match: {protocol: amqp, topic: t, group: g}, limit: {}}", ["match.topic", "match.group", "limit"]),
    ("{name: a, match: {protocol: amqp, namespace: n}, per: group, limit: {}}", ["match.namespace", "per", "limit"]),
    ("{name: a, match: {protocol: rocketmq, vhost: /, queue: q}, per: exchange, limit: {messages: 1/s}}", ["match.vhost", "match.queue", "per"]),
    ("{name: a, match: {exchange: e, queue: q, client: nobody}, reply: system_busy, limit: {}}", ["match.queue", "match.client", "reply", "limit"]),
    ("{name: a, match: {protocol: amqp, topic: []}, limit: {burst: 5}}", ["match.topic", "match.topic", "limit", "limit.burst"]),
    ("{match: {client: 1.2.3.4/33}, mode: shadw, limit: {}}", ["name", "match.client", "mode", "limit"]),
    ("{name: a, match: {client: nobody}, weight: -2, limit: {}}", ["match.client", "weight", "limit"]),
    # What was meant is not known, so nothing is built on it.
    ("{name: a, match: {exchange: e, topic: t}, per: exchange, reply: system_busy, limit: {messages: 1/s}}", ["match.exchange"]),
    ("{name: a, match: {protocol: amqpp, topic: t}, limit: {messages: 1/s}}", ["match.protocol"]),
    ("{name: a, match: {client: []}, limit: {messages: 1/s}}", ["match.client"]),
    ("{name: a, match: {queue: q, exchange: e, operation: consume}, limit: {messages: 1/s}}", ["match.exchange"]),
    ("{name: a, limit: 5/s}", ["limit"]),
    ("{name: a, limit: {messages: 5}}", ["limit.messages"]),
    ("{name: a, limit: {mesages: 5/s}}", ["limit.mesages"]),
    ("{name: a, limt: {messages: 5/s}}", ["limt"]),
    ("{name: a, messages: 5/s}", ["messages"]),
    ("{name: a, colour: red}", ["", "colour"]),  # "": the limit is missing, and that is said at the rule
    ("{name: a, mode.x: 1, limit: {messages: 5/s}}", ["mode.x"]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "paths"), RULES)
def test_every_fault_of_a_rule_is_named_and_nothing_that_only_follows(faults: Faults, rule: str, paths: list[str]) -> None:
    problems = faults(f"{LISTENERS}rules:\n  - {rule}\n")
    assert [each.path for each in problems] == [f"rules[0].{path}" if path else "rules[0].limit" for path in paths]
    assert all((each.line, each.remedy != "") == (4, True) for each in problems)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("credit: {initial: many, more_after: 500}\n", ["credit.initial"]),
        ("credit: {initial: *x, more_after: 500}\n", [""]),
        ("memory: {per_connection: 512MiB, high_watermark: 5}\n", ["memory.high_watermark"]),
        ("rules: [{name: a, limit: *x}]\nlog: {level: *y}\n", ["", ""]),
        ("rules: [*x]\n", [""]),
        ("gateway: {state_directory: ~nobody-at-all/state}\n", ["gateway.state_directory"]),
    ],
)
def test_nothing_is_said_of_values_that_are_not_known(faults: Faults, text: str, paths: list[str]) -> None:
    assert [each.path for each in faults(LISTENERS + text)] == paths
