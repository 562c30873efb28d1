"""How a reservation is taken and settled, and an overdraft taken (`limiter.reservation`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.limits import NEVER
from limiter.operations import CONSUME

if TYPE_CHECKING:
    from limiter.buckets.bucket import Bucket, Waiter
    from limiter.request import Request
    from limiter.reservation import Overdraft, Reservation

DEBT_NS: Final = 10_000_000_000  # ns of the rate; the deepest debt of an answer; a guess, about as long as a consumer waits for one
GONE_NS: Final = 500_000_000  # ns; without asking for so long a waiter has gone; what is held asks every 100 ms
LATELY_NS: Final = 1_000_000_000  # ns; a broker has answered a request by then; a guess
BEHIND_NS: Final = 10_000_000  # ns; the earliest time to ask again, where only an older waiter is in the way


def reserve(request: Request, reservation: Reservation, buckets: list[Bucket], now: int) -> None:
    """Take from all buckets, or from none: then `wait_ns`, `rule` and `bucket` say for whom it waits longest."""
    longest = 0
    for bucket in buckets:
        if not bucket.shadow:
            wait = wait_for(bucket, reservation, now)
            if wait > longest:
                longest = wait
                request.bucket = bucket
                request.rule = bucket.rule
    request.wait_ns = min(longest, NEVER)
    if longest > 0:
        request.passed = 0
        stand_in_line(request, reservation, buckets, now)
        return
    request.passed = request.count
    reservation.asked_at = now
    reservation.taken = True
    for bucket in buckets:
        first = bucket.first_waiting
        if first is not None and (first is reservation or first.since == reservation.since):
            bucket.first_waiting = None
        cost = cost_of(bucket, reservation)
        if bucket.shadow and bucket.wait_ns(cost, reservation.size, now) > 0:
            bucket.refuse(0, cost, reservation.size, now)
            reservation.shadows.append(bucket)
            request.shadow_refused = request.count
        else:
            bucket.algorithm.take(1, cost, reservation.size)
            reservation.buckets.append(bucket)


def wait_for(bucket: Bucket, reservation: Reservation, now: int) -> int:
    """How long until `reservation` can be taken from `bucket`; 0: now."""
    wait = bucket.wait_ns(cost_of(bucket, reservation), reservation.size, now)
    first = bucket.first_waiting
    if first is None or first is reservation or wait >= BEHIND_NS:
        return wait
    if abs(now - first.asked_at) > GONE_NS:
        bucket.first_waiting = None
        return wait
    since = reservation.since
    if since != 0 and since <= first.since:
        return wait
    return max(BEHIND_NS, bucket.wait_ns(cost_of(bucket, first), first.size, now))  # before that one may pass, asking again is for nothing


def stand_in_line(request: Request, reservation: Reservation, buckets: list[Bucket], now: int) -> None:
    """Remember that `reservation` waits, at the buckets where it is the one that has waited longest."""
    if reservation.since == 0:
        reservation.since = now
    reservation.asked_at = now
    if reservation.held_by is None:
        reservation.held_by = request.bucket
    for bucket in buckets:
        if bucket.shadow:
            continue
        first = bucket.first_waiting
        cost = cost_of(bucket, reservation)
        if bucket.wait_ns(cost, reservation.size, now) > 0:
            bucket.refuse(0, cost, reservation.size, now)
            wait = min(bucket.wait_ns(cost, reservation.size, now), NEVER)
            if wait > request.wait_ns:  # its breaker has opened
                request.wait_ns = wait
                request.bucket = bucket
                request.rule = bucket.rule
            if first is None or first.since >= reservation.since or abs(now - first.asked_at) > GONE_NS:
                bucket.first_waiting = reservation
        elif first is reservation:  # it could pass here and waits elsewhere: no other is kept for its sake
            bucket.first_waiting = None


def settle(request: Request, reservation: Reservation, now: int) -> None:
    """Make `request.messages` and `request.size` of what `reservation` has taken; `request.count` 1: that is what the answer has brought.

    0: the answer is not there yet, but something is to be given back or taken in the meantime.
    """
    request.passed = request.count
    messages: int = request.messages
    size: int = request.size
    more_bytes = size - reservation.size
    if messages != reservation.messages or more_bytes != 0:
        for bucket in reservation.buckets:
            more = bucket.cost_of(CONSUME, messages, size) - cost_of(bucket, reservation)
            bucket.algorithm.settle(more, more_bytes, DEBT_NS, now)
    reservation.messages = messages
    reservation.size = size
    if request.count == 0:
        return
    for bucket in reservation.buckets:
        bucket.admitted += bucket.cost_of(CONSUME, messages, size)
        bucket.admitted_bytes += size
    for bucket in reservation.shadows:
        bucket.shadow_refused += messages
    if reservation.held_by is not None:
        reservation.held_by.over_limit += messages


def overdraw(
    request: Request, overdraft: Overdraft, buckets: list[Bucket], now: int, costs: dict[Bucket, tuple[int, int]] | None = None
) -> None:
    """Let all of `request` pass and charge it; or none, where `overdraft` has not begun and what one before it has left is not paid."""
    if not overdraft.taken:
        longest = 0
        for bucket in buckets:
            wait = bucket.owed_until - DEBT_NS - now
            if wait > longest and not bucket.shadow:
                longest = wait
                request.rule = bucket.rule
                request.bucket = bucket
        if longest > 0:
            request.passed = 0
            request.wait_ns = min(longest, NEVER)
            return
        overdraft.taken = True
    request.passed = request.count
    messages: int = request.messages
    size: int = request.size
    for bucket in buckets:
        if not bucket.shadow:
            if costs is not None:
                messages, size = costs[bucket]
            bucket.overdraw(request.count, messages, size, now)


def refund(request: Request, buckets: list[Bucket], now: int, costs: dict[Bucket, tuple[int, int]] | None = None) -> None:
    """Give back what `request` has cost, in shadow mode, too: but not where that has just refused some and has nothing, for what it refuses
    is not taken from it."""
    request.passed = request.count
    messages: int = request.messages
    size: int = request.size
    for bucket in buckets:
        if costs is not None:
            messages, size = costs[bucket]
        if bucket.shadow and 0 <= now - bucket.last_refused_at < LATELY_NS and bucket.algorithm.peek_ns(messages, size, now) > 0:
            continue
        bucket.algorithm.settle(-messages, -size, NEVER, now)


def cost_of(bucket: Bucket, waiter: Waiter) -> int:
    """What `bucket` counts for the answer that is waited for."""
    return bucket.cost_of(CONSUME, waiter.messages, waiter.size)
