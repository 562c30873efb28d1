"""Nights in a row, without Spark: what quotas do when topics are launched, throttled, stormed at, pinned, or partly unknown."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from limiter.quota_snapshot import Quota, Snapshot, dump, dump_pieces, load
from spark_jobs.compute import restore_rates
from spark_jobs.days import Day
from spark_jobs.method import overload, peakiness
from spark_jobs.method.pins import Pin
from spark_jobs.method.scale import GRID
from spark_jobs.night import NightResult, compute_night, predict_month
from spark_jobs.parameters import Parameters
from spark_jobs.state.loss_surface import RATIO
from spark_jobs.state.remembered import Remembered
from spark_jobs.state.topic_day import TopicSeconds, make_topic_rows
from support.quota_weeks.nights import Nights, days_from, limited, steady_nights, topic_seconds
from support.quota_weeks.weeks import Week

import pyarrow as pa  # isort: skip

pytestmark = pytest.mark.slow  # days of made-up traffic

SECONDS = 7200  # of the day in which topics send


def traffic(day: Day, level: float, name: str = "orders", seconds: int = SECONDS) -> np.ndarray:
    return np.random.default_rng([day.start, len(name)]).poisson(level, seconds)


def quota(result: NightResult, topic: str = "orders") -> Quota | None:
    return next((each for each in result.snapshot.quotas if each.topic == topic), None)


def rate(result: NightResult, topic: str = "orders") -> float:
    found = quota(result, topic)
    assert found is not None
    assert found.messages is not None
    return found.messages[0]


def listed(result: NightResult, name: str) -> list[str]:
    entries: Any = result.snapshot.night[name]
    return [each["topic"] for each in entries]


def plain(level: float, name: str = "orders") -> Callable[[Day], list[TopicSeconds]]:
    return lambda day: [topic_seconds(name, day, traffic(day, level, name))]


def test_a_new_topic_is_learning_until_three_days_and_then_has_a_quota_above_its_need() -> None:
    results = steady_nights(Nights(), 5, plain(100))
    assert [quota(result) is None for result in results] == [True, True, False, False, False]
    assert [listed(result, "learning") for result in results] == [["orders"], ["orders"], [], [], []]
    found = quota(results[-1])
    assert found is not None
    assert found.messages is not None
    assert found.bytes is not None
    assert 100 < found.messages[0] < 500
    assert found.messages[1] == -(-found.messages[0] * 10 // 1)
    assert found.bytes[0] == pytest.approx(found.messages[0] * 200, rel=0.2)
    assert found.evidence["status"] == "quota"
    assert found.evidence["days"] == 5
    assert found.hourly_messages is not None
    assert load(dump(results[-1].snapshot)) == results[-1].snapshot


def test_the_launch_day_of_a_topic_that_was_tried_out_is_not_strangled() -> None:
    """findings.md 1, 8: tried at 1/s, launched at 1,000/s. Two days of trial give no quota, so the rule of the file stands; and from the
    launch on the quota is the launch's."""
    nights = Nights()
    trial = steady_nights(nights, 2, plain(1))
    assert quota(trial[-1]) is None
    launch = steady_nights(nights, 2, plain(1000), first="2026-03-04")
    assert rate(launch[0]) > 1000


def test_a_retry_storm_teaches_nothing() -> None:
    """The same weeks, once with an hour's tenth of refused retries, at a hundred times the rate: the quotas stay within a few percent."""

    def stormy(day: Day) -> list[TopicSeconds]:
        offered = traffic(day, 100)
        if day.date != "2026-03-08":
            return [topic_seconds("orders", day, offered)]
        refused = np.zeros(SECONDS, np.int64)
        refused[1000:1360] = 10_000
        return [topic_seconds("orders", day, offered, refused)]

    calm, storm = steady_nights(Nights(), 8, plain(100)), steady_nights(Nights(), 8, stormy)
    assert [rate(result) for result in storm[2:]] == [rate(result) for result in calm[2:]]


