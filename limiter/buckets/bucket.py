"""The bucket: what one rule keeps for one thing (a topic, a client, a connection, ...), shared by all keys that draw from it.

It is an algorithm, which says how many requests pass and how long others wait; a breaker before it; and counters. The rule that holds for
it may change at any time, and with it the algorithm: a bucket goes on (`adopt`) with its fill in proportion and its counters as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from limiter.buckets.breaker import Breaker
from limiter.buckets.candidate import Candidate, next_candidate
from limiter.buckets.factory import ALONE, BucketFactory, lessee_of
from limiter.fair_share.turns import is_turn_of, turns_until
from limiter.limits import NEVER

if TYPE_CHECKING:
    from limiter.algorithms.base import Algorithm
    from limiter.rules.rule import Rule
    from limiter.rules.rule_set import Effective
    from limiter.rules.subject import Subject

IN_USE: Final = 0
EVICTED: Final = 1  # no longer in the ledger: a key that has it must match again
OVERFLOW: Final = 2  # shared by those that found no room; they try again later
GONE: Final = 3  # as EVICTED, for good: the bucket of a connection that has ended, the overflow of a rule that is gone


class Waiter:
    """A reservation that waits in line for a bucket, as the bucket knows it (`limiter.reservation`)."""

    __slots__ = ("asked_at", "messages", "since", "size")

    def __init__(self, messages: int, size: int, since: int) -> None:
        self.messages = messages  # expected, then taken
        self.size = size  # bytes, likewise
        self.since = since  # monotonic ns since when messages of its queue are waited for; 0: it was not kept waiting
        self.asked_at = 0  # monotonic ns of the last time that it asked


class Bucket:
    """What one rule keeps for one thing (a topic, a client, ...): an algorithm, a breaker, counters; shared by all keys of one identity."""

    __slots__ = (
        "admitted",
        "admitted_bytes",
        "algorithm",
        "asked",
        "asked_bytes",
        "breaker",
        "bytes_turns_until",
        "candidate",
        "contended_at",
        "dry_at",
        "effective",
        "factory",
        "first_waiting",
        "generation",
        "held",
        "last_refused_at",
        "over_limit",
        "owed_until",
        "refused",
        "reported_held",
        "reported_refused",
        "room",
        "room_bytes",
        "rule",
        "shadow",
        "shadow_before",
        "shadow_refused",
        "slots",
        "state",
        "subject",
        "tight",
        "touched",
        "turns_until",
        "waiter",
    )

    def __init__(
        self, effective: Effective, subject: Subject, generation: int, now: int, factory: BucketFactory = ALONE, state: int = IN_USE
    ) -> None:
        rule = effective.rule
        self.factory = factory
        self.effective = effective
        self.rule = rule
        self.subject = subject  # of the first message; finds the rules of a bucket that is not in use now
        self.generation = generation  # of the rule set under which it was matched last
        self.algorithm: Algorithm = self._new_algorithm(rule, now, apart=state == OVERFLOW)
        self.slots = self.algorithm.slots()  # what is in flight; kept through a change of the algorithm
        self.breaker = Breaker(rule.breaker_ns())
        self.shadow = rule.mode == "shadow"
        self.state = state
        self.touched = now
        self.admitted = 0  # messages
        self.admitted_bytes = 0
        self.asked: i64 = 0  # messages, and bytes, that columns ask of it while they are judged (`limiter.decisions.columns`)
        self.asked_bytes: i64 = 0
        self.tight = False  # not all of that fits, and what still does is the next two (`limiter.decisions.rows`)
        self.room: i64 = 0
        self.room_bytes: i64 = 0
        self.over_limit = 0  # messages that found it used up, each once, whatever became of them
        self.shadow_refused = 0
        self.shadow_before = 0  # of `shadow_refused`, what rules before this one have counted
        self.held = 0  # messages that waited for this limit; counted by the loop, as the next
        self.refused = 0  # messages this limit cost: told so, dropped, or their channel or connection closed
        self.waiter = 0  # who was held by it last (`gateway/pipeline/actions/holding.py`), as the loop knows them; 0: nobody yet
        self.contended_at = NEVER  # monotonic ns, when somebody else than before was; NEVER: there was only one
        self.dry_at = 0  # monotonic ns, when the loop heard of a refusal last; 0: never
        self.reported_held = 0  # of `held`, what `take_unreported` has told
        self.reported_refused = 0
        self.candidate: Candidate | None = next_candidate(None, rule, factory.candidate(rule), now)
        self.first_waiting: Waiter | None = None  # what has waited for it longest; none younger passes before it
        self.owed_until = 0  # monotonic ns, when the overdrafts so far are paid (`limiter.reservation`); NEVER at a rate of 0
        self.turns_until = 0  # of `admitted`: by then others have got as much as those that waited have owed (`is_turn_of`)
        self.bytes_turns_until = 0  # the same of bytes, of `admitted_bytes`
        self.last_refused_at = -1  # monotonic ns, when something was over the limit last; -1: never

    def adopt(self, effective: Effective, generation: int, since: int) -> None:
        """Go on under what holds since `since`; the fill keeps its proportion. A changed limit closes the breaker: the bucket decides."""
        old, new = self.rule, effective.rule
        if new.algorithm != old.algorithm or new.scope != old.scope:
            before = self.algorithm
            fill = before.fill(since)
            leased = lessee_of(before)
            if leased is not None:
                leased.replaced = True
            self.algorithm = self._new_algorithm(new, since, apart=self.state == OVERFLOW)
            self.algorithm.set_fill(fill, since)
            if self.slots is None:
                self.slots = self.algorithm.slots()
            else:
                self.algorithm.go_on_with(self.slots)
            self.breaker.close()
        elif new.limit != old.limit:
            self.algorithm.change(self.factory.limit(new, apart=self.state == OVERFLOW), since)
            self.breaker.close()
        if new.limit != old.limit:
            self.owed_until = 0  # at another rate; the debt itself stays in the algorithm
        if new.breaker_ns() != self.breaker.open_for_ns:
            self.breaker = Breaker(new.breaker_ns())
        if self.candidate is not None or new.candidate is not None:
            self.candidate = next_candidate(self.candidate, new, self.factory.candidate(new), since)
        if new.name != old.name:
            self.shadow_before = self.shadow_refused
        self.effective = effective
        self.rule = new
        self.shadow = new.mode == "shadow"
        self.generation = generation

    def _new_algorithm(self, rule: Rule, now: int, *, apart: bool) -> Algorithm:
        algorithm = self.factory.algorithm(rule, now, apart=apart)
        leased = lessee_of(algorithm)
        if leased is not None:
            leased.use_for(self)
        return algorithm

    def let_go(self, state: int) -> None:
        """The ledger has it no more."""
        self.state = state
        leased = lessee_of(self.algorithm)
        if leased is not None:
            leased.let_go()

    def come_back(self) -> None:
        """It is used again, in the ledger or not."""
        leased = lessee_of(self.algorithm)
        if leased is not None:
            leased.use_for(self)

    def cost_of(self, operation: str, messages: int, size: int) -> int:
        """What its rule counts for so many messages, or operations."""
        cost = self.rule.cost
        return messages if cost is None else cost.of(operation, messages, size)

    def available(self, count: int, messages: int, size: int, now: int) -> int:
        """How many of `count` requests alike would pass now: none while the breaker is open, else what the bucket says."""
        breaker = self.breaker
        if breaker.open_until != 0 and breaker.is_open(now):
            return 0
        return self.algorithm.available(count, messages, size, now)

    def take(self, count: int, messages: int, size: int) -> None:
        """Spend what `available` has promised."""
        self.algorithm.take(count, messages, size)
        self.admitted += count * messages
        self.admitted_bytes += count * size

    def may_owe(self, messages: int, size: int) -> bool:
        """Whether a request of this cost that has waited may owe its messages, or its bytes."""
        limit = self.rule.limit
        return (limit.messages is not None and messages > 1 and is_turn_of(messages, self.admitted, self.turns_until)) or (
            limit.bytes is not None and is_turn_of(size, self.admitted_bytes, self.bytes_turns_until)
        )

    def available_in_turn(self, messages: int, size: int, now: int) -> int:
        """As `available`, for one that `may_owe`: what it may owe need not be there, but no debt may. What costs one message owes none."""
        if is_turn_of(messages, self.admitted, self.turns_until):
            messages = int(messages == 1)
        if is_turn_of(size, self.admitted_bytes, self.bytes_turns_until):
            size = 0
        return self.available(1, messages, size, now)

    def note_debt(self, messages: int, size: int) -> None:
        """One request of this cost has waited, passed just now, and left a debt."""
        self.turns_until = turns_until(messages, self.admitted, self.turns_until)
        self.bytes_turns_until = turns_until(size, self.admitted_bytes, self.bytes_turns_until)

    def overdraw(self, count: int, messages: int, size: int, now: int) -> None:
        """Charge `count` requests that pass in any case."""
        over = count - self.available(count, messages, size, now)
        if over > 0:
            owed = self.rule.limit.cost_ns(over * messages, over * size)
            self.owed_until = min(NEVER, max(self.owed_until, now) + owed)
        self.algorithm.settle(count * messages, count * size, NEVER, now)
        self.admitted += count * messages
        self.admitted_bytes += count * size

    def wait_ns(self, messages: int, size: int, now: int) -> int:
        """The true time until one such request would pass this bucket; 0: now."""
        return max(self.breaker.remaining_ns(now), self.algorithm.wait_ns(messages, size, now))

    def peek_ns(self, now: int, size: int = 0, operation: str = "") -> int:
        """The wait of one message of `size` bytes, or of one `operation` ("": that of the first message), for a caller that only looks."""
        cost = self.cost_of(operation or self.subject.operation, 1, size)
        return max(self.breaker.remaining_ns(now), self.algorithm.peek_ns(cost, size, now))

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
            breaker.trip(now, self.algorithm.full_in_ns(messages, size, now))
        return opens

    def count_unfit(self, messages: int, now: int) -> None:
        """Count `messages` that its rule never lets pass; that opens no breaker, for the next may be another matter."""
        if self.shadow:
            self.shadow_refused += messages
        else:
            self.over_limit += messages
        self.last_refused_at = now

    def has_unreported(self) -> bool:
        """Whether something was held or refused that `take_unreported` has not told."""
        return self.refused != self.reported_refused or self.held != self.reported_held

    def take_unreported(self) -> tuple[int, int]:
        """How many messages were held, and how many refused, since this was called before. On the loop's thread."""
        held, refused = self.held - self.reported_held, self.refused - self.reported_refused
        self.reported_held, self.reported_refused = self.held, self.refused
        return held, refused

    def is_overflow(self) -> bool:
        """Whether it is for all that found no room in the ledger."""
        return self.state == OVERFLOW

    def thing(self) -> str:
        """What the bucket is for, as text; nothing where it is for all that found no room."""
        return "" if self.state == OVERFLOW else self.effective.thing

    def owner_text(self) -> str:
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
        state = ("", " evicted", " overflow", " gone")[self.state]
        return f"<Bucket{state} {self.effective.per} {self.effective.thing!r} {self.breaker} {self.algorithm}>"
