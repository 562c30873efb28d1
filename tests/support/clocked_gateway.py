"""`sluice` in a process whose hours a test makes pass: `python clocked_gateway.py FILE run ...`; FILE holds seconds that have passed more.

Only the intraday raise sees them (`control_plane.hourly_raises`): buckets, deadlines and the access log go by the real clocks.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

from cli.main import main
from control_plane import control_plane
from control_plane.hourly_raises import HourlyRaises
from gateway.clock import now_ns


def run(passed: Path, arguments: list[str]) -> None:
    def seconds() -> int:
        return int(passed.read_text())

    clocked = partial(HourlyRaises, wall_clock=lambda: time.time() + seconds(), clock=lambda: now_ns() + seconds() * 1_000_000_000)
    control_plane.HourlyRaises = clocked  # type: ignore[attr-defined,assignment]
    sys.argv = ["sluice", *arguments]
    sys.exit(main())


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
