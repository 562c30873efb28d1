"""Frames on a terminal: what is drawn is what stands there."""

from __future__ import annotations

import io
import os
import re
import sys

import pytest

from cli.screen import HOME, Screen
from cli.tables import cell_width

COLUMNS = 20
PART = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|.", re.DOTALL)


class Glass(io.StringIO):
    """A terminal of COLUMNS columns that does not wrap: past its edge the cursor stays on the last column, where clearing begins."""

    def fileno(self) -> int:
        return 1

    def rows(self) -> list[str]:
        shown, at = [""], 0
        for part in PART.findall(self.getvalue().removeprefix(HOME)):
            if part == "\n":
                shown.append("")
            elif part == "\r":
                at = 0
            elif part == "\x1b[K":
                shown[-1] = shown[-1][: min(at, COLUMNS - 1)]
            elif not part.startswith("\x1b"):
                shown[-1] += part
                at += cell_width(part)
        return shown


@pytest.mark.parametrize("line", ["short", "x" * (COLUMNS - 1), "x" * (COLUMNS - 1) + "!", "\x1b[7m" + "x" * (COLUMNS - 1) + "!"])
def test_a_line_as_wide_as_the_terminal_keeps_its_last_letter(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    glass = Glass()
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((COLUMNS, 5)))
    with monkeypatch.context() as within:
        within.setattr(sys, "stdout", glass)
        Screen(None).draw([line, "next"])
    assert glass.rows() == [line.removeprefix("\x1b[7m"), "next"]
