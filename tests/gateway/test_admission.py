"""Admission: exact counts, whatever the order of coming and going, and refusals that take nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.descriptors import MAX_REJECTING, OWN, room_for_connections, share_of
from gateway.admission import (
    BY_ADDRESS,
    BY_ALL,
    BY_DESCRIPTORS,
    BY_RATE,
    BY_USER,
    Admission,
    ArrivalRate,
    ConnectionLimits,
    ConnectionPermit,
    ConnectionSlots,
    RefusedError,
)
from limiter.limits import Rate

S = 1_000_000_000


def admission(limits: ConnectionLimits, slots: ConnectionSlots | None = None) -> Admission:
    return Admission("rabbit", limits, slots or ConnectionSlots.unbounded())


def refused(call: object, *arguments: object) -> tuple[str, str]:
    assert callable(call)
    with pytest.raises(RefusedError) as caught:
        call(*arguments)
    return caught.value.cause, str(caught.value)


def test_the_listeners_limit_names_itself_and_a_released_permit_is_free() -> None:
    door = admission(ConnectionLimits(connections=2))
    first, _ = door.admit("10.0.0.1", 0), door.admit("10.0.0.2", 0)
    cause, text = refused(door.admit, "10.0.0.3", 0)
    assert (cause, text) == (BY_ALL, "max_connections of listener rabbit (2) is reached; close some connections or raise it")
    first.release()
    first.release()  # twice is once
    assert door.admitted == 1
    door.admit("10.0.0.3", 0)
    assert refused(door.admit, "10.0.0.4", 0)[0] == BY_ALL


def test_an_address_has_its_own_limit_and_is_checked_first() -> None:
    door = admission(ConnectionLimits(connections=2, per_address=2))
    permits = [door.admit("10.0.0.1", 0) for _ in range(2)]
    cause, text = refused(door.admit, "10.0.0.1", 0)
    assert (cause, text) == (
        BY_ADDRESS,
        "max_connections_per_address of listener rabbit (2) is reached by 10.0.0.1; close some connections or raise it",
    )
    assert refused(door.admit, "10.0.0.2", 0)[0] == BY_ALL
    for permit in permits:
        permit.release()
    assert door.by_address == {}


def test_an_address_told_later_counts_from_then_and_the_seat_stays_until_it_is_left() -> None:
    door = admission(ConnectionLimits(per_address=1))
    first, second = door.admit(None, 0), door.admit(None, 0)
    first.take_address("10.0.0.1")
    assert refused(second.take_address, "10.0.0.1")[0] == BY_ADDRESS
    assert (door.admitted, door.by_address) == (2, {"10.0.0.1": 1})
    second.release()
    assert (door.admitted, door.by_address) == (1, {"10.0.0.1": 1})


def test_a_user_has_a_cap_over_all_addresses() -> None:
    door = admission(ConnectionLimits(per_user=1))
    first, second = door.admit("10.0.0.1", 0), door.admit("10.0.0.2", 0)
    first.take_user("shop")
    cause, text = refused(second.take_user, "shop")
    assert cause == BY_USER
    reached = "max_connections_per_user of listener rabbit (1) is reached; close some connections or raise it"
    assert text == f"connection refused for user 'shop': {reached}"
    second.release()
    first.release()
    assert (door.admitted, door.by_user) == (0, {})


def test_texts_stay_within_what_a_reply_text_may_be() -> None:
    limits = ConnectionLimits(connections=10**7, per_address=1, per_user=1)
    door = Admission("x" * 100, limits, ConnectionSlots.unbounded())
    permit = door.admit("f" * 45, 0)
    permit.take_user("\U0001f430" * 300)
    texts = [refused(door.admit, "f" * 45, 0)[1], refused(door.admit(None, 0).take_user, "\U0001f430" * 300)[1]]
    assert all(text.isascii() for text in texts)
    assert len("CONNECTION_FORCED - " + texts[0]) <= 255


def test_the_rate_lets_a_seconds_worth_in_at_once_then_one_at_a_time() -> None:
    door = admission(ConnectionLimits(rate=Rate(10)))
    for _ in range(10):
        door.admit("10.0.0.1", 0)
    cause, text = refused(door.admit, "10.0.0.1", 0)
    assert (cause, text) == (BY_RATE, "more than 10/s new connections to listener rabbit (max_connection_rate); try again in 100 ms")
    assert refused(door.admit, "10.0.0.1", S // 10 - 1)[0] == BY_RATE
    door.admit("10.0.0.1", S // 10)


@pytest.mark.parametrize("rate", [Rate(10, 60 * S), Rate(1), Rate(3)])
@pytest.mark.parametrize("days", [1, 100, 1000])
def test_a_rate_is_exact_on_a_machine_that_is_up_for_long(rate: Rate, days: int) -> None:
    now = days * 86_400 * S
    for odd in range(0, S, 8_123_457):
        arrivals = ArrivalRate(rate)
        for _ in range(max(1, rate.amount * S // rate.per_ns)):
            assert arrivals.wait_ns(now + odd) == 0, "nobody has come yet"
            arrivals.spend(now + odd)
        wait = arrivals.wait_ns(now + odd)
        assert wait == -(-rate.per_ns // rate.amount)
        assert arrivals.wait_ns(now + odd + wait) == 0, "as it has promised"


def test_the_slowest_rate_fits_its_cell() -> None:
    arrivals = ArrivalRate(Rate(1, 10**30))
    assert arrivals.wait_ns(S) == 0
    arrivals.spend(S)
    assert arrivals.wait_ns(2 * S) > 10**18


def test_a_rate_of_zero_promises_no_time() -> None:
    assert refused(admission(ConnectionLimits(rate=Rate(0))).admit, "10.0.0.1", 0)[1].endswith("raise it")


def test_a_client_refused_by_a_cap_spends_no_token_of_the_rate() -> None:
    door = admission(ConnectionLimits(connections=1, rate=Rate(2)))
    permit = door.admit("10.0.0.1", 0)
    for _ in range(5):
        assert refused(door.admit, "10.0.0.1", 0)[0] == BY_ALL
    permit.release()
    door.admit("10.0.0.1", 0)


def test_descriptors_are_shared_by_all_listeners() -> None:
    slots = ConnectionSlots(2, 1024)
    one, other = admission(ConnectionLimits(), slots), admission(ConnectionLimits(), slots)
    permit = one.admit("10.0.0.1", 0)
    other.admit("10.0.0.1", 0)
    cause, text = refused(other.admit, "10.0.0.1", 0)
    assert cause == BY_DESCRIPTORS
    assert text == "this gateway's limit of open files (1024) leaves room for 2 connections; raise it (ulimit -n)"
    permit.release()
    other.admit("10.0.0.1", 0)


def test_descriptors_are_left_for_the_admin_api_and_for_clients_being_refused() -> None:
    assert room_for_connections(1024, 2) == 304
    assert room_for_connections(100, 4) == 1
    assert room_for_connections(1024, 2, brokers=20) == 284


CAPS = ConnectionLimits(connections=6, per_address=3, per_user=2)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("come"), st.sampled_from("abc")),
            st.tuples(st.just("user"), st.integers(0, 9)),
            st.tuples(st.just("go"), st.integers(0, 9)),
        ),
        max_size=60,
    )
)
def test_counts_are_those_of_the_seats_that_are_taken(steps: list[tuple[str, object]]) -> None:
    """Against a list of who is there."""
    door = admission(CAPS)
    there: list[tuple[ConnectionPermit, str, str | None]] = []
    for step, what in steps:
        if step == "come":
            assert isinstance(what, str)
            may = len(there) < 6 and sum(address == what for _, address, _ in there) < 3
            try:
                there.append((door.admit(what, 0), what, None))
                assert may
            except RefusedError:
                assert not may
        elif isinstance(what, int) and what < len(there):
            permit, address, user = there[what]
            if step == "go":
                permit.release()
                del there[what]
            elif user is None:
                may = sum(user == "u" for _, _, user in there) < 2
                try:
                    permit.take_user("u")
                    there[what] = (permit, address, "u")
                    assert may
                except RefusedError:
                    assert not may
        assert door.admitted == door.slots.taken == len(there)
        assert sum(door.by_address.values()) == len(there)
        assert set(door.by_address) == {address for _, address, _ in there}
        assert sum(door.by_user.values()) == sum(user is not None for _, _, user in there)
        assert 0 not in door.by_user.values()


@pytest.mark.parametrize("descriptors", [300, 1024, 2175, 2176, 65_536])
def test_clients_leave_free_what_the_admin_ports_may_hold(descriptors: int) -> None:
    """Whoever fills both ports takes no descriptor that a client was promised."""
    room = 2 * room_for_connections(descriptors, 1) + MAX_REJECTING + OWN
    assert room + share_of(descriptors).total <= descriptors
    assert room + share_of(descriptors).total >= descriptors - 1, "or fewer clients are let in than there is room for"
