"""The settings of a fleet: where its Redis is, and which rules it shares."""

# ruff: noqa: E501  -- tables, one case a line

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from config import ConfigError, diff, lint, lints, load

LISTENERS = "listeners:\n  - {name: rabbit, protocol: amqp, bind: 127.0.0.1:5672, upstream: 127.0.0.1:5673}\n"
FLEET = "fleet: {redis: {url: redis://127.0.0.1:6379/0, name: orders}}\n"

# name, text after two lines of listeners, line, path, what is said, remedy
BROKEN = [
    ("no redis", "fleet: {}\n", 3, "fleet.redis", "is missing", "add redis"),
    ("no name", "fleet: {redis: {url: redis://a}}\n", 3, "fleet.redis.name", "is missing", "add name: orders"),
    ("no url", "fleet: {redis: {name: a}}\n", 3, "fleet.redis.url", "is missing", "add url: redis://127.0.0.1:6379/0"),
    ("a name with a space", "fleet: {redis: {url: redis://a, name: a b}}\n", 3, "fleet.redis.name", "is not a name", "write it like"),
    ("no scheme", "fleet: {redis: {url: '127.0.0.1:6379', name: a}}\n", 3, "fleet.redis.url", "not the URL of a Redis", "did you mean redis://127.0.0.1:6379?"),
    ("another scheme", "fleet: {redis: {url: http://a/0, name: a}}\n", 3, "fleet.redis.url", "not the URL of a Redis", "It begins with redis://"),
    ("a password", "fleet: {redis: {url: 'redis://:hunter2@a', name: a}}\n", 3, "fleet.redis.url", "holds a password", "put it into password_file"),
    ("a query", "fleet: {redis: {url: 'redis://a?socket_timeout=5', name: a}}\n", 3, "fleet.redis.url", "more than where the Redis is", "settings of their own"),
    ("no host", "fleet: {redis: {url: 'redis://', name: a}}\n", 3, "fleet.redis.url", "is no host", "write it like"),
    ("no such host", "fleet: {redis: {url: redis://127.0.0.256, name: a}}\n", 3, "fleet.redis.url", '"127.0.0.256" is not a host', "write it like"),
    ("no such port", "fleet: {redis: {url: 'redis://a:99999', name: a}}\n", 3, "fleet.redis.url", "is not a URL", "write it like"),
    ("port 0", "fleet: {redis: {url: 'redis://a:0', name: a}}\n", 3, "fleet.redis.url", "port 0", "write it like"),
    ("no such database", "fleet: {redis: {url: redis://a/orders, name: a}}\n", 3, "fleet.redis.url", '"/orders" is not a database', "/0"),
    ("a socket without a path", "fleet: {redis: {url: 'unix://redis.sock', name: a}}\n", 3, "fleet.redis.url", "names no socket", "unix:///run/redis"),
    ("no time", "fleet: {redis: {url: redis://a, name: a, timeout: 0s}}\n", 3, "fleet.redis.timeout", "too little", "the least is 1ms"),
    ("TLS without TLS", "fleet: {redis: {url: redis://a, name: a, tls: {}}}\n", 3, "fleet.redis.tls", "is without TLS", "did you mean url: rediss://a?"),
    ("a CA that is not there", "fleet: {redis: {url: rediss://a, name: a, tls: {ca: none.pem}}}\n", 3, "fleet.redis.tls.ca", "cannot be read", "name"),
    ("a key alone", "fleet: {redis: {url: rediss://a, name: a, tls: {key: k.pem}}}\n", 3, "fleet.redis.tls.key", "stands without certificate", "add certificate"),
    ("a cluster's other database", "fleet: {redis: {url: redis://a/3, name: a, cluster: true}}\n", 3, "fleet.redis.cluster", "database 0 only", "/0"),
    ("an hourly raise", f"quotas: {{hourly_raise: on}}\n{FLEET}", 3, "quotas.hourly_raise", "its own part of the demand only", "hourly_raise: off"),
    ("a raise by surges", f"quotas: {{surge_raise: on}}\n{FLEET}", 3, "quotas.surge_raise", "its own part of the demand only", "surge_raise: off"),
    ("an unknown scope", "rules: [{name: a, limit: {messages: 1/s}, scope: fleets}]\n", 3, "rules[0].scope", '"fleets" is not one of', "did you mean fleet?"),
    ("a connection in the fleet", "rules: [{name: a, per: connection, limit: {messages: 1/s}, scope: fleet}]\n", 3, "rules[0].scope", "per: connection is each gateway's own", "leave scope out"),
    ("a cap in the fleet", "rules: [{name: a, per: listener, limit: {messages: 1/s}, scope: fleet}]\n", 3, "rules[0].scope", "a listener's cap is each gateway's own", "leave scope out"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "path", "message", "remedy"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_wrong_setting_is_named_with_line_path_and_remedy(
    write: Callable[..., Path], text: str, line: int, path: str, message: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load(write(LISTENERS + text))
    problem = next(each for each in raised.value.errors if each.path == path)
    assert (problem.line, message in problem.message, remedy in problem.remedy) == (line, True, True), problem


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1",
        "redis://sluice@redis.example:6380/3",
        "rediss://[::1]:6379/0",
        "unix:///run/redis/redis.sock?db=2",
        "redis://a/",
    ],
)
def test_urls(write: Callable[..., Path], url: str) -> None:
    fleet = load(write(LISTENERS + f"fleet: {{redis: {{url: '{url}', name: a}}}}\n")).fleet
    assert fleet is not None
    assert fleet.redis.url == url


def test_from_the_environment(write: Callable[..., Path]) -> None:
    settings = load(
        write(LISTENERS),
        {"SLUICE_FLEET__REDIS__URL": "redis://a", "SLUICE_FLEET__REDIS__NAME": "b", "SLUICE_FLEET__REDIS__TIMEOUT": "30ms"},
    )
    assert settings.fleet is not None
    assert (settings.fleet.redis.url, settings.fleet.redis.name, settings.fleet.redis.timeout_ns) == ("redis://a", "b", 30_000_000)


def test_fleet_settings_that_are_shown_read_back_as_the_same(write: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "p").write_text("secret")
    rules = "rules:\n  - {name: a, limit: {messages: 1/s}, scope: gateway}\n  - {name: b, limit: {messages: 1/s}, scope: fleet}\n"
    first = load(write(LISTENERS + "fleet: {redis: {url: redis://a, name: b, timeout: 70ms, password_file: p}}\n" + rules))
    assert "secret" not in str(first.describe())
    second = load(write(yaml.safe_dump(first.describe())))
    assert (second.fleet, [rule.scope for rule in second.rules]) == (first.fleet, ["gateway", "fleet"])


def test_a_change_of_the_fleet_needs_a_restart_and_one_of_a_scope_does_not(write: Callable[..., Path]) -> None:
    old = load(write(LISTENERS + FLEET + "rules: [{name: a, limit: {messages: 1/s}}]\n"))
    new = load(write(LISTENERS + FLEET.replace("orders", "others") + "rules: [{name: a, limit: {messages: 1/s}, scope: gateway}]\n"))
    assert diff(old, new) == {"in_force": ["rule a: scope: (none) -> gateway"], "needs_restart": ["fleet.redis.name: orders -> others"]}


def test_where_redis_client_is_not_installed_the_check_warns(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(write(LISTENERS + FLEET))
    assert [warning.path for warning in lint(settings) if "redis" in warning.message] == []
    monkeypatch.setattr(lints, "find_spec", lambda name: None)
    warning = next(each for each in lint(settings) if each.path == "fleet")
    assert (warning.line, warning.remedy) == (3, "pip install 'sluice-gateway[redis]'")


@pytest.mark.parametrize(
    ("held", "said"), [(b"", "no secret of 16 bytes"), (b" 123456789012345 \n", "no secret of 16 bytes"), (None, "cannot be read")]
)
def test_a_secret_that_no_gateway_would_take_is_told(write: Callable[..., Path], tmp_path: Path, held: bytes | None, said: str) -> None:
    """Refused at run time alone it would be an outage from the start, in which each gateway takes itself for the only one."""
    settings = write(LISTENERS + "fleet: {redis: {url: redis://a, name: b, secret_file: s}}\n")
    if held is not None:
        (tmp_path / "s").write_bytes(held)
    (warning,) = [warning for warning in lint(load(settings)) if warning.path == "fleet.redis.secret_file"]
    assert said in warning.message
    (tmp_path / "s").write_bytes(b"0123456789abcdef\n")
    assert not [warning for warning in lint(load(settings)) if warning.path == "fleet.redis.secret_file"]
