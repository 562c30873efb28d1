"""Sends to several topics and of several sizes that follow one another, as one part for as long as they have one fate."""

from __future__ import annotations

from librt.vecs import append, vec
from mypy_extensions import i64

from common.octets import u32
from gateway.pipeline.mixing import Mixing
from gateway.pipeline.parts import REQUEST, Part
from gateway.protocols.rocketmq.requests import Sends
from limiter.columns import FIRST_ROWS, Columns
from limiter.keys import Key
from limiter.request import Request


class MixedSends(Part):
    """All of them are whole, of one message each, and all are one-way or none."""

    def __init__(self, run: Sends, mixing: Mixing) -> None:
        """Begins as `run`."""
        super().__init__(REQUEST, 0, run.data, run.start, run.end, None, run.count, 1)
        key = run.key
        assert key is not None
        self.unanswered = run.one_way
        self.mixing = mixing
        self.opaques = vec[i64](capacity=FIRST_ROWS)
        for opaque in run.opaques:
            self.opaques = append(self.opaques, opaque)
        self.columns = Columns()
        self.columns.add(key, run.count, run.size)

    def add(self, key: Key, size: i64, opaque: i64, end: i64) -> None:
        """The next is of `key`, and ends at `end`."""
        columns = self.columns
        assert columns is not None
        columns.add(key, 1, size)
        self.opaques = append(self.opaques, opaque)
        self.count += 1
        self.end = end

    def cut(self) -> list[Request]:
        self.mixing.note_cut()
        return super().cut()

    def make_pieces(self) -> list[Request]:
        columns = self.columns
        assert columns is not None
        found: list[Request] = []
        last: Sends | None = None  # grows while sends alike follow one another
        data = self.data
        at: i64 = self.start
        number: i64 = 0
        for row in columns.rows:
            key = columns.sums[row & 0xFFFF].key
            size: i64 = row >> 32
            left: i64 = row >> 16 & 0xFFFF
            while left > 0:
                end: i64 = at + 4 + u32(data, at)
                opaque: int = self.opaques[number]
                if last is not None and last.key is key and last.size == size:
                    last.count += 1
                    last.end = end
                    last.opaques.append(opaque)
                else:
                    last = Sends(data, at, end, key, 1, size, [opaque], self.unanswered, False, True)
                    found.append(last)
                at = end
                number += 1
                left -= 1
        return found
