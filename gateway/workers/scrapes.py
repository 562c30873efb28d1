"""Several processes' metrics as one exposition: what they count is added up, what they measure is told apart.

The table of metrics (`gateway/telemetry/metrics.py`) says for each what becomes of the workers' values:

* SUM: they are added up. For a counter or a histogram, ended workers are included with what they had counted at their last report, so
  that no counter falls when a worker is replaced.
* SAME: they are left out, and the parent's own lines have them once.
* EACH: every series gets the label `worker`, because a sum would mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.telemetry.metrics import GAUGE, METRICS, SAME, SUM

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
        workers = METRICS[name].workers
        if workers == SAME or (worker is None and family.kind == GAUGE):
            continue
        total = totals.setdefault(name, Family(family.head, family.kind))
        for series, number in family.series.items():
            labels = series if workers == SUM else labelled(series, worker or "")
            total.series[labels] = total.series.get(labels, 0.0) + number


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
