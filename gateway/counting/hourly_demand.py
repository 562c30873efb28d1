"""The demand of each topic over an hour, or over ten seconds, as means per second, from the totals that are counted anyway
(`TopicTotals.demand`).

A message costs nothing here: at each look the totals of all topics are read, in slices, and those of the look before are taken away. With
several workers each has totals of its own, and may be replaced meanwhile. So the totals are kept by their **source**, each with the
time since which it counts: a worker that did not answer in time is averaged over both times at the next look. What a worker that has ended
since had counted is lost. The demand is then too small, and no quota falls below the published one for that.

A topic that is forgotten (`accounts.py`) is read as it was, and goes on from there when it comes back. That holds for the last MAX_TOPICS
that were forgotten; others begin at 0 again, and what they had counted since the last look is lost, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.counting.accounts import OTHER, PRODUCE, SLICE_KEYS, Accounts

Place = tuple[str, str]  # protocol, topic as text
Reading = tuple[str, str, int, int]  # protocol, topic as text, messages and bytes since the start; of produced messages


def readings_of(accounts: Accounts) -> list[Reading]:
    """The demand of every topic since the start, as far as it is folded. Topics that share OTHER are left out."""
    known = [
        (totals.protocol, totals.text, *totals.demand_now)
        for totals in accounts.topics.values()
        if totals.demand_now[0] != 0 and totals.operation == PRODUCE and totals.text != OTHER
    ]
    return known + [(protocol, text, *demand) for (protocol, text), demand in accounts.forgotten_demand.items()]


class HourlyDemand:
    """Means over the time since they were worked out before; `began` is when the sources had counted nothing (monotonic ns)."""

    def __init__(self, began: int) -> None:
        self.looked_at = began  # when the means were worked out last
        self.means: dict[Place, tuple[float, float]] = {}  # messages and bytes per second
        self._before: dict[str, tuple[int, dict[Place, tuple[int, int]]]] = {}  # by source: since when, and the totals then

    def look(self, sources: Mapping[str, list[Reading] | None], now: int) -> Iterator[None]:
        """Work out the means of the time until `now`, in slices. `sources` are all there are; None: it did not answer."""
        means: dict[Place, tuple[float, float]] = {}
        known, self._before = self._before, {}
        for source, readings in sources.items():
            since, before = known.get(source, (self.looked_at, {}))
            if readings is None:
                self._before[source] = (since, before)
                continue
            seconds = max(now - since, 1) / 1e9
            after: dict[Place, tuple[int, int]] = {}
            for first in range(0, len(readings), SLICE_KEYS):
                for protocol, text, messages, size in readings[first : first + SLICE_KEYS]:
                    place = (protocol, text)
                    after[place] = (messages, size)
                    messages_before, size_before = before.get(place, (0, 0))
                    if messages < messages_before:  # it was forgotten, and came back
                        messages_before, size_before = 0, 0
                    if messages != messages_before:
                        mean, mean_bytes = means.get(place, (0.0, 0.0))
                        means[place] = (mean + (messages - messages_before) / seconds, mean_bytes + (size - size_before) / seconds)
                yield
            self._before[source] = (now, after)
        self.means = means
        self.looked_at = now

    def __repr__(self) -> str:
        return f"<HourlyDemand topics={len(self.means)} sources={len(self._before)}>"
