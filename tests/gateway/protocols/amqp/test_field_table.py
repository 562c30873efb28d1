"""Field tables: read as pamqp reads them, field by field, and refused where they end early."""

from __future__ import annotations

import struct
from typing import Final

import pamqp.decode
import pytest

from gateway.protocols.amqp.field_table import FieldTableError, read_fields, text_of

# kind, value as it lies there, how it is shown
FIELDS: Final = [
    (b"S", struct.pack(">I", 6) + "grün!".encode(), "grün!"),
    (b"S", struct.pack(">I", 2) + b"\xff1", "\\xff1"),
    (b"S", struct.pack(">I", 0), ""),
    (b"b", b"\xfe", "-2"),
    (b"B", b"\xfe", "254"),
    (b"s", b"\xff\xfe", "-2"),
    (b"u", b"\xff\xfe", "65534"),
    (b"I", b"\xff\xff\xff\xfe", "-2"),
    (b"i", b"\xff\xff\xff\xfe", "4294967294"),
    (b"l", b"\xff" * 7 + b"\xfe", "-2"),
    (b"L", b"\x00" * 7 + b"\x07", "7"),
    (b"t", b"\x01", None),
    (b"d", struct.pack(">d", 1.5), None),
    (b"V", b"", None),
    (b"F", struct.pack(">I", 4) + b"\x01xt\x01", None),
    (b"A", struct.pack(">I", 2) + b"t\x01", None),
]


@pytest.mark.parametrize(("kind", "value", "shown"), FIELDS, ids=[f"{kind.decode()}-{shown}" for kind, _, shown in FIELDS])
def test_a_field_is_read_as_it_lies(kind: bytes, value: bytes, shown: str | None) -> None:
    table = b"\x03one" + kind + value + b"\x04last" + b"S" + struct.pack(">I", 1) + b"z"
    fields = list(read_fields(table))
    assert [(name, its_kind) for name, its_kind, _ in fields] == [(b"one", kind), (b"last", b"S")]
    assert text_of(kind, fields[0][2]) == shown
    _, known = pamqp.decode.field_table(struct.pack(">I", len(table)) + table)
    assert list(known) == ["one", "last"]
    if shown is not None and b"\xff1" not in value:
        assert str(known["one"]) == shown


WHOLE: Final = b"\x03oneS" + struct.pack(">I", 3) + b"two\x03oneI" + struct.pack(">i", 3)


@pytest.mark.parametrize("size", [size for size in range(1, len(WHOLE)) if size != 12])
def test_a_table_that_ends_within_a_field_is_refused(size: int) -> None:
    with pytest.raises(FieldTableError, match="ends within a field"):
        list(read_fields(WHOLE[:size]))


def test_a_type_that_nobody_knows_is_refused_after_what_stands_before_it() -> None:
    fields = read_fields(WHOLE + b"\x01a?")
    assert next(fields) == (b"one", b"S", b"two")
    assert next(fields) == (b"one", b"I", b"\x00\x00\x00\x03")
    with pytest.raises(FieldTableError, match="does not know"):
        next(fields)
