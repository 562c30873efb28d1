"""From rows to arrays: what is unknown is not zero, and what is zero is not unknown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow.parquet import write_table

from spark_jobs.days import Day
from spark_jobs.method.history import History
from spark_jobs.method.missing import compute_gateway_shares, compute_missing_factors
from spark_jobs.method.outcomes import OUTCOMES
from spark_jobs.method.remember import COLUMNS, compute_evenness, find_keys, list_days
from spark_jobs.schemas import TOPICS
from spark_jobs.state.tables import read_arrow
from spark_jobs.state.topic_day import make_topic_rows
from spark_jobs.storage.location import Location
from support.quota_weeks.memories import remember, remembered_of
from support.quota_weeks.nights import Nights, topic_seconds
from support.quota_weeks.weeks import Week

import pyarrow as pa  # isort: skip

DATES = list_days("2026-03-02", "2026-03-06")


def table(present: dict[str, list[str]]) -> pa.Table:
    """Topics by day, ten messages a second for a hundred seconds."""
    parts = []
    for date, topics in present.items():
        day = Day(date)
        parts.append(make_topic_rows([topic_seconds(name, day, np.full(100, 10)) for name in topics], day, 1000))
    return pa.concat_tables(parts).select(COLUMNS)  # more is not read


def test_a_silent_day_is_zero_a_missing_one_unknown_and_so_is_the_time_before_the_first() -> None:
    found = table({DATES[0]: ["a"], DATES[2]: ["a", "b"], DATES[4]: ["b"]})
    observed = {date: 1000 for date in DATES if date != DATES[1]} | {DATES[3]: 1}  # however short
    memory = remember(found, observed, "messages", find_keys(found))
    np.testing.assert_array_equal(memory.mean, [[1, np.nan, 1, 0, 0], [np.nan, np.nan, 1, 0, 1]])
    np.testing.assert_array_equal(memory.count_active_days(), [2, 2])
    assert np.isnan(memory.need[0, 3])
    assert list(memory.weekdays) == [0, 1, 2, 3, 4, 5]
    earlier = memory.cut_before(2)
    np.testing.assert_array_equal(earlier.mean, [[1, np.nan], [np.nan, np.nan]])


def test_what_is_left_out_is_unknown_and_what_is_partial_is_scaled() -> None:
    found = table({date: ["a", "b"] for date in DATES})
    memory = remember(
        found, dict.fromkeys(DATES, 1000), "bytes", find_keys(found),
        scale={DATES[1]: np.array([2.0, np.nan])}, left_out={DATES[0]: np.array([True, False])},
    )  # fmt: skip
    assert np.isnan(memory.mean[0, 0])
    assert memory.mean[1, 0] == 200
    assert memory.mean[0, 1] == 400
    assert np.isnan(memory.mean[1, 1])


def line(day: str, topic: str = "a", **numbers: Any) -> dict[str, Any]:
    """A row of a day's state, with what the method remembers of it."""
    found = {"day": day, "protocol": "rocketmq", "topic": topic, "dimension": "messages", "total": 1000, "messages": 900, "need": 5.0}
    found |= {"overloaded": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], "max": 40, "p99": 20, "largest": 8, "limited_seconds": 0}
    return found | {"excluded_seconds": 0, "hours": [6, 2]} | numbers


def test_a_day_is_remembered_as_its_row_has_it_and_what_grows_with_the_demand_is_scaled() -> None:
    found = pa.Table.from_pylist([line(DATES[0]), line(DATES[1]), line(DATES[3]), line(DATES[0], "b")])
    memory = remember(found, dict.fromkeys(DATES[:4], 1000), "messages", find_keys(found), scale={DATES[1]: np.array([3.0, 1.0])})
    no = np.nan
    np.testing.assert_allclose(memory.mean[0], [1, 3, 0, 1])
    np.testing.assert_allclose(memory.messages[0], [900, 2700, 0, 900])
    np.testing.assert_allclose(memory.need[0], [5, 15, no, 5])
    np.testing.assert_allclose(memory.busiest[0], [40, 120, 0, 40])
    np.testing.assert_allclose(memory.p99[0], [20, 60, 0, 20])
    np.testing.assert_allclose(memory.largest[0], [8, 8, 0, 8])
    np.testing.assert_allclose(memory.evenness[0], [4 / 6, 4 / 6, no, 4 / 6])
    np.testing.assert_allclose(memory.overloaded[0, :, 1], [2, 6, no, 2])
    np.testing.assert_allclose(memory.mean[1], [1, 0, 0, 0])


