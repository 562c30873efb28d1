"""Rails of a publication: a topic beyond its own is held, and only a fault of the whole input stops the night."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from limiter.quota_snapshot import Quota, Snapshot, dump
from spark_jobs.nights.plan import QuotaPlan, plan
from spark_jobs.nights.rails import FEW, Rails

RAILS = Rails(changed_share=0.5, removed_share=0.5, total_share=0.3, ratio=2)


def snapshot(**rates: float) -> Snapshot:
    quotas = tuple(Quota("rocketmq", topic, (rate, int(rate) or 1)) for topic, rate in rates.items())
    return Snapshot("2026-11-21T01:00:00Z", "0.1.0", quotas=quotas)


def many(count: int, rate: float = 100) -> dict[str, float]:
    return {f"t{number}": rate for number in range(count)}


def without_ways(found: QuotaPlan) -> list[str]:
    """Why it is not published, without the ways out (`tests/cli/test_quotas.py` follows those)."""
    assert all("(look first" in sentence for sentence in found.tripped)
    return [sentence.partition(" (look first")[0] for sentence in found.tripped]


def test_an_ordinary_second_night_publishes() -> None:
    """30 topics, 12 % noise from day to day: all of them change, and once that stopped the night (21 of 30, more than 50 %)."""
    noise = random.Random(17)
    live = many(30)
    for _night in range(30):
        new = {topic: rate * noise.lognormvariate(0, 0.12) for topic, rate in live.items()}
        found = plan(snapshot(**live), snapshot(**new), Rails())
        assert (found.tripped, found.held) == ((), ())
        assert len(found.differences) == 30
        live = new


def test_one_topic_that_moves_far_does_not_stop_the_others() -> None:
    found = plan(snapshot(**many(30)), snapshot(**{**many(30, 110), "t3": 1000}), Rails())
    assert found.tripped == ()
    rates = {quota.topic: quota.messages[0] for quota in found.publish.quotas if quota.messages}
    assert (rates["t3"], rates["t4"]) == (200, 110)
    assert [(each.topic, each.before, each.wanted, each.held) for each in found.held] == [("t3", 100, 1000, 200)]


def test_the_first_publication_has_no_rails() -> None:
    found = plan(snapshot(), snapshot(**many(100)), RAILS)
    assert (found.tripped, found.held) == ((), ())


@pytest.mark.parametrize(
    ("before", "after", "published"),
    [(100, 200, 200), (100, 201, 201), (100, 203, 200), (100, 50, 50), (100, 49, 50), (0.5, 3, 1), (0, 1, 1), (1, 0, 0.5), (0, 0, 0)],
)
def test_a_quota_is_held_at_the_ratio(before: float, after: float, published: float) -> None:
    """2.01 is within the slack; from 0 no factor leads anywhere."""
    found = plan(snapshot(a=before), snapshot(a=after), RAILS)
    (quota,) = found.publish.quotas
    assert quota.messages is not None
    assert quota.messages[0] == published
    assert bool(found.held) is (published != after)
    assert not found.tripped
    dump(found.publish)


def test_no_rail_holds_what_a_person_pinned() -> None:
    live = snapshot(**many(FEW), a=1000)
    pinned = Quota("rocketmq", "a", (1, 10), (5, 50), {"status": "pinned", "bytes": {"status": "pinned"}})
    new = Snapshot("2026-11-21T01:00:00Z", "0.1.0", quotas=(*snapshot(**many(FEW)).quotas, pinned))
    found = plan(live, new, Rails(total_share=0.3))
    assert (found.tripped, found.held) == ((), ())
    assert pinned in found.publish.quotas


def weekly(rates: dict[str, float], week_ago: float) -> Snapshot:
    """Of the messages and bytes of each: `week_ago` was in force on the same day a week before."""
    evidence: dict[str, Any] = {"week_ago": week_ago, "bytes": {"week_ago": 10 * week_ago}}
    return replace(
        snapshot(), quotas=tuple(Quota("rocketmq", topic, (rate, int(rate)), (10 * rate, 500), evidence) for topic, rate in rates.items())
    )


@pytest.mark.parametrize(
    ("live", "week_ago", "wanted", "published"),
    [
        (41, 100, 100, 100),
        (41, 100, 202, 202),
        (41, 100, 300, 200),
        (100, 10, 10, 10),
        (100, 10, 4, 5),
        (100, 80, 10, 40),
        (50, 10, 90, 90),
    ],
)
def test_a_rail_is_measured_from_a_week_ago_too_where_that_is_further(
    live: float, week_ago: float, wanted: float, published: float
) -> None:
    """As the job's is. From the live quota alone a topic that rests on the week-end had 0.82 of its quota on Monday, or 0.65."""
    found = plan(weekly({"a": live}, 1), weekly({"a": wanted}, week_ago), RAILS)
    (quota,) = found.publish.quotas
    assert quota.messages is not None
    assert quota.bytes is not None
    assert (quota.messages[0], quota.bytes[0]) == (published, 10 * published)
    assert quota.messages[1] <= 2.02 * max(live, week_ago)
    assert [each.dimension for each in found.held] == (["messages", "bytes"] if published != wanted else [])
    if published != wanted:
        assert "of a week ago" in str(quota.evidence["reason"])