@pytest.mark.parametrize("level", [300, 20])
def test_a_steady_topic_has_a_burst_of_ten_seconds_and_needs_its_mean(level: int) -> None:
    """findings.md 1, 10: a steady 300/s had a burst of 2,224, and a steady 20/s one of 200, though its bucket never ran low. A burst is ten
    seconds of the rate now, whatever the grid of the loss surface; the error of that grid shows in the need, and is at most one step."""
    nights = Nights()
    for day in itertools.islice(days_from("2026-03-02"), 4):
        result = nights.night(Week(day, SECONDS, [topic_seconds("orders", day, np.full(SECONDS, level))]))
    found = quota(result)
    assert found is not None
    assert found.messages is not None
    assert found.messages[1] == math.ceil(10 * found.messages[0])
    (need,) = [row["need"] for row in nights.topics[-1].to_pylist() if row["dimension"] == "messages"]
    allowed = 10 * level / (SECONDS + 10)  # 1 % less than the mean, as a full bucket of ten seconds is a 720th of these two hours
    assert level - allowed - level / 1000 <= need * RATIO
    assert need <= RATIO * level
    assert found.messages[0] == pytest.approx(2 * level, rel=0.1), "k begins at 2, and a steady topic has no peaks"


@pytest.mark.parametrize(("flooded_s", "in_one_night", "in_all"), [(863, 1.4, 1.4), (86_400, 2.0, 3.0)])
def test_a_flood_doubles_a_quota_at_most_and_a_short_one_hardly_moves_it(flooded_s: int, in_one_night: float, in_all: float) -> None:
    """findings.md 1, 10: 100/s became 345/s by one flood. Of a short one only what passed counts, the bucket's burst: a third more in a
    topic's first week, and an eighth after it. Of one that lasts all day twice the rate in force counts: the quota doubles that night, and
    goes a quarter further in the nights after."""

    def flood(day: Day) -> list[TopicSeconds]:
        offered = np.full(86_400, 100)
        if day.date == "2026-03-06":
            offered[:flooded_s] = 10_000
        rates = () if nights.live is None else [each.messages for each in nights.live.quotas if each.messages is not None]
        return [topic_seconds("orders", day, *(limited(offered, *rates[0]) if rates else (offered,)))]

    nights = Nights()
    before, *after = [rate(result) for result in steady_nights(nights, 7, flood)[3:]]
    assert after[0] <= 1.001 * in_one_night * before
    assert max(after) <= in_all * before
    if flooded_s == 86_400:
        assert after[0] > 1.5 * before, "a whole day of it is demand, as far as anybody can tell; --exclude says that it is not"


def test_a_topic_held_by_its_quota_grows_by_its_demand() -> None:
    """findings.md 1, 7: 1,000/s wanted, 100/s in force. Each night at most doubles it (the rail), and nothing stops it on the way."""
    nights = Nights(live=Snapshot("2026-03-01T00:00:00Z", "t", quotas=(Quota("rocketmq", "orders", (100.0, 1000)),)))

    def throttled(day: Day) -> list[TopicSeconds]:
        offered = traffic(day, 1000)
        assert nights.live is not None
        live = next((each.messages for each in nights.live.quotas if each.messages is not None), (100.0, 1000))
        return [topic_seconds("orders", day, *limited(offered, *live))]

    results = steady_nights(nights, 9, throttled)
    rates = [rate(result) for result in results[2:]]
    assert all(later >= 1.2 * earlier for earlier, later in itertools.pairwise(rates) if earlier < 900)
    assert rates[-1] > 900


def test_a_night_that_is_computed_again_is_the_same_bytes() -> None:
    nights, again = Nights(), Nights(known={})
    first, second = steady_nights(nights, 9, plain(50)), steady_nights(again, 9, plain(50))
    assert dump(first[-1].snapshot) == dump(second[-1].snapshot)
    assert first[-1].outcomes.equals(second[-1].outcomes)


