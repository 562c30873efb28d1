"""Exit codes (`docs/design/contract.md` 2), and the error that carries one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import IO, Any, Final

import click

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INVALID: Final = 3  # configuration
UNREACHABLE: Final = 4
NOT_AUTHORISED: Final = 5
CONFLICT: Final = 6
NOT_FOUND: Final = 7
POLICY: Final = 8
INTERRUPTED: Final = 130

# `sluice quotas plan` alone:
NO_CHANGE: Final = 0
CHANGES: Final = 2
GUARD_RAIL: Final = 3
QUOTA_CONFLICT: Final = 4
INSUFFICIENT: Final = 5


class CommandError(click.ClickException):
    """A command failed: the message for stderr, and the exit code. `lines` are details; `status` and `content` are the answer's, if any."""

    def __init__(self, code: int, message: str, lines: Sequence[str] = (), status: int = 0, content: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.content = content
        self.lines = list(lines)

    def show(self, file: IO[Any] | None = None) -> None:
        from cli.output import clean

        stream = file or sys.stderr
        details = [f"  {line}" for text in self.lines for line in text.splitlines()]
        for line in (f"sluice: {self.message}", *details):
            click.echo(clean(line), file=stream)
