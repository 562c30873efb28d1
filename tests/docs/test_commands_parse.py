"""Every `sluice` command that a page shows is one that `sluice` takes: verb and options exist, no argument is missing or too much."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click
import pytest

from cli.main import common_options_last, sluice
from support.pages import commands, pages

SHOWN = [command for page in pages() for command in commands(page)]
ELLIPSIS = ("…", "...", "VERB", "COMMAND")


def fault(words: Sequence[str]) -> str | None:
    """What is wrong with a command line; None where nothing is. Values of arguments are not looked at: pages show placeholders."""
    command: click.Command = sluice
    context = click.Context(command, info_name="sluice")
    rest = common_options_last(list(words))
    try:
        while isinstance(command, click.Group):
            if not rest or rest[0].startswith("-"):
                break
            name, found, rest = command.resolve_command(context, rest)
            assert found is not None
            context = click.Context(found, info_name=name, parent=context, **found.context_settings)
            command = found
        with context:
            command.parse_args(context, list(rest))
    except click.exceptions.Exit:
        return None
    except click.exceptions.NoArgsIsHelpError:
        return None  # `sluice quotas` as a name of its verbs
    except click.BadParameter as error:
        if isinstance(error, click.MissingParameter) and rest:
            return error.format_message()
        return None
    except click.UsageError as error:
        if "requires an argument" in error.message and rest[-1:] == [getattr(error, "option_name", "")]:
            return None  # an option named in passing
        return error.format_message()
    return None


def test_pages_show_commands() -> None:
    assert len(SHOWN) > 100


def test_every_command_that_a_page_shows_is_taken() -> None:
    refused = []
    for shown in SHOWN:
        words = [re.sub(r"^\[(.*)\]$", r"\1", word) for word in shown.words if word not in ELLIPSIS]
        if (found := fault(words)) is not None:
            refused.append(f"{shown.id}: {found}")
    assert not refused, "\n".join(refused)


@pytest.mark.parametrize(
    ("line", "fails"),
    [
        ("limits set rocketmq orders --messages 500/s", False),
        ("limits set rocketmq orders --message-rate 500/s", True),
        ("limits sett rocketmq orders", True),
        ("limits list --sort refused", False),
        ("connections close", False),  # as a name
        ("connections close --reason x", True),
    ],
)
def test_the_check_finds_what_is_wrong(line: str, fails: bool) -> None:
    assert (fault(line.split()) is not None) == fails
