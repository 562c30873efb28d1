"""Lines are read from any folder and any form of file."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from spark_jobs.days import Day
from spark_jobs.log.files import list_log_files
from spark_jobs.log.read import read_lines
from spark_jobs.log.unpack import unpack_lines
from spark_jobs.storage.choice import storage_for
from spark_jobs.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATE = "2026-11-20"
LINES = [b"line %d of some length, so that they compress like lines do %d" % (at, at * at) for at in range(50_000)]
WHOLE = b"\n".join(LINES) + b"\n"


def packed(codec: str, data: bytes) -> bytes:
    return gzip.compress(data) if codec == "gzip" else bytes(pa.Codec(codec).compress(data, asbytes=True))


def unpack(codec: str, content: bytes) -> list[bytes]:
    return [line for lines in unpack_lines(pa.py_buffer(content), codec) for line in lines]


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compressed_lines_come_back_also_of_several_pieces_glued_together(codec: str) -> None:
    assert unpack(codec, packed(codec, WHOLE[:700_000]) + packed(codec, WHOLE[700_000:])) == LINES
    assert unpack(codec, packed(codec, WHOLE[:-1])) == LINES
    assert unpack(codec, b"") == []


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_file_that_was_cut_off_gives_the_lines_before_the_cut_and_one_that_is_no_json(codec: str) -> None:
    content = packed(codec, WHOLE)
    *good, last = unpack(codec, content[: len(content) // 2])
    assert good == LINES[: len(good)]
    assert len(good) > 10_000
    assert b"Truncated" in last


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_file_that_is_not_compressed_at_all_is_one_line_that_is_no_json(codec: str) -> None:
    (line,) = unpack(codec, b'{"v":1}\n' * 100)
    assert line.startswith(f"<{codec}: ".encode())


@pytest.mark.spark
def test_lines_are_read_from_odd_folders_with_the_file_they_stand_in_and_without_blank_ones(spark: SparkSession, tmp_path: Path) -> None:
    log = Location.of("log", tmp_path / "a b%20[x]{y},z")
    contents = {
        "hr=00/g-b-000000.jsonl": b"one\n\n  \ntwo\rstill two\n",
        "hr=01/g-b-000001.jsonl.open": b"three",
        "hr=02/g-b-000002.jsonl.gz": gzip.compress(b"four\n\nfive"),
        "hr=03/g-b-000003.jsonl.zst": packed("zstd", "sechs, größer\n".encode() + b"\xff\n"),
    }
    for name, content in contents.items():
        path = log.local / f"dt={DATE}" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    files = list_log_files(log, Day(DATE).partitions, storage_for(log))
    found = sorted((log.relative(row.file).removeprefix(f"dt={DATE}/"), row.line) for row in read_lines(spark, files).collect())
    names = list(contents)
    assert found == [
        (names[0], "one"), (names[0], "two\rstill two"), (names[1], "three"), (names[2], "five"), (names[2], "four"),
        (names[3], "sechs, größer"), (names[3], "\ufffd"),
    ]  # fmt: skip
