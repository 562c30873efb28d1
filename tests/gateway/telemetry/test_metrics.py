"""The table of metrics: what a user may expect of a name, a type and a help text."""

from __future__ import annotations

import re
from itertools import chain

import pytest

from gateway.telemetry import exposition
from gateway.telemetry.metrics import COUNTER, EACH, GAUGE, HISTOGRAM, LABELS, METRICS, ONE, SAME, SECTIONS, SUM, Metric
from gateway.telemetry.topic_metrics import COLUMNS

UNITS = ("_seconds", "_bytes", "_ratio")
ALL = pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))


def test_no_name_is_in_the_table_twice() -> None:
    assert [*METRICS.values()] == [*chain.from_iterable(SECTIONS.values())]


@ALL
def test_names_follow_prometheus_rules(metric: Metric) -> None:
    assert re.fullmatch(r"(sluice|process)(_[a-z]+)+", metric.name)
    assert metric.kind in (COUNTER, GAUGE, HISTOGRAM)
    assert metric.name.endswith("_total") == (metric.kind == COUNTER)
    assert metric.kind != HISTOGRAM or metric.name.endswith(UNITS)
    assert len(set(metric.labels)) == len(metric.labels)
    assert not {"le", "worker", "client", "address"} & set(metric.labels)


@ALL
def test_a_help_text_is_one_line_of_whole_sentences(metric: Metric) -> None:
    assert re.fullmatch(r"[A-Z0-9][^\n\\]{20,}\.", metric.help), metric.help
    assert "  " not in metric.help


@ALL
def test_only_a_gauge_may_be_told_apart_by_worker(metric: Metric) -> None:
    assert metric.workers in ((SUM, SAME, ONE, EACH) if metric.kind == GAUGE else (SUM, SAME))


@ALL
def test_a_help_text_says_the_unit_of_what_is_no_number_of_things(metric: Metric) -> None:
    for unit, word in (("_seconds", "seconds"), ("_bytes", "bytes"), ("_timestamp_seconds", "unix time")):
        if metric.name.removesuffix("_total").endswith(unit) and not (unit == "_seconds" and "_timestamp" in metric.name):
            assert word in metric.help.lower()


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
