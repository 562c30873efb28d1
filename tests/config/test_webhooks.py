"""The settings of webhooks: where receivers are, and what does not go together."""

# ruff: noqa: E501  -- tables, one case a line

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from config import ConfigError, diff, lint, load
from config.addresses import Address
from config.http_urls import parts_of
from config.reloading import merge
from config.worker_settings import describe, settings_of
from support.tls import Authority

LISTENERS = "listeners:\n  - {name: rabbit, protocol: amqp, bind: 127.0.0.1:5672, upstream: 127.0.0.1:5673}\n"

# name, the webhook, path, what is said, remedy
BROKEN = [
    ("no url", "{name: a}", "[0].url", "is missing", "add url: https://alerts.example"),
    ("a URL and a file", "{url: http://a, name: x, url_file: f}", "[0].url_file", "stands beside url", "remove one"),
    ("a URL for a file", "{url_file: 'https://a/hunter2', name: x}", "[0].url_file", "a URL, where the name of a file", "write it like"),
    ("a file without a name", "{url_file: f}", "[0].name", "is missing", "add name: ops"),
    ("a file in place of a name", "{url_file: f, user: x, name: x}", "[0].user", "stands without a password", "add token_file"),
    ("no scheme", "{url: 'alerts.example:9093/x'}", "[0].url", "not the URL of a receiver", "did you mean http://alerts.example:9093/…?"),
    ("another scheme", "{url: 'ftp://a/x'}", "[0].url", "not the URL of a receiver", "It begins with http:// or https://"),
    ("a file", "{url: 'file:///etc/passwd'}", "[0].url", "not the URL of a receiver", "It begins with http:// or https://"),
    ("a password", "{url: 'https://user:hunter2@a/'}", "[0].url", "holds credentials", "token_file"),
    ("a token as user", "{url: 'https://hunter2@a/'}", "[0].url", "holds credentials", "token_file"),
    ("a token in the query", "{url: 'https://a/?token=hunter2'}", "[0].url", "what looks like a secret", "token_file"),
    ("a key in the query", "{url: 'https://a/?x=1&api_key=hunter2'}", "[0].url", "what looks like a secret", "token_file"),
    ("a fragment", "{url: 'https://a/#x'}", "[0].url", "has a fragment", "leave out"),
    ("a space", "{url: 'https://a/b c'}", "[0].url", "other signs than a URL has", "percent-encode"),
    ("a line end", '{url: "https://a/b\\r\\nX-Evil: 1"}', "[0].url", "other signs than a URL has", "percent-encode"),
    ("a long one", f"{{url: 'https://a/{'x' * 2000}'}}", "[0].url", "too many", "percent-encode"),
    ("no host", "{url: 'https:///x'}", "[0].url", "is no host", "write it like"),
    ("no such host", "{url: 'http://127.0.0.256/'}", "[0].url", '"127.0.0.256" is not a host', "write it like"),
    ("no such port", "{url: 'http://a:99999/'}", "[0].url", "is not a URL", "write it like"),
    ("port 0", "{url: 'http://a:0/'}", "[0].url", "port 0", "write it like"),
    ("another format", "{url: http://a, format: slack}", "[0].format", '"slack" is not one of webhook, alertmanager', "use webhook or alertmanager"),
    ("no time", "{url: http://a, timeout: 0s}", "[0].timeout", "too little", "the least is 100ms"),
    ("a long time", "{url: http://a, timeout: 1h}", "[0].timeout", "too much", "the most is 1min"),
    ("ever again", "{url: http://a, repeat_every: 1s}", "[0].repeat_every", "too little", "the least is 10s"),
    ("a user alone", "{url: http://a, user: x}", "[0].user", "stands without a password", "add token_file"),
    ("a user with a colon", "{url: http://a, user: 'a:b', token_file: t}", "[0].user", "without a colon", "write it like"),
    ("a CA without TLS", "{url: http://a, ca: none.pem}", "[0].ca", "the URL is without TLS", "https://"),
    ("a CA that is not there", "{url: https://a, ca: none.pem}", "[0].ca", "cannot be read", "name"),
    ("an unknown key", "{url: https://a, tokenfile: x}", "[0].tokenfile", "unknown key", "did you mean `token_file`?"),
    ("one address twice", "{url: http://a}, {url: http://a/x}", "[1].url", "a:80 has a receiver already", "name: ops"),
    ("one name twice", "{url: http://a, name: x}, {url: http://b, name: x}", "[1].name", 'duplicate name "x"', "name of its own"),
    ("too many", ", ".join(f"{{url: http://a, name: n{number}}}" for number in range(9)), "", "the list has 9 items", "the most is 8"),
]  # fmt: skip


