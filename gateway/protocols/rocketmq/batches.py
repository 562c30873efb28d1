"""Batches: how many messages the body of one SEND request holds.

The client says in the header that the body is a batch (`m` or `batch` is true); the broker believes that flag, not the request's code
(`docs/design/rocketmq.md` 2.1). The body is then a chain of entries::

    4 total size | 4 magic | 4 body CRC | 4 flag | 4 body length | body | 2 properties length | properties

We walk as the broker does when it stores them (MessageExtEncoder.encode, apache/rocketmq 18f2dcc): by the lengths of body and
properties. It never looks at `total size`, so counting by that would let a client declare a thousand messages to be one.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from common.octets import u16, u32

FIXED: Final = 22  # bytes of an entry besides body and properties


def count_batch(data: bytes, start: i64, end: i64) -> int:
    """The number of messages in the batch `data[start:end]`; 1 where the chain is broken (the broker then stores nothing)."""
    count = 0
    at: i64 = start
    while end - at >= FIXED:
        body: i64 = u32(data, at + 16)
        if body > end - at - FIXED:
            return 1
        at += 20 + body
        properties: i64 = u16(data, at)
        if properties > end - at - 2 or properties > 0x7FFF:
            return 1
        at += 2 + properties
        count += 1
    return count if at == end and count > 0 else 1
