"""Spans of refused, delayed and spooled messages, as far as the way of messages goes: what is kept of each until a thread makes them.

The naive way starts a span when a message arrives, and so costs every message. Here a message that passes is not looked at. One that is
refused or held is looked at once, for its `traceparent`, and only while the second's budget lasts: `max_per_second` spans, and
LOOKS_PER_SPAN times as many looks, for messages without a trace context cost a look, too. So a flood of refusals costs what its first
messages in each second cost. What is found becomes a compact `SpanRecord`; `gateway/telemetry/span_export.py` takes the records once a
second (`SpanRecorder.take`) and does the rest on a thread. No clock is read for the budget: taking the records renews it.

A held message has its record from when it begins to wait until it is forwarded, refused or given up. A spooled one may wait in a file, for
minutes, among a million others: it is looked at when it leaves, and says itself since when it has waited (`Held.paged_at`). Bounds:
MAX_RECORDS that wait to be taken, MAX_WAITING of held messages; what is beyond is counted.
"""

from __future__ import annotations

import time
from typing import Final

from gateway.clock import now_ns
from gateway.pipeline.actions.counting import HELD
from gateway.pipeline.actions.spool import spooling_bucket
from gateway.pipeline.conversation import Conversation
from gateway.pipeline.parts import Part
from gateway.pipeline.trace_context import bound_of, is_sampled, valid_traceparent
from limiter.keys import Key
from limiter.rules.rule import Rule

FORWARDED: Final = 5  # what became of a message, beside REFUSED and DROPPED: it waited, and then passed
ABANDONED: Final = 6  # it waited, and its client or its channel went away
LOOKS_PER_SPAN: Final = 10  # messages looked at per span that may be made in a second; each costs some microseconds: a guess
MAX_RECORDS: Final = 2048  # until the next second; the queue of OpenTelemetry's own batch processor
MAX_WAITING: Final = 2048  # records of held messages, of all connections: some 400 bytes each


class SpanRecord:
    """What a span of one message is made of. Times are nanoseconds, of the wall clock."""

    __slots__ = (
        "at", "began", "connection", "ended_at", "key", "messages", "origin", "outcome", "rule", "size", "spooled",
        "started_at", "traceparent", "wait_ns",
    )  # fmt: skip

    def __init__(self, traceparent: bytes, part: Part, key: Key, at: int, connection: int, outcome: int, now: int) -> None:
        self.traceparent = traceparent
        self.key = key
        self.messages: int = part.messages
        self.size: int = part.size
        self.at = at  # of a held message: its number among the requests of its part
        self.connection = connection
        self.spooled = part.find_paged_at() != 0
        self.began = part.find_paged_at() if self.spooled else now  # monotonic
        self.ended_at = time.time_ns()
        self.started_at = self.ended_at - max(0, now - self.began)
        self.outcome = outcome
        self.rule: Rule | None = None
        self.origin = ""  # where the limit comes from
        self.wait_ns = 0
        self.blame(part)

    def blame(self, part: Part) -> None:
        """Note the limit that `part` is over."""
        bucket = part.bucket
        self.rule = part.rule
        if self.rule is None and self.spooled:  # it comes from a file; still none: it waited behind others only
            bucket = spooling_bucket(part.key)
            self.rule = None if bucket is None else bucket.effective.rule
        self.origin = "" if bucket is None else bucket.effective.origin
        self.wait_ns = part.wait_ns

    def end(self, outcome: int, now: int) -> None:
        """The message has waited until `now` (monotonic ns)."""
        self.outcome = outcome
        self.ended_at = self.started_at + max(0, now - self.began)

    def __repr__(self) -> str:
        return f"<SpanRecord {self.traceparent.decode()} {self.key.text} outcome={self.outcome}>"


