"""From what was decided to the quotas of the snapshot, their evidence, and the lists of topics that are not simply computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from limiter.quota_snapshot import MAX_PER_SECOND, Quota, Snapshot
from spark_jobs.method.decide import Decided
from spark_jobs.method.history import History
from spark_jobs.method.memory import Memory
from spark_jobs.method.outcomes import OUTCOMES
from spark_jobs.method.peakiness import Shape
from spark_jobs.method.pins import Pin
from spark_jobs.method.quotas import Facts, Quotas, ToldDimension, keep_unseen_quotas, round_rate
from spark_jobs.parameters import Parameters
from support.quota_weeks.memories import memory_of

import pyarrow as pa  # isort: skip

NO = np.nan
DATE = "2026-03-09"  # the days before it are three, or ten
NIGHT = {"day": DATE, "protocol": "rocketmq", "dimension": "messages", "family": "published", "rate": 1.0, "burst": 3, "reserved": 10.0}


def told(
    rates: Any, *, memory: Memory | None = None, family: str = "quota", dimension: str = "messages", held: Any = 0, learning: Any = False,
    hourly: Any = 1.5, bursts: Any = None, nights: Sequence[dict[str, Any]] = (), refused_days: int = 0, kept: Any = False,
) -> ToldDimension:  # fmt: skip
    """What is told of topics t0, t1, ... with these rates."""
    found = np.asarray(rates, np.float64)

    def each(values: Any) -> Any:
        return np.broadcast_to(np.asarray(values), found.shape)

    shape = Shape(found / 2, found / 4, each(2.0))
    given = 10 * found if bursts is None else each(np.asarray(bursts, np.float64))
    decided = Decided(
        shape,
        each(np.array(7.0)),
        found,
        given,
        each(learning),
        each(held),
        each(np.array(hourly)),
        each(np.array(1.0)),
        found / 1.25,
        found * 1.5,
        each(np.asarray(kept)),
        each(np.asarray(False)),
    )
    remembered = memory_of(np.full((len(found), 10), 10.0)) if memory is None else memory
    table = pa.Table.from_pylist([NIGHT | night for night in nights], OUTCOMES)
    return ToldDimension(
        remembered,
        decided,
        History([table], dimension, remembered.keys, DATE),
        2.0,
        family,
        each(np.array(NO)),
        each(refused_days),
        np.array([[0] * 23 + [7 * (at == 0)] for at in range(len(found))]),
    )


def quotas(
    messages: ToldDimension,
    octets: ToldDimension | None = None,
    *,
    pins: Sequence[Pin] = (),
    previous: Snapshot | None = None,
    shares: Any = None,
) -> tuple[dict[str, Quota], dict[str, Any]]:
    """By topic; bytes as they are told of, else without a quota."""
    keys = messages.memory.keys
    both = {"messages": messages, "bytes": octets or told([NO] * len(keys), dimension="bytes")}
    facts = {dimension: Facts(dimension, each) for dimension, each in both.items()}
    made = Quotas(keys, facts, pins, previous, DATE, Parameters(), shares or [{}] * len(keys))
    found = list(made)
    assert [quota.topic for quota in found] == sorted({quota.topic for quota in found})
    return {quota.topic: quota for quota in found}, made.list_topics()


def pin(topic: str, messages: Any = (7.0, 80), octets: Any = None, until: str | None = None) -> Pin:
    return Pin("rocketmq", topic, messages, octets, "contract", until)


def test_a_rate_is_published_with_six_digits() -> None:
    assert round_rate(1234567.8) == 1234570
    assert round_rate(0.000012345) == 0.000012
    assert round_rate(1 / 3) == 0.333333
    assert round_rate(1e30) == MAX_PER_SECOND


def test_a_quota_has_both_dimensions_its_factor_of_the_hour_and_the_reason() -> None:
    found, lists = quotas(
        told([40.0, 1 / 3]), told([9000.0, NO], dimension="bytes", hourly=0.25), shares=[{"a": 2 / 3, "b": 1 / 3}, {}]
    )  # fmt: skip
    first, second = found["t0"], found["t1"]
    assert (first.messages, first.bytes, first.hourly_messages, first.hourly_bytes) == ((40, 400), (9000, 90_000), 1.5, 0.25)
    assert (second.messages, second.bytes, second.hourly_bytes) == ((0.333333, 3), None, None)
    assert (first.evidence["status"], first.evidence["reason"]) == (
        "quota",
        "10/s expected \u00d7 2 for its busiest seconds \u00d7 2 for safety",
    )
    assert first.evidence["reason_bytes"] == "2.2 KiB/s expected \u00d7 2 for its busiest seconds \u00d7 2 for safety"
    assert second.evidence["reason_bytes"] == "learning: nothing is known of it yet; the rule of the file stands"
    assert first.evidence["gateways"] == {"a": 0.6667, "b": 0.3333}
    assert lists == {"learning": [], "held": [], "pinned": []}


@pytest.mark.parametrize(("hourly", "published"), [(0.0, None), (-1.0, None), (1e6, None), (NO, None), (12.3456789, 12.3457)])
def test_a_factor_that_raises_nothing_or_all_is_left_out(hourly: float, published: float | None) -> None:
    found, _ = quotas(told([40.0], hourly=hourly))
    assert found["t0"].hourly_messages == published


def test_a_burst_is_a_token_at_least_and_no_more_than_a_snapshot_holds() -> None:
    found, _ = quotas(told([1.0, 1.0], bursts=[0.0, 1e30]))
    assert [quota.messages for quota in found.values()] == [(1, 1), (1, MAX_PER_SECOND)]


def test_a_quota_below_what_was_computed_names_the_ceiling_or_the_capacity() -> None:
    """81.7/s x 5.32 x 2 was the reason of a quota of 300/s, which no reader could see why."""
    found, lists = quotas(told([3.0]))
    assert found["t0"].evidence["reason"] == (
        "0.75/s expected \u00d7 2 for its busiest seconds \u00d7 2 for safety = 7/s; the ceiling or the capacity leaves it 3/s"
    )
    assert (found["t0"].evidence["status"], lists["held"]) == ("quota", [])


def test_what_a_topic_is_learning_and_held_for_is_told_and_listed() -> None:
    memory = memory_of([[0.0, 0.0, 1.0], [1.0, 0.0, 1.0], [NO, NO, NO], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    found, lists = quotas(told([NO, NO, NO, 10.0, 10.0], memory=memory, learning=[True, True, False, False, False], held=[0, 0, 0, 1, -1]))
    assert set(found) == {"t3", "t4"}
    reasons = {entry["topic"]: entry["reason"] for entry in [*lists["learning"], *lists["held"]]}
    assert reasons == {
        "t0": "learning: seen on 1 day; the rule of the file stands",
        "t1": "learning: seen on 2 days; the rule of the file stands",
        "t2": "learning: nothing is known of it yet; the rule of the file stands",
        "t3": "2.5/s expected \u00d7 2 for its busiest seconds \u00d7 2 for safety = 7/s; one night may move it no further than to 10/s",
        "t4": "2.5/s expected \u00d7 2 for its busiest seconds \u00d7 2 for safety = 7/s; one night may move it no further than to 10/s",
    }
    assert [found[topic].evidence["status"] for topic in ("t3", "t4")] == ["held", "held"]
    assert {entry["protocol"] for entry in lists["learning"]} == {"rocketmq"}


def test_another_rule_is_the_reason_where_it_was_chosen() -> None:
    found, _ = quotas(told([10.0], family="max_7"))
    assert found["t0"].evidence["reason"] == "max_7 at the same reserve as the method"


def test_a_pin_wins_in_its_dimension_and_the_other_stays_as_computed() -> None:
    messages, octets = told([40.0, 40.0, 40.0]), told([9000.0, 9000.0, 9000.0], dimension="bytes")
    pins = [pin("t0", (7.1234567, 80)), pin("t1", None, (1000.0, 5000)), pin("t2", until=DATE)]
    found, lists = quotas(messages, octets, pins=pins)
    assert (found["t0"].messages, found["t0"].bytes, found["t0"].hourly_messages) == ((7.12346, 80), (9000, 90_000), None)
    assert (found["t1"].messages, found["t1"].bytes, found["t1"].hourly_bytes) == ((40, 400), (1000, 5000), None)
    assert (found["t1"].hourly_messages, found["t0"].hourly_bytes) == (1.5, 1.5)
    reasons = [(found[topic].evidence["reason"], found[topic].evidence["reason_bytes"]) for topic in ("t0", "t1")]
    assert reasons == [
        ("pinned: contract", "2.2 KiB/s expected \u00d7 2 for its busiest seconds \u00d7 2 for safety"),
        ("10/s expected \u00d7 2 for its busiest seconds \u00d7 2 for safety", "pinned: contract"),
    ]  # fmt: skip
    assert [found[topic].evidence["status"] for topic in ("t0", "t1", "t2")] == ["pinned", "pinned", "quota"]
    assert [(entry["topic"], entry["reason"]) for entry in lists["pinned"]] == [("t0", "contract"), ("t1", "contract")]
    assert found["t2"].messages == (40, 400), "its pin ends with the day"


def test_a_pin_is_a_quota_of_a_topic_that_is_learning_or_was_never_seen() -> None:
    found, lists = quotas(told([NO, NO], learning=True), pins=[pin("later"), pin("t1", None, (1000.0, 5000))])
    assert set(found) == {"t1", "later"}
    assert (found["t1"].messages, found["t1"].bytes) == (None, (1000, 5000))
    assert found["later"] == Quota(
        "rocketmq", "later", (7.0, 80), None, {"status": "pinned", "reason": "pinned: contract", "would_refuse": None}
    )  # fmt: skip
    assert sorted((entry["topic"], entry["reason"]) for entry in lists["pinned"]) == [("later", "contract"), ("t1", "contract")]


def test_what_no_remembered_day_has_seen_is_kept_once_and_marked() -> None:
    before = [
        Quota("rocketmq", topic, (5.0, 50), (6.0, 60), {"status": "quota", "days": 3, "would_refuse": 0.5, "week_ago": 4})
        for topic in ("gone", "pinned", "t0", "t1")
    ]
    found, _ = quotas(told([40.0, NO], learning=[False, True]), pins=[pin("pinned")], previous=Snapshot("", "", quotas=tuple(before)))
    assert set(found) == {"gone", "pinned", "t0"}, "one that is learning again has the rule of the file"
    assert (found["gone"].messages, found["gone"].bytes) == ((5, 50), (6, 60))
    assert found["gone"].evidence == {
        "status": "kept", "days": 3, "would_refuse": None, "week_ago": None,
        "reason": "kept: not seen for 60 days; delete it by hand if the topic is gone",
    }  # fmt: skip
    assert (found["t0"].messages, found["pinned"].messages) == ((40, 400), (7, 80))


def test_a_known_topic_that_is_written_otherwise_in_the_quotas_before_is_not_kept_beside_itself() -> None:
    before = Snapshot("", "", quotas=tuple(Quota("amqp", f"%2F/x/{key}", (5.0, 50)) for key in ("a:b", "c")))
    assert [each.topic for each in keep_unseen_quotas(before, {("amqp", "%2F/x/a%3Ab")}, 60)] == ["%2F/x/c"]


def test_the_evidence_has_the_figures_that_a_person_reads() -> None:
    mean = np.array([[1.0] * 3 + [2.0] * 7, [NO] * 10])
    nights = [{"topic": "t0", "offered": 300, "refused": 100.0}]
    found, _ = quotas(told([40.0, 8.0], memory=memory_of(mean), nights=nights))
    evidence: dict[str, Any] = found["t0"].evidence
    expected = {"days": 10, "largest": 1, "mean": 2, "p99": 5, "max": 6, "forecast": 10, "peakiness": 2, "k": 2, "family": "quota"}
    assert {name: evidence[name] for name in expected} == expected
    assert evidence["would_refuse"] == 0.333333
    assert (evidence["nights7"]["nights"], evidence["nights28"]["refused"], evidence["week_ago"]) == (1, 100, None)
    assert len(evidence["series"]) == 1
    unknown: dict[str, Any] = found["t1"].evidence
    assert (evidence["refused_hours"], unknown["refused_hours"]) == ([0] * 23 + [7], []), "of one that was not refused there are no hours"
    assert (unknown["mean"], unknown["p99"], unknown["max"], unknown["would_refuse"]) == (None, None, 0, None)
