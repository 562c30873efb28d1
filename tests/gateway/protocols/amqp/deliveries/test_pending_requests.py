"""What a channel has asked the broker for: answers find it in order, and what is beyond the bound is counted."""

from __future__ import annotations

import pytest

from gateway.protocols.amqp.deliveries.pending_requests import PendingRequest, PendingRequests
from gateway.protocols.amqp.deliveries.subscription import Declared
from limiter.reservation import Reservation


def request(tag: bytes = b"") -> PendingRequest:
    return PendingRequest(Declared(b"q"), tag, no_ack=False)


def close() -> PendingRequest:
    """The mark of the client's channel.close."""
    return PendingRequest(None, b"", no_ack=False)


@pytest.fixture
def pending() -> PendingRequests:
    return PendingRequests()


def kept(pending: PendingRequests, *requests: PendingRequest) -> None:
    for each in requests:
        pending.put(each)


def test_each_is_answered_in_its_turn_and_those_beyond_are_unknown(pending: PendingRequests) -> None:
    first, second = request(), request()
    kept(pending, first, second)
    pending.beyond = 2
    pending.put(request())
    assert pending.beyond == 3
    assert [pending.answer() for _ in range(6)] == [first, second, None, None, None, None]
    assert pending.beyond == 0
    pending.put(first)
    assert pending.answer() is first


def test_a_tag_finds_its_own_or_the_first_whose_tag_the_broker_makes(pending: PendingRequests) -> None:
    named, made, later = request(b"c"), request(), request()
    kept(pending, made, later, named)
    assert [pending.answer_tag(tag) for tag in (b"c", b"amq.1", b"amq.2")] == [named, made, later]
    pending.beyond = 2
    for left in (1, 0, 0):
        assert (pending.answer_tag(b"x"), pending.beyond) == (None, left)
    kept(pending, named)
    pending.beyond = 1
    assert (pending.answer_tag(b"x"), pending.beyond) == (None, 1), "those that are kept are answered before those that are not"


def test_behind_the_clients_close_are_those_of_another_channel(pending: PendingRequests) -> None:
    before, behind = request(), request(b"c")
    kept(pending, before, close())
    assert pending.closes()
    pending.put(behind)
    assert pending.answer_tag(b"c") is before
    assert pending.answer_tag(b"c") is None
    pending.forget_closed()
    assert not pending.closes()
    assert pending.answer_tag(b"c") is behind


def test_when_nothing_is_left_behind_a_close_what_was_beyond_is_forgotten(pending: PendingRequests) -> None:
    kept(pending, request(), close())
    pending.beyond = 3
    pending.forget_closed()
    assert pending.beyond == 0
    kept(pending, request(), close(), request())
    pending.beyond = 3
    pending.forget_closed()
    assert pending.beyond == 3


def test_a_get_is_found_by_what_it_has_reserved(pending: PendingRequests) -> None:
    reservation = Reservation(1, 100)
    get = request()
    get.reservation = reservation
    kept(pending, request(), get)
    assert pending.of(reservation) is get
    assert pending.of(Reservation(1, 100)) is None