def test_seconds_that_were_excluded_are_no_part_of_the_day() -> None:
    found = pa.Table.from_pylist([line(DATES[0], excluded_seconds=600), line(DATES[1], excluded_seconds=1000)])
    memory = remember(found, dict.fromkeys(DATES[:2], 1000), "messages", find_keys(found))
    np.testing.assert_allclose(memory.mean, [[2.5, 1000]], err_msg="of a day without any second that counts one is left")


def test_a_day_is_censored_when_more_than_a_hundredth_of_its_seconds_was_limited() -> None:
    seconds = {"a": 10, "b": 11, "c": 5, "d": 6}
    excluded = {"c": 500, "d": 500}
    lines = [line(DATES[0], name, limited_seconds=each, excluded_seconds=excluded.get(name, 0)) for name, each in seconds.items()]
    found = pa.Table.from_pylist([*lines, line(DATES[0], "e", total=0, limited_seconds=500)])
    memory = remember(found, {DATES[0]: 1000}, "messages", find_keys(found))
    assert memory.censored[:, 0].tolist() == [False, True, False, True, False], "of a topic that was never seen nothing is known"


def test_rates_of_overload_are_remembered_and_those_of_older_states_unknown() -> None:
    found = table({date: ["a", "b"] for date in DATES[:2]})
    lists = pa.array([None, *found["overloaded"].to_pylist()[1:]], found.schema.field("overloaded").type)
    older = found.set_column(found.schema.get_field_index("overloaded"), "overloaded", lists)
    memory = remember(older, dict.fromkeys(DATES[:2], 1000), "messages", find_keys(older), scale={DATES[1]: np.array([2.0, 1.0])})
    assert np.isnan(memory.overloaded[0, 0]).all()
    np.testing.assert_allclose(memory.overloaded[0, 1], 2 * memory.overloaded[1, 1])
    assert memory.overloaded[1, 0] == pytest.approx(found["overloaded"][2].as_py())


def test_a_state_without_the_rates_of_overload_is_read_and_they_are_unknown(tmp_path: Path) -> None:
    found = table({DATES[0]: ["a", "b"]})
    (tmp_path / "topics").mkdir()
    write_table(found.drop_columns(["overloaded"]), tmp_path / "topics" / "part-0.parquet")
    spark: Any = None  # a state on this machine is read without it
    older = read_arrow(spark, "topics", found.schema, TOPICS, [Location.of("state", tmp_path)])
    memory = remember(older, {DATES[0]: 1000}, "messages", find_keys(older))
    assert np.isnan(memory.overloaded).all()
    np.testing.assert_array_equal(memory.mean, remember(found, {DATES[0]: 1000}, "messages", find_keys(found)).mean)


def test_evenness_is_the_mean_hour_beside_the_fullest() -> None:
    hours = [[6, 6, 6], [0, 9, 0], [10, 5, 0], [0, 0, 0], [7], []]
    found = compute_evenness(pa.table({"hours": hours}))
    np.testing.assert_allclose(found, [1, 1 / 3, 1 / 2, 1, 1, 1])
    assert not len(compute_evenness(pa.table({"hours": pa.array([], pa.list_(pa.int64()))})))


def test_a_day_that_was_limited_for_long_is_censored() -> None:
    day = Day(DATES[0])
    found = make_topic_rows([topic_seconds("a", day, np.full(100, 10), np.full(100, 3))], day, 1000)
    assert remember(found, {DATES[0]: 1000}, "messages", find_keys(found)).censored[0, 0]
    assert not remember(found, {DATES[0]: 86_400}, "messages", find_keys(found)).censored[0, 0]


def test_a_missing_gateway_s_share_is_that_of_the_days_before() -> None:
    nights = Nights()
    even = [("x", 0.75), ("y", 0.25)]
    seconds = {"x": {"seconds": 86_400}, "y": {"seconds": 86_400}}
    for date in DATES[:2]:
        day = Day(date)
        nights.night(Week(day, 86_400, [topic_seconds("a", day, np.full(100, 10), gateways=even)]), gateways=seconds)
    facts, rows_ = nights.day(Week(Day(DATES[2]), 86_400, []), gateways={"y": {"seconds": 86_400}}, missing_gateways=["x"])
    topics = pa.concat_tables(nights.topics)
    keys = find_keys(topics)
    assert rows_.num_rows == 0
    assert list(compute_gateway_shares(remembered_of(topics), DATES[1], keys)) == [{"x": 0.75, "y": 0.25}]
    found = compute_missing_factors(remembered_of(topics), [*nights.manifests, facts], "messages", keys)
    assert list(found) == [DATES[2]]
    assert found[DATES[2]][0] == pytest.approx(4)


