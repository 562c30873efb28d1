"""Several processes' metrics as one exposition: what they count is added up, what they measure is told apart.

* A counter or a histogram is the sum over all workers, those that have ended included: what they had counted when they were asked last goes
  on counting, so that no counter ever falls when a worker is replaced.
* Some gauges are sums (`SUMS`), or the same in all processes (`SAME`: the parent's own lines say them).
* Every other gauge gets a label `worker`, because a sum of it would mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

SUMS: Final = frozenset({
    "sluice_connections_active", "sluice_messages_waiting", "sluice_broker_blocked_connections", "process_resident_memory_bytes",
    "sluice_buffer_bytes", "sluice_memory_stopped_connections", "sluice_limiter_queued_requests",
    "sluice_cap_rate", "sluice_limit_in_flight",
})  # fmt: skip
SAME: Final = frozenset({
    "sluice_config_last_reload_successful", "sluice_config_last_reload_timestamp_seconds", "sluice_config_version", "sluice_limit_rate",
})  # fmt: skip
COUNTERS: Final = ("counter", "histogram")

Series = dict[str, float]  # by name and labels as they stand in the text


class Family:
    """One metric of one process, or of several."""

    __slots__ = ("head", "kind", "series")

    def __init__(self, head: str, kind: str) -> None:
        self.head = head  # its HELP and TYPE lines
        self.kind = kind
        self.series: Series = {}

    def __repr__(self) -> str:
        return f"<Family {self.kind} of {len(self.series)} series>"


def parse(text: str) -> dict[str, Family]:
    """The families in an exposition that this program has written, by name."""
    found: dict[str, Family] = {}
    head = ""
    family = Family("", "")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            head = line + "\n"
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            family = found.setdefault(name, Family(head + line + "\n", kind))
        elif line:
            series, _, number = line.rpartition(" ")
            family.series[series] = float(number)
    return found


def add(totals: dict[str, Family], one: dict[str, Family], worker: str | None) -> None:
    """Add one process's families to `totals`; of a worker that has ended (None) its counters alone."""
    for name, family in one.items():
        if name in SAME or (worker is None and family.kind not in COUNTERS):
            continue
        total = totals.setdefault(name, Family(family.head, family.kind))
        summed = family.kind in COUNTERS or name in SUMS
        for series, number in family.series.items():
            place = series if summed else labelled(series, worker or "")
            total.series[place] = total.series.get(place, 0.0) + number


def labelled(series: str, worker: str) -> str:
    label = f'worker="{worker}"'
    return f"{series[:-1]},{label}}}" if series.endswith("}") else f"{series}{{{label}}}"


def lines(totals: dict[str, Family]) -> Iterator[str]:
    for family in totals.values():
        yield family.head
        for series, number in family.series.items():
            yield f"{series} {int(number) if number == int(number) else repr(number)}\n"


def merged(living: Iterable[tuple[str, dict[str, Family]]], ended: dict[str, Family]) -> dict[str, Family]:
    """All workers' families as one: (worker, its families), and what those that have ended had counted."""
    totals: dict[str, Family] = {}
    for worker, families in living:
        add(totals, families, worker)
    add(totals, ended, None)
    return totals
