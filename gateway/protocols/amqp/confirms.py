"""Confirms of one AMQP channel: the client's delivery tags against the broker's.

After `confirm.select` both ends count the publishes of a channel, from 1. Nobody sends the numbers; they agree because both see the same
publishes. A gateway that swallows one breaks that: from then on the broker's number for a publish is smaller than the client's.

The naive way keeps a map from every broker tag to its client tag. That costs memory and time for each message, though the numbers differ
by the same amount for long stretches: by how many publishes were refused before. So we keep only the **steps**, "from broker tag f on, add
o"; one per stretch of refusals, forgotten once everything before the next step is confirmed.

Translating single confirms is then one look-up. Confirms with `multiple` ("everything up to here") need care, because clients take them
literally. Say the client sent 1 2 3 4, we refused 2, and the broker acks {3, multiple}. Passing {4, multiple} on would tell a client that
counts (the Go client does: measured 2026, 2,016 of 2,857 refusals reported as *acked*, that is lost without a word) that 2 was acked too.
So a translated multiple is **cut at the refused tags**: {1}, {4}. And: never a multiple whose tag is a refused one (aiormq drops the whole
frame when it does not know the tag); never a multiple with nothing outstanding below it (Bunny and amqplib walk backwards).
`docs/design/amqp.md` 1.3 has the measurements.

An ack reaches the client only if the broker acked that very publish. To know what is outstanding (for the cuts, for draining, and to keep
a broker's confirm for a publish that never was from being believed) we keep the low-water mark `low`, below and at which all is confirmed,
and the set `above` of those confirmed out of order above it. In the common case, confirms in order, that is one comparison and one
addition, and the broker's frames pass byte for byte until the first refusal.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from librt.vecs import append, vec
from mypy_extensions import i64

from gateway.pipeline.empties import NO_MEMBERS
from gateway.protocols.amqp.confirm_slots import ConfirmSlots
from gateway.protocols.amqp.frames import broker_error, write_confirm

TRIM_AFTER_STEPS: Final = 64  # passed steps forgotten at a time, so that the cost per step is constant: a guess


class Confirms:
    """The two counts of one channel in confirm mode, and what is outstanding."""

    __slots__ = ("above", "base", "first", "firsts", "forwarded", "low", "offset", "offsets", "published", "slots")

    def __init__(self) -> None:
        self.published = 0  # the client's last tag: publishes forwarded or refused
        self.forwarded = 0  # the broker's last tag
        self.low = 0  # every broker tag up to this one is confirmed
        self.above: set[int] = NO_MEMBERS  # confirmed broker tags above low + 1
        self.base = 0  # what to add to broker tags before the first step
        self.firsts = vec[i64]()  # steps: from this broker tag on ...
        self.offsets = vec[i64]()  # ... add this; both ascending
        self.first = 0  # index of the first step not passed yet
        self.offset = 0  # of the last step
        self.slots: ConfirmSlots | None = None  # the publishes that hold slots; None: none ever did

    def forward(self, count: int) -> None:
        """The next `count` publishes go to the broker."""
        offset = self.published - self.forwarded
        if offset != self.offset:
            if self.low == self.forwarded:  # nothing outstanding: no step needed
                self.base = offset
                self.firsts = vec[i64]()
                self.offsets = vec[i64]()
                self.first = 0
            else:
                self.firsts = append(self.firsts, self.forwarded + 1)
                self.offsets = append(self.offsets, offset)
            self.offset = offset
        self.published += count
        self.forwarded += count

    def refuse(self, count: int) -> int:
        """The next `count` publishes are not forwarded: returns the first of their tags."""
        tag = self.published + 1
        self.published += count
        return tag

    def outstanding(self) -> int:
        """How many publishes the broker has not confirmed yet."""
        return self.forwarded - self.low - len(self.above)

    def confirm(self, tag: int, multiple: bool, out: BytesWriter, channel: i64, method: i64) -> bool:  # noqa: FBT001  -- as on the wire
        """The broker confirms `tag` with basic.ack or basic.nack, `method`, on `channel`: True, the frame is right as it stands.

        Else `out` gets the frames to send instead, none for what was confirmed before. Raises ProtocolError for a tag that cannot be.
        """
        low = self.low
        if tag <= 0 or tag > self.forwarded:
            raise broker_error(f"a confirm for delivery tag {tag}, but only {self.forwarded} messages were published on the channel")
        if multiple and tag > low:
            stands = self.offset == 0  # nothing was refused before anything that was forwarded
            if not stands:
                self._cut(tag, out, channel, method)
            self._raise_to(tag)
        elif tag == low + 1:
            stands = self._confirm_one(tag, out, channel, method)
            self.low = tag
            if self.above:
                self._advance()
        elif tag <= low or tag in self.above:
            return False
        else:
            stands = self._confirm_one(tag, out, channel, method)
            self.above = self.above or set()
            self.above.add(tag)
        if self.first < len(self.firsts):
            self._trim()
        return stands

    def _confirm_one(self, tag: i64, out: BytesWriter, channel: i64, method: i64) -> bool:
        offset: i64 = 0 if self.offset == 0 else self._offset_of(tag)
        if offset == 0:
            return True
        write_confirm(out, channel, method, tag + offset, multiple=False)
        return False

    def _cut(self, tag: i64, out: BytesWriter, channel: i64, method: i64) -> None:
        """One confirm for each stretch between refusals, from `low` to `tag`, where something is outstanding in it."""
        firsts = self.firsts
        offsets = self.offsets
        steps: i64 = len(firsts)
        above = self.above
        any_above = len(above) > 0
        start: i64 = self.low + 1
        index: i64 = self.first
        offset: i64 = self.base if index == 0 else offsets[index - 1]
        while start <= tag:
            while index < steps and firsts[index] <= start:
                offset = offsets[index]
                index += 1
            stop: i64 = firsts[index] - 1 if index < steps else tag
            stop = min(stop, tag)
            highest = stop
            lowest = start
            if any_above:
                while highest >= lowest and highest in above:
                    highest -= 1
                while lowest < highest and lowest in above:
                    lowest += 1
            if highest >= lowest:
                write_confirm(out, channel, method, highest + offset, multiple=lowest < highest)
            start = stop + 1

    def _raise_to(self, tag: int) -> None:
        """Everything up to `tag` is confirmed."""
        above = self.above
        if above:
            if len(above) < tag - self.low:
                self.above = {other for other in above if other > tag}
            else:
                for other in range(self.low + 1, tag + 1):
                    above.discard(other)
        self.low = tag
        if self.above:
            self._advance()

    def _advance(self) -> None:
        above = self.above
        low = self.low
        while low + 1 in above:
            low += 1
            above.discard(low)
        self.low = low

    def _offset_of(self, tag: i64) -> i64:
        """Of the last step that begins at `tag` or before; found by halving."""
        firsts = self.firsts
        low: i64 = self.first
        high: i64 = len(firsts)
        if low < high and firsts[low] > tag:
            high = low  # confirmed in order
        while low < high:
            middle: i64 = (low + high) >> 1
            if firsts[middle] <= tag:
                low = middle + 1
            else:
                high = middle
        return self.base if low == 0 else self.offsets[low - 1]

    def _trim(self) -> None:
        """Forget the steps that everything outstanding lies behind."""
        firsts = self.firsts
        steps: i64 = len(firsts)
        first: i64 = self.first
        oldest: i64 = self.low + 1
        while first < steps and firsts[first] <= oldest:
            first += 1
        if first >= TRIM_AFTER_STEPS and first * 2 >= steps:
            self.base = self.offsets[first - 1]
            self.firsts = firsts[first:]
            self.offsets = self.offsets[first:]
            first = 0
        self.first = first

    def __repr__(self) -> str:
        return f"<Confirms published={self.published} forwarded={self.forwarded} outstanding={self.outstanding()} low={self.low}>"
