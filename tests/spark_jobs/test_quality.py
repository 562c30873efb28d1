"""How good the quotas are, on a short window of generated weeks: bounds that a worse method does not keep (docs/design/quotas.md 8)."""

from __future__ import annotations

import pytest

from spark_jobs.method import scale
from spark_jobs.method.memory import Memory
from spark_jobs.method.peakiness import Shape, shape
from spark_jobs.state.topic_day import rows
from support.quota_weeks.fleets import cut, pools, run, tables_of
from support.quota_weeks.nights import Nights
from support.quota_weeks.score import Scored, Series, Shaper, geometric_mean, score, series_of
from support.quota_weeks.web_log import web_log
from support.quota_weeks.weeks import kinds, troubled, weeks

pytestmark = pytest.mark.slow

SEED = 7  # the method was not chosen on it; so short a window has 0.51 and 0.13 % there, and 0.19 and 0.47 % on seed 21 (2026-11)
MOST_SCORE = 0.65  # of the best simple rules' refusals at equal reserve, geometric mean; 0.82 where the shape is ignored
MOST_TROUBLED = 0.5  # the same, of topics that limits were in the way of: 0.31
TARGET = 0.001
MOST_OF_A_FLEET = (
    0.005  # refused by the worst of twelve fleets of one topic, in 21 nights: 0.21 %; without doubt 0.71 %, and 0.16 % in the mean
)
MOST_REALISED = 0.01  # refused, as published, with a target of 0.001 and k on its way from 2; 0.08 where k is frozen at 0.7


@pytest.fixture(scope="module")
def series() -> list[Series]:
    topics = kinds(SEED)
    return [series_of(weeks(topics[name], SEED, 21, 100, 0.1)) for name in ("regular", "ten with events", "mixed")]


def flat(memory: Memory, half_life_days: float = 7.0) -> Shape:
    """A method that knows the level and not the shape."""
    found = shape(memory, half_life_days)
    return Shape(6 * found.level, found.level, found.peakiness)


def judged(series: list[Series], shaper: Shaper = shape, k: float | None = None) -> list[Scored]:
    return [score(each, shaper, k) for each in series]


def test_the_method_refuses_far_less_than_the_best_simple_rules_and_about_its_target(series: list[Series]) -> None:
    found = judged(series)
    assert geometric_mean(each.score for each in found) <= MOST_SCORE
    assert max(each.score for each in found) <= 1
    assert max(each.realised for each in found) <= MOST_REALISED


def test_the_bounds_fail_where_k_is_frozen(series: list[Series]) -> None:
    assert max(each.realised for each in judged(series, k=0.7)) > MOST_REALISED


def test_the_bounds_fail_where_the_shape_is_ignored(series: list[Series]) -> None:
    assert geometric_mean(each.score for each in judged(series, flat)) > MOST_SCORE


def test_on_a_public_web_log_the_method_beats_the_best_simple_rules() -> None:
    for dimension in ("messages", "bytes"):
        assert score(series_of(web_log(), dimension)).score <= 0.3


def test_limits_that_were_in_the_way_teach_no_wrong_quotas(troubled_series: Series) -> None:
    """Topics that a rule refused, delayed or dropped for days, storms, hours that a clock has jumped over: judged by what was wanted."""
    found = score(troubled_series, also_moving=False)
    assert found.score <= MOST_TROUBLED
    assert found.realised <= MOST_REALISED


@pytest.fixture(scope="module")
def troubled_series() -> Series:
    return series_of(weeks(troubled(SEED), SEED, 21, 100, 0.15))


def test_the_generator_has_what_the_log_says_of_limits() -> None:
    """Refused, delayed, dropped and stormed at: each is in some second of it, and what was wanted is not."""
    days = list(weeks(troubled(SEED), SEED, 21, 100, 0.15))
    for name in ("refused", "delayed", "dropped"):
        got = [each for day in days for each in day.topics if each.topic == name]
        wanted = [each for day in days for each in day.wanted if each.topic == name]
        assert sum(int(getattr(each, name).sum()) for each in got) > 0.01 * sum(int(each.passed.sum()) for each in wanted)
        assert sum(int(getattr(each, name).sum()) for each in wanted) == 0
    storms = [each for day in days for each in day.topics if each.topic.startswith("stormy") and each.refused.any()]
    assert storms
    assert all(0 < (each.refused > 0).mean() < 0.01 for each in storms)
    delayed = [each for day in days[9:12] for each in day.topics if each.topic == "delayed"]
    assert all(
        row["delayed"]
        for day, each in zip(days[9:12], delayed, strict=True)
        for row in rows([each], day.day, day.observed_seconds).to_pylist()[:1]
    )
    assert len({day.observed_seconds for day in days}) > 1, "some hours of some days are missing"


def test_a_night_without_a_gateway_gives_the_quotas_of_a_night_with_both() -> None:
    """Forty percent of the log of the last day is not there; scaled in, the rates are what they would have been."""

    def rates(missing: dict[int, str]) -> dict[str, float]:
        nights = Nights()
        for week in weeks(kinds(SEED)["regular"] + troubled(SEED)[5:6], SEED, 10, 100, missing=missing):
            result = nights.night(week, gateways=week.gateways, missing_gateways=week.missing)
        assert result.snapshot.night["missing_gateways"] == list(missing.values())
        return {quota.topic: quota.messages[0] for quota in result.snapshot.quotas if quota.messages is not None}

    whole, partial = rates({}), rates({9: "b"})
    assert partial == {topic: pytest.approx(rate, rel=0.1) for topic, rate in whole.items()}
    assert len(whole) == 2


@pytest.fixture(scope="module")
def fleets() -> list[Series]:
    """Twelve fleets of one topic, each with an event in a month or so."""
    topics = pools(SEED, 12)["an event a month"]
    return list(cut(*tables_of(topics, SEED, 42, 100), topics, 1))


def test_fleets_of_one_topic_with_rare_events_refuse_no_more_than_the_target(fleets: list[Series]) -> None:
    refused = [run(each).refused for each in fleets]
    assert sum(refused) / len(refused) <= TARGET
    assert max(refused) <= MOST_OF_A_FLEET


def test_that_bound_fails_where_k_falls_without_evidence(fleets: list[Series], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "DOUBT_NIGHTS", 0)
    refused = [run(each).refused for each in fleets]
    assert sum(refused) / len(refused) > TARGET
