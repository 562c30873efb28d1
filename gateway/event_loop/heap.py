"""The C library's heap: what is free in it goes back to the kernel, and no thread has one of its own.

Left to itself glibc gives each thread its own heap, and takes from the middle of one whatever is smaller than the largest block that was
ever given back, up to 32 MiB. A gateway under mixed load had 28 MiB free in twelve heaps beside 49 that were used, and what was resident
moved up and down by 18 within the hour, so that nobody could tell it from a leak. So set, 2.4 MiB are free while the machine has time
(`make soak`, 2026-11-30); what storms leave free in the middle goes back by `give_back_heap` (`memory_limit.py`).
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import Final

# mallopt(3). One heap for all threads: they run in turn, as Python's lock wants it, and small objects are pymalloc's in any case. A block
# of a mebibyte, four reads, is a mapping of its own, which goes back when it is free. What is free at the heap's end stays up to 4 MiB:
# reads come and go there, and new pages cost 0.25 µs each.
PARAMETERS: Final = {-8: 1, -3: 1 << 20, -1: 4 << 20}  # M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD


def bound_free_heap() -> None:
    """Call it before there are threads. Where the environment says how the heap is to be (GLIBC_TUNABLES, MALLOC_…) that holds."""
    if "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "") or any(name.startswith("MALLOC_") for name in os.environ):
        return
    with suppress(OSError, AttributeError):  # other C libraries have no such parameters
        set_parameter = ctypes.CDLL(None).mallopt
        for parameter, value in PARAMETERS.items():
            set_parameter(parameter, value)


def give_back_heap() -> None:
    """Let glibc give free memory back to the kernel; other C libraries do so by themselves, or never."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
