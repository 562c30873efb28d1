"""Outstanding: what a client has asked and its broker has not answered yet.

Most answers are only counted: a flood of sends must not cost a dictionary entry each. So the requests that the broker answers soon are a
number (`unanswered`). Only **polls** (pulls and their kin, which the broker may keep for half a minute) are remembered by their `opaque`.
An answer's head is looked at no further than that needs: a success is known by its first ten bytes.

Opaques are the client's own numbers; the broker's requests to the client have a space of their own (`docs/design/rocketmq.md` 1.2).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from mypy_extensions import i64, mypyc_attr

from common.octets import u16, u32
from gateway.pipeline.empties import NO_ENTRIES, NO_ITEMS, added, put
from gateway.pipeline.reports import BusySignal
from gateway.protocols.rocketmq.busy import busy_signal
from gateway.protocols.rocketmq.headers import RESPONSE, signed32
from limiter.algorithms.slots import ANSWERED, BUSY, FAILED, GIVEN_UP
from limiter.in_flight import Ending, Flight, end

SUCCESS: Final = b'{"code":0,'  # how a broker's JSON for success begins (fastjson sorts the names); it asks nothing with code 0
OPAQUES: Final = (b',"opaque":', b'{"opaque":')  # in a JSON string the first quote would have a backslash before it
MAX_POLLS_TRACKED: Final = 8192  # of one connection, 300 bytes each; a client has one per queue; more only count: a guess
STORED: Final[tuple[int, ...]] = (0, 10, 11, 12)  # codes for a send that is stored: success, or a disk or replica was slow
MAX_SENDS_COUNTED: Final = 65_536  # of one connection, 100 bytes each, with a broker that answers nothing; more hold no slot: a guess
LATE_NS: Final = 10_000_000_000  # no answer comes later: clients give up after 3 s; some one-way sends do not say that they are


@mypyc_attr(allow_interpreted_subclasses=True)
class AnswerWatcher:
    """Sees the body of an answer as it passes; a base class."""

    def begin(self, code: int, size: i64, data: bytes, start: i64, end: i64) -> bool:
        """The answer has come, its header is `data[start:end]`, with `size` bytes of body: whether they are to be shown to `body`."""
        return False

    def body(self, data: bytes, start: i64, end: i64, last: bool) -> None:  # noqa: FBT001  -- positional for speed
        """The body's next bytes are `data[start:end]`."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


AnswerHead: Final[Any] = msgspec.defstruct(
    "AnswerHead", [("code", int, 0), ("flag", int, 0), ("opaque", int, 0), ("remark", str | None, None)], gc=False
)
decode_head: Final = msgspec.json.Decoder(AnswerHead).decode


