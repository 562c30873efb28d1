"""Request and reply: sends whose requester waits for an answer, and for how long.

A request is a send with the properties `REPLY_TO_CLIENT`, `CORRELATION_ID` and `TTL`, in ms. Held for longer than that it would be
carried out after its requester has given up. So it is refused: at once where its limit says so long a wait, else when its time is over.
"""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64

from common.octets import u32
from gateway.pipeline.parts import Part
from gateway.protocols.rocketmq.size_checks import PREFIX

REQUESTER: Final = b"REPLY_TO_CLIENT"
TTL: Final = re.compile(  # behind another property, a quote, or the length of a binary value
    rb'(?:["\x02]|\\u0002|\x00\x00..)TTL(?:\x01|\\u0001)([0-9]{1,9})(?:\x02|\\u0002)', re.DOTALL
)
MILLISECOND: Final = 1_000_000  # ns


def shortest_ttl_ns(part: Part) -> int:
    """For how long the first to give up of those who sent `part` waits; 0: nobody waits for a reply."""
    data = part.data
    shortest = 0
    at: i64 = part.start
    end: i64 = part.end
    while at + PREFIX <= end:
        header_end: i64 = at + PREFIX + (u32(data, at + 4) & 0xFFFFFF)
        if data.find(REQUESTER, at + PREFIX, header_end) >= 0:
            found = TTL.search(data, at + PREFIX, header_end)
            if found is not None:
                ttl = int(found.group(1)) * MILLISECOND
                shortest = ttl if shortest == 0 else min(shortest, ttl)
        at += 4 + u32(data, at)
    return shortest
