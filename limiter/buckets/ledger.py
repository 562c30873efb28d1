"""The ledger: all buckets in use, bounded.

Names come from clients. A ledger without a bound is a way to fill memory; one that forgets at random is a way to get a fresh burst: make
up names until yours is forgotten. So

* at most `live` levels are at hand, those used last. When one more is needed the longest idle goes. If its bucket is full by now it is
  **forgotten**, for that gives nobody anything; else it is **shelved** (`limiter.packed_buckets`): 32 bytes say how full it is until it is
  full, and whoever comes back for it goes on from there. Its counters begin again;
* when it can neither be forgotten nor shelved, new names share one **overflow** bucket per rule and level until there is room, and that
  is counted.

Levels at hand and rows on the shelf are `max_levels` together, and each bucket that is not full is one of these. A bucket that is full is
worth as much as one made anew. So, whatever names are made up in whatever order, what one rule admits in a time T is at most
`(max_levels + 1) * (burst + rate * T)`: each place is a bucket, and one more is the overflow.

Order of idleness is kept to the second: a level moves to the end of the order when it is used and has not moved for a second, so that a
message costs a comparison and not a move. Making room looks at `PROBES` levels at most; those it cannot let go move to the end, so that a
few slow ones do not stand in the way for ever. Nothing here ever walks over all levels but what operators ask for.

One thing is not exact: a shelved bucket's place is given away at the time at which it would have been full when it was shelved. Where its
limit was lowered meanwhile, that is too early.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from limiter.buckets.breaker import Breaker
from limiter.buckets.factory import ALONE, Terms
from limiter.decisions.candidate import Candidate, succeeding
from limiter.leases.leased_bucket import Sliced
from limiter.limits import NEVER
from limiter.packed_buckets import Shelf, moved_on

if TYPE_CHECKING:
    from limiter.algorithms.base import Algorithm
    from limiter.decisions.reservation import Reservation
    from limiter.rules.matching import Subject
    from limiter.rules.rule import Rule
    from limiter.rules.rule_set import Effective, Identity, RuleSet

TOUCH_NS: Final = 1_000_000_000  # how exactly the order of idleness is kept
PROBES: Final = 8  # a guess: enough to get past some slow buckets, few enough for the hot path
LIVE: Final = 50_000  # levels at hand, of 0.9 kB each: with as many keys half of the 200 MB that a million topics may cost
LIVE_SHARE: Final = 20  # where more are to be remembered one in so many is at hand: by default, of a million, LIVE
UNTOLD_NS: Final = 3_600_000_000_000  # 1 h, a guess: how long a fill is kept over a restart where nobody can say when it is full

CHANGED: Final = ("override", "quota")  # origins of limits that are not their rule's own

IN_USE: Final = 0
FORGOTTEN: Final = 1  # no longer in the ledger: whoever holds it must match again
OVERFLOW: Final = 2  # shared by those that found no room; they try again later
GONE: Final = 3  # as FORGOTTEN, and nothing will ask for it again: a connection that has ended, the overflow of a rule that is gone


def at_hand(max_levels: int) -> int:
    """How many of `max_levels` levels, and how many keys, are kept ready for use."""
    return max(LIVE, max_levels // LIVE_SHARE)


class Level:
    """One level of one key: a bucket with its breaker, under the rule that holds now; shared by all keys of one identity."""

    __slots__ = (
        "admitted",
        "admitted_bytes",
        "breaker",
        "bucket",
        "candidate",
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
        "slots",
        "state",
        "subject",
        "terms",
        "told_held",
        "told_refused",
        "touched",
    )

    def __init__(
        self, effective: Effective, subject: Subject, generation: int, now: int, terms: Terms = ALONE, state: int = IN_USE
    ) -> None:
        rule = effective.rule
        self.terms = terms
        self.effective = effective
        self.rule = rule
        self.subject = subject  # whoever asked first; to find the rules of a level that nobody uses now
        self.generation = generation  # of the rule set under which it was matched last
        self.bucket: Algorithm = self._made(rule, now, apart=state == OVERFLOW)
        self.slots = self.bucket.slots()  # what is in flight; kept through a change of the algorithm
        self.breaker = Breaker(rule.breaker_ns())
        self.shadow = rule.mode == "shadow"
        self.state = state
        self.touched = now
        self.admitted = 0  # messages
        self.admitted_bytes = 0
        self.over_limit = 0  # messages that found it used up, each once, whatever became of them
        self.shadow_refused = 0
        self.held = 0  # messages that waited for this limit; counted by the loop, as the next
        self.refused = 0  # messages this limit cost: told so, dropped, or their channel or connection closed
        self.told_held = 0  # of `held`, what `take_news` has told
        self.told_refused = 0
        self.candidate: Candidate | None = succeeding(None, rule, terms.candidate(rule), now)
        self.first: Reservation | None = None  # who has waited for it longest; nobody younger passes before it
        self.last_refused_at = -1  # monotonic ns, when something was over the limit last; -1: never

    def adopt(self, effective: Effective, generation: int, since: int) -> None:
        """Go on under what holds since `since`; the fill keeps its proportion. A changed limit closes the breaker: the bucket decides."""
        old, new = self.rule, effective.rule
        if new.algorithm != old.algorithm or new.scope != old.scope:
            before = self.bucket
            fill = before.fill(since)
            if isinstance(before, Sliced):
                before.left = True
            self.bucket = self._made(new, since, apart=self.state == OVERFLOW)
            self.bucket.set_fill(fill, since)
            if self.slots is None:
                self.slots = self.bucket.slots()
            else:
                self.bucket.go_on_with(self.slots)
            self.breaker.close()
        elif new.limit != old.limit:
            self.bucket.change(self.terms.limit(new, apart=self.state == OVERFLOW), since)
            self.breaker.close()
        if new.breaker_ns() != self.breaker.open_for_ns:
            self.breaker = Breaker(new.breaker_ns())
        if self.candidate is not None or new.candidate is not None:
            self.candidate = succeeding(self.candidate, new, self.terms.candidate(new), since)
        self.effective = effective
        self.rule = new
        self.shadow = new.mode == "shadow"
        self.generation = generation

    def _made(self, rule: Rule, now: int, *, apart: bool) -> Algorithm:
        bucket = self.terms.bucket(rule, now, apart=apart)
        if isinstance(bucket, Sliced):
            bucket.whose = self
        return bucket

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

    def peek_ns(self, now: int) -> int:
        """The wait of one message (of no bytes), for those who only look."""
        bucket = self.bucket
        wait = bucket.peek_ns(1, 0, now) if isinstance(bucket, Sliced) else bucket.wait_ns(1, 0, now)
        return max(self.breaker.remaining_ns(now), wait)

    def refuse(self, count: int, messages: int, size: int, now: int) -> bool:
        """Count `count` requests over the limit here, and let the breaker open: whether it has, which makes the wait longer."""
        if self.shadow:
            self.shadow_refused += count * messages
        else:
            self.over_limit += count * messages
        self.last_refused_at = now
        breaker = self.breaker
        opens = breaker.may_open(now)
        if opens:
            breaker.trip(now, self.bucket.full_in_ns(messages, size, now))
        return opens

    def has_news(self) -> bool:
        """Whether something was held or refused that `take_news` has not told."""
        return self.refused != self.told_refused or self.held != self.told_held

    def take_news(self) -> tuple[int, int]:
        """How many messages were held, and how many refused, since this was called before. On the loop's thread."""
        held, refused = self.held - self.told_held, self.refused - self.told_refused
        self.told_held, self.told_refused = self.held, self.refused
        return held, refused

    def is_overflow(self) -> bool:
        """Whether it is for all that found no room in the ledger."""
        return self.state == OVERFLOW

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
        state = ("", " forgotten", " overflow", " gone")[self.state]
        return f"<Level{state} {self.effective.per} {self.effective.thing!r} {self.breaker} {self.bucket}>"


