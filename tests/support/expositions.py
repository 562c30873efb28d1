"""What `/metrics` says, read by the reference implementation's parser and held against the table of metrics."""

from __future__ import annotations

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.metrics import COUNTER, EACH, HISTOGRAM, METRICS


def families(text: str) -> list[Family]:
    """The families of an exposition; fails where one is not as the table says: name, type, help and every sample's labels."""
    found = list(text_string_to_metric_families(text))
    for family in found:
        metric = METRICS[f"{family.name}_total" if family.type == COUNTER else family.name]
        assert (family.type, family.documentation) == (metric.kind, metric.help), metric.name
        for sample in family.samples:
            assert [name for name in sample.labels if name not in _added(metric.kind, metric.workers)] == [*metric.labels], sample
    names = [family.name for family in found]
    assert len(set(names)) == len(names), f"more than once: {sorted({name for name in names if names.count(name) > 1})}"
    return found


def _added(kind: str, workers: str) -> tuple[str, ...]:
    """The labels that are in no table: a histogram's bounds, and whose measurement it is."""
    return (("le",) if kind == HISTOGRAM else ()) + (("worker",) if workers == EACH else ())


def series(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of an exposition by name, each with its labels."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found