def test_a_night_is_the_same_bytes_however_many_days_and_topics_are_looked_at_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All days of all topics at once would be a hundred gigabytes at 200,000 topics."""
    nights = Nights()
    for at, day in enumerate(itertools.islice(days_from("2026-03-02"), 9)):
        topics = [topic_seconds(name, day, traffic(day, level, name)) for name, level in (("a", 9), ("b", 90), ("c", 30))]
        jobs = np.where(np.arange(SECONDS) % 3600 < 40, 300 + 50 * at, 0)
        refused = topic_seconds("shut", day, np.zeros(SECONDS, np.int64), np.ones(SECONDS, np.int64))
        new = [topic_seconds("new", day, traffic(day, 5))] if at > 3 else []
        week = Week(day, 86_400, [*topics, topic_seconds("jobs", day, jobs), refused, *new])
        facts, table = nights.day(week)
        inputs = nights.inputs(facts, table)
        whole = nights.night(week)
    tables = {day.date: rows for day, rows in zip([*nights.manifests], [*nights.topics], strict=True)}
    outcomes = {day.date: rows for day, rows in zip(nights.manifests[:-1], nights.outcomes[:-1], strict=True)}

    def some(of: dict[str, pa.Table]) -> Remembered:
        def read(days: Sequence[str], names: Sequence[str]) -> pa.Table:
            assert len(days) == 1, "one day at a time"
            return pa.concat_tables([of[day].select(list(names)) for day in days])

        return Remembered(read, list(of), 10**9)

    for module in (peakiness, overload):
        monkeypatch.setattr(module, "BLOCK", 2)
    monkeypatch.setattr(overload, "KEPT_BLOCKS", 0)
    found = compute_night(replace(inputs, topics=some(tables), outcomes=some(outcomes)))
    assert dump(found.snapshot) == dump(whole.snapshot) == b"".join(dump_pieces(found.frame, found.quotas))
    assert found.outcomes.equals(whole.outcomes)
    assert found.fleet == whole.fleet
    assert len(found.snapshot.quotas) == 5


def test_the_evidence_is_out_of_sample() -> None:
    """findings.md 1, 6: a topic refused nearly all on the newest day says so."""

    def burst(day: Day) -> list[TopicSeconds]:
        return [topic_seconds("orders", day, traffic(day, 3000 if day.date == "2026-03-10" else 30))]

    results = steady_nights(Nights(), 9, burst)
    found = quota(results[-1])
    assert found is not None
    evidence: Any = found.evidence
    nights = evidence["nights7"]
    assert nights["nights"] == 6  # quotas since the third night
    assert evidence["would_refuse"] == pytest.approx(nights["refused"] / nights["offered"], abs=1e-6)
    assert evidence["would_refuse"] > 0.8
    assert nights["oracle"]["refused"] < 0.01 * nights["refused"]
    assert nights["double"]["refused"] < nights["half"]["refused"]
    day, mean, live, refused, busiest = evidence["series"][-1]
    assert (day, live is None) == ("2026-03-10", False)
    assert mean * 86_400 == pytest.approx(3000 * SECONDS, rel=0.01)
    assert refused == pytest.approx(nights["refused"], rel=0.01)
    assert busiest > 3000
    assert results[-1].fleet["messages"]["realised_ppm"] > 800_000


def test_a_topic_beyond_its_rail_is_held_and_listed() -> None:
    def grows(day: Day) -> list[TopicSeconds]:
        return [topic_seconds("orders", day, traffic(day, 1000 if day.date >= "2026-03-06" else 10))]

    results = steady_nights(Nights(), 6, grows)
    assert rate(results[4]) == pytest.approx(2 * rate(results[3]), rel=1e-4)
    assert listed(results[4], "held") == ["orders"]
    found = quota(results[4])
    assert found is not None
    assert found.evidence["status"] == "held"
    assert "; one night may move it no further than to " in str(found.evidence["reason"])


@pytest.mark.parametrize("weekend", [pytest.param(0.1, marks=pytest.mark.long), 0.02])
def test_what_rests_on_the_week_end_is_published_as_computed(weekend: float) -> None:
    """The rail of the publication knew the live quota only, which is Sunday's on Monday: 82 of 100, or 65."""
    nights, computed, published = Nights(), list[float](), list[float]()

    def week(day: Day) -> list[TopicSeconds]:
        return [topic_seconds("orders", day, traffic(day, 100 * (weekend if day.weekday >= 5 else 1)))]

    for day in (Day("2026-03-02").before(-at) for at in range(56)):  # from a Monday on; the quota of a week-end falls by a third a week
        result = nights.night(Week(day, 86_400, week(day)))
        for rates, snapshot in ((computed, result.snapshot), (published, nights.live)):
            assert snapshot is not None
            rates += [quota.messages[0] for quota in snapshot.quotas if quota.messages is not None]
    assert published[-2] < 0.4 * published[-1], "else it is no matter from which of the two the rail is measured"
    assert published == computed


