"""Lints: allowed, but probably not meant."""

# ruff: noqa: E501  -- tables, one case a line

from __future__ import annotations

import resource
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from config import lint, lints, load, port_ranges
from config.port_ranges import PortRange

LISTENERS = "listeners:\n  - {name: rabbit, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2}\n"

# rules (the first in line 4), line, column, path, what is said
LINTED = [
    ("- {name: a, limit: {messages: 1000/s, burst: {messages: 10}}}", 4, 46, "rules[0].limit.burst", "below 20 ms of 1000/s"),
    ("- {name: a, limit: {messages: 1000/s, burst: 10ms}}", 4, 46, "rules[0].limit.burst", "the burst of 10 messages"),
    ("- {name: a, limit: {bytes: 1MB/s, burst: {bytes: 10kB}}}", 4, 42, "rules[0].limit.burst", "the burst of 10000 bytes"),
    ("- {name: a, match: {protocol: rocketmq}, limit: {messages: 1/s}}", 4, 20, "rules[0].match", "no listener speaks rocketmq"),
    ("- {name: a, match: {topic: x}, limit: {messages: 1/s}}", 4, 20, "rules[0].match", "no listener speaks rocketmq"),
    ("- {name: a, match: {namespace: x}, limit: {messages: 1/s}}", 4, 20, "rules[0].match", "no listener speaks rocketmq"),
    ("- {name: a, per: group, limit: {messages: 1/s}}", 4, 18, "rules[0].per", "no listener speaks rocketmq"),
    ("- {name: a, match: {listener: rocket}, limit: {messages: 1/s}}", 4, 31, "rules[0].match.listener", 'there is no listener "rocket"'),
    ("- {name: a, match: {listener: [rabbit, rocket]}, limit: {messages: 1/s}}", 4, 31, "rules[0].match.listener",
     'there is no listener "rocket": it adds nothing to the rule'),
    ("- {name: a, match: {listener: [rock*]}, limit: {messages: 1/s}}", 4, 31, "rules[0].match.listener",
     'there is no listener "rock*": the rule never matches'),
    ("- {name: a, limit: {messages: 1/s}}\n- {name: b, limit: {messages: 2/s}}", 5, 3, "rules[1].match", 'never holds: "a" (sluice.yaml:4)'),
    ("- {name: a, match: {vhost: /}, limit: {messages: 1/s}}\n- {name: b, match: {vhost: /, operation: produce}, limit: {messages: 2/s}}", 5, 20,
     "rules[1].match", 'never holds: "a"'),
    ("- {name: a, match: {exchange: orders}, limit: {messages: 1/s}}\n- {name: b, match: {exchange: orders, routing_key: 'a.#'}, limit: {messages: 2/s}}", 5, 20,
     "rules[1].match", '"a" (sluice.yaml:4) matches all that it matches and comes first'),
    ("- {name: a, match: {routing_key: 'a.#'}, limit: {messages: 1/s}}\n- {name: b, match: {routing_key: 'a.b.*'}, limit: {messages: 2/s}}", 5, 20,
     "rules[1].match", "matches all that it matches"),
    ("- {name: a, match: {exchange: 'o*'}, limit: {messages: 1/s}}\n- {name: b, match: {exchange: 'ord*', user: shop}, limit: {messages: 2/s}}", 5, 20,
     "rules[1].match", "matches all that it matches"),
    ("- {name: a, match: {client: 10.0.0.0/8}, limit: {messages: 1/s}}\n- {name: b, match: {client: 10.1.0.0/16}, limit: {messages: 2/s}}", 5, 20,
     "rules[1].match", "matches all that it matches"),
    ("- {name: a, match: {exchange: e, routing_key: k}, limit: {messages: 1/s}}\n- {name: b, match: {vhost: /, exchange: e, routing_key: k}, limit: {messages: 2/s}}", 5, 20,
     "rules[1].match", "matches all that it matches"),
    ("- {name: a, match: {protocol: amqp}, limit: {messages: 1/s}}\n- {name: b, match: {protocol: amqp, exchange: '*'}, limit: {messages: 2/s}}", 4, 20,
     "rules[0].match", '"b" (sluice.yaml:5) matches all that it matches and comes first'),
    ("- {name: a, match: {queue: q}, limit: {messages: 1/s}}\n- {name: b, match: {exchange: amq.default, routing_key: q}, limit: {messages: 2/s}}", 5, 20,
     "rules[1].match", "matches all that it matches"),
    ("- {name: a, match: {client: '::ffff:10.0.0.1'}, limit: {messages: 1/s}}", 4, 29, "rules[0].match.client", "the rule never matches"),
    ("- {name: a, match: {listener: rabbit, topic: x}, limit: {messages: 1/s}}\n", 4, 20, "rules[0].match", "no listener speaks rocketmq"),
    ("- {name: a, limit: {messages: 5/s}, candidate: {messages: 5/s}}", 4, 48, "rules[0].candidate", "equals the limit"),
    ("- {name: a, limit: {messages: 5/s}, candidate: {burst: 1s}}", 4, 48, "rules[0].candidate", "equals the limit"),
    ("- {name: a, limit: {messages: 5/s}, mode: off, candidate: {messages: 4/s}}", 4, 59, "rules[0].candidate", "no effect with mode: off"),
    ("- {name: a, limit: {messages: 1000/s}, candidate: {burst: 5ms}}", 4, 59, "rules[0].candidate.burst", "below 20 ms of 1000/s"),
    ("- {name: a, limit: {messages: 5/s}, weight: 3}", 4, 45, "rules[0].weight", "no rule caps a listener"),
    ("- {name: a, limit: {messages: 5/s}, protected: true}", 4, 48, "rules[0].protected", "no rule caps a listener"),
    ("- {name: all, match: {protocol: amqp}, limit: {messages: 5/s}}\n- {name: vips, match: {queue: vips}, protected: true}\n- {name: cap, per: listener, limit: {messages: 9/s}}", 5, 3,
     "rules[1].limit", "no longer under rule all (sluice.yaml:4)"),
    ("- {name: a, limit: {messages: 1/s}, action: drop, max_delay: 2s, fallback: drop}", 4, 62, "rules[0].max_delay", "no effect with action: drop"),
    ("- {name: a, limit: {messages: 1/s}, algorithm: pacing}", 4, 48, "rules[0].algorithm", "refuses most messages of a bunch"),
    ("- {name: a, limit: {messages: 5/s}, ceiling: true, mode: shadow}", 4, 46, "rules[0].ceiling", "no effect with mode: shadow"),
    ("- {name: a, match: {queue: q}, limit: {messages: 5/s}, ceiling: true}", 4, 65, "rules[0].ceiling", "names its topic"),
    ("- {name: a, limit: {messages: 1/s}, drop_expired: true}", 4, 51, "rules[0].drop_expired", "no effect with action: reject"),
    ("- {name: a, limit: {messages: 1/s}, max_delay: 2s}", 4, 48, "rules[0].max_delay", "no effect with action: reject"),
    ("- {name: a, limit: {messages: 1/s}, action: block, max_delay: 2s}", 4, 63, "rules[0].max_delay", "no effect with action: block"),
    ("- {name: a, match: {queue: q, operation: consume}, limit: {messages: 1/s}, max_delay: 2s}", 4, 87, "rules[0].max_delay",
     "no effect with operation: consume"),
    ("- {name: a, limit: {messages: 1/s}, action: close, reply: system_busy}", 4, 59, "rules[0].reply", "no effect with action: close"),
    ("- {name: a, match: {operation: consume}, limit: {messages: 1/s}, reply: system_busy}", 4, 73, "rules[0].reply",
     "no effect with operation: consume"),
]  # fmt: skip


