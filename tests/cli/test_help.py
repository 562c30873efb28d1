"""Every `--help` says what the verb does and ends with an example that parses."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import click
import pytest

from cli.main import sluice as root


def verbs(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            assert inner is not None
            yield from verbs(inner, (*words, name))


ALL = list(verbs(root, ()))


@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(words) or "sluice" for words, _ in ALL])
def test_help_ends_with_an_example_that_parses(sluice: Any, words: tuple[str, ...], command: click.Command) -> None:
    ran = sluice(*words, "--help")
    assert ran.code == 0
    assert command.help
    example: str = command.example  # type: ignore[attr-defined]
    lines = [line.strip() for line in example.splitlines()]
    assert [line.strip() for line in ran.out.rstrip().splitlines()[-len(lines) :]] == lines
    for line in lines:
        typed = line.partition(" && ")[0].partition(" > ")[0]
        assert shlex.split(typed)[: len(words) + 1] == ["sluice", *words]
        parses(shlex.split(typed)[1:])


def parses(words: list[str]) -> None:
    """Walk the groups and let the last verb parse its arguments, without running it."""
    command: click.Command = root
    context = click.Context(root, info_name="sluice")
    while isinstance(command, click.Group):
        name, inner, words = command.resolve_command(context, words)
        assert inner is not None
        command = inner
        if not isinstance(command, click.Group):
            command.make_context(name, list(words), parent=context)


@pytest.mark.parametrize("name", ["--admin", "--token-file", "--output", "--timeout"])
def test_remote_verbs_share_their_options(name: str) -> None:
    local = {
        ("audit", "verify"),
        ("check",),
        ("init",),
        ("run",),
        ("config", "show"),
        ("config", "schema"),
        ("support-bundle",),
        ("version",),
        ("completion",),
        ("quotas", "compute"),
        ("quotas", "backtest"),
        ("log", "compact"),
        ("log", "ship"),
    }
    for words, command in ALL:
        if not isinstance(command, click.Group) and words not in local and words[0] != "fleet":
            assert any(name in option.opts for option in command.params), words


@pytest.mark.parametrize("name", ["--gateway", "--timeout"])
def test_verbs_of_a_fleet_share_the_options_that_name_its_gateways(name: str) -> None:
    verbs = [command for words, command in ALL if words[:1] == ("fleet",) and not isinstance(command, click.Group)]
    assert len(verbs) >= 4
    for command in verbs:
        assert any(name in option.opts for option in command.params), command.name


@pytest.mark.parametrize("name", ["--dry-run", "--if-version", "--reason", "--yes"])
def test_changing_verbs_share_their_options(name: str) -> None:
    changing = [
        ("limits", "set"), ("limits", "unset"), ("rules", "set"), ("rules", "reset"), ("history", "rollback"), ("quotas", "apply"),
        ("quotas", "rollback"),
    ]  # fmt: skip
    acting = [("reload",), ("drain",), ("connections", "close")]  # on what has no version
    found = dict(ALL)
    for words in [*changing, *acting]:
        assert any(name in option.opts for option in found[words].params) == (words in changing or name != "--if-version"), words


def test_help_says_where_a_reason_is_kept() -> None:
    found = dict(ALL)

    def kept(*words: str) -> str:
        return next(str(option.help) for option in found[words].params if "--reason" in option.opts)

    assert [kept("limits", "set"), kept("history", "rollback")] == ["The reason; kept in the history."] * 2
    assert [kept("reload"), kept("drain"), kept("connections", "close")] == ["The reason; kept in the audit (`sluice audit`)."] * 3
