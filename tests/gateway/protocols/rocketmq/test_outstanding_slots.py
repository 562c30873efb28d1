"""Sends that hold slots, by opaque: bounded, and in the order in which they went where nobody answers."""

from __future__ import annotations

from gateway.protocols.rocketmq.outstanding import LATE_NS, MAX_SENDS_COUNTED, Outstanding
from limiter.algorithms.slots import GIVEN_UP
from limiter.in_flight import Flight


def flying(count: int, since: int) -> Flight:
    flight = Flight([], count)
    flight.since = since
    return flight


def test_sends_that_a_broker_never_answers_are_bounded() -> None:
    outstanding = Outstanding()
    outstanding.track_sends(flying(MAX_SENDS_COUNTED + 3, 1), list(range(MAX_SENDS_COUNTED + 3)))
    assert [(ending.count, ending.outcome) for ending in outstanding.endings] == [(3, GIVEN_UP)]


def test_only_late_sends_are_given_up() -> None:
    outstanding = Outstanding()
    outstanding.track_sends(flying(2, 1000), [1, 2])
    outstanding.track_sends(flying(1, 2000), [3])
    outstanding.track_sends(flying(1, 0), [4])  # not forwarded yet
    outstanding.release_late_slots(1000 + LATE_NS)
    assert outstanding.endings == []
    outstanding.release_late_slots(1001 + LATE_NS)
    assert [(ending.count, ending.outcome) for ending in outstanding.endings] == [(2, GIVEN_UP)]
    outstanding.release_late_slots(10 * LATE_NS)
    assert list(outstanding.sends) == [4]