@pytest.mark.parametrize(("webhooks", "path", "message", "remedy"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_wrong_setting_is_named_with_line_path_and_remedy(
    write: Callable[..., Path], webhooks: str, path: str, message: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load(write(f"{LISTENERS}webhooks: [{webhooks}]\n"))
    problem = next(each for each in raised.value.errors if each.path == f"webhooks{path}")
    assert (problem.line, message in problem.message, remedy in problem.remedy) == (3, True, True), problem
    assert problem.column > 1
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "address", "host", "target"),
    [
        ("http://127.0.0.1:9093", ("127.0.0.1", 9093), "127.0.0.1:9093", "/"),
        ("https://alerts.example/hooks/sluice?channel=ops", ("alerts.example", 443), "alerts.example", "/hooks/sluice?channel=ops"),
        ("http://[::1]/", ("::1", 80), "[::1]", "/"),
        ("https://a:80/%20", ("a", 80), "a:80", "/%20"),
    ],
)
def test_urls(write: Callable[..., Path], url: str, address: tuple[str, int], host: str, target: str) -> None:
    (webhook,) = load(write(f"{LISTENERS}webhooks: [{{url: '{url}'}}]\n")).webhooks
    assert webhook.url is not None
    where = parts_of(webhook.url)
    assert (where.address, where.host_field, where.target) == (Address(*address), host, target)
    assert webhook.label == str(Address(*address))


def test_what_is_shown_reads_back_and_holds_no_secret(write: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter2")
    authority = Authority(tmp_path / "tls")
    text = f"webhooks: [{{url: https://a, name: ops, token_file: token, user: u, ca: {authority.file}, repeat_every: 30s, timeout: 2s}}]\n"
    settings = load(write(LISTENERS + text))
    (webhook,) = settings.webhooks
    assert (webhook.label, webhook.repeat_s, webhook.timeout_ns, webhook.format) == ("ops", 30, 2_000_000_000, "webhook")
    assert load(write(yaml.safe_dump(settings.describe()))).webhooks == settings.webhooks
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings.describe())


def test_the_repeat_by_default_is_that_of_the_format(write: Callable[..., Path]) -> None:
    settings = load(write(f"{LISTENERS}webhooks: [{{url: http://a}}, {{url: http://b, format: alertmanager}}]\n"))
    assert [webhook.repeat_s for webhook in settings.webhooks] == [4 * 3600, 60]


def test_from_the_environment(write: Callable[..., Path]) -> None:
    settings = load(write(f"{LISTENERS}webhooks: [{{url: http://a, name: ops}}]\n"), {"SLUICE_WEBHOOKS__OPS__TIMEOUT": "7s"})
    assert settings.webhooks[0].timeout_ns == 7_000_000_000
    assert load(write(LISTENERS), {"SLUICE_WEBHOOKS": "[{url: http://a}]"}).webhooks[0].url == "http://a"


@pytest.mark.parametrize(
    ("webhook", "path", "message"),
    [
        ("url: http://alerts.example", ".url", "crosses the network to alerts.example:80 as plain text"),
        ("url: https://alerts.example", "", ""),
        ("url: http://127.0.0.1:9093", "", ""),
        ("url: 'http://[::1]:9093'", "", ""),
        ("url: http://localhost", "", ""),
    ],
)
def test_a_token_that_crosses_the_network_in_plain_is_a_warning(
    write: Callable[..., Path], tmp_path: Path, webhook: str, path: str, message: str
) -> None:
    (tmp_path / "token").write_text("hunter2")
    (tmp_path / "token").chmod(0o600)
    found = [one for one in lint(load(write(f"{LISTENERS}webhooks: [{{{webhook}, token_file: token}}]\n"))) if "webhooks" in one.path]
    assert [(one.path, one.line, message in one.message) for one in found] == ([(f"webhooks[0]{path}", 3, True)] if message else [])


@pytest.mark.parametrize(
    ("url", "token", "words"),
    [
        ("http://alerts.example/hunter2", True, "as plain text, and so does the token"),
        ("http://alerts.example/hunter2", False, "as plain text"),
        ("https://alerts.example/hunter2", True, ""),
        ("http://127.0.0.1:9093/hunter2", True, ""),
        ("no URL", True, ""),
    ],
)
def test_a_url_in_a_file_that_crosses_the_network_in_plain_is_a_warning(
    write: Callable[..., Path], tmp_path: Path, url: str, token: bool, words: str
) -> None:
    for name, held in (("hook.url", f"{url}\n"), ("token", "x")):
        (tmp_path / name).write_text(held)
        (tmp_path / name).chmod(0o600)
    more = ", token_file: token" if token else ""
    found = [
        one for one in lint(load(write(f"{LISTENERS}webhooks: [{{url_file: hook.url, name: ops{more}}}]\n"))) if "webhooks" in one.path
    ]
    assert [(one.path, words in one.message) for one in found] == ([("webhooks[0].url_file", True)] if words else [])
    assert "hunter2" not in str(found)


def test_a_token_file_that_is_missing_or_open_to_all_is_a_warning(write: Callable[..., Path], tmp_path: Path) -> None:
    file = write(f"{LISTENERS}webhooks: [{{url: https://a, token_file: token}}]\n")
    assert any("cannot be read" in one.message for one in lint(load(file)) if one.path == "webhooks[0].token_file")
    (tmp_path / "token").write_text("x")
    (tmp_path / "token").chmod(0o644)
    assert any("by others" in one.message for one in lint(load(file)) if one.path == "webhooks[0].token_file")


def test_a_file_of_the_url_is_shown_by_its_name_and_warned_of_like_one_of_a_token(write: Callable[..., Path], tmp_path: Path) -> None:
    file = write(f"{LISTENERS}webhooks: [{{url_file: hook.url, name: ops, token_file: hook.url}}]\n")
    assert "cannot be read" in next(one.message for one in lint(load(file)) if one.path == "webhooks[0].url_file")
    (tmp_path / "hook.url").write_text("http://a.example/hunter2")
    (tmp_path / "hook.url").chmod(0o644)
    settings = load(file)
    assert "by others" in next(one.message for one in lint(settings) if one.path == "webhooks[0].url_file")
    assert "hunter2" not in str(settings.describe())
    assert load(write(yaml.safe_dump(settings.describe()))).webhooks == settings.webhooks
    assert diff(settings, load(write(f"{LISTENERS}webhooks: [{{url_file: other.url, name: ops}}]\n")))["needs_restart"] == []


def test_a_reload_changes_webhooks_and_says_which(write: Callable[..., Path]) -> None:
    before = load(write(f"{LISTENERS}webhooks: [{{url: http://a, name: ops}}]\n"))
    after = load(write(f"{LISTENERS}webhooks: [{{url: http://b, name: ops}}, {{url: http://c, name: more}}]\n"))
    assert merge(before, after).webhooks == after.webhooks
    found = diff(before, after)
    assert "webhooks.ops.url: http://a -> http://b" in found["in_force"]
    assert found["needs_restart"] == []


def test_workers_are_not_told_of_webhooks(write: Callable[..., Path]) -> None:
    """Their parent posts; a file that only it can read must not keep them from starting."""
    assert settings_of(describe(load(write(f"{LISTENERS}webhooks: [{{url: http://a}}]\n")))).webhooks == ()


def test_a_url_that_was_shown_is_refused_and_workers_have_the_whole_one(write: Callable[..., Path]) -> None:
    tracing = "tracing: {endpoint: 'http://127.0.0.1:4318/v1/hunter2'}\n"
    settings = load(write(f"{LISTENERS}{tracing}webhooks: [{{url: 'http://a/hunter2', name: ops}}]\n"))
    assert "hunter2" not in str(settings.describe()) + repr(settings)
    with pytest.raises(ConfigError) as raised:
        load(write(yaml.safe_dump(settings.describe())))
    assert [each.path for each in raised.value.errors] == ["tracing.endpoint", "webhooks[0].url"]
    assert all("one that was shown" in each.message for each in raised.value.errors)
    assert settings_of(describe(settings)).tracing == settings.tracing


def test_a_change_of_what_is_not_shown_is_named(write: Callable[..., Path]) -> None:
    before = load(write(f"{LISTENERS}webhooks: [{{url: http://a/hunter2, name: ops}}]\n"))
    after = load(write(f"{LISTENERS}webhooks: [{{url: http://a/hunter3, name: ops}}]\n"))
    assert diff(before, after) == {"in_force": ["webhooks.ops.url: http://a/… -> another path, query or user there"], "needs_restart": []}
