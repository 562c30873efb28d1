"""What a run has run: brokers and client libraries, in the versions that were started. docs/compatibility.md is written from it.

Whatever starts one says so (`ran`). A run that ends green keeps all of it in LATEST, beside what earlier ones kept there;
`make compatibility` writes it down (support/compatibility.py).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final

LATEST: Final = Path(__file__).parents[2] / "build" / "ran.json"  # name -> version -> the day of its last green run
_ran: set[tuple[str, str]] = set()  # of this process


def ran(name: str, version: str) -> None:
    """`name` as its registry has it: `pika`, `com.rabbitmq:amqp-client`; of a program its own."""
    _ran.add((name, version))


@cache
def version_by(*command: str, read: str = "") -> str:
    """The first three numbers that a program says, `7.0.15`; `read` is its standard input. Raises CalledProcessError."""
    said = subprocess.run(command, input=read, capture_output=True, text=True, check=True).stdout
    return ".".join(re.findall(r"(\d+)[. ](\d+)[. ](\d+)", said)[0])


def of_this_process() -> list[tuple[str, str]]:
    return sorted(_ran)


def keep(started: Iterable[tuple[str, str]]) -> None:
    """Beside what LATEST has, with the date of today."""
    kept = read(LATEST)
    for name, version in started:
        kept.setdefault(name, {})[version] = datetime.now(UTC).date().isoformat()
    LATEST.parent.mkdir(exist_ok=True)
    draft = LATEST.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    draft.rename(LATEST)


def read(path: Path) -> dict[str, dict[str, str]]:
    """Nothing, where there is no such file."""
    found: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}
    return found
