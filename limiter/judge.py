"""The judge: which requests pass.

`decide` looks at all buckets of a request's key and then takes from all, so that a refusal at one bucket spends nothing at another. A
request is a run of `count` like ones; how many of them pass is computed, not tried one by one, with the same result. Requests of one key
that follow each other are judged together where that changes nothing (`limiter.decisions.runs`).

Its parts: the origins and their keys (`limiter.decisions.origins`), the rules and buckets in force for them (`limiter.decisions.in_force`),
and the hot loop over their requests (`limiter.decisions.batches`). Here is all that others ask of it, and which thread may touch what.

Threads: `decide` runs on the limiter's threads, `origin`, `key` and `release` on the loop's. They share nothing but the rule set (one
assignment) and the key's matched buckets, which only `decide` touches, under its lock. Everything that looks at buckets takes that lock
too.
"""

from __future__ import annotations

from dataclasses import replace
from time import sleep
from typing import TYPE_CHECKING, Final

from limiter.algorithms.lag import LagControlledBucket
from limiter.buckets.bucket import IN_USE, OVERFLOW, Bucket
from limiter.buckets.candidate import CandidateCounts
from limiter.buckets.factory import BucketFactory
from limiter.buckets.lease_ask import LeaseAsk
from limiter.buckets.leased_bucket_ref import LeasedBucketRef
from limiter.buckets.ledger import at_hand
from limiter.decisions.batches import Decisions
from limiter.decisions.caps import CapState, observe_broker_load, states_of
from limiter.decisions.in_force import InForce
from limiter.decisions.origins import Origins
from limiter.in_flight import Ending
from limiter.keys import Key, Origin
from limiter.leases.lease import Lease
from limiter.leases.leased_bucket import LeasedBucket
from limiter.leases.owner import LeaseOwner
from limiter.limit_state import LimitState
from limiter.limits import NEVER
from limiter.rules.sender import Sender
from limiter.topics import TopicName

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator

    from librt.threading import Lock

    from limiter.limits import Rate
    from limiter.request import Request
    from limiter.rules.rule_set import Effective, Identity, RuleSet

__all__ = ["Judge", "LimitState"]

STATES_PER_SLICE: Final = 50  # buckets described in one go for operators: 0.2 ms (measured 2026-11)
SLICE: Final = 1000  # buckets looked at in one go for operators; about a millisecond in which nothing is judged


