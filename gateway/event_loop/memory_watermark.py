"""The memory watermark: when all connections together hold too much, publishers are not read until it is less.

What the gateway keeps grows where bytes come in faster than they leave: a broker that has stopped taking them, a rule that holds messages,
a client that does not read. Each connection has its own caps (`memory.per_connection`, one read of backlog per side, credit), and most of
the time they suffice. But caps add up: ten thousand connections that each keep what they may are gigabytes. So there is a high watermark
for all of them (`memory.high_watermark`), above which publishers have to wait. Consumers go on: what goes to them leaves.

The naive way stops every connection that holds something. Then a publisher that holds nothing yet is read once more, and holds a read of
its own: the watermark is passed by as many reads as there are publishers. So all that have published on their connection are stopped at
the next frame boundary, as RabbitMQ's memory alarm does it. AMQP clients that declared the capability are told `connection.blocked`;
others see TCP stand still.

Two traps. With one watermark for stopping and reading on, a gateway at that mark does both in turn, several times a second, and tells its
clients each time. So reading goes on only below a low watermark, four fifths of the high one. And a connection that is not read cannot
finish a frame it has begun: what was read of incomplete frames (`Decode.undecoded`) does not leave by waiting, so nothing waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.event_loop.sweeper import Sweeper
    from gateway.session.shared import Shared

LOW_WATERMARK_FIFTHS: Final = 4  # of five; the share of the high watermark below which publishers are read again (a guess)


class MemoryWatermark:
    """Sums up what all sessions hold, a few times a second, and stops or releases those that publish. Times are monotonic ns."""

    def __init__(self, high_watermark: int, shared: Shared) -> None:
        self.take_high_watermark(high_watermark)
        self.shared = shared
        self.held = 0  # bytes, at the last check
        self.stopped = 0  # connections that are not read because of it
        self._full_at = 0  # when it became full
        self._full_ns = 0  # full times that are over

    def take_high_watermark(self, high_watermark: int) -> None:
        """It holds from the next check on."""
        self.high_watermark = high_watermark
        self.low_watermark = high_watermark * LOW_WATERMARK_FIFTHS // 5

    @property
    def full(self) -> bool:
        return self.shared.memory_full

    def check(self, sweeper: Sweeper, now: int) -> bool:
        """Sum up and act; whether `full` has changed."""
        shared = self.shared
        before = shared.memory_full
        self.held = sweeper.buffered()
        full = self.held >= (self.low_watermark if before else self.high_watermark)
        if full:
            full = self.held - undecoded(sweeper) >= self.low_watermark
        if full != before:
            shared.memory_full = full
            if full:
                self._full_at = now
            else:
                self._full_ns += now - self._full_at
        if full or before:
            self._hold_back(sweeper, yes=full)
        if full != before:
            sweeper.poke_all()
        return full != before

    def _hold_back(self, sweeper: Sweeper, *, yes: bool) -> None:
        self.stopped = 0
        for session in sweeper.sessions.values():
            conversation = session.conversation
            if conversation.held_back != yes and (not yes or session.decode.publishes):
                conversation.hold_back(yes=yes)
                sweeper.wake(session)
            self.stopped += conversation.held_back

    def full_ns(self, now: int) -> int:
        """For how long memory has been full so far: a counter."""
        return self._full_ns + (max(now - self._full_at, 0) if self.full else 0)

    def describe(self) -> dict[str, object]:
        return {"full": self.full, "held_bytes": self.held, "high_watermark": self.high_watermark, "stopped_connections": self.stopped}

    def __repr__(self) -> str:
        return f"<MemoryWatermark {'full' if self.full else 'open'} {self.held}/{self.high_watermark} stopped={self.stopped}>"


def undecoded(sweeper: Sweeper) -> int:
    """Bytes of incomplete frames."""
    sessions: list[Session] = list(sweeper.sessions.values())
    return sum(session.decode.undecoded() for session in sessions)
