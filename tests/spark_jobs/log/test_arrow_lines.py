"""What Arrow parses is what Spark would have parsed, and where Arrow does not know it, Spark does."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_jobs.days import Day
from spark_jobs.log import arrow_lines
from spark_jobs.log.arrow_lines import Piece, cut_into_pieces, deal_pieces, parse_fields, read_whole_lines
from spark_jobs.log.files import list_log_files
from spark_jobs.log.parse import parse
from spark_jobs.log.read import CODECS, read_lines, read_rows
from spark_jobs.schemas import WITH_SENDER
from spark_jobs.storage.choice import storage_for
from spark_jobs.storage.location import Location
from support.access_logs import usage_line
from support.cases import in_one_loop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATE = "2026-11-20"
DAY = Day(DATE)
FIELDS = pa.schema([("v", pa.int64()), ("topic", pa.string()), ("heartbeat", pa.bool_())])


def line(**changes: Any) -> bytes:
    """A good line with fields changed; a field set to ... is left out."""
    fields = usage_line("g", "b", 1, DAY.start + 5, "orders", messages=7) | changes
    return json.dumps({name: value for name, value in fields.items() if value is not ...}, ensure_ascii=False).encode()


def test_good_lines_are_parsed_and_what_is_not_asked_for_is_left_out() -> None:
    block = b'{"v":1,"topic":"a","heartbeat":true}\n{"topic":"gr\xc3\xb6\\u00dfe","more":{"x":[1,2.5,null]}}\n{"v":2,"topic":null}\n'
    found = parse_fields(block, FIELDS)
    assert found is not None
    assert found.to_pylist() == [
        {"v": 1, "topic": "a", "heartbeat": True},
        {"v": None, "topic": "größe", "heartbeat": None},
        {"v": 2, "topic": None, "heartbeat": None},
    ]


ODD = {
    "torn": b'{"v":1,"topic',
    "no JSON": b"hello",
    "garbage after it": b'{"v":1}x',
    "an array": b"[]",
    "blank": b"",
    "spaces": b"  ",
    "two objects": b'{"v":1}{"v":2}',
    "two objects apart": b'{"v":1} {"v":2}',
    "one object in two lines": b'{"v":1,\n"topic":"a"}',
    "one object in two lines after a brace": b'{"more":{}\n,"v":1}',
    "two in one and one in two": b'{"v":1} {"v":2}\n{"more":{\n},"v":1}',
    "a text for a number": b'{"v":"1"}',
    "a number for a text": b'{"topic":7}',
    "an object for a text": b'{"topic":{}}',
    "a number for a truth": b'{"heartbeat":1}',
    "a fraction": b'{"v":1.0}',
    "an exponent": b'{"v":1e3}',
    "beyond 64 bits": b'{"v":9223372036854775808}',
    "not a number": b'{"v":NaN}',
    "a field twice": b'{"v":1,"v":2}',
    "single quotes": b"{'v':1}",
    "a carriage return": b'{"v":1}\r',
    "no UTF-8": b'{"topic":"\xff"}',
    "half a surrogate": b'{"topic":"\\ud800"}',
    "a control character": b'{"topic":"a\tb"}',
    "a null character": b'{"v":1}\x00',
    "a byte order mark": b'\xef\xbb\xbf{"v":1}',
    "a comma too many": b'{"v":1,}',
    "a leading zero": b'{"v":01}',
}


@in_one_loop
@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
def test_a_block_with_anything_odd_in_it_is_left_to_spark(odd: bytes) -> None:
    good = b'{"v":1,"topic":"a"}'
    assert parse_fields(good, FIELDS) is not None
    for block in (odd, good + b"\n" + odd, odd + b"\n" + good, good + b"\n" + odd + b"\n" + good + b"\n"):
        assert parse_fields(block, FIELDS) is None or block == good + b"\n", block


@pytest.mark.parametrize("step", [1, 2, 3, 7, 10, 11, 12, 1000])
def test_each_line_of_a_file_is_in_one_piece_however_it_is_cut(tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_lines, "BLOCK_BYTES", 5)
    for content in (b"one\ntwo\n\nfour, a long line\nfive\n", b"one\ntwo", b"\n", b"a\n" * 20):
        path = tmp_path / "lines"
        path.write_bytes(content)
        pieces = [Piece(str(path), "", None, start, min(start + step, len(content))) for start in range(0, len(content), step)]
        blocks = [block for piece in pieces for block in read_whole_lines(piece)]
        assert b"".join(blocks) == content
        assert all(block.endswith(b"\n") for block in blocks[:-1])


def test_a_line_that_a_gateway_is_still_writing_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo, which has grown\nthree\n")
    assert b"".join(read_whole_lines(Piece(str(path), "", None, 0, 6))) == b"one\ntwo, which has grown\n"


def test_a_file_that_a_gateway_closes_before_it_is_read_is_read(tmp_path: Path) -> None:
    """Regression: a night of today ended with an exception of Spark's Python worker when the gateway's file was rolled meanwhile."""
    listed = tmp_path / "g-0-000001.jsonl.open"
    piece = Piece(str(listed), listed.as_uri(), None, 0, len(line()))
    (tmp_path / "g-0-000001.jsonl").write_bytes(line())
    assert list(read_whole_lines(piece)) == [line()]


def test_small_files_are_parsed_many_at_a_time_and_lines_keep_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {f"f{at:03}": line(seq=at) + b"\n" + line(seq=at + 1) + b"\n" * (at % 7 > 0) for at in range(100)}
    contents["f050"] = b"torn\n"
    pieces = []
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        pieces.append(Piece(str(tmp_path / name), name, None, 0, len(content)))
    parsed: list[bytes] = []

    def recorded(block: bytes, fields: pa.Schema) -> pa.Table | None:
        parsed.append(block)
        return parse_fields(block, fields)

    monkeypatch.setattr(arrow_lines, "parse_fields", recorded)
    asked = pa.RecordBatch.from_arrays([pa.array([0])], ["id"])
    seq = pa.schema([("seq", pa.int64())])
    rows = pa.Table.from_batches(list(arrow_lines.Parse([pieces], seq)(iter([asked]))))
    expected = [
        ("f050", "torn", None) if name == "f050" else (name, None, int(name[1:]) + at)
        for name in contents
        for at in range(1 + (name != "f050"))
    ]
    assert sorted(zip(*(rows[name].to_pylist() for name in ("file", "line", "seq")), strict=True)) == sorted(expected)
    assert len(parsed) == 16 + 8, "a file whose last line has no end closes a group; those beside the odd one are parsed alone"


def test_tasks_have_about_as_many_bytes_and_all_pieces_once(tmp_path: Path) -> None:
    pieces = [Piece(f"f{at}", "", None, 0, at * 1000_000) for at in range(1, 101)]
    tasks = deal_pieces(pieces, 2)
    assert sorted(each for task in tasks for each in task) == sorted(pieces)
    loads = [sum(each.end for each in task) for task in tasks]
    assert len(tasks) > 30
    assert max(loads) < 1.2 * min(loads)
    assert deal_pieces(pieces[:1], 2) == [pieces[:1]]
    assert deal_pieces([], 2) == [[]]


CASES = [
    line(), line(topic="größe"), line(topic=7), line(seq=2, extra={"later": 1}), line(messages=1.5), line(messages=2**63), line(v=2),
    line(topic=...), line(messages=-1), line()[:-20], line() + line(), b"{}", b"[]", b"", b"  ", b"{'v': 1}", b'{"topic":"\xff"}',
    line() + b"\r",
    line(client=None, user="me"), line(operation="consume"), line(heartbeat=True, topic=...), line(ts=DAY.end), line(ts=DAY.start - 1),
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("alone", [True, False], ids=["a file a line", "one file"])
@pytest.mark.parametrize("form", [".jsonl", ".jsonl.gz", ".jsonl.open"])
def test_rows_are_those_that_spark_alone_would_make(spark: SparkSession, tmp_path: Path, form: str, alone: bool) -> None:
    log = Location.of("log", tmp_path / "a b%20[x]")
    folder = log.local / f"dt={DATE}" / "hr=00"
    folder.mkdir(parents=True)
    for at, content in enumerate(CASES if alone else [b"\n".join(CASES)]):
        (folder / f"g-b-{at:06}{form}").write_bytes(gzip.compress(content) if form.endswith("gz") else content)
    files = list_log_files(log, DAY.partitions, storage_for(log))
    found = read_rows(spark, files, DAY, senders=True)

    def of(rows: DataFrame) -> list[str]:
        """A row with a fault keeps its file only."""
        known = [{**row.asDict(), "file": log.relative(row.file)} for row in rows.collect()]
        return sorted(str((row["file"], row["fault"]) if row["fault"] else row) for row in known)

    expected = of(parse(read_lines(spark, files), DAY, WITH_SENDER))
    assert len(expected) == sum(bool(each.strip(b" ")) for each in CASES)
    assert of(found) == expected
    assert any("json" in each for each in expected)
    if alone:
        assert all(len(list(cut_into_pieces([file], CODECS))) == (file.size > 0) for file in files)
