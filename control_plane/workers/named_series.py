"""Series whose names come from clients, summed over the workers: by topic, and by consumer group.

Each worker shows its own, forgets those that are idle and may show them again later, beginning at 0 (`gateway/counting/accounts.py`). The
naive way adds up what the workers show now. Then a series falls whenever one of them forgets it, and what was under `__other__` comes and
goes as names find a place here. So it is added up by how much each worker's series has grown since its report before: nothing that a
worker forgets takes anything away, and neither does its end.

`most` names have series of their own. One that has not grown for FORGET_AFTER makes room for a new one where there is none, and its series
end when no worker shows it any more; of a worker that has ended after FORGET_AFTER, for its clients come back to another one. A name that
finds a place later begins at 0: what it had counted stays under `__other__`. Nothing may wait at that moment, since what becomes of it is
counted in the other place then.
"""

from __future__ import annotations

import re
from typing import Final

from control_plane.workers.scrapes import Families, Family, Series
from gateway.counting.accounts import FORGET_AFTER, LOOK_NS, MAX_TOPICS_SHOWN, OTHER, SERIES_PAUSE_NS
from gateway.telemetry.metrics import GAUGE, METRICS, SUM, TOPIC
from gateway.telemetry.refused_clients import MAX_GROUPS_SHOWN

WAITING: Final = "sluice_messages_waiting"
GROUP: Final = ("group",)
FIRST: Final = {TOPIC: "sluice_messages_received_total", GROUP: "sluice_retries_refused_total"}  # a metric that all names have
PATTERNS: Final = {
    TOPIC: re.compile(r'protocol="[^"]*",topic="(?P<name>(?:[^"\\]|\\.)*)",operation="[^"]*"'),
    GROUP: re.compile(r'group="(?P<name>(?:[^"\\]|\\.)*)"'),
}


class Named:
    """One name with series of its own."""

    __slots__ = ("counts", "grown_at", "kept_until")

    def __init__(self, now: int) -> None:
        self.grown_at = now  # monotonic ns
        self.kept_until = 0  # the same; until then its series do not end, though no worker shows it
        self.counts: dict[str, Series] = {}  # by metric

    def __repr__(self) -> str:
        return f"<Named {sum(map(len, self.counts.values()))} series>"


