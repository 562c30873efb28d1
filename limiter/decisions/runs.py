"""Runs: requests of one key that come one after the other, judged together.

The obvious way asks every bucket about every request, and then tells every bucket what it has let pass: at three buckets of messages and
bytes six dimensions are looked at twice. But all requests of a batch are judged at the same instant, so between two of one key nothing
comes in and no other key asks. What the buckets have is found **once**, as whole messages and bytes (`room`); a request that fits in what
is left of both passes, whatever its cost; what has passed is taken from each bucket **once**, when the run ends. How many buckets there are
no longer matters to a request. Nor is one calculated that is like the one before: how many of its cost fit is known (`count_fitting`); it
is only compared. The same holds for a refusal: the next request of the same cost is refused for the same reason, and its wait is the same.

A run ends where anything is not as simple as that: at another key, at a request that reserves, is prepaid or names copies, at one that does
not fit (it may fit in part, go into debt, or open a breaker: `limiter.decisions.single` knows), at numbers so large that their product
might be no native integer. It does not begin where a breaker is open, or where a cap keeps topics from each other
(`limiter.fair_share.shared_bucket`).
Only keys of token buckets and caps go in runs (`Key.in_runs`); not those with buckets in shadow mode or with candidates, which see what
others let pass.

Measured 2026-11, compiled, 1,000 requests of one topic per batch: 5 to 9 ns each at one bucket, 6 to 10 ns at three of messages and bytes,
the third a cap (the more where the core's other thread has work); one by one 51 ns and 670 ns.

The verdicts, the buckets and the counts are those of judging one by one: `tests/limiter/decisions/test_runs.py` compares them.
If a run fails in the middle nothing of it has been taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from limiter.algorithms.token_bucket import UNBOUNDED, TokenBucket
from limiter.decisions.single import gives_turns
from limiter.rules.rule import FIT

if TYPE_CHECKING:
    from limiter.decisions.single import Checks
    from limiter.keys import Key
    from limiter.request import Request

NATIVE_BELOW: Final = 1 << 30  # products of two numbers below it are native integers, and less than UNBOUNDED


def pass_run(requests: list[Request], begin: i64, key: Key, checks: Checks, now: int) -> i64:
    """Let requests pass from number `begin` on, which is of `key`, as long as they fit; the number of the first that is not passed."""
    first = requests[begin]
    buckets = key.buckets
    share = key.share
    if first.count <= 0 or (first.count | first.messages | first.size) >= NATIVE_BELOW or (share is not None and share.gone):
        return begin
    largest = key.max_size
    if first.size > largest:
        return begin
    room = UNBOUNDED
    room_bytes = UNBOUNDED
    wanted: int = first.count * first.messages  # debts have no bound: below, no native integer
    wanted_bytes: int = first.count * first.size
    for bucket in buckets:
        breaker = bucket.breaker
        if bucket.shadow or (breaker.open_until != 0 and breaker.is_open(now)):
            return begin
        algorithm = bucket.algorithm
        if isinstance(algorithm, TokenBucket):
            found, found_bytes = algorithm.room(0, now)
        elif share is not None and algorithm is share.cap and wanted <= room and wanted_bytes <= room_bytes:
            found, found_bytes = share.cap.room(share, first.messages, first.size, now)
        else:
            return begin
        room = min(room, found)
        room_bytes = min(room_bytes, found_bytes)
    left: i64 = max(room, -1)
    left_bytes: i64 = max(room_bytes, -1)
    if left < 0 or left_bytes < 0:
        return begin
    again: i64 = 0  # messages that were judged before
    cap_ns = 0  # what the run costs the cap
    largest_ns = 0  # and the dearest of it
    end: i64 = len(requests)
    at: i64 = begin
    while at < end:
        request = requests[at]
        if request.key is not key or request.reservation is not None or request.prepaid or request.copies is not None:
            break
        count = request.count
        messages = request.messages
        size = request.size
        if (count | messages | size) >= NATIVE_BELOW or size > largest:
            break
        cost = count * messages
        cost_bytes = count * size
        until = at + count_fitting(count_fitting(end - at, cost, left), cost_bytes, left_bytes)
        if until == at:
            break
        after = pass_alike(requests, at, until)
        alike = after - at
        left -= alike * cost
        left_bytes -= alike * cost_bytes
        if request.again:
            again += alike * cost
        if share is not None:
            each_ns = share.cap.cost_ns(messages, size)
            many: int = alike * count  # what a cap counts has no bound
            cap_ns += many * each_ns
            largest_ns = max(largest_ns, each_ns)
        at = after
    if at == begin:
        return begin
    taken: int = room - left
    taken_bytes: int = room_bytes - left_bytes
    before: int = again  # a native integer would make one of the counter below, which has no bound
    for bucket in buckets:
        if share is not None and bucket.algorithm is share.cap:
            share.cap.take_run(share, cap_ns, largest_ns, taken, taken_bytes)
        else:
            bucket.algorithm.take(1, taken, taken_bytes)
        bucket.admitted += taken
        bucket.admitted_bytes += taken_bytes
    checks.ok += taken - before
    return at


def count_fitting(most: i64, cost: i64, left: i64) -> i64:
    """How many requests of `cost`, `most` at most, fit in `left`."""
    if cost == 0 or (most < NATIVE_BELOW and cost < NATIVE_BELOW and most * cost <= left):  # a division costs more than a decision
        return most
    return min(most, left // cost)


def pass_alike(requests: list[Request], begin: i64, until: i64) -> i64:
    """Let request number `begin` pass, and those after it that are like it, up to `until`; the number of the first that is not passed."""
    request = requests[begin]
    key = request.key
    count = request.count
    messages = request.messages
    size = request.size
    again = request.again
    at: i64 = begin
    while True:
        request.passed = count
        request.wait_ns = 0
        if request.rule is not None:
            request.rule = None
        request.shadow_refused = 0
        request.bypassed = False
        at += 1
        if at == until:
            return at
        request = requests[at]
        if request.key is not key or request.count != count or request.messages != messages or request.size != size:
            return at
        if request.again != again or request.reservation is not None or request.prepaid or request.copies is not None:
            return at


def refuse_run(requests: list[Request], begin: i64, refused: Request, checks: Checks, now: int) -> i64:
    """Refuse requests from number `begin` on as `refused` was, as long as they are like it; the number of the first that is not refused."""
    key = refused.key
    assert key is not None
    messages = refused.messages
    size = refused.size
    wait_ns = refused.wait_ns
    rule = refused.rule
    refusing_bucket = refused.bucket
    turns = refusing_bucket is not None and gives_turns(refusing_bucket, messages, key)
    # If the turn of `refused` has come, none like it may owe either.
    may_owe = turns and refused.turn_at > now and refusing_bucket is not None and refusing_bucket.may_owe(messages, size)
    first_time: i64 = 0  # requests that were not judged before
    end: i64 = len(requests)
    at: i64 = begin
    while at < end:
        request = requests[at]
        if request.key is not key or request.reservation is not None or request.prepaid or request.copies is not None:
            break
        count = request.count
        if request.messages != messages or request.size != size or count <= 0:
            break
        if turns:
            if request.turn_at == 0:
                request.turn_at = now + wait_ns
            elif may_owe and request.turn_at <= now:
                break
        if not request.again:
            first_time += count
        request.passed = 0
        request.unfit = FIT
        request.wait_ns = wait_ns
        request.rule = rule
        request.bucket = refusing_bucket
        request.shadow_refused = 0
        request.bypassed = False
        at += 1
    if first_time > 0:
        times: int = first_time
        each: int = messages
        each_bytes: int = size
        for bucket in key.buckets:
            if bucket.wait_ns(each, each_bytes, now) > 0:
                bucket.refuse(times, each, each_bytes, now)
        checks.limited += times * each
    return at
