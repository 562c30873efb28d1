"""Flights: requests that were let through and have not ended yet, and the slots they hold.

A rate is spent for good; a slot is lent, and must be brought back. The naive way counts up when a request passes and down when an
answer is seen. It goes wrong in every case that is not an answer: the request waits behind others and its client goes away; it is
forwarded and its channel is closed; no answer ever comes. A slot lost once is lost until the restart, and a limit of 64 that loses one
a minute stands still within an hour.

So what is lent has a name. When the judge lets `n` requests of a run through and one of their buckets counts what is in flight, it writes
a `Flight` into the request: which slots were taken, how many, for how many requests. The holder of the request has the flight, and must say
how it ended when it lets go of it. That counts once per request, however often it is said::

    judge ──► request.flight ──► split, held, abandoned with its part ──► forwarded (`since`) ──► kept by the conversation
      ▲                                      │                                                        │ answered, failed, busy
      └──── Judge.free_slots(endings, now) ◄─┴──── given up ◄──── channel or connection closed ◄──────┘

`Flight.left` belongs to the loop's thread, which ends flights, `Hold.left` and `Slots` to the holder of the judge's lock. In shadow mode a
bucket may hold slots for fewer requests than pass; those are given back with the first that end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from limiter.algorithms.slots import ANSWERED, GIVEN_UP, Slots

if TYPE_CHECKING:
    from limiter.buckets.bucket import Bucket


class Hold:
    """What one flight has taken from the slots of one bucket, and not given back yet."""

    __slots__ = ("bucket", "left", "rule", "slots")

    def __init__(self, bucket: Bucket, slots: Slots, left: int) -> None:
        self.bucket = bucket
        self.rule = bucket.rule.name  # whose limit it was when they were taken
        self.slots = slots
        self.left = left

    def __repr__(self) -> str:
        return f"<Hold {self.left} of {self.slots}>"


class Flight:
    """`left` requests alike that hold slots. Made by the judge; see the module's docstring for who must end it."""

    __slots__ = ("holds", "left", "since")

    def __init__(self, holds: list[Hold], left: int) -> None:
        self.holds = holds
        self.left = left  # requests that have not ended yet
        self.since = 0  # monotonic ns when they were forwarded; 0: not yet

    def __repr__(self) -> str:
        return f"<Flight {self.left} since {self.since} {self.holds}>"


class Ending:
    """`count` requests of `flight` have ended, all in the same way; 0: none has, but the broker says (BUSY) that it is overloaded."""

    __slots__ = ("count", "flight", "outcome")

    def __init__(self, flight: Flight, count: int, outcome: int) -> None:
        self.flight = flight
        self.count = count
        self.outcome = outcome

    def __repr__(self) -> str:
        return f"<Ending {self.count} {('answered', 'failed', 'busy', 'given up')[self.outcome]} of {self.flight}>"


def end(endings: list[Ending], flight: Flight, count: int, outcome: int) -> None:
    """Note in `endings` that `count` requests of `flight` have ended; no more than have not. On the loop's thread."""
    count = min(count, flight.left)
    if count <= 0:
        return
    flight.left -= count
    if endings:
        last = endings[-1]
        if last.flight is flight and last.outcome == outcome:
            last.count += count
            return
    endings.append(Ending(flight, count, outcome))


def give_back(ending: Ending, now: int, by_rule: dict[str, int]) -> None:
    """Give back the slots of what has ended, and tell the algorithms how; `by_rule` counts those taken. Under the judge's lock."""
    flight = ending.flight
    since = flight.since
    outcome = ending.outcome
    for hold in flight.holds:
        slots = hold.slots
        count = min(ending.count, hold.left)
        hold.left -= count
        slots.taken -= count
        by_rule[hold.rule] = by_rule.get(hold.rule, 0) - count
        if outcome == GIVEN_UP:
            continue
        slots.heard_at = max(slots.heard_at, now)
        if outcome == ANSWERED and since > 0:
            slots.hear(max(now - since, 0))
        hold.bucket.algorithm.heard(outcome, ending.count, since, now)