class Ledger:
    """The levels in use, by identity: at most `live` at hand, and `max_levels` with those on the shelf, the overflow (one per rule) apart.

    Not thread safe: the judge's lock is.
    """

    __slots__ = ("_levels", "_overflow", "_shelf", "_shelves", "forgotten", "live", "max_levels", "overflowed", "shelved", "terms")

    def __init__(self, max_levels: int, live: int) -> None:
        if max_levels < 1:
            raise ValueError(f"max_keys: {max_levels} is less than 1")
        self.max_levels = max_levels
        self.live = min(live, max_levels)
        self.terms = ALONE  # what its buckets are of their limits
        self.overflowed = 0  # times a key had to share an overflow bucket
        self.forgotten = 0  # levels forgotten to make room
        self.shelved = 0  # levels shelved to make room
        self._levels: OrderedDict[Identity, Level] = OrderedDict()  # longest idle first
        self._overflow: dict[Identity, Level] = {}
        self._shelves = max_levels > self.live
        # A ledger so small that all are at hand has a shelf all the same, for what was so before a restart.
        self._shelf = Shelf(max_levels - self.live if self._shelves else max_levels)

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
        if level is None and len(self._levels) >= self.live and not self.make_room(generation, since, now):
            level = self.overflow(effective, subject, generation, now)
        if level is None:
            level = Level(effective, subject, generation, now, self.terms)
            if not self.come_back(level, since) or level.bucket.is_full(now):
                self.inherit(level, before, now)
            self._levels[identity] = level
        else:
            self.touch(level, now)
            if level.generation != generation:
                level.adopt(effective, generation, since)
        return level

    def overflow(self, effective: Effective, subject: Subject, generation: int, now: int) -> Level:
        """What those share that find no room, one for each rule and level; apart from those whose limit was published or set live.

        Live changes are few and made by hand: each has its own, or one name's limit would be that of all.
        """
        identity = (effective.per, effective.rule.name, "", "")
        if effective.origin in CHANGED:
            identity = (effective.per, effective.rule.name, effective.origin, effective.thing if effective.origin == "override" else "")
        level = self._overflow.get(identity)
        if level is None:
            level = self._overflow[identity] = Level(effective, subject, generation, now, self.terms, OVERFLOW)
        return level

    def come_back(self, level: Level, since: int) -> bool:
        """Give a level made anew the fill that the shelf has for it, under what holds since `since`; False where it has none."""
        if not self._shelf.written:
            return False
        row = self._shelf.take(self._shelf.hash_of(level.effective.identity))
        if row is None:
            return False
        at, fills, full_at = row
        if full_at > since:
            if at < since:
                fills, at = moved_on(fills, at, full_at, since), since
            level.bucket.set_fills(fills, at)
        return True

    def inherit(self, level: Level, before: list[Level], now: int) -> None:
        """Give a new level the fill that its topic had in another bucket."""
        for earlier in before:
            if earlier.effective.per == level.effective.per and earlier.state in (IN_USE, FORGOTTEN):
                known = self._levels.get(earlier.effective.identity, earlier)
                level.bucket.follow(known.bucket, now)

    def touch(self, level: Level, now: int) -> None:
        """Note that `level` is used; called when it was not for `TOUCH_NS`."""
        level.touched = now
        if level.state == IN_USE:
            self._levels.move_to_end(level.effective.identity)

    def make_room(self, generation: int, since: int, now: int) -> bool:
        """Let the longest idle level go; False where none of the first few can be forgotten or shelved."""
        for _ in range(min(PROBES, len(self._levels))):
            identity, level = self._levels.popitem(last=False)
            if level.touched != now and self.let_go(level, since if level.generation != generation else now, now):
                level.state = FORGOTTEN
                return True
            self._levels[identity] = level  # perhaps touched now: the key being matched is about to draw from it
        return False

    def let_go(self, level: Level, at: int, now: int) -> bool:
        """Forget or shelve a level whose limit, as the level knows it, held until `at`."""
        bucket = level.bucket
        if bucket.is_full(now):
            self.forgotten += 1
            return True
        if not self._shelves:
            return False
        after = bucket.full_after_ns(at)
        if after >= NEVER or not self._shelf.put(self._shelf.hash_of(level.effective.identity), at, bucket.fills(at), at + after, now):
            return False
        self.shelved += 1
        return True

    def current(self, level: Level, now: int) -> Level:
        """The level that has the place of `level` now, which may have been let go since; `level` itself where nobody has."""
        identity = level.effective.identity
        if level.state != FORGOTTEN:
            return level
        found = self._levels.get(identity)
        if found is None and (len(self._levels) < self.live or self.make_room(level.generation, 0, now)):
            self.come_back(level, 0)
            level.state = IN_USE
            level.touched = now
            self._levels[identity] = level
        return level if found is None else found

    def discard(self, level: Level) -> None:
        """Forget a level whose thing will not come back."""
        if level.state == IN_USE:
            level.state = GONE
            self._levels.pop(level.effective.identity, None)

    def new_rules(self, rules: RuleSet) -> None:
        """Drop the overflow of rules, and of live changes, that are gone."""
        for identity, level in list(self._overflow.items()):
            if rules.rule(identity[1]) is None or (identity[2] == "override" and level.subject.name not in rules.overrides):
                del self._overflow[identity]
                level.state = GONE

    # ---- over a restart --------------------------------------------------------------------------------------------

    @property
    def secret(self) -> bytes:
        """What the hashes of `fills_of` and `shelved_rows` are keyed by."""
        return self._shelf.secret

    def fills_of(self, levels: list[Level], now: int) -> array[int]:
        """Rows, as `Shelf.rows` has them, of those levels that are at hand and not full; connections do not outlive a restart."""
        rows: array[int] = array("q")
        for level in levels:
            if level.state == IN_USE and level.effective.per != "connection" and not level.bucket.is_full(now):
                after = level.bucket.full_after_ns(now)
                rows.extend((self._shelf.hash_of(level.effective.identity), 0, level.bucket.fills(now), min(after, UNTOLD_NS)))
        return rows

    def shelf_pages(self) -> int:
        return self._shelf.pages()

    def shelved_rows(self, page: int, now: int) -> array[int]:
        """The rows of one page of the shelf that are not full."""
        return self._shelf.rows(page, now)

    def restore(self, secret: bytes, rows: array[int], now: int, away_ns: int) -> None:
        """Begin with rows from before a restart, `away_ns` old at `now`; before the first level is made."""
        self._shelf.secret = secret
        self._shelf.take_rows(rows, now, away_ns)

    def __repr__(self) -> str:
        return f"<Ledger {len(self._levels)}/{self.live} overflow={len(self._overflow)} forgotten={self.forgotten} shelved={self.shelved}>"
