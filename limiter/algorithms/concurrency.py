"""Concurrency: so many requests in flight, however fast they go.

A rate has to be known beforehand, and it is known of one broker, on one day, with messages of one size. A broker is overloaded not by
messages per second but by messages that it has taken and not finished: they fill its queues, and all others wait behind them. Little's law
ties the two: requests in flight = rate * latency. A limit on what is in flight needs no rate: as the broker slows down, answers come
later, slots come back later, and the rate falls by itself; as it recovers, it rises.

Here a slot is taken when a request passes and given back when it has ended, see `limiter.in_flight`. That makes it unlike a bucket:

* **It does not refill with time.** When a slot comes back is the broker's to say, so `wait_ns` is an estimate: as long as an answer has
  taken lately, at least 1 ms. A held request is judged again when its own connection has got an answer, at latest after that wait.
* **There is no breaker** unless the rule names one: the answer that frees a slot may come in the next microsecond.
* **A lower limit takes effect as answers come**: while more are in flight than it allows, none passes.
* **After a restart nothing is in flight**, whatever the fill was: no old answer can come to the new process.
* **Requests without an answer hold no slot**: RocketMQ's one-way sends, and AMQP publishes without confirms. They pass here uncounted,
  because refusing them would lose them, and nothing would ever say that they are through. A rate beside it limits them.
* A slot is a request's, not a message's: a RocketMQ batch of 32 messages takes one.

A rate may stand beside it in the same rule: a request must then find room in both. Integers, but for the smoothed latency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from limiter.algorithms.base import Algorithm
from limiter.algorithms.slots import Slots, most_in_flight
from limiter.algorithms.token_bucket import TokenBucket

if TYPE_CHECKING:
    from limiter.algorithms.gradient import Gradient
    from limiter.limits import Limit

__all__ = ["Concurrency"]


class Concurrency(Algorithm):
    """At most `limit.concurrent` requests in flight; with a `gradient`, as many as that finds."""

    __slots__ = ("_asked_at", "_gradient", "_rates", "_slots")

    def __init__(self, limit: Limit, now: int, gradient: Gradient | None = None) -> None:
        self._gradient = gradient
        self._slots = Slots(most_in_flight(limit) if gradient is None else gradient.most(), now)
        self._rates = rates_of(limit, now)
        self._asked_at = now

    def slots(self) -> Slots | None:
        return self._slots

    def go_on_with(self, slots: Slots) -> None:
        slots.most = self._slots.most
        slots.lent = self._slots.lent
        slots.clock_offset_ns = self._slots.clock_offset_ns
        self._slots = slots

    def heard(self, outcome: int, count: int, since: int, now: int) -> None:
        if self._gradient is not None:
            self._gradient.heard(self._slots, outcome, count, since, now)

    def available(self, count: int, messages: int, size: int, now: int) -> int:
        slots = self._slots
        self._asked_at = now
        if self._gradient is not None:
            self._gradient.look(slots, now)
        if not slots.passing:
            count = min(count, slots.free())
        if count > 0 and self._rates is not None and not slots.prepaid:
            count = self._rates.available(count, messages, size, now)
        return count

    def take(self, count: int, messages: int, size: int) -> None:
        slots = self._slots
        if not slots.passing:
            slots.take(count, self._asked_at)
        if self._rates is not None and not slots.prepaid:
            self._rates.take(count, messages, size)

    def settle(self, messages: int, size: int, debt_ns: int, now: int) -> None:
        if self._rates is not None:
            self._rates.settle(messages, size, debt_ns, now)

    def wait_ns(self, messages: int, size: int, now: int) -> int:
        slots = self._slots
        if self._gradient is not None:
            self._gradient.look(slots, now)
        wait = slots.wait_ns() if slots.free() == 0 and not slots.passing else 0
        return wait if self._rates is None or slots.prepaid else max(wait, self._rates.wait_ns(messages, size, now))

    def full_in_ns(self, messages: int, size: int, now: int) -> int:
        wait = self._slots.wait_ns() if self._slots.taken > 0 else 0
        return wait if self._rates is None else max(wait, self._rates.full_in_ns(messages, size, now))

    def is_full(self, now: int) -> bool:
        if self._slots.taken > 0 or (self._rates is not None and not self._rates.is_full(now)):
            return False
        return self._gradient is None or self._gradient.is_forgettable(self._slots, now)

    def fill(self, now: int) -> float:
        slots = self._slots
        fill = max(0.0, 1.0 - slots.taken / slots.most)
        return fill if self._rates is None else min(fill, self._rates.fill(now))

    def set_fill(self, fill: float, now: int) -> None:
        """Of the rate beside it only: nothing is in flight that anybody could answer."""
        if self._rates is not None:
            self._rates.set_fill(fill, now)

    def change(self, limit: Limit, now: int) -> None:
        if self._gradient is None:
            self._slots.most = most_in_flight(limit)
        else:
            self._gradient.change(self._slots, limit)
        if self._rates is not None and (limit.messages is not None or limit.bytes is not None):
            self._rates.change(limit, now)
        else:
            self._rates = rates_of(limit, now)

    def __repr__(self) -> str:
        return f"<Concurrency {self._slots} gradient={self._gradient} rates={self._rates}>"


def rates_of(limit: Limit, now: int) -> TokenBucket | None:
    """The rate that stands beside, where one does."""
    return None if limit.messages is None and limit.bytes is None else TokenBucket(limit, now)
