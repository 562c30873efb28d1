"""Sends that hold slots, or whose answer the client has, by opaque: bounded, in their order, and ended by what the broker answers."""

from __future__ import annotations

import pytest

from gateway.protocols.rocketmq.broker_stream import BrokerStream
from gateway.protocols.rocketmq.outstanding import LATE_NS, MAX_ACCEPTED, MAX_SENDS_COUNTED, Outstanding
from limiter.algorithms.slots import ANSWERED, BUSY, FAILED, GIVEN_UP
from limiter.in_flight import Flight
from limiter.keys import Key, Origin
from limiter.topics import rocketmq_topic
from support.rocketmq.frames import binary_header, frame, response

KEY = Key(Origin("rocketmq", "rocket", "10.0.0.7", None, b""), rocketmq_topic(b"orders"), None, "produce")


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
    outstanding.track_accepted(KEY, [8], 3)
    outstanding.count_requests(2)
    stream = BrokerStream(outstanding)
    out: list[bytes] = []
    for opaque in (7, 8):
        stream.relay(frame(binary_header(code, None, opaque=opaque, flag=1), kind=1) if binary else response(opaque, code), out)
    assert [(ending.count, ending.outcome) for ending in outstanding.endings] == [(1, outcome)]
    late = [(each.key, each.messages, each.code) for each in outstanding.late_refusals]
    assert late == ([] if outcome == ANSWERED else [(KEY, 3, code)])
    assert outstanding.settled()


def test_of_too_many_accepted_sends_the_first_are_forgotten_with_all_their_messages() -> None:
    outstanding = Outstanding()
    outstanding.track_accepted(KEY, [1], 3, durable=True)
    outstanding.track_accepted(KEY, [2], 3)
    outstanding.track_accepted(KEY, list(range(3, MAX_ACCEPTED + 3)), 1)
    assert len(outstanding.accepted) == MAX_ACCEPTED
    assert outstanding.forgotten == 3, "one that is sent again after the connection's end is not lost"


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
