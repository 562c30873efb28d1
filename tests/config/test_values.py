"""Values: read as the setting means them, not as YAML's resolver guesses; and shown so that they can be read back."""

# ruff: noqa: E501  -- tables, one case a line

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from config import load
from config.known_settings import RemoteAdminSettings
from config.problems import ConfigError
from limiter.limits import Limit, LimitChange, Rate
from limiter.rules.cost import Cost
from limiter.rules.match import Match
from limiter.rules.rule import Rule

LISTENERS = "listeners:\n  - {name: rabbit, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2}\n"


def test_defaults(write: Callable[..., Path], tmp_path: Path) -> None:
    settings = load(write(LISTENERS))
    assert settings.describe() == {
        "version": 1,
        "gateway": {"name": socket.gethostname(), "workers": 1, "max_topics": 10000, "state_directory": str(tmp_path / "state"), "watchdog": "30s", "reload_on_change": False},
        "listeners": [
            {
                "name": "rabbit", "protocol": "amqp", "bind": "127.0.0.1:1", "upstream": "127.0.0.1:2", "tls": "off",
                "upstream_tls": "off", "accept_proxy_protocol": False, "trusted_proxies": [],
                "send_proxy_protocol": "none", "handshake_timeout": "10s", "frame_timeout": "30s", "other_protocols": "refuse",
                "max_frame": "16MiB",
                "remote_admin": "off",
            }
        ],
        "limiter": {
            "threads": 1, "inline": "trusted", "queue": 10000, "on_rejection": "pass", "max_bypass": "10%/10s", "max_keys": 1000000,
        },
        "quotas": {"hourly_raise": "off", "hourly_raise_max": 4, "surge_raise": "off"}, "fleet": "off",
        "credit": {"initial": 400, "more_after": 200, "bytes": "256KiB"},
        "memory": {"per_connection": "1MiB", "high_watermark": "256MiB", "delivery_watermark": "128MiB", "target": "32MiB"},
        "disk": {"low_watermark": "12%"},
        "spool": {"max_size": "10GiB"},
        "drain": {"timeout": "27s", "hold": "at_once", "delay": "0s"},
        "admin": {"bind": "127.0.0.1:9180", "names": [], "tls": "off", "tokens": [], "series_topics": 280},
        "probes": "off",
        "access_log": {
            "directory": str(tmp_path / "access-log"), "roll_every": "5min", "roll_size": "128MiB",
            "compress": "auto", "keep": "30d", "keep_size": "10GiB", "keep_until": "auto",
        },
        "webhooks": [],
        "tracing": "off",
        "log": {"level": "info", "format": "auto"},
        "rules": [],
    }  # fmt: skip


def test_settings_that_are_shown_read_back_as_the_same(write: Callable[..., Path]) -> None:
    text = (
        LISTENERS + "access_log: off\nrules:\n"
        "  - {name: a, match: {protocol: rocketmq, topic: '%RETRY%*'}, limit: {messages: 30k/min, burst: {messages: 500}}, breaker: {open_for: 0s}}\n"
        "  - {name: b, match: {vhost: /, queue: jobs}, per: rule, limit: {bytes: 10MiB/s, burst: 2s}, action: delay, max_delay: 2s, mode: shadow}\n"
        "  - {name: c, match: {namespace: shop, group: 'g*', user: AK, client: 10.0.0.0/8}, per: group, limit: {messages: 5/s}}\n"
        "  - {name: d, match: {protocol: rocketmq, namespace: '*'}, per: namespace, limit: {messages: 5/s}}\n"
        "  - {name: e, match: {protocol: amqp, operation: [produce, declare]}, per: user, limit: {messages: 5/s}, cost: {step: 4KiB, declare: 10}}\n"
    )
    first = load(write(text))
    second = load(write(yaml.safe_dump(first.describe())))
    assert second.describe() == first.describe()
    read = [[(rule.match, rule.per, rule.limit, rule.cost) for rule in each.rules] for each in (first, second)]
    assert read[0] == read[1]
    assert read[0][4][3] == Cost(4096, 1, (("declare", 10),))
    assert second.rules[2].match == Match(namespace="shop", group="g*", user="AK", client="10.0.0.0/8")


