"""What a run has lost against the newest kept one: `make bench-quick` fails with it, so that nothing that was won goes unseen.

Compared is what sluice costs as a multiple of HAProxy's processor time in the same round, since machines differ from day to day and both
with them; and its resident memory without load. A loss is more than LOSS. Of a work half of the rounds must show it: it is a median. The
start is not compared: it is a timing by itself, and `tests/cli/test_start.py` counts what it imports. What only one run has measured is not
compared, and on another kind of processor nothing is.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kept import files
from records import Bench, Run, loaded

LOSS: Final = 1.15


def newest_kept() -> Path | None:
    """Of `make bench`; None: git has none."""
    return max((path for path in files() if path.stem[0].isdigit()), default=None)


def cost(bench: Bench, work: str) -> float | None:
    """Median over the rounds of sluice's processor time a message, as a multiple of HAProxy's; None: not measured."""
    rounds: list[tuple[Run, Run]] = list(zip(bench.runs(work, "sluice"), bench.runs(work, "haproxy"), strict=False))
    found = [ours.cpu_us / theirs.cpu_us for ours, theirs in rounds if ours.cpu_us and theirs.cpu_us]
    return statistics.median(found) if found else None


def compared(now: Bench, before: Bench) -> Iterator[tuple[str, float, float]]:
    """Name, value now and value before of all that both have."""
    for work in now.works:
        pair = (cost(now, work.name), cost(before, work.name))
        if pair[0] is not None and pair[1] is not None:
            yield f"{work.name}: processor time, times HAProxy's", pair[0], pair[1]
    if "sluice" in now.proxies and "sluice" in before.proxies:
        yield "memory without load, MiB", now.proxies["sluice"].base_mib, before.proxies["sluice"].base_mib


def losses(now: Bench, before: Bench) -> list[str]:
    """A line for each."""
    return [
        f"{name}: {value:.2f}, was {was:.2f} ({100 * (value / was - 1):+.0f} %)"
        for name, value, was in compared(now, before)
        if value > LOSS * was
    ]


def verdict(now: Bench, kept: Path | None) -> tuple[bool, str]:
    """Whether nothing is lost, and words for it."""
    if kept is None:
        return True, "nothing is kept to compare with"
    before = loaded(kept)
    if (now.machine.cpu, now.machine.processors) != (before.machine.cpu, before.machine.processors):
        return True, f"not compared with {kept.name}: that was another machine, {before.machine.processors} of {before.machine.cpu}"
    lost = losses(now, before)
    if not lost:
        return True, f"nothing of {len(list(compared(now, before)))} numbers is lost against {kept.name}"
    return False, "\n".join([f"lost against {kept.name}, more than {100 * (LOSS - 1):.0f} %:", *(f"  {line}" for line in lost)])
