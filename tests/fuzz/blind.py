"""Fuzzing without looking: a child process runs mutations of what is known on the installed build, and this one watches over it.

A compiled module can end the whole process, without an exception: so the child writes each input, before it runs it, to memory that both
processes have. When it is gone, hangs, or grows too large, the input is there to be kept.

Started as a program this is the child: `python tests/fuzz/blind.py JOB`.
"""

from __future__ import annotations

import faulthandler
import hashlib
import importlib
import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
HEAD = struct.Struct("=QI")  # how many inputs were begun, and the size of the one that runs
ROOM = 65536  # bytes of the memory that both have
LOOK_S = 0.2
SPAN = 64  # inputs between two looks at the clock
ENDED = 77  # how the child ends when a target raised


class Job(NamedTuple):
    """What a child is to do. `slowest`: seconds for one input; `memory`: MiB; `module` has TARGETS."""

    name: str
    seconds: int
    found: Path
    crashes: Path
    seed: int
    slowest: float
    memory: int
    module: str = "fuzz.targets"
    build: str = "compiled"

    def words(self) -> str:
        return json.dumps([str(each) if isinstance(each, Path) else each for each in self])


def run(job: Job) -> tuple[int, str]:
    """How many inputs were run, and what was wrong; "": nothing. The input that ended the child is kept in `job.crashes`."""
    with (
        tempfile.TemporaryDirectory(prefix="sluice-fuzz-", dir=in_memory()) as folder,
        tempfile.NamedTemporaryFile() as file,
        tempfile.TemporaryFile() as told,
    ):
        file.truncate(ROOM)
        with mmap.mmap(file.fileno(), ROOM) as shared:
            child = subprocess.Popen(
                [sys.executable, str(HERE / "blind.py"), job.words(), file.name],
                stdout=told,
                stderr=told,
                env={**os.environ, "TMPDIR": folder},
            )
            fault = watched(child, shared, job)
            executions, size = HEAD.unpack_from(shared)
            data = shared[HEAD.size : HEAD.size + size]
        told.seek(0)
        words = told.read().decode(errors="replace")[-6000:]
    if not fault:
        return executions, ""
    if not executions:
        return 0, f"{fault}, before the first input\n{words}"
    kept = job.crashes / job.name / f"crash-{hashlib.sha1(data, usedforsecurity=False).hexdigest()}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(data)
    return executions, f"{fault}; the input is {kept}\n{words}"


def in_memory() -> str | None:
    """The folder for what lives briefly: the one that was named, or in memory where the machine has that; None: the usual one."""
    return os.environ.get("TMPDIR") or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def watched(child: subprocess.Popen[bytes], shared: mmap.mmap, job: Job) -> str:
    """Wait for the child's end; what was wrong with it, or ""."""
    before, since = -1, 0.0
    while child.poll() is None:
        time.sleep(LOOK_S)
        begun = HEAD.unpack_from(shared)[0]
        now = time.monotonic() - starved_s(child.pid)
        if begun != before:
            before, since = begun, now
        allowed = job.slowest if begun else max(60.0, job.slowest)  # imports come first
        if now - since > allowed:
            child.send_signal(signal.SIGABRT)  # faulthandler says where it is
            child.wait()
            return f"an input took longer than {job.slowest:g} s"
        if resident(child.pid) > job.memory:
            child.kill()
            child.wait()
            return f"the process grew above {job.memory} MiB"
    if child.returncode == 0:
        return ""
    if child.returncode == ENDED:
        return "an input broke a promise"
    if child.returncode < 0:
        return f"the process ended with {signal.Signals(-child.returncode).name}"
    return f"the process ended with {child.returncode}"


def starved_s(pid: int) -> float:
    """Seconds for which a process would have run and others did; it is no fault of an input that the machine is busy. 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def resident(pid: int) -> int:
    """MiB of memory that a process has; 0 when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * mmap.PAGESIZE >> 20


# ---- the child ---------------------------------------------------------------------------------------------------------


def drive(job: Job, file: str) -> int:
    """Run inputs until the time is over; the status of the process."""
    from fuzz.inputs import known, mutations

    targets = importlib.import_module(job.module).TARGETS
    if job.build:
        from support.builds import build_of

        build, origin = build_of("limiter.keys")
        if build != job.build:
            print(f"limiter.keys is {build} ({origin}), and the {job.build} build is to be fuzzed: make install")
            return 4
    target = targets[job.name]
    pool = known(job.name, job.found / job.name, job.crashes / job.name) or [b""]
    inputs = mutations(job.name, pool, job.seed)
    with Path(file).open("r+b") as opened, mmap.mmap(opened.fileno(), ROOM) as shared:
        end = time.monotonic() + job.seconds
        count = 0
        while time.monotonic() < end:
            for _ in range(SPAN):
                data = next(inputs)
                count += 1
                shared[HEAD.size : HEAD.size + len(data)] = data
                HEAD.pack_into(shared, 0, count, len(data))
                try:
                    target(data)
                except BaseException:
                    traceback.print_exc()
                    return ENDED
    return 0


def main() -> int:
    faulthandler.enable()
    sys.path[:] = [str(HERE.parent), *(entry for entry in sys.path if entry not in ("", str(HERE)))]
    name, seconds, found, crashes, *rest = json.loads(sys.argv[1])
    return drive(Job(name, seconds, Path(found), Path(crashes), *rest), sys.argv[2])


if __name__ == "__main__":
    sys.exit(main())
