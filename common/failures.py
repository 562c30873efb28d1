"""A failure that a person can mend: what went wrong, with its way out, and the exit code of a command that ends with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

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


class Failure(Exception):  # noqa: N818  -- what a program reports; an error of the program is another thing
    """`lines` are details; `status` and `content` are those of an answer by HTTP, if any."""

    def __init__(self, code: int, message: str, lines: Sequence[str] = (), status: int = 0, content: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.content = content
        self.lines = list(lines)
