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
frame when it does not know the tag); never a multiple with nothing outstanding below it (Bunny and amqplib walk backwards). `amqp.md` 1.3
has the measurements.

An ack reaches the client only if the broker acked that very publish. To know what is outstanding (for the cuts, for draining, and to keep
a broker's confirm for a publish that never was from being believed) we keep the low-water mark `low`, below and at which all is confirmed,
and the set `above` of those confirmed out of order above it. In the common case, confirms in order, that is one comparison and one
addition, and the broker's frames pass byte for byte until the first refusal.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from gateway.protocols.amqp.confirm_flights import ConfirmFlights
from gateway.protocols.amqp.frames import broker_error

TRIM: Final = 64  # forget this many passed steps at a time: a guess that keeps the cost per step constant


class Confirms:
    """The two counts of one channel in confirm mode, and what is outstanding."""

    __slots__ = ("above", "base", "first", "firsts", "flights", "forwarded", "low", "offset", "offsets", "published")

    def __init__(self) -> None:
        self.published = 0  # the client's last tag: publishes forwarded or refused
        self.forwarded = 0  # the broker's last tag
        self.low = 0  # every broker tag up to this one is confirmed
        self.above: set[int] = set()  # confirmed broker tags above low + 1
        self.base = 0  # what to add to broker tags before the first step
        self.firsts: list[int] = []  # steps: from this broker tag on ...
        self.offsets: list[int] = []  # ... add this; both ascending
        self.first = 0  # index of the first step not passed yet
        self.offset = 0  # of the last step
        self.flights: ConfirmFlights | None = None  # the publishes that hold slots; None: none ever did

    def forward(self, count: int) -> None:
        """The next `count` publishes go to the broker."""
        offset = self.published - self.forwarded
        if offset != self.offset:
            if self.low == self.forwarded:  # nothing outstanding: no step needed
                self.base = offset
                self.firsts.clear()
                self.offsets.clear()
                self.first = 0
            else:
                self.firsts.append(self.forwarded + 1)
                self.offsets.append(offset)
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

    def confirm(self, tag: int, multiple: bool) -> list[tuple[int, bool]] | None:  # noqa: FBT001  -- as on the wire
        """The broker confirms `tag`: None, the frame is right as it stands; else the (client tag, multiple) to send instead.

        The list is empty for what was confirmed before. Raises ProtocolError for a tag the broker cannot know.
        """
        low = self.low
        if tag <= 0 or tag > self.forwarded:
            raise broker_error(f"a confirm for delivery tag {tag}, but only {self.forwarded} messages were published on the channel")
        if multiple:
            return self._confirm_up_to(tag)
        if tag == low + 1:
            self.low = tag
            if self.above:
                self._advance()
        elif tag <= low or tag in self.above:
            return []
        else:
            self.above.add(tag)
        if self.offset == 0:
            return None
        offset = self._offset_of(tag)
        if self.first < len(self.firsts):
            self._trim()
        return None if offset == 0 else [(tag + offset, False)]

    def _confirm_up_to(self, tag: int) -> list[tuple[int, bool]] | None:
        low = self.low
        if tag <= low:
            return []
        if self.offset == 0:  # nothing was refused before anything that was forwarded
            self._raise_to(tag)
            return None
        translated = self._cut(low + 1, tag)
        self._raise_to(tag)
        self._trim()
        return translated

    def _cut(self, start: int, tag: int) -> list[tuple[int, bool]]:
        """One confirm for each stretch between refusals of broker tags `start` to `tag`, where something is outstanding in it."""
        translated: list[tuple[int, bool]] = []
        firsts = self.firsts
        index = bisect_right(firsts, start, self.first)
        above = self.above
        while start <= tag:
            stop = min(firsts[index] - 1, tag) if index < len(firsts) else tag
            offset = self.base if index == 0 else self.offsets[index - 1]
            highest = stop
            lowest = start
            if above:
                while highest >= lowest and highest in above:
                    highest -= 1
                while lowest < highest and lowest in above:
                    lowest += 1
            if highest >= lowest:
                translated.append((highest + offset, lowest < highest))
            start = stop + 1
            index += 1
        return translated

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

    def _offset_of(self, tag: int) -> int:
        index = bisect_right(self.firsts, tag, self.first)
        return self.base if index == 0 else self.offsets[index - 1]

    def _trim(self) -> None:
        """Forget the steps that everything outstanding lies behind."""
        firsts = self.firsts
        first = self.first
        oldest = self.low + 1
        while first < len(firsts) and firsts[first] <= oldest:
            first += 1
        self.first = first
        if first >= TRIM and first * 2 >= len(firsts):
            self.base = self.offsets[first - 1]
            del firsts[:first]
            del self.offsets[:first]
            self.first = 0

    def __repr__(self) -> str:
        return f"<Confirms published={self.published} forwarded={self.forwarded} outstanding={self.outstanding()} low={self.low}>"
