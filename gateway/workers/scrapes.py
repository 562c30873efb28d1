"""Several processes' metrics as one exposition: what they count is added up, what they measure is told apart.

The table of metrics (`gateway/telemetry/metrics.py`) says for each what becomes of the workers' values:

* SUM: they are added up. For a counter or a histogram, ended workers are included with what they had counted at their last report, so
  that no counter falls when a worker is replaced.
* SAME: they are left out, and the parent's own lines have them once.
* ONE: the last value stands. The label that comes last (`origin`) does not tell series apart.
* EACH: every series gets the label `worker`, because a sum would mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from gateway.counting.accounts import OTHER
from gateway.telemetry.metrics import EACH, GAUGE, METRICS, ONE, SAME, TOPIC
from gateway.telemetry.topic_metrics import MAX_TOPICS_SHOWN

BY_RULE: Final = "sluice_rule_messages_total"
OF_CAPS: Final = "sluice_cap_tightened_total"
RULE_LABEL: Final = re.compile(r'rule="(?P<rule>(?:[^"\\]|\\.)*)"')
TOPIC_LABELS: Final = re.compile(r'protocol="[^"]*",topic="(?P<topic>(?:[^"\\]|\\.)*)",operation="[^"]*"')

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
        if workers == ONE:
            replace_ones(total.series, family.series)
            continue
        for series, number in family.series.items():
            labels = labelled(series, worker or "") if workers == EACH else series
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


class ShownTopics:
    """The topics that have series of their own in the sum: each worker shows its own first ones, which together may be many more.

    The first that come stay, so no counter goes back: neither theirs nor that of `__other__`.
    """

    def __init__(self, most: int = MAX_TOPICS_SHOWN) -> None:
        self._most = most
        self._shown: set[str] = set()  # by their labels as text

    def gather(self, totals: dict[str, Family]) -> None:
        """Move the series of all other topics to `__other__`; where a sum would mean nothing they are left out."""
        for name, family in totals.items():
            if METRICS[name].labels[: len(TOPIC)] != TOPIC:
                continue
            kept: Series = {}
            for series, number in family.series.items():
                labels = TOPIC_LABELS.search(series)
                if labels is None or labels["topic"] == OTHER or self._is_shown(labels[0]):
                    kept[series] = kept.get(series, 0.0) + number
                elif METRICS[name].workers != ONE:
                    other = f"{series[: labels.start('topic')]}{OTHER}{series[labels.end('topic') :]}"
                    kept[other] = kept.get(other, 0.0) + number
            family.series = kept

    def _is_shown(self, labels: str) -> bool:
        if labels not in self._shown:
            if len(self._shown) >= self._most:
                return False
            self._shown.add(labels)
        return True

    def __repr__(self) -> str:
        return f"<ShownTopics {len(self._shown)} of {self._most}>"


def labelled(series: str, worker: str) -> str:
    label = f'worker="{worker}"'
    return f"{series[:-1]},{label}}}" if series.endswith("}") else f"{series}{{{label}}}"


def lines(totals: dict[str, Family]) -> Iterator[str]:
    for family in totals.values():
        yield family.head
        for series, number in family.series.items():
            yield f"{series} {int(number) if number == int(number) else repr(number)}\n"


def merged(
    living: Iterable[tuple[str, dict[str, Family]]], ended: dict[str, Family], shown: ShownTopics | None = None
) -> dict[str, Family]:
    """All workers' families as one: (worker, its families), and what those that have ended had counted."""
    totals: dict[str, Family] = {}
    for worker, families in living:
        add(totals, families, worker)
    add(totals, ended, None)
    if shown is not None:
        shown.gather(totals)
    return totals
