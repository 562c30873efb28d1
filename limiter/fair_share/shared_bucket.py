"""The shared bucket: one cap, many topics.

The naive cap is one bucket that all topics draw from, first come first served. At the cap every token has a hundred takers the instant it
comes, and the topic that asks most often gets it: a flood of 20 times the cap leaves a topic that asks for a tenth of it one message in
twenty. Peers answer with a queue per topic and a round over the queues. But a limiter that refuses has no queues, and a scan over all
topics for each message, or for each token, is an opening for a flood of made-up topics.

So the cap's bucket is wrapped, and time is cut into windows of 100 ms:

* **A window gives** what the bucket holds when the window begins, not what comes in while it lasts. So a topic's share is there for it
  however late in the window it asks: an early, greedy topic cannot take it. Tokens that come in meanwhile are for topics that were not
  expected. For those that ask before any token has come in, an eighth of a window, or the largest recent request, is left.
* **Protected topics** are served first. As much as they are expected to ask for stays in the bucket for them (`reserve`): what they took
  in the last windows, or as much again as they have taken in this one. If that is more than the cap they share it by weight.
* **All others** share the rest by weighted max-min (`limiter.fair_share.max_min`): O(1) per message, 64 steps per window. What a topic does
  not use stays in the bucket, and so is lent to all in the next window. When the topic asks again it gets its share in the next window, or
  in this one out of what has come in.
* **While no topic is refused**, nor was for a second, none of this happens: the bucket alone decides, burst and all.

Costs are counted in nanoseconds of the cap: messages or bytes, whichever takes more of it. The bucket is asked last and by its own exact
rules, so no more than burst + rate * T passes whatever the shares say.

The wait is true. It lasts to the end of the window (for a share in debt for an oversized batch: of the next window), or until the bucket
holds the cost, if that is later.

Holds at most MAX_SHARES topics; beyond them new ones have one share together. Each new one makes room for itself: it looks at the two
oldest and forgets those idle for IDLE_NS.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from limiter.algorithms.base import JITTER_NS, Algorithm
from limiter.algorithms.token_bucket import UNBOUNDED, TokenBucket
from limiter.fair_share.adaptive_cap import AdaptiveCap
from limiter.fair_share.max_min import ONE, Share, Tier

if TYPE_CHECKING:
    from limiter.leases.leased_bucket import LeasedBucket
    from limiter.limits import Limit
    from limiter.rules.rule import Rule

WINDOW_NS: Final = 100_000_000  # ns; how long shares are kept apart; docs/design/limiter.md 8
MIN_WINDOW_NS: Final = 1_000_000  # ns; a window is at most half of the burst, and no shorter than this
SLACK_DIVISOR: Final = 8  # the part of a window that stays in the bucket: one in so many; a guess (12 ms of the cap)
MAX_SHARES: Final = 131_072  # topics with a share of their own; more than send within a second, some 40 MB; a guess
IDLE_NS: Final = 1_000_000_000  # ns; ten windows: neither credit nor debt is worth keeping, nor shares apart
MAX_PER_NS: Final = 1 << 31  # ns; times the bytes of a message (32 bits) it is a native integer
MAX_DECAYS: Final = 64  # times a value is multiplied by 7/8; 64 leave 0.02 %


class TopicShare(Share):
    """One topic's share, and the cap that it is a share of."""

    __slots__ = ("cap",)

    def __init__(self, cap: SharedBucket, tier: Tier, text: str, weight: int, *, protected: bool) -> None:
        super().__init__(tier, text, weight, protected=protected)
        self.cap = cap


