"""What others cost a message: the processor time that the gateway spends from when the message is sent until its answer is here.

How many seconds that takes says more of who else is on the machine than of the gateway. Its processor time is all that it has done before
that message, or beside it: a loop that is held up by one long step shows there, and a busy neighbour does not.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

# perf_event_open(2): a counter of the kernel's own, in nanoseconds
SYSTEM_CALL: Final = {"x86_64": 298, "aarch64": 241}
ATTRIBUTES: Final = struct.Struct("<II4QQ").pack(1, 64, 1, 0, 0, 0, 1 << 1 | 1 << 5).ljust(64, b"\0")
# type software, their size, the task's clock; flags: with the threads that start later, without the kernel's events (which need a right)


def schedstat_s(pid: int) -> float:
    """What the scheduler has charged to all threads so far. A thread that runs is charged at its next tick: up to 4 ms later, or 10."""
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


class ProcessorClock:
    """The processor time of one process, all its threads together: from the kernel's task clock to the nanosecond, where it may be read."""

    def __init__(self, pid: int, stack: ExitStack) -> None:
        """What is opened closes with `stack`."""
        self.pid = pid
        self._threads: list[int] = []
        call = SYSTEM_CALL.get(os.uname().machine)
        if call is None:
            return
        libc = ctypes.CDLL(None, use_errno=True)
        for thread in Path(f"/proc/{pid}/task").iterdir():
            opened = libc.syscall(call, ATTRIBUTES, int(thread.name), -1, -1, 0)
            if opened < 0:  # no right to it: kernel.perf_event_paranoid is above 2, or a container forbids it
                self._threads.clear()
                return
            stack.callback(os.close, opened)
            self._threads.append(opened)

    @property
    def is_exact(self) -> bool:
        return bool(self._threads)

    def seconds(self) -> float:
        """Since some moment: only differences mean anything."""
        if not self._threads:
            return schedstat_s(self.pid)
        return sum(int.from_bytes(os.read(each, 8), "little") for each in self._threads) / 1e9


def coarseness_s(pid: int) -> float:
    """How far one reading of a process that runs may be off: nothing, or the longest step in which its time is charged."""
    with ExitStack() as stack:
        if ProcessorClock(pid, stack).is_exact:
            return 0.0
    steps: list[float] = []
    last = schedstat_s(os.getpid())
    while len(steps) < 10:
        now = schedstat_s(os.getpid())
        if now != last:
            steps.append(now - last)
            last = now
    return max(steps)


def window(pids: Sequence[int], send: Callable[[int], None], count: int, rate: float) -> list[float]:
    """`send` so many times at a steady rate, and wait for each answer; what each cost in seconds, of the process that spent most."""
    took = []
    with ExitStack() as stack:
        clocks = [ProcessorClock(pid, stack) for pid in pids]
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            before = [clock.seconds() for clock in clocks]
            send(number)
            took.append(max(clock.seconds() - then for clock, then in zip(clocks, before, strict=True)))
    return took


def percentile(values: Sequence[float], which: int) -> float:
    return statistics.quantiles(values, n=100)[which - 1]


def work() -> float:
    """The processor time in seconds of a fixed piece of work, at best: 65 to 95 µs on the machines that this was seen on."""
    took = []
    for _ in range(100):
        began = time.thread_time()
        total = 0
        for number in range(2000):
            total += number * number
        took.append(time.thread_time() - began)
    return min(took)
