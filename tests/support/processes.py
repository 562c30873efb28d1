"""Processes that tests start: begun in their own session, told to end when their parent dies, stopped by process id with a deadline."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LOOPBACK = "127.0.0.1"
HANG_S = 300.0  # seconds; a wait ends no sooner: how busy the machine is decides how long things take, and is not what is tested
LAZY_S = 0.2  # seconds between looks, at most: each takes the processor from what is waited for
LOOK_S = 0.5  # seconds; of one look at a condition, on a machine that is not busy
CPUCLOCK_SCHED = 2  # <linux/posix-timers.h>: the time the scheduler has accounted, in nanoseconds, of all threads, ended ones included


# Below the range the kernel takes for outgoing connections, above what browsers refuse (10080), below `free_broker_port`'s.
PORTS = range(11_000, 20_000)
BLOCK = 100  # ports that a process of tests has for itself as long as it lives
_own: list[socket.socket] = []  # one per block: its name, which only one process can have, is in the network namespace, as ports are
_left: list[int] = []  # of the blocks: not given to anybody yet


def _take_block() -> None:
    """Adds a block of ports that no other process of tests has to `_left`. RuntimeError: others have them all."""
    for first in PORTS[::BLOCK]:
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0sluice-test-ports-{first}")
        except OSError:  # another process has it
            name.close()
            continue
        _own.append(name)
        _left.extend(range(first, first + BLOCK))
        return
    raise RuntimeError(f"no free port from {PORTS.start} to {PORTS.stop} for a test: end other runs of the tests")


def free_ports(count: int) -> list[int]:
    """`count` different ports nobody listens on, on any address, and none that this or another process of tests was given before."""
    ports: list[int] = []
    while len(ports) < count:
        if not _left:
            _take_block()
        if is_free("0.0.0.0", port := _left.pop(0)):
            ports.append(port)
    return ports


def is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True


def accepts(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def tree(pid: int) -> list[int]:
    """`pid` and all its descendants, parents first, as /proc shows them now."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            # The command's name may hold spaces and parentheses: what follows the last ")" is "state ppid ...".
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for known in found:
        found.extend(children.get(known, []))
    return found


def resident_bytes(pid: int) -> int:
    """Resident set size (VmRSS) of one process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def processor_seconds(pid: int) -> float:
    """Of one process since its start, to the nanosecond. /proc/PID/stat has ticks of 10 ms, too coarse for a second of light load."""
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)


def wait_until(condition: Callable[[], bool], *, within: float, what: str, every: float = 0.05, at_least: float = HANG_S) -> float:
    """Ask `condition` until it is true, at first each `every` seconds, later less often; returns the seconds that took.

    Raises TimeoutError naming `what` where it hangs: after `within` seconds, which are enough on a quiet machine, and after `at_least`.
    """
    started = time.monotonic()
    patience = max(within, at_least)
    while not condition():
        waited = time.monotonic() - started
        if waited > patience:
            raise TimeoutError(f"{what}: not within {patience:g} s")
        time.sleep(max(every, min(LAZY_S, waited / 20)))
    return time.monotonic() - started


def seconds_until(condition: Callable[[], bool], *, what: str) -> float:
    """As `wait_until`, where a page promises seconds. Of a look that takes longer LOOK_S count: the machine is busy then."""
    found = 0.0
    looked = time.monotonic()

    def look() -> bool:
        nonlocal found, looked
        done = condition()
        now = time.monotonic()
        found += min(now - looked, LOOK_S)
        looked = now
        return done

    wait_until(look, within=HANG_S, what=what)
    return found


class Process:
    """One program with its descendants; its output goes to a file.

    A context manager: leaving it stops the whole tree. `setpriv --pdeathsig` makes the kernel end it when the test run is killed.
    """

    def __init__(
        self,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.argv = [str(word) for word in argv]
        self.log = log
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
        with log.open("ab") as output:
            self.popen = subprocess.Popen(
                [*prefix, *self.argv], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, cwd=cwd,
                start_new_session=True, pass_fds=pass_fds,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.popen.pid

    def alive(self) -> bool:
        return self.popen.poll() is None

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_until(self, condition: Callable[[], bool], *, within: float, what: str) -> float:
        """As `wait_until`; a process that ends meanwhile is an error that carries the end of its output."""

        def ready() -> bool:
            if not self.alive():
                raise ChildProcessError(f"{what}: {self.argv[0]} ended with {self.popen.returncode}\n{self.output()[-4000:]}")
            return condition()

        try:
            return wait_until(ready, within=within, what=what)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.output()[-4000:]}") from None

    def signal_tree(self, number: signal.Signals) -> None:
        """Send a signal to the process and all its descendants."""
        for pid in tree(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self, *, grace: float = 10.0, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask the process to end; after `grace` seconds kill what is left of its tree. Returns the exit code (negative: the signal)."""
        family = tree(self.pid)
        if self.alive():
            self.popen.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(grace)
        for pid in family:
            if pid != self.pid or self.alive():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return self.popen.wait(HANG_S)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "alive" if self.alive() else f"ended {self.popen.returncode}"
        return f"<Process {state} pid={self.pid} {self.argv[0]}>"
