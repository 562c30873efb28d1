"""The table of metrics: what a user may expect of a name, a type and a help text."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain

import pytest

from gateway.telemetry import exposition
from gateway.telemetry.metrics import COUNTER, EACH, GAUGE, HISTOGRAM, LABELS, METRICS, ONE, SAME, SECTIONS, SUM, Metric
from gateway.telemetry.topic_metrics import COLUMNS

UNITS = ("_seconds", "_bytes", "_ratio")


def follows_prometheus_rules(metric: Metric) -> bool:
    return (
        re.fullmatch(r"(sluice|process)(_[a-z]+)+", metric.name) is not None
        and metric.kind in (COUNTER, GAUGE, HISTOGRAM)
        and metric.name.endswith("_total") == (metric.kind == COUNTER)
        and (metric.kind != HISTOGRAM or metric.name.endswith(UNITS))
        and len(set(metric.labels)) == len(metric.labels)
        and not {"le", "worker", "client", "address"} & set(metric.labels)
    )


def has_a_help_text_of_whole_sentences(metric: Metric) -> bool:
    """In one line."""
    return re.fullmatch(r"[A-Z0-9][^\n\\]{20,}\.", metric.help) is not None and "  " not in metric.help


def is_told_apart_by_worker_only_as_a_gauge(metric: Metric) -> bool:
    return metric.workers in ((SUM, SAME, ONE, EACH) if metric.kind == GAUGE else (SUM, SAME))


def says_its_unit(metric: Metric) -> bool:
    """In the help text, where the metric is no number of things."""
    name, said = metric.name.removesuffix("_total"), metric.help.lower()
    if name.endswith("_timestamp_seconds"):
        return "unix time" in said
    return all(word in said for unit, word in (("_seconds", "seconds"), ("_bytes", "bytes")) if name.endswith(unit))


def test_no_name_is_in_the_table_twice() -> None:
    assert [*METRICS.values()] == [*chain.from_iterable(SECTIONS.values())]


@pytest.mark.parametrize(
    "holds",
    [
        follows_prometheus_rules,
        has_a_help_text_of_whole_sentences,
        is_told_apart_by_worker_only_as_a_gauge,
        says_its_unit,
    ],
)
def test_of_every_metric(holds: Callable[[Metric], bool]) -> None:
    assert [f"{metric.name}: {metric}" for metric in METRICS.values() if not holds(metric)] == []


def test_every_label_is_described() -> None:
    assert set(LABELS) == {"worker", *chain.from_iterable(metric.labels for metric in METRICS.values())}


def test_every_metric_by_topic_has_a_column() -> None:
    assert {name for name, metric in METRICS.items() if metric.labels[:3] == ("protocol", "topic", "operation")} == {
        *COLUMNS,
        "sluice_topic_limit",
        "sluice_topic_spooled_messages",
    }


def test_a_name_that_is_not_in_the_table_is_an_error() -> None:
    with pytest.raises(KeyError):
        exposition.family("sluice_unheard_of_total", [])


@pytest.mark.parametrize("values", [(), ("rocket",), ("rocket", "rocketmq", "more")])
def test_a_sample_without_the_tables_labels_is_an_error(values: tuple[str, ...]) -> None:
    lines = exposition.family("sluice_connections_active", [(values, 1)])
    with pytest.raises(ValueError, match=r"zip\(\)"):
        list(lines)
