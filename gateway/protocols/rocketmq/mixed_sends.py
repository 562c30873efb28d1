"""Sends to several topics and of several sizes that follow one another, as one part for as long as they have one fate."""

from __future__ import annotations

from librt.vecs import append, vec
from mypy_extensions import i64

from common.octets import u32
from gateway.pipeline.mixing import MixedPart, Mixing, Stretches
from gateway.pipeline.parts import Part
from gateway.protocols.rocketmq.requests import Sends
from limiter.columns import FIRST_ROWS, Columns
from limiter.keys import Key
from limiter.request import Request


class MixedSends(MixedPart):
    """All are one-way or none."""

    def __init__(self, run: Sends, mixing: Mixing) -> None:
        """Begins as `run`."""
        columns = Columns()
        super().__init__(0, run.data, run.start, run.end, columns, run.count, mixing)
        key = run.key
        assert key is not None
        self.unanswered = run.one_way
        self.opaques = vec[i64](capacity=FIRST_ROWS)
        for opaque in run.opaques:
            self.opaques = append(self.opaques, opaque)
        columns.add(key, run.count, run.size)

    def add(self, key: Key, size: i64, opaque: i64, end: i64) -> None:
        """The next is of `key`, and ends at `end`."""
        columns = self.columns
        assert columns is not None
        columns.add(key, 1, size)
        self.opaques = append(self.opaques, opaque)
        self.count += 1
        self.end = end

    def settle(self, formats: list[bytes], outbox: list[Part]) -> bytes:
        """The answers to those that are refused, by `formats` of the refusals; of the others the bytes go on, and it counts them alone."""
        columns = self.columns
        assert columns is not None
        data = self.data
        stretches = Stretches(self, outbox)
        answers: list[bytes] = []
        begin: i64 = self.start  # of what goes on, up to `at`
        at: i64 = begin
        number: i64 = 0
        for row in range(len(columns.rows)):
            fate: i64 = columns.fates[row]
            refused: i64 = fate & 0xFFFF
            left: i64 = columns.rows[row] >> 16 & 0xFFFF
            while left > 0:
                if left == refused and at > begin:
                    stretches.add(begin, at)
                at += 4 + u32(data, at)
                if left <= refused:
                    answers.append(formats[fate >> 16] % self.opaques[number])
                    begin = at
                number += 1
                left -= 1
        if at > begin:
            stretches.add(begin, at)
        stretches.join()
        self.start = self.end
        self.count = self.passed
        return b"".join(answers)

    def make_pieces(self) -> list[Request]:
        columns = self.columns
        assert columns is not None
        found: list[Request] = []
        last: Sends | None = None  # grows while sends alike follow one another
        data = self.data
        at: i64 = self.start
        number: i64 = 0
        for row_number in range(len(columns.rows)):
            row: i64 = columns.rows[row_number]
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
            if last is not None:
                last.add_fate(columns, row_number)
        return found
