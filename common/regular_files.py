"""Reading a whole file whose end is sure: a regular one, of no more than so many bytes.

A FIFO would hang whoever opens it, a device may have no end. A mount that hangs holds up the thread that reads, so it is never the loop's.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

MAX_SECRET_BYTES: Final = 65_536  # bytes; of a file with a password, a token, a URL or headers; a guess
MIN_SECRET_BYTES: Final = 16  # of one that only secrecy protects; a shorter one can be guessed


def read_regular(file: Path, most: int) -> bytes:
    """At most `most` bytes and one more, by which a larger file is known. Raises OSError, of what is no regular file, too."""
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
        mode = os.fstat(opened.fileno()).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return opened.read(most + 1)


def read_secret(file: Path, errors: str = "strict") -> str:
    """What a small file of text holds. Raises OSError, and ValueError where it is no UTF-8 (`errors`: as `bytes.decode` has it)."""
    found = read_regular(file, MAX_SECRET_BYTES)
    if len(found) > MAX_SECRET_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_SECRET_BYTES >> 10} KiB")
    return found.decode(errors=errors)
