"""The error that ends a command, and the exit codes of `quotas plan`. All others: `common/failures.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

import click

from common.failures import FAILED, UNREACHABLE, Failure

# `sluice quotas plan` alone:
NO_CHANGE: Final = 0
CHANGES: Final = 2
GUARD_RAIL: Final = 3
QUOTA_CONFLICT: Final = 4
INSUFFICIENT: Final = 5


@contextmanager
def spark_part() -> Iterator[None]:
    """For imports of Spark's part. Raises CommandError where it is not installed."""
    try:
        yield
    except ImportError as error:
        raise CommandError(FAILED, f"Spark's part is not installed ({error}): pip install 'sluice-gateway[spark]'") from None


class CommandError(Failure, click.ClickException):
    """A command failed: click ends it with the message on stderr and the exit code."""

    def show(self, file: IO[Any] | None = None) -> None:
        show(self, file)


def passes(error: CommandError) -> bool:
    """Whether who follows a gateway waits for it: it is not reached, or (5xx) it or a proxy before it cannot answer now."""
    return error.code == UNREACHABLE or error.status >= 500


def show(failure: Failure, file: IO[Any] | None = None) -> None:
    """Write it to stderr, or `file`."""
    from cli.output import clean

    details = [f"  {line}" for text in failure.lines for line in text.splitlines()]
    for line in (f"sluice: {failure}", *details):
        click.echo(clean(line), file=file or sys.stderr)