class Outstanding:
    """What one client waits for."""

    __slots__ = ("busy", "endings", "polls", "same_opaque", "sends", "unanswered", "unread", "watched")

    def __init__(self, endings: list[Ending] | None = None) -> None:
        self.unanswered: i64 = 0  # requests the broker answers soon, and has not
        self.unread = False  # a poll's answer has come, or more of it, or there is something in `busy`
        self.polls: dict[int, AnswerWatcher | None] = NO_ENTRIES  # by opaque: what the broker may keep, and who sees its answer
        self.watched: AnswerWatcher | None = None  # of the answer whose body is passing now
        self.endings: list[Ending] = [] if endings is None else endings  # of `sends`; the session tells the judge
        self.sends: dict[int, Flight] = NO_ENTRIES  # those of `unanswered` that hold slots, by opaque; their limits bound them
        self.same_opaque: dict[int, list[Flight]] = NO_ENTRIES  # more of one opaque, where a client uses it twice at once
        self.busy: list[BusySignal] = NO_ITEMS  # what the broker has said of being overloaded; the session counts it

    def count_requests(self, count: int) -> None:
        """`count` requests go to the broker that it will answer."""
        self.unanswered += count

    def track_sends(self, flight: Flight, opaques: list[int]) -> None:
        """Of the requests that go to the broker those with `opaques` hold slots until they are answered."""
        for opaque in opaques[: flight.left]:
            if len(self.sends) >= MAX_SENDS_COUNTED:
                end(self.endings, flight, 1, GIVEN_UP)
            elif opaque in self.sends:
                self.same_opaque = put(self.same_opaque, opaque, [*self.same_opaque.get(opaque, NO_ITEMS), flight])
            else:
                self.sends = put(self.sends, opaque, flight)

    def release_late_slots(self, now: int) -> None:
        """Free the slots of sends that the broker does not answer."""
        late: list[int] = []
        for opaque, flight in self.sends.items():  # in the order they were forwarded
            if flight.since == 0 or now - flight.since <= LATE_NS:
                break
            late.append(opaque)
        for opaque in late:
            while opaque in self.sends and 0 < self.sends[opaque].since < now - LATE_NS:
                self._end_send(opaque, GIVEN_UP)

    def release_all_slots(self) -> None:
        """Nothing will be answered any more."""
        for opaque in list(self.sends):
            while opaque in self.sends:
                self._end_send(opaque, GIVEN_UP)

    def _end_send(self, opaque: int, outcome: int) -> None:
        """A send has ended; if it holds slots they are free. Of several with this opaque the oldest."""
        flight = self.sends.pop(opaque, None)
        if flight is None:
            return
        end(self.endings, flight, 1, outcome)
        same = self.same_opaque.get(opaque)
        if same:
            self.sends = put(self.sends, opaque, same.pop(0))
            if not same:
                del self.same_opaque[opaque]

    def track_poll(self, opaque: int, watcher: AnswerWatcher | None) -> bool:
        """A request goes to the broker that it may keep for long; `watcher` sees the answer. False: it does not, the answer only counts."""
        if len(self.polls) >= MAX_POLLS_TRACKED or opaque in self.polls:
            self.unanswered += 1
            return False
        self.polls = put(self.polls, opaque, watcher)
        return True

    def drop_watchers(self) -> None:
        """What the polls bring from here on does not reach the client, and is not counted."""
        self.polls = dict.fromkeys(self.polls)
        self.watched = None

    def settled(self) -> bool:
        """Whether everything is answered, polls aside."""
        return self.unanswered <= 0

    def look_at(self, data: bytes, start: i64, end: i64, size: i64) -> None:
        """The broker's next frame: its serialize type at `start`, its header to `end`, `size` bytes of body behind that."""
        kind: i64 = data[start]
        at: i64 = start + 4
        self.watched = None
        if kind != 0:
            if end - at < 13 or not u32(data, at + 9) & RESPONSE:
                return
            code: i64 = u16(data, at)
            self._settle_answer(code, signed32(u32(data, at + 5)), size, data, at, end)
            if code != 0:
                self._look_for_busy(code, binary_remark(data, at, end))
            return
        if end - at > len(SUCCESS) and data[at : at + len(SUCCESS)] == SUCCESS:  # `startswith` takes three times as long
            if self.polls or self.sends:
                self._settle_answer(0, find_opaque(data, at, end), size, data, at, end)
            elif self.unanswered > 0:
                self.unanswered -= 1
            return
        try:
            head = decode_head(data[at:end])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return  # the client will see for itself
        if head.flag & RESPONSE and is_word(head.code) and is_word(head.opaque):
            self._settle_answer(head.code, head.opaque, size, data, at, end)
            self._look_for_busy(head.code, head.remark or "")

    def _settle_answer(self, code: i64, opaque: i64, size: i64, data: bytes, start: i64, end: i64) -> None:
        if opaque in self.polls:
            watcher = self.polls.pop(opaque)
            self.unread = True
            if watcher is not None and watcher.begin(code, size, data, start, end):
                self.watched = watcher
            return
        if self.unanswered > 0:
            self.unanswered -= 1
        if self.sends:
            self._end_send(opaque, ANSWERED if code in STORED else FAILED if busy_signal(code, "") is None else BUSY)

    def body(self, data: bytes, start: i64, end: i64, last: bool) -> None:  # noqa: FBT001  -- positional for speed
        """The next bytes of the body that is watched."""
        watcher = self.watched
        if watcher is not None:
            watcher.body(data, start, end, last)
            self.unread = True
            if last:
                self.watched = None

    def _look_for_busy(self, code: i64, remark: str) -> None:
        signal = busy_signal(code, remark)
        if signal is not None:
            self.busy = added(self.busy, signal)
            self.unread = True

    def __repr__(self) -> str:
        return f"<Outstanding unanswered={self.unanswered} polls={len(self.polls)}>"


def is_word(number: int) -> bool:
    """Whether `number` has 32 bits, as a header's must. JSON's may have any number of them, compiled code's 64."""
    return -0x8000_0000 <= number <= 0x7FFF_FFFF


def find_opaque(data: bytes, start: i64, end: i64) -> i64:
    """The opaque in the JSON header `data[start:end]`; -1 where there is none (the client's own are counted up from 0)."""
    at: i64 = -1
    for text in OPAQUES:
        at = data.find(text, start, end)
        if at >= 0:
            break
    if at < 0:
        return -1
    at += 10
    negative = at < end and data[at] == 45
    if negative:
        at += 1
    number: i64 = 0
    while at < end:
        digit: i64 = data[at]
        if digit < 48 or digit > 57 or number > 0x7FFF_FFFF:
            break
        number = number * 10 + digit - 48
        at += 1
    return -number if negative else number


def binary_remark(data: bytes, at: i64, end: i64) -> str:
    """The remark of the binary header `data[at:end]`."""
    if end - at < 17:
        return ""
    size: i64 = u32(data, at + 13)
    return data[at + 17 : min(at + 17 + size, end)].decode(errors="replace")
