"""Accounts: counters of messages, folded from the keys into topics, the access log and the limit events.

The hot path only adds to plain attributes of a key's `Tally` and, once per second and key, puts the key on a list (`note`). Once a
second (and before every scrape) `fold` walks that list: the differences go to the topic's totals and to the observers (access log,
log events), and the tally starts again. So counting costs a few nanoseconds per message, and a scrape is as exact as the moment.

Ten thousand keys take some 10 ms, and all messages would wait for so long. So the periodic task folds in slices (`slices`) and gives the
event loop a turn between. A scrape, which must be exact at once, folds the rest after that, which is little. Rates are worked out in
slices, too, and only of topics that anything happened to: the others' are zero and stay so.

**Names that come and go.** Clients choose names, and reply queues have a new one for each client or call. The naive way keeps the first
MAX_TOPICS: then names that nobody uses any more hide every later topic for good. So when a new topic finds the table full, an idle one is
forgotten for it; only where none is idle it is counted under OTHER. What was seen in a few seconds only (`brief`) is forgotten first and
soon: names that are made up without end displace each other, and not what has steady traffic. One look at the table finds all that are
idle, and is not repeated before another one can be: a new name costs what taking one of them costs.

**Counters that never go back.** MAX_TOPICS_SHOWN topics have series of their own in `/metrics` (`shown`), the others are summed there. Who
they are changes as well: a shown one that is idle makes room for a new one, or for one that has steady traffic. Its series ends. One that
gets a series later begins at 0, for what it counted before stays in the sum. That sum (`_others`) and the one over all topics
(`everything`) are counted as they come: nothing that an open page or a scrape shows takes another pass over all topics.
A series that has ended begins again after SERIES_PAUSE_NS at the earliest: between two scrapes, nobody would see that it began at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from gateway.counting.recent_rates import RecentCounts
from gateway.counting.topic_index import TopicIndex
from gateway.counting.waits import RecentWaits
from limiter.keys import Key, Tally

MAX_TOPICS: Final = 10_000  # topics; with totals of their own; while none of them is idle further ones are counted under OTHER (a guess)
MAX_TOPICS_SHOWN: Final = 500  # topics; bounds the series per metric; a guess at what a Prometheus server bears of one target
OTHER: Final = "__other__"
FORGET_AFTER: Final = 600_000_000_000  # ns; idle for so long, a topic makes room for another one: ten scrapes a minute apart; a guess
BRIEF_S: Final = (
    2  # seconds; a topic with traffic in no more of them is brief: a reply queue has a request or two, other topics go on (guess)
)
# ns; the same for a brief one. As long as its rates are shown. 10,000 places then turn over at 1,000 invented names a second.
FORGET_BRIEF_AFTER: Final = 10_000_000_000
# ns; idle for so long, a topic is forgotten though there is room: 26 hours, so what comes once a day stays. Were it shorter, its counters
# would begin anew each day; were it longer, names that were used once would stand in every list for days.
FORGET_ANYWAY_AFTER: Final = 26 * 3600_000_000_000
SERIES_PAUSE_NS: Final = 60_000_000_000  # ns; until one that has ended may begin again: a scrape or two see that it is gone; a guess
LOOK_NS: Final = 1_000_000_000  # ns; between two looks for idle topics: one takes a millisecond or two for 10,000 (measured 2026-11)
LOOK_ANYWAY_NS: Final = 900_000_000_000  # ns; between two looks for those that are forgotten anyway; in slices
WINDOW_NS: Final = 100_000_000  # ns; how long the window is whose busiest the access log shows (max_100ms_messages)
NO_RATES: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)  # not Final: mypyc takes a Final tuple of floats for unset
SLICE_KEYS: Final = 128  # folded, or topics whose rates are worked out, in one go: 0.15 ms
PRODUCE: Final = "produce"
MAX_SLICES: Final = 80  # per fold, a turn of the loop after each: a second is to be closed well before the next one ends (a guess)

Place = tuple[str, str, str]  # protocol, topic as text, operation


class TopicTotals:
    """What happened to one topic's messages since it is known: on their way to the broker, or (another one) from it."""

    __slots__ = (
        "abandoned", "active_s", "before_shown", "bypassed", "bytes", "copies", "delayed", "demand",
        "demand_bytes", "dropped", "forwarded", "last_rates", "last_seen", "limited_ns", "moving", "operation", "place", "previous",
        "protocol", "rates", "received", "recent", "redelivered", "refused", "refused_bytes", "refused_bytes_before", "refused_copies",
        "refused_share", "refused_size", "shadow_refused", "shown", "text", "was_limited",
    )  # fmt: skip

    def __init__(self, protocol: str, text: str, operation: str = "produce") -> None:
        self.place: Any = (protocol, text, operation)  # a Place. Any: mypyc would make a new tuple of one at each look
        self.protocol = protocol
        self.text = text
        self.operation = operation  # one of `limiter.operations.OPERATIONS`
        self.received = 0
        self.forwarded = 0
        self.bytes = 0
        self.refused = 0
        self.refused_bytes = 0
        self.refused_share = 0
        self.refused_size = 0
        self.refused_copies = 0
        self.copies = 0
        self.delayed = 0
        self.dropped = 0
        self.abandoned = 0
        self.bypassed = 0
        self.shadow_refused = 0
        self.redelivered = 0
        self.last_seen = 0  # monotonic ns of the last fold with activity
        self.active_s = 0  # seconds, whole ticks, in which anything happened
        self.shown = False  # has series of its own in `/metrics`
        self.before_shown: TopicTotals | None = None  # what it had counted when it got them; None: nothing
        self.moving = False  # on the list of those whose rates are to be worked out
        self.previous = (0, 0, 0, 0)  # received, forwarded, refused or dropped, bytes at the last tick
        self.refused_bytes_before = 0  # at the last tick
        self.limited_ns = 0  # ns, whole ticks in which a limit refused, dropped or delayed something; no float: sums must not go back
        self.was_limited = 0  # messages refused, dropped and delayed, at the last tick
        self.demand = 0  # messages, at the last tick: forwarded, and of those turned away in no tick more than were forwarded in it
        self.demand_bytes = 0  # the same of bytes
        self.rates = NO_RATES  # received, forwarded, refused or dropped, bytes per second: means over ten seconds
        self.last_rates = NO_RATES  # the same, over the last tick
        self.recent: RecentCounts | None = None  # None: nothing in the last ten seconds

    @property
    def waiting(self) -> int:
        """Messages received and not yet settled: with the judge or held."""
        return self.received - self.forwarded - self.refused - self.dropped - self.abandoned

    @property
    def demand_now(self) -> tuple[int, int]:
        """The demand in messages and bytes, with what was forwarded since the last tick."""
        return self.demand + self.forwarded - self.previous[1], self.demand_bytes + self.bytes - self.previous[3]

    def add(self, tally: Tally) -> None:
        self.received += tally.received
        self.forwarded += tally.messages
        self.bytes += tally.bytes
        self.refused += tally.refused
        self.refused_bytes += tally.refused_bytes
        self.refused_share += tally.refused_share
        self.refused_size += tally.refused_size
        self.refused_copies += tally.refused_copies
        self.copies += tally.copies
        self.delayed += tally.delayed
        self.dropped += tally.dropped
        self.abandoned += tally.abandoned
        self.bypassed += tally.bypassed
        self.shadow_refused += tally.shadow_refused
        self.redelivered += tally.redelivered

    def include(self, other: TopicTotals, sign: int = 1) -> None:
        """Add another topic's counts; take them away where `sign` is -1."""
        self.received += sign * other.received
        self.forwarded += sign * other.forwarded
        self.bytes += sign * other.bytes
        self.refused += sign * other.refused
        self.refused_bytes += sign * other.refused_bytes
        self.refused_share += sign * other.refused_share
        self.refused_size += sign * other.refused_size
        self.refused_copies += sign * other.refused_copies
        self.copies += sign * other.copies
        self.delayed += sign * other.delayed
        self.dropped += sign * other.dropped
        self.abandoned += sign * other.abandoned
        self.bypassed += sign * other.bypassed
        self.shadow_refused += sign * other.shadow_refused
        self.redelivered += sign * other.redelivered
        self.limited_ns += sign * other.limited_ns

    def count_since_shown(self) -> TopicTotals:
        """What it has counted since it has series of its own."""
        if self.before_shown is None:
            return self
        found = TopicTotals(self.protocol, self.text, self.operation)
        found.include(self)
        found.include(self.before_shown, -1)
        return found

    def tick(self, seconds: float) -> None:
        """Work out the rates since the last tick, and what it adds to the demand.

        Clients send again what was refused, so the number refused says little about what they need. What passes in a second in which
        something is refused is the limit, so a storm of retries counts as twice the limit at most while it lasts.
        """
        received, forwarded, away, size = self.previous
        turned_away = self.refused + self.dropped
        away_bytes, self.refused_bytes_before = self.refused_bytes_before, self.refused_bytes
        passed, passed_bytes = self.forwarded - forwarded, self.bytes - size
        self.demand += passed + min(turned_away - away, passed)
        self.demand_bytes += passed_bytes + min(self.refused_bytes - away_bytes, passed_bytes)
        limited = turned_away + self.delayed
        if limited != self.was_limited:
            self.was_limited = limited
            self.limited_ns += int(seconds * 1e9)
        counts = (self.received - received, passed, turned_away - away, passed_bytes)
        if counts[0] or passed:
            self.active_s += 1
        self.last_rates = (counts[0] / seconds, counts[1] / seconds, counts[2] / seconds, counts[3] / seconds)
        recent = self.recent
        if recent is None:
            recent = self.recent = RecentCounts(4)
        recent.add(seconds, counts)
        if recent.empty():
            self.recent = None
            self.rates = NO_RATES
        else:
            means = recent.rates()
            self.rates = (means[0], means[1], means[2], means[3])
        self.previous = (self.received, self.forwarded, turned_away, self.bytes)

    def __repr__(self) -> str:
        return (
            f"<TopicTotals {self.operation} {self.text} received={self.received} forwarded={self.forwarded} "
            f"refused={self.refused} waiting={self.waiting}>"
        )


