"""The ledger: all buckets in use, bounded.

Names come from clients. A ledger without a bound is a way to fill memory; one that forgets at random is a way to get a fresh burst: make
up names until yours is forgotten. So it forgets the longest idle first, and only a bucket that would be full by now, for forgetting that
one gives nobody anything. When there is none, new names share one overflow bucket per rule and level until there is room, and that is
counted.

Order of idleness is kept to the second: a level moves to the end of the order when it is used and has not moved for a second, so that a
message costs a comparison and not a move. Making room looks at `PROBES` levels at most; those it cannot forget go to the end, so that a few
slow ones do not stand in the way for ever. All of it is O(1) amortised.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from limiter.algorithms import ALGORITHMS
from limiter.breaker import Breaker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from limiter.algorithms.base import Algorithm
    from limiter.matching import Subject
    from limiter.reservation import Reservation
    from limiter.rules import Effective, Identity, RuleSet

TOUCH_NS: Final = 1_000_000_000  # how exactly the order of idleness is kept
PROBES: Final = 8  # a guess: enough to get past some slow buckets, few enough for the hot path

IN_USE: Final = 0
FORGOTTEN: Final = 1  # no longer in the ledger: whoever holds it must match again
OVERFLOW: Final = 2  # shared by those that found no room; they try again later


class Level:
    """One level of one key: a bucket with its breaker, under the rule that holds now; shared by all keys of one identity."""

    __slots__ = (
        "admitted",
        "admitted_bytes",
        "breaker",
        "bucket",
        "effective",
        "first",
        "generation",
        "held",
        "last_refused_at",
        "over_limit",
        "refused",
        "rule",
        "shadow",
        "shadow_refused",
        "state",
        "subject",
        "told_held",
        "told_refused",
        "touched",
    )

    def __init__(self, effective: Effective, subject: Subject, generation: int, now: int) -> None:
        rule = effective.rule
        self.effective = effective
        self.rule = rule
        self.subject = subject  # whoever asked first; to find the rules of a level that nobody uses now
        self.generation = generation  # of the rule set under which it was matched last
        self.bucket: Algorithm = ALGORITHMS[rule.algorithm](rule.limit, now)
        self.breaker = Breaker(rule.breaker_ns())
        self.shadow = rule.mode == "shadow"
        self.state = IN_USE
        self.touched = now
        self.admitted = 0  # messages
        self.admitted_bytes = 0
        self.over_limit = 0  # messages that found it used up, each once, whatever became of them
        self.shadow_refused = 0
        self.held = 0  # messages that waited for this limit; counted by the loop, as the next
        self.refused = 0  # messages this limit cost: told so, dropped, or their channel or connection closed
        self.told_held = 0  # of `held`, what `take_news` has told
        self.told_refused = 0
        self.first: Reservation | None = None  # who has waited for it longest; nobody younger passes before it
        self.last_refused_at = -1  # monotonic ns, when something was over the limit last; -1: never

    def adopt(self, effective: Effective, generation: int, since: int) -> None:
        """Go on under what holds since `since`; the fill keeps its proportion. A changed limit closes the breaker: the bucket decides."""
        old, new = self.rule, effective.rule
        if new.algorithm != old.algorithm:
            fill = self.bucket.fill(since)
            self.bucket = ALGORITHMS[new.algorithm](new.limit, since)
            self.bucket.set_fill(fill, since)
            self.breaker.close()
        elif new.limit != old.limit:
            self.bucket.change(new.limit, since)
            self.breaker.close()
        if new.breaker_ns() != self.breaker.open_for_ns:
            self.breaker = Breaker(new.breaker_ns())
        self.effective = effective
        self.rule = new
        self.shadow = new.mode == "shadow"
        self.generation = generation

    def available(self, count: int, messages: int, size: int, now: int) -> int:
        """How many of `count` requests alike would pass now: none while the breaker is open, else what the bucket says."""
        breaker = self.breaker
        if breaker.open_until != 0 and breaker.is_open(now):
            return 0
        return self.bucket.available(count, messages, size, now)

    def take(self, count: int, messages: int, size: int) -> None:
        """Spend what `available` has promised."""
        self.bucket.take(count, messages, size)
        self.admitted += count * messages
        self.admitted_bytes += count * size

    def wait_ns(self, messages: int, size: int, now: int) -> int:
        """The true time until one such request would pass this level; 0: now."""
        return max(self.breaker.remaining_ns(now), self.bucket.wait_ns(messages, size, now))

    def refuse(self, count: int, messages: int, size: int, now: int) -> None:
        """Count `count` requests over the limit here, and let the breaker open."""
        if self.shadow:
            self.shadow_refused += count * messages
        else:
            self.over_limit += count * messages
        self.last_refused_at = now
        if self.breaker.open_for_ns > 0:
            self.breaker.trip(now, self.bucket.full_in_ns(messages, size, now))

    def has_news(self) -> bool:
        """Whether something was held or refused that `take_news` has not told."""
        return self.refused != self.told_refused or self.held != self.told_held

    def take_news(self) -> tuple[int, int]:
        """How many messages were held, and how many refused, since this was called before. On the loop's thread."""
        held, refused = self.held - self.told_held, self.refused - self.told_refused
        self.told_held, self.told_refused = self.held, self.refused
        return held, refused

    def thing(self) -> str:
        """What the bucket is for, as text; nothing where it is for all that found no room."""
        return "" if self.state == OVERFLOW else self.effective.thing

    def whose(self) -> str:
        """Whose bucket it is, in words: a topic is called by its name alone, others as `connection 17` or `user shop`."""
        effective = self.effective
        per = effective.per
        if self.state == OVERFLOW:
            return f"the overflow bucket per {per}"
        if per == "topic":
            return effective.thing
        if per == "rule":
            return f"rule {self.rule.name}"
        return f"{per} {effective.thing}" if effective.thing else f"whoever has no {per}"

    def __repr__(self) -> str:
        state = ("", " forgotten", " overflow")[self.state]
        return f"<Level{state} {self.effective.per} {self.effective.thing!r} {self.breaker} {self.bucket}>"


