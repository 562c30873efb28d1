"""The settings of tracing: where spans go, and what is wrong with them."""

# ruff: noqa: E501  -- tables, one case a line

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from config import ConfigError, lint, lints, load
from config.tracing_packages import missing_package
from config.worker_settings import describe

LISTENERS = "listeners:\n  - {name: rabbit, protocol: amqp, bind: 127.0.0.1:5672, upstream: 127.0.0.1:5673}\n"
URL = "http://127.0.0.1:4318/v1/traces"

# name, text after two lines of listeners, path, what is said, remedy
BROKEN = [
    ("no endpoint", "tracing: {}\n", "tracing.endpoint", "is missing", f"add endpoint: {URL}"),
    ("no scheme", "tracing: {endpoint: '127.0.0.1:4318'}\n", "tracing.endpoint", "not the URL of a collector", "http://"),
    ("another scheme", "tracing: {endpoint: 'grpc://a:4317/x'}\n", "tracing.endpoint", "not the URL of a collector", "It begins with http://"),
    ("no path", "tracing: {endpoint: 'http://a:4318'}\n", "tracing.endpoint", "has no path", "did you mean http://a:4318/v1/traces?"),
    ("a login", "tracing: {endpoint: 'http://me:hunter2@a/v1/traces'}\n", "tracing.endpoint", "holds credentials", "headers_file"),
    ("a query", "tracing: {endpoint: 'http://a/v1/traces?x=1'}\n", "tracing.endpoint", "more than where the collector is", "write it like"),
    ("no such host", "tracing: {endpoint: 'http://127.0.0.256/v1/traces'}\n", "tracing.endpoint", '"127.0.0.256" is not a host', "write it like"),
    ("no such port", "tracing: {endpoint: 'http://a:99999/v1/traces'}\n", "tracing.endpoint", "is not a URL", "write it like"),
    ("port 0", "tracing: {endpoint: 'http://a:0/v1/traces'}\n", "tracing.endpoint", "port 0", "write it like"),
    ("a bare ratio", f"tracing: {{endpoint: '{URL}', sampling_ratio: 0.1}}\n", "tracing.sampling_ratio", "expected a part of the whole", "did you mean 0.1%?"),
    ("nothing sampled", f"tracing: {{endpoint: '{URL}', sampling_ratio: 0%}}\n", "tracing.sampling_ratio", "too little", "the least is 0.1%"),
    ("no spans", f"tracing: {{endpoint: '{URL}', max_per_second: 0}}\n", "tracing.max_per_second", "0", "1"),
    ("no time", f"tracing: {{endpoint: '{URL}', timeout: 1ms}}\n", "tracing.timeout", "too little", "100ms"),
    ("another word", f"tracing: {{endpoint: '{URL}', sample: 10%}}\n", "tracing.sample", "unknown", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "path", "message", "remedy"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_wrong_setting_is_named_with_line_path_and_remedy(
    write: Callable[..., Path], text: str, path: str, message: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load(write(LISTENERS + text))
    problem = next(each for each in raised.value.errors if each.path == path)
    assert (problem.line, message in problem.message, remedy in problem.remedy) == (3, True, True), problem
    assert "hunter2" not in problem.message


def test_off_is_the_default_and_an_endpoint_suffices(write: Callable[..., Path]) -> None:
    assert load(write(LISTENERS)).tracing is None
    tracing = load(write(f"{LISTENERS}tracing: {{endpoint: '{URL}'}}\n")).tracing
    assert tracing is not None
    assert (tracing.sampling_ratio, tracing.max_per_second, tracing.timeout_ns, tracing.headers_file) == (1000, 100, 10_000_000_000, None)


def test_where_a_package_is_not_installed_the_check_warns(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(write(f"{LISTENERS}tracing: {{endpoint: '{URL}'}}\n"))
    assert missing_package() == ""
    assert not [each for each in lint(settings) if each.path.startswith("tracing")]
    monkeypatch.setattr(lints, "missing_package", lambda: "opentelemetry-sdk")
    (warning,) = [each for each in lint(settings) if each.path == "tracing"]
    assert (warning.line, warning.remedy) == (3, "pip install 'sluice-gateway[otel]'")
    assert "opentelemetry-sdk is not installed" in warning.message


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        (None, 0o600, "cannot be read"),
        ("hunter2\n", 0o600, ":1: not a header"),
        ("a: b\n", 0o644, "can be read by others"),
        ("a: b\n", 0o600, ""),
    ],
)
def test_the_file_of_headers_is_checked(write: Callable[..., Path], tmp_path: Path, content: str | None, mode: int, message: str) -> None:
    file = tmp_path / "otlp.headers"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    settings = load(write(f"{LISTENERS}tracing: {{endpoint: '{URL}', headers_file: '{file}'}}\n"))
    found = [each for each in lint(settings) if each.path == "tracing.headers_file"]
    assert [message in each.message for each in found] == [True] * bool(message)
    assert not any("hunter2" in str(each) for each in found)


def test_each_worker_has_an_equal_part_of_the_spans(write: Callable[..., Path]) -> None:
    settings = load(write(f"gateway: {{workers: 3}}\n{LISTENERS}tracing: {{endpoint: '{URL}', max_per_second: 100}}\n"))
    assert json.loads(describe(settings))["tracing"]["max_per_second"] == 33
