"""One request at the buckets of its key: look at all, then take from all.

A bucket in shadow mode is judged like any other, from what the enforced buckets let pass, and only counted. A request that reserves
(`limiter.reservation`) and one that counts in flight (`limiter.in_flight`) are told apart by the judge. What many requests have
in common is judged together by `limiter.decisions.runs`, with the same result.

The caller has the judge's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from limiter.buckets.bucket import EVICTED, Bucket
from limiter.decisions.reserve_and_settle import overdraw, refund, reserve, settle
from limiter.fair_share.shared_bucket import SharedBucket
from limiter.in_flight import Ending, Flight, Hold, give_back
from limiter.limits import NEVER
from limiter.operations import CONSUME, PRODUCE
from limiter.reservation import Overdraft, Refund, Reservation
from limiter.rules.rule import FIT

if TYPE_CHECKING:
    from limiter.decisions.in_force import InForce
    from limiter.keys import Key
    from limiter.request import Request


def has_copies(request: Request) -> bool:
    """Whether it names copies; what else is counted with it is of another operation."""
    key, copies = request.key, request.copies
    return copies is not None and key is not None and copies[0].operation == key.operation


def is_published(request: Request) -> bool:
    return request.key is not None and request.key.operation == PRODUCE


class Checks:
    """Messages judged by at least one rule since the start, by their first verdict.

    `ok`: passed; `shadowed`: passed, a rule in shadow mode would have refused it; `limited`: refused, whatever became of it then. A message
    that is held and judged again is not counted again, one that no rule is for never is.
    """

    __slots__ = ("limited", "ok", "shadowed")

    def __init__(self) -> None:
        self.ok = 0
        self.shadowed = 0
        self.limited = 0

    def __repr__(self) -> str:
        return f"<Checks ok={self.ok} shadowed={self.shadowed} limited={self.limited}>"


class Verdicts:
    """Judges one request at a time, and counts."""

    __slots__ = ("_in_force", "checks", "in_flight")

    def __init__(self, in_force: InForce) -> None:
        self._in_force = in_force
        self.checks = Checks()
        self.in_flight: dict[str, int] = {}  # slots taken, by rule

    def judge(self, request: Request, buckets: list[Bucket], now: int, costs: dict[Bucket, tuple[int, int]] | None = None) -> None:
        """Let as many of `request.count` pass as all buckets let pass.

        `costs`: the messages and bytes that each bucket counts for one, where that is not what it has.
        """
        count: int = request.count  # buckets calculate without bounds
        messages: int = request.messages
        size: int = request.size
        passed = count
        shadows = False
        for bucket in buckets:
            if bucket.shadow:
                shadows = True
            elif passed > 0:
                if costs is not None:
                    messages, size = costs[bucket]
                found = bucket.available(passed, messages, size, now)
                if found == 0 and request.turn_at != 0 and has_its_turn(request, bucket, messages, size, now):
                    found = bucket.available_in_turn(messages, size, now)
                passed = found
        request.passed = passed
        if passed > 0:
            for bucket in buckets:
                if not bucket.shadow:
                    if costs is not None:
                        messages, size = costs[bucket]
                    bucket.take(passed, messages, size)
                    if request.turn_at != 0 and gives_turns(bucket, messages, request.key) and bucket.algorithm.peek_ns(0, 0, now) > 0:
                        bucket.note_debt(messages, size)
        if passed < count:
            refuse(request, buckets, now, costs)
        if shadows and passed > 0:
            judge_shadows(request, buckets, now, costs)
        if not request.again:
            messages = request.messages
            checks = self.checks
            shadowed: int = request.shadow_refused
            checks.ok += (passed - shadowed) * messages
            if shadowed > 0:
                checks.shadowed += shadowed * messages
            if passed < count:
                checks.limited += (count - passed) * messages
            if self._in_force.tries:
                self._try_candidates(request, buckets, count, messages, now, costs)

    def refuse_unfit(self, request: Request, buckets: list[Bucket], now: int) -> bool:
        """Refuse all of `request` for what it is; False where no rule says so, or only such in shadow mode."""
        messages: int = request.count * request.messages
        names_copies = has_copies(request)
        for bucket in buckets:
            reason = bucket.rule.reason_against(request.size, names_copies)
            if bucket.shadow or reason == FIT:
                continue
            if not request.again:
                bucket.count_unfit(messages, now)
            if request.unfit == FIT:
                request.unfit = reason
                request.rule = bucket.rule
                request.bucket = bucket
        if request.unfit == FIT:
            return False
        request.passed = 0
        request.wait_ns = NEVER
        if not request.again:
            self.checks.limited += messages
        return True

    def judge_counted(self, request: Request, buckets: list[Bucket], now: int, costs: dict[Bucket, tuple[int, int]] | None = None) -> None:
        """The same where a bucket counts what is in flight: a request that has taken slots gets a flight to give them back by
        (`limiter.in_flight`)."""
        holds: list[Hold] = []
        counted: list[tuple[Bucket, int, int]] = []
        if request.prepaid:
            buckets = [bucket for bucket in buckets if bucket.algorithm.slots() is not None]
            counted = [(bucket, bucket.admitted, bucket.admitted_bytes) for bucket in buckets]
        for bucket in buckets:
            slots = bucket.algorithm.slots()
            if slots is not None:
                slots.passing = request.unanswered
                slots.prepaid = request.prepaid
                holds.append(Hold(bucket, slots, slots.taken))
        try:
            self.judge(request, buckets, now, costs)
        except BaseException:  # the executor lets the request pass, without a flight: nothing stays taken for it
            for hold in holds:
                hold.slots.taken = hold.left
            raise
        finally:
            for hold in holds:
                hold.slots.passing = hold.slots.prepaid = False
        for bucket, admitted, admitted_bytes in counted:  # the first time
            bucket.admitted = admitted
            bucket.admitted_bytes = admitted_bytes
        for hold in holds:
            hold.left = hold.slots.taken - hold.left
        holds = [hold for hold in holds if hold.left > 0]
        if holds:
            request.flight = Flight(holds, request.passed)
            for hold in holds:
                self.in_flight[hold.rule] = self.in_flight.get(hold.rule, 0) + hold.left

    def give_back(self, ending: Ending, now: int) -> None:
        """Requests in flight have ended: their slots are free."""
        give_back(ending, now, self.in_flight)

    def reserve(
        self,
        request: Request,
        reservation: Reservation,
        buckets: list[Bucket],
        now: int,
        costs: dict[Bucket, tuple[int, int]] | None = None,
    ) -> None:
        """One that was taken is to be settled. Where no rule is for it any more it is settled all the same."""
        if isinstance(reservation, Refund):
            refund(request, buckets, now, costs)
            return
        if isinstance(reservation, Overdraft):
            self._overdraw(request, reservation, buckets, now, costs)
            return
        if not reservation.taken:
            reserve(request, reservation, buckets, now)
            return
        for at, bucket in enumerate(reservation.buckets):
            if bucket.state == EVICTED:  # while the answer was waited for
                reservation.buckets[at] = self._in_force.ledger.find_current(bucket, now)
        settle(request, reservation, now)
        messages: int = request.count * request.messages
        if reservation.held_by is not None:
            self.checks.limited += messages
        elif reservation.shadows:
            self.checks.shadowed += messages
        elif reservation.buckets:
            self.checks.ok += messages
        if self._in_force.tries and messages > 0:
            self._try_candidates(request, buckets, 1, messages, now, costs)

    def _overdraw(
        self, request: Request, overdraft: Overdraft, buckets: list[Bucket], now: int, costs: dict[Bucket, tuple[int, int]] | None
    ) -> None:
        overdraw(request, overdraft, buckets, now, costs)
        if request.passed > 0:
            judge_shadows(request, buckets, now, costs)
        if request.again or not buckets:
            return
        count: int = request.count
        messages: int = request.messages
        shadowed: int = request.shadow_refused
        if request.passed == 0:
            for bucket in buckets:
                if bucket is request.bucket:
                    bucket.refuse(count, messages, request.size, now)
            self.checks.limited += count * messages
        self.checks.ok += (request.passed - shadowed) * messages
        self.checks.shadowed += shadowed * messages
        if self._in_force.tries:
            self._try_candidates(request, buckets, count, messages, now, costs)

    def _try_candidates(
        self,
        request: Request,
        buckets: list[Bucket],
        count: int,
        messages: int,
        now: int,
        costs: dict[Bucket, tuple[int, int]] | None = None,
    ) -> None:
        """Let the candidates of `buckets` judge what has arrived, whatever became of it: see `limiter.buckets.candidate`."""
        key = request.key
        assert key is not None
        client = key.origin.client
        size: int = request.size
        for bucket in buckets:
            candidate = bucket.candidate
            if candidate is not None:
                if costs is not None:
                    messages, size = costs[bucket]
                passed = candidate.judge(count, messages, size, client, now)
                of_rule = None if bucket.effective.own_candidate else self._in_force.candidates.get(bucket.rule.name)
                if of_rule is not None:
                    of_rule.add(passed * messages, (count - passed) * messages, client, now)

    def __repr__(self) -> str:
        return f"<Verdicts {self.checks}>"


def has_its_turn(request: Request, bucket: Bucket, messages: int, size: int, now: int) -> bool:
    """Whether one of `request` may owe its cost, since it has waited as long as all of it takes to come in.

    Others that cost less take each token as it comes, and would let a dearer one, a batch or a larger message, wait without end. What it
    owes they pay for: nothing passes before that has come in, so over time the rate holds, as after a request that costs more than the
    burst. Then none owes again before they have got as much, however many dear ones wait. That is counted, not timed: a member of several
    has a part of the rate, and `lag` a lower one. What costs one message is never the dearer one; at a cap its topic's share saves for it.
    """
    return 0 < request.turn_at <= now and bucket.may_owe(messages, size) and gives_turns(bucket, messages, request.key)


def gives_turns(bucket: Bucket, messages: int, key: Key | None) -> bool:
    """Whether a request of so many messages may be the dearer one at `bucket`. Consumers take turns by themselves (`first_waiting`)."""
    rule = bucket.rule
    if messages <= 1 and rule.limit.bytes is None:
        return False
    if rule.cost is not None:
        return key is not None and key.operation != CONSUME
    return key is not None and key.operation == PRODUCE and not isinstance(bucket.algorithm, SharedBucket)


def refuse(request: Request, buckets: list[Bucket], now: int, costs: dict[Bucket, tuple[int, int]] | None = None) -> None:
    """Say why and for how long. Every bucket that would not let one more pass has refused, not only the first."""
    refused = 0 if request.again else request.count - request.passed
    longest = 0
    messages: int = request.messages  # buckets calculate without bounds
    size: int = request.size
    for bucket in buckets:
        if bucket.shadow:
            continue
        if costs is not None:
            messages, size = costs[bucket]
        wait = bucket.wait_ns(messages, size, now)
        if wait > 0:
            if 0 < request.turn_at <= now and isinstance(bucket.algorithm, SharedBucket):
                bucket.algorithm.save(messages, size, now)
            if bucket.refuse(refused, messages, size, now):
                wait = bucket.wait_ns(messages, size, now)
            if wait > longest:
                longest = wait
                request.rule = bucket.rule
                request.bucket = bucket
    request.wait_ns = min(longest, NEVER)
    turn_at: i64 = now + request.wait_ns
    if request.turn_at == 0 or request.passed > 0 or turn_at < request.turn_at:  # sooner: by another limit
        request.turn_at = turn_at


def judge_shadows(request: Request, buckets: list[Bucket], now: int, costs: dict[Bucket, tuple[int, int]] | None = None) -> None:
    """Of what has passed, what buckets in shadow mode would have refused."""
    messages: int = request.messages
    size: int = request.size
    for bucket in buckets:
        if bucket.shadow:
            if is_published(request) and bucket.rule.reason_against(request.size, has_copies(request)) != FIT:
                bucket.count_unfit(request.passed * request.messages, now)
                request.shadow_refused = request.passed
                continue
            if costs is not None:
                messages, size = costs[bucket]
            would = bucket.available(request.passed, messages, size, now)
            if would > 0:
                bucket.take(would, messages, size)
            if would < request.passed:
                bucket.refuse(request.passed - would, messages, size, now)
                request.shadow_refused = max(request.shadow_refused, request.passed - would)