class Ledger:
    """The levels in use, by identity; at most `max_levels`, the overflow (one per rule) apart. Not thread safe: the judge's lock is."""

    __slots__ = ("_levels", "_overflow", "_restored", "forgotten", "max_levels", "overflowed")

    def __init__(self, max_levels: int) -> None:
        if max_levels < 1:
            raise ValueError(f"max_keys: {max_levels} is less than 1")
        self.max_levels = max_levels
        self.overflowed = 0  # times a key had to share an overflow bucket
        self.forgotten = 0  # levels forgotten to make room
        self._levels: OrderedDict[Identity, Level] = OrderedDict()  # longest idle first
        self._overflow: dict[Identity, Level] = {}
        self._restored: dict[Identity, tuple[float, int]] = {}  # fills from before a restart, and when they were true

    def __len__(self) -> int:
        return len(self._levels)

    def get(self, identity: Identity) -> Level | None:
        return self._levels.get(identity)

    def all(self) -> list[Level]:
        return [*self._levels.values(), *self._overflow.values()]

    def level(self, effective: Effective, subject: Subject, generation: int, since: int, now: int, before: list[Level]) -> Level:
        """The level of that identity, under what holds since `since`; made full if it is new, unless the key drew from another before.

        `before` are the levels the key had until now: an override that moves a topic to another bucket must not buy it a burst.
        """
        identity = effective.identity
        level = self._levels.get(identity)
        if level is None and len(self._levels) >= self.max_levels and not self.make_room(now):
            identity = (effective.per, effective.rule.name, "", "")
            level = self._overflow.get(identity)
            if level is None:
                level = Level(effective, subject, generation, now)
                level.state = OVERFLOW
                self._overflow[identity] = level
        if level is None:
            level = Level(effective, subject, generation, now)
            self.inherit(level, before, now)
            self._levels[identity] = level
        else:
            self.touch(level, now)
            if level.generation != generation:
                level.adopt(effective, generation, since)
        return level

    def inherit(self, level: Level, before: list[Level], now: int) -> None:
        """Give a new level the fill its topic is known to have."""
        restored = self._restored.pop(level.effective.identity, None)
        if restored is not None:
            level.bucket.set_fill(restored[0], restored[1])
            return
        for earlier in before:
            if earlier.effective.per == level.effective.per and earlier.state == IN_USE:
                level.bucket.set_fill(earlier.bucket.fill(now), now)

    def touch(self, level: Level, now: int) -> None:
        """Note that `level` is used; called when it was not for `TOUCH_NS`."""
        level.touched = now
        if level.state == IN_USE:
            self._levels.move_to_end(level.effective.identity)

    def make_room(self, now: int) -> bool:
        """Forget the longest idle level that is full by now; False where none of the first few is."""
        for _ in range(min(PROBES, len(self._levels))):
            identity, level = self._levels.popitem(last=False)
            if level.touched < now and level.bucket.is_full(now):  # touched now: the key being matched is about to draw from it
                level.state = FORGOTTEN
                self.forgotten += 1
                return True
            self._levels[identity] = level
        return False

    def discard(self, level: Level) -> None:
        """Forget a level whose thing will not come back."""
        if level.state == IN_USE:
            level.state = FORGOTTEN
            self._levels.pop(level.effective.identity, None)

    def new_rules(self, rules: RuleSet) -> None:
        """Drop the overflow of rules that are gone."""
        for identity in list(self._overflow):
            if rules.rule(identity[1]) is None:
                self._overflow.pop(identity).state = FORGOTTEN

    def fills(self, now: int) -> dict[Identity, float]:
        """The fill of every level that is not full; connections do not outlive a restart."""
        found = {identity: level.bucket.fill(now) for identity, level in self._levels.items() if identity[0] != "connection"}
        return {identity: fill for identity, fill in found.items() if fill < 1.0}

    def restore(self, fills: Mapping[Identity, float], at: int) -> None:
        """Fills as they were at `at`, for levels that are not in use yet; beyond `max_levels` the rest is left out."""
        self._restored = {}
        for identity, fill in fills.items():
            if len(self._restored) < self.max_levels and identity not in self._levels:
                self._restored[identity] = (fill, at)

    def __repr__(self) -> str:
        return f"<Ledger {len(self._levels)}/{self.max_levels} overflow={len(self._overflow)} forgotten={self.forgotten}>"
