"""Lines as columns: what is a line, what is corrupt, and what a newer gateway wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from common.log_files.columns import LINE, NewerLineError, parse
from spark_jobs.schemas import WITH_SENDER
from support.access_logs import heartbeat_line, usage_line
from support.cases import in_one_loop
from support.log_files import NOON, log_text


def rows(block: bytes) -> tuple[list[dict[str, Any]], list[bytes]]:
    tables, corrupt = parse(block)
    return [row for table in tables for row in table.to_pylist()], corrupt


def test_what_the_nightly_job_reads_of_a_line_are_columns() -> None:
    named = {"int32": "long", "int64": "long", "string": "string", "bool": "boolean"}
    ours = {field.name: named[str(field.type)] for field in LINE}
    assert {field.name: field.dataType.typeName() for field in WITH_SENDER.fields}.items() <= ours.items()


def test_every_value_of_a_line_is_there() -> None:
    text = log_text()
    found, corrupt = rows(text.encode())
    assert corrupt == []
    names = [field.name for field in LINE]
    assert found == [{name: json.loads(line).get(name) for name in names} for line in text.splitlines()]


GOOD = json.dumps(usage_line("g1", "b1", 7, NOON, "orders"))
CORRUPTED = [
    GOOD[:-20],  # torn
    GOOD[:80] + GOOD,  # torn, and the next line glued to it
    GOOD + GOOD,
    "not json",
    "[]",
    "17",
    "null",  # at the beginning of a block Arrow's reader ends the process
    "{}",
    '"text"',
    GOOD.replace('"v": 1', '"v": 2'),
    GOOD.replace('"seq": 7', '"seq": "seven"'),
    GOOD.replace('"seq": 7', '"seq": 7.5'),
    GOOD.replace('"seq": 7', '"seq": 99999999999999999999'),
    GOOD.replace('"seq": 7', '"seq": null'),
    GOOD.replace('"topic": "orders", ', ""),
    GOOD.replace('"gateway": "g1", ', ""),
    '{"level": "info", "msg": "another log"}',
    "\x00\x01",
    '{"v": 1,',
]


@in_one_loop
@pytest.mark.parametrize("bad", CORRUPTED)
def test_a_corrupt_line_is_given_back_and_its_neighbours_are_read(bad: str) -> None:
    block = f"{GOOD}\n{bad}\n{GOOD}\n".encode()
    found, corrupt = rows(block)
    assert len(found) == 2
    assert corrupt == [bad.encode()]


@in_one_loop
@pytest.mark.parametrize("bad", CORRUPTED)
def test_a_block_may_begin_with_a_corrupt_line(bad: str) -> None:
    assert rows(f"{bad}\n".encode()) == ([], [bad.encode()])
    found, corrupt = rows(f"{bad}\n{GOOD}\n".encode())
    assert (len(found), corrupt) == (1, [bad.encode()])


def test_many_corrupt_lines_among_good_ones() -> None:
    text = "".join(f"{GOOD}\n{bad}\n" for bad in CORRUPTED * 20)
    found, corrupt = rows(text.encode())
    assert len(found) == len(corrupt) == len(CORRUPTED) * 20
    assert sorted(corrupt) == sorted(bad.encode() for bad in CORRUPTED * 20)


def test_bytes_that_are_no_text_are_corrupt() -> None:
    bad = GOOD.encode().replace(b"orders", b"ord\xffers")
    found, corrupt = rows(GOOD.encode() + b"\n" + bad + b"\n")
    assert len(found) == 1
    assert corrupt == [bad]


def test_a_line_over_several_lines_is_corrupt() -> None:
    spread = GOOD.replace(", ", ",\n")
    found, corrupt = rows(f"{spread}\n{GOOD}\n".encode())
    assert len(found) == 1
    assert b"\n".join(corrupt) == spread.encode()


def test_blank_lines_are_nothing() -> None:
    found, corrupt = rows(f"\n{GOOD}\n  \n\n{json.dumps(heartbeat_line('g1', 'b1', 8, NOON))}\n".encode())
    assert (len(found), corrupt) == (2, [])


def test_a_field_of_a_newer_gateway_is_not_thrown_away() -> None:
    newer = json.dumps(usage_line("g1", "b1", 7, NOON, "orders", partition=3))
    with pytest.raises(NewerLineError, match="'partition'"):
        rows(f"{GOOD}\n{newer}\n".encode())
