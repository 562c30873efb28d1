"""The state directory changes all at once or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_jobs.errors import InsufficientInputError
from spark_jobs.state.state import Manifest, State, write_durably


def manifest(date: str, data: str) -> Manifest:
    return Manifest(date, data, "0.1.0", "f", rows=10, corrupt=0, stray=0, duplicates=0, missing_lines=0, observed_seconds=10)


def test_a_day_is_what_its_manifest_names_and_earlier_data_goes(tmp_path: Path) -> None:
    state = State(tmp_path)
    for _ in range(2):
        staged = state.stage("2026-11-20")
        (staged / "usage").mkdir()
        state.publish(manifest("2026-11-20", staged.name))
    found = state.manifest("2026-11-20")
    assert found == manifest("2026-11-20", staged.name)
    assert [path.name for path in state.folder("2026-11-20").glob("data-*")] == [staged.name]


def test_a_run_that_died_leaves_the_old_day_and_is_swept_by_the_next(tmp_path: Path) -> None:
    state = State(tmp_path)
    first = state.stage("2026-11-20")
    state.publish(manifest("2026-11-20", first.name))
    died = state.stage("2026-11-20")
    assert state.manifest("2026-11-20") == manifest("2026-11-20", first.name)
    state.stage("2026-11-20")
    assert first.exists()
    assert not died.exists()


def test_only_days_before_and_within_memory_are_remembered(tmp_path: Path) -> None:
    state = State(tmp_path)
    for date in ("2026-11-01", "2026-11-17", "2026-11-19", "2026-11-20", "2026-11-21"):
        state.publish(manifest(date, state.stage(date).name))
    (tmp_path / "dt=2026-11-18").mkdir()
    assert [day.date for day in state.before("2026-11-20", 7)] == ["2026-11-17", "2026-11-19"]


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"format": 99}), json.dumps({"format": 1, "date": "2026-11-20"})])
def test_a_damaged_manifest_is_named_with_the_way_out(tmp_path: Path, text: str) -> None:
    path = tmp_path / "dt=2026-11-20" / "manifest.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(InsufficientInputError, match=r"manifest\.json: .*compute the day again"):
        State(tmp_path).manifest("2026-11-20")


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    write_durably(tmp_path / "new" / "a", b"1")
    write_durably(tmp_path / "new" / "a", b"2")
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "new").iterdir()] == [("a", b"2")]
