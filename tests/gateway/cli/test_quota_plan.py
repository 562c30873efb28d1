"""What publishing would change, and the guard rails."""

from __future__ import annotations

import pytest

from gateway.cli.quota_plan import FEW, Rails, plan, shown_burst, shown_rate
from limiter.quota_snapshot import Quota, Snapshot

RAILS = Rails(changed_share=0.5, total_share=0.3, ratio=2)


def snapshot(**rates: float) -> Snapshot:
    quotas = tuple(Quota("rocketmq", topic, (rate, int(rate) or 1)) for topic, rate in rates.items())
    return Snapshot("2026-11-21T01:00:00Z", "0.1.0", quotas=quotas)


def many(count: int, rate: float = 100) -> dict[str, float]:
    return {f"t{number}": rate for number in range(count)}


@pytest.mark.parametrize(
    ("live", "new", "kinds"),
    [
        ({}, {}, []),
        ({"a": 1}, {"a": 1}, []),
        ({}, {"a": 1}, ["added"]),
        ({"a": 1, "b": 1}, {"a": 1}, ["removed"]),
        ({"a": 10}, {"a": 11}, ["changed"]),
    ],
)
def test_differences(live: dict[str, float], new: dict[str, float], kinds: list[str]) -> None:
    assert [each.kind for each in plan(snapshot(**live), snapshot(**new), RAILS).differences] == kinds


def test_the_first_publication_has_no_rails() -> None:
    assert plan(snapshot(), snapshot(**many(100)), RAILS).tripped == ()


@pytest.mark.parametrize(
    ("before", "after", "trips"),
    [(100, 200, False), (100, 201, False), (100, 203, True), (100, 50, False), (100, 49, True), (0, 1, True), (1, 0, True), (0, 0, False)],
)
def test_no_quota_moves_by_more_than_the_ratio(before: float, after: float, trips: bool) -> None:
    assert bool(plan(snapshot(a=before), snapshot(a=after), RAILS).tripped) is trips


@pytest.mark.parametrize(("changed", "trips"), [(10, False), (11, True)])
def test_not_too_many_change(changed: int, trips: bool) -> None:
    new = {**many(FEW), **many(changed, 101)}
    found = plan(snapshot(**many(FEW)), snapshot(**new), RAILS)
    assert bool(found.tripped) is trips
    if trips:
        assert found.tripped == ("11 of 20 quotas would change, more than 50%",)


@pytest.mark.parametrize(("added", "trips"), [(6, False), (7, True)])
def test_the_sum_does_not_move_too_far(added: int, trips: bool) -> None:
    found = plan(snapshot(**many(FEW)), snapshot(**many(FEW + added)), RAILS)
    assert bool(found.tripped) is trips
    if trips:
        assert found.tripped == ("the sum of all messages rates would go from 2000/s to 2700/s, by more than 30%",)


def test_shares_say_little_of_few_topics() -> None:
    assert plan(snapshot(**many(3)), snapshot(**many(3, 150)), RAILS).tripped == ()


def test_a_snapshot_without_quotas_never_empties_the_gateway_unseen() -> None:
    assert plan(snapshot(a=1), snapshot(), RAILS).tripped == ("all 1 quotas would be removed",)


def test_bytes_have_rails_too() -> None:
    live = Snapshot("x", "y", quotas=(Quota("rocketmq", "a", None, (100, 100)),))
    new = Snapshot("x", "y", quotas=(Quota("rocketmq", "a", None, (500, 100)),))
    assert plan(live, new, RAILS).tripped == ("rocketmq a: bytes would go from 100B/s to 500B/s, by more than a factor of 2",)


@pytest.mark.parametrize(
    ("dimension", "each_second", "shown"),
    [("bytes", 26214400.0, "25MiB/s"), ("messages", 2000000.0, "2000000/s"), ("messages", 2.5, "2.5/s"), ("messages", 0.0, "0/s")],
)
def test_rates_are_written_as_limits_are(dimension: str, each_second: float, shown: str) -> None:
    assert shown_rate(dimension, each_second) == shown


def test_bursts_of_bytes_are_sizes() -> None:
    assert (shown_burst("bytes", 2097152), shown_burst("messages", 2097152), shown_burst("bytes", None)) == ("2MiB", "2097152", None)
