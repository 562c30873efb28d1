"""Where values come from: flag before environment before file before default."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from config import ConfigProblem, Settings, load, reload

LISTENERS = (
    "listeners:\n"
    "  - {name: rabbit, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2}\n"
    "  - {name: rocket-vip, protocol: rocketmq, bind: 127.0.0.1:3, upstream: 127.0.0.1:4}\n"
)
FILE = "limiter: {queue: 10}\n"
ENVIRONMENT = {"SLUICE_LIMITER__QUEUE": "20"}
FLAG = {"limiter.queue": "30"}

# file, environment, flags; the value, where it comes from
PRECEDENCE = [
    ("", {}, {}, 10000, "default"),
    (FILE, {}, {}, 10, "FILE:4:18"),
    ("", ENVIRONMENT, {}, 20, "environment SLUICE_LIMITER__QUEUE"),
    ("", {}, FLAG, 30, "flag --set limiter.queue"),
    (FILE, ENVIRONMENT, {}, 20, "environment SLUICE_LIMITER__QUEUE"),
    (FILE, {}, FLAG, 30, "flag --set limiter.queue"),
    ("", ENVIRONMENT, FLAG, 30, "flag --set limiter.queue"),
    (FILE, ENVIRONMENT, FLAG, 30, "flag --set limiter.queue"),
]


@pytest.mark.parametrize(("file", "environ", "flags", "value", "origin"), PRECEDENCE)
def test_flag_before_environment_before_file_before_default(
    write: Callable[..., Path], file: str, environ: dict[str, str], flags: dict[str, str], value: int, origin: str
) -> None:
    path = write(LISTENERS + file)
    settings = load(path, environ, flags)
    assert settings.limiter.queue == value
    assert str(settings.origin("limiter.queue")) == origin.replace("FILE", str(path))
    assert str(settings.origin("limiter.threads")) == "default"


@pytest.mark.parametrize(
    ("rule", "value", "origin"),
    [
        ("{name: a, limit: {messages: 1/s}}", "1s", "default"),
        ("{name: a, limit: {messages: 1/s}, action: drop, breaker: {}}", "1s", "default"),
        ("{name: a, limit: {messages: 1/s}, action: delay}", "0s", "default"),
        ("{name: a, limit: {messages: 1/s}, breaker: {open_for: 2s}}", "2s", "FILE:4:63"),
        ("{name: a, limit: {messages: 1/s}, action: delay, breaker: {open_for: 1s}}", "1s", "FILE:4:78"),
    ],
)
def test_the_breaker_in_force_is_shown_and_where_it_comes_from(write: Callable[..., Path], rule: str, value: str, origin: str) -> None:
    path = write(LISTENERS + f"rules: [{rule}]\n")
    settings = load(path)
    shown = settings.describe()["rules"]
    assert isinstance(shown, list)
    assert [each["breaker"] for each in shown] == [{"open_for": value}]
    assert str(settings.origin("rules[0].breaker.open_for")) == origin.replace("FILE", str(path))


@pytest.mark.parametrize(
    ("name", "text", "read", "value"),
    [
        ("SLUICE_GATEWAY__STATE_DIRECTORY", "/var/lib/sluice", lambda s: s.gateway.state_directory, Path("/var/lib/sluice")),
        ("SLUICE_ADMIN__BIND", "[::1]:0", lambda s: tuple(s.admin.bind), ("::1", 0)),
        ("SLUICE_LISTENERS__RABBIT__UPSTREAM", "broker:9", lambda s: str(s.listeners[0].upstreams[0]), "broker:9"),
        (
            "SLUICE_LISTENERS__RABBIT__UPSTREAM",
            "a:9,[::1]:9",
            lambda s: [str(each) for each in s.listeners[0].upstreams],
            ["a:9", "[::1]:9"],
        ),
        ("SLUICE_LISTENERS__RABBIT__UPSTREAM", "[a:9, b:9]", lambda s: [*map(str, s.listeners[0].upstreams)], ["a:9", "b:9"]),
        ("SLUICE_LISTENERS__RABBIT__UPSTREAM", "[::1]:9", lambda s: str(s.listeners[0].upstreams[0]), "[::1]:9"),
        ("SLUICE_LISTENERS__ROCKET_VIP__UPSTREAM", "broker:9", lambda s: str(s.listeners[1].upstreams[0]), "broker:9"),
        ("SLUICE_LISTENERS__1__MAX_FRAME", "1MiB", lambda s: s.listeners[1].max_frame, 1 << 20),
        ("SLUICE_LISTENERS__0__HANDSHAKE_TIMEOUT", "3s", lambda s: s.listeners[0].handshake_timeout_ns, 3_000_000_000),
        ("SLUICE_ACCESS_LOG", "off", lambda s: s.access_log, None),
        ("SLUICE_ACCESS_LOG__DIRECTORY", "/logs", lambda s: s.access_log.directory, Path("/logs")),
        ("SLUICE_CREDIT", "{initial: 100, more_after: 50}", lambda s: (s.credit.initial, s.credit.more_after), (100, 50)),
        ("SLUICE_ADMIN__TOKENS", "[{name: ci, role: viewer, file: /t}]", lambda s: s.admin.tokens[0].file, Path("/t")),
        ("SLUICE_LOG__LEVEL", "debug", lambda s: s.log.level, "debug"),
    ],
)
def test_every_kind_of_setting_can_come_from_the_environment(
    write: Callable[..., Path], name: str, text: str, read: Callable[[Settings], object], value: object
) -> None:
    assert read(load(write(LISTENERS), {name: text})) == value


def test_parts_from_outside_turn_a_section_on_that_the_file_turned_off(write: Callable[..., Path]) -> None:
    settings = load(write(LISTENERS + "access_log: off\n"), {"SLUICE_ACCESS_LOG__ROLL_SIZE": "1MiB"})
    assert settings.access_log is not None
    assert settings.access_log.roll_size == 1 << 20


def test_rules_file_from_the_environment(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write(LISTENERS, other="rules: [{name: a, limit: {messages: 1/s}}]")
    assert load(path, {"SLUICE_RULES_FILE": str(tmp_path / "other.yaml")}).rules[0].place == "other.yaml:1"


@pytest.mark.parametrize(
    "name",
    ["SLUICE_ADMIN", "SLUICE_TOKEN", "SLUICE_TOKEN_FILE", "SLUICE_CONFIG", "SLUICE_COMPILE", "SLUICE_VERSION",
     "SLUICE_PORT", "SLUICE_SERVICE_HOST", "SLUICE_ADMIN_PORT_9180_TCP_ADDR", "OTHER__THING"],
)  # fmt: skip
def test_variables_of_others_are_left_alone(write: Callable[..., Path], name: str) -> None:
    """Kubernetes sets some for a service named sluice, the command line has its own."""
    assert load(write(LISTENERS), {name: "http://x"}).describe() == load(write(LISTENERS)).describe()


# variable, text, path, what is said, remedy
WRONG = [
    ("SLUICE_ADMIN__BND", "x", "admin.bnd", "unknown setting", "did you mean `bind`?"),
    ("SLUICE_LIMITTER__QUEUE", "1", "limitter", "unknown setting", "did you mean `limiter`?"),
    ("SLUICE_LIMITER__QUEUE", "many", "limiter.queue", 'expected a whole number, got "many"', "write it like"),
    ("SLUICE_LISTENERS__RABIT__BIND", "1", "listeners.rabit", 'there is no such item as "rabit"', "known: rabbit, rocket-vip"),
    ("SLUICE_LISTENERS__7__BIND", "1", "listeners.7", 'there is no such item as "7"', "known: rabbit, rocket-vip"),
    ("SLUICE_LISTENERS__RABBIT__TLS", "x", "listeners[0].tls", 'expected a mapping or off, got "x"', "write off, or the keys"),
    ("SLUICE_LOG__LEVEL__DEEPER", "x", "log.level.deeper", "lies inside a setting that has no parts", "check the name"),
    ("SLUICE_VERSION__X", "x", "version", "cannot be set from outside", "set it in the file"),
    ("SLUICE_RULES__0__NAME", "x", "rules", "cannot be set from outside", "set it in the file"),
    ("SLUICE_CREDIT", "{initial: ", "", "not YAML", ""),
    ("SLUICE_CREDIT", "many", "credit", 'expected a mapping, got "many"', "its keys are initial, more_after, bytes"),
]


@pytest.mark.parametrize(("name", "text", "path", "said", "remedy"), WRONG)
def test_a_wrong_variable_is_named(
    faults: Callable[..., list[ConfigProblem]], name: str, text: str, path: str, said: str, remedy: str
) -> None:
    problem = faults(LISTENERS, {name: text})[0]
    assert problem.file == f"environment {name}"
    assert problem.path == path
    assert said in problem.message
    assert remedy in problem.remedy


@pytest.mark.parametrize("path", ["listeners[1].max_frame", "listeners.1.max_frame", "listeners.rocket-vip.max_frame"])
def test_flags_name_items_of_lists(write: Callable[..., Path], path: str) -> None:
    assert load(write(LISTENERS), {}, {path: "2MiB"}).listeners[1].max_frame == 2 << 20


def test_a_wrong_flag_is_named(faults: Callable[..., list[ConfigProblem]]) -> None:
    (problem,) = faults(LISTENERS, {}, {"admin.bind": "9"})
    assert problem.headline == 'flag --admin-bind: admin.bind: "9" is a port without a host; did you mean 127.0.0.1:9?'


def test_relative_paths_start_at_the_file_that_says_them(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    path = write(LISTENERS + "gateway: {state_directory: s}\n")
    assert load(path).gateway.state_directory == tmp_path / "s"
    assert load(write(LISTENERS)).gateway.state_directory == tmp_path / "state"
    log = load(path).access_log
    assert log is not None
    assert log.directory == tmp_path / "access-log"


def test_relative_paths_of_flags_and_environment_start_where_the_command_is_typed(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    path = write(LISTENERS + "gateway: {state_directory: s}\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load(path, {"SLUICE_GATEWAY__STATE_DIRECTORY": "e"}).gateway.state_directory == tmp_path / "elsewhere" / "e"
    assert load(path, {}, {"gateway.state_directory": "f"}).gateway.state_directory == tmp_path / "elsewhere" / "f"


def test_a_reload_keeps_flags_and_environment(write: Callable[..., Path]) -> None:
    path = write(LISTENERS)
    first = load(path, {"SLUICE_LOG__LEVEL": "debug", "HOME": "/root"}, {"admin.bind": "127.0.0.1:0"})
    write(LISTENERS + "limiter: {queue: 7}\n")
    again = reload(first)
    assert (again.log.level, again.admin.bind.port, again.limiter.queue) == ("debug", 0, 7)
    assert "HOME" not in first.environ
