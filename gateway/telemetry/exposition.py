"""Metrics: the Prometheus text exposition, made of what the rooms count anyway.

Nothing is registered and nothing is updated on the hot path: a scrape reads plain attributes. It is one moment: whatever lives is read
when the families are made (`family`, `histogram`, `topic_lines` take copies at once), and only then rendered. That is yielded in pieces,
so that the admin server gives the loop a turn in between (rendering 5,000 series at once with a library stalled a loop for 98 ms,
`docs/design/reliability.md` 1.3).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from gateway.counting.accounts import OTHER, Accounts, TopicTotals
from gateway.counting.histogram import Histogram

TOPICS_SHOWN: Final = 500  # series per metric; the rest is summed under __other__ (docs/design/contract.md 7)
LINES_PER_PIECE: Final = 200

LAG_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)  # seconds
OVERHEAD_BUCKETS: Final = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1)  # seconds

Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]


def escape(value: str) -> str:
    """A label's value, by the exposition format's rules."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def line(name: str, labels: Labels, value: float) -> str:
    inner = ",".join(f'{label}="{escape(text)}"' for label, text in labels)
    number = str(int(value)) if value == int(value) else repr(value)
    return f"{name}{{{inner}}} {number}\n" if inner else f"{name} {number}\n"


def family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    """One metric: its help, its type and its samples, as lines. The samples are taken now."""
    return _lines(name, kind, text, list(samples))


def _heading(name: str, kind: str, text: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _lines(name: str, kind: str, text: str, samples: list[Sample]) -> Iterator[str]:
    yield _heading(name, kind, text)
    for labels, value in samples:
        yield line(name, labels, value)


def histogram(name: str, text: str, *sources: tuple[Labels, Histogram]) -> Iterator[str]:
    """One metric, its histograms told apart by their labels. They are read now."""
    return _histogram_lines(name, text, [(own, list(source.cumulative()), source.sum) for own, source in sources])


def _histogram_lines(name: str, text: str, sources: list[tuple[Labels, list[tuple[float, int]], float]]) -> Iterator[str]:
    yield _heading(name, "histogram", text)
    for own, buckets, seconds in sources:
        for bound, total in buckets:
            yield line(f"{name}_bucket", (*own, ("le", "+Inf" if bound == float("inf") else repr(bound))), total)
        yield line(f"{name}_sum", own, seconds)
        yield line(f"{name}_count", own, buckets[-1][1])


class TopicMetric(NamedTuple):
    """A metric with one series per topic and operation."""

    name: str
    kind: str
    text: str
    value: Callable[[TopicTotals], int]
    labels: str = ""  # behind those of the topic, as they are written


REFUSED: Final = TopicMetric(
    "sluice_messages_refused_total",
    "counter",
    "Messages refused natively; reason share: beyond the topic's share of its listener's cap.",
    lambda t: t.refused - t.refused_share,
    ',reason="limit"',
)
SHARE: Final = ',reason="share"'  # in place of the above
TOPIC_METRICS: Final = (
    TopicMetric("sluice_messages_received_total", "counter", "Messages decoded, by topic (consume: by queue).", lambda t: t.received),
    TopicMetric("sluice_messages_forwarded_total", "counter", "Messages passed on, to broker or consumer.", lambda t: t.forwarded),
    REFUSED,
    TopicMetric("sluice_messages_delayed_total", "counter", "Messages held at least once.", lambda t: t.delayed),
    TopicMetric("sluice_messages_dropped_total", "counter", "Messages dropped without an answer.", lambda t: t.dropped),
    TopicMetric("sluice_messages_bypassed_total", "counter", "Messages passed without a verdict.", lambda t: t.bypassed),
    TopicMetric("sluice_messages_abandoned_total", "counter", "Messages whose peer went away before.", lambda t: t.abandoned),
    TopicMetric("sluice_messages_shadow_refused_total", "counter", "Refused by a rule in shadow mode.", lambda t: t.shadow_refused),
    TopicMetric("sluice_messages_waiting", "gauge", "Messages with the judge or held.", lambda t: t.waiting),
    TopicMetric("sluice_message_bytes_total", "counter", "Bytes passed on, to broker or consumer.", lambda t: t.bytes),
)


def shown(accounts: Accounts) -> list[TopicTotals]:
    """The topics with series of their own, the busiest first, and the sum of all others. They are the real ones: their numbers go on."""
    topics = sorted(accounts.topics.values(), key=lambda totals: totals.received, reverse=True)
    kept = topics[:TOPICS_SHOWN]
    rest: dict[tuple[str, str], list[TopicTotals]] = {}
    for totals in topics[TOPICS_SHOWN:]:
        rest.setdefault((totals.protocol, totals.operation), []).append(totals)
    for totals in [totals for totals in kept if totals.text == OTHER and (totals.protocol, totals.operation) in rest]:
        rest[totals.protocol, totals.operation].append(totals)
        kept.remove(totals)
    for (protocol, operation), several in rest.items():
        others = TopicTotals(protocol, OTHER, operation)
        others.merge(several)
        kept.append(others)
    return kept


def topic_lines(accounts: Accounts) -> Iterator[str]:
    """Every per-topic metric, as of now. `accounts` was folded just before.

    Only the numbers are copied, a metric at a time: copies of the topics took twice as long (2026-11).
    """
    topics = shown(accounts)
    shares = [totals.refused_share for totals in topics]
    none = [0] * len(topics)
    columns = [(metric, [*map(metric.value, topics)], shares if metric is REFUSED else none) for metric in TOPIC_METRICS]
    return _topic_lines(topics, columns)


def _topic_lines(topics: list[TopicTotals], columns: list[tuple[TopicMetric, list[int], list[int]]]) -> Iterator[str]:
    """One series per topic; where a share of a listener's cap has refused something, one more with that as its reason."""
    places = [f'protocol="{each.protocol}",topic="{escape(each.text)}",operation="{each.operation}"' for each in topics]
    for metric, values, shares in columns:
        yield _heading(metric.name, metric.kind, metric.text)
        name, labels = metric.name, metric.labels
        for place, value, share in zip(places, values, shares, strict=True):
            yield f"{name}{{{place}{labels}}} {value}\n"
            if share:
                yield f"{name}{{{place}{SHARE}}} {share}\n"


def process_lines() -> Iterator[str]:
    """`process_*` as every exporter has them."""
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123  -- a kernel file, not a path of ours
        resident = int(statm.read().split()[1]) * 4096
    return chain(
        family("process_resident_memory_bytes", "gauge", "Resident memory.", [((), resident)]),
        family("process_cpu_seconds_total", "counter", "CPU time, user and system.", [((), time.process_time())]),
    )


def pieces(lines: Iterable[str]) -> Iterator[str]:
    """Lines in pieces of LINES_PER_PIECE."""
    piece: list[str] = []
    for text in lines:
        piece.append(text)
        if len(piece) >= LINES_PER_PIECE:
            yield "".join(piece)
            piece = []
    if piece:
        yield "".join(piece)
