"""The Prometheus text format: families of `METRICS`, written from what the gateway counts anyway.

Nothing is registered and nothing is updated on the hot path: a scrape reads plain attributes. It is one moment: all values are read when
the families are made (`family`, `histogram` and `topic_lines` take copies at once), and only then rendered. The text is yielded in pieces,
so that the admin server gives the loop a turn in between. The naive way, a library that renders 5,000 series at once, stalled the loop for
98 ms (`docs/design/reliability.md` 1.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from gateway.counting.histogram import Histogram
from gateway.telemetry.metrics import METRICS, Metric

LINES_PER_PIECE: Final = 200  # lines; what is rendered between two turns of the event loop (a guess: well under 1 ms)

LAG_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)  # seconds
OVERHEAD_BUCKETS: Final = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1)  # seconds

Sample = tuple[tuple[str, ...], float]  # the values of the metric's labels, in the order of the table, and the number
Samples = Mapping[str, Iterable[Sample]]  # of several metrics, by name
Labels = Iterable[tuple[str, str]]


def escape(value: str) -> str:
    """A label's value, by the exposition format's rules."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def line(name: str, labels: Labels, value: float) -> str:
    inner = ",".join([f'{label}="{escape(text)}"' for label, text in labels])
    number = str(int(value)) if value == int(value) else repr(value)
    return f"{name}{{{inner}}} {number}\n" if inner else f"{name} {number}\n"


def heading(metric: Metric) -> str:
    return f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"


def family(name: str, samples: Iterable[Sample]) -> Iterator[str]:
    """One metric of the table: its help, its type and its samples, as lines. The samples are taken now.

    Raises KeyError for a name that is not in the table; ValueError, when the lines are asked for, if a sample has not the table's labels.
    """
    return _lines(METRICS[name], [*samples])


def single(name: str, value: float) -> Iterator[str]:
    """A metric without labels, as lines."""
    return family(name, [((), value)])


def families(samples: Samples) -> Iterator[str]:
    """Several metrics, by name."""
    return chain.from_iterable([family(name, own) for name, own in samples.items()])


def _lines(metric: Metric, samples: list[Sample]) -> Iterator[str]:
    yield heading(metric)
    for values, number in samples:
        yield line(metric.name, zip(metric.labels, values, strict=True), number)


def histogram(name: str, *sources: tuple[tuple[str, ...], Histogram]) -> Iterator[str]:
    """One metric of the table, its histograms told apart by the values of its labels. They are read now."""
    return _histogram_lines(METRICS[name], [(values, list(source.cumulative()), source.sum) for values, source in sources])


def _histogram_lines(metric: Metric, sources: list[tuple[tuple[str, ...], list[tuple[float, int]], float]]) -> Iterator[str]:
    yield heading(metric)
    for values, buckets, seconds in sources:
        labels = [*zip(metric.labels, values, strict=True)]
        for bound, total in buckets:
            yield line(f"{metric.name}_bucket", [*labels, ("le", "+Inf" if bound == float("inf") else repr(bound))], total)
        yield line(f"{metric.name}_sum", labels, seconds)
        yield line(f"{metric.name}_count", labels, buckets[-1][1])


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
