"""How good the quotas are, on a short window of generated weeks: bounds that a worse method does not keep (docs/design/quotas.md 8)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from spark_jobs.method import guard, scale
from spark_jobs.method.memory import Floats, Memory
from spark_jobs.method.peakiness import Shape, estimate_shape
from spark_jobs.method.promise import LONG_NIGHTS, NightShare, predict_interval
from spark_jobs.state.topic_day import make_topic_rows
from support.quota_weeks.fleets import cut, pools, run, tables_of
from support.quota_weeks.nights import Nights
from support.quota_weeks.score import (
    Scored,
    Series,
    Walked,
    calibrated,
    changes,
    geometric_mean,
    judged_night,
    nights,
    score,
    scored_of,
    series_of,
    walk,
    walked,
    windows,
)
from support.quota_weeks.web_log import web_log
from support.quota_weeks.weeks import kinds, troubled, weeks

pytestmark = pytest.mark.slow

SEED = 7  # the method was not chosen on it, nor on 11 and 12 (tuning seeds: 100 to 123)


class Bound(NamedTuple):
    """What the method reaches on 28 days of 100 seconds an hour (2026-11), and 15 % more."""

    seeds: tuple[int, ...]
    mean: float  # geometric, of the scores: refused at equal reserve over what the best simple rules refuse in hindsight
    worst: float


BOUNDS = {
    "regular": Bound((7, 11), 0.105, 0.22),
    "big with events": Bound((7, 11, 12), 0.112, 0.25),
    "bursty": Bound((7, 11, 12), 0.095, 0.28),
    "sparse": Bound((7,), 0.19, 0.19),
    "ten with events": Bound((7,), 0.55, 0.55),
    "changing": Bound((7,), 0.53, 0.53),
    "mixed": Bound((7,), 0.167, 0.167),
}
MOST_OF_ALL = 0.2  # the geometric mean of the kinds' means
MOST_OF_FIRST = 0.23  # the same of the first seed of each kind
MOST_IN_WINDOWS = 0.21  # the same of all windows of twenty nights: 0.18
WORST_WINDOW = 0.65  # of all kinds: 0.56, of topics that begin, end and move
MOST_IN_RAISED_WINDOWS = 0.15  # the same of nights that are raised within the day: the aim, and far from it
WORST_RAISED_WINDOW = 0.4
MOST_CHANGED = 0.1  # of the quotas, on nights before a Tuesday to Friday from the third week on: 8 %
MOST_CHANGED_OF_LONG_DAYS = 0.05  # the same where each hour has 1,200 s
MOST_TROUBLED = 0.5  # as MOST_OF_ALL, of topics that limits were in the way of: 0.31
TARGET = 0.001
MOST_OF_A_FLEET = (
    0.005  # refused by the worst of twelve fleets of one topic, in 21 nights: 0.21 %; without doubt 0.71 %, and 0.16 % in the mean
)
SLOW = "sparse"  # a hundred seconds of each hour are a message a day and topic: k has weeks to go; of whole days 0.05 % are refused
MOST_REALISED = 0.01  # refused, as published, with a target of 0.001 and k on its way from 2; 0.08 where k is frozen at 0.7


FIRST, ALL = "the first seed of each kind", "all seeds"


@pytest.fixture(scope="module", params=[FIRST, pytest.param(ALL, marks=pytest.mark.long)])
def seeds(request: pytest.FixtureRequest) -> dict[str, tuple[int, ...]]:
    """Three series of one kind are drawn alike, and each takes 5 s of processor time."""
    return {kind: bound.seeds[: 1 if request.param == FIRST else None] for kind, bound in BOUNDS.items()}


@pytest.fixture(scope="module")
def series(seeds: dict[str, tuple[int, ...]]) -> dict[str, list[Series]]:
    def one(kind: str, seed: int) -> Series:
        return series_of(weeks(kinds(seed)[kind], seed, 28, 100, 0.1 if kind == "mixed" else 0.0))

    return {kind: [one(kind, seed) for seed in own] for kind, own in seeds.items()}


@pytest.fixture(scope="module")
def walks(series: dict[str, list[Series]]) -> dict[str, list[Walked]]:
    return {kind: [walked(each, also_moving=False, also_raised=not at) for at, each in enumerate(own)] for kind, own in series.items()}


@pytest.fixture(scope="module")
def scored(walks: dict[str, list[Walked]]) -> dict[str, list[Scored]]:
    return {kind: [scored_of(each) for each in own] for kind, own in walks.items()}


def flat(memory: Memory, half_life_days: float = 7.0) -> Shape:
    """A method that knows the level and not the shape."""
    found = estimate_shape(memory, half_life_days)
    return Shape(6 * found.level, found.level, found.peakiness)


@pytest.mark.parametrize("kind", BOUNDS)
def test_each_kind_and_each_of_its_series_keeps_its_bound(scored: dict[str, list[Scored]], kind: str) -> None:
    found = [each.score for each in scored[kind]]
    assert len(found) < len(BOUNDS[kind].seeds) or geometric_mean(found) <= BOUNDS[kind].mean, found
    assert max(found) <= BOUNDS[kind].worst, found


def test_the_bounds_are_of_all_kinds() -> None:
    assert list(BOUNDS) == list(kinds(SEED))


def test_the_method_refuses_far_less_than_the_best_simple_rules_and_about_its_target(scored: dict[str, list[Scored]]) -> None:
    means = {kind: geometric_mean(each.score for each in own) for kind, own in scored.items()}
    of_all_seeds = all(len(own) == len(BOUNDS[kind].seeds) for kind, own in scored.items())
    assert geometric_mean(means.values()) <= (MOST_OF_ALL if of_all_seeds else MOST_OF_FIRST), means
    assert max(each.realised for kind, own in scored.items() if kind != SLOW for each in own) <= MOST_REALISED


def test_every_window_of_twenty_nights_keeps_its_bound(walks: dict[str, list[Walked]]) -> None:
    """The mean over all days hides weeks that go wrong."""
    found = {kind: windows(own[0]).constant for kind, own in walks.items()}
    assert all(found.values())
    assert geometric_mean(geometric_mean(each) for each in found.values()) <= MOST_IN_WINDOWS, found
    assert max(each for own in found.values() for each in own) <= WORST_WINDOW, found


def test_raised_within_the_day_every_window_of_twenty_nights_is_below_two_fifths(walks: dict[str, list[Walked]]) -> None:
    """Where an event decides, no quota of the night can be: who knows the law of such topics, but not the days to come, has 0.96."""
    found = {kind: windows(own[0]).raised for kind, own in walks.items()}
    assert all(found.values())
    assert geometric_mean(geometric_mean(each) for each in found.values()) <= MOST_IN_RAISED_WINDOWS, found
    assert max(each for own in found.values() for each in own) <= WORST_RAISED_WINDOW, found


@pytest.mark.parametrize(
    ("kind", "seed", "per_hour"), [("big with events", 1, 100), ("ten with events", 1, 100), ("changing", 1, 100), ("sparse", 41, 200)]
)
def test_the_month_after_a_promise_is_within_it(kind: str, seed: int, per_hour: int) -> None:
    """Sparse topics have refused less since, because k went on: by the past nights alone they missed all that was promised of them."""
    series = series_of(weeks(kinds(seed)[kind], seed, 2 * LONG_NIGHTS + 1, per_hour))
    known = nights(series)
    ks, families = calibrated(series, known)
    published = walk(series, known, ks, families, 1.0)
    topics = [scale.count_effective_topics(each.total) for each in series.surfaces[1:]]
    past = [NightShare(refused / max(offered, 1), offered, each) for (refused, _, offered), each in zip(published, topics, strict=True)]
    judged = [judged_night(series, known, at) for at in range(LONG_NIGHTS)]
    found = predict_interval(past[:LONG_NIGHTS], TARGET, scale.predict_change(judged, ks[:LONG_NIGHTS], ks[LONG_NIGHTS], TARGET))
    refused, _, offered = published[LONG_NIGHTS:].sum(axis=0)
    assert found is not None
    assert found[0] <= refused / offered <= found[1]
    if kind == "sparse":
        alone = predict_interval(past[:LONG_NIGHTS], TARGET)
        assert alone is not None
        assert refused / offered < alone[0]


def on_ordinary_nights(changed: Floats) -> Floats:
    """(changed, in force) of the nights before a Tuesday to Friday, from the third week on.

    Before a Saturday, a Sunday and a Monday topics that rest on the week-end change, and should."""
    day = np.arange(len(changed)) + 2  # the first is a Monday, and has no night
    found: Floats = changed[(day >= 14) & np.isin(day % 7, (1, 2, 3, 4))].sum(axis=0)
    return found


def test_an_ordinary_night_changes_few_quotas(walks: dict[str, list[Walked]]) -> None:
    """Of topics that begin and end more do, and should."""
    changed, quotas = sum((on_ordinary_nights(own[0].changes) for kind, own in walks.items() if kind != "changing"), np.zeros(2))
    assert quotas > 500
    assert changed <= MOST_CHANGED * quotas, (changed, quotas)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sparse", "ten with events", "mixed"])
def test_an_ordinary_night_changes_a_twentieth_of_the_quotas_where_days_are_long(kind: str) -> None:
    """A hundred seconds of each hour are a day with twelve times the noise."""
    series = series_of(weeks(kinds(SEED)[kind], SEED, 35, 1200, 0.1 if kind == "mixed" else 0.0))
    known = nights(series)
    changed, quotas = on_ordinary_nights(changes(series, known, *calibrated(series, known)))
    assert quotas >= 100
    assert changed <= MOST_CHANGED_OF_LONG_DAYS * quotas, (changed, quotas)


def test_the_bound_fails_where_k_is_frozen(series: dict[str, list[Series]]) -> None:
    mixed = series["mixed"][0]
    known = nights(mixed)
    refused, _, offered = walk(mixed, known, [0.7] * len(known), [guard.OWN] * len(known), 1.0).sum(axis=0)
    assert refused / offered > MOST_REALISED


def test_the_bounds_fail_where_the_shape_is_ignored(series: dict[str, list[Series]]) -> None:
    assert score(series["mixed"][0], flat, also_moving=False).score > BOUNDS["mixed"].worst


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
        for row in make_topic_rows([each], day.day, day.observed_seconds).to_pylist()[:1]
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
    monkeypatch.setattr(scale, "MAX_CHANGE", 1.1)  # with 2 % a night it takes longer than these six weeks
    refused = [run(each).refused for each in fleets]
    assert sum(refused) / len(refused) > TARGET
