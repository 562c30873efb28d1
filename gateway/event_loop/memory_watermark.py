"""The memory of all connections together, and what is done when they hold too much: publishers are not read until it is less.

What the gateway keeps grows where bytes come in faster than they leave: a broker that has stopped taking them, a rule that holds messages,
a client that does not read. Each connection has its own caps (`memory.per_connection`, one read of backlog per side, credit), and most of
the time they are all there is to it. But caps add up: ten thousand connections that each keep what they may are gigabytes. So there is a
mark for all of them (`memory.high_watermark`), and above it who puts messages in has to wait. Consumers go on: what goes to them leaves.

The naive way stops whoever holds something. Then a publisher that holds nothing yet is read once more, and holds a read of its own: the
mark is passed by as many reads as there are publishers. So all that have published on their connection are stopped, as RabbitMQ's memory
alarm does it, at the next frame boundary. AMQP clients that declared the capability are told `connection.blocked`; others see TCP stand
still.

Two traps. Where reading and stopping share one mark, a gateway at the mark stops and reads in turn, several times a second, and tells its
clients each time: so reading goes on only below four fifths of it. And who is not read cannot finish a frame it has begun: what was read of
incomplete frames (`Decode.undecoded`) does not leave by waiting, so it is not waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.event_loop.sweeper import Sweeper
    from gateway.session.shared import Shared

FIFTHS: Final = 4  # of the mark, of five: below that publishers are read again (a guess)


class MemoryWatch:
    """Looks at what all sessions hold, a few times a second, and stops or lets go those that publish. Times are monotonic ns."""

    def __init__(self, high_watermark: int, shared: Shared) -> None:
        self.high_watermark = high_watermark
        self.low_watermark = high_watermark * FIFTHS // 5
        self.shared = shared
        self.held = 0  # bytes, at the last look
        self.stopped = 0  # connections that are not read for it
        self._full_at = 0  # since when
        self._full_ns = 0  # all such times that are over

    @property
    def full(self) -> bool:
        return self.shared.memory_full

    def look(self, sweeper: Sweeper, now: int) -> bool:
        """Count and act; whether `full` has changed."""
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
        """How long memory has been full, so far: a counter."""
        return self._full_ns + (max(now - self._full_at, 0) if self.full else 0)

    def describe(self) -> dict[str, object]:
        return {"full": self.full, "held_bytes": self.held, "high_watermark": self.high_watermark, "stopped_connections": self.stopped}

    def __repr__(self) -> str:
        return f"<MemoryWatch {'full' if self.full else 'open'} {self.held}/{self.high_watermark} stopped={self.stopped}>"


def undecoded(sweeper: Sweeper) -> int:
    """Bytes of frames that are not complete."""
    sessions: list[Session] = list(sweeper.sessions.values())
    return sum(session.decode.undecoded() for session in sessions)