class Judge:
    """Judges requests by a rule set that can be swapped at any moment.

    Remembers at most `max_keys` buckets, `live` of them at hand; 0: as `ledger.at_hand` says. `bounds_names`: clients may use so many new
    names a second (`limiter.new_names`).
    """

    __slots__ = ("_decisions", "_in_force", "_lock", "_max_keys", "origins")

    def __init__(self, rules: RuleSet, max_keys: int = 1_000_000, live: int = 0, *, bounds_names: bool = False) -> None:
        self._in_force = InForce(rules, max_keys, live)
        self._decisions = Decisions(self._in_force)
        self._lock = self._decisions.lock
        self._max_keys = max_keys
        self.origins = Origins(rules, min(max_keys, at_hand(max_keys)), self._in_force.ledger if bounds_names else None)

    @property
    def rules(self) -> RuleSet:
        return self._in_force.latest

    @property
    def lock(self) -> Lock:
        """Taken during a decision, and while the states of all keys are read: `decide` would have to wait."""
        return self._lock

    def replace(self, rules: RuleSet, now: int | None = None) -> bool:
        """Put `rules` in force from the next `decide` on; whether sessions must ask anew for their origins and keys.

        Keys match anew when they are used; buckets keep their fill in proportion. A bucket fills at its new rate from `now` (monotonic
        ns) on, however long no message comes; without it from the next `decide` on.
        """
        self._in_force.replace(rules, now)
        return self.origins.replace(rules)

    # ---- keys, on the loop's thread --------------------------------------------------------------------------------

    def origin(
        self, protocol: str, listener: str, client: str, user: str | None, vhost: bytes = b"/", connection: int = 0, **more: str | None
    ) -> Origin:
        """The one origin of these; counts a session, to be given back with `release`. Connections are told apart where a rule does.

        `more`: what else is known of the sender, by the names of `Sender`.
        """
        return self.origins.origin(protocol, Sender(listener, client, user, **more), vhost, connection)

    def release(self, origin: Origin, *, connection_ends: bool = True) -> None:
        """A session of `origin` has ended, or goes on without it; with the last the origin and its keys are forgotten, or soon after."""
        if origin.sessions == 1 and origin.connection and connection_ends:
            self._forget_connection(origin)
        self.origins.release(origin, ended=connection_ends)

    def _forget_connection(self, origin: Origin) -> None:
        """A connection's number never comes back, so its buckets would be idle until the ledger is full."""
        with self._lock:
            for key in (*origin.keys.values(), *origin.together.values()):
                for bucket in key.buckets:
                    if bucket.effective.per == "connection":
                        self._in_force.ledger.discard(bucket)

    def own(self, origin: Origin, connection: int) -> Origin:
        """The origin to go on with under the rules in force: `origin` itself, unless they now tell connections apart."""
        return self.origins.own(origin, connection)

    def key(
        self,
        origin: Origin,
        raw: bytes,
        name: TopicName,
        group: bytes | None = None,
        operation: str = "produce",
        *,
        told_apart: bool = False,
    ) -> Key:
        """The key of `name` from `origin`, remembered in `origin.keys` under `raw`, the bytes by which the session finds it again.

        Where the client has used too many new names it is one of many names and `unnamed`, and not remembered; `told_apart`: never.
        """
        return self.origins.key(origin, raw, name, group, operation, told_apart)

    def may_name(self, origin: Origin) -> bool:
        """Whether the client of `origin` may use one more new name, which then counts."""
        return self.origins.may_name(origin)

    def is_limited(self, key: Key) -> bool:
        """Whether any rule in force looks at messages of `key`: where none does, asking for a verdict is not worth its time."""
        return self.origins.is_limited(key)

    def list_enforced(self, key: Key) -> list[Effective]:
        """The rules in force that keep messages of `key` waiting: those in shadow mode do not."""
        return self.origins.list_enforced(key)

    def wait_of(self, key: Key, size: int, now: int) -> int:
        """How long (ns) one message of `size` bytes of `key` would have to wait; 0: it would pass. For a caller that only looks."""
        with self._lock:
            at = self._begin_look(now)
            if key.generation != self._in_force.generation:
                self._in_force.match(key, at)
            return min(max([bucket.peek_ns(at, size, key.operation) for bucket in key.buckets if not bucket.shadow], default=0), NEVER)

    # ---- verdicts, on the limiter's threads ------------------------------------------------------------------------

    def decide(self, requests: list[Request], now: int) -> None:
        """Write the verdict into each request, in order. `now` is monotonic nanoseconds. Thread safe. Raises UnjudgedError."""
        self.origins.now = now
        self._decisions.decide(requests, now)

    def free_slots(self, endings: list[Ending], now: int) -> None:
        """Requests in flight have ended (`limiter.in_flight`): their slots are free from the next `decide` on. Never waits."""
        self._decisions.free_slots(endings, now)

    def owe(self, request: Request) -> None:
        """`request`, of an overdraft that has begun (`limiter.reservation`), has passed; the next `decide` charges it. Never waits."""
        self._decisions.owe(request)

    def in_flight(self) -> dict[str, int]:
        """How many slots are taken of each rule that counts what is in flight."""
        with self._lock:
            self._decisions.give_back()
            counting = {rule.name: 0 for rule in self.rules.rules if rule.limit.concurrent is not None}
            return counting | {name: taken for name, taken in self._decisions.verdicts.in_flight.items() if taken > 0 or name in counting}

    # ---- limits that follow a backlog (`algorithms.lag`) -----------------------------------------------------------

    def list_lag_controlled(self) -> list[Bucket]:
        """The buckets in use whose rate follows a backlog."""
        with self._lock:
            return self._in_force.list_lag_controlled()

    def set_rate(self, identity: Identity, rate: Rate, now: int) -> None:
        """Let so many messages per second pass the bucket of that identity, whose limit follows a backlog, from `now` on.

        A member's part of it lends itself less in advance where its owner's is slower.
        """
        with self._lock:
            bucket = self._in_force.ledger.get(identity)
            algorithm = None if bucket is None else bucket.algorithm
            if isinstance(algorithm, LagControlledBucket):
                algorithm.set_rate(rate, now)
            elif isinstance(algorithm, LeasedBucket) and algorithm.limit.lag is not None and algorithm.limit.messages != rate:
                algorithm.change(replace(algorithm.limit, messages=rate), now)

    def find_followed_rate(self, ref: LeasedBucketRef, now: int) -> Rate | None:
        """What the owner's bucket lets pass now; None: its limit follows no backlog."""
        if not self.rules.follows:
            return None
        bucket = self.leased_bucket(ref, now)
        algorithm = None if bucket is None else bucket.algorithm
        return algorithm.limit.messages if isinstance(algorithm, LagControlledBucket) else None

    # ---- one limit over many processes (`limiter.leases.leased_bucket`) ----------------------------------------------------------

    def make_buckets_with(self, factory: BucketFactory) -> None:
        """Be one side of several that share limits. Before the first key."""
        self._in_force.ledger.factory = factory

    def join_fleet(self, lease: Lease) -> None:
        """Have parts of the buckets that a fleet shares. Before the first key, and after `make_buckets_with`."""
        before = self._in_force.ledger.factory
        self._in_force.ledger.factory = BucketFactory(before.members, before.lease, lease)

    def asks(self, lease: Lease, now: int) -> list[LeaseAsk]:
        """What this member asks the owner of `lease` for now. Every few milliseconds."""
        found: list[LeaseAsk] = []
        with self._lock:
            for leased, messages, size in lease.asks(now):
                bucket = leased.bucket
                if isinstance(bucket, Bucket):
                    found.append(LeaseAsk(bucket, leased, messages, size))
                else:  # what was let go has been settled since
                    leased.listed = False
        return found

    def take_grants(self, grants: list[tuple[LeaseAsk, int, int]], now: int) -> None:
        """The owner's answers to asks. Places are no tokens: where the bucket has another algorithm by now, the answer is of no use."""
        with self._lock:
            for ask, messages, size in grants:
                if not ask.lessee.replaced:
                    ask.lessee.grant(messages, size, now)

    def put_off(self, asks: list[LeaseAsk], now: int) -> None:
        """Nobody has asked the owner: there are too many at once."""
        with self._lock:
            for ask in asks:
                ask.lessee.put_off(now)

    def lend(self, owner: LeaseOwner, asks: list[tuple[LeasedBucketRef, int, int]], member: int, now: int) -> list[tuple[int, int]]:
        """What `member` gets of the buckets it asks for; nothing of those that no rule is for (any more)."""
        found: list[tuple[int, int]] = []
        with self._lock:
            self._in_force.adopt(now)
            self._decisions.judged_at = now
            for ref, messages, size in asks:
                bucket = self._in_force.leased_bucket(ref, now)
                if bucket is None:
                    found.append((0, 0))
                else:
                    found.append(owner.grant(ref.identity, bucket.algorithm, member, messages, size, now))
        return found

    def leased_bucket(self, ref: LeasedBucketRef, now: int) -> Bucket | None:
        """The owner's bucket of what members have parts of; None where no rule is for it (any more)."""
        with self._lock:
            self._in_force.adopt(now)
            return self._in_force.leased_bucket(ref, now)

    # ---- what operators ask ----------------------------------------------------------------------------------------

    def states(self, now: int) -> list[LimitState]:
        """Every limit in use: by a bucket that is in the ledger and still has a rule. Not sorted."""
        return [state for some in self.states_in_slices(now) for state in some]

    def states_in_slices(self, now: int) -> Iterator[list[LimitState]]:
        """`states`, a list for each slice of the ledger as it was at first; between two of them whoever judges may have its turn."""
        with self._lock:
            self._begin_look(now)
            buckets = self._in_force.ledger.list_buckets()
        for begin in range(0, len(buckets), STATES_PER_SLICE):
            with self._lock:
                at = self._begin_look(now)
                some = [bucket for bucket in buckets[begin : begin + STATES_PER_SLICE] if bucket.state in (IN_USE, OVERFLOW)]
                found = [LimitState(bucket, at) for bucket in some if self._in_force.bring_in_force(bucket)]
            yield found

    def _begin_look(self, now: int) -> int:
        """The caller has the lock, and looks at buckets on behalf of a request of `now`: as of when.

        The request may have waited for seconds. Buckets that are told a time so long past take it for a clock that was set back, and would
        be filled for these seconds once more. So what the judge has seen since counts.
        """
        self._decisions.give_back()
        at = max(now, self._decisions.judged_at)
        self._in_force.adopt(at)
        return at

    def state_of(self, identity: Identity, now: int) -> LimitState | None:
        """The limit in use of that identity; None where no message has used it yet: ask `rules.effective` then."""
        with self._lock:
            at = self._begin_look(now)
            bucket = self._in_force.ledger.get(identity)
            if bucket is not None and self._in_force.bring_in_force(bucket):
                return LimitState(bucket, at)
            return None

    def checks(self) -> dict[str, int]:
        """Messages judged by at least one rule since the start, by their first verdict.

        `ok`: passed; `limited_shadow`: passed, a rule in shadow mode would have refused it; `limited_enforced`: refused, whatever became
        of it then. A message that is held and judged again is not counted again, one that no rule is for never is.
        """
        with self._lock:
            checks = self._decisions.verdicts.checks
            return {"ok": checks.ok, "limited_shadow": checks.shadowed, "limited_enforced": checks.limited}

    def add_candidate_counts(
        self, ref: LeasedBucketRef, admitted: int, refused: int, clients: dict[str, int], since: int, now: int
    ) -> None:
        """A member has counted this at its part of a candidate."""
        with self._lock:
            self._in_force.adopt(now)
            bucket = self._in_force.leased_bucket(ref, now)
            if bucket is None or bucket.candidate is None:
                return
            of_rule = None if bucket.effective.own_candidate else self._in_force.candidates.get(bucket.rule.name)
            if of_rule is not None and since < of_rule.begun:
                return  # of the candidate before
            bucket.candidate.counts.merge(admitted, refused, clients, since)
            if of_rule is not None:
                of_rule.merge(admitted, refused, clients, since)

    def candidates(self, now: int) -> dict[str, CandidateCounts]:
        """What each rule's candidate would have admitted and refused, over all its buckets, by the rule's name."""
        with self._lock:
            self._begin_look(now)
            return self._in_force.candidates.copies()

    def count_judged(self) -> int:
        """The sum of `checks`, without its lock: no caller waits for a slow verdict to learn it."""
        checks = self._decisions.verdicts.checks
        return checks.ok + checks.shadowed + checks.limited

    def observe_broker_load(self, listener: str, reason: str, now: int) -> list[tuple[str, CapState]]:
        """What the broker behind `listener` says of its load (""; nothing): its caps that adapt are tightened, or recover; what is news."""
        with self._lock:
            self._in_force.adopt(now)
            return observe_broker_load(self._in_force.caps(listener), reason, now)

    def caps(self, listener: str, now: int) -> list[CapState]:
        """The caps of a listener that are in use."""
        with self._lock:
            self._in_force.adopt(now)
            return states_of(self._in_force.caps(listener))

    def usage(self) -> dict[str, int]:
        """How full the judge is: `keys`, `origins`, `levels` (buckets at hand), `max_keys`; since the start `forgotten`, `shelved`,
        `overflowed`."""
        ledger = self._in_force.ledger
        return {
            "keys": self.origins.key_count(),
            "origins": len(self.origins),
            "levels": len(ledger),
            "max_keys": self._max_keys,
            "forgotten": ledger.evicted,
            "shelved": ledger.packed,
            "overflowed": ledger.overflowed,
        }

    @property
    def secret(self) -> bytes:
        """What tells whose the rows of `fills` are; `restore` needs it."""
        return self._in_force.ledger.secret

    def fills(self, now: int) -> Iterator[array[int]]:
        """How full each bucket is that is not full, in rows of four integers (`PackedBuckets.rows`), many at a time: for `restore`."""
        with self._lock:
            buckets = self._in_force.ledger.list_buckets()
        for begin in range(0, len(buckets), SLICE):
            with self._lock:
                rows = self._in_force.ledger.fills_of(buckets[begin : begin + SLICE], now)
            yield rows
            sleep(0)
        for page in range(self._in_force.ledger.packed_pages()):
            with self._lock:
                rows = self._in_force.ledger.packed_rows(page, now)
            if rows:  # most pages are empty, and each turn given costs a switch between threads
                yield rows
                sleep(0)

    def restore(self, secret: bytes, rows: array[int], now: int, away_ns: int = 0) -> None:
        """Begin with these fills, `away_ns` old: a restart gives no free burst. Before the first `decide`."""
        with self._lock:
            self._in_force.ledger.restore(secret, rows, now, away_ns)

    def __repr__(self) -> str:
        return f"<Judge revision={self.rules.revision} keys={self.origins.key_count()} {self._in_force.ledger}>"
