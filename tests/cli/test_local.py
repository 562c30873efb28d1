"""`sluice check`, `config`, `token`, `version`, `completion`: nothing to talk to."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli import configured

LISTENERS = "listeners: [{name: a, protocol: amqp, bind: 127.0.0.1:1, upstream: 127.0.0.1:2}]\n"
RULES = "rules: [{name: all, limit: {messages: 1/s}}]\n"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "sluice.yaml"
    path.write_text(LISTENERS + RULES)
    return path


def test_the_shipped_configuration_is_good(sluice: Any) -> None:
    ran = sluice("check", "-c", ROOT / "config" / "sluice.yaml")
    assert (ran.code, ran.out) == (0, "")
    assert "good; 4 listeners, 3 rules" in ran.err


def test_a_bad_configuration_ends_with_3_and_every_place(sluice: Any, config: Path) -> None:
    config.write_text(LISTENERS + "limiter: {treads: 1, queue: x}\n")
    ran = sluice("check", "-c", config)
    assert (ran.code, ran.out) == (3, "")
    assert f"{config}:2:11: limiter.treads: unknown key; did you mean `threads`?" in ran.err
    assert f'{config}:2:29: limiter.queue: expected a whole number, got "x"' in ran.err
    assert "    2 | limiter: {treads: 1, queue: x}" in ran.err
    assert ran.err.rstrip().endswith("2 errors")


def test_strict_makes_warnings_errors(sluice: Any, config: Path) -> None:
    config.write_text(LISTENERS)
    ran = sluice("check", "-c", config)
    assert ran.code == 0
    assert "warning: rules: there are no rules" in ran.err
    ran = sluice("check", "-c", config, "--strict")
    assert ran.code == 3
    assert "error: rules: there are no rules" in ran.err


def test_a_hostile_file_does_not_steer_the_terminal(sluice: Any, config: Path) -> None:
    config.write_text(LISTENERS + 'log: {level: "\\e[31mred"}\n')
    ran = sluice("check", "-c", config)
    assert ran.code == 3
    assert "\x1b" not in ran.err


def test_no_configuration_named_is_a_usage_error(sluice: Any) -> None:
    assert sluice("check").code == 2


def test_the_configuration_may_be_named_by_the_environment(sluice: Any, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_CONFIG", str(config))
    assert sluice("check").code == 0


def test_config_show_can_be_read_back(sluice: Any, config: Path, tmp_path: Path) -> None:
    ran = sluice("config", "show", "-c", config, "--log-level", "debug")
    assert yaml.safe_load(ran.out)["log"]["level"] == "debug"
    again = tmp_path / "again.yaml"
    again.write_text(ran.out)
    assert sluice("config", "show", "-c", again).out == ran.out


def test_config_show_origin_tells_where_each_value_comes_from(sluice: Any, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_CREDIT__INITIAL", "300")
    rows = sluice("config", "show", "-c", config, "--origin", "--admin-bind", "127.0.0.1:7", "-o", "json").json
    found = {row["setting"]: (row["value"], row["from"]) for row in rows}
    assert found["admin.bind"] == ("127.0.0.1:7", "flag --admin-bind")
    assert found["credit.initial"] == (300, "environment SLUICE_CREDIT__INITIAL")
    assert found["listeners[0].name"] == ("a", f"{config}:1:20")
    assert found["log.level"] == ("info", "default")
    assert found["rules[0].limit.messages"] == ("1/s", f"{config}:2:{RULES.index('1/s') + 1}")


def test_config_show_writes_booleans_as_the_file_takes_them(sluice: Any, config: Path) -> None:
    rows = sluice("config", "show", "-c", config, "--origin").out.splitlines()
    (row,) = [row.split() for row in rows if "accept_proxy_protocol" in row]
    assert row[1] == "false"


def test_set_needs_an_equals_sign(sluice: Any, config: Path) -> None:
    assert sluice("check", "-c", config, "--set", "limiter.threads").code == 2


def test_config_schema(sluice: Any) -> None:
    assert sluice("config", "schema").out == (ROOT / "config" / "sluice.schema.json").read_text()
    assert sluice("config", "schema", "--rules").out == (ROOT / "config" / "limits.schema.json").read_text()


def test_token_new_writes_a_private_file_and_never_over_another(sluice: Any, tmp_path: Path) -> None:
    file = tmp_path / "tokens" / "ci"
    ran = sluice("token", "new", "--file", file, "--role", "viewer")
    assert ran.code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = file.read_text().strip()
    assert len(token) == 43
    assert token not in ran.out + ran.err
    assert yaml.safe_load(ran.out) == {"admin": {"tokens": [{"name": "ci", "role": "viewer", "file": str(file)}]}}
    assert sluice("token", "new", "--file", file).code == 2
    assert file.read_text().strip() == token


@pytest.mark.parametrize(
    ("file", "more", "name"), [("nightly.token", (), "nightly"), ("a b", (), "ci"), ("nightly", ("--name", "me"), "me")]
)
def test_the_owner_of_a_token_in_a_file_is_called_as_the_file(
    sluice: Any, tmp_path: Path, file: str, more: tuple[str, ...], name: str
) -> None:
    """Where that is a name that the configuration takes."""
    ran = sluice("token", "new", "--file", tmp_path / file, *more)
    assert yaml.safe_load(ran.out) == {"admin": {"tokens": [{"name": name, "role": "operator", "file": str(tmp_path / file)}]}}


def test_token_new_to_stdout(sluice: Any) -> None:
    first, second = (sluice("token", "new").out.strip() for _ in range(2))
    assert len(first) == 43
    assert first != second


def test_version_says_which_build_runs(sluice: Any) -> None:
    found = sluice("version", "-o", "json").json
    assert found["build"] in {"compiled", "pure Python"}
    assert {"sluice", "python", "trio"} <= set(found)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_sluice(sluice: Any, shell: str) -> None:
    out = sluice("completion", shell).out
    assert f"_SLUICE_COMPLETE={shell}_complete" in out


def test_completion_of_an_unknown_shell_is_a_usage_error(sluice: Any) -> None:
    assert sluice("completion", "cmd").code == 2


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (("check", "-c", "config/sluice.yaml"), ("unicodedata", "trio", "pyspark", "h11", "asyncio", "ssl")),
        (("status", "--admin", "unix:/no/such.sock"), ("trio", "pyspark", "h11", "asyncio", "config", "limiter.rules.rule")),
    ],
)
def test_start_of_a_verb_imports_nothing_heavy(words: tuple[str, ...], heavy: tuple[str, ...]) -> None:
    """`sluice run` is to accept within a second, and whoever types a verb waits for its start."""
    import subprocess
    import sys

    script = f"import sys; from cli.main import main; main({list(words)}); print([name for name in {heavy} if name in sys.modules])"
    environment = {**os.environ, "SLUICE_TOKEN": "given-so-that-none-is-looked-for"}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("verb", [["check"], ["config", "show"], ["run"]])
@pytest.mark.parametrize("name", ["sluice.yaml", "limits.yaml"])
def test_a_file_that_hangs_is_named_and_not_waited_for(
    sluice: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str], name: str
) -> None:
    """A FIFO in the place of a configuration or its rules, as a mount would hang."""
    monkeypatch.setattr(configured, "READ_S", 2.0)
    listener = "{name: rabbit, protocol: amqp, bind: '127.0.0.1:0', upstream: '127.0.0.1:5673'}"
    (tmp_path / "sluice.yaml").write_text(f"listeners: [{listener}]\nrules_file: limits.yaml\n")
    (tmp_path / "limits.yaml").unlink(missing_ok=True)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    try:
        ran = sluice(*verb, "-c", str(tmp_path / "sluice.yaml"))
    finally:
        os.close(os.open(tmp_path / name, os.O_RDWR | os.O_NONBLOCK))  # lets the thread go
    assert ran.code == 3
    assert f"{tmp_path / name} was not read within 2 s" in ran.err


@pytest.mark.parametrize("verb", [["check"], ["config", "show"], ["run"]])
def test_a_device_or_a_folder_in_the_place_of_a_file_is_a_fault(sluice: Any, tmp_path: Path, verb: list[str]) -> None:
    for file in ("/dev/zero", str(tmp_path)):
        ran = sluice(*verb, "-c", file)
        assert (ran.code, file in ran.err) == (3, True)
