"""The state changes all at once or not at all, on any storage."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from spark_jobs.errors import InsufficientInputError
from spark_jobs.state.manifest import STATE_FORMAT, Manifest
from spark_jobs.state.state import DayStates
from spark_jobs.storage.local import LocalStorage
from spark_jobs.storage.location import Location
from spark_jobs.storage.storage import Storage

DATE = "2026-11-20"


def manifest(date: str, data: str) -> Manifest:
    return Manifest(date, data, "0.1.0", "f", rows=10, corrupt=0, stray=0, duplicates=0, missing_lines=0, observed_seconds=10)


@pytest.fixture
def state(place: tuple[Storage, Location]) -> DayStates:
    """On each storage (the fixture `place` of `conftest.py`)."""
    storage, root = place
    return DayStates(root, storage)


def fill(state: DayStates, staged: Location) -> Location:
    """As Spark does: a staged folder comes to be when a table is written into it."""
    state.storage.write(staged.child("topics", "part-0.parquet"), b"x")
    return staged


def data_folders(state: DayStates) -> list[str]:
    return [entry.name for entry in state.storage.list(state.folder(DATE)) if entry.is_folder]


def test_a_day_is_what_its_manifest_names_and_earlier_data_goes(state: DayStates) -> None:
    for _ in range(2):
        staged = fill(state, state.stage(DATE))
        state.publish(manifest(DATE, staged.name))
    found = state.read_manifest(DATE)
    assert found == manifest(DATE, staged.name)
    assert state.data(found) == staged
    assert data_folders(state) == [staged.name]


def test_the_data_is_on_the_disk_before_the_manifest_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = DayStates(Location.of("state", tmp_path), LocalStorage())
    staged = fill(state, state.stage(DATE))
    synced: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    state.publish(manifest(DATE, staged.name))
    at = [synced.index(name) for name in ("part-0.parquet", "topics", staged.name)]
    assert max(at) < next(at for at, name in enumerate(synced) if name.startswith(".manifest.json"))


def test_a_run_that_died_leaves_the_old_day_and_is_swept_by_the_next(state: DayStates) -> None:
    first = fill(state, state.stage(DATE))
    state.publish(manifest(DATE, first.name))
    died = fill(state, state.stage(DATE))
    assert state.read_manifest(DATE) == manifest(DATE, first.name)
    assert set(data_folders(state)) == {first.name, died.name}
    state.stage(DATE)
    assert data_folders(state) == [first.name]


def test_a_run_that_dies_while_it_publishes_leaves_the_old_day(tmp_path: Path) -> None:
    class Full(LocalStorage):
        def write(self, location: Location, data: bytes) -> None:
            if location.name == "manifest.json":
                raise OSError(28, "No space left on device", location.shown)
            super().write(location, data)

    good = DayStates(Location.of("state", tmp_path), LocalStorage())
    first = fill(good, good.stage(DATE))
    good.publish(manifest(DATE, first.name))
    full = DayStates(good.root, Full())
    with pytest.raises(OSError, match="No space left"):
        full.publish(manifest(DATE, fill(full, full.stage(DATE)).name))
    found = good.read_manifest(DATE)
    assert found == manifest(DATE, first.name)
    assert good.storage.list(good.data(found)) != []


def test_only_days_before_and_within_memory_are_remembered(state: DayStates) -> None:
    for date in ("2026-11-01", "2026-11-17", "2026-11-19", "2026-11-20", "2026-11-21"):
        state.publish(manifest(date, state.stage(date).name))
    fill(state, state.stage("2026-11-18"))
    for name in ("nights/dt=2026-11-16/quotas.json", "corrupt/dt=2026-11-16/x.json", "dt=never/manifest.json", "dt=20261116/manifest.json"):
        state.storage.write(state.root.child(name), b"{}")
    assert [day.date for day in state.read_manifests_before(DATE, 7)] == ["2026-11-17", "2026-11-19"]
    assert state.list_dates() == ["2026-11-01", "2026-11-17", "2026-11-18", "2026-11-19", "2026-11-20", "2026-11-21"]


@pytest.mark.parametrize(
    "text", ["{", "[]", "\xff", "[" * 100_000, json.dumps({"format": 99}), json.dumps({"format": STATE_FORMAT, "date": DATE})]
)
def test_a_damaged_manifest_is_named_with_the_way_out(state: DayStates, text: str) -> None:
    state.storage.write(state.folder(DATE).child("manifest.json"), text.encode("latin-1"))
    with pytest.raises(InsufficientInputError, match=r"manifest\.json: .*compute the day again"):
        state.read_manifest(DATE)
    assert state.stage(DATE).name.startswith("data-"), "computing it again is the way out"


def test_a_state_of_the_first_format_is_refused_with_the_way_out(state: DayStates) -> None:
    state.publish(replace(manifest("2026-11-19", "data-1"), format=1))
    with pytest.raises(
        InsufficientInputError, match=r"dt=2026-11-19/manifest\.json: format 1, this program reads 2; compute the day again"
    ):
        state.read_manifests_before(DATE, 7)


def test_equal_manifests_are_equal_bytes() -> None:
    one = manifest(DATE, "data-1")
    assert Manifest.load(one.dump()) == one
    assert Manifest.load(one.dump()).dump() == one.dump()


def test_corrupt_lines_of_an_earlier_run_go(state: DayStates) -> None:
    state.storage.write(state.root.child("corrupt", f"dt={DATE}", "a.json"), b"x")
    folder = state.keep_corrupt(None, DATE)
    assert state.storage.list(folder) == []
