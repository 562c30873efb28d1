"""A RocketMQ group's backlog, by the broker's own offsets: GET_CONSUME_STATS (208), which gives both ends of every queue.

Its body is fastjson's, in which the keys of a table are objects (`{{"brokerName":...}:{"brokerOffset":7,...}}`). No JSON parser reads that,
so the two numbers of each queue are looked for by their names, which no topic or broker can contain unescaped.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from gateway.broker_load.source import MAX_ANSWER_BYTES, MAX_FRAMES, BacklogError, Source

if TYPE_CHECKING:
    from limiter.limits import Lag

GET_CONSUME_STATS: Final = 208
ENDS: Final = re.compile(rb'"brokerOffset":(-?\d{1,19})')
TAKEN: Final = re.compile(rb'"consumerOffset":(-?\d{1,19})')


def request(opaque: int, topic: str, group: str) -> bytes:
    """The frame that asks for `group`'s offsets in `topic`."""
    header = {
        "code": GET_CONSUME_STATS,
        "flag": 0,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 0,
        "extFields": {"consumerGroup": group, "topic": topic},
    }
    encoded = json.dumps(header).encode()
    return (4 + len(encoded)).to_bytes(4, "big") + len(encoded).to_bytes(4, "big") + encoded


def read_answer(frame: bytes, opaque: int) -> int | None:
    """What a whole frame (without its length) says; None where it answers something else. Raises BacklogError."""
    size = int.from_bytes(frame[:4], "big") & 0xFFFFFF
    try:
        header = json.loads(frame[4 : 4 + size])
    except (ValueError, RecursionError) as error:
        raise BacklogError(f"the broker's answer is not understood: {error}") from error
    if not isinstance(header, dict) or not isinstance(header.get("flag", 0), int):
        raise BacklogError("the broker's answer is not understood: its header is no object with a flag")
    if header.get("opaque") != opaque or not header.get("flag", 0) & 1:
        return None
    if header.get("code") != 0:
        raise BacklogError(f"code {header.get('code')}: {header.get('remark') or 'no remark'}")
    body = frame[4 + size :]
    ends = [int(number) for number in ENDS.findall(body)]
    taken = [int(number) for number in TAKEN.findall(body)]
    if not ends or len(ends) != len(taken):
        raise BacklogError("the group has no offsets in this topic yet")
    return sum(max(0, end - max(0, there)) for end, there in zip(ends, taken, strict=True))


class RocketmqSource(Source):
    """One RocketMQ broker."""

    opaque = 0

    async def ask(self, topic: str, lag: Lag) -> int:
        self.opaque += 1
        await self.write(request(self.opaque, topic, lag.group))
        data = b""
        for _ in range(MAX_FRAMES):
            while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
                if len(data) >= 4 and int.from_bytes(data[:4], "big") > MAX_ANSWER_BYTES:
                    raise BacklogError(f"the broker's answer is longer than {MAX_ANSWER_BYTES} bytes")
                data += await self.read()
            size = int.from_bytes(data[:4], "big")
            found = read_answer(data[4 : 4 + size], self.opaque)
            if found is not None:
                return found
            data = data[4 + size :]
        raise BacklogError(f"the broker has said {MAX_FRAMES} things and not answered")