class NamedSeries:
    """The counters of all workers whose first labels are `labels`."""

    def __init__(self, labels: tuple[str, ...], most: int) -> None:
        self.labels = labels
        self._pattern = PATTERNS[labels]
        self._first = FIRST[labels]
        self._most = most
        self._shown: dict[str, Named] = {}  # by the labels' text
        self._others: dict[str, Series] = {}  # by metric: under `__other__`
        self._heads: dict[str, str] = {}  # by metric
        self._reports: dict[str, Families] = {}  # the last one, by worker
        self._ended: dict[str, int] = {}  # names whose series have ended -> monotonic ns, the first first
        self._look_at = 0  # monotonic ns; earlier than that none of those shown can be idle

    def covers(self, name: str) -> bool:
        """Whether a metric has these labels."""
        return METRICS[name].labels[: len(self.labels)] == self.labels

    def report(self, worker: str, families: Families, now: int) -> None:
        """Count what is new in a worker's report."""
        before = self._reports.get(worker, {})
        if before is families:
            return
        self._reports.pop(worker, None)
        self._reports[worker] = families  # at the end: `_has_waited`
        self._end_gone(before, families, now)
        for name, family in families.items():
            if not self.covers(name) or family.kind == GAUGE:
                continue
            self._heads[name] = family.head
            known = before[name].series if name in before else {}
            for series, number in family.series.items():
                last = known.get(series, 0.0)
                grown = number - last if number >= last else number  # smaller: it was forgotten, and began at 0
                if grown:
                    self._count(name, series, grown, now, before)

    def _end_gone(self, before: Families, families: Families, now: int) -> None:
        """End the series of names that a worker showed before, and that none shows any more."""
        if self._first not in before:
            return
        after = families[self._first].series if self._first in families else {}
        for series in before[self._first].series.keys() - after.keys():
            found = self._pattern.search(series)
            if found is not None:
                self._end_if_gone(found[0], now)

    def _end_if_gone(self, labels: str, now: int) -> None:
        named = self._shown.get(labels)
        if named is None or now < named.kept_until:
            return
        series = f"{self._first}{{{labels}}}"
        if not any(self._first in families and series in families[self._first].series for families in self._reports.values()):
            self._end(labels, now)

    def retire_worker(self, worker: str, now: int) -> None:
        """A worker is over. What waited there is lost: of it that counts as abandoned."""
        families = self._reports.pop(worker, {})
        for series in families[self._first].series if self._first in families else ():
            found = self._pattern.search(series)
            if found is not None and found[0] in self._shown:
                self._shown[found[0]].kept_until = now + FORGET_AFTER
        if WAITING in families and self.covers(WAITING):
            for series, number in families[WAITING].series.items():
                if number:
                    abandoned = "sluice_messages_abandoned_total"
                    self._count(abandoned, series.replace(WAITING, abandoned, 1), number, now, families)

    def _count(self, name: str, series: str, grown: float, now: int, before: Families) -> None:
        """`before`: what the worker had reported before that."""
        found = self._pattern.search(series)
        if found is None:
            return
        named = self._shown.get(found[0])
        if named is None and found["name"] != OTHER and self._may_be_shown(found[0], now, before):
            named = self._shown[found[0]] = Named(now)
        if named is None:
            counts, series = self._others, of_others(series, found)
        else:
            counts = named.counts
            named.grown_at = max(named.grown_at, now)
        of_metric = counts.setdefault(name, {})
        of_metric[series] = of_metric.get(series, 0.0) + grown

    def _may_be_shown(self, labels: str, now: int, before: Families) -> bool:
        """Whether there is room, nothing waits, and its series, if they ended, are gone for long enough to be seen to begin anew."""
        while self._ended:
            first = next(iter(self._ended))
            if now - self._ended[first] < SERIES_PAUSE_NS:
                break
            del self._ended[first]
        return labels not in self._ended and not self._has_waited(labels, before) and self._has_room(now)

    def _end(self, labels: str, now: int) -> None:
        del self._shown[labels]
        self._ended.pop(labels, None)
        self._ended[labels] = now

    def _waits(self, labels: str) -> bool:
        """Whether messages of a topic wait in any worker."""
        return any(waits(families, labels) for families in self._reports.values())

    def _has_waited(self, labels: str, before: Families) -> bool:
        """Whether messages of a topic waited in any worker before the report that is being counted, or do so in another worker."""
        last = next(reversed(self._reports.values()), None)
        return waits(before, labels) or any(waits(families, labels) for families in self._reports.values() if families is not last)

    def _has_room(self, now: int) -> bool:
        """Whether one more name can be shown. Makes room for it."""
        if len(self._shown) < self._most:
            return True
        if now < self._look_at:
            return False
        idle = [labels for labels, named in self._shown.items() if now - named.grown_at >= FORGET_AFTER and not self._waits(labels)]
        if not idle:
            self._look_at = max(now + LOOK_NS, min(named.grown_at for named in self._shown.values()) + FORGET_AFTER)
            return False
        self._end(min(idle, key=lambda labels: self._shown[labels].grown_at), now)
        return True

    def gather(self, totals: Families, now: int) -> None:
        """Put the counters into `totals`; in gauges there, move the names that are not shown to `__other__`, if a sum means something."""
        zeros: dict[str, Series] = {name: {} for name in self._heads}
        living: set[str] = set()
        for families in self._reports.values():
            for name in families.keys() & zeros.keys():
                for series in families[name].series:
                    found = self._pattern.search(series)
                    if found is not None:
                        living.add(found[0])
                        zeros[name][series if found[0] in self._shown else of_others(series, found)] = 0.0
        for labels in [each for each in self._shown if each not in living]:
            self._end_if_gone(labels, now)
        for name, found_series in zeros.items():
            for named in self._shown.values():
                found_series.update(named.counts.get(name, {}))
            found_series.update(self._others.get(name, {}))
            totals.setdefault(name, Family(self._heads[name], "counter")).series = found_series
        for name, family in totals.items():
            if family.kind == GAUGE and self.covers(name):
                family.series = self._sum_gauges(name, family)

    def _sum_gauges(self, name: str, family: Family) -> Series:
        kept: Series = {}
        for series, number in family.series.items():
            found = self._pattern.search(series)
            if found is None or found[0] in self._shown or found["name"] == OTHER:
                kept[series] = kept.get(series, 0.0) + number
            elif METRICS[name].workers == SUM:
                other = of_others(series, found)
                kept[other] = kept.get(other, 0.0) + number
        return kept

    def __repr__(self) -> str:
        return f"<NamedSeries of {len(self._shown)} by {self.labels[-1]}, at most {self._most}>"


def waits(families: Families, labels: str) -> bool:
    """Whether messages of a topic wait in a worker."""
    return WAITING in families and families[WAITING].series.get(f"{WAITING}{{{labels}}}", 0.0) != 0


def of_others(series: str, labels: re.Match[str]) -> str:
    """The series to which one is added that has none of its own."""
    return f"{series[: labels.start('name')]}{OTHER}{series[labels.end('name') :]}"


def all_named() -> list[NamedSeries]:
    """Those of a gateway with several workers."""
    return [NamedSeries(TOPIC, MAX_TOPICS_SHOWN), NamedSeries(GROUP, MAX_GROUPS_SHOWN)]
