"""Busy signals: the answers by which a RocketMQ broker shows that it is overloaded (`docs/design/rocketmq.md` 5).

They are counted and shown per listener, never altered: a client of 5.3.0 or later takes code 2 for "try another broker", and would take
the gateway's own 215 for "give up".
"""

from __future__ import annotations

import re
from typing import Final

from gateway.pipeline.reports import BusySignal

SYSTEM_BUSY: Final = 2
SERVICE_NOT_AVAILABLE: Final = 14
COLD_DATA: Final = "cold_data"
PREFIXES: Final[tuple[tuple[str, str], ...]] = (
    ("[TIMEOUT_CLEAN_QUEUE]", "timeout_clean_queue"),  # waited too long for a thread; the first in the queue is hit
    ("[PCBUSY_CLEAN_QUEUE]", "pcbusy_clean_queue"),  # the page cache is busy: the whole queue is answered so
    ("[REJECTREQUEST]", "rejectrequest"),
    ("[OVERLOAD]", "overload"),  # the queue is full
    ("[PC_SYNCHRONIZED]", "pc_synchronized"),
    ("This consumer group is reading cold data", COLD_DATA),
)
OTHER: Final = "system_busy"
UNAVAILABLE: Final = "service_not_available"
REASONS: Final[tuple[str, ...]] = (*(reason for _, reason in PREFIXES), OTHER, UNAVAILABLE)
PERIOD: Final = re.compile(r"period in queue: (\d{1,9})ms, size of queue: (\d{1,9})")


def busy_signal(code: int, remark: str) -> BusySignal | None:
    """What the answer `code` with `remark` says of the broker's load; None: nothing."""
    if code == SERVICE_NOT_AVAILABLE:
        return BusySignal(UNAVAILABLE, -1, -1)
    if code != SYSTEM_BUSY:
        return None
    reason = OTHER
    for prefix, name in PREFIXES:
        if remark.startswith(prefix):
            reason = name
            break
    period = PERIOD.search(remark)
    if period is None:
        return BusySignal(reason, -1, -1)
    return BusySignal(reason, int(period[1]), int(period[2]))
