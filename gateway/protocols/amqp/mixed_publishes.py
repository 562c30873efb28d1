"""Publishes of several topics and sizes that follow one another on a channel, as one part (`gateway.pipeline.mixing`)."""

from __future__ import annotations

from librt.strings import BytesWriter, read_i64_be
from mypy_extensions import i64

from gateway.pipeline.mixing import MixedPart, Stretches
from gateway.pipeline.parts import REQUEST, Part
from gateway.protocols.amqp.confirms import Confirms
from gateway.protocols.amqp.frames import OVERHEAD, write_nacks
from gateway.protocols.amqp.refusals import is_mandatory, write_answer
from limiter.request import Request


class MixedPublishes(MixedPart):
    """Each has no more than one body frame."""

    def make_pieces(self) -> list[Request]:
        columns = self.columns
        assert columns is not None
        found: list[Request] = []
        last: Part | None = None  # grows while publishes alike follow one another: rows of a key that was scanned and of one added alone
        at: i64 = self.start
        for row in range(len(columns.rows)):
            begin: i64 = at
            count: i64 = columns.rows[row] >> 16 & 0xFFFF
            size: i64 = columns.rows[row] >> 32
            at = skip(self.data, at, count, size)
            if last is not None and last.key is columns.sums[columns.rows[row] & 0xFFFF].key and last.size == size:
                last.end = at
                last.count += count
                last.add_fate(columns, row)
            else:
                last = self._make_piece(row, begin, at)
                found.append(last)
        return found

    def _make_piece(self, row: i64, begin: i64, end: i64) -> Part:
        columns = self.columns
        assert columns is not None
        alike: i64 = columns.rows[row]
        count: i64 = alike >> 16 & 0xFFFF
        part = Part(REQUEST, self.ordering_key, self.data, begin, end, columns.sums[alike & 0xFFFF].key, count, 1, alike >> 32)
        part.unanswered = self.unanswered
        part.add_fate(columns, row)
        return part

    def settle(self, confirms: Confirms, answers: BytesWriter, body_frame: int, outbox: list[Part]) -> None:
        """Count all of them, in order. Those that are refused are answered; of the others the bytes go on, and it counts them alone."""
        columns = self.columns
        assert columns is not None
        data = self.data
        rows = columns.rows
        fates = columns.fates
        channel = self.ordering_key
        stretches = Stretches(self, outbox)
        begin: i64 = self.start  # of what goes on, up to `at`
        passing: i64 = 0  # messages in it
        at: i64 = begin
        for row in range(len(rows)):
            count: i64 = rows[row] >> 16 & 0xFFFF
            size: i64 = rows[row] >> 32
            refused: i64 = fates[row] & 0xFFFF
            if refused < count:
                passing += count - refused
                at = skip(data, at, count - refused, size)
            if refused == 0:
                continue
            if passing > 0:
                confirms.forward(passing)
                stretches.add(begin, at)
                passing = 0
            begin = at
            tag: i64 = confirms.refuse(refused)
            mandatory = False
            left: i64 = refused
            while left > 0:
                mandatory = mandatory or is_mandatory(data, at)
                at = skip(data, at, 1, size)
                left -= 1
            if mandatory:
                write_answer(answers, self._make_piece(row, begin, at), tag, refused, body_frame)
            else:
                write_nacks(answers, channel, tag, refused)
            begin = at
        if passing > 0:
            confirms.forward(passing)
            stretches.add(begin, at)
        stretches.join()
        self.start = self.end
        self.count = self.passed


def skip(data: bytes, at: i64, count: i64, size: i64) -> i64:
    """Where `count` publishes with bodies of `size` bytes end that begin at `at`."""
    body: i64 = 0
    if size > 0:
        body = size + OVERHEAD
    while count > 0:
        at += (read_i64_be(data, at) >> 8 & 0xFFFF_FFFF) + OVERHEAD  # a frame begins: type, channel, size of its payload
        at += (read_i64_be(data, at) >> 8 & 0xFFFF_FFFF) + OVERHEAD + body
        count -= 1
    return at