def test_pins_win_until_their_day_and_a_pinned_topic_need_not_be_known() -> None:
    pins = [
        Pin("rocketmq", "orders", (7.5, 80), None, "contract", "2026-03-05"),
        Pin("rocketmq", "later", (1.0, 10), (1000.0, 5000), "launch", None),
    ]
    results = steady_nights(Nights(pins=pins), 5, plain(100))
    found = quota(results[2])
    assert found is not None
    assert (found.messages, found.evidence["status"], found.evidence["reason"]) == ((7.5, 80), "pinned", "pinned: contract")
    assert found.bytes is not None  # as computed
    assert sorted(listed(results[2], "pinned")) == ["later", "orders"]
    assert rate(results[4]) > 8  # from the sixth on it is the job's again, by its rails
    later = quota(results[4], "later")
    assert later is not None
    assert (later.messages, later.bytes) == ((1.0, 10), (1000.0, 5000))


def test_a_topic_that_no_remembered_day_has_seen_keeps_its_quota() -> None:
    live = Snapshot("2026-03-01T00:00:00Z", "t", quotas=(Quota("rocketmq", "gone", (5.0, 50), None, {"days": 3}),))
    results = steady_nights(Nights(live=live), 4, plain(100))
    found = quota(results[-1], "gone")
    assert found is not None
    assert (found.messages, found.evidence["status"]) == ((5.0, 50), "kept")


def test_a_night_that_is_computed_again_starts_from_what_was_in_force_and_keeps_what_was_kept() -> None:
    live = Snapshot("2026-03-01T00:00:00Z", "t", quotas=(Quota("rocketmq", "gone", (5.0, 50), None, {"days": 3}),))
    nights = Nights(live=live)
    results = steady_nights(nights, 5, plain(100))
    again = {each.topic: each for each in restore_rates(results[-1].snapshot, nights.outcomes[-1]).quotas}
    before = quota(results[-2])
    assert before is not None
    assert again["orders"].messages == before.messages
    assert again["gone"].messages == (5.0, 50)
    first = restore_rates(results[2].snapshot, nights.outcomes[2])
    assert [each.topic for each in first.quotas] == ["gone"]  # that night gave the other its first quota


def test_an_opening_day_leaves_k_and_the_quotas_where_they_were() -> None:
    """findings.md 8, 2: after a day at 2.5 times the demand k went from 2.0 to 4.05 in ten nights, for an event that was over."""

    def opening(day: Day) -> list[TopicSeconds]:
        factor = 2.5 if day.date == "2026-03-13" else 1.0
        return [topic_seconds(name, day, traffic(day, factor * level, name)) for name, level in (("tickets", 50), ("bills", 20))]

    def k(result: NightResult) -> float:
        found: Any = result.snapshot.night["k"]
        return float(found["messages"])

    results = steady_nights(Nights(), 22, opening)
    before, after = results[10], results[11:]
    assert results[11].snapshot.date == "2026-03-13"
    assert max(k(result) for result in after) <= k(before)
    for topic in ("tickets", "bills"):
        assert max(rate(result, topic) for result in after) <= 2 * rate(before, topic), "yesterday's level may come again"
        assert rate(after[-1], topic) <= 1.3 * rate(before, topic)


