"""What others cost a message: the processor time that the gateway spends from when the message is sent until its answer is here.

How many seconds that takes says more of who else is on the machine than of the gateway. Its processor time is all that it has done before
that message, or beside it: a loop that is held up by one long step shows there, and a busy neighbour does not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def processor_s(pids: Sequence[int]) -> list[float]:
    """The processor time that each process has had so far, all its threads together."""
    return [
        sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9  # nanoseconds on a processor
        for pid in pids
    ]


def spent(pids: Sequence[int], what: Callable[[], None]) -> float:
    """The processor time in seconds that passes while `what` waits for its answer, of the process that spends most."""
    before = processor_s(pids)
    what()
    return max(after - then for after, then in zip(processor_s(pids), before, strict=True))


def window(pids: Sequence[int], send: Callable[[int], None], count: int, rate: float) -> list[float]:
    """`send` so many times at a steady rate; what each cost."""
    took = []
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        took.append(spent(pids, lambda sent=number: send(sent)))  # type: ignore[misc]
    return took


def percentile(values: Sequence[float], which: int) -> float:
    return statistics.quantiles(values, n=100)[which - 1]


def work() -> float:
    """The processor time in seconds of a fixed piece of work, at best: 95 µs on the machine of the kept windows."""
    took = []
    for _ in range(100):
        began = time.thread_time()
        total = 0
        for number in range(2000):
            total += number * number
        took.append(time.thread_time() - began)
    return min(took)
