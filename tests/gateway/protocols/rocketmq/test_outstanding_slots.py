"""Sends that hold slots, by opaque: bounded, in their order, and ended by what the broker answers."""

from __future__ import annotations

import pytest

from gateway.protocols.rocketmq.broker_stream import BrokerStream
from gateway.protocols.rocketmq.outstanding import LATE_NS, MAX_SENDS_COUNTED, Outstanding
from limiter.algorithms.slots import ANSWERED, BUSY, FAILED, GIVEN_UP
from limiter.in_flight import Flight
from support.cases import in_one_loop
from support.rocketmq.frames import binary_header, frame, response


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


@in_one_loop
@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (0, ANSWERED),
        (10, ANSWERED),  # FLUSH_DISK_TIMEOUT: it is stored, the disk was slow
        (11, ANSWERED),  # SLAVE_NOT_AVAILABLE
        (12, ANSWERED),  # FLUSH_SLAVE_TIMEOUT
        (1, FAILED),
        (9, FAILED),
        (13, FAILED),  # MESSAGE_ILLEGAL
        (2, BUSY),  # SYSTEM_BUSY
    ],
)
@pytest.mark.parametrize("binary", [False, True])
def test_what_is_stored_is_no_refusal_however_slow_a_disk_or_a_replica_was(code: int, outcome: int, *, binary: bool) -> None:
    outstanding = Outstanding()
    outstanding.track_sends(flying(1, 1), [7])
    outstanding.count_requests(1)
    stream = BrokerStream(outstanding)
    out: list[bytes] = []
    stream.relay(frame(binary_header(code, None, opaque=7, flag=1), kind=1) if binary else response(7, code), out)
    assert [(ending.count, ending.outcome) for ending in outstanding.endings] == [(1, outcome)]
    assert outstanding.settled()


def test_each_send_of_an_opaque_that_is_used_again_gives_its_slot_back() -> None:
    """The first answer is for the oldest; the rest end together, by age or with the connection."""
    for end in ("late", "over"):
        outstanding = Outstanding()
        flights = [flying(1, 1000), flying(2, 2000), flying(1, 10 * LATE_NS)]
        for flight in flights:
            outstanding.track_sends(flight, [7] * flight.left)
        outstanding.look_at(response(7)[4:], 0, len(response(7)) - 4, 0)
        assert [flight.left for flight in flights] == [0, 2, 1]
        assert [(ending.count, ending.outcome) for ending in outstanding.endings] == [(1, ANSWERED)]
        if end == "late":
            outstanding.release_late_slots(2001 + LATE_NS)
            assert [flight.left for flight in flights] == [0, 0, 1]
        outstanding.release_all_slots()
        assert [flight.left for flight in flights] == [0, 0, 0]
        assert (outstanding.sends, outstanding.same_opaque) == ({}, {})
        assert sum(ending.count for ending in outstanding.endings) == 4
