"""With a durable rule nothing that was committed vanishes, whenever the process ends and whatever of its last writes the disk has.

Schedules as in `test_spool_schedules.py`, cut off at a random moment; then the files are read as the replay does.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.amqp.crash_schedules import play, play_out
from support.builds import build_of

SCHEDULES = 4_000 if build_of("gateway.protocols.amqp.confirms")[0] == "compiled" else 2_000  # interpreted, one takes 3 ms
EXAMPLES = 100


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power"])
@pytest.mark.parametrize("schedules", [SCHEDULES])
def test_what_was_committed_has_arrived_or_is_replayed_in_order(schedules: int, tmp_path: Path, *, power: bool) -> None:
    committed = 0

    @settings(deadline=None, max_examples=EXAMPLES)
    @given(seed=st.integers(0, 1 << 32), channels=st.integers(1, 4), acts=st.integers(5, 60))
    @example(seed=1, channels=1, acts=8)
    def examples(seed: int, channels: int, acts: int) -> None:
        nonlocal committed
        numbers = Random(seed)
        for _ in range(schedules // EXAMPLES):
            one = numbers.getrandbits(48), numbers.randint(1, channels), numbers.randint(1, acts)
            try:
                committed += play(*one, tmp_path / "spool", power=power)
            except BaseException as error:
                error.add_note(f"again with: play{one}, power={power}")
                raise
            finally:
                shutil.rmtree(tmp_path / "spool", ignore_errors=True)

    examples()
    assert committed > schedules // 2, "hardly anything was committed: the schedules show nothing"


def test_in_good_order_nothing_is_left_but_what_a_closed_channel_gave_up(tmp_path: Path) -> None:
    for seed in range(1_000):
        try:
            play_out(seed, 1 + seed % 3, 10 + seed % 50, tmp_path / "spool")
        except BaseException as error:
            error.add_note(f"again with: play_out({seed}, {1 + seed % 3}, {10 + seed % 50})")
            raise
        finally:
            shutil.rmtree(tmp_path / "spool", ignore_errors=True)


def test_a_message_whose_end_did_not_have_to_wait_keeps_no_file(tmp_path: Path) -> None:
    """The last batch ends within it; found by chance."""
    play_out(110248362968713, 2, 16, tmp_path / "spool")
