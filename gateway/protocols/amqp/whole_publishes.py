"""Whole publishes: how long the frames of one are, that lies whole in what was read and has nothing unusual.

`measure_publish` is written a second time in C (`whole_publishes.c`), and that is what compiled code calls (`deploy/packaging/native.py`):
it reads two dozen octets of each message. This one is the meaning of it: `tests/gateway/protocols/amqp/test_whole_publishes.py` holds both
to the same.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64

from common.octets import u16, u32
from gateway.protocols.amqp.frames import BASIC_PUBLISH, BODY_FRAME, CONTENT_OF_BASIC, END, HEADER, METHOD, OVERHEAD

LEAST_BYTES: Final = 39  # 17 for the shortest publish, 22 for the shortest header
LEAST_HEADER_BYTES: Final = 22

WHOLE: Final = 0x7FFF_FFFF  # of what `measure_publish` finds: bytes of all frames
HEADER_SHIFT: Final = 31  # above them, those of the content header's frame
HEADER_BYTES: Final = 0x3F_FFFF
METHOD_SHIFT: Final = 53  # and of the method's


# ---- also in C -------------------------------------------------------------------------------------------------------


def measure_publish(data: bytes, pos: i64, end: i64, method: i64, channel: i64, limit: i64) -> i64:
    """Bytes of the frames of a publish on `channel` that lies whole in `data[pos:end]` (METHOD_SHIFT, HEADER_SHIFT, WHOLE); else -1.

    `method`: bytes of its method's frame, where that is known to be one; 0: look at it. `limit`: bytes of a frame's payload, at most. A
    body of several frames is not whole here. Nor is what is larger than the numbers have room for.
    """
    if pos < 0 or end > len(data) or end - pos < LEAST_BYTES:
        return -1
    header: i64 = pos + method
    if method == 0:
        if data[pos] != METHOD or u16(data, pos + 1) != channel or u32(data, pos + 7) != BASIC_PUBLISH:
            return -1
        header = pos + u32(data, pos + 3) + OVERHEAD
        names: i64 = pos + 14 + data[pos + 13]  # where the routing key's length is
        if names >= end:
            return -1
        names += data[names] + 1  # where the bits are
        if names + 2 != header:
            return -1
    if header + LEAST_HEADER_BYTES > end or data[header - 1] != END:
        return -1
    # A header is 02, channel, size, 00 3C 00 00, the body's size and more; a body 03, channel, size, at least one octet.
    head: i64 = read_i64_be(data, header)
    if head >> 40 != (HEADER << 16 | channel) or u32(data, header + 7) != CONTENT_OF_BASIC:
        return -1
    size: i64 = (head >> 8 & 0xFFFF_FFFF) + OVERHEAD
    body: i64 = header + size
    if body > end or size < LEAST_HEADER_BYTES or size > HEADER_BYTES or size - OVERHEAD > limit or data[body - 1] != END:
        return -1
    body_size: i64 = read_i64_be(data, header + 11)
    stop: i64 = body
    if body_size != 0:
        if body_size < 0 or body_size > limit or body_size > end - body - OVERHEAD:
            return -1
        stop += body_size + OVERHEAD
        if read_i64_be(data, body) >> 8 != ((BODY_FRAME << 16 | channel) << 32 | body_size) or data[stop - 1] != END:
            return -1
    if stop - pos > WHOLE:
        return -1
    return header - pos << METHOD_SHIFT | size << HEADER_SHIFT | stop - pos