def longest_idle(totals: TopicTotals) -> tuple[bool, int]:
    """What sorts topics by how soon they are forgotten."""
    return totals.active_s > BRIEF_S, totals.last_seen


class IdleTopics:
    """Those of `table` that are idle, found by a look at all of it once it is worth one."""

    __slots__ = ("_found", "_look_at", "_table")

    def __init__(self, table: dict[Place, TopicTotals]) -> None:
        self._table = table
        self._found: list[TopicTotals] = []  # at the last look, the first to go at the end; what has come back since is among them
        self._look_at = 0  # monotonic ns: before that no look would find another one

    def take(self, now: int, idle_ns: int = 0) -> TopicTotals | None:
        """The first to be forgotten, if it is idle for `idle_ns` at least."""
        found = self._found
        while True:
            while found:
                last = found[-1]
                if is_idle(last, now) and self._table.get(last.place) is last:
                    if now - last.last_seen < idle_ns:
                        return None
                    return found.pop()
                found.pop()
            if now < self._look_at:
                return None
            self._look(now)
            if not found:
                return None

    def _look(self, now: int) -> None:
        """Find them all. Most topics are passed over by when they were seen, which is what the look may cost."""
        brief_before, before = now - FORGET_BRIEF_AFTER, now - FORGET_AFTER
        first_brief = first = now  # the longest idle of those that are not idle for long enough: the next ones
        next_at = now + FORGET_BRIEF_AFTER
        for totals in self._table.values():
            seen = totals.last_seen
            if seen > brief_before:
                first_brief = min(first_brief, seen)
            elif seen > before and totals.active_s > BRIEF_S:
                first = min(first, seen)
            elif totals.moving:
                next_at = now
            elif is_idle(totals, now):  # else something waits, and it has FORGET_BRIEF_AFTER from the moment when that is over
                self._found.append(totals)
        self._found.sort(key=longest_idle)
        self._found.reverse()
        self._look_at = max(min(next_at, first_brief + FORGET_BRIEF_AFTER, first + FORGET_AFTER), now + LOOK_NS)

    def __repr__(self) -> str:
        return f"<IdleTopics {len(self._found)} of {len(self._table)}>"