def test_quotas_that_follow_surges_want_a_cap(write: Callable[..., Path]) -> None:
    quotas = f"{LISTENERS}quotas: {{surge_raise: on}}\nrules:\n- {{name: a, limit: {{messages: 5/s}}}}\n"
    (found,) = lint(load(write(quotas)))
    assert (found.path, "no rule is a cap" in found.message) == ("quotas.surge_raise", True)
    cap = f"{quotas}- {{name: broker, per: listener, limit: {{messages: 900/s}}"
    assert not lint(load(write(f"{cap}}}\n")))
    for idle in ("mode: shadow", "mode: off", "match: {operation: consume}"):
        (found,) = lint(load(write(f"{cap}, {idle}}}\n")))
        assert found.path == "quotas.surge_raise", "it bounds nothing that is published"


def test_a_ceiling_that_another_rule_precedes_holds_quotas_down_all_the_same(write: Callable[..., Path]) -> None:
    rules = "- {name: a, match: {queue: 'a*'}, limit: {messages: 1/s}}\n- {name: b, match: {queue: 'ab*'}, limit: {messages: 9/s}%s}"
    assert not lint(load(write(f"{LISTENERS}rules:\n{rules % ', ceiling: true'}\n")))
    (warning,) = lint(load(write(f"{LISTENERS}rules:\n{rules % ''}\n")))
    assert "the rule never holds" in str(warning)


