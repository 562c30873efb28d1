"""What the benchmark keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from records import Bench, Goal, Run, loaded, stored


def test_records_that_are_kept_come_back_as_they_were(made_up: Callable[..., Bench], tmp_path: Path) -> None:
    stored(made_up(), tmp_path / "kept.json")
    assert loaded(tmp_path / "kept.json") == made_up()


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"at": "2026-11-21", "rounds": 3}')
    with pytest.raises(msgspec.ValidationError, match="machine"):
        loaded(tmp_path / "other.json")


def test_messages_before_those_that_count_share_the_processor_time() -> None:
    run = Run(messages=60, seconds=2.0, warmup=40, cpu_s=0.002)
    assert run.rate == 30.0
    assert run.cpu_us == pytest.approx(20.0)
    assert Run(messages=60, seconds=2.0).cpu_us is None


@pytest.mark.parametrize(
    ("measure", "found", "reached"), [("cpu", 0.9, True), ("cpu", 1.1, False), ("rate", 0.9, False), ("rate", 1.0, True)]
)
def test_costs_have_an_upper_bound_and_rates_a_lower_one(measure: str, found: float, reached: bool) -> None:
    assert msgspec.convert({"measure": measure, "bound": 1.0}, Goal).reached(found) is reached
