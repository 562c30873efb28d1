"""Sorting within bounded memory gives what sorting at once gives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from common.log_files import sorting
from common.log_files.columns import LINE
from common.log_files.sorting import Sorter, in_order

TOPICS = [None, "a", "b", "ä", "%2F/x", "z" * 30]


def table(chance: random.Random, rows: int, first: int) -> pa.Table:
    return pa.Table.from_pylist(
        [{"topic": chance.choice(TOPICS), "ts": chance.randint(1, 40), "seq": first + place} for place in range(rows)], LINE
    )


@pytest.mark.parametrize("seed", range(8))
def test_runs_merge_to_the_whole_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(sorting, "RUN_ROWS", 150)
    monkeypatch.setattr(sorting, "BATCH_ROWS", 17)
    monkeypatch.setattr(sorting, "GROUP_ROWS", 100)
    chance = random.Random(seed)
    sorter = Sorter(tmp_path)
    rows = 0
    for _ in range(chance.randint(1, 20)):
        size = chance.randint(0, 90)
        sorter.add(table(chance, size, rows))
        rows += size
    path = tmp_path / "out.parquet"
    sorter.write(path, {"sluice.corrupt": "0"})
    found = pq.read_table(path)
    keys = [(row["topic"] or "", row["ts"]) for row in found.select(["topic", "ts"]).to_pylist()]
    assert keys == sorted(keys)
    assert sorted(found["seq"].to_pylist()) == list(range(rows))
    assert pq.ParquetFile(path).metadata.metadata[b"sluice.corrupt"] == b"0"
    assert all(pq.ParquetFile(path).metadata.row_group(group).num_rows <= 100 for group in range(pq.ParquetFile(path).num_row_groups))
    if rows > 150:
        assert len(sorter.runs) > 1


def test_equal_keys_stay_as_they_come() -> None:
    rows = [{"topic": "a", "ts": 1, "seq": place} for place in range(50)]
    assert in_order(pa.Table.from_pylist(rows, LINE))["seq"].to_pylist() == list(range(50))


def test_no_lines_make_an_empty_file(tmp_path: Path) -> None:
    Sorter(tmp_path).write(tmp_path / "out.parquet", {})
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 0