def test_expiration_is_amqps(write: Callable[..., Path]) -> None:
    rules = "- {name: a, match: {protocol: rocketmq}, limit: {messages: 1/s}, action: spool, drop_expired: true}"
    said = {warning.path: str(warning) for warning in lint(load(write(f"{LISTENERS}rules:\n{rules}\n")))}
    assert "no effect with protocol: rocketmq" in said["rules[0].drop_expired"]


def test_a_rule_of_rocketmq_that_spools_is_told_what_waits(write: Callable[..., Path]) -> None:
    rule = "{name: a, match: {protocol: rocketmq}, limit: {messages: 1/s}, action: spool}"
    said = {warning.path: str(warning) for warning in lint(load(write(f"{LISTENERS}rules:\n- {rule}\n")))}
    assert "only one-way sends are spooled" in said["rules[0].action"]
    assert "say delay, which holds them up to 2.5s" in said["rules[0].action"]


@pytest.mark.parametrize(("rules", "line", "column", "path", "said"), LINTED)
def test_warns(write: Callable[..., Path], rules: str, line: int, column: int, path: str, said: str) -> None:
    (warning,) = lint(load(write(f"{LISTENERS}rules:\n{rules}\n")))
    assert (warning.line, warning.column, warning.path) == (line, column, path)
    assert said in warning.message
    assert warning.remedy


