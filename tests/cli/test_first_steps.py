"""What stands at the end of the start on a terminal: the limit in force in plain words, and commands that work where they are pasted."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import first_steps as first_steps_module
from cli.first_steps import command, first_steps
from config import CommandLine, Settings, load
from gateway.build import Build

CONFIGURATION = """\
version: 1
listeners:
  - {{name: rabbit, protocol: amqp, bind: 127.0.0.1:5672, upstream: 127.0.0.1:5673}}
  - {{name: rocket, protocol: rocketmq, bind: 127.0.0.2:10911, upstream: 127.0.0.1:10911}}
rules:
{rules}
"""


def lines(settings: Settings) -> dict[str, str]:
    """The lines of the head by their first word, and the others by number."""
    return {
        line.split()[0] if line.startswith("  ") else str(at): line.strip()
        for at, line in enumerate(first_steps(settings, lambda: None))
        if line
    }


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (("500/s",), "500/s for each topic"),
        (("500/s,5MiB/s",), "500/s and 5MiB/s for each topic"),
        ((), "none: every message passes"),
    ],
)
def test_a_run_without_a_file_says_its_limit_in_plain_words(tmp_path: Path, limits: tuple[str, ...], said: str) -> None:
    settings = load(CommandLine("amqp", "127.0.0.1:5670", ("127.0.0.1:5672",), limits, tmp_path))
    shown = lines(settings)
    assert shown["1"] == "sluice is running, as the command line says. Ctrl-C drains and stops."
    assert shown["limit"] == f"limit       {said}"
    assert shown["clients"] == "clients     connect to 127.0.0.1:5670 (amqp)"


@pytest.mark.parametrize("kind", ["pure Python", "compiled"])
def test_a_build_that_is_not_compiled_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(first_steps_module, "build", lambda: Build("1", kind, "3.11"))
    shown = lines(load(CommandLine("amqp", "127.0.0.1:5670", ("127.0.0.1:5672",), (), tmp_path)))
    assert shown.get("build", "").startswith("build       pure Python: several times") == (kind == "pure Python")


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("  - {name: a, match: {protocol: amqp}, per: topic, limit: {messages: 20/s}}", "20/s for each topic"),
        ("  - {name: a, per: user, limit: {messages: 20/s}, mode: shadow}", "20/s for each user, counted only (mode: shadow)"),
        ("  - {name: a, match: {protocol: amqp}, per: rule, limit: {bytes: 1MiB/s}}", "1MiB/s for all topics together"),
        ("  - {name: a, match: {queue: 'jobs*'}, per: topic, limit: {messages: 20/s}}", "20/s for each topic that rule a matches"),
        (
            "  - {name: a, per: topic, limit: {messages: 20/s}}\n  - {name: b, per: client, limit: {messages: 20/s}}",
            "2 rules; sluice rules list shows them",
        ),
        ("  - {name: a, match: {protocol: amqp}, per: topic, mode: off}", "none: every message passes"),
    ],
)  # fmt: skip
def test_a_file_with_one_rule_is_said_in_plain_words_too(tmp_path: Path, rules: str, said: str) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text(CONFIGURATION.format(rules=rules))
    shown = lines(load(file))
    assert shown["limit"] == f"limit       {said}"
    assert shown["1"].startswith("sluice is running, as ")
    assert "sluice.yaml says" in shown["1"]


def test_the_first_change_is_of_the_tutorials_queue(tmp_path: Path) -> None:
    settings = load(CommandLine("amqp", "127.0.0.1:5670", ("127.0.0.1:5672",), ("500/s",), tmp_path))
    tutorial = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
    (offered,) = [line for line in first_steps(settings, lambda: None) if " limits set " in line]
    key = offered[offered.index("limits set ") : offered.index(" --messages")]
    assert key == "limits set amqp / amq.default orders"
    assert f"sluice {key} " in tutorial


def test_the_command_is_typed_as_a_shell_in_that_folder_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sluice init --directory /etc/sluice` said `cd /etc/sluice`, and then a path that began where it was typed, without quotes."""
    program = tmp_path / "new comer" / "bin" / "sluice"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(program)])
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert (command(), command(Path("/etc/sluice"))) == ("'new comer/bin/sluice'", f"'{program}'")