@pytest.mark.parametrize(("capacity", "others"), [(250, 250 - 57 - 5), (50, 2 / 60)])
def test_all_that_is_published_is_within_the_capacity_and_pins_alone_above_it_are_said(capacity: int, others: float) -> None:
    """findings.md 8, 5: --capacity 250 with pins of 57/s published 298/s. A quota that is only kept has its part, too."""

    def three(day: Day) -> list[TopicSeconds]:
        return [topic_seconds(name, day, traffic(day, level, name)) for name, level in (("large", 900), ("small", 10), ("pinned", 100))]

    live = Snapshot("2026-03-01T00:00:00Z", "t", quotas=(Quota("rocketmq", "gone", (5.0, 50), None, {"days": 3}),))
    pins = [Pin("rocketmq", "pinned", (50.0, 500), None, "contract", None), Pin("rocketmq", "unseen", (7.0, 70), None, "launch", None)]
    result = steady_nights(Nights(Parameters(capacity_messages=capacity), live=live, pins=pins), 4, three)[-1]
    assert rate(result, "large") + rate(result, "small") == pytest.approx(others, rel=1e-4)
    assert sum(each.messages[0] for each in result.snapshot.quotas if each.messages) == pytest.approx(max(capacity, 62.0), rel=1e-3)
    assert rate(result, "small") >= 1 / 60 - 1e-6
    assert bool(result.snapshot.night["remarks"]) is (capacity == 50)


@pytest.mark.parametrize("closed_from", [0, 5])
def test_a_topic_that_was_only_refused_teaches_nothing_but_that(closed_from: int) -> None:
    """findings.md 8, 1: a rule of 0/s refused all for three days, and those retries became a quota that let them pass."""

    def closed(day: Day) -> list[TopicSeconds]:
        offered = traffic(day, 20, "legacy")
        nothing = np.zeros(SECONDS, np.int64)
        shut = day.date >= f"2026-03-{2 + closed_from:02}"
        return [topic_seconds("legacy", day, nothing, 50 * offered) if shut else topic_seconds("legacy", day, offered)]

    results = steady_nights(Nights(), closed_from + 5, closed)
    if not closed_from:
        assert [quota(result, "legacy") for result in results] == [None] * 5
        assert results[-1].snapshot.night["learning"] == [
            {"protocol": "rocketmq", "topic": "legacy", "reason": "learning: only refused, on 5 days; the rule of the file stands"}
        ]
        return
    rates = [rate(result, "legacy") for result in results[4:]]
    assert max(rates) <= 1.3 * rates[0], "what it had before it was closed"
    found = quota(results[-1], "legacy")
    assert found is not None
    assert found.evidence["days"] == 5
    assert all(row["offered"] == 0 for row in results[-1].outcomes.to_pylist() if row["family"] == "published"), "k learns nothing of it"


def test_capacity_is_shared_and_small_topics_keep_what_they_want() -> None:
    def two(day: Day) -> list[TopicSeconds]:
        return [topic_seconds(name, day, traffic(day, level, name)) for name, level in (("large", 900), ("small", 10))]

    free = steady_nights(Nights(), 4, two)[-1]
    tight = steady_nights(Nights(Parameters(capacity_messages=1000)), 4, two)[-1]
    assert rate(free, "large") + rate(free, "small") > 1000
    assert rate(tight, "large") + rate(tight, "small") == pytest.approx(1000, rel=1e-3)
    assert rate(tight, "small") <= rate(free, "small")
    said = [{each.topic: str(each.evidence["reason"]) for each in one.snapshot.quotas}["large"] for one in (free, tight)]
    assert ["the capacity of 1k/s leaves it " in each for each in said] == [False, True]
    capped = steady_nights(Nights(Parameters(ceiling_messages=500, capacity_messages=5000)), 4, two)[-1]
    (large,) = [str(each.evidence["reason"]) for each in capped.snapshot.quotas if each.topic == "large"]
    assert large.endswith("; the ceiling of 500/s leaves it 500/s")