@pytest.mark.parametrize(
    "rules",
    [
        "- {name: a, limit: {messages: 1000/s, burst: {messages: 20}}}",
        "- {name: a, limit: {messages: 0/s}}",
        "- {name: a, limit: {messages: 1/s}}\n- {name: b, per: rule, limit: {messages: 2/s}}",
        "- {name: a, match: {exchange: 'o*'}, limit: {messages: 1/s}}\n- {name: b, match: {exchange: o, routing_key: k}, limit: {messages: 2/s}}",  # b names its key
        "- {name: a, match: {vhost: /, exchange: e}, limit: {messages: 1/s}}\n- {name: b, match: {exchange: e}, limit: {messages: 2/s}}",
        "- {name: a, match: {user: '*'}, limit: {messages: 1/s}}\n- {name: b, match: {exchange: e}, limit: {messages: 2/s}}",
        "- {name: a, match: {routing_key: 'a.*'}, limit: {messages: 1/s}}\n- {name: b, match: {routing_key: 'a.#'}, limit: {messages: 2/s}}",
        "- {name: a, match: {client: 10.1.0.0/16}, limit: {messages: 1/s}}\n- {name: b, match: {client: 10.0.0.0/8}, limit: {messages: 2/s}}",
        "- {name: a, match: {protocol: amqp}, limit: {messages: 1/s}}\n- {name: b, match: {exchange: e}, limit: {messages: 2/s}}",  # patterns come before
        "- {name: a, limit: {messages: 1/s}}\n- {name: b, match: {operation: consume}, limit: {messages: 2/s}}",
        "- {name: a, limit: {messages: 5/s}, candidate: {messages: 6/s}}",
        "- {name: a, limit: {messages: 5/s}, candidate: {messages: 5/s, burst: 3s}}",
        "- {name: a, limit: {messages: 5/s}, weight: 3}\n- {name: cap, per: listener, limit: {messages: 9/s}}",
        "- {name: a, match: {listener: 'rab*'}, limit: {messages: 1/s}}",
        "- {name: a, limit: {messages: 1/s}, action: block, reply: system_busy}",  # held for 2.5 s, then refused
        "- {name: a, limit: {messages: 1/s}, action: delay, max_delay: 2s}",
        "- {name: a, limit: {messages: 1/s}, fallback: drop}",
    ],
)
def test_does_not_warn(write: Callable[..., Path], rules: str) -> None:
    assert lint(load(write(f"{LISTENERS}rules:\n{rules}\n"))) == []


@pytest.mark.parametrize(
    ("rule", "field", "said"),
    [
        ("match: {topic: 'rmq_sys_*'}", "match.topic", "a pattern is never for RocketMQ's system topics: the rule never matches"),
        ("match: {topic: 'shop%orders', namespace: store}", "match.namespace", "shop%orders is in namespace shop, not in store"),
        ("match: {topic: 'shop%ord*', namespace: store}", "match.namespace", "is in namespace shop, not in store"),
        ("match: {topic: orders, namespace: 'st*'}", "match.namespace", "orders is in no namespace, not in st*"),
        ("match: {topic: '%RETRY%shop%billing', namespace: store}", "match.namespace", "is in namespace shop"),
        (
            "match: {listener: rabbit, topic: orders}",
            "match.listener",
            "listener rabbit speaks amqp, and the rule is for rocketmq: it never matches",
        ),
        ("match: {listener: rocket}, per: exchange", "match.listener", "listener rocket speaks rocketmq, and the rule is for amqp"),
    ],
)
def test_warns_of_rules_that_never_match(write: Callable[..., Path], rule: str, field: str, said: str) -> None:
    rocket = "  - {name: rocket, protocol: rocketmq, bind: 127.0.0.1:3, upstream: 127.0.0.1:4}\n"
    (warning,) = lint(load(write(f"{LISTENERS}{rocket}rules: [{{name: a, {rule}, limit: {{messages: 1/s}}}}]\n")))
    assert (warning.path, warning.line) == (f"rules[0].{field}", 4)
    assert said in warning.message
    assert warning.remedy


@pytest.mark.parametrize(
    "rule",
    [
        "match: {topic: rmq_sys_trace}",
        "match: {topic: '*_sys_*'}",
        "match: {topic: 'shop%ord*', namespace: 'sh*'}",
        "match: {topic: 'sh*', namespace: store}",  # may be sh* of any namespace's name
        "match: {topic: '%RETRY%*', namespace: shop}",
        "match: {listener: 'r*', topic: orders}",
    ],
)
def test_does_not_warn_of_rules_that_may_match(write: Callable[..., Path], rule: str) -> None:
    rocket = "  - {name: rocket, protocol: rocketmq, bind: 127.0.0.1:3, upstream: 127.0.0.1:4}\n"
    assert lint(load(write(f"{LISTENERS}{rocket}rules: [{{name: a, {rule}, limit: {{messages: 1/s}}}}]\n"))) == []


