"""Credit: `docs/design/limiter.md` 6."""

from __future__ import annotations

import pytest

from limiter.credit import Credit

SECOND = 1_000_000_000
BEGIN = 3 * SECOND


def test_defaults_are_rabbitmqs() -> None:
    assert (Credit().initial, Credit().more_after) == (400, 200)


@pytest.mark.parametrize(("initial", "more_after"), [(400, 0), (400, 401), (0, 0), (-1, -2)])
def test_a_credit_needs_more_after_to_be_positive_and_at_most_initial(initial: int, more_after: int) -> None:
    with pytest.raises(ValueError, match="0 < more_after <= initial"):
        Credit(initial, more_after)


def test_it_blocks_when_spent_and_opens_with_the_next_lot() -> None:
    credit = Credit(10, 5)
    credit.spend(9, BEGIN)
    assert not credit.blocked
    credit.spend(1, BEGIN)
    assert (credit.blocked, credit.credit) == (True, 0)
    credit.handle(4, BEGIN)
    assert credit.blocked
    credit.handle(1, BEGIN + 7)
    assert (credit.blocked, credit.credit, credit.blocked_ns(BEGIN + 100)) == (False, 5, 7)


def test_grants_come_in_lots_and_nothing_is_lost_between() -> None:
    credit = Credit(1000, 300)
    credit.spend(1000, BEGIN)
    credit.handle(650, BEGIN)
    assert credit.credit == 600
    credit.handle(250, BEGIN)
    assert credit.credit == 900
    credit.handle(100, BEGIN)
    assert credit.credit == 900


def test_a_batch_may_overdraw_and_must_be_handled_first() -> None:
    credit = Credit(10, 5)
    credit.spend(22, BEGIN)
    credit.handle(10, BEGIN)
    assert (credit.credit, credit.blocked) == (-2, True)
    credit.handle(5, BEGIN)
    assert (credit.credit, credit.blocked) == (3, False)


def test_a_blocked_stage_defers_its_grants_until_it_is_not() -> None:
    """The pressure of a slow broker reaches the reader, and it is let go again without another message."""
    reader = Credit(10, 5)
    forwarder = Credit(10, 5, reader)
    reader.spend(10, BEGIN)
    forwarder.spend(10, BEGIN)
    reader.handle(10, BEGIN, blocked=forwarder.blocked)
    assert (reader.credit, reader.blocked) == (0, True)
    forwarder.handle(5, BEGIN + SECOND)
    assert (forwarder.blocked, reader.blocked, reader.credit) == (False, False, 10)


def test_pressure_travels_through_all_stages() -> None:
    first = Credit(4, 2)
    second = Credit(4, 2, first)
    third = Credit(4, 2, second)
    for account in (first, second, third):
        account.spend(4, BEGIN)
    first.handle(4, BEGIN, blocked=second.blocked)
    second.handle(4, BEGIN, blocked=third.blocked)
    assert [account.blocked for account in (first, second, third)] == [True, True, True]
    third.handle(4, BEGIN + 5)
    assert [account.credit for account in (first, second, third)] == [4, 4, 4]


def test_grants_still_deferred_are_given_with_a_later_lot() -> None:
    credit = Credit(10, 5)
    credit.spend(10, BEGIN)
    credit.handle(5, BEGIN, blocked=True)
    assert credit.credit == 0
    credit.handle(5, BEGIN, blocked=False)
    assert credit.credit == 10


def test_flow_is_shown_for_a_second_after_the_last_block() -> None:
    credit = Credit(1, 1)
    assert not credit.flow(BEGIN)
    credit.spend(1, BEGIN)
    assert credit.flow(BEGIN + 100 * SECOND)
    credit.handle(1, BEGIN + 100 * SECOND)
    assert credit.flow(BEGIN + 101 * SECOND - 1)
    assert not credit.flow(BEGIN + 101 * SECOND)


def test_time_blocked_is_a_counter_that_includes_the_present() -> None:
    credit = Credit(1, 1)
    credit.spend(1, BEGIN)
    assert credit.blocked_ns(BEGIN + 30) == 30
    credit.handle(1, BEGIN + 40)
    credit.spend(1, BEGIN + 100)
    assert credit.blocked_ns(BEGIN + 105) == 45


def test_repr() -> None:
    assert repr(Credit(10, 5)) == "<Credit open 10/10 deferred=0>"
