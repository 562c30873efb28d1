"""Several processes' metrics as one exposition: what they count is added up, what they measure is told apart.

The table of metrics (`gateway/telemetry/metrics.py`) says for each what becomes of the workers' values:

* SUM: they are added up. For a counter or a histogram, ended workers are included with what they had counted at their last report, so
  that no counter falls when a worker is replaced.
* SAME: they are left out, and the parent's own lines have them once.
* ONE: the last value stands. The label that comes last (`origin`) does not tell series apart.
* EACH: every series gets the label `worker`, because a sum would mean nothing.

Counters by names that clients choose are added up elsewhere, as they grow: `named_series.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from gateway.counting.accounts import OTHER
from gateway.telemetry.metrics import EACH, GAUGE, METRICS, ONE, SAME

BY_RULE: Final = "sluice_rule_messages_total"
OF_CAPS: Final = "sluice_cap_tightened_total"
RULE_LABEL: Final = re.compile(r'rule="(?P<rule>(?:[^"\\]|\\.)*)"')

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


Families = dict[str, Family]  # by name


class NamedSeries(Protocol):
    """Counters by names that clients choose: `control_plane.workers.named_series.NamedSeries`."""

    def covers(self, name: str) -> bool: ...

    def report(self, worker: str, families: Families, now: int) -> None: ...

    def gather(self, totals: Families, now: int) -> None: ...


def parse(text: str) -> dict[str, Family]:
    """The families in an exposition that this program has written, by name."""
    found: dict[str, Family] = {}
    head = ""
    family = Family("", "")
    for line in text.split("\n"):  # names have other ends of lines as they are
        if line.startswith("# HELP "):
            head = line + "\n"
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            family = found.setdefault(name, Family(head + line + "\n", kind))
        elif line:
            series, _, number = line.rpartition(" ")
            family.series[series] = float(number)
    return found


def add(totals: Families, one: Families, worker: str | None, named: Sequence[NamedSeries] = ()) -> None:
    """Add one process's families to `totals`; of a worker that has ended (None) its counters alone. Not the counters that `named` have."""
    for name, family in one.items():
        workers = METRICS[name].workers
        if workers == SAME or (worker is None and family.kind == GAUGE):
            continue
        if family.kind != GAUGE and any(each.covers(name) for each in named):
            continue
        total = totals.setdefault(name, Family(family.head, family.kind))
        if workers == ONE:
            replace_ones(total.series, family.series)
            continue
        for series, number in family.series.items():
            labels = add_label(series, worker or "") if workers == EACH else series
            total.series[labels] = total.series.get(labels, 0.0) + number


def replace_ones(series: Series, newer: Series) -> None:
    """Put `newer` in the place of what is the same but for its last label."""
    known = {name.rpartition(",")[0]: name for name in series}
    for name, number in newer.items():
        series.pop(known.get(name.rpartition(",")[0], ""), None)
        series[name] = number


def forget_gone_rules(ended: dict[str, Family], living: Iterable[dict[str, Family]]) -> None:
    """Move what ended workers counted for rules that no living one shows to `__other__`; of their caps it is dropped, as in one process.

    The living show every rule in force, and the last ones that are gone. Without this the series of ended workers would grow with each rule
    that is added and removed.
    """
    shown = {rule_of(series) for each in living if BY_RULE in each for series in each[BY_RULE].series}
    if not shown:
        return  # the workers that are being started show none yet
    caps = ended.get(OF_CAPS)
    if caps is not None:
        caps.series = {series: number for series, number in caps.series.items() if rule_of(series) in shown}
    family = ended.get(BY_RULE)
    if family is None:
        return
    kept: Series = {}
    for series, number in family.series.items():
        rule = rule_of(series)
        name = series if rule in shown else series.replace(f'rule="{rule}"', f'rule="{OTHER}"', 1)
        kept[name] = kept.get(name, 0.0) + number
    family.series = kept


def rule_of(series: str) -> str:
    """The label `rule` of a series, as it stands in the text."""
    found = RULE_LABEL.search(series)
    return "" if found is None else found["rule"]


def add_label(series: str, worker: str) -> str:
    label = f'worker="{worker}"'
    return f"{series[:-1]},{label}}}" if series.endswith("}") else f"{series}{{{label}}}"


def lines(totals: dict[str, Family]) -> Iterator[str]:
    for family in totals.values():
        yield family.head
        for series, number in family.series.items():
            yield f"{series} {int(number) if number == int(number) else repr(number)}\n"


def merge_families(living: Iterable[tuple[str, Families]], ended: Families, named: Sequence[NamedSeries] = (), now: int = 0) -> Families:
    """All workers' families as one: (worker, its families), and what those that have ended had counted."""
    totals: Families = {}
    for worker, families in living:
        for each in named:
            each.report(worker, families, now)
        add(totals, families, worker, named)
    add(totals, ended, None)
    for each in named:
        each.gather(totals, now)
    return totals
