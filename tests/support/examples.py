"""The examples at the ends of `--help`, as the program has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from cli.main import sluice as root

OF_SPARK: Final = ("sluice quotas compute", "sluice quotas backtest")  # how the examples begin that start a session of Spark


def examples() -> list[str]:
    """All of them, each once, in the order of the verbs."""

    def walk(command: click.Command) -> Iterator[str]:
        yield from (line.strip() for line in str(command.example).strip().splitlines())  # type: ignore[attr-defined]
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                inner = command.get_command(click.Context(command), name)
                assert inner is not None
                yield from walk(inner)

    return list(dict.fromkeys(walk(root)))


def example(words: str) -> str:
    """The one with these words."""
    (found,) = [each for each in examples() if words in each]
    return found
