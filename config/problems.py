"""Faults of a configuration, reported as a compiler does: location, path, fault, and the way out.

A problem always names a location: a file with line and column, an environment variable, or a flag. Quotes from a file are masked where
they look like a secret, because messages end in logs and tickets.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from common.masking import mask_secrets
from common.records import dataclass

MAX_QUOTE_CHARS: Final = 60  # characters; a quoted value; what still reads well (guess)
LINE_END: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # what YAML 1.1 counts as a line, so that numbers agree with the parser's
MAX_LINE_CHARS: Final = 120  # characters; the part of a source line around the column; what fits a terminal (guess)


def quote_text(text: str) -> str:
    """`text` in double quotes, on one line, control characters escaped, cut to a readable length, secrets masked."""
    text = mask_secrets(text)
    if len(text) > MAX_QUOTE_CHARS:
        text = text[: MAX_QUOTE_CHARS - 1] + "…"
    escaped = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in escaped)


NEARLY_THE_SAME: Final = 0.9  # of `suggestion`: one letter of ten


def suggestion(word: str, known: Iterable[str], alike: float = 0.6) -> str | None:
    """The known word that is most like `word`, if one is so much `alike` (1.0: the same)."""
    close = difflib.get_close_matches(word.lower().replace("-", "_"), list(known), n=1, cutoff=alike)
    return close[0] if close else None


def join_choices(words: Iterable[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


class SourceLocation(NamedTuple):
    """Where a value was written: a file (line and column from 1), or `environment NAME`, `flag --name` (line 0)."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


NOWHERE: Final = SourceLocation("default")


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One fault. `path` is where in the structure (`listeners[0].bind`), `source` the line it stands on (may be empty)."""

    file: str
    line: int
    column: int
    path: str
    message: str
    remedy: str
    source: str = ""

    @property
    def location(self) -> SourceLocation:
        return SourceLocation(self.file, self.line, self.column)

    @property
    def headline(self) -> str:
        """`file:line:column: path: message; remedy`, on one line."""
        parts = [str(self.location), self.path, self.message] if self.path else [str(self.location), self.message]
        return ": ".join(parts) + (f"; {self.remedy}" if self.remedy else "")

    def __str__(self) -> str:
        if not self.source:
            return self.headline
        start = max(0, self.column - 1 - MAX_LINE_CHARS // 2) if len(self.source) > MAX_LINE_CHARS else 0
        shown = "".join(char if char.isprintable() else "·" for char in mask_secrets(self.source)[start : start + MAX_LINE_CHARS])
        number = f"{self.line:5} | "
        return f"{self.headline}\n{number}{shown}\n{' ' * (len(number) - 2)}| {' ' * (self.column - 1 - start)}^"


class ConfigError(Exception):
    """A configuration that cannot be used. `errors` are all its faults, in the order of the files."""

    def __init__(self, errors: Iterable[ConfigProblem]) -> None:
        self.errors: list[ConfigProblem] = list(errors)
        super().__init__("\n".join(str(problem) for problem in self.errors))


class Problems:
    """Collects the faults of one load, and keeps the text of the files to show their lines."""

    def __init__(self) -> None:
        self.found: list[ConfigProblem] = []
        self._texts: dict[str, str] = {}
        self._lines: dict[str, list[str]] = {}  # of texts that had problems, while one load goes on
        self._silent: set[SourceLocation] = set()

    def read(self, file: str, text: str) -> None:
        """Remember the text of `file`."""
        self._texts[file] = text
        self._lines.pop(file, None)

    def make_problem(self, location: SourceLocation, path: str, message: str, remedy: str) -> ConfigProblem:
        """A problem with its source line; not added to those found."""
        lines = self._lines.get(location.file)
        if lines is None:
            lines = self._lines[location.file] = LINE_END.split(self._texts.get(location.file, ""))
        source = lines[location.line - 1] if 0 < location.line <= len(lines) else ""
        return ConfigProblem(location.file, location.line, location.column, path, message, remedy, source)

    def silence(self, location: SourceLocation) -> None:
        """Report nothing more about the value at `location`: its fault is reported, and its meaning unknown."""
        self._silent.add(location)

    def is_silenced(self, location: SourceLocation) -> bool:
        return location in self._silent

    def add(self, location: SourceLocation, path: str, message: str, remedy: str) -> None:
        if self.is_silenced(location):
            return
        self.found.append(self.make_problem(location, path, message, remedy))

    def check(self) -> None:
        """Raise ConfigError with all that was found, in order of appearance; return when there was nothing."""
        self._lines = {}
        if self.found:
            order = {file: number for number, file in enumerate(self._texts)}
            raise ConfigError(sorted(self.found, key=lambda each: (order.get(each.file, -1), each.line, each.column)))

    def __repr__(self) -> str:
        return f"<Problems {len(self.found)} in {len(self._texts)} files>"
