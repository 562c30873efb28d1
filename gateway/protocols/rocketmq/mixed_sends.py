"""Sends to several topics and of several sizes that follow one another, as one part for as long as they have one fate."""

from __future__ import annotations

from typing import Final

from librt.vecs import append, vec
from mypy_extensions import i64

from common.octets import hash_octets, u32
from gateway.pipeline.mixing import MixedPart, Mixing, Stretches
from gateway.pipeline.parts import Part
from gateway.protocols.rocketmq.layouts import LENGTH_SHIFT, MAX_OPAQUE, PLACE, PLACE_SHIFT, Layout, match_layout
from gateway.protocols.rocketmq.requests import Sends
from gateway.protocols.rocketmq.size_checks import MAX_HEADER_BYTES, PREFIX
from limiter.columns import FIRST_ROWS, Columns
from limiter.keys import Key
from limiter.recent_keys import WAYS, RecentKeys, find_place
from limiter.request import Request
from limiter.scanned_columns import BEFORE, MAX_KEYS, MAX_ROWS, MESSAGES, SCANNED, join, note_message

found_opaques: Final = vec[i64]([0] * (BEFORE + MAX_ROWS))  # of one scan, whose room is used again and again


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

    def scan(self, data: bytes, at: i64, size: i64, room: i64, most: i64, layout: Layout, recent: RecentKeys) -> i64:
        """Add the sends from `at` on, `room` at most, of `most` bytes each, that are of `layout` and whose keys are `recent` ones.

        Returns how many those are; -1: scans have no room for more keys.
        """
        columns = self.columns
        assert columns is not None
        if len(columns.sums) >= MAX_KEYS:
            return -1
        sums = SCANNED.begin(columns)
        opaques = found_opaques
        end: i64 = scan_sends(
            data, at, size, room, most, layout.plan, layout.text,
            recent.hashes, recent.names, recent.numbers, SCANNED.turn, sums, SCANNED.rows, opaques,
        )  # fmt: skip
        if end == at:
            return 0
        found: i64 = SCANNED.end(columns, recent)
        self.opaques = join(self.opaques, opaques, BEFORE + found)
        self.count += found
        self.end = end
        return found

    def close(self) -> None:
        """That was all."""
        columns = self.columns
        assert columns is not None
        SCANNED.close(columns)
        columns.close()

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


# ---- also in C (`mixed_sends.c`) ------------------------------------------------------------------------------------


def scan_sends(
    data: bytes, at: i64, end: i64, room: i64, most: i64, plan: bytes, text: bytes,
    hashes: vec[i64], names: list[bytes], numbers: vec[i64], turn: i64, sums: vec[i64], rows: vec[i64], opaques: vec[i64],
) -> i64:  # fmt: skip
    """Along the frames in `data[at:end]`, `room` at most and of `most` bytes each; returns where the first begins that is not found.

    Their headers are of the layout that `plan` and `text` say, in which the topic varies. What is found is noted
    (`limiter.scanned_columns`), and opaques are written behind BEFORE. `hashes`, `names` and `numbers` are the recent keys'.
    """
    while sums[MESSAGES] < room and BEFORE + sums[MESSAGES] < len(opaques) and end - at >= PREFIX:
        header: i64 = u32(data, at + 4)
        header_end: i64 = at + PREFIX + header
        stop: i64 = at + 4 + u32(data, at)
        if header > MAX_HEADER_BYTES or header_end > stop or stop > end or stop - at > most:  # another serialize type is beyond that, too
            break
        found: i64 = match_layout(plan, text, data, at + PREFIX, header_end)
        if found <= MAX_OPAQUE:
            break
        name: i64 = at + PREFIX + (found >> PLACE_SHIFT & PLACE)
        name_end: i64 = name + (found >> LENGTH_SHIFT)
        wanted: i64 = hash_octets(data, name, name_end)
        place: i64 = find_place(hashes, names, wanted, wanted & len(hashes) - WAYS, data, name, name_end)
        if place < 0 or not note_message(sums, rows, numbers, turn, place, stop - header_end):
            break
        opaques[BEFORE + sums[MESSAGES] - 1] = found & MAX_OPAQUE
        at = stop
    return at
