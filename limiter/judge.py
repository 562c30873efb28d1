"""The judge: which requests pass.

`decide` is the hot loop. For each request it looks at all levels of the key and then takes from all, so that a refusal at one level spends
nothing at another. A request is a run of `count` like ones; how many of them pass is computed, not tried one by one, with the same result.

Threads: `decide` runs on the limiter's threads, `origin`, `key` and `release` on the loop's. They share nothing but the rule set (one
assignment) and the key's matched levels, which only `decide` touches, under its lock. Everything that looks at buckets takes that lock too.

A level in shadow mode is judged like any other, from what the enforced levels let pass, and only counted.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Final

from limiter.keys import Key, Origin, TopicName
from limiter.ledger import IN_USE, OVERFLOW, TOUCH_NS, Ledger, Level
from limiter.limit_state import LimitState
from limiter.limits import SECOND
from limiter.matching import Subject
from limiter.reservation import Reservation, reserve, settle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from limiter.request import Request
    from limiter.rules import Effective, Identity, RuleSet

__all__ = ["Judge", "LimitState"]

KEYS_PER_ORIGIN: Final = 65_536  # a guess: more topics than any client uses, at about 1 kB each
RETRY_NS: Final = SECOND  # how often a key on an overflow bucket looks for room of its own


def subject_of(key: Key) -> Subject:
    """What the rules look at for `key`."""
    origin = key.origin
    text = key.name.text()
    return Subject(key.name, text, origin.listener, origin.client, origin.user, key.group, key.operation, origin.connection)


class Judge:
    """Judges requests by a rule set that can be swapped at any moment. Holds at most `max_keys` keys and as many levels."""

    __slots__ = (
        "_generation", "_in_force", "_key_count", "_ledger", "_limited", "_lock", "_max_keys", "_ok", "_origins", "_replaced_at", "_rules",
        "_shadowed", "_since",
    )  # fmt: skip

    def __init__(self, rules: RuleSet, max_keys: int = 1_000_000) -> None:
        self._rules = rules
        self._in_force = rules  # the rules `decide` went by last
        self._generation = rules.generation
        self._replaced_at: int | None = None  # when `_rules` were put in force (monotonic ns), where `replace` was told
        self._since = 0  # when `_in_force` came into force: at `replace`, or at the first decision after
        self._ledger = Ledger(max_keys)
        self._lock = Lock()
        self._max_keys = max_keys
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

        An origin that names more topics than `KEYS_PER_ORIGIN` begins afresh; beyond `max_keys` the origin that is longest there does.
        """
        key = origin.keys.get(raw)
        if key is not None:
            return key
        if len(origin.keys) >= KEYS_PER_ORIGIN:
            self._forget_keys(origin)
        if self._key_count >= self._max_keys:
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
        """Write the verdict into each request, in order. `now` is monotonic nanoseconds. Thread safe."""
        self._lock.acquire()
        try:
            if self._rules is not self._in_force:
                self._adopt(now)
            generation = self._generation
            for request in requests:
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
                    self._judge(request, levels, now)
                else:
                    request.passed = request.count
        finally:
            self._lock.release()

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

    def _reserve(self, request: Request, reservation: Reservation, levels: list[Level], now: int) -> None:
        """One that was taken is to be settled. Where no rule is for it any more it is settled all the same."""
        if not reservation.taken:
            reserve(request, reservation, levels, now)
            return
        settle(request, reservation, now)
        messages = request.count * request.messages
        if reservation.held_by is not None:
            self._limited += messages
        elif reservation.shadows:
            self._shadowed += messages
        elif reservation.levels:
            self._ok += messages

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

    def _adopt(self, now: int) -> None:
        rules = self._rules
        self._in_force = rules
        self._generation = rules.generation
        replaced_at = self._replaced_at
        self._since = now if replaced_at is None else min(now, replaced_at)  # `now` may be of a submission made before
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

    # ---- what operators ask ----------------------------------------------------------------------------------------

    def states(self, now: int) -> list[LimitState]:
        """Every limit in use: by a level that is in the ledger and still has a rule. Not sorted."""
        with self._lock:
            if self._rules is not self._in_force:
                self._adopt(now)
            return [LimitState(level, now) for level in self._ledger.all() if level.generation == self._generation or self._rematch(level)]

    def state(self, name: TopicName, now: int, operation: str = "produce") -> LimitState | None:
        """The limit of one topic (level `topic`); None where nobody has used it yet: ask `rules.effective` then."""
        with self._lock:
            if self._rules is not self._in_force:
                self._adopt(now)
            for effective in self._in_force.effective(name, operation=operation):
                level = self._ledger.get(effective.identity) if effective.per == "topic" else None
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

    def usage(self) -> dict[str, int]:
        """How full the judge is: `keys`, `origins`, `levels`, `max_keys`, and since the start `forgotten` and `overflowed`."""
        ledger = self._ledger
        return {
            "keys": self._key_count,
            "origins": len(self._origins),
            "levels": len(ledger),
            "max_keys": self._max_keys,
            "forgotten": ledger.forgotten,
            "overflowed": ledger.overflowed,
        }

    def fills(self, now: int) -> dict[Identity, float]:
        """How full each bucket is that is not full, by identity: what `restore` needs after a restart."""
        with self._lock:
            return self._ledger.fills(now)

    def restore(self, fills: Mapping[Identity, float], now: int, away_ns: int = 0) -> None:
        """Begin with these fills, `away_ns` old: a restart gives no free burst."""
        with self._lock:
            self._ledger.restore(fills, now - away_ns)

    def __repr__(self) -> str:
        return f"<Judge revision={self._rules.revision} keys={self._key_count} {self._ledger}>"
