"""Batches of requests, judged one batch after the other.

A batch has one `now` for all of it. The rules in force are looked up once, and slots of requests that have ended are given back first. Then
each request goes the shortest way there is for it: in a run with those before and after it (`limiter.decisions.runs`), alone
(`limiter.decisions.single`), or past, where no rule is for it.

Threads: `decide` runs on the limiter's threads, `free_slots` on the loop's. Any look at a bucket needs `lock`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from librt.threading import Lock
from mypy_extensions import i64

from limiter.algorithms.base import JITTER_NS
from limiter.buckets.bucket import IN_USE
from limiter.buckets.ledger import TOUCH_NS
from limiter.decisions.caps import is_cap, share_of_cap
from limiter.decisions.columns import judge_columns
from limiter.decisions.in_force import InForce
from limiter.decisions.runs import pass_run, refuse_run
from limiter.decisions.single import Verdicts
from limiter.in_flight import Ending
from limiter.limits import SECOND
from limiter.request import UnjudgedError
from limiter.rules.rule import FIT
from limiter.rules.rule_words import IGNORE

if TYPE_CHECKING:
    from limiter.buckets.bucket import Bucket
    from limiter.keys import Key
    from limiter.request import Request


LATE_NS: Final = 60 * SECOND  # ns; a batch may be so much older than the one before it; beyond, time was set back; a guess


class Decisions:
    """Judges batches by what is in force."""

    __slots__ = ("_finished", "_in_force", "_owed", "judged_at", "lock", "verdicts")

    def __init__(self, in_force: InForce) -> None:
        self._in_force = in_force
        self._finished: deque[tuple[list[Ending], int]] = deque()  # from `free_slots`; the next holder of the lock gives them back
        self._owed: deque[Request] = deque()  # from `owe`; the next `decide` charges them
        self.verdicts = Verdicts(in_force)
        self.judged_at = 0  # monotonic ns; `now` of the latest `decide`, or of what was lent last
        self.lock = Lock()  # mypyc's own: `threading.Lock` costs 600 instructions each time though no thread waits for it

    def decide(self, requests: list[Request], now: int) -> None:
        """Write the verdict into each request, in order. `now` is monotonic nanoseconds. Thread safe. Raises UnjudgedError."""
        self.lock.acquire()
        try:
            if self._finished:
                self.give_back()
            in_force = self._in_force
            judged_at = self.judged_at
            if JITTER_NS < judged_at - now < LATE_NS:  # it waited in a queue while others were judged: buckets would take it for a new time
                now = judged_at
            self.judged_at = now
            if in_force.latest is not in_force.rules:
                in_force.adopt(now)
            if self._owed:
                self._charge(now)
            self._decide_each(requests, now)
        except UnjudgedError:
            raise
        except BaseException as error:
            raise UnjudgedError(0) from error
        finally:
            self.lock.release()

    def _decide_each(self, requests: list[Request], now: int) -> None:
        in_force = self._in_force
        checks = self.verdicts.checks
        generation = in_force.generation
        at: i64 = 0
        end: i64 = len(requests)
        try:
            while at < end:
                request = requests[at]
                if request.columns is not None:
                    if not judge_columns(request, request.columns, in_force, checks, now):
                        self._decide_pieces(request, now)
                    at += 1
                    continue
                key = request.key
                if key is not None:
                    if key.generation != generation:
                        in_force.match(key, now)
                    for bucket in key.buckets:
                        if bucket.state != IN_USE or now - bucket.touched > TOUCH_NS:
                            in_force.refresh(key, now)
                            break
                    if key.in_runs and request.copies is None and at + 1 < end and requests[at + 1].key is key:
                        after = pass_run(requests, at, key, checks, now)
                        if after > at:
                            at = after
                            continue
                self._decide_one(request, key, now)
                at += 1
                if key is None or request.passed >= request.count or request.unfit != FIT or request.copies is not None:
                    continue
                if key.in_runs and key.share is None and request.reservation is None:
                    at = refuse_run(requests, at, request, checks, now)
        except BaseException as error:
            self._end_turn(requests[at:])
            raise UnjudgedError(at) from error

    def _decide_pieces(self, request: Request, now: int) -> None:
        """`request` cannot be judged as a whole: each of its pieces for itself."""
        pieces = request.cut()
        try:
            self._decide_each(pieces, now)
        except UnjudgedError as error:
            if request.columns is not None:
                request.columns.judged = error.at
            raise (error.__cause__ or error) from None

    def _decide_one(self, request: Request, key: Key | None, now: int) -> None:
        request.wait_ns = 0
        request.rule = None
        request.shadow_refused = 0
        request.bypassed = False
        request.unfit = FIT
        if key is None:
            request.passed = request.count
            return
        buckets = key.buckets
        counted = key.counted
        costs: dict[Bucket, tuple[int, int]] | None = None
        copies = request.copies
        if copies is not None:
            costs = self._add_copies(request, copies, find_costs(request, key), now)
            buckets = sorted(costs, key=is_cap)  # a cap looks at what the others let pass
            counted = any(bucket.algorithm.slots() is not None for bucket in buckets)
        elif key.priced:
            costs = find_costs(request, key)
        reservation = request.reservation
        if reservation is not None:
            self.verdicts.reserve(request, reservation, buckets, now, costs)
        elif buckets and (copies is not None or request.size > key.max_size) and self.verdicts.refuse_unfit(request, buckets, now):
            return
        elif buckets:
            share = key.share
            if share is not None:
                if share.gone:
                    share = key.share = share_of_cap(buckets, key.text, now)
                    assert share is not None
                share.cap.turn = share
            if counted or request.prepaid:
                self.verdicts.judge_counted(request, buckets, now, costs)
            else:
                self.verdicts.judge(request, buckets, now, costs)
            if share is not None:
                share.cap.turn = None
        else:
            request.passed = request.count

    def _add_copies(
        self, request: Request, copies: list[Key], costs: dict[Bucket, tuple[int, int]], now: int
    ) -> dict[Bucket, tuple[int, int]]:
        """`costs` with those of the copies: one for each topic that draws from a bucket, or what its rule says; and of giving it back."""
        in_force = self._in_force
        each_messages: int = request.messages
        each_size: int = request.size
        key = request.key
        assert key is not None
        for each in copies:
            if each.generation != in_force.generation:
                in_force.match(each, now)
            in_force.refresh(each, now)
            for bucket in each.buckets:
                rule = bucket.rule
                if key.operation != each.operation:  # one message that is also given back: the dearer of both where one limit is for both
                    messages, size = costs.get(bucket, (0, 0))
                    cost = each_messages if rule.cost is None else rule.cost.of(each.operation, each_messages, each_size)
                    costs[bucket] = (max(messages, cost), each_size)
                elif rule.copies != IGNORE:
                    messages, size = costs.get(bucket, (0, 0))
                    copy = 1 if rule.cost is None else rule.cost.copy
                    costs[bucket] = (messages + each_messages * copy, size + each_size)
        return costs

    def _end_turn(self, failed: list[Request]) -> None:
        """The judge has failed: no topic has the turn at a cap any more."""
        for request in failed[:1]:
            key = request.key
            if key is not None and key.share is not None:
                key.share.cap.turn = None

    # ---- what has passed already -------------------------------------------------------------------------------------

    def owe(self, request: Request) -> None:
        """`request`, of an overdraft that has begun, has passed; the next `decide` charges it. Never waits."""
        self._owed.append(request)

    def _charge(self, now: int) -> None:
        owed = self._owed
        while owed:
            request = owed.popleft()
            key = request.key
            if key is not None:
                self._in_force.match(key, now)
                self._decide_one(request, key, now)

    # ---- what has ended ----------------------------------------------------------------------------------------------

    def free_slots(self, endings: list[Ending], now: int) -> None:
        """Requests in flight have ended (`limiter.in_flight`): their slots are free from the next `decide` on. Never waits."""
        self._finished.append((endings, now))
        if self.lock.acquire(False):  # by name it would not be native
            try:
                self.give_back()
            finally:
                self.lock.release()

    def give_back(self) -> None:
        """Take note of what has ended. The caller has the lock."""
        finished = self._finished
        while finished:
            endings, now = finished.popleft()
            for ending in endings:
                self.verdicts.give_back(ending, now)

    def __repr__(self) -> str:
        return f"<Decisions {len(self._finished)} to be given back, {self.verdicts} under {self._in_force}>"


def find_costs(request: Request, key: Key) -> dict[Bucket, tuple[int, int]]:
    """What one of `request` costs each bucket of `key`: messages, as its rule counts them, and bytes."""
    messages: int = request.messages  # counted without bounds
    size: int = request.size
    return {bucket: (bucket.cost_of(key.operation, messages, size), size) for bucket in key.buckets}
