"""Requests that are limited, as parts of a batch: what the conversation must remember of them besides."""

from __future__ import annotations

from gateway.messages import REQUEST, Part
from limiter.keys import Key


class Sends(Part):
    """A run of like sends (or consumer send-backs): frames one behind the other, same key, same cost, all one-way or none."""

    __slots__ = ("due", "one_way", "opaques", "order", "streamed")

    def __init__(
        self,
        data: bytes,
        start: int,
        end: int,
        key: Key,
        messages: int,
        size: int,
        opaques: list[int],
        one_way: bool,  # noqa: FBT001  -- positional for speed; one per run
        streamed: bool,  # noqa: FBT001
        complete: bool,  # noqa: FBT001
    ) -> None:
        super().__init__(REQUEST, 0, data, start, end, key, len(opaques), messages, size, complete)
        self.opaques = opaques  # of the requests, in order: what a refusal is addressed to
        self.one_way = one_way  # nobody waits for an answer
        self.streamed = streamed  # one frame too large to be kept: its body is passed on or thrown away as it comes
        self.order = 0  # place among the held parts of the connection; 0: was never held
        self.due = 0  # while held: monotonic ns at which to judge it again
