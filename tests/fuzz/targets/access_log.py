"""What is fuzzed of the access log: its lines as `sluice log compact` reads them, held against a slow reader, and the hour's manifest.

The nightly job reads lines with Spark, whose JVM is too slow for this; `spark_jobs/log/parse.py` has the same rules of what is corrupt,
and tests/spark_jobs/ holds the two against each other.
"""

from __future__ import annotations

import json
from typing import Any

from fuzz.scripts import check_reason

from common.log_files import columns, manifest

TEXTS = ("gateway", "boot", "protocol", "topic", "client", "user", "group", "operation")
HOUR = 1_795_248_000


def log_lines(data: bytes) -> None:
    """Lines: each is in a table or given back, in any pieces; none of another version, or without its fields, is in a table."""
    if not data:
        return
    block = data[1:] if data.endswith(b"\n") else data[1:] + b"\n"
    lines = [line for line in block.split(b"\n") if line.strip()]
    try:
        tables, corrupt = columns.parse(block)
    except columns.NewerLineError as error:
        check_reason(error)
        return
    rows = [row for table in tables for row in table.to_pylist()]
    assert len(rows) + len(corrupt) == len(lines), f"{len(lines)} lines are {len(rows)} rows and {len(corrupt)} corrupt"
    assert sorted(corrupt) == sorted(set(corrupt) & set(lines), key=bytes) or all(line in lines for line in corrupt)
    for row in rows:
        check_row(row)
    at = block.find(b"\n", data[0] * len(block) // 256) + 1
    if 0 < at < len(block):
        halves = [columns.parse(piece) for piece in (block[:at], block[at:])]
        pieces = [row for found, _ in halves for table in found for row in table.to_pylist()]
        assert pieces == rows, "in two pieces they are other rows"
        assert [line for _, bad in halves for line in bad] == corrupt


def check_row(row: dict[str, Any]) -> None:
    assert row["v"] == columns.VERSION
    assert all(row[name] is not None for name in ("ts", "gateway", "boot", "seq"))
    assert row["heartbeat"] is True or all(row[name] is not None for name in ("protocol", "topic", "operation", "messages", "bytes"))
    again = json.dumps({name: value for name, value in row.items() if value is not None}).encode() + b"\n"
    tables, corrupt = columns.parse(again)
    assert not corrupt, "written again, it is corrupt"
    assert [found for table in tables for found in table.to_pylist()] == [row]


def log_manifest(data: bytes) -> None:
    """An hour's manifest: ValueError, or one that is the same when written and read."""
    try:
        found = manifest.read(data, "gateway-a", HOUR)
    except ValueError as error:
        check_reason(error)
        return
    written = found.text()
    assert manifest.read(written, "gateway-a", HOUR) == found
    assert manifest.read(written, "gateway-a", HOUR).text() == written
    found.sources()