@pytest.mark.parametrize(
    ("written", "read"),
    [("010", "010"), ("no", "no"), ("1:30", "1:30"), ("1e3", "1e3"), ("2026-01-01", "2026-01-01"), ("0x1F", "0x1F"), ("true", "true"),
     ("1_000", "1_000"), ("'%RETRY%*'", "%RETRY%*"), ('"a\\tb"', "a\tb"), ("名前", "名前"), ("order.#", "order.#"), ("'null'", "null")],
)  # fmt: skip
def test_text_is_what_is_written(write: Callable[..., Path], written: str, read: str) -> None:
    """PyYAML's resolver makes 8, False, 90, text, and a date of the first five."""
    rule = f"rules:\n  - {{name: a, match: {{protocol: amqp, exchange: {written}}}, limit: {{messages: 1/s}}}}\n"
    assert load(write(LISTENERS + rule)).rules[0].match.exchange == read


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("{messages: 500/s}", Limit(Rate(500))),
        ("{messages: 30k/min}", Limit(Rate(500))),
        ("{messages: 0/s}", Limit(Rate(0))),
        ("{messages: 1/10s}", Limit(Rate(1, 10_000_000_000))),
        ("{bytes: 10MiB/s}", Limit(bytes=Rate(10 << 20))),
        ("{messages: 500/s, bytes: 64kB/s, burst: 2s}", Limit(Rate(500), Rate(64_000), burst_ns=2_000_000_000)),
        ("{messages: 500/s, burst: {messages: 900, bytes: 1MiB}}", Limit(Rate(500), None, 900, 1 << 20)),
    ],
)
def test_limits(write: Callable[..., Path], text: str, limit: Limit) -> None:
    assert load(write(LISTENERS + f"rules: [{{name: a, limit: {text}}}]\n")).rules[0].limit == limit


@pytest.mark.parametrize(
    ("text", "algorithm", "warm_up_ns", "breaker_ns"),
    [
        ("algorithm: pacing", "pacing", 0, 0),
        ("algorithm: warm_up", "warm_up", 0, 1_000_000_000),
        ("algorithm: warm_up, warm_up: {over: 1min}", "warm_up", 60_000_000_000, 1_000_000_000),
        ("algorithm: warm_up, warm_up: {}", "warm_up", 10_000_000_000, 1_000_000_000),
    ],
)
def test_algorithms(write: Callable[..., Path], text: str, algorithm: str, warm_up_ns: int, breaker_ns: int) -> None:
    settings = load(write(LISTENERS + f"rules: [{{name: a, limit: {{messages: 5/s}}, {text}}}]\n"))
    (rule,) = settings.rules
    assert (rule.algorithm, rule.limit, rule.breaker_ns()) == (algorithm, Limit(Rate(5), warm_up_ns=warm_up_ns), breaker_ns)
    (again,) = load(write(yaml.safe_dump(settings.describe()))).rules
    assert (again.algorithm, again.limit, again.breaker_ns()) == (algorithm, rule.limit, breaker_ns)


def test_a_whole_rule(write: Callable[..., Path]) -> None:
    text = """\
rules:
  - name: orders
    match: {protocol: amqp, listener: rabbit, vhost: /, exchange: orders, routing_key: 'order.#', user: u, client: 10.0.0.0/8, operation: produce}
    per: exchange
    limit: {messages: 500/s, bytes: 10MiB/s, burst: 2s}
    algorithm: token_bucket
    breaker: {open_for: 500ms}
    action: delay
    fallback: drop
    max_delay: 1500ms
    mode: shadow
"""
    assert load(write(LISTENERS + text)).rules == (
        Rule(
            name="orders",
            match=Match(
                protocol="amqp", listener=("rabbit",), vhost="/", exchange="orders", routing_key="order.#", user="u", client="10.0.0.0/8",
                operation="produce",
            ),
            per="exchange",
            limit=Limit(Rate(500), Rate(10 << 20), burst_ns=2_000_000_000),
            open_for_ns=500_000_000,
            action="delay",
            fallback="drop",
            max_delay_ns=1_500_000_000,
            mode="shadow",
            place="sluice.yaml:4",
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "candidate", "whole"),
    [
        ("{messages: 300/s}", LimitChange(messages=Rate(300)), Limit(messages=Rate(300), burst_ns=2_000_000_000)),
        (
            "{bytes: 1MiB/s, burst: 1s}",
            LimitChange(bytes=Rate(1 << 20), burst_ns=1_000_000_000),
            Limit(Rate(500), Rate(1 << 20), burst_ns=1_000_000_000),
        ),
        ("{burst: {messages: 7}}", LimitChange(messages_burst=7), Limit(Rate(500), messages_burst=7, burst_ns=2_000_000_000)),
    ],
)
def test_candidates(write: Callable[..., Path], text: str, candidate: LimitChange, whole: Limit) -> None:
    settings = load(write(f"{LISTENERS}rules: [{{name: a, limit: {{messages: 500/s, burst: 2s}}, candidate: {text}}}]\n"))
    (rule,) = settings.rules
    assert (rule.candidate, rule.candidate_limit()) == (candidate, whole)
    (again,) = load(write(yaml.safe_dump(settings.describe()))).rules
    assert again.candidate == candidate