@pytest.mark.parametrize(
    "rule",
    [
        "{name: a, algorithm: concurrency, limit: {concurrent: 10}}",
        "{name: a, algorithm: pacing, action: delay, limit: {messages: 10/s}}",
        "{name: a, per: listener, limit: {messages: 10/s}}",
    ],
)
def test_workers_share_what_one_process_limits(write: Callable[..., Path], rule: str) -> None:
    assert lint(load(write(f"gateway: {{workers: 2}}\n{LISTENERS}rules:\n  - {rule}\n"), {})) == []


def test_warns_of_password_files_that_are_not_there(write: Callable[..., Path], tmp_path: Path) -> None:
    own = LISTENERS.replace("127.0.0.1:2}", "127.0.0.1:2, own_login: {user: u, password_file: rabbit}}")
    file = write(
        f"{own}fleet: {{redis: {{url: redis://a, name: n, password_file: redis}}}}\nrules: [{{name: a, limit: {{messages: 1/s}}}}]\n"
    )

    def said() -> list[tuple[str, str]]:
        return [(each.path, each.message) for each in lint(load(file, {}))]

    assert said() == [
        ("listeners[0].own_login.password_file", f"{tmp_path / 'rabbit'} cannot be read: No such file or directory"),
        ("fleet.redis.password_file", f"{tmp_path / 'redis'} cannot be read: No such file or directory"),
    ]
    (tmp_path / "rabbit").touch()
    (tmp_path / "redis").touch()
    assert said() == []


def test_warns_of_no_rules_at_all(write: Callable[..., Path]) -> None:
    (warning,) = lint(load(write(LISTENERS)))
    assert warning.message == "there are no rules: nothing is limited"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("max_connections_per_user: 5", "has no effect with protocol: rocketmq, whose clients are not authenticated here"),
        ("other_protocols: pass", "has no effect with protocol: rocketmq"),
    ],
)
def test_warns_of_what_a_protocol_has_no_use_for(write: Callable[..., Path], setting: str, said: str) -> None:
    rules = "rules: [{name: a, limit: {messages: 1/s}}]\n"
    (warning,) = lint(
        load(write(f"listeners: [{{name: r, protocol: rocketmq, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, {setting}}}]\n{rules}"))
    )
    assert (warning.path, warning.message) == (f"listeners[0].{setting.partition(':')[0]}", said)


@pytest.mark.parametrize(
    ("operation", "more", "warned"),
    [
        ("requeue", "action: reject", True), ("consume", "action: reject", True), ("declare", "per: client, action: reject", True),
        ("requeue", "action: delay", False), ("requeue", "mode: enforce", False), ("produce", "action: reject", False),
        ("connect", "per: client, action: reject", False), ("[produce, declare]", "per: client, action: reject", False),
    ],
)  # fmt: skip
def test_warns_of_what_waits_where_the_rule_says_reject(write: Callable[..., Path], operation: str, more: str, warned: bool) -> None:
    listeners = "listeners: [{name: a, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2}]\n"
    rules = f"rules: [{{name: a, match: {{protocol: amqp, operation: {operation}}}, limit: {{messages: 1/s}}, {more}}}]\n"
    found = [(warning.path, warning.message) for warning in lint(load(write(listeners + rules)))]
    said = f"refuses nothing with operation: {operation}: what is over the limit waits"
    assert found == ([("rules[0].action", said)] if warned else [])


def test_warns_of_versions_that_pass_unlimited(write: Callable[..., Path]) -> None:
    listeners = "listeners: [{name: a, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, other_protocols: pass}]\n"
    (warning,) = lint(load(write(f"{listeners}rules: [{{name: a, limit: {{messages: 1/s}}}}]\n")))
    assert warning.path == "listeners[0].other_protocols"
    assert warning.message == "lets clients of other versions (AMQP 1.0) through to the broker, and no rule limits them"