class SpanRecorder:
    """The records of a gateway, and the budget of this second. `Shared.spans`."""

    def __init__(self, sampling_thousandths: int, max_per_second: int) -> None:
        self.bound = 0  # trace ids below it are sampled
        self.max_per_second = 0
        self.room = 0  # spans that may still be made in this second
        self.looks = 0  # messages that may still be looked at
        self.records: list[SpanRecord] = []
        self.waiting = 0  # records of messages that are held
        self.overflowed = 0  # records for which there was no room
        self.not_looked_at = 0  # requests refused or held beyond the budget
        self.take_settings(sampling_thousandths, max_per_second)
        self.take()

    def take_settings(self, sampling_thousandths: int, max_per_second: int) -> None:
        """Let these hold: the ratio at once, the budget from the next second on."""
        self.bound = bound_of(sampling_thousandths)
        self.max_per_second = max_per_second

    def take(self) -> list[SpanRecord]:
        """The records since the last call. The budget begins anew."""
        taken, self.records = self.records, []
        self.room = self.max_per_second
        self.looks = self.max_per_second * LOOKS_PER_SPAN
        return taken

    def add(self, record: SpanRecord) -> None:
        """`record` has its end."""
        if len(self.records) < MAX_RECORDS:
            self.records.append(record)
        else:
            self.overflowed += 1

    def __repr__(self) -> str:
        return f"<SpanRecorder room={self.room} records={len(self.records)} waiting={self.waiting}>"


class MessageSpans:
    """One connection's part in it: the records of what it holds."""

    def __init__(self, recorder: SpanRecorder, conversation: Conversation) -> None:
        self.recorder = recorder
        self.conversation = conversation
        self.waiting: dict[Part, list[SpanRecord]] = {}

    def settle(self, part: Part, outcome: int, now: int, *, first: bool) -> None:
        """An action has settled `part`; `first`: it was not held before."""
        if part.find_paged_at() != 0:
            if outcome != HELD:
                self._look(part, outcome, now, part.count)
        elif first:
            self._look(part, outcome, now, part.count)
        elif outcome != HELD:
            records = self.waiting.pop(part, None)
            if records is not None:
                for record in records:
                    record.blame(part)
                self._end(records, outcome, now)

    def let_go(self, part: Part, now: int) -> None:
        """The first `part.passed` requests of `part`, which was held, may pass."""
        records = self.waiting.get(part)
        if records is None:
            return
        passed: int = part.passed
        gone = [record for record in records if record.at < passed]
        left = [record for record in records if record.at >= passed]
        for record in left:
            record.at -= passed
        if left:
            self.waiting[part] = left
        else:
            del self.waiting[part]
        self._end(gone, FORWARDED, now)

    def let_go_spooled(self, part: Part, now: int) -> None:
        """The first `part.passed` requests of `part`, which was spooled, may pass."""
        self._look(part, FORWARDED, now, part.passed)

    def give_up(self, part: Part) -> None:
        """`part` goes nowhere."""
        records = self.waiting.pop(part, None)
        if records is not None:
            self._end(records, ABANDONED, now_ns())
        elif part.end == part.start:  # messages in a file, which nobody reads any more
            self.recorder.not_looked_at += part.count
        elif part.find_paged_at() != 0:
            self._look(part, ABANDONED, now_ns(), part.count)

    def close(self) -> None:
        """The connection is over."""
        for part in list(self.waiting):
            self.give_up(part)

    def _end(self, records: list[SpanRecord], outcome: int, now: int) -> None:
        recorder = self.recorder
        recorder.waiting -= len(records)
        for record in records:
            record.end(outcome, now)
            recorder.add(record)

    def _look(self, part: Part, outcome: int, now: int, count: int) -> None:
        """Look for the trace contexts of the first `count` requests of `part`, as far as the budget goes."""
        recorder = self.recorder
        key = part.key
        room = recorder.room
        if outcome == HELD:
            room = min(room, MAX_WAITING - recorder.waiting)
        looks = min(count, recorder.looks) if room > 0 else 0
        if looks == 0 or key is None:
            recorder.not_looked_at += count
            return
        connection = self.conversation.context.connection
        looked_at = 0
        found: list[SpanRecord] = []
        for value in self.conversation.traceparents(part, looks):
            if len(found) == room:
                break
            traceparent = valid_traceparent(value)
            if traceparent and is_sampled(traceparent, recorder.bound):
                found.append(SpanRecord(traceparent, part, key, looked_at, connection, outcome, now))
            looked_at += 1
        recorder.looks -= looks
        recorder.room -= len(found)
        recorder.not_looked_at += count - looked_at
        if outcome != HELD:
            for record in found:
                recorder.add(record)
        elif found:
            recorder.waiting += len(found)
            self.waiting[part] = found

    def __repr__(self) -> str:
        return f"<MessageSpans of {len(self.waiting)} parts that wait>"