def test_a_week_end_is_not_a_log_that_was_not_there() -> None:
    """A fleet that sends a tenth on Saturdays: the sum falls to a tenth, as a week ago, and that stopped the night."""
    live = weekly(many(FEW), 100)
    found = plan(live, weekly(many(FEW, 10), 10), Rails())
    assert (found.tripped, found.held, found.lowered) == ((), (), ())
    (messages, size) = plan(live, weekly(many(FEW, 4), 10), Rails()).tripped
    assert messages == (
        "the sum of all messages rates would fall from 2000 to 80 per second, and to 200 as a week ago, by more than 50% "
        "(look first whether the access log that it is computed from is whole; --max-total 61 lets this pass)"
    )
    assert size.startswith("the sum of all bytes rates")


@pytest.mark.parametrize("found", [None, True, -1, 0, "10", float("nan")])
def test_what_is_no_rate_of_a_week_ago_is_not_known(found: Any) -> None:
    new = replace(snapshot(), quotas=(Quota("rocketmq", "a", (300, 300), None, {"week_ago": found, "bytes": None}),))
    (quota,) = plan(snapshot(a=100), new, RAILS).publish.quotas
    assert quota.messages == (200, 200)


def test_the_burst_is_held_with_its_rate() -> None:
    live = Snapshot("x", "y", quotas=(Quota("rocketmq", "a", (100, 500), (1000, 4096)),))
    new = Snapshot("x", "y", quotas=(Quota("rocketmq", "a", (900, 9000), (10, 64), {"reason": "launch"}),))
    (quota,) = plan(live, new, RAILS).publish.quotas
    assert (quota.messages, quota.bytes) == ((200, 1000), (500, 2048))
    assert quota.evidence == {
        "reason": "launch; messages: one night may at most double the quota; bytes: one night may at most halve the quota",
        "status": "held",
    }


def test_a_pin_of_one_dimension_is_a_pin_where_the_other_is_held() -> None:
    """It was listed as held, too, and counted twice."""
    live = Snapshot("x", "y", quotas=(Quota("rocketmq", "a", (100, 500), (1000, 4096)),))
    new = Snapshot("x", "y", quotas=(Quota("rocketmq", "a", (9, 90), (10, 64), {"status": "pinned", "bytes": {"status": "held"}}),))
    (quota,) = plan(live, new, RAILS).publish.quotas
    assert (quota.messages, quota.bytes) == ((9, 90), (500, 2048))
    assert quota.evidence["status"] == "pinned"


def test_without_rails_all_is_published_as_computed() -> None:
    found = plan(snapshot(**many(FEW)), snapshot(t0=900), None)
    assert (found.held, found.tripped, found.publish) == ((), (), snapshot(t0=900))


@pytest.mark.parametrize(("changed", "trips"), [(10, False), (11, True)])
def test_not_too_many_change_where_a_rail_says_so(changed: int, trips: bool) -> None:
    new = {**many(FEW), **many(changed, 101)}
    found = plan(snapshot(**many(FEW)), snapshot(**new), RAILS)
    assert without_ways(found) == (["11 of 20 quotas would change, more than 50%"] if trips else [])


