"""Columns: the messages of one read, of several keys and sizes, judged by what each key and each bucket is asked for in all.

All of it is judged at one instant, so where a bucket has room for the sum of what is asked of it, each of the messages passes, in
whatever order they came, and what is left is the same. So each bucket is looked at once, and what passes is taken from it once.

Where a bucket has no room for its sum, the rows are judged in their order, still as numbers (`limiter.decisions.rows`).

Where anything is not as simple as that, nothing is taken, and the messages are judged one after the other (`limiter.decisions.batches`):
a key that does not go in runs (`Key.in_runs`), a message that is too large for its rule, a cap that has no room for all, or keeps topics
from each other, or protects one of them, a bucket that was forgotten while these keys were matched.

The verdicts, the buckets and the counts are those of judging one by one: `tests/limiter/decisions/test_columns.py` compares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from limiter.algorithms.token_bucket import UNBOUNDED, TokenBucket
from limiter.buckets.bucket import IN_USE
from limiter.buckets.ledger import TOUCH_NS
from limiter.decisions.rows import judge_rows

if TYPE_CHECKING:
    from limiter.buckets.bucket import Bucket
    from limiter.columns import Columns
    from limiter.decisions.in_force import InForce
    from limiter.decisions.single import Checks
    from limiter.fair_share.shared_bucket import Price, SharedBucket
    from limiter.request import Request


def judge_columns(request: Request, columns: Columns, in_force: InForce, checks: Checks, now: int) -> bool:
    """Judge all of `request`; False, taking nothing, where it must be cut."""
    refresh(columns, in_force, now)
    refused = 0
    asked: list[Bucket] = []  # each once, with what is asked of it
    try:
        judged = note_asked(columns, asked)
        if judged < 0:
            return False
        if all_fit(columns, asked, now):
            take(columns, asked)
        else:
            refused = judge_rows(columns, asked, now)
            if refused < 0:
                return False
    finally:
        for bucket in asked:
            bucket.asked = 0
            bucket.asked_bytes = 0
    checks.ok += judged - refused
    checks.limited += refused
    request.passed = request.count - refused
    request.wait_ns = 0
    request.bypassed = False
    return True


def refresh(columns: Columns, in_force: InForce, now: int) -> None:
    """Match what must be matched, and keep the order of idleness."""
    generation = in_force.generation
    for of_key in columns.sums:
        key = of_key.key
        if key.generation != generation:
            in_force.match(key, now)
        for bucket in key.buckets:
            if bucket.state != IN_USE or now - bucket.touched > TOUCH_NS:
                in_force.refresh(key, now)
                break


def note_asked(columns: Columns, asked: list[Bucket]) -> int:
    """Add up what each bucket is asked for; how many messages are judged by any. Below 0: they must be judged one by one."""
    judged: i64 = 0
    for of_key in columns.sums:
        key = of_key.key
        buckets = key.buckets
        if not buckets:
            continue
        share = key.share
        if not key.in_runs or of_key.largest > key.max_size or (share is not None and (share.gone or share.protected)):
            return -1
        for bucket in buckets:
            if bucket.state != IN_USE:
                return -1
            if bucket.asked == 0:
                asked.append(bucket)
            bucket.asked += of_key.count
            bucket.asked_bytes += of_key.size
        judged += of_key.count
    return judged


def all_fit(columns: Columns, asked: list[Bucket], now: int) -> bool:
    """Whether each bucket has room for all that it is asked for. A cap is asked last, and for each of its shares."""
    for bucket in asked:
        breaker = bucket.breaker
        if breaker.open_until != 0 and breaker.is_open(now):
            return False
        algorithm = bucket.algorithm
        if isinstance(algorithm, TokenBucket) and not algorithm.fits(bucket.asked, bucket.asked_bytes, now):
            return False
    for of_key in columns.sums:
        share = of_key.key.share
        if share is not None and not has_room(share.cap.room(share, 1, of_key.first, now), of_key.key.buckets[-1]):
            return False
    return True


def has_room(room: tuple[int, int], bucket: Bucket) -> bool:
    """Whether what `bucket` is asked for is in `room`. Debts and bursts have no bound: what is no native integer is the nearest that is."""
    return min(max(room[0], -1), UNBOUNDED) >= bucket.asked and min(max(room[1], -1), UNBOUNDED) >= bucket.asked_bytes


def take(columns: Columns, asked: list[Bucket]) -> None:
    """Spend what `all_fit` has promised."""
    capped = False
    for bucket in asked:
        messages: int = bucket.asked  # counted without bounds
        size: int = bucket.asked_bytes
        if isinstance(bucket.algorithm, TokenBucket):
            bucket.algorithm.take(1, messages, size)
        else:
            capped = True
        bucket.admitted += messages
        bucket.admitted_bytes += size
    if not capped:
        return
    sums = columns.sums
    cap: SharedBucket | None = None  # of the last row
    price: Price | None = None  # of its requests
    for row in columns.rows:  # each message for itself, since what it costs a cap is rounded down
        of_key = sums[row & 0xFFFF]
        share = of_key.key.share
        if share is not None:
            if price is None or share.cap is not cap:
                cap = share.cap
                price = cap.price()
            count: int = row >> 16 & 0xFFFF
            of_key.cap_ns += count * price.of(row >> 32)
    for of_key in sums:
        share = of_key.key.share
        if share is not None:
            share.cap.take_run(share, of_key.cap_ns, share.cap.cost_ns(1, of_key.largest), of_key.count, of_key.size)
