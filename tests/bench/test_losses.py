"""A run that costs 15 % more than the newest kept one, beside HAProxy in the same rounds, is red."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kept import RESULTS
from losses import compared, losses, newest_kept, verdict
from records import Base, Bench, Run, loaded, stored

Make = Callable[..., Bench]


@pytest.fixture
def kept(made_up: Make, tmp_path: Path) -> Path:
    path = tmp_path / "20261122T050000Z.json"
    stored(made_up(), path)
    return path


def stream(*costs: float, theirs: tuple[float, ...] = (1, 1, 1), one_run: Callable[..., Run]) -> dict[str, dict[str, list[Run]]]:
    return {"stream": {"haproxy": [one_run(each) for each in theirs], "sluice": [one_run(each) for each in costs]}}


@pytest.mark.parametrize(
    ("costs", "theirs", "lost"),
    [
        ((2, 2, 2), (1, 1, 1), False),
        ((2.2, 2.2, 2.2), (1, 1, 1), False),
        ((2.4, 2.0, 2.0), (1, 1, 1), False),  # one round of three: something else of the machine
        ((2.4, 2.4, 2.0), (1, 1, 1), True),
        ((4.0, 4.0, 4.0), (2, 2, 2), False),  # a slower machine, for both
        ((2.0, 2.0, 2.0), (0.5, 0.5, 0.5), True),
    ],
)
def test_a_loss_is_15_percent_beside_haproxy(
    made_up: Make, one_run: Callable[..., Run], kept: Path, costs: tuple[float, ...], theirs: tuple[float, ...], lost: bool
) -> None:
    good, words = verdict(made_up(**stream(*costs, theirs=theirs, one_run=one_run)), kept)
    assert good is not lost
    assert ("stream: processor time" in words) is lost


def test_memory_is_compared_too(made_up: Make, kept: Path) -> None:
    now = made_up()
    now.proxies["sluice"] = Base(0.4, 55.0)
    assert losses(now, loaded(kept)) == ["memory without load, MiB: 55.00, was 43.20 (+27 %)"]
    assert verdict(now, kept) == (
        False, "lost against 20261122T050000Z.json, more than 15 %:\n  memory without load, MiB: 55.00, was 43.20 (+27 %)",
    )  # fmt: skip


def test_what_only_one_run_has_is_not_compared(made_up: Make, kept: Path) -> None:
    now = made_up(stream={}, other={})
    assert [name for name, *_ in compared(now, loaded(kept))] == ["replies: processor time, times HAProxy's", "memory without load, MiB"]


def test_another_machine_is_not_compared(made_up: Make, kept: Path) -> None:
    now = made_up()
    now.machine.cpu = "Another"
    now.proxies["sluice"] = Base(0.4, 550.0)
    assert verdict(now, kept) == (True, "not compared with 20261122T050000Z.json: that was another machine, 2 of Some CPU <2>")


def test_without_a_kept_result_nothing_is_lost(made_up: Make) -> None:
    assert verdict(made_up(), None) == (True, "nothing is kept to compare with")


def test_the_newest_kept_result_is_of_make_bench_and_loses_nothing_against_itself() -> None:
    path = newest_kept()
    assert path is not None
    assert path.parent == RESULTS
    bench = loaded(path)
    assert verdict(bench, path)[0]
    assert len(list(compared(bench, bench))) > 10