def test_a_month_is_promised_at_the_k_that_is_in_force_then() -> None:
    """Sixty sparse topics kept none of twelve promises: k went from 2 to 4 meanwhile."""
    night = {"realised_ppm": 2000.0, "published_offered": 1e6, "topics": 10.0, "offered": 1e6, "refused_by_k": [4e3 / k for k in GRID]}
    found = predict_month([*[night | {"k": 2.0}] * 27, night | {"k": 3.0}], 0.001)
    assert found == pytest.approx([0, 2000 * 2 / 3], rel=0.01)


def test_a_day_without_a_gateway_is_scaled_by_its_usual_share() -> None:
    """findings.md 1, 9: with --allow-partial the level of each topic is what it would have been with all gateways."""
    gateways = {name: {"seconds": 86_400} for name in ("a", "b", "c")}
    even = [(name, 1 / 3) for name in gateways]

    def run(partial: bool) -> NightResult:
        nights = Nights()
        for day in (Day("2026-03-02").before(-at) for at in range(6)):
            last = partial and day.date == "2026-03-07"
            offered = traffic(day, 100 if last else 300)
            topics = [topic_seconds("orders", day, offered, gateways=even[:1] if last else even)]
            known = {name: facts for name, facts in gateways.items() if not last or name == "a"}
            result = nights.night(Week(day, 86_400, topics), gateways=known, missing_gateways=["b", "c"] if last else [])
        return result

    whole, partial = run(False), run(True)
    assert rate(partial) == pytest.approx(rate(whole), rel=0.05)
    assert partial.snapshot.night["missing_gateways"] == ["b", "c"]


def test_an_incident_that_is_excluded_teaches_nothing() -> None:
    incident = "2026-03-05"

    def run(left_out: bool) -> float:
        nights = Nights()
        results = steady_nights(nights, 6, lambda day: [topic_seconds("orders", day, traffic(day, 2000 if day.date == incident else 20))])
        if not left_out:
            return rate(results[-1])
        nights.live = None
        day = Day("2026-03-08")
        inputs = nights.inputs(*nights.day(Week(day, 86_400, [topic_seconds("orders", day, traffic(day, 20))])))
        return rate(compute_night(replace(inputs, left_out={incident: np.array([True])})))

    assert run(True) < 0.5 * run(False)


def test_lines_of_another_day_are_said() -> None:
    """findings.md 8, 7: 200 of them were left out without a word."""
    day = Day("2026-03-02")
    result = Nights().night(Week(day, 86_400, [topic_seconds("orders", day, traffic(day, 10))]), stray=200)
    assert result.frame.night["remarks"] == ["200 lines in the files of 2026-03-02 were of another day, and were left out"]


def test_the_first_night_of_all_has_no_quotas_and_says_so() -> None:
    (result,) = steady_nights(Nights(), 1, plain(10))
    assert result.snapshot.quotas == ()
    assert result.snapshot.date == "2026-03-02"
    assert listed(result, "learning") == ["orders"]
    assert result.fleet["messages"]["k"] == 2.0
    assert json.loads(dump(result.snapshot))["night"]["k"] == {"bytes": 2, "messages": 2}


def test_a_silent_day_is_a_day_of_zero_and_a_night_without_topics_works() -> None:
    nights = Nights()
    results = steady_nights(nights, 4, lambda _: [])
    assert all(result.snapshot.quotas == () for result in results)
    assert make_topic_rows([], Day("2026-03-02"), 86_400).num_rows == 0
