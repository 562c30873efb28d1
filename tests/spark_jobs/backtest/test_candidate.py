"""Tonight's quotas on the last days of the state: without Spark, without a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from limiter.quota_snapshot import Quota, Snapshot
from spark_jobs.backtest.candidate import describe_judged_days, judge_days, select_same_kind
from spark_jobs.days import Day
from spark_jobs.nights.night import list_most_lowered
from support.quota_weeks.states import SECONDS, keep_day, state_at

FRIDAY = Day("2026-11-20")


def snapshot(rate: float, *more: Quota) -> Snapshot:
    return Snapshot("2026-11-21T01:00:00Z", "t", quotas=(Quota("rocketmq", "orders", (rate, max(3, int(10 * rate)))), *more))


@pytest.fixture
def weeks(tmp_path: Path) -> Path:
    """Nine days until Friday: 100/s, and 10/s on the week-end."""
    for ago in range(9):
        day = FRIDAY.before(ago)
        keep_day(tmp_path, day.date, {"orders": 10 if day.weekday >= 5 else 100, "audit": 50})
    return tmp_path


def test_each_of_the_last_seven_days_is_judged_and_what_is_live_beside_it(weeks: Path) -> None:
    found = judge_days(state_at(weeks), snapshot(50), snapshot(25), FRIDAY)
    assert [day.date for day in found] == [FRIDAY.before(ago).date for ago in range(6, -1, -1)]
    assert [day.offered for day in found] == [SECONDS * (10 if Day(day.date).weekday >= 5 else 100) for day in found]
    assert found[-1].share == pytest.approx(0.5, abs=0.02)
    assert found[-1].live == pytest.approx(0.75 * found[-1].offered, rel=0.02)
    assert [day.refused for day in found if Day(day.date).weekday >= 5] == [0, 0]
    assert [day.date for day in select_same_kind(found, "2026-11-21")] == ["2026-11-14", "2026-11-15"]
    assert len(select_same_kind(found, "2026-11-23")) == 5
    said = describe_judged_days(found)
    assert said.startswith(
        "A check of topics without a pin, no forecast: of the last 7 days, which they were learned from, "
        "tonight's quotas would have refused 47.9 % (most on "
    )
    assert "; those before them 72 %" in said


def test_only_topics_with_a_quota_and_none_that_a_person_pinned(weeks: Path) -> None:
    pinned = Quota("rocketmq", "audit", (0, 0), None, {"status": "pinned"})
    found = judge_days(state_at(weeks), snapshot(500, pinned), snapshot(500), FRIDAY)
    assert sum(day.refused for day in found) == 0
    assert found[-1].offered == SECONDS * 100
    assert found[-1].with_pins == pytest.approx(50 / 150), "what is promised has them"
    assert found[-1].topics == {("rocketmq", "audit"): pytest.approx(SECONDS * 50)}
    most = {"protocol": "rocketmq", "topic": "audit", "refused": pytest.approx(SECONDS * 50), "worst": FRIDAY.date}
    assert list_most_lowered(found) == [most], "in the mean of the days"


def test_the_first_night_has_no_days_and_says_so(tmp_path: Path) -> None:
    found = judge_days(state_at(tmp_path), snapshot(1), Snapshot("x", "y"), FRIDAY)
    assert found == []
    assert (
        describe_judged_days(found) == "Tonight's quotas were not judged on past days: the state has no day with a topic that has a quota"
    )
    keep_day(tmp_path, FRIDAY.date, {"orders": 10})
    (only,) = judge_days(state_at(tmp_path), snapshot(1), Snapshot("x", "y"), FRIDAY)
    assert (only.live, select_same_kind([only], "2026-11-21")) == (None, [only]), "where there is no day of the kind, any counts"


def test_days_of_another_time_zone_are_left_out(tmp_path: Path) -> None:
    keep_day(tmp_path, FRIDAY.date, {"orders": 10}, zone="Europe/Berlin")
    assert judge_days(state_at(tmp_path), snapshot(1), snapshot(1), FRIDAY) == []
