"""The data plane's clock: monotonic nanoseconds. Sans-IO code takes `now` as an argument; whoever calls it reads it here."""

from __future__ import annotations

import time
from typing import Final

monotonic_ns: Final = time.monotonic_ns


def now_ns() -> int:
    """Monotonic nanoseconds."""
    return monotonic_ns()