def test_remote_admin(write: Callable[..., Path]) -> None:
    listener = "listeners:\n  - {name: r, protocol: rocketmq, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, remote_admin: %s}\n"
    settings = load(write(listener % "{allow: [10.0.0.0/8, '::1'], access_keys: [mqcloud], legacy_codes: true}"))
    assert settings.listeners[0].remote_admin == RemoteAdminSettings(("10.0.0.0/8", "::1"), ("mqcloud",), legacy_codes=True)
    assert load(write(yaml.safe_dump(settings.describe()))).listeners == settings.listeners
    assert load(write(listener % "off")).listeners[0].remote_admin is None


def test_a_rule_knows_its_file_and_line(write: Callable[..., Path]) -> None:
    path = write(
        LISTENERS + "rules_file: limits.yaml\n",
        limits="# one\nrules:\n  - name: a\n    limit: {messages: 1/s}\n  - name: b\n    limit: {messages: 1/s}\n",
    )
    assert [rule.place for rule in load(path).rules] == ["limits.yaml:3", "limits.yaml:5"]


def test_off_and_on_that_became_booleans_are_still_off_and_on(write: Callable[..., Path]) -> None:
    """Helm reads values as YAML 1.1, where `off` is `false`."""
    rest = "rules: [{name: a, match: {topic: t}, mode: OFF}]\nquotas: {surge_raise: ON}\ngateway: {watchdog: OFF}\n"
    read, plain = (load(write(LISTENERS + rest.replace("OFF", off).replace("ON", on))) for off, on in (("false", "true"), ("off", "on")))
    assert (read.rules[0].mode, read.quotas, read.gateway.watchdog_ns) == ("off", plain.quotas, None)
    assert load(write(LISTENERS + "access_log: false\nprobes: false\n")).access_log is None
    with pytest.raises(ConfigError, match="true"):
        load(write(LISTENERS + "rules: [{name: a, match: {topic: t}, mode: true}]\n"))
    with pytest.raises(ConfigError, match="false"):
        load(write(LISTENERS + 'rules: [{name: a, match: {topic: t}, mode: "false"}]\n'))


def test_rules_exempting_something_need_no_limit(write: Callable[..., Path]) -> None:
    assert load(write(LISTENERS + "rules: [{name: a, match: {topic: t}, mode: off}]\n")).rules[0].mode == "off"


def test_the_door(write: Callable[..., Path]) -> None:
    text = (
        "listeners: [{name: r, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2, accept_proxy_protocol: true, send_proxy_protocol: v2,\n"
        "  trusted_proxies: [10.0.0.5, 2001:db8::/64],\n"
        "  max_connections: 10, max_connections_per_address: 3, max_connections_per_user: 2, max_connection_rate: 90/min, idle_timeout: 10min,\n"
        "  handshake_timeout: 3s, other_protocols: pass}]\n"
    )
    settings = load(write(text))
    (listener,) = settings.listeners
    assert listener.trusted_proxies == ("10.0.0.5", "2001:db8::/64")
    assert (listener.accept_proxy_protocol, listener.send_proxy_protocol, listener.other_protocols) == (True, "v2", "pass")
    assert (listener.max_connections, listener.max_connections_per_address, listener.max_connections_per_user) == (10, 3, 2)
    assert listener.max_connection_rate == Rate(3, 2_000_000_000)
    assert (listener.handshake_timeout_ns, listener.idle_timeout_ns) == (3_000_000_000, 600_000_000_000)
    listeners: Any = settings.describe()["listeners"]
    (shown,) = listeners
    assert {"max_connection_rate": "1.5/s", "idle_timeout": "10min", "accept_proxy_protocol": True}.items() <= shown.items()


