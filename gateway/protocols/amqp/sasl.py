"""SASL: the user that a client claims to be, out of the response in connection.start-ok.

Limits and caps are kept per user, so the gateway must read the name the broker will read, or let nobody in: a response that the broker
takes and the gateway does not understand would be a way around every one of them. So each mechanism is read as RabbitMQ reads it
(`rabbit_auth_mechanism_*.erl`), and what cannot be read so is refused here, with the code RabbitMQ logs before it hangs up (502).

Mechanisms the gateway does not know (of a plugin, ANONYMOUS, OAUTHBEARER) are the broker's to judge. Their clients have no user here and
share what is kept per user: one bucket, one count of connections.

Passwords pass through; they are never kept, and no error shows them.
"""

from __future__ import annotations

from typing import Final

from gateway.protocols.amqp.frames import SYNTAX_ERROR, client_error

# Bytes of a field's value after its type octet, as RabbitMQ counts them (rabbit_binary_parser.erl, 3.10 to 4.x; it differs from the
# specification in `s`, a 16-bit number, and in `l` and `L`, both 64 bits).
SIZES: Final = {
    b"t": 1, b"b": 1, b"B": 1, b"s": 2, b"u": 2, b"I": 4, b"i": 4, b"f": 4, b"D": 5, b"l": 8, b"L": 8, b"d": 8, b"T": 8, b"V": 0,
}  # fmt: skip
LONG: Final = b"SxFA"  # strings, bytes, tables, arrays: begin with their length in 32 bits; what is in them is skipped unread
NAMES: Final = b"Sx"  # what a LOGIN may be; RabbitMQ takes `x` where PASSWORD is a string


def user_of(mechanism: bytes, response: bytes) -> str | None:
    """The name to be authenticated; None where the mechanism is not known here. Raises ProtocolError where the name cannot be read."""
    if mechanism == b"PLAIN":
        name = _plain(response)
    elif mechanism == b"AMQPLAIN":
        name = _amqplain(response)
    elif mechanism == b"RABBIT-CR-DEMO":  # the name alone; the password comes in secure-ok
        name = response
    else:
        return None
    return name.decode("utf-8", "backslashreplace")  # reversible: two names never become one


def _plain(response: bytes) -> bytes:
    """RFC 4616: authorize NUL authenticate NUL password. RabbitMQ wants the first empty, others ignore it."""
    fields = response.split(b"\x00")
    if len(fields) != 3:
        raise client_error(SYNTAX_ERROR, "the PLAIN response is invalid: it is an empty name, NUL, the user, NUL, the password")
    return fields[1]


def _amqplain(table: bytes) -> bytes:
    """The first LOGIN of a field table without its length: name shortstr, type, value; again and again."""
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
                raise _unreadable("has a field of a type that AMQP does not know" if kind else "ends within a field")
            stop = start + size
        if stop > end:
            raise _unreadable("ends within a field")
        if table[at + 1 : kind_at] == b"LOGIN":
            if kind not in NAMES:
                raise _unreadable("uses an unsupported type for the field LOGIN; send a long string")
            return table[start:stop]
        at = stop
    raise _unreadable("is missing the field LOGIN")


def _unreadable(why: str) -> Exception:
    return client_error(SYNTAX_ERROR, f"the AMQPLAIN response {why}")
