"""Channels closed by client, gateway and broker in every order: nobody is told anything twice or waits for ever, every number lives on."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.amqp.close_schedules import CloseSchedule


@settings(deadline=None, max_examples=250)
@given(st.integers(0, 1 << 48), st.sampled_from(("close", "reject", "delay")), st.integers(20, 200))
@example(1, "close", 2000)
def test_in_every_order_of_closes_each_side_gets_what_the_specification_promises(seed: int, action: str, steps: int) -> None:
    CloseSchedule(seed, action).run(steps)


def test_channels_are_closed_by_all_three_sides_and_at_the_same_time() -> None:
    """Or the schedules would prove nothing."""
    schedule = CloseSchedule(7, "close")
    schedule.run(4000)
    assert schedule.closes > 10
    assert schedule.crossings > 5