@pytest.mark.parametrize(
    ("setting", "path"), [("copies: refuse", "copies"), ("copies: ignore", "copies"), ("cost: {copy: 3}", "cost.copy")]
)
def test_warns_of_copies_that_rocketmq_does_not_have(write: Callable[..., Path], setting: str, path: str) -> None:
    listeners = "listeners: [{name: r, protocol: rocketmq, bind: 127.0.0.1:1, upstream: 127.0.0.1:2}]\n"
    rules = f"rules: [{{name: a, match: {{protocol: rocketmq}}, limit: {{messages: 1/s}}, {setting}}}]\n"
    (warning,) = lint(load(write(listeners + rules)))
    assert (warning.path, warning.line) == (f"rules[0].{path}", 2)
    assert warning.message == "has no effect with protocol: rocketmq, whose messages name no copies"


def test_warns_of_a_fallback_that_rocketmq_never_comes_to(write: Callable[..., Path]) -> None:
    listeners = "listeners: [{name: r, protocol: rocketmq, bind: 127.0.0.1:1, upstream: 127.0.0.1:2}]\n"
    rules = "rules: [{name: a, match: {protocol: rocketmq}, limit: {messages: 1/s}, fallback: drop}]\n"
    (warning,) = lint(load(write(listeners + rules)))
    assert (warning.path, warning.line) == ("rules[0].fallback", 2)
    assert "has no effect with protocol: rocketmq" in warning.message


@pytest.mark.parametrize(
    ("settings", "path", "said"),
    [
        ("trusted_proxies: [10.0.0.5]", "trusted_proxies", "has no effect without accept_proxy_protocol: true"),
        ("accept_proxy_protocol: true, trusted_proxies: [10.0.0.5, 0.0.0.0/0]", "trusted_proxies[1]", "0.0.0.0/0 believes anybody"),
        ("accept_proxy_protocol: true, trusted_proxies: ['::/0']", "trusted_proxies[0]", "::/0 believes anybody"),
        ("accept_proxy_protocol: true, trusted_proxies: ['::ffff:0:0/96']", "trusted_proxies[0]", "believes anybody"),
    ],
)
def test_warns_of_proxy_headers_believed_of_anybody(write: Callable[..., Path], settings: str, path: str, said: str) -> None:
    rules = "rules: [{name: a, limit: {messages: 1/s}}]\n"
    listeners = f"listeners: [{{name: r, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, {settings}}}]\n"
    (warning,) = lint(load(write(listeners + rules)))
    assert warning.path == f"listeners[0].{path}"
    assert said in warning.message
    assert warning.remedy


@pytest.mark.parametrize("key", ["max_connections_per_address", "max_connections_per_user"])
def test_warns_of_a_cap_above_the_cap_on_all(write: Callable[..., Path], key: str) -> None:
    text = f"listeners: [{{name: r, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, max_connections: 10, {key}: 11}}]\n"
    rules = "rules: [{name: a, limit: {messages: 1/s}}]\n"
    (warning,) = lint(load(write(text + rules)))
    assert (warning.path, warning.message) == (f"listeners[0].{key}", "has no effect: max_connections is 10 in all")
    assert lint(load(write(text.replace("11}", "10}") + rules))) == []


def test_warns_of_more_connections_than_there_are_descriptors_for(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8192, 8192))
    text = "listeners: [{name: r, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, max_connections: 3777}]\n"
    rules = "rules: [{name: a, limit: {messages: 1/s}}]\n"
    (warning,) = lint(load(write(text + rules)))
    assert (warning.path, warning.message) == (
        "listeners[0].max_connections",
        "the hard limit of open files (8192) leaves room for 3776 connections",
    )
    assert lint(load(write(text.replace("3777", "3776") + rules))) == []


