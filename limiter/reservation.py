"""Reservations: for requests whose cost is known only when the answer has come.

A consumer asks for messages, and the broker decides how many come. Charging only afterwards lets every queue of a topic ask at once and
fall so deep into debt that nothing comes for minutes (5/s, 16 queues, 32 messages each: 100 s). So a request **reserves** what its answer
is expected to bring, and the difference is **settled** when it is known::

    Reservation ── reserve ──► taken from all buckets, or kept waiting ── settle ──► the true cost is charged, or the rest given back

* Settling cannot be refused, so it can go into debt; no deeper than DEBT_NS of the rate, for a broker that brings a hundred times what
  was expected must not stop a topic for an hour. A deeper debt is forgiven. A debt made by reserving (an answer of 32 messages from a
  bucket of 5) is never forgiven, or the rate would not hold.
* It never opens a breaker.
* **First come, first served**, because there is no other way to be sure that no request starves. The reservation that has waited longest
  for a bucket is its `first_waiting`, and while it goes on asking none younger passes. One that was answered empty-handed and asks again
  for the same queue has waited since it asked first (`since`).
* Messages are counted (`admitted`, `over_limit`, the judge's own) when they have come, each once.

An **overdraft** is for messages that cannot wait as long as their limit says, because the broker has sent them already and their consumer
has been cancelled. Letting them pass uncharged would let a client consume and cancel in turns, without a limit. So all of them pass at
once and are charged, however deep the debt, which is never forgiven: who consumes next waits until it is paid. A second overdraft begins
only when its buckets owe no more than DEBT_NS of the rate for those before. So over any time T an enforced limit admits at most its burst,
its rate in T + DEBT_NS, and one overdraft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from limiter.buckets.bucket import Waiter

if TYPE_CHECKING:
    from limiter.buckets.bucket import Bucket


class Reservation(Waiter):
    """What one request is expected to cost, and what became of it. Only the judge writes to it after it was asked."""

    __slots__ = ("buckets", "held_by", "shadows", "taken")

    def __init__(self, messages: int, size: int, since: int = 0) -> None:
        super().__init__(messages, size, since)
        self.taken = False  # it has passed: there is something to settle
        self.buckets: list[Bucket] = []  # from which it has taken
        self.shadows: list[Bucket] = []  # in shadow mode, that would have kept it waiting
        self.held_by: Bucket | None = None  # the first that has kept it waiting

    def __repr__(self) -> str:
        return f"<Reservation {'of' if self.taken else 'for'} {self.messages} messages, {self.size} bytes, since {self.since}>"


class Refund(Reservation):
    """For what a request that has passed turned out not to cost: its buckets get it back, and their counters stay."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(0, 0)

    def __repr__(self) -> str:
        return "<Refund>"


class Overdraft(Reservation):
    """What all requests of one cancelled consumer share; `taken`: it has begun, and what is still to come of it passes and is charged."""

    __slots__ = ()

    def __init__(self, *, taken: bool = False) -> None:
        super().__init__(0, 0)
        self.taken = taken

    def __repr__(self) -> str:
        return f"<Overdraft {'begun' if self.taken else 'not begun'}>"
