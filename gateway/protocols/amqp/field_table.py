"""Field tables, read field by field: of a client's properties, and of the SASL response that is one.

pamqp reads them, too, into values of Python. It copies the rest of the table for each field, and brings a class for each method of AMQP.
Of all these values two or three are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

# Bytes of a field's value after its type octet, as RabbitMQ counts them (rabbit_binary_parser.erl, 3.10 to 4.x; it differs from the
# specification in `s`, a 16-bit number, and in `l` and `L`, both 64 bits).
SIZES: Final = {
    b"t": 1, b"b": 1, b"B": 1, b"s": 2, b"u": 2, b"I": 4, b"i": 4, b"f": 4, b"D": 5, b"l": 8, b"L": 8, b"d": 8, b"T": 8, b"V": 0,
}  # fmt: skip
LONG: Final = b"SxFA"  # strings, bytes, tables, arrays: begin with their length in 32 bits; what is in them is skipped unread
TEXTS: Final = b"Sx"
SIGNED: Final = b"bsIlL"
UNSIGNED: Final = b"Bui"


class FieldTableError(Exception):
    """Words for what is wrong with a table, behind its name."""


def read_fields(table: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Name, type octet and value of each field of a table without its length: name shortstr, type, value; again and again.

    Raises FieldTableError at the first one that cannot be read.
    """
    at = 0
    end = len(table)
    while at < end:
        kind_at = at + 1 + table[at]
        kind = table[kind_at : kind_at + 1]
        start = kind_at + 1
        if kind and kind in LONG:
            start += 4
            stop = start + int.from_bytes(table[start - 4 : start], "big")
        else:
            size = SIZES.get(kind)
            if size is None:
                raise FieldTableError("has a field of a type that AMQP does not know" if kind else "ends within a field")
            stop = start + size
        if stop > end:
            raise FieldTableError("ends within a field")
        yield table[at + 1 : kind_at], kind, table[start:stop]
        at = stop


def text_of(kind: bytes, value: bytes) -> str | None:
    """A text or a whole number, as text; None: it is neither."""
    if kind in TEXTS:
        return value.decode("utf-8", "backslashreplace")
    if kind in SIGNED or kind in UNSIGNED:
        return str(int.from_bytes(value, "big", signed=kind in SIGNED))
    return None
