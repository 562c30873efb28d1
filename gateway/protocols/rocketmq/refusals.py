"""Refusals: the gateway's own answers, always JSON (every client reads that; not every one reads the binary encoding).

The naive way encodes one response per refused message and costs more than forwarding it would. All refusals of a run differ only in
their `opaque`; padded to the eleven characters of the longest (`-2147483648`; JSON allows the blanks) they have one length, so one
format string repeated does them all: 110 ns each against 250 ns one by one (2026-11, 2 cores, Python 3.11).
"""

from __future__ import annotations

from typing import Final

import msgspec

FLOW_CONTROL: Final = 215  # no Java, Go or JavaScript client repeats at once what was answered with it (`rocketmq.md` 3.1)
SYSTEM_BUSY: Final = 2  # what MQCloud's clients look for; Java from 5.3.0 on repeats such a send at once
VERSION: Final = 479  # V5_3_3; clients look at it in requests only
OPAQUE: Final = 11  # characters; what `%11d` takes, instead of its four, is seven more


def remark(key_text: str, wait_ns: int) -> str:
    """The text of a refusal; the wait is the true one, rounded up to a whole microsecond."""
    return f"[RateLimit] for {key_text} need wait:{-(-wait_ns // 1000)}microsecs"


def build_refusals(opaques: list[int], code: int, text: str) -> bytes:
    """One response frame for each of `opaques`, with `text` as remark."""
    escaped = msgspec.json.encode(text).replace(b"%", b"%%")
    header = b'{"code":%d,"flag":1,"language":"JAVA","opaque":%%11d,"remark":%b,"serializeTypeCurrentRPC":"JSON","version":%d}' % (
        code,
        escaped,
        VERSION,
    )
    size = len(header) + OPAQUE - 4 - (escaped.count(b"%") // 2)
    frame = ((size + 4).to_bytes(4, "big") + size.to_bytes(4, "big")).replace(b"%", b"%%") + header
    count = len(opaques)
    if count == 1:
        return frame % opaques[0]
    return frame * count % tuple(opaques)
