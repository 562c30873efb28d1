"""What a changed file means for a running gateway: rules are in force on a reload, everything else needs a restart."""

# ruff: noqa: E501  -- tables, one case a line

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from config import diff, load
from config.reloading import NEEDS_RESTART, RELOADED, merge
from config.rules import RuleKind
from config.sections import ListOf, OrElse, Section
from config.settings import ROOT
from limiter.limits import Rate
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
    (RULES + "log: {level: debug}\n", ["log.level: info -> debug"], []),
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
    ((changed,), (added,)) = diff(old, new).values()
    assert changed == "listeners.rabbit.upstream: 127.0.0.1:2 -> 127.0.0.1:3"
    assert added.startswith("listeners.new: (none) -> {name: new, protocol: amqp")


def test_merged_settings_have_what_a_reload_takes_and_where_it_is_written(write: Callable[..., Path]) -> None:
    old = load(write(LISTENERS + RULES))
    new = load(write(LISTENERS + "admin: {bind: 127.0.0.1:9, names: [a.example]}\nrules: [{name: z, limit: {messages: 1/s}}]\n"))
    both = merge(old, new)
    assert [rule.name for rule in both.rules] == ["z"]
    assert (both.admin.bind, both.admin.names) == (old.admin.bind, ("a.example",))
    assert str(both.origin("rules[0].name")).endswith("sluice.yaml:4:16")
    assert str(both.origin("admin.names[0]")).endswith("sluice.yaml:3:36")
    assert diff(both, new) == {"in_force": [], "needs_restart": ["admin.bind: 127.0.0.1:9180 -> 127.0.0.1:9"]}


def test_workers_take_limits_of_connections_by_a_reload(write: Callable[..., Path]) -> None:
    old = load(write(LISTENERS + "gateway: {workers: 2}\n"))
    new = load(write(LISTENERS.replace("127.0.0.1:2", "127.0.0.1:2, max_connections: 5, max_connection_rate: 5/s, idle_timeout: 1min")))
    both = merge(old, new)
    found = both.listeners[0]
    assert (found.max_connections, found.max_connection_rate, found.idle_timeout_ns) == (5, Rate(5), 60_000_000_000)


def leaves(section: Section[Any], path: str = "") -> Iterator[str]:
    """Every setting of the gateway, as RELOADED writes it."""
    for key, (_, known) in section.settings.items():
        inner = f"{path}.{key}" if path else key
        kind = known.kind
        kind = kind.item if isinstance(kind, ListOf) else kind
        kind = kind.section if isinstance(kind, OrElse) else kind
        if isinstance(kind, Section):
            yield from leaves(kind, inner)
        else:
            yield inner


def test_every_setting_is_on_one_of_the_two_lists() -> None:
    lists = (*RELOADED, *NEEDS_RESTART)
    named = {path: sum(path == each or path.startswith(f"{each}.") for each in lists) for path in leaves(ROOT)}
    wrong = {path: times for path, times in named.items() if times != 1}
    assert wrong == {}, "so many times each is named in RELOADED and NEEDS_RESTART of config/reloading.py"


def test_the_lists_name_no_setting_that_is_gone() -> None:
    known = [*leaves(ROOT)]
    for each in (*RELOADED, *NEEDS_RESTART):
        assert any(path == each or path.startswith(f"{each}.") for path in known), each


def test_the_page_has_both_lists_as_they_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reloading.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{path}` | {text} |" for listed in (RELOADED, NEEDS_RESTART) for path, text in listed.items()]