def test_addresses(write: Callable[..., Path]) -> None:
    listener = load(write('listeners: [{name: a, protocol: amqp, bind: "[::1]:0", upstream: rabbit_1.example.com:5672}]\n')).listeners[0]
    assert listener.bind == ("::1", 0)
    assert str(listener.bind) == "[::1]:0"
    assert listener.upstreams == (("rabbit_1.example.com", 5672),)
    rooted = load(write("listeners: [{name: a, protocol: amqp, bind: 127.0.0.1:0, upstream: rabbit.svc.:5672}]\n")).listeners[0]
    assert rooted.upstreams == (("rabbit.svc.", 5672),), "a final dot keeps the resolver from its search list"


def test_settings_do_not_change(write: Callable[..., Path]) -> None:
    settings = load(write(LISTENERS))
    with pytest.raises(AttributeError):
        settings.limiter.queue = 3  # type: ignore[misc]


def test_secrets_of_the_environment_stay_out_of_repr(write: Callable[..., Path]) -> None:
    assert "hunter2" not in repr(load(write(LISTENERS), {"SLUICE_TOKEN": "hunter2"}))


def test_ten_times_as_many_rules_load_in_ten_times_the_time(write: Callable[..., Path]) -> None:
    """And not in a hundred times: `docs/design/reliability.md` has 1,000 rules within 100 ms of an idle core."""

    def loading(count: int) -> float:
        """Seconds of processor time."""
        rules = "".join(f"  - {{name: r{number}, match: {{topic: t{number}}}, limit: {{messages: 5/s}}}}\n" for number in range(count))
        path = write("listeners: [{name: a, protocol: rocketmq, bind: 127.0.0.1:1, upstream: 127.0.0.1:2}]\nrules:\n" + rules)
        begun = time.thread_time()
        assert len(load(path).rules) == count
        return time.thread_time() - begun

    assert min(loading(1000) / loading(100) for _ in range(3)) < 20


@pytest.mark.parametrize(
    ("protocol", "more", "seconds"),
    [
        ("amqp", "", 0),  # whose clients may be silent for days: TCP keepalive finds those that are gone
        ("rocketmq", "", 300),
        ("rocketmq-nameserver", ", broker_ports: 20911-20950", 300),
        ("amqp", ", idle_timeout: 10min", 600),
        ("rocketmq", ", idle_timeout: 30d", 30 * 86400),
    ],
)
def test_a_default_idle_time_out_that_no_healthy_client_meets(write: Callable[..., Path], protocol: str, more: str, seconds: int) -> None:
    (listener,) = load(write(f"listeners: [{{name: r, protocol: {protocol}, bind: 127.0.0.1:1, upstream: 127.0.0.1:2{more}}}]\n")).listeners
    assert listener.idle_ns == seconds * 1_000_000_000


def test_a_listener_has_one_address_behind_it_or_several(write: Callable[..., Path]) -> None:
    before = "listeners: [{name: a, protocol: amqp, bind: 127.0.0.1:0, upstream: "
    several = load(write(before + '["[::1]:5672", b.example:5672]}]\n'))
    assert several.listeners[0].upstreams == (("::1", 5672), ("b.example", 5672))
    assert several.describe()["listeners"][0]["upstream"] == ["[::1]:5672", "b.example:5672"]  # type: ignore[index]
    one = load(write(before + "[b.example:5672]}]\n"))
    assert one.describe()["listeners"][0]["upstream"] == "b.example:5672"  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "size", "share", "shown"),
    [("12%", 200 << 20, 120, "12%"), ("0.5%", 200 << 20, 5, "0.5%"), ("1GiB", 1 << 30, 0, "1GiB"), ("0B", 0, 0, "0B")],
)
def test_the_low_watermark_of_the_disk_is_a_size_or_a_share(
    write: Callable[..., Path], text: str, size: int, share: int, shown: str
) -> None:
    settings = load(write(f"{LISTENERS}disk: {{low_watermark: {text}}}\n"))
    assert settings.disk.low_watermark == (size, share)
    assert settings.describe()["disk"] == {"low_watermark": shown}


def test_credit_may_be_given_anew_as_soon_as_one_is_used_up_or_only_when_all_is(write: Callable[..., Path]) -> None:
    for more_after in (1, 10):
        credit = load(write(f"credit: {{initial: 10, more_after: {more_after}}}\n{LISTENERS}")).credit
        assert (credit.initial, credit.more_after) == (10, more_after)
