"""Which files make up a day, and days and folders as options name them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from spark_jobs.access_log import files_of, name_of
from spark_jobs.errors import InsufficientInputError
from spark_jobs.paths import day_start, local_folder, read_url, write_url


def put(path: Path, text: str = "x\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_closed_and_open_files_of_that_day_are_read_in_order(tmp_path: Path) -> None:
    put(tmp_path / "dt=2026-11-20/hr=01/b.jsonl", "b")
    put(tmp_path / "dt=2026-11-20/hr=00/a.jsonl.open", "a")
    put(tmp_path / "dt=2026-11-20/hr=00/notes.txt")
    put(tmp_path / "dt=2026-11-21/hr=00/c.jsonl")
    files = files_of(tmp_path, "2026-11-20")
    assert [file.name for file in files] == ["dt=2026-11-20/hr=00/a.jsonl.open", "dt=2026-11-20/hr=01/b.jsonl"]
    assert files[0].sha256 == hashlib.sha256(b"a").hexdigest()


def test_of_a_file_that_is_there_open_and_closed_only_the_closed_one_is_read(tmp_path: Path) -> None:
    put(tmp_path / "dt=2026-11-20/hr=00/a.jsonl.open")
    put(tmp_path / "dt=2026-11-20/hr=00/a.jsonl")
    assert [file.name for file in files_of(tmp_path, "2026-11-20")] == ["dt=2026-11-20/hr=00/a.jsonl"]


def test_a_day_without_files_is_insufficient_input(tmp_path: Path) -> None:
    with pytest.raises(InsufficientInputError, match="no access log for 2026-11-20"):
        files_of(tmp_path, "2026-11-20")


@pytest.mark.parametrize("date", ["2026-11-31", "20261120", "2026-1-2", "yesterday", ""])
def test_a_date_that_is_none_is_refused(date: str) -> None:
    with pytest.raises(ValueError, match="--date"):
        day_start(date)


def test_a_day_is_86400_seconds_also_where_clocks_are_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert day_start("2026-10-26") - day_start("2026-10-25") == 86_400
    assert day_start("1970-01-02") == 86_400


def test_glob_characters_are_escaped_and_names_come_back_from_urls(tmp_path: Path) -> None:
    path = tmp_path / "a b%20[x]{y}*" / "f.jsonl"
    assert read_url(path).endswith(r"/a b%20\[x\]\{y\}\*/f.jsonl")
    assert write_url(path) == f"file://{path}"
    assert name_of(f"file:{tmp_path}/a%20b%2520%5Bx%5D/f.jsonl", tmp_path) == "a b%20[x]/f.jsonl"


def test_an_object_store_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match="--log: s3://bucket/log is a URL; give a folder"):
        local_folder("log", "s3://bucket/log")
