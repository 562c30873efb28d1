"""Reservations: for requests whose cost is known only when the answer has come.

A consumer asks for messages, and how many come is the broker's to say. Charging only afterwards lets every queue of a topic ask at once
and fall so deep into debt that nothing comes for minutes (5/s, 16 queues, 32 messages each: 100 s). So a request **reserves** what its
answer is expected to bring, and the difference is **settled** when it is known::

    Reservation ── reserve ──► taken from all levels, or kept waiting ── settle ──► the true cost is charged, or the rest given back

* Settling asks nobody, so it can go into debt; no deeper than DEBT_NS of the rate, for a broker that brings a hundred times what
  was expected must not stop a topic for an hour. What is beyond that is forgiven. A debt made by reserving (an answer of 32 messages
  from a bucket of 5) is never forgiven, or the rate would not hold.
* It never opens a breaker.
* **First come, first served**, because there is no other way to be sure that nobody starves: whoever has waited longest for a level is
  its `first`, and while it goes on asking nobody younger passes. Who was answered empty-handed and asks again for the same queue has
  waited since it asked first (`since`).
* Messages are counted (`admitted`, `over_limit`, the judge's own) when they have come, each once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from limiter.limits import NEVER

if TYPE_CHECKING:
    from limiter.buckets.ledger import Level
    from limiter.request import Request

DEBT_NS: Final = 10_000_000_000  # 10 s: about as long as a consumer is kept waiting before it is answered (a guess of what is bearable)
GONE_NS: Final = 500_000_000  # who has not asked for so long, before or after, has gone; what is held asks every 100 ms (`actions/wait.py`)
BEHIND_NS: Final = 10_000_000  # when to ask again, at the earliest, where only somebody older is in the way


class Reservation:
    """What one request is expected to cost, and what became of it. Only the judge writes to it after it was asked."""

    __slots__ = ("asked_at", "held_by", "levels", "messages", "shadows", "since", "size", "taken")

    def __init__(self, messages: int, size: int, since: int = 0) -> None:
        self.messages = messages  # expected, then taken
        self.size = size  # bytes, likewise
        self.since = since  # monotonic ns since when messages of its queue are waited for; 0: it was not kept waiting
        self.asked_at = 0  # monotonic ns of the last time that it asked
        self.taken = False  # it has passed: there is something to settle
        self.levels: list[Level] = []  # from which it has taken
        self.shadows: list[Level] = []  # in shadow mode, that would have kept it waiting
        self.held_by: Level | None = None  # the first that has kept it waiting

    def __repr__(self) -> str:
        return f"<Reservation {'of' if self.taken else 'for'} {self.messages} messages, {self.size} bytes, since {self.since}>"


def reserve(request: Request, reservation: Reservation, levels: list[Level], now: int) -> None:
    """Take from all levels, or from none: then `wait_ns`, `rule` and `level` say for whom it waits longest."""
    longest = 0
    for level in levels:
        if not level.shadow:
            wait = wait_for(level, reservation, now)
            if wait > longest:
                longest = wait
                request.level = level
                request.rule = level.rule
    request.wait_ns = min(longest, NEVER)
    if longest > 0:
        request.passed = 0
        stand_in_line(request, reservation, levels, now)
        return
    request.passed = request.count
    reservation.asked_at = now
    reservation.taken = True
    for level in levels:
        first = level.first
        if first is not None and (first is reservation or first.since == reservation.since):
            level.first = None
        if level.shadow and level.wait_ns(reservation.messages, reservation.size, now) > 0:
            level.refuse(0, reservation.messages, reservation.size, now)
            reservation.shadows.append(level)
            request.shadow_refused = request.count
        else:
            level.bucket.take(1, reservation.messages, reservation.size)
            reservation.levels.append(level)


def wait_for(level: Level, reservation: Reservation, now: int) -> int:
    """How long until `reservation` can be taken from `level`; 0: now."""
    wait = level.wait_ns(reservation.messages, reservation.size, now)
    first = level.first
    if first is None or first is reservation or wait >= BEHIND_NS:
        return wait
    if abs(now - first.asked_at) > GONE_NS:
        level.first = None
        return wait
    since = reservation.since
    if since != 0 and since <= first.since:
        return wait
    return max(BEHIND_NS, level.wait_ns(first.messages, first.size, now))  # before that one may pass, asking again is for nothing


def stand_in_line(request: Request, reservation: Reservation, levels: list[Level], now: int) -> None:
    """Remember that `reservation` waits, at the levels where it is the one that has waited longest."""
    if reservation.since == 0:
        reservation.since = now
    reservation.asked_at = now
    if reservation.held_by is None:
        reservation.held_by = request.level
    for level in levels:
        if level.shadow:
            continue
        first = level.first
        if level.wait_ns(reservation.messages, reservation.size, now) > 0:
            level.refuse(0, reservation.messages, reservation.size, now)
            wait = min(level.wait_ns(reservation.messages, reservation.size, now), NEVER)
            if wait > request.wait_ns:  # its breaker has opened
                request.wait_ns = wait
                request.level = level
                request.rule = level.rule
            if first is None or first.since >= reservation.since or abs(now - first.asked_at) > GONE_NS:
                level.first = reservation
        elif first is reservation:  # it could pass here and waits elsewhere: nobody is kept for its sake
            level.first = None


def settle(request: Request, reservation: Reservation, now: int) -> None:
    """Make `request.messages` and `request.size` of what `reservation` has taken; `request.count` 1: that is what the answer has brought.

    0: the answer is not there yet, but something is to be given back or taken in the meantime.
    """
    request.passed = request.count
    messages: int = request.messages
    size: int = request.size
    more = messages - reservation.messages
    more_bytes = size - reservation.size
    if more != 0 or more_bytes != 0:
        for level in reservation.levels:
            level.bucket.settle(more, more_bytes, DEBT_NS, now)
    reservation.messages = messages
    reservation.size = size
    if request.count == 0:
        return
    for level in reservation.levels:
        level.admitted += messages
        level.admitted_bytes += size
    for level in reservation.shadows:
        level.shadow_refused += messages
    if reservation.held_by is not None:
        reservation.held_by.over_limit += messages
