"""Files of tests as pytest rewrites them, kept before the processes of a run ask for them.

pytest rewrites the assertions of each file that it imports, and keeps what it has made: 10.6 CPU-s for all 600 (2026-11). The processes of
a run collect all at the same time, so where nothing is kept yet, as in a fresh clone, each of them did it for itself.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from _pytest.assertion import rewrite

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest


def files_of(root: Path) -> list[Path]:
    return [file for pattern in ("test_*.py", "conftest.py") for file in (root / "tests").rglob(pattern)]


def keep_rewritten(files: Iterable[Path], config: pytest.Config) -> int:
    """Keep those that are not kept yet, in as many processes as there are processors; how many that were."""
    if sys.dont_write_bytecode:
        return 0
    left = [file for file in files if rewrite._read_pyc(file, _place(file)) is None]
    processes = []
    for first in range(min(len(left), count := len(os.sched_getaffinity(0)))):
        pid = os.fork()
        if not pid:
            for file in left[first::count]:
                with suppress(Exception):  # what is wrong with it is told when it is collected
                    _keep(file, config)
            os._exit(0)
        processes.append(pid)
    for pid in processes:
        os.waitpid(pid, 0)
    return len(left)


def _place(file: Path) -> Path:
    return rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"


def _keep(file: Path, config: pytest.Config) -> None:
    rewrite.try_makedirs(_place(file).parent)
    source_hash, code = rewrite._rewrite_test(file, config)
    rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, _place(file))