def test_warns_of_ports_for_more_brokers_than_there_are_descriptors_for(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With this limit such a gateway would start, and let a single client in."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8192, 8192))
    text = "listeners: [{name: n, protocol: rocketmq-nameserver, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, broker_ports: 20000-%d}]\n"
    rules = "rules: [{name: a, limit: {messages: 1/s}}]\n"
    (warning,) = lint(load(write(text % 29999 + rules)))
    assert warning.path == "listeners[0].broker_ports"
    assert warning.message == "5000 brokers take most of the hard limit of open files (8192): room for 1 connections"
    assert lint(load(write(text % 24095 + rules))) == []


def test_warns_of_ports_for_brokers_that_outgoing_connections_may_have(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lints, "outgoing_ports", lambda: PortRange(32768, 60999))
    text = "listeners: [{name: n, protocol: rocketmq-nameserver, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, broker_ports: %s}]\n"
    rules = "rules: [{name: a, limit: {messages: 1/s}}]\n"
    (warning,) = lint(load(write(text % "32760-32768" + rules)))
    assert warning.path == "listeners[0].broker_ports"
    assert warning.message.startswith("overlaps 32768-60999, the ports of outgoing connections")
    assert lint(load(write(text % "32760-32767" + rules))) == []
    monkeypatch.setattr(lints, "outgoing_ports", lambda: None)
    assert lint(load(write(text % "32760-32768" + rules))) == []


def test_the_kernel_says_which_ports_outgoing_connections_have() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        outgoing = port_ranges.outgoing_ports()
        assert outgoing is not None
        assert outgoing.first <= sock.getsockname()[1] <= outgoing.last


def test_warns_of_token_files_missing_or_open(write: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "open").write_text("x" * 43)
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "good").write_text("x" * 43)
    (tmp_path / "good").chmod(0o600)
    tokens = "admin:\n  tokens:\n" + "".join(f"  - {{name: {name}, role: admin, file: {name}}}\n" for name in ("none", "open", "good"))
    missing, others = lint(load(write(LISTENERS + "rules: [{name: a, limit: {messages: 1/s}}]\n" + tokens)))
    assert (missing.line, missing.path) == (6, "admin.tokens[0].file")
    assert "No such file" in missing.message
    assert "sluice token new --file" in missing.remedy
    given = "admin:\n  tokens: [{name: none, role: admin, file: /run/credentials/none.service/job.token}]\n"
    (unseen,) = lint(load(write(LISTENERS + "rules: [{name: a, limit: {messages: 1/s}}]\n" + given)))
    assert unseen.remedy == "systemd shows it while the unit runs; in the unit: LoadCredential=job.token:FILE"
    assert (others.line, others.message) == (7, f"{tmp_path / 'open'} can be read by others")


def test_warns_of_few_open_files(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(write(LISTENERS + "rules: [{name: a, limit: {messages: 1/s}}]\n"))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1064))
    (warning,) = lints.lint(settings)
    assert warning.headline == (
        "ulimit -n: the hard limit of open files is 1064: room for 352 connections; raise it (systemd: LimitNOFILE=65536)"
    )


@pytest.mark.parametrize(
    ("mark", "upstream", "warned"),
    [
        ("12%", "127.0.0.1:10911", False), ("10%", "127.0.0.1:10911", False), ("9.9%", "127.0.0.1:10911", True), ("0B", "127.0.0.1:10911", True),
        ("0B", "10.0.0.1:10911", False), ("1024GiB", "127.0.0.1:10911", False),
    ],
)  # fmt: skip
def test_a_log_that_fills_the_disk_further_than_a_broker_on_it_bears(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, mark: str, upstream: str, warned: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(used=100 << 30, free=100 << 30))
    listener = f"listeners:\n  - {{name: rocket, protocol: rocketmq, bind: 127.0.0.2:10911, upstream: {upstream}}}\n"
    found = [
        problem for problem in lint(load(write(f"{listener}disk: {{low_watermark: {mark}}}\n"))) if problem.path == "disk.low_watermark"
    ]
    assert len(found) == warned
    assert all("less than a tenth of the disk" in problem.message and "write 12%" in problem.remedy for problem in found)
