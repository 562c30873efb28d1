"""Lines of the access log as Arrow tables: whole blocks at once, and line by line only where a block has a line that is none.

A line is corrupt as it is for the nightly job: no JSON object of the format's fields, another version, or without what every line has.
Corrupt lines are given back as they are. A line of version 1 with a field that is not known here is not corrupt: a newer gateway has
written it, and its file must stay (`NewerLineError`).
"""

from __future__ import annotations

import io
import json
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as pa_json

VERSION: Final = 1
_STRINGS: Final = ("gateway", "boot", "protocol", "topic", "client", "user", "group", "operation")
_ORDER: Final = (  # docs/design/contract.md 6, version 1; a heartbeat has neither topic nor counts
    "v", "ts", "gateway", "boot", "seq", "heartbeat", "protocol", "topic", "client", "user", "group", "operation", "messages", "bytes",
    "refused_messages", "refused_bytes", "delayed_messages", "dropped_messages", "bypassed_messages", "shadow_refused_messages",
    "max_100ms_messages", "revision",
)  # fmt: skip
_TYPES: Final[dict[str, Any]] = {"v": pa.int32(), "heartbeat": pa.bool_(), **dict.fromkeys(_STRINGS, pa.string())}
LINE: Final = pa.schema([(name, _TYPES.get(name, pa.int64())) for name in _ORDER])
_ALWAYS: Final = ("v", "ts", "gateway", "boot", "seq")
_OF_USAGE: Final = ("protocol", "topic", "operation", "messages", "bytes")  # lines that are no heartbeats have these, too


class NewerLineError(Exception):
    """A line with a field that this version does not know."""


def parse(block: bytes) -> tuple[list[Any], list[bytes]]:
    """`block` is whole lines, each with its end. Returns their tables, and the lines that are corrupt. Raises NewerLineError."""
    if b'}{"' not in block and _is_text(block):
        table = _read(block)
        if table is not None and table.num_rows == block.count(b"\n"):  # else there are blank lines, or values over several
            good = _good(table)
            if pc.all(good).as_py() is not False:
                return [table], []
            lines = block.split(b"\n")[:-1]
            return [table.filter(good)], [line for line, fine in zip(lines, good.to_pylist(), strict=True) if not fine]
    return _by_halves([line for line in block.split(b"\n") if line.strip()])


def _is_text(block: bytes) -> bool:
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read(block: bytes) -> Any:
    """The table of some lines; None where one of them is not of the format.

    Arrow's reader (26.0.1) ends the process by SIGSEGV where the first value is `null`.
    """
    if not block.lstrip().startswith(b"{"):
        return None
    try:
        return pa_json.read_json(
            io.BytesIO(block),
            pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            pa_json.ParseOptions(explicit_schema=LINE, unexpected_field_behavior="error"),
        ).select(_ORDER)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError):
        return None


def _good(table: Any) -> Any:
    """Per row: whether the line is one of the format."""
    good = pc.equal(table["v"], VERSION)
    for name in _ALWAYS:
        good = pc.and_(good, pc.is_valid(table[name]))
    usage = pc.is_valid(table["protocol"])
    for name in _OF_USAGE:
        usage = pc.and_(usage, pc.is_valid(table[name]))
    return pc.fill_null(pc.and_(good, pc.or_(usage, pc.fill_null(table["heartbeat"], False))), False)


def _by_halves(lines: list[bytes]) -> tuple[list[Any], list[bytes]]:
    """As `parse`, for lines among which some are corrupt."""
    if not lines:
        return [], []
    block = b"\n".join(lines) + b"\n"
    if b'}{"' not in block and _is_text(block):
        table = _read(block)
        if table is not None and table.num_rows == len(lines):
            good = _good(table)
            return [table.filter(good)], [line for line, fine in zip(lines, good.to_pylist(), strict=True) if not fine]
    if len(lines) == 1:
        _refuse_newer(lines[0])
        return [], lines
    half = len(lines) // 2
    tables, corrupt = _by_halves(lines[:half])
    more_tables, more_corrupt = _by_halves(lines[half:])
    return tables + more_tables, corrupt + more_corrupt


def _refuse_newer(line: bytes) -> None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return
    if isinstance(found, dict) and found.get("v") == VERSION:
        unknown = sorted(set(found) - set(_ORDER))
        if unknown:
            raise NewerLineError(f"a line has the field {unknown[0][:40]!r}")
