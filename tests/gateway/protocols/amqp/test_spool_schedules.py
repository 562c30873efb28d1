"""With a spool between them, confirms never lie, order holds and nothing vanishes: schedules as in `test_confirm_schedules.py`.

The promises are the same. What a rule spools goes through files, whose writes and reads are done, or fail, at random moments.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.amqp.spool_schedules import SpoolSchedule, play
from support.builds import build_of

SCHEDULES = 4_000 if build_of("gateway.protocols.amqp.confirms")[0] == "compiled" else 3_000  # interpreted, one takes 2 ms
EXAMPLES = 100


def play_in(directory: Path, seed: int, channels: int, acts: int) -> int:
    try:
        return play(seed, channels, acts, directory)
    except Exception as error:
        error.add_note(f"again with: play{seed, channels, acts}")
        raise
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize("seed", range(8))
def test_the_first_schedules_of_many(seed: int, tmp_path: Path) -> None:
    """What `make unit` and `make mutants` have time for."""
    numbers = Random(seed)
    for _ in range(10):
        play_in(tmp_path / "spool", numbers.getrandbits(48), numbers.randint(1, 4), numbers.randint(5, 60))


@pytest.mark.slow
@pytest.mark.parametrize("schedules", [SCHEDULES])
def test_answers_and_order_hold_whatever_the_disk_does(schedules: int, tmp_path: Path) -> None:
    @settings(deadline=None, max_examples=EXAMPLES)
    @given(seed=st.integers(0, 1 << 32), channels=st.integers(1, 4), acts=st.integers(5, 60))
    @example(seed=1, channels=1, acts=8)
    def examples(seed: int, channels: int, acts: int) -> None:
        numbers = Random(seed)
        for _ in range(schedules // EXAMPLES):
            play_in(tmp_path / "spool", numbers.getrandbits(48), numbers.randint(1, channels), numbers.randint(1, acts))

    examples()


@pytest.mark.slow
def test_what_is_spooled_does_go_through_files(tmp_path: Path) -> None:
    """Or the schedules would show nothing."""
    written = read = publishes = 0
    for seed in range(200):
        schedule = SpoolSchedule(Random(seed), 2, 40, tmp_path / str(seed))
        publishes += schedule.run()
        written += schedule.disk.written
        read += schedule.disk.read
    assert publishes > 2_000
    assert written > 100_000
    assert read > 50_000


@pytest.mark.parametrize(
    ("seed", "channels", "acts"),
    [
        pytest.param(
            149386557198342, 1, 21, id="the broker closes a channel within a message whose rest is on disk: close-ok came within it"
        ),
        pytest.param(65181286922536, 1, 21, id="the same, and the client's close-ok waited behind what was given up"),
    ],
)
def test_schedules_that_once_failed(seed: int, channels: int, acts: int, tmp_path: Path) -> None:
    assert play_in(tmp_path / "spool", seed, channels, acts) > 0
