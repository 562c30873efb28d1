"""Long headers: requests whose header is longer than is taken (`MAX_HEADER_BYTES`), answered and thrown away.

The naive way closes the connection, and with it fails whatever else its client waits for: a producer with a stack trace in a property
looks like a broken network. The broker answers such a send MESSAGE_ILLEGAL, so we do. The header is not kept, or strangers could fill
the memory with them: of it stay its first and its last bytes, where clients write what an answer needs::

    {"code":310,"extFields":{ … 300 kB … },"flag":0,"language":"JAVA","opaque":5,…}     Java, C++: names in order, so at the end
    {"code":310,"language":"GO","version":317,"opaque":5,"flag":0,"extFields":{ … }}    Go: at the beginning, as in the binary encoding

What begins as another request (`begins_as_other`) is kept until its header is there, read like any, and passes: what the broker answers
depends on it. Of other headers nothing reaches the broker, so it does no harm to read them less strictly than `headers.py` reads. What
cannot be answered, because it is an answer itself or its opaque is not found, closes the connection; a one-way request is thrown away
without a word.
"""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64

from common.octets import u16, u32
from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.headers import FIXED, JSON, LONG_NAMES, ONE_WAY, RESPONSE, SHORT_NAMES, signed32
from gateway.protocols.rocketmq.refusals import build_refusals
from gateway.protocols.rocketmq.size_checks import MAX_HEADER_BYTES, header_too_long

MESSAGE_ILLEGAL: Final = 13  # what the broker answers to properties that are too long,
SYSTEM_ERROR: Final = 1  # and to most other requests that it cannot use
KEPT_BYTES: Final = 4096  # of the beginning of a header, and of its end: a guess
BRACE: Final = 123
HEAD_BYTES: Final = 32  # by which a request that is no send is told
CODE: Final = re.compile(rb'{"code":([1-9][0-9]{0,8}),')
SENDS: Final = (LONG_NAMES | SHORT_NAMES) - {370}  # all but RECALL_MESSAGE, which has no properties

NUMBER: Final = re.compile(rb'"(code|flag|opaque)"\s*:\s*(-?[0-9]{1,10})\s*[,}]')  # a quote within a text has a backslash before it


class LongHeader:
    """One frame with such a header, while it comes in. Keeps `2 * KEPT_BYTES` at most."""

    __slots__ = ("body_left", "fault", "head", "header_left", "kind", "size", "tail")

    def __init__(self, kind: int, size: int, body: int) -> None:
        self.kind = kind
        self.size = size  # bytes of the header
        self.header_left: i64 = size
        self.body_left: i64 = body
        self.head = b""
        self.tail = b""
        self.fault: ProtocolError | None = None  # it cannot be answered

    def skip(self, data: bytes, start: i64) -> i64:
        """Take what is there of the frame in `data[start:]`; where it ends. Raises ProtocolError where it is no RocketMQ header."""
        at: i64 = start
        there: i64 = min(len(data) - at, self.header_left)
        if there > 0:
            if len(self.head) < KEPT_BYTES:
                self.head += data[at : min(at + KEPT_BYTES - len(self.head), at + there)]
                if self.kind == JSON and self.head[0] != BRACE:
                    self.fault = header_too_long(self.size)
            end: i64 = at + there
            self.tail = (self.tail + data[max(at, end - KEPT_BYTES) : end])[-KEPT_BYTES:]
            self.header_left -= there
            at = end
        if self.fault is not None:
            raise self.fault
        if self.header_left == 0:
            there = min(len(data) - at, self.body_left)
            self.body_left -= there
            at += there
        return at

    def is_over(self) -> bool:
        return self.header_left == 0 and self.body_left == 0

    def reply(self) -> bytes:
        """The frame that answers it; b"" where the client expects none. Raises ProtocolError, each time, where it cannot be answered."""
        code, flag, opaque = self._read_binary() if self.kind != JSON else self._read_json()
        if opaque is None or flag & RESPONSE:
            self.fault = header_too_long(self.size)
            raise self.fault
        if flag & ONE_WAY:
            return b""
        return build_refusals([opaque], MESSAGE_ILLEGAL if code in SENDS else SYSTEM_ERROR, remark(self.size))

    def _read_json(self) -> tuple[int, int, int | None]:
        """Code, flag and opaque: of what stands before extFields, whose members may have such names, and behind them."""
        before = self.head.partition(b'"extFields"')[0]
        behind = self.tail[self.tail.rfind(b"},") + 1 :]
        found: dict[bytes, int] = {}
        for name, digits in NUMBER.findall(before) + NUMBER.findall(behind):
            found.setdefault(name, int(digits))
        opaque = found.get(b"opaque")
        if opaque is not None and not -0x8000_0000 <= opaque <= 0x7FFF_FFFF:
            opaque = None
        return found.get(b"code", 0), found.get(b"flag", 0), opaque

    def _read_binary(self) -> tuple[int, int, int | None]:
        assert len(self.head) >= FIXED
        return u16(self.head, 0), signed32(u32(self.head, 9)), signed32(u32(self.head, 5))

    def __repr__(self) -> str:
        return f"<LongHeader size={self.size} header_left={self.header_left} body_left={self.body_left}>"


def begins_as_other(data: bytes, at: i64, kind: i64) -> bool:
    """Whether the header at `data[at]` is that of a request which is no send, by its first bytes: most clients write the code there."""
    if kind != JSON:
        return u16(data, at) not in SENDS
    found = CODE.match(data, at, at + HEAD_BYTES)
    return found is not None and int(found.group(1)) not in SENDS


def remark(size: int) -> str:
    return (
        f"the request's header has {size} bytes, more than the {MAX_HEADER_BYTES} that the gateway takes; the broker takes 32767 bytes of"
        " properties: put large values into the message's body"
    )
