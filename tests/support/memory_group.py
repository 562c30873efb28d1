"""A control group with a limit of memory, for one program: beyond it the kernel kills, as it does a container."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from types import TracebackType

ROOT = Path("/sys/fs/cgroup")


class NoMemoryGroupError(RuntimeError):
    """No control group with a limit can be made here; the message says why."""


class MemoryGroup:
    """A context manager: leaving it removes the group, whose programs must have ended."""

    def __init__(self, limit: int) -> None:
        """Of either version; `limit` in bytes."""
        old = (ROOT / "memory").is_dir()
        self.folder = (ROOT / "memory" if old else ROOT) / f"sluice-test-{os.getpid()}"
        self._limit = ("memory.limit_in_bytes" if old else "memory.max", limit)
        self._kills = ("memory.oom_control", "oom_kill") if old else ("memory.events", "oom_kill")

    def command(self, argv: str) -> str:
        """`argv`, as one line for a shell, so that it runs in the group from its beginning."""
        script = f'echo $$ > {self.folder}/cgroup.procs && exec {argv} "$@"'
        return f"sh -c {shlex.quote(script)} sluice"

    def kills(self) -> int:
        """How many processes the kernel has killed for want of memory."""
        file, name = self._kills
        fields = dict(line.split() for line in (self.folder / file).read_text().splitlines())
        return int(fields[name])

    def __enter__(self) -> MemoryGroup:
        file, limit = self._limit
        try:
            self.folder.mkdir()
            (self.folder / file).write_text(str(limit))
        except OSError as error:
            raise NoMemoryGroupError(f"{self.folder}: {error.strerror}") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.folder.rmdir()
