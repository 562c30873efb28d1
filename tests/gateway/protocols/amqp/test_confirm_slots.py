"""Publishes that hold slots, by delivery tag: against a plain model, and bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.amqp.confirm_slots import MAX_PUBLISHES_COUNTED, ConfirmSlots
from limiter.algorithms.slots import ANSWERED, BUSY, FAILED, GIVEN_UP
from limiter.in_flight import Ending, Flight


def ended(endings: list[Ending]) -> list[tuple[int, int]]:
    """(how many, how) of each, adding up neighbours."""
    return [(ending.count, ending.outcome) for ending in endings]


@given(
    runs=st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=12),
    confirms=st.lists(st.tuples(st.integers(-2, 40), st.booleans(), st.booleans()), max_size=20),
)
def test_each_confirm_ends_just_what_it_confirms(runs: list[tuple[int, bool]], confirms: list[tuple[int, bool, bool]]) -> None:
    """Runs that hold slots stand between others that hold none."""
    endings: list[Ending] = []
    slots = ConfirmSlots(endings)
    forwarded = 0
    open_tags: dict[int, Flight] = {}
    for count, counted in runs:
        if counted:
            flight = Flight([], count)
            slots.forward(flight, forwarded + 1)
            open_tags |= dict.fromkeys(range(forwarded + 1, forwarded + count + 1), flight)
        forwarded += count
    for tag, multiple, acked in confirms:
        endings.clear()
        slots.confirm(tag, forwarded, multiple=multiple, acked=acked)
        said = [each for each in open_tags if (each <= tag if multiple else each == tag)] if tag <= forwarded else []
        assert sum(ending.count for ending in endings) == len(said)
        assert {ending.outcome for ending in endings} <= {ANSWERED if acked else FAILED}
        assert {id(ending.flight) for ending in endings} == {id(open_tags.pop(each)) for each in said}
    endings.clear()
    slots.lose()
    assert sum(ending.count for ending in endings) == len(open_tags)
    assert {ending.outcome for ending in endings} <= {GIVEN_UP}


def test_a_blocked_broker_is_reported_once_for_each_flight_and_ends_none() -> None:
    endings: list[Ending] = []
    slots = ConfirmSlots(endings)
    for first, flight in ((1, Flight([], 3)), (4, Flight([], 2))):
        slots.forward(flight, first)
    slots.report_busy()
    assert ended(endings) == [(0, BUSY), (0, BUSY)]


def test_publishes_that_a_broker_never_confirms_are_bounded() -> None:
    endings: list[Ending] = []
    slots = ConfirmSlots(endings)
    slots.forward(Flight([], MAX_PUBLISHES_COUNTED - 1), 1)
    slots.forward(Flight([], 5), MAX_PUBLISHES_COUNTED)
    assert ended(endings) == [(4, GIVEN_UP)]
