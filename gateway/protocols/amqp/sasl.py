"""SASL: the user that a client claims to be, out of the response in connection.start-ok.

Limits and caps are kept per user, so the gateway must read the name the broker will read, or let nobody in: a response that the broker
takes and the gateway does not understand would be a way around every one of them. So each mechanism is read as RabbitMQ reads it
(`rabbit_auth_mechanism_*.erl`), and what cannot be read so is refused here, with the code RabbitMQ logs before it hangs up (502).

Mechanisms the gateway does not know (of a plugin, ANONYMOUS, OAUTHBEARER) are the broker's to judge. Their clients have no user here and
share what is kept per user: one bucket, one count of connections.

Passwords pass through; they are never kept, and no error shows them.
"""

from __future__ import annotations

from gateway.protocols.amqp.field_table import TEXTS, FieldTableError, read_fields
from gateway.protocols.amqp.frames import SYNTAX_ERROR, client_error


def user_of(mechanism: bytes, response: bytes) -> str | None:
    """The name to be authenticated; None where the mechanism is not known here. Raises ProtocolError where the name cannot be read."""
    if mechanism == b"PLAIN":
        name = _parse_plain(response)
    elif mechanism == b"AMQPLAIN":
        name = _parse_amqplain(response)
    elif mechanism == b"RABBIT-CR-DEMO":  # the name alone; the password comes in secure-ok
        name = response
    else:
        return None
    return name.decode("utf-8", "backslashreplace")  # reversible: two names never become one


def _parse_plain(response: bytes) -> bytes:
    """RFC 4616: authorize NUL authenticate NUL password. RabbitMQ wants the first empty, others ignore it."""
    fields = response.split(b"\x00")
    if len(fields) != 3:
        raise client_error(SYNTAX_ERROR, "the PLAIN response is invalid: it is an empty name, NUL, the user, NUL, the password")
    return fields[1]


def _parse_amqplain(table: bytes) -> bytes:
    """The first LOGIN of a field table without its length. RabbitMQ takes it of either kind of text where PASSWORD is one."""
    try:
        for name, kind, value in read_fields(table):
            if name == b"LOGIN":
                if kind not in TEXTS:
                    raise _unreadable("uses an unsupported type for the field LOGIN; send a long string")
                return value
    except FieldTableError as error:
        raise _unreadable(str(error)) from None
    raise _unreadable("is missing the field LOGIN")


def _unreadable(why: str) -> Exception:
    return client_error(SYNTAX_ERROR, f"the AMQPLAIN response {why}")
