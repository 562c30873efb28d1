"""Credit, as RabbitMQ has it (`credit_flow.erl`): how pressure travels back from a slow stage to the one that reads sockets.

The naive way is a bounded queue between each two stages, and every stage waits when one is full: a stage that waits in the middle holds
what it has, and two of them can wait for each other. With credit no stage in the middle waits. A stage may pass on `initial` messages, one
credit each. The stage behind it gives credits back in lots of `more_after`, when it has *handled* that many; while it is itself out of
credit further down it defers them. So the stages empty themselves one after the other, backwards, and **only the reader waits**: it stops
reading when its account is empty, and TCP tells the client.

    reader ──Credit──► limiter ──Credit──► forwarder ──► broker
        ◄── grants, deferred while the limiter is blocked ──

An account may be overdrawn by one batch: a frame that was read must be passed on, whatever it costs. The messages between two stages are
bounded by `initial` plus that batch.
"""

from __future__ import annotations

from typing import Final

from limiter.limits import SECOND

INITIAL: Final = 400  # messages; RabbitMQ's default since 3.5.5, chosen there by measurement
MORE_AFTER: Final = 200  # messages; as INITIAL
SHOWN_NS: Final = SECOND  # ns; how long "flow" is shown after a block; 5 s looked permanent (rabbitmq-server#150)


class Credit:
    """The account of one stage with the next one. `upstream` is the account of the stage before with this one.

    Raises ValueError unless 0 < more_after <= initial. `now` is monotonic nanoseconds.
    """

    __slots__ = ("_blocked_at", "_blocked_ns", "_deferred", "_handled", "_last_blocked", "credit", "initial", "more_after", "upstream")

    def __init__(self, initial: int = INITIAL, more_after: int = MORE_AFTER, upstream: Credit | None = None) -> None:
        if not 0 < more_after <= initial:
            raise ValueError(f"credit {{initial: {initial}, more_after: {more_after}}}: it must be 0 < more_after <= initial")
        self.credit = initial  # credits left: messages that may be passed on now; below 0 where a batch overdrew it
        self.more_after = more_after
        self._handled = 0  # by the next stage, not yet granted: less than more_after
        self._blocked_at = -1  # since when; -1: not blocked
        self._deferred = 0  # grants the next stage owes because it is blocked itself
        self.initial = initial
        self.upstream = upstream
        self._blocked_ns = 0  # all blocks that are over
        self._last_blocked = -1  # when a block was last over; -1: never

    @property
    def blocked(self) -> bool:
        return self._blocked_at >= 0

    def spend(self, messages: int, now: int) -> None:
        """Pass `messages` on to the next stage; the stage is blocked when nothing is left."""
        self.credit -= messages
        if self.credit <= 0 and self._blocked_at < 0:
            self._blocked_at = now

    def handle(self, messages: int, now: int, *, blocked: bool = False) -> None:
        """The next stage is done with `messages`. It grants full lots of `more_after`, or defers them while it is `blocked` itself."""
        self._handled += messages
        lots = self._handled // self.more_after
        if lots == 0:
            return
        self._handled -= lots * self.more_after
        self._deferred += lots * self.more_after
        if not blocked:
            self.grant(now)

    def grant(self, now: int) -> None:
        """Give what was deferred: the next stage is no longer blocked."""
        self.credit += self._deferred
        self._deferred = 0
        if self.credit > 0 and self._blocked_at >= 0:
            self._unblock(now)

    def _unblock(self, now: int) -> None:
        self._blocked_ns += max(0, now - self._blocked_at)
        if now > self._blocked_at:  # a block that took no time is none: the grant came in the same step
            self._last_blocked = now
        self._blocked_at = -1
        if self.upstream is not None:
            self.upstream.grant(now)

    def flow(self, now: int) -> bool:
        """Whether to show the state `flow`: blocked now, or within the last second."""
        return self._blocked_at >= 0 or (self._last_blocked >= 0 and now - self._last_blocked < SHOWN_NS)

    def blocked_ns(self, now: int) -> int:
        """Time blocked so far, the present block included: a counter."""
        return self._blocked_ns + (max(0, now - self._blocked_at) if self._blocked_at >= 0 else 0)

    def __repr__(self) -> str:
        return f"<Credit {'blocked' if self.blocked else 'open'} {self.credit}/{self.initial} deferred={self._deferred}>"
