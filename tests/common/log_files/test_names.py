"""Names of the log's files: what they tell, and what is none of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.log_files.names import folder_of, hour_of, hour_text, look, one_of_each
from support.log_files import HOUR, NOON, log_file


def test_a_name_tells_hour_gateway_and_form(tmp_path: Path) -> None:
    log_file(tmp_path, gateway="orders-2.example.com", boot="6f1cw1l0", form="jsonl.gz")
    (file,) = look(tmp_path).files
    assert (file.hour, file.gateway, file.stem, file.form) == (
        NOON, "orders-2.example.com", "orders-2.example.com-6f1cw1l0-000000", "jsonl.gz",
    )  # fmt: skip
    assert file.name == "dt=2026-11-21/hr=12/orders-2.example.com-6f1cw1l0-000000.jsonl.gz"


def test_folders_and_hours_are_inverse() -> None:
    assert hour_of(folder_of(NOON)) == NOON
    assert hour_text(NOON + HOUR) == "2026-11-21T13"
    with pytest.raises(ValueError, match="day is out of range"):
        hour_of("dt=2026-02-31/hr=00")


def test_oldest_first_and_foreign_files_apart(tmp_path: Path) -> None:
    log_file(tmp_path, NOON + HOUR)
    log_file(tmp_path)
    (tmp_path / folder_of(NOON) / "notes.txt").touch()
    (tmp_path / folder_of(NOON) / "g1-b1-000009.jsonl.gz.tmp").touch()
    (tmp_path / "dt=2026-02-31" / "hr=01").mkdir(parents=True)
    (tmp_path / "dt=2026-11-21" / "hr=99").mkdir()
    found = look(tmp_path)
    assert [file.hour for file in found.files] == [NOON, NOON + HOUR]
    assert [path.name for path in found.foreign] == ["hr=01", "notes.txt"]


def test_of_two_forms_of_one_file_the_better_counts(tmp_path: Path) -> None:
    for form in ("jsonl", "jsonl.open", "jsonl.zst", "jsonl.gz"):
        log_file(tmp_path, form=form)
    log_file(tmp_path, number=1)
    assert [file.form for file in one_of_each(look(tmp_path).files)] == ["jsonl.zst", "jsonl"]
