"""What an AMQP broker is asked to see that it lives: the protocol's header, which it answers with connection.start.

Nothing can be said after that without a login: a connection.close before the client is logged in is an error to RabbitMQ. So the asker
sends FIN. RabbitMQ 3.10.8 then logs a warning ("client unexpectedly closed TCP connection") and no error.
"""

from __future__ import annotations

import struct
from typing import Final

from gateway.protocols.question import Question, WrongAnswerError, began_with

HEADER: Final = b"AMQP\x00\x00\x09\x01"
START: Final = b"\x00\x0a\x00\x0a"  # class and method of connection.start
METHOD_FRAME: Final = b"\x01\x00\x00"  # type and channel 0
# What RabbitMQ says to a PROXY header that it does not expect: before 4.0 the header that it wants, since then that of AMQP 1.0 with SASL.
MISHEARD: Final = (HEADER, b"AMQP\x03\x01\x00\x00")


def is_answer(data: bytes) -> bool:
    """Whether `data` is a whole connection.start, or the header of another version, after which a broker closes."""
    if data[: len(HEADER)] in MISHEARD:
        raise WrongAnswerError("takes what it was sent for another protocol than AMQP 0-9-1", misheard=True)
    if HEADER.startswith(data[:4]):
        return len(data) >= len(HEADER)
    if data[:3] != METHOD_FRAME[: len(data[:3])] or (len(data) >= 11 and data[7:11] != START):
        raise began_with(data, "AMQP")
    return len(data) >= 11 and len(data) >= 8 + int(struct.unpack_from("!I", data, 3)[0])


QUESTION: Final = Question("AMQP's header", HEADER, is_answer)
