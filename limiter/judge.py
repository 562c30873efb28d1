"""The judge: which requests pass.

`decide` is the hot loop. For each request it looks at all levels of the key and then takes from all, so that a refusal at one level spends
nothing at another. A request is a run of `count` like ones; how many of them pass is computed, not tried one by one, with the same result.

Threads: `decide` runs on the limiter's threads, `origin`, `key` and `release` on the loop's. They share nothing but the rule set (one
assignment) and the key's matched levels, which only `decide` touches, under its lock. Everything that looks at buckets takes that lock too.

A level in shadow mode is judged like any other, from what the enforced levels let pass, and only counted.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from threading import Lock
from time import sleep
from typing import TYPE_CHECKING, Final

from limiter.algorithms.lag import Following
from limiter.candidate import CandidateCounts, RuleCandidates
from limiter.caps import CapState, heed, places_of, states_of, take_turns
from limiter.flight import Ending, Flight, Hold, give_back
from limiter.keys import Key, Origin, TopicName
from limiter.ledger import FORGOTTEN, IN_USE, OVERFLOW, TOUCH_NS, Ledger, Level, at_hand
from limiter.lending import Lent, Owner
from limiter.limit_state import LimitState
from limiter.limits import SECOND
from limiter.matching import Subject
from limiter.request import UnjudgedError
from limiter.reservation import Reservation, reserve, settle
from limiter.slices import Sliced
from limiter.terms import Terms

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator

    from limiter.limits import Rate
    from limiter.request import Request
    from limiter.rules import Effective, Identity, RuleSet

__all__ = ["Judge", "LimitState"]

KEYS_PER_ORIGIN: Final = 50_000  # a guess: more topics than any client uses
SLICE: Final = 1000  # levels looked at in one go for operators: about a millisecond in which nothing is judged
MOST_BEFORE: Final = 1000  # rules whose buckets are looked for when an owner makes one (a guess: 0.1 ms)
MOST_FOLLOWING: Final = 1000  # topics whose backlog is asked about, each once a second (a guess); more go at their fastest
RETRY_NS: Final = SECOND  # how often a key on an overflow bucket looks for room of its own


def subject_of(key: Key) -> Subject:
    """What the rules look at for `key`."""
    origin = key.origin
    text = key.text if not key.text.endswith("#") else key.name.text()  # a group's text is not the topic's, and ends like that
    return Subject(key.name, text, origin.listener, origin.client, origin.user, key.group, key.operation, origin.connection)


class Judge:
    """Judges requests by a rule set that can be swapped at any moment.

    Remembers at most `max_keys` buckets, `live` of them at hand; 0: as `ledger.at_hand` says.
    """

    __slots__ = (
        "_candidates", "_finished", "_flying", "_following", "_generation", "_in_force", "_key_count", "_ledger", "_limited",
        "_lock", "_max_keys", "_ok", "_origins", "_replaced_at", "_rules", "_shadowed", "_since", "_tries", "key_limit",
    )  # fmt: skip

    def __init__(self, rules: RuleSet, max_keys: int = 1_000_000, live: int = 0) -> None:
        self._rules = rules
        self._in_force = rules  # the rules `decide` went by last
        self._generation = rules.generation
        self._replaced_at: int | None = None  # when `_rules` were put in force (monotonic ns), where `replace` was told
        self._since = 0  # when `_in_force` came into force: at `replace`, or at the first decision after
        self._candidates = RuleCandidates()
        self._candidates.adopt(rules, -1)
        self._tries = rules.has_candidates  # whether any rule in force has a candidate
        self._ledger = Ledger(max_keys, live or at_hand(max_keys))
        self._flying: dict[str, int] = {}  # slots taken, by rule
        self._finished: deque[tuple[list[Ending], int]] = deque()  # told by `finished`, to be given back by who has the lock next
        self._lock = Lock()
        self._following: dict[Identity, Level] = {}  # to be steered: of each no more than MOST_FOLLOWING are asked about
        self._max_keys = max_keys
        self.key_limit = min(max_keys, at_hand(max_keys))  # keys of all origins together
        self._key_count = 0
        self._ok = self._shadowed = self._limited = 0  # messages, by first verdict
        self._origins: OrderedDict[tuple[str, str, str, str | None, bytes, int], Origin] = OrderedDict()

    @property
    def rules(self) -> RuleSet:
        return self._rules

    def replace(self, rules: RuleSet, now: int | None = None) -> None:
        """Put `rules` in force from the next `decide` on. Keys match anew when they are used; buckets keep their fill in proportion.

        A bucket fills at its new rate from `now` (monotonic ns) on, however long nobody asks; without it from the next `decide` on.
        """
        regroup = rules.groups_topics or self._rules.groups_topics
        self._replaced_at = now  # first: who sees the new rules sees their time
        self._rules = rules
        if regroup:  # which topics share a key may be another now
            for origin in self._origins.values():
                self._forget_keys(origin)

    # ---- keys, on the loop's thread --------------------------------------------------------------------------------

    def origin(self, protocol: str, listener: str, client: str, user: str | None, vhost: bytes = b"/", connection: int = 0) -> Origin:
        """The one origin of these; counts a session, to be given back with `release`. Connections are told apart where a rule does."""
        number = connection if self._rules.by_connection else 0
        identity = (protocol, listener, client, user, vhost, number)
        origin = self._origins.get(identity)
        if origin is None:
            origin = Origin(protocol, listener, client, user, vhost, number)
            self._origins[identity] = origin
        origin.sessions += 1
        return origin

    def release(self, origin: Origin, *, connection_ends: bool = True) -> None:
        """A session of `origin` has ended, or goes on without it; with the last one the origin and its keys are forgotten."""
        if origin.sessions <= 0:
            return
        origin.sessions -= 1
        if origin.sessions == 0:
            if origin.connection and connection_ends:
                self._forget_connection(origin)
            self._forget_keys(origin)
            self._origins.pop((origin.protocol, origin.listener, origin.client, origin.user, origin.vhost, origin.connection), None)

    def own(self, origin: Origin, connection: int) -> Origin:
        """The origin to go on with under the rules in force: `origin` itself, unless they now tell connections apart."""
        if origin.connection or not self._rules.by_connection:
            return origin
        renewed = self.origin(origin.protocol, origin.listener, origin.client, origin.user, origin.vhost, connection)
        self.release(origin)
        return renewed

    def key(self, origin: Origin, raw: bytes, name: TopicName, group: bytes | None = None, operation: str = "produce") -> Key:
        """The key of `name` from `origin`, remembered in `origin.keys` under `raw`, the bytes by which the session finds it again.

        Topics that a rule groups share one key, so that ids in routing keys cost an entry in that dictionary and no more.

        An origin that names more topics than `KEYS_PER_ORIGIN` begins afresh; when all keys are too many the origin that is longest there
        does. Keys cost time to make again and nothing else: buckets and counts are not theirs.
        """
        key = origin.keys.get(raw)
        if key is not None:
            return key
        if len(origin.keys) >= KEYS_PER_ORIGIN:
            self._forget_keys(origin)
        if self._key_count >= self.key_limit:
            self._forget_oldest_keys()
        key = Key(origin, name, group, operation)
        if self._rules.groups_topics:
            key = self._shared(key)
        origin.keys[raw] = key
        self._key_count += 1
        return key

    def _shared(self, key: Key) -> Key:
        """The key of the group that `key`'s topic belongs to; `key` itself where no rule groups it."""
        together = self._rules.group_of(subject_of(key))
        if together is None:
            return key
        groups = key.origin.groups
        place = f"{key.operation} {together}"
        shared = groups.get(place)
        if shared is None:
            shared = groups[place] = Key(key.origin, key.name, key.group, key.operation, together)
        return shared

    def _forget_connection(self, origin: Origin) -> None:
        """A connection's number never comes back, so its buckets would be idle until the ledger is full."""
        with self._lock:
            for key in origin.keys.values():
                for level in key.levels:
                    if level.effective.per == "connection":
                        self._ledger.discard(level)

    def limited(self, key: Key) -> bool:
        """Whether any rule in force looks at messages of `key`: where none does, asking for a verdict is not worth its time."""
        rules = self._rules
        if key.limited_in != rules.generation:
            key.limited = any(effective.rule.mode != "off" for effective in rules.matched(subject_of(key)))
            key.limited_in = rules.generation
        return key.limited

    def _forget_keys(self, origin: Origin) -> None:
        self._key_count -= len(origin.keys)
        origin.keys.clear()
        origin.groups.clear()

    def _forget_oldest_keys(self) -> None:
        for _ in range(len(self._origins)):
            identity = next(iter(self._origins))
            origin = self._origins[identity]
            self._origins.move_to_end(identity)
            if origin.keys:
                self._forget_keys(origin)
                return

    # ---- verdicts, on the limiter's threads ------------------------------------------------------------------------

    def busy(self) -> bool:
        """Whether `decide` would have to wait now: somebody reads the states of all keys, or another thread judges."""
        return self._lock.locked()

    def decide(self, requests: list[Request], now: int) -> None:
        """Write the verdict into each request, in order. `now` is monotonic nanoseconds. Thread safe. Raises UnjudgedError."""
        at = 0
        self._lock.acquire()
        try:
            if self._finished:
                self._give_back()
            if self._rules is not self._in_force:
                self._adopt(now)
            generation = self._generation
            for at, request in enumerate(requests):  # noqa: B007  -- for the failure
                key = request.key
                request.wait_ns = 0
                request.rule = None
                request.shadow_refused = 0
                request.bypassed = False
                if key is None:
                    request.passed = request.count
                    continue
                if key.generation != generation:
                    self._match(key, now)
                for level in key.levels:
                    if level.state != IN_USE or now - level.touched > TOUCH_NS:
                        self._refresh(key, now)
                        break
                levels = key.levels
                reservation = request.reservation
                if reservation is not None:
                    self._reserve(request, reservation, levels, now)
                elif levels:
                    share = key.share
                    if share is not None:
                        if share.gone:
                            share = key.share = take_turns(levels, key.text, now)
                            assert share is not None
                        share.cap.turn = share
                    if key.counted or request.prepaid:
                        self._judge_counted(request, levels, now)
                    else:
                        self._judge(request, levels, now)
                    if share is not None:
                        share.cap.turn = None
                else:
                    request.passed = request.count
        except BaseException as error:
            self._end_turn(requests[at:])
            raise UnjudgedError(at) from error
        finally:
            self._lock.release()

    def _end_turn(self, failed: list[Request]) -> None:
        """Whoever's turn it was at a cap when the judge failed, it is over."""
        for request in failed[:1]:
            key = request.key
            if key is not None and key.share is not None:
                key.share.cap.turn = None

    def _judge(self, request: Request, levels: list[Level], now: int) -> None:
        count = request.count
        messages = request.messages
        size = request.size
        passed = count
        shadows = False
        for level in levels:
            if level.shadow:
                shadows = True
            elif passed > 0:
                passed = level.available(passed, messages, size, now)
        request.passed = passed
        if passed > 0:
            for level in levels:
                if not level.shadow:
                    level.take(passed, messages, size)
        if passed < count:
            self._refuse(request, levels, now)
        if shadows and passed > 0:
            self._judge_shadows(request, levels, now)
        if not request.again:
            shadowed = request.shadow_refused
            self._ok += (passed - shadowed) * messages
            self._shadowed += shadowed * messages
            self._limited += (count - passed) * messages
            if self._tries:
                self._try_candidates(request, levels, count, messages, now)

    def _judge_counted(self, request: Request, levels: list[Level], now: int) -> None:
        """The same where a level counts what is in flight: who has taken slots gets a flight to give them back by (`limiter.flight`)."""
        holds: list[Hold] = []
        counted: list[tuple[Level, int, int]] = []
        if request.prepaid:
            levels = [level for level in levels if level.bucket.slots() is not None]
            counted = [(level, level.admitted, level.admitted_bytes) for level in levels]
        for level in levels:
            slots = level.bucket.slots()
            if slots is not None:
                slots.passing = request.unanswered
                slots.prepaid = request.prepaid
                holds.append(Hold(level, slots, slots.taken))
        try:
            self._judge(request, levels, now)
        except BaseException:  # the executor lets the request pass, without a flight: nothing stays taken for it
            for hold in holds:
                hold.slots.taken = hold.left
            raise
        finally:
            for hold in holds:
                hold.slots.passing = hold.slots.prepaid = False
        for level, admitted, admitted_bytes in counted:  # the first time
            level.admitted = admitted
            level.admitted_bytes = admitted_bytes
        for hold in holds:
            hold.left = hold.slots.taken - hold.left
        holds = [hold for hold in holds if hold.left > 0]
        if holds:
            request.flight = Flight(holds, request.passed)
            for hold in holds:
                self._flying[hold.rule] = self._flying.get(hold.rule, 0) + hold.left

    def _reserve(self, request: Request, reservation: Reservation, levels: list[Level], now: int) -> None:
        """One that was taken is to be settled. Where no rule is for it any more it is settled all the same."""
        if not reservation.taken:
            reserve(request, reservation, levels, now)
            return
        for at, level in enumerate(reservation.levels):
            if level.state == FORGOTTEN:  # while the answer was waited for
                reservation.levels[at] = self._ledger.current(level, now)
        settle(request, reservation, now)
        messages = request.count * request.messages
        if reservation.held_by is not None:
            self._limited += messages
        elif reservation.shadows:
            self._shadowed += messages
        elif reservation.levels:
            self._ok += messages
        if self._tries and messages > 0:
            self._try_candidates(request, levels, 1, messages, now)

    def _refuse(self, request: Request, levels: list[Level], now: int) -> None:
        """Say why and for how long. Every level that would not let one more pass has refused, not only the first."""
        refused = 0 if request.again else request.count - request.passed
        longest = 0
        for level in levels:
            if not level.shadow and level.wait_ns(request.messages, request.size, now) > 0:
                level.refuse(refused, request.messages, request.size, now)
                wait = level.wait_ns(request.messages, request.size, now)
                if wait > longest:
                    longest = wait
                    request.rule = level.rule
                    request.level = level
        request.wait_ns = longest

    def _judge_shadows(self, request: Request, levels: list[Level], now: int) -> None:
        for level in levels:
            if level.shadow:
                would = level.available(request.passed, request.messages, request.size, now)
                if would > 0:
                    level.take(would, request.messages, request.size)
                if would < request.passed:
                    level.refuse(request.passed - would, request.messages, request.size, now)
                    request.shadow_refused = max(request.shadow_refused, request.passed - would)

    def _try_candidates(self, request: Request, levels: list[Level], count: int, messages: int, now: int) -> None:
        """Let the candidates of `levels` judge what has arrived, whatever became of it: see `limiter.candidate`."""
        key = request.key
        assert key is not None
        client = key.origin.client
        for level in levels:
            candidate = level.candidate
            if candidate is not None:
                passed = candidate.judge(count, messages, request.size, client, now)
                of_rule = None if level.effective.own_candidate else self._candidates.get(level.rule.name)
                if of_rule is not None:
                    of_rule.add(passed * messages, (count - passed) * messages, client, now)

    def _adopt(self, now: int) -> None:
        rules = self._rules
        self._in_force = rules
        self._generation = rules.generation
        replaced_at = self._replaced_at
        self._since = now if replaced_at is None else min(now, replaced_at)  # `now` may be of a submission made before
        self._candidates.adopt(rules, self._since)
        self._tries = rules.has_candidates
        self._ledger.new_rules(rules)

    def _match(self, key: Key, now: int) -> None:
        """Find the levels of a key that is new, or was matched under other rules, or lost a level."""
        subject = subject_of(key)
        before = key.levels
        levels = [
            self._ledger.level(effective, subject, self._generation, self._since, now, before)
            for effective in self._in_force.matched(subject)
            if effective.rule.mode != "off"
        ]
        crowded = any(level.state == OVERFLOW for level in levels)
        if crowded:
            key.rematch_at = now + RETRY_NS
            if not any(level.state == OVERFLOW for level in before):
                self._ledger.overflowed += 1
        key.levels = levels
        if self._in_force.follows:
            self._follow(levels)
        key.counted = any(level.bucket.slots() is not None for level in levels)
        key.share = take_turns(levels, key.text, now) if key.operation == "produce" else None
        key.generation = self._generation

    def _refresh(self, key: Key, now: int) -> None:
        """Keep the order of idleness; match a key again that lost a level, or waits for room of its own."""
        again = False
        for level in key.levels:
            if now - level.touched > TOUCH_NS:
                self._ledger.touch(level, now)
            if level.state == OVERFLOW:
                again = again or now >= key.rematch_at
            elif level.state != IN_USE:
                again = True
        if again:
            self._match(key, now)

    # ---- limits that follow a backlog (`algorithms.lag`) -----------------------------------------------------------

    def _follow(self, levels: list[Level]) -> None:
        for level in levels:
            if isinstance(level.bucket, Following) and level.state == IN_USE:
                identity = level.effective.identity
                if len(self._following) < MOST_FOLLOWING or identity in self._following:
                    self._following[identity] = level

    def following(self) -> list[Level]:
        """The levels in use whose rate is to be steered."""
        with self._lock:
            gone = [name for name, level in self._following.items() if level.state != IN_USE or not isinstance(level.bucket, Following)]
            for name in gone:
                del self._following[name]
            return list(self._following.values())

    def steer(self, level: Level, rate: Rate, now: int) -> None:
        """Let so many messages per second pass `level` from `now` on."""
        with self._lock:
            bucket = level.bucket
            if isinstance(bucket, Following):
                bucket.steer(rate, now)

    # ---- what has ended, on the loop's thread ----------------------------------------------------------------------

    def finished(self, endings: list[Ending], now: int) -> None:
        """Requests in flight have ended (`limiter.flight`): their slots are free from the next `decide` on. Never waits."""
        self._finished.append((endings, now))
        if self._lock.acquire(blocking=False):
            try:
                self._give_back()
            finally:
                self._lock.release()

    def in_flight(self) -> dict[str, int]:
        """How many slots are taken of each rule that counts what is in flight."""
        with self._lock:
            self._give_back()
            counting = {rule.name: 0 for rule in self._rules.rules if rule.limit.concurrent is not None}
            return counting | {name: taken for name, taken in self._flying.items() if taken > 0 or name in counting}

    def _give_back(self) -> None:
        finished = self._finished
        while finished:
            endings, now = finished.popleft()
            for ending in endings:
                give_back(ending, now, self._flying)

    # ---- one limit over many processes (`limiter.slices`) ----------------------------------------------------------

    @property
    def terms(self) -> Terms:
        return self._ledger.terms

    def share(self, terms: Terms) -> None:
        """Be one side of several that share limits. Before the first key."""
        self._ledger.terms = terms

    def asks(self, now: int) -> list[tuple[Level, int, int]]:
        """What this member asks the owner for now: level, messages, bytes; below 0: gives back. Call it every few milliseconds."""
        lease = self._ledger.terms.lease
        assert lease is not None
        found: list[tuple[Level, int, int]] = []
        with self._lock:
            for sliced, messages, size in lease.asks(now):
                level = sliced.whose
                assert isinstance(level, Level)
                found.append((level, messages, size))
        return found

    def granted(self, grants: list[tuple[Level, int, int]], now: int) -> None:
        """The owner's answers to asks."""
        with self._lock:
            for level, messages, size in grants:
                bucket = level.bucket
                if isinstance(bucket, Sliced):
                    bucket.grant(messages, size, now)

    def lend(self, owner: Owner, asks: list[tuple[Lent, int, int]], member: int, now: int) -> list[tuple[int, int]]:
        """What `member` gets of the buckets it asks for; nothing of those that no rule is for (any more)."""
        found: list[tuple[int, int]] = []
        with self._lock:
            if self._rules is not self._in_force:
                self._adopt(now)
            for lent, messages, size in asks:
                level = self._lent(lent, now)
                if level is None:
                    found.append((0, 0))
                else:
                    found.append(owner.grant(lent.identity, level.bucket, member, messages, size, now))
        return found

    def lent_level(self, lent: Lent, now: int) -> Level | None:
        """The owner's level of what members have parts of; None where no rule is for it (any more)."""
        with self._lock:
            if self._rules is not self._in_force:
                self._adopt(now)
            return self._lent(lent, now)

    def _lent(self, lent: Lent, now: int) -> Level | None:
        level = lent.level
        if level is not None and level.state == IN_USE and level.generation == self._generation:
            if now - level.touched > TOUCH_NS:
                self._ledger.touch(level, now)
            return level
        lent.level = None
        for effective in self._in_force.matched(lent.subject):
            if effective.identity != lent.identity or effective.rule.mode == "off":
                continue
            if lent.overflow:
                lent.level = shared = self._ledger.overflow(effective, lent.subject, self._generation, now)
                if shared.generation != self._generation:
                    shared.adopt(effective, self._generation, self._since)
            else:
                lent.level = self._ledger.level(effective, lent.subject, self._generation, self._since, now, self._before(lent.identity))
        return lent.level

    def _before(self, identity: Identity) -> list[Level]:
        """The buckets that the same thing has drawn from under other rules: a new one begins no fuller than those."""
        if self._ledger.get(identity) is not None:
            return []
        per, own, protocol, thing = identity
        names = ["", *(rule.name for rule in self._in_force.rules[:MOST_BEFORE] if rule.per == per)]
        found = [self._ledger.get((per, name, protocol, thing)) for name in names if name != own]
        return [level for level in found if level is not None]

    # ---- what operators ask ----------------------------------------------------------------------------------------

    def states(self, now: int) -> list[LimitState]:
        """Every limit in use: by a level that is in the ledger and still has a rule. Not sorted."""
        with self._lock:
            self._give_back()
            if self._rules is not self._in_force:
                self._adopt(now)
            levels = self._ledger.all()
        found: list[LimitState] = []
        for begin in range(0, len(levels), SLICE):
            with self._lock:
                if self._rules is not self._in_force:
                    self._adopt(now)
                some = [level for level in levels[begin : begin + SLICE] if level.state in (IN_USE, OVERFLOW)]
                found += [LimitState(level, now) for level in some if level.generation == self._generation or self._rematch(level)]
            sleep(0)  # who waits for the lock gets it
        return found

    def state(self, name: TopicName, now: int, operation: str = "produce") -> LimitState | None:
        """The limit of one topic (level `topic`); None where nobody has used it yet: ask `rules.effective` then."""
        with self._lock:
            self._give_back()
            if self._rules is not self._in_force:
                self._adopt(now)
            for effective in self._in_force.effective(name, operation=operation):
                level = self._ledger.get(effective.identity) if effective.per == "topic" else None
                if level is not None and (level.generation == self._generation or self._rematch(level)):
                    return LimitState(level, now)
            return None

    def state_of(self, identity: Identity, now: int) -> LimitState | None:
        """The limit in use of that identity; None where nobody has used it yet."""
        with self._lock:
            self._give_back()
            if self._rules is not self._in_force:
                self._adopt(now)
            level = self._ledger.get(identity)
            if level is not None and (level.generation == self._generation or self._rematch(level)):
                return LimitState(level, now)
            return None

    def _rematch(self, level: Level) -> bool:
        """Bring a level nobody has used since the rules changed under the rules in force; False where none holds for it any more."""
        if level.state == OVERFLOW:
            return False
        effective = self._same(level)
        if effective is None:
            return False
        level.adopt(effective, self._generation, self._since)
        return True

    def _same(self, level: Level) -> Effective | None:
        for effective in self._in_force.matched(level.subject):
            if effective.identity == level.effective.identity and effective.rule.mode != "off":
                return effective
        return None

    def checks(self) -> dict[str, int]:
        """Messages judged by at least one rule since the start, by their first verdict.

        `ok`: passed; `limited_shadow`: passed, a rule in shadow mode would have refused it; `limited_enforced`: refused, whatever became
        of it then. A message that is held and judged again is not counted again, one that no rule is for never is.
        """
        with self._lock:
            return {"ok": self._ok, "limited_shadow": self._shadowed, "limited_enforced": self._limited}

    def tried(self, lent: Lent, admitted: int, refused: int, clients: dict[str, int], since: int, now: int) -> None:
        """A member has counted this at its part of a candidate."""
        with self._lock:
            if self._rules is not self._in_force:
                self._adopt(now)
            level = self._lent(lent, now)
            if level is None or level.candidate is None:
                return
            of_rule = None if level.effective.own_candidate else self._candidates.get(level.rule.name)
            if of_rule is not None and since < of_rule.begun:
                return  # of the candidate before
            level.candidate.counts.merge(admitted, refused, clients, since)
            if of_rule is not None:
                of_rule.merge(admitted, refused, clients, since)

    def candidates(self, now: int) -> dict[str, CandidateCounts]:
        """What each rule's candidate would have admitted and refused, over all its buckets, by the rule's name."""
        with self._lock:
            self._give_back()
            if self._rules is not self._in_force:
                self._adopt(now)
            return self._candidates.copies()

    def judged(self) -> int:
        """The sum of `checks`, without its lock: nobody waits for a slow verdict to learn it."""
        return self._ok + self._shadowed + self._limited

    def heed(self, listener: str, reason: str, now: int) -> list[tuple[str, CapState]]:
        """What the broker behind `listener` says of its load (""; nothing): its caps that adapt are tightened, or recover; what is news."""
        with self._lock:
            return heed(self._caps(listener, now), reason, now)

    def caps(self, listener: str, now: int) -> list[CapState]:
        """The caps of a listener that are in use."""
        with self._lock:
            return states_of(self._caps(listener, now))

    def _caps(self, listener: str, now: int) -> list[Level]:
        if self._rules is not self._in_force:
            self._adopt(now)
        found = [self._ledger.get(place) for place in places_of(self._in_force, listener)]
        return [level for level in found if level is not None and (level.generation == self._generation or self._rematch(level))]

    def usage(self) -> dict[str, int]:
        """How full the judge is: `keys`, `origins`, `levels` at hand, `max_keys`; since the start `forgotten`, `shelved`, `overflowed`."""
        ledger = self._ledger
        return {
            "keys": self._key_count,
            "origins": len(self._origins),
            "levels": len(ledger),
            "max_keys": self._max_keys,
            "forgotten": ledger.forgotten,
            "shelved": ledger.shelved,
            "overflowed": ledger.overflowed,
        }

    @property
    def secret(self) -> bytes:
        """What tells whose the rows of `fills` are; `restore` needs it."""
        return self._ledger.secret

    def fills(self, now: int) -> Iterator[array[int]]:
        """How full each bucket is that is not full, in rows of four integers (`Shelf.rows`), many at a time: for `restore`."""
        with self._lock:
            levels = self._ledger.all()
        for begin in range(0, len(levels), SLICE):
            with self._lock:
                rows = self._ledger.fills_of(levels[begin : begin + SLICE], now)
            yield rows
            sleep(0)
        for page in range(self._ledger.shelf_pages()):
            with self._lock:
                rows = self._ledger.shelved_rows(page, now)
            yield rows
            sleep(0)

    def restore(self, secret: bytes, rows: array[int], now: int, away_ns: int = 0) -> None:
        """Begin with these fills, `away_ns` old: a restart gives no free burst. Before the first `decide`."""
        with self._lock:
            self._ledger.restore(secret, rows, now, away_ns)

    def __repr__(self) -> str:
        return f"<Judge revision={self._rules.revision} keys={self._key_count} {self._ledger}>"
