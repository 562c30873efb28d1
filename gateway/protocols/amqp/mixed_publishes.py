"""Publishes of several topics and sizes that follow one another on a channel, as one part for as long as they have one fate."""

from __future__ import annotations

from mypy_extensions import i64

from common.octets import u32
from gateway.pipeline.mixing import Mixing
from gateway.pipeline.parts import REQUEST, Part
from gateway.protocols.amqp.frames import OVERHEAD
from limiter.columns import Columns
from limiter.request import Request


class MixedPublishes(Part):
    """All of them are whole."""

    def __init__(self, channel_id: int, data: bytes, start: int, end: int, columns: Columns, count: int, mixing: Mixing) -> None:
        super().__init__(REQUEST, channel_id, data, start, end, None, count, 1)
        self.columns = columns
        self.mixing = mixing

    def cut(self) -> list[Request]:
        self.mixing.note_cut()
        return super().cut()

    def make_pieces(self) -> list[Request]:
        columns = self.columns
        assert columns is not None
        found: list[Request] = []
        data = self.data
        at: i64 = self.start
        for row in columns.rows:
            size: i64 = row >> 32
            count: i64 = row >> 16 & 0xFFFF
            begin: i64 = at
            left: i64 = count
            while left > 0:
                at += u32(data, at + 3) + OVERHEAD
                at += u32(data, at + 3) + OVERHEAD
                if size:
                    at += size + OVERHEAD
                left -= 1
            part = Part(REQUEST, self.ordering_key, data, begin, at, columns.sums[row & 0xFFFF].key, count, 1, size)
            part.unanswered = self.unanswered
            found.append(part)
        return found