@pytest.mark.parametrize(("left", "trips"), [(10, False), (9, True)])
def test_most_quotas_do_not_vanish(left: int, trips: bool) -> None:
    found = plan(snapshot(**many(FEW)), snapshot(**many(left)), Rails())
    said = [
        "11 of 20 quotas would be removed, more than 50%",
        "the sum of all messages rates would fall from 2000 to 900 per second, by more than 50%",
    ]
    assert without_ways(found) == (said if trips else [])


@pytest.mark.parametrize(("rate", "trips"), [(70, False), (69, True), (150, False), (1000, False)])
def test_the_sum_does_not_collapse(rate: float, trips: bool) -> None:
    """It may grow: each topic has its own rail. What collapses is judged before it is held."""
    found = plan(snapshot(**many(FEW)), snapshot(**many(FEW, rate)), Rails(total_share=0.3))
    said = ["the sum of all messages rates would fall from 2000 to 1380 per second, by more than 30%"]
    assert without_ways(found) == (said if trips else [])


def test_shares_say_little_of_few_topics() -> None:
    assert plan(snapshot(**many(3)), snapshot(**many(1, 51)), RAILS).tripped == ()


def test_a_snapshot_without_quotas_never_empties_the_gateway_unseen() -> None:
    assert without_ways(plan(snapshot(a=1), snapshot(), RAILS)) == ["all 1 quotas would be removed"]


def asked(rates: dict[str, float], pins: dict[str, float] | None = None, **parameters: Any) -> Snapshot:
    """A snapshot that was computed with these parameters; `pins` by a person."""
    found = snapshot(**rates)
    pinned = tuple(Quota("rocketmq", topic, (rate, 1), None, {"status": "pinned"}) for topic, rate in (pins or {}).items())
    return replace(found, parameters={**parameters}, quotas=(*found.quotas, *pinned))


@pytest.mark.parametrize("parameters", [{"capacity_messages": 100}, {"ceiling_messages": 5}])
def test_a_sum_that_the_capacity_or_the_ceiling_lowers_is_held_and_stops_nothing(parameters: dict[str, Any]) -> None:
    """Night by night to a twentieth; each time all that is published is within the rail of each topic."""
    live, nights = snapshot(**many(FEW)), list[tuple[float, int, int]]()
    for _night in range(6):
        found = plan(live, asked(many(FEW, 5), **parameters), Rails())
        assert found.tripped == ()
        nights.append((sum(quota.messages[0] for quota in found.publish.quotas if quota.messages), len(found.held), len(found.lowered)))
        live = found.publish
    assert nights == [(1000, 20, 1), (500, 20, 1), (250, 20, 1), (125, 20, 1), (100, 0, 0), (100, 0, 0)]


def test_a_lowered_sum_is_told() -> None:
    [said] = plan(snapshot(**many(FEW)), asked(many(FEW, 5), capacity_messages=100), Rails()).lowered
    assert said == (
        "capacity or ceiling lowers the sum of all messages rates from 2000 to 100 per second; "
        "no topic falls below 1/2 at once, so it is 1000 this time, and less with the next"
    )


@pytest.mark.parametrize("parameters", [{"capacity_messages": 1000}, {"ceiling_messages": 50}, {"capacity_messages": 5000}])
def test_a_log_that_was_not_there_is_not_excused_by_a_capacity(parameters: dict[str, Any]) -> None:
    found = plan(snapshot(**many(FEW)), asked(many(FEW, 5), **parameters), Rails())
    assert len(found.tripped) == 1
    assert found.tripped[0].startswith("the sum of all messages rates would fall from 2000 to 100 per second")
    assert found.lowered == ()


def test_pinned_topics_come_off_the_capacity_first() -> None:
    """What is left of the capacity is all that the others can fall to; that they fall further is no work of the capacity."""
    rates = many(FEW, 5)
    live = snapshot(**many(2 * FEW))
    pins = {f"t{number}": 100.0 for number in range(FEW, 2 * FEW)}
    assert plan(live, asked(rates, pins, capacity_messages=2000 + 200), Rails()).tripped == ()
    assert plan(live, asked(rates, pins, capacity_messages=2000), Rails()).tripped == ()  # the pins alone: nothing is left
    assert len(plan(live, asked(rates, pins, capacity_messages=2000 + 2000), Rails()).tripped) == 1
