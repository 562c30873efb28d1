"""How each algorithm's limit is shared by several members: what a member has of it, and what is left to the owner.

* `token_bucket`, and `lag`, whose bucket's rate follows a backlog: half of the burst is lent to the members in advance, as their lines, and
  the owner has the rest. It has room for what comes in between two asks at least: a smaller bucket is full long before the next ask, and
  what comes in then is lost (a fifth of 1,000/s passed with a burst of 20, in a fleet).
* `pacing` has no burst. Its members need some milliseconds' worth in hand, or they would wait for each message: they share a bucket of
  PACED_NS of the rate, and space by themselves what they get (`limiter.leases.paced_lease`).
* `warm_up`: the owner has the bucket that warms up, so what counts is when all members together have begun. What a member spends on credit
  costs three times as much while the whole is cold, so the lines are a third as long: a cold burst is a third of the burst, as in one
  process.

* `concurrency` and `adaptive` have places instead of tokens (`limiter.leases.lent_places`). A rate that stands beside them is divided.

A cap that topics share is a `token_bucket` here: its topics share what each member has of it. The bucket of those that found no room cannot
be had in parts: each member holds an even part by itself (`divide_limit`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from limiter.algorithms.base import Algorithm
from limiter.algorithms.lag import LagControlledBucket
from limiter.algorithms.token_bucket import TokenBucket
from limiter.algorithms.warm_up import COLDEST, warm_up
from limiter.leases.lease import Lease, Lessee
from limiter.leases.leased_bucket import LeasedBucket
from limiter.leases.leased_places import adaptive_places, concurrency_places
from limiter.leases.leased_tokens import SLICE_NS, credit_line
from limiter.leases.lent_places import LentPlaces
from limiter.leases.paced_lease import PacedLease
from limiter.limits import SECOND, Limit, Rate

ROOM_NS: Final = SLICE_NS // 2  # ns of the rate; the least that an owner's bucket has room for: what comes in between two asks of a worker
FLEET_ROOM_NS: Final = SLICE_NS  # the same of a fleet, which asks each 50 ms
PACED_NS: Final = 3 * SLICE_NS  # ns of the rate; half of it lent: the owner has room for what comes in between two rounds of a fleet

MEMBERS: Final[dict[str, Callable[[Limit, int, Lease], Lessee]]] = {
    "token_bucket": LeasedBucket,
    "lag": LeasedBucket,
    "pacing": PacedLease,
    "warm_up": LeasedBucket,
    "concurrency": concurrency_places,
    "adaptive": adaptive_places,
}
OWNERS: Final[dict[str, Callable[[Limit, int], Algorithm]]] = {
    "token_bucket": TokenBucket,
    "lag": LagControlledBucket,
    "pacing": TokenBucket,
    "warm_up": warm_up,
    "concurrency": LentPlaces,
    "adaptive": LentPlaces,
}


def member_limit(limit: Limit, algorithm: str, members: int = 1) -> Limit:
    """The limit of which each member has a part. What it has not, it divides by `members`."""
    if limit.concurrent is not None:
        return replace(divide_limit(limit, members), concurrent=limit.concurrent)
    if algorithm == "pacing":
        return replace(limit, messages_burst=None, bytes_burst=None, burst_ns=PACED_NS)
    if algorithm == "warm_up":
        messages, size = limit.messages_capacity(), limit.bytes_capacity()
        return with_bursts(limit, messages and max(1, messages // COLDEST), size and max(1, size // COLDEST))
    return limit


def owner_limit(limit: Limit, members: int, algorithm: str = "token_bucket", room_ns: int = ROOM_NS) -> Limit:
    """The limit for the owner's bucket: the same rates, and of the bursts what is not lent to members, `room_ns` of the rate at least."""
    if limit.concurrent is not None:
        return limit
    lent = member_limit(limit, algorithm)
    messages, size = members * credit_line(lent.messages_capacity(), members), members * credit_line(lent.bytes_capacity(), members)
    if algorithm == "warm_up":
        messages, size = COLDEST * messages, COLDEST * size
        lent = limit
    found = with_bursts(
        lent,
        rest(lent.messages, lent.messages_capacity(), messages, room_ns),
        rest(lent.bytes, lent.bytes_capacity(), size, room_ns),
    )
    if limit.lag is None:
        return found
    # The burst is a time of a rate that changes, where no number is given.
    return replace(
        found,
        messages_burst=None if limit.messages_burst is None else found.messages_burst,
        burst_ns=max(room_ns, (limit.burst_ns or SECOND) // 2),
    )


def divide_limit(limit: Limit, members: int) -> Limit:
    """A limit of 1/members, for each of them to hold alone: rates exactly, bursts and other numbers rounded down, to 1 at least."""
    messages, size = limit.messages_capacity(), limit.bytes_capacity()
    return replace(
        limit,
        messages=divide_rate(limit.messages, members),
        bytes=divide_rate(limit.bytes, members),
        messages_burst=max(1, messages // members) if messages else None,
        bytes_burst=max(1, size // members) if size else None,
        burst_ns=None,
        concurrent=divide_count(limit.concurrent, members),
        at_least=divide_count(limit.at_least, members),
        start=divide_count(limit.start, members),
    )


def divide_rate(rate: Rate | None, members: int) -> Rate | None:
    return None if rate is None else Rate(rate.amount, rate.per_ns * members)


def divide_count(number: int | None, members: int) -> int | None:
    return None if number is None else max(1, number // members)


def rest(rate: Rate | None, burst: int, lent: int, room_ns: int) -> int:
    return max(1, burst - lent, rate.amount * room_ns // rate.per_ns) if rate is not None and burst else 0


def with_bursts(limit: Limit, messages: int, size: int) -> Limit:
    """`limit` with bursts of so many tokens; 0: none to name."""
    return replace(limit, messages_burst=messages or None, bytes_burst=size or None, burst_ns=None)