class Price:
    """What a request of one message is charged as (`SharedBucket.cost_ns`), in native integers, for many of them."""

    __slots__ = ("_amount", "_bucket", "_least", "_per_ns")

    def __init__(self, bucket: TokenBucket) -> None:
        self._bucket = bucket
        self._least = bucket.cost_ns(1, 0)
        rate = bucket.limit.bytes
        charged = rate is not None and rate.amount > 0
        self._per_ns: i64 = rate.per_ns if charged and rate is not None and rate.per_ns <= MAX_PER_NS else 0
        self._amount: i64 = 1  # bytes in `_per_ns`; 0: what is between would be no native integer
        if charged and rate is not None:
            self._amount = rate.amount if self._per_ns > 0 and rate.amount <= UNBOUNDED else 0

    def of(self, size: i64) -> int:
        """Nanoseconds for `size` bytes, below 4 GiB."""
        if self._amount == 0:
            return self._bucket.cost_ns(1, size)
        cost: int = size * self._per_ns // self._amount
        return max(cost, self._least)


class SharedBucket(Algorithm):
    """A cap's bucket, shared among topics. The judge says whose turn it is (`turn`); without one it is the bucket itself."""

    __slots__ = (
        "_capacity_ns", "_ends", "_expected", "_largest", "_largest_protected", "_missed", "_protected", "_rest", "_shares", "_taken",
        "_window_ns", "adaptive_cap", "bucket", "leased", "limit", "others", "turn",
    )  # fmt: skip

    def __init__(self, limit: Limit, now: int, leased: LeasedBucket | None = None) -> None:
        """`leased`: what one of several workers has of the cap's bucket; its topics share that."""
        self.limit = limit
        self.adaptive_cap = AdaptiveCap(limit)
        self.leased = leased
        self.bucket: Algorithm = TokenBucket(limit, now) if leased is None else leased
        self.turn: TopicShare | None = None
        self.others: TopicShare | None = None  # for topics that found no room
        self._shares: OrderedDict[str, TopicShare] = OrderedDict()  # oldest first
        self._protected = Tier()
        self._rest = Tier()
        self._expected = 0  # what protected topics are expected to take in this window
        self._taken = 0  # what they took in it
        self._missed = False  # something of theirs was refused in it
        self._largest = 0  # what the most expensive request has cost, of late
        self._largest_protected = 0  # the same of protected topics
        self._capacity_ns = 0
        self._window_ns = 0
        self._measure()
        self._ends = now + self._window_ns  # of this window

    def _measure(self) -> None:
        self._capacity_ns = self.bucket.capacity_ns()
        self._window_ns = min(WINDOW_NS, max(MIN_WINDOW_NS, self._capacity_ns // 2))

    # ---- whose turn ------------------------------------------------------------------------------------------------

    def share(self, text: str, rule: Rule | None, now: int) -> TopicShare:
        """The share of a topic under the rule of its own level; None: it has none."""
        weight = ONE if rule is None else rule.weight_in_thousandths()
        protected = rule is not None and rule.protected
        share = self._shares.get(text)
        if share is None:
            self._make_room(now)
            if len(self._shares) >= MAX_SHARES:
                return self.share_of_others()
            share = self._shares[text] = TopicShare(self, self._tier(protected=protected), text, weight, protected=protected)
            share.seen = now
        share.wanted = weight
        if share.protected != protected:  # what it did in this window stays where it was counted
            share.protected = protected
            share.tier = self._tier(protected=protected)
            share.window = -1
            share.era = -1
        return share

    def _tier(self, *, protected: bool) -> Tier:
        return self._protected if protected else self._rest

    def share_of_others(self) -> TopicShare:
        """The one share of all topics that found no room."""
        others = self.others
        if others is None:
            others = self.others = TopicShare(self, self._rest, "", ONE, protected=False)
        return others

    def _make_room(self, now: int) -> None:
        for _ in range(min(2, len(self._shares))):
            text, share = self._shares.popitem(last=False)
            if not -JITTER_NS <= now - share.seen <= IDLE_NS:
                share.gone = True
            else:
                self._shares[text] = share

    def topics(self) -> int:
        """How many topics it knows."""
        return len(self._shares)

    def steps(self) -> int:
        """How many steps were taken to find all levels so far: work that does not depend on the number of topics."""
        return self._protected.steps + self._rest.steps

    # ---- windows ---------------------------------------------------------------------------------------------------

    def _turn_window(self, now: int) -> None:
        """Begin another window if this one is over, or time was set back."""
        late = now - self._ends
        if late < 0 and late >= -self._window_ns - JITTER_NS:
            return
        windows = 1 + late // self._window_ns if late >= 0 else MAX_DECAYS
        self._expected = self._next_expected()
        for _ in range(min(windows - 1, MAX_DECAYS)):
            self._expected = self._expected * 7 // 8
        self._taken = 0
        self._missed = False
        quiet = windows > 1
        idle = late > IDLE_NS + self._largest or late < 0  # whoever was told to wait for the largest has asked again
        self._largest -= self._largest // 8
        self._largest_protected -= self._largest_protected // 64
        held = self.bucket.held_ns(now)
        kept = self._reserve()
        slack = min(max(self._largest, self._window_ns // SLACK_DIVISOR), self._capacity_ns // 4)
        self._protected.begin(held, some=held > 0, quiet=quiet, idle=idle)
        self._rest.begin(held - kept - slack, some=held > kept, quiet=quiet, idle=idle)
        self._ends = self._ends + windows * self._window_ns if late >= 0 else now + self._window_ns

    def _next_expected(self) -> int:
        """What protected topics are expected to take in the window after this one, if they take nothing more in this one."""
        taken = 2 * self._taken if self._missed else self._taken
        return min(max(taken, self._expected * 7 // 8), self._capacity_ns // 2)

    def _reserve(self) -> int:
        """What must stay in the bucket for protected topics."""
        kept = max(self._expected - self._taken, self._taken)  # of three at once mypyc makes a call of Python's
        return min(max(kept, self._largest_protected), self._capacity_ns // 2)

    def _next_reserve(self) -> int:
        """The most that will have to stay in it in later windows, if no topic asks meanwhile."""
        return max(self._next_expected(), min(self._largest_protected, self._capacity_ns // 2))

    # ---- Algorithm -------------------------------------------------------------------------------------------------

    def available(self, count: int, messages: int, size: int, now: int) -> int:
        share = self.turn
        if share is None:
            return self.bucket.available(count, messages, size, now)
        self._turn_window(now)
        tier = share.tier
        cost = self.bucket.cost_ns(messages, size)
        self._largest = max(self._largest, cost)
        if share.protected:
            self._largest_protected = max(self._largest_protected, cost)
        found = tier.count_allowed(share, count, cost, now)
        if found > 0:
            if share.protected:
                found = self.bucket.available(found, messages, size, now)
            else:
                found = self.bucket.available_above(found, messages, size, self._reserve(), now)
        if found < count:
            tier.refuse(share)
            if share.protected:
                self._missed = True
        return found

    def take(self, count: int, messages: int, size: int) -> None:
        share = self.turn
        if share is not None:
            each = self.bucket.cost_ns(messages, size)
            cost = count * each
            share.tier.take(share, cost)
            if share.protected:
                self._taken += cost
            if 0 < share.saving <= each:
                share.end_saving(each)
        self.bucket.take(count, messages, size)

    def save(self, messages: int, size: int, now: int) -> None:
        """One that has waited as long as it was told is refused: its topic saves for it."""
        if self.turn is not None:
            self.turn.save(self.bucket.cost_ns(messages, size), now)

    # ---- for requests that are judged together (`limiter.decisions.runs`) ------------------------------------------------------

    def room(self, share: TopicShare, messages: int, size: int, now: int) -> tuple[int, int]:
        """The messages and bytes that `share` may take now in any parts, the first request being of this cost; below 0: ask for each.

        While its tier is not free what passes depends on each cost; of a cap that workers share none goes in a run.
        """
        bucket = self.bucket
        if not isinstance(bucket, TokenBucket):
            return -1, -1
        self._turn_window(now)
        share.tier.count_allowed(share, 1, self.cost_ns(messages, size), now)
        if not share.tier.free:
            return -1, -1
        return bucket.room(0 if share.protected else self._reserve(), now)

    def cost_ns(self, messages: int, size: int) -> int:
        """What one such request is charged as."""
        return self.bucket.cost_ns(messages, size)

    def price(self) -> Price:
        """As `cost_ns`, for many requests of one message that `room` has found room for."""
        assert isinstance(self.bucket, TokenBucket)
        return Price(self.bucket)

    def take_run(self, share: TopicShare, cost_ns: int, largest_ns: int, messages: int, size: int) -> None:
        """Spend what `room` has promised: so much together, charged as `cost_ns` and the dearest of it as `largest_ns`."""
        self._largest = max(self._largest, largest_ns)
        share.tier.take(share, cost_ns)
        if share.protected:
            self._largest_protected = max(self._largest_protected, largest_ns)
            self._taken += cost_ns
        self.bucket.take(1, messages, size)

    # ---- Algorithm, the rest -----------------------------------------------------------------------------------------

    def wait_ns(self, messages: int, size: int, now: int) -> int:
        share = self.turn
        if share is None:
            return self.bucket.wait_ns(messages, size, now)
        self._turn_window(now)
        windows = share.tier.windows_to_wait(share, self.bucket.cost_ns(messages, size), now)
        wait = 0 if windows == 0 else self._ends - now + (windows - 1) * self._window_ns
        kept = 0 if share.protected else self._reserve()
        wait = max(wait, self.bucket.wait_above(messages, size, kept, now))
        if now + wait < self._ends or share.protected:
            return wait
        beyond = self.bucket.wait_above(messages, size, self._next_reserve(), now)  # by then another reserve is kept
        return max(self._ends - now + max(0, windows - 1) * self._window_ns, beyond)

    def full_in_ns(self, messages: int, size: int, now: int) -> int:
        return self.bucket.full_in_ns(messages, size, now)

    def settle(self, messages: int, size: int, debt_ns: int, now: int) -> None:
        self.bucket.settle(messages, size, debt_ns, now)

    def is_full(self, now: int) -> bool:
        return self.bucket.is_full(now) and self.adaptive_cap.permille == 1000

    def fill(self, now: int) -> float:
        return self.bucket.fill(now)

    def set_fill(self, fill: float, now: int) -> None:
        self.bucket.set_fill(fill, now)

    def fills(self, now: int) -> int:
        return self.bucket.fills(now)

    def set_fills(self, fills: int, now: int) -> None:
        self.bucket.set_fills(fills, now)

    def change(self, limit: Limit, now: int) -> None:
        """Another cap; what it is tightened to stays in proportion."""
        self.limit = limit
        self.adaptive_cap.change(limit)
        if self.leased is not None:
            self.leased.change(limit, now)
        self._adjust(now)

    # ---- the broker's own word -------------------------------------------------------------------------------------

    def on_overload(self, reason: str, now: int) -> bool:
        """The broker says that it has too much to do; True where that begins a time of tightening."""
        before = self.adaptive_cap.permille
        self.adaptive_cap.on_overload(reason, now)
        if self.adaptive_cap.permille != before:
            self._adjust(now)
        return before == 1000 and self.adaptive_cap.permille < 1000

    def recover(self, now: int) -> bool:
        """Let the cap recover by what is due; True where it has just recovered in full."""
        before = self.adaptive_cap.permille
        if before == 1000:
            return False
        self.adaptive_cap.recover(now)
        if self.adaptive_cap.permille != before:
            self._adjust(now)
        return self.adaptive_cap.permille == 1000

    def _adjust(self, now: int) -> None:
        if self.leased is None:
            self.bucket.change(self.adaptive_cap.scale_limit(), now)
        else:  # the owner knows nothing of it: what is granted beyond that is not spent
            self.leased.permille = self.adaptive_cap.permille
        self._measure()

    def __repr__(self) -> str:
        return f"<SharedBucket topics={len(self._shares)} {self._protected} {self._rest} {self.adaptive_cap} {self.bucket}>"
