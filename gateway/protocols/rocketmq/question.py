"""What a RocketMQ broker or name server is asked to see that it lives: the route of a topic that nobody has.

A name server answers that it knows none; a broker, that it does not know the request. Neither does anything for it, and any answer will
do: one that ACLs refuse is refused in an answer, too.
"""

from __future__ import annotations

import json
import struct
from typing import Final

from gateway.protocols.question import MAX_ANSWER_BYTES, Question, began_with

ROUTE: Final = 105  # GET_ROUTEINFO_BY_TOPIC
NOT_SUPPORTED: Final = 3  # REQUEST_CODE_NOT_SUPPORTED
RESPONSE: Final = 1  # bit of the flag
ONE_WAY: Final = 2  # bit of the flag
OPAQUE: Final = 1
TOPIC: Final = "sluice-looks-for-a-broker"


def _request(flag: int = 0) -> bytes:
    fields = {"topic": TOPIC}
    header = json.dumps({"code": ROUTE, "extFields": fields, "flag": flag, "language": "JAVA", "opaque": OPAQUE, "version": 317}).encode()
    return struct.pack("!II", 4 + len(header), len(header)) + header


def answer_code(data: bytes) -> int | None:
    """The code of the whole answer `data`; None where it is none."""
    try:
        length = int(struct.unpack_from("!I", data, 4)[0]) & 0xFFFFFF
        said = json.loads(data[8 : 8 + length])
    except (ValueError, struct.error):
        return None
    if not isinstance(said, dict) or said.get("opaque") != OPAQUE:
        return None
    flag, code = said.get("flag", 0), said.get("code")
    return code if isinstance(flag, int) and flag & RESPONSE and isinstance(code, int) else None


def is_answer(data: bytes) -> bool:
    """Whether `data` is a whole answer."""
    if len(data) < 4:
        return False
    size = 4 + int(struct.unpack_from("!I", data)[0])
    if size > MAX_ANSWER_BYTES:
        raise began_with(data, "RocketMQ's remoting protocol")
    if len(data) < size:
        return False
    if answer_code(data) is None:
        raise began_with(data, "RocketMQ's remoting protocol")
    return True


QUESTION: Final = Question("a route that nobody has", _request(), is_answer)
STATEMENT: Final = _request(ONE_WAY)  # the same without an answer, which might meet a request of the client's
