"""Channels closed by client, gateway and broker in every order: nobody is told anything twice or waits for ever, every number lives on."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.closing_dance import Dance


@settings(deadline=None, max_examples=250)
@given(st.integers(0, 1 << 48), st.sampled_from(("close", "reject", "delay")), st.integers(20, 200))
@example(1, "close", 2000)
def test_in_every_order_of_closes_each_side_gets_what_the_specification_promises(seed: int, action: str, steps: int) -> None:
    Dance(seed, action).play(steps)


def test_the_dance_is_danced() -> None:
    """The model closes channels often, from all three sides, or it would prove nothing."""
    dance = Dance(7, "close")
    dance.play(4000)
    assert dance.closes > 10
    assert dance.crossings > 5
