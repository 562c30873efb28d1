"""What a changed file means for a running gateway: rules are in force on a reload, everything else needs a restart."""

# ruff: noqa: E501  -- tables, one case a line

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.settings import diff, load
from gateway.settings.rules import RuleKind
from limiter.rules.rule import Rule

LISTENERS = "listeners:\n  - {name: rabbit, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2}\n"
RULES = "rules:\n  - {name: a, limit: {messages: 1/s}}\n  - {name: b, limit: {messages: 2/s}, match: {protocol: amqp}}\n"

CHANGES = [
    (RULES, [], []),
    ("# moved down\n" + RULES, [], []),
    ("rules:\n  - {name: a, limit: {messages: 5/s}}\n  - {name: b, limit: {messages: 2/s}, match: {protocol: amqp}}\n",
     ["rule a: limit.messages: 1/s -> 5/s"], []),
    ("rules:\n  - {name: a, limit: {messages: 1/s, bytes: 1MiB/s}}\n  - {name: b, limit: {messages: 2/s}, match: {protocol: amqp}}\n",
     ["rule a: limit.bytes: (none) -> 1MiB/s"], []),
    ("rules:\n  - {name: a, limit: {messages: 1/s}}\n", ["rule b: removed"], []),
    (RULES + "  - {name: c, limit: {messages: 3/s}}\n", ["rule c: added"], []),
    ("rules:\n  - {name: b, limit: {messages: 2/s}, match: {protocol: amqp}}\n  - {name: a, limit: {messages: 1/s}}\n", ["rules: order changed"], []),
    (RULES + "log: {level: debug}\n", [], ["log.level: info -> debug"]),
    (RULES + "quotas: {hourly_raise: on}\n", ["quotas.hourly_raise: off -> on"], []),
    (RULES + "access_log: off\n", [], [
        ("access_log: {directory: DIR/access-log, roll_every: 5min, roll_size: 128MiB, compress: auto, keep: 30d, keep_size: 10GiB, "
         "keep_until: auto} -> off")
    ]),
    (RULES + "admin: {bind: 127.0.0.1:9}\n", [], ["admin.bind: 127.0.0.1:9180 -> 127.0.0.1:9"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "in_force", "needs_restart"), CHANGES)
def test_diff(write: Callable[..., Path], tmp_path: Path, text: str, in_force: list[str], needs_restart: list[str]) -> None:
    old = load(write(LISTENERS + RULES))
    new = load(write(LISTENERS + text))
    restart = [line.replace("DIR", str(tmp_path)) for line in needs_restart]
    assert diff(old, new) == {"in_force": in_force, "needs_restart": restart}


def test_only_rules_that_differ_are_shown(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Showing a rule takes 0.2 ms; a reload of thousands must not."""
    shown: list[str] = []
    show = RuleKind.show

    def noted(self: RuleKind, rule: Rule) -> object:
        shown.append(rule.name)
        return show(self, rule)

    monkeypatch.setattr(RuleKind, "show", noted)
    rules = "rules:\n" + "".join(f"  - {{name: r{number}, limit: {{messages: {number + 1}/s}}}}\n" for number in range(100))
    old = load(write(LISTENERS + rules))
    new = load(write("# moved down\n" + LISTENERS + rules.replace("{messages: 8/s}", "{messages: 800/s}")))
    assert diff(old, new) == {"in_force": ["rule r7: limit.messages: 8/s -> 800/s"], "needs_restart": []}
    assert shown == ["r7", "r7"]


def test_listeners_are_compared_by_name(write: Callable[..., Path]) -> None:
    old = load(write(LISTENERS))
    new = load(
        write(
            LISTENERS.replace("127.0.0.1:2", "127.0.0.1:3") + "  - {name: new, protocol: amqp, bind: 127.0.0.1:7, upstream: 127.0.0.1:8}\n"
        )
    )
    changed, added = diff(old, new)["needs_restart"]
    assert changed == "listeners.rabbit.upstream: 127.0.0.1:2 -> 127.0.0.1:3"
    assert added.startswith("listeners.new: (none) -> {name: new, protocol: amqp")


def test_with_rules_takes_the_rules_and_nothing_else(write: Callable[..., Path]) -> None:
    old = load(write(LISTENERS + RULES))
    new = load(write(LISTENERS + "log: {level: debug}\nrules: [{name: z, limit: {messages: 1/s}}]\n"))
    merged = old.with_rules(new)
    assert [rule.name for rule in merged.rules] == ["z"]
    assert merged.log.level == "info"
    assert str(merged.origin("rules[0].name")).endswith("sluice.yaml:4:16")
    assert diff(merged, new) == {"in_force": [], "needs_restart": ["log.level: info -> debug"]}
