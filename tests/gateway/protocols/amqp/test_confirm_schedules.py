"""Confirms never lie: schedules of a pretend client and a pretend broker through whole conversations (`support/amqp/confirm_schedules.py`).

Promises: each publish is acked or nacked at most once; an ack only if the broker acked that very publish, a nack only if the broker
nacked it or never gets it; no tag the client has not used; nothing outstanding for ever; never a multiple that covers a refused publish or
nothing but its own tag; a return before its nack; the gateway's words never within another message of their channel; per channel the
broker sees everything in the order it was said, no half message, and only what the protocol allows on a channel's life.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.protocols.amqp.confirms import TRIM_AFTER_STEPS
from support.amqp.confirm_schedules import Schedule, play
from support.builds import build_of

SCHEDULES = 10_000 if build_of("gateway.protocols.amqp.confirms")[0] == "compiled" else 5_000  # interpreted, one takes 0.6 ms
EXAMPLES = 250


def play_many(seed: int, channels: int, acts: int, count: int) -> None:
    """`count` schedules; a failure names the one to play again."""
    numbers = Random(seed)
    for _ in range(count):
        chosen = numbers.getrandbits(48), numbers.randint(1, channels), numbers.randint(1, acts)
        try:
            play(*chosen)
        except Exception as error:
            error.add_note(f"again with: play{chosen}")
            raise


@pytest.mark.parametrize("schedules", [SCHEDULES])
def test_confirms_never_lie(schedules: int) -> None:
    """Hypothesis draws where the seeds begin and how large schedules may be; each example plays many of them."""

    @settings(deadline=None, max_examples=EXAMPLES)
    @given(seed=st.integers(0, 1 << 32), channels=st.integers(1, 4), acts=st.integers(5, 60))
    @example(seed=1, channels=1, acts=8)
    def examples(seed: int, channels: int, acts: int) -> None:
        play_many(seed, channels, acts, schedules // EXAMPLES)

    examples()


def test_confirms_of_channels_that_live_long_do_not_lie_either() -> None:
    """Steps are forgotten 64 at a time (`TRIM_AFTER_STEPS`), and a schedule of 60 acts passes fewer refusals."""
    nacked = []
    for seed in range(6):
        schedule = Schedule(Random(seed), 1, 5_000, long_lived=True)
        schedule.run()
        nacked.append(schedule.client.sides[1].nacked)
    assert sorted(nacked)[2] > 3 * TRIM_AFTER_STEPS


@pytest.mark.parametrize(
    ("seed", "channels", "acts"),
    [
        pytest.param(2392, 2, 24, id="the broker closes a channel in the middle of a refused message: its rest reached the broker alone"),
        pytest.param(4126, 3, 13, id="both close a held channel: the client's own close came behind its close-ok"),
        pytest.param(1146402, 3, 27, id="close-ok, open, publish and close in one read: half messages were forwarded"),
    ],
)
def test_schedules_that_once_failed(seed: int, channels: int, acts: int) -> None:
    assert play(seed, channels, acts) > 0