def forget_after(totals: TopicTotals) -> int:
    """How long a topic is idle before it makes room for another one: ns."""
    return FORGET_AFTER if totals.active_s > BRIEF_S else FORGET_BRIEF_AFTER


def is_idle(totals: TopicTotals, now: int) -> bool:
    """Whether a topic may be forgotten to make room."""
    if totals.moving or totals.text == OTHER or now - totals.last_seen < forget_after(totals):
        return False
    return totals.waiting == 0


class Accounts:
    """All topics' totals, and the keys with something to fold."""

    def __init__(self, most: int = MAX_TOPICS, most_shown: int = MAX_TOPICS_SHOWN) -> None:
        self.topics: dict[Place, TopicTotals] = {}
        self.index = TopicIndex()  # the same topics
        self.shadow_refused: dict[Place, TopicTotals] = {}  # those of which a limit in shadow mode would have refused something
        self.shown: dict[Place, TopicTotals] = {}  # those with series of their own
        self.everything = TopicTotals("", OTHER)  # the messages of all topics, also of those that are forgotten
        self.forgotten_demand: dict[tuple[str, str], tuple[int, int]] = {}  # of the last `most`: what they go on from when they come back
        self.forget_observers: list[Callable[[TopicTotals], None]] = []  # called with each topic that is forgotten
        self.observers: list[Callable[[Key, Tally], None]] = []  # called once per fold and key with what has happened since; theirs to keep
        self._most = most
        self._most_shown = most_shown
        self._idle = IdleTopics(self.topics)
        self._idle_shown = IdleTopics(self.shown)
        self._others: dict[tuple[str, str], TopicTotals] = {}  # by protocol and operation; see above
        self.crowded_at = 0  # monotonic ns of the last fold in which a topic was counted under OTHER for want of room; 0: none was
        self.unsent = 0  # messages passed on whose bytes the broker's socket had not taken when their connection ended
        self.unanswered = 0  # connections that ended before their broker had answered connection.close
        self.waits = RecentWaits()
        self.on_dry: Callable[[], None] | None = None  # called when a limit above 0/s refuses that has refused nothing for a second
        self._waiting_unnamed: dict[Place, int] = {}  # topics that wait under OTHER -> messages; what becomes of those counts there, too
        self._ended: dict[Place, int] = {}  # topics whose series have ended of late -> monotonic ns, the first first
        self._look_anyway_at = 0  # monotonic ns
        self._dirty: list[Key] = []
        self._moving: list[TopicTotals] = []  # those whose rates are not zero, or will not be after the next tick
        self._unticked: list[TopicTotals] = []  # of these: those whose turn is still to come in the tick that goes on
        self._resting: dict[Place, TopicTotals] = {}  # those that came to rest while something waited

    def tally_of(self, key: Key) -> Tally:
        """The counters of `key`, to be added to; from now on it is on the list to fold.

        Decode and Forward, which count every message, check `key.dirty` and call `note` themselves: that saves a call per part.
        """
        if not key.dirty:
            self.note(key)
        return key.tally

    def note(self, key: Key) -> None:
        """Put `key` on the list to fold. The caller checks `key.dirty` first."""
        key.dirty = True
        self._dirty.append(key)

    def totals(self, protocol: str, text: str, operation: str = PRODUCE, now: int = 0) -> TopicTotals:
        """The totals of a topic; of `__other__` while there is no room for it."""
        totals = self.topics.get((protocol, text, operation))
        return self._new_totals(protocol, text, operation, now) if totals is None else totals

    def _new_totals(self, protocol: str, text: str, operation: str, now: int) -> TopicTotals:
        place = (protocol, text, operation)
        crowded = len(self.topics) >= self._most  # then places among those shown are for what turns out to have steady traffic
        if text != OTHER and (place in self._waiting_unnamed or not self._make_room(now)):
            self.crowded_at = now
            place = (protocol, OTHER, operation)
            known = self.topics.get(place)
            if known is not None:
                return known
        totals = TopicTotals(*place)
        self.topics[totals.place] = totals
        self.index.add(totals.place)
        if place[1] == OTHER:
            return totals
        if operation == PRODUCE and (protocol, text) in self.forgotten_demand:
            totals.demand, totals.demand_bytes = self.forgotten_demand.pop((protocol, text))
        if not crowded and not self._pauses(place, now) and self._make_place(now, FORGET_AFTER):
            totals.shown = True
            self.shown[totals.place] = totals
        return totals

    def _make_room(self, now: int) -> bool:
        """Whether one more topic has room in the table, for which an idle one is forgotten."""
        if len(self.topics) < self._most:
            return True
        idle = self._idle.take(now)
        if idle is None:
            return False
        self._forget(idle, now)
        return True

    def _make_place(self, now: int, idle_ns: int) -> bool:
        """Whether one more topic can be shown, for which the series of one end that is idle for `idle_ns` at least."""
        if len(self.shown) < self._most_shown:
            return True
        idle = self._idle_shown.take(now, idle_ns)
        if idle is None:
            return False
        self._end_series(idle, now)
        idle.shown = False
        idle.before_shown = None
        return True

    def _show_later(self, totals: TopicTotals, now: int) -> None:
        """Give a topic with steady traffic series of its own if there is a place. They begin at 0, with nothing that waits."""
        place = totals.place
        if totals.waiting == 0 and not self._pauses(place, now) and self._make_place(now, 0):
            before = totals.before_shown = TopicTotals(totals.protocol, totals.text, totals.operation)
            before.include(totals)
            totals.shown = True
            self.shown[place] = totals

    def _pauses(self, place: Place, now: int) -> bool:
        """Whether a series that has ended is not to begin again yet."""
        ended = self._ended
        while ended:
            first = next(iter(ended))
            if now - ended[first] < SERIES_PAUSE_NS:
                return place in ended
            del ended[first]
        return False

    def _end_series(self, totals: TopicTotals, now: int) -> None:
        place = totals.place
        del self.shown[place]
        self._ended.pop(place, None)
        self._ended[place] = now

    def _forget(self, totals: TopicTotals, now: int) -> None:
        del self.topics[totals.place]
        self.index.remove(totals.place)
        self._resting.pop(totals.place, None)
        self.shadow_refused.pop(totals.place, None)
        if totals.shown:
            self._end_series(totals, now)
        if totals.operation == PRODUCE and totals.demand_now[0]:
            self.forgotten_demand[totals.protocol, totals.text] = totals.demand_now
            if len(self.forgotten_demand) > self._most:
                del self.forgotten_demand[next(iter(self.forgotten_demand))]
        for observe in self.forget_observers:
            observe(totals)

    def _others_of(self, totals: TopicTotals) -> TopicTotals:
        others = self._others.get((totals.protocol, totals.operation))
        if others is None:
            others = self._others[totals.protocol, totals.operation] = TopicTotals(totals.protocol, OTHER, totals.operation)
        return others

    def list_others(self) -> list[TopicTotals]:
        """What all topics have counted while they were not shown: by protocol and operation."""
        return list(self._others.values())

    def active_topics(self) -> list[TopicTotals]:
        """Those whose rates are not zero, some that have just come to rest, and those where something waits."""
        over = [place for place, totals in self._resting.items() if totals.moving or totals.waiting == 0]
        for place in over:
            del self._resting[place]
        return [*self._moving, *self._unticked, *self._resting.values()]

    def fold(self, now: int) -> None:
        """Move every tally's counts to its topic and to the observers."""
        self._fold(len(self._dirty), now)

    def slices(self, now: int) -> Iterator[None]:
        """`fold`, in slices: what is noted when it begins is folded when it ends, whatever else is folded or noted meanwhile."""
        left = len(self._dirty)
        size = slice_of(left)
        while left > 0:
            self._fold(min(size, left), now)
            left -= size
            yield

    def _fold(self, most: int, now: int) -> None:
        """Fold the keys that were noted first."""
        dirty = self._dirty[:most]
        del self._dirty[:most]
        for key in dirty:
            tally = key.tally
            key.tally = tally.start_next()
            key.dirty = False
            totals = self.totals(key.origin.protocol, key.text, key.operation, now)
            totals.add(tally)
            self.everything.add(tally)
            totals.last_seen = now
            if tally.shadow_refused:
                self.shadow_refused[totals.place] = totals
            if not totals.shown:
                self._others_of(totals).add(tally)
                if totals.text == OTHER:
                    self._note_waiting(key, tally)
                elif totals.active_s > BRIEF_S:
                    self._show_later(totals, now)
            if not totals.moving:
                totals.moving = True
                self._moving.append(totals)
            for observe in self.observers:
                observe(key, tally)

    def _note_waiting(self, key: Key, tally: Tally) -> None:
        """Remember of a key that counts under OTHER whether messages wait: as many names at most as there are such messages."""
        place = (key.origin.protocol, key.text, key.operation)
        waiting = tally.received - tally.messages - tally.refused - tally.dropped - tally.abandoned + self._waiting_unnamed.pop(place, 0)
        if waiting:
            self._waiting_unnamed[place] = waiting

    def tick(self, seconds: float, now: int = 0) -> Iterator[None]:
        """Once a second: rates of all topics, in slices; and now and then, forget what is idle for long."""
        due = self._unticked = [*self._unticked, *self._moving]  # a tick that was given up left some
        self._moving = []
        size = slice_of(len(due))
        while due:
            part = due[:size]
            del due[:size]
            for totals in part:
                limited = totals.limited_ns
                totals.tick(seconds)
                if totals.limited_ns != limited and not totals.shown:
                    self._others_of(totals).limited_ns += totals.limited_ns - limited
                totals.moving = totals.recent is not None
                if totals.moving:
                    self._moving.append(totals)
                elif totals.waiting:
                    self._resting[totals.place] = totals
            yield
        if now > self._look_anyway_at:
            self._look_anyway_at = now + LOOK_ANYWAY_NS
            yield from self._forget_anyway(now)

    def _forget_anyway(self, now: int) -> Iterator[None]:
        known = list(self.topics.values())
        size = slice_of(len(known))
        for first in range(0, len(known), size):
            for totals in known[first : first + size]:
                is_known = self.topics.get(totals.place) is totals
                if is_known and now - totals.last_seen >= FORGET_ANYWAY_AFTER and is_idle(totals, now):
                    self._forget(totals, now)
            yield


def slice_of(number: int) -> int:
    """How many of `number` to do in one go."""
    return max(SLICE_KEYS, -(-number // MAX_SLICES))
