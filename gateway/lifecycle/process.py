"""What a process does about itself at its start: descriptors, the garbage collector."""

from __future__ import annotations

import gc
import resource
from typing import Final

# Defaults paused 195 ms at 4,000 connections (docs/design/reliability.md 1.2). A collection of the young takes 0.5 µs for each: of 50,000
# it was what a client felt most, 25 ms, once a minute (2026-11). The second number keeps the next ones as rare: after 2,500,000 more that
# have stayed.
GC_THRESHOLDS: Final = (5_000, 500, 1000)


def raise_descriptor_limit() -> None:
    """Use what the system allows: a proxied connection takes two descriptors, and the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def freeze_heap() -> None:
    """What there is at the start stays until the end: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