def test_the_share_of_a_gateway_that_is_missing_again_is_that_of_the_days_that_had_it() -> None:
    nights = Nights()
    even, seconds = [("x", 0.75), ("y", 0.25)], {"x": {"seconds": 86_400}, "y": {"seconds": 86_400}}
    for date in DATES[:2]:
        day = Day(date)
        nights.night(Week(day, 86_400, [topic_seconds("a", day, np.full(100, 10), gateways=even)]), gateways=seconds)
    partial: dict[str, Any] = {"gateways": {"y": {"seconds": 86_400}}, "missing_gateways": ["x"]}
    days, tables = list(nights.manifests), list(nights.topics)
    for date in DATES[2:4]:
        day = Day(date)
        facts, rows_ = nights.day(Week(day, 86_400, [topic_seconds("a", day, np.full(100, 10), gateways=[("y", 1.0)])]), **partial)
        days.append(facts)
        tables.append(rows_)
    topics = pa.concat_tables(tables)
    found = compute_missing_factors(remembered_of(topics), days, "messages", find_keys(topics))
    assert [found[date][0] for date in DATES[2:4]] == pytest.approx([4, 4])
    assert list(compute_missing_factors(remembered_of(topics), days[2:], "messages", find_keys(topics))[DATES[3]]) == [1], (
        "those are forgotten"
    )
    both = [*days[:3], replace(days[3], missing_gateways=["never", "x"])]
    assert list(compute_missing_factors(remembered_of(topics), both, "messages", find_keys(topics))[DATES[3]]) == pytest.approx([4]), (
        "of one that never was nothing is known"
    )


@pytest.mark.parametrize(
    ("seconds", "factor"),
    [
        ({"x": 86_400}, 4 / 3),  # nothing of y
        ({"x": 86_400, "y": 43_200}, 8 / 7),  # half of y
        ({"x": 86_400, "y": 90_000}, 1),  # more of y than usual
        ({"x": 90_000}, 4 / 3),  # x is listed too, and does not make up for y
    ],
)
def test_what_a_gateway_has_more_of_than_usual_is_no_part_of_what_is_missing(seconds: dict[str, int], factor: float) -> None:
    """As on a day of 25 hours. Its share would count as less than nothing, and hide what another one did not have."""
    nights = Nights()
    day = Day(DATES[0])
    usual = {"x": {"seconds": 86_400}, "y": {"seconds": 86_400}}
    nights.night(Week(day, 86_400, [topic_seconds("a", day, np.full(100, 10), gateways=[("x", 0.75), ("y", 0.25)])]), gateways=usual)
    here = {name: {"seconds": each} for name, each in seconds.items()}
    facts, _ = nights.day(Week(Day(DATES[1]), 86_400, []), gateways=here, missing_gateways=["x", "y"])
    topics = pa.concat_tables(nights.topics)
    found = compute_missing_factors(remembered_of(topics), [*nights.manifests, facts], "messages", find_keys(topics))
    assert found[DATES[1]][0] == pytest.approx(factor)


def test_history_adds_up_the_nights_with_a_published_quota() -> None:
    entries = [
        {"day": day, "protocol": "p", "topic": "t", "dimension": "messages", "family": family, "rate": 1.0, "burst": 3,
         "offered": 100, "refused": float(refused), "reserved": 10.0}
        for day, family, refused in zip([DATES[2], *DATES[2:]], ("published", "oracle", "oracle", "published"), (5, 1, 1, 2), strict=True)
    ]  # fmt: skip
    history = History([pa.Table.from_pylist(entries, OUTCOMES)], "messages", [("p", "t"), ("p", "u")], DATES[4])
    known, unknown = history.sum_nights(7)
    assert (known["nights"], known["offered"], known["refused"], known["oracle"]) == (2, 200, 7, {"refused": 1, "reserved": 10})
    assert (unknown["nights"], unknown["offered"], unknown["refused"]) == (0, 0, 0)
    np.testing.assert_array_equal(history.rates_on(DATES[2]), [1.0, np.nan])
    assert np.isnan(history.rates_on("2020-01-01")).all()
