"""Work beside the event loop: on a thread, with quick switches, so that the loop gets the interpreter back soon.

Each time the loop gives the interpreter up for a system call, it gets it back only when the other thread lets go, by default after 5 ms
(`gateway/lifecycle/reload.py` has the measurement). While any work is under way here, that time is SWITCH_S.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, TypeVar

import trio

T = TypeVar("T")

SWITCH_S: Final = 0.0001  # seconds; as for a reload
NORMAL_S: Final = sys.getswitchinterval()
_under_way: Final[list[None]] = []  # one for each


async def beside(work: Callable[..., T], *arguments: object) -> T:
    """The result of `work`, called on a thread."""
    _under_way.append(None)
    sys.setswitchinterval(SWITCH_S)
    try:
        return await trio.to_thread.run_sync(lambda: work(*arguments))
    finally:
        _under_way.pop()
        if not _under_way:
            sys.setswitchinterval(NORMAL_S)
