"""Files that are not read to their end: a FIFO, a mount that hangs. Which one it is, without a word of whoever reads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

READ_S: Final = 30.0  # seconds; for all files of a start or a reload together, and again for those of tokens, TLS and receivers; a guess
ANY_FILE: Final = "the configuration, its rules, a token file or a certificate"


def hung_file(thread: int | None, waited_s: float) -> str:
    """What to say of a thread that reads files and has not come back: which file, and the way out."""
    return f"{_file_read_by(thread) or ANY_FILE} was not read within {waited_s:g} s: it is a FIFO, or its mount hangs; mend or replace it"


def _file_read_by(thread: int | None) -> str:
    """The paths in the innermost frame of the thread that has any; "" where none has one, or the thread has ended.

    It hangs in a system call, so its frames do not change meanwhile.
    """
    frame = None if thread is None else sys._current_frames().get(thread)
    while frame is not None:
        found = [str(value) for value in frame.f_locals.values() if isinstance(value, Path) and value.name]
        if found:
            return " or ".join(dict.fromkeys(found))
        frame = frame.f_back
    return ""
