"""Which files make up a day of the access log."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from spark_jobs.days import Day
from spark_jobs.errors import InsufficientInputError
from spark_jobs.log.files import StoredLogFile, list_log_files
from spark_jobs.storage.local import LocalStorage
from spark_jobs.storage.location import Location
from spark_jobs.storage.storage import StoredFile

DAY = "dt=2026-11-20"
HOURS = Day("2026-11-20").partitions


def put(path: Path, text: str = "x\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def look(folder: Path, hours: list[tuple[str, str]] | None = None) -> list[StoredLogFile]:
    return list_log_files(Location.of("log", folder), hours or HOURS, LocalStorage())


def names(folder: Path) -> list[str]:
    return [file.name for file in look(folder)]


def test_files_of_these_hours_are_read_in_order(tmp_path: Path) -> None:
    put(tmp_path / DAY / "hr=01/b.jsonl", "b")
    put(tmp_path / DAY / "hr=00/a.jsonl.open", "a")
    for name in ("hr=00/notes.txt", "hr=00/.a.jsonl.tmp", "hr=00/_a.jsonl", "c.jsonl", "hr=24/d.jsonl"):
        put(tmp_path / DAY / name)
    put(tmp_path / "dt=2026-11-21/hr=00/c.jsonl")
    put(tmp_path / "corrupt" / DAY / "hr=00/c.jsonl.gz")
    files = look(tmp_path)
    assert [file.name for file in files] == [f"{DAY}/hr=00/a.jsonl.open", f"{DAY}/hr=01/b.jsonl"]
    assert files[0].describe() == {"path": f"{DAY}/hr=00/a.jsonl.open", "bytes": 1, "sha256": hashlib.sha256(b"a").hexdigest()}
    assert [file.name for file in look(tmp_path, [("2026-11-20", "01"), ("2026-11-21", "00")])] == [
        f"{DAY}/hr=01/b.jsonl",
        "dt=2026-11-21/hr=00/c.jsonl",
    ]


def test_of_a_file_in_several_forms_one_is_read(tmp_path: Path) -> None:
    forms = [".parquet", ".jsonl.zst", ".jsonl.gz", ".jsonl", ".jsonl.open"]
    for at in range(len(forms)):
        for form in forms[at:]:
            put(tmp_path / DAY / f"hr=00/{at}{form}")
    assert names(tmp_path) == [f"{DAY}/hr=00/{at}{form}" for at, form in enumerate(forms)]


def shipped(folder: Path, *files: dict[str, object], gateway: str = "g", hour: str = "00") -> None:
    put(folder / "manifest" / gateway / DAY / f"hr={hour}.json", json.dumps({"v": 1, "gateway": gateway, "hour": hour, "files": files}))


def test_what_was_shipped_is_known_by_its_manifest(tmp_path: Path) -> None:
    put(tmp_path / DAY / "hr=00/g-1.jsonl.zst", "12345")
    put(tmp_path / DAY / "hr=00/g-2.jsonl", "new")
    shipped(tmp_path, {"name": f"{DAY}/hr=00/g-1.jsonl.zst", "size": 5, "sha256": "ab", "lines": 7, "corrupt": 2})
    known, new = look(tmp_path)
    assert (known.digest, known.lines, known.corrupt) == ("sha256:ab", 7, 2)
    assert (new.digest, new.lines, new.corrupt) == (f"sha256:{hashlib.sha256(b'new').hexdigest()}", None, 0)


def test_a_compacted_file_stands_for_its_sources(tmp_path: Path) -> None:
    for name in ("all.parquet", "g-1.jsonl.gz", "g-2.jsonl", "g-3.jsonl"):
        put(tmp_path / DAY / "hr=00" / name)
    compacted = {"name": f"{DAY}/hr=00/all.parquet", "size": 2, "sha256": "ab", "lines": 7, "sources": ["g-1.jsonl", "g-2.jsonl"]}
    shipped(tmp_path, compacted)
    assert names(tmp_path) == [f"{DAY}/hr=00/all.parquet", f"{DAY}/hr=00/g-3.jsonl"]


def test_a_log_that_is_half_shipped_is_refused_by_name(tmp_path: Path) -> None:
    put(tmp_path / DAY / "hr=00/g-1.jsonl", "12345")
    shipped(tmp_path, {"name": f"{DAY}/hr=00/g-1.jsonl", "size": 9, "sha256": "ab"})
    with pytest.raises(InsufficientInputError, match=r"g-1\.jsonl: 5 bytes, its manifest says 9; ship it again"):
        look(tmp_path)
    shipped(tmp_path, {"name": f"{DAY}/hr=00/g-9.jsonl", "size": 9, "sha256": "ab"})
    with pytest.raises(InsufficientInputError, match=r"g-9\.jsonl: its manifest names it and it is not there"):
        look(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"v": 2, "files": []}', '{"v": 1, "files": [{"name": "x"}]}', '{"v": 1}'])
def test_a_manifest_that_is_none_is_refused_by_name(tmp_path: Path, text: str) -> None:
    put(tmp_path / "manifest/g" / DAY / "hr=00.json", text)
    with pytest.raises(InsufficientInputError, match=r"hr=00\.json: no manifest of shipped files"):
        look(tmp_path)


def test_a_file_that_is_renamed_meanwhile_is_found_under_its_new_name(tmp_path: Path) -> None:
    put(tmp_path / DAY / "hr=00/a.jsonl.open", "a")

    class Closing(LocalStorage):
        def checksum(self, entry: StoredFile) -> str | None:
            if entry.name.endswith(".open"):
                entry.location.local.rename(entry.location.local.with_suffix(""))
            return super().checksum(entry)

    (file,) = list_log_files(Location.of("log", tmp_path), HOURS, Closing())
    assert file.name == f"{DAY}/hr=00/a.jsonl"


def test_files_that_go_on_vanishing_are_insufficient_input(tmp_path: Path) -> None:
    put(tmp_path / DAY / "hr=00/a.jsonl", "a")

    class Vanishing(LocalStorage):
        def checksum(self, entry: StoredFile) -> str | None:
            raise FileNotFoundError(str(entry))

    with pytest.raises(InsufficientInputError, match="vanish"):
        list_log_files(Location.of("log", tmp_path), HOURS, Vanishing())


def test_a_day_without_files_is_insufficient_input(tmp_path: Path) -> None:
    with pytest.raises(InsufficientInputError, match="no access log for 2026-11-20"):
        look(tmp_path)


@pytest.mark.parametrize("date", ["2026-11-31", "20261120", "2026-1-2", "yesterday", ""])
def test_a_date_that_is_none_is_refused(date: str) -> None:
    with pytest.raises(ValueError, match="--date"):
        Day(date)


def test_a_day_is_86400_seconds_also_where_clocks_are_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert Day("2026-10-26").start - Day("2026-10-25").start == 86_400
    assert Day("1970-01-02").start == 86_400
