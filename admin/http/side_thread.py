"""Work beside the event loop: on a thread, with quick switches, so that the loop gets the interpreter back soon."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from common.quick_switches import quick_switches

T = TypeVar("T")


async def run_in_thread(work: Callable[..., T], *arguments: object) -> T:
    """The result of `work`, called on a thread."""
    with quick_switches():
        return await trio.to_thread.run_sync(lambda: work(*arguments))
