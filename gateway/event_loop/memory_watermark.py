"""The memory watermarks: when all connections together hold too much, those that add to it are not read until it is less.

What the gateway keeps grows where bytes come in faster than they leave: a broker that has stopped taking them, a rule that holds messages,
a client that does not read, a frame that is begun and not finished. Each connection has its own caps (`memory.per_connection`, one read of
backlog per side, credit), and most of the time they suffice. But caps add up: ten thousand connections that each keep what they may are
gigabytes. So there are two accounts, each with a mark:

* What **clients have sent** (`memory.high_watermark`, for all listeners): held messages, unfinished frames, what a broker does not take.
  Above the mark, publishers have to wait. Consumers go on: what goes to them leaves.
* What waits **for clients** (`memory.delivery_watermark`, for each listener): deliveries that are not read, or that a rule parks. Above
  the mark, the brokers of clients that do not read are not read. So one listener's consumers never stop anybody's publishers.

The naive way stops every connection that holds something. Then a publisher that holds nothing yet is read once more, and holds a read of
its own: the watermark is passed by as many reads as there are publishers. So all that have published on their connection are stopped at
the next frame boundary, as RabbitMQ's memory alarm does it. AMQP clients that declared the capability are told `connection.blocked`;
others see TCP stand still.

Three traps. With one watermark for stopping and reading on, a gateway at that mark does both in turn, several times a second, and tells
its clients each time. So reading goes on only below a low watermark, four fifths of the high one. A sum that is made four times a second
is late: loopback brings hundreds of megabytes in between. So it is also made whenever a part of the room that is left has been read. And a
connection that is not read cannot finish a frame it has begun, so unfinished frames do not leave by waiting: those nearest to their end are
read on, as many as fit. Those that have had their time are closed with a word why, the largest first, until there is room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.views.status import MemoryView
from gateway.admission import BY_MEMORY
from gateway.session.ending import send_close
from gateway.session.session import LARGE_FRAME_BYTES, Session
from gateway.session.states import CLOSING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.event_loop.sweeper import Sweeper
    from gateway.session.listener_config import ListenerConfig
    from gateway.session.shared import Shared

LOW_WATERMARK_FIFTHS: Final = 4  # of five; the share of the high watermark below which publishers are read again (a guess)
FINISH_NS: Final = 5_000_000_000  # for an unfinished frame that is read on while memory is full, to be finished (a guess)
STOPPED_NS: Final = 10_000_000_000  # for one that is not read meanwhile, until memory is less: others wait for it (a guess)
ROOM_SHARE: Final = 16  # of the high watermark: so far beyond it frames may be finished, and after so much read it is looked at (a guess)
MIN_CHECK_BYTES: Final = 1 << 20  # read between two looks


class MemoryWatermark:
    """Sums up what all sessions hold, a few times a second, and stops, releases or closes them. Times are monotonic ns."""

    def __init__(self, high_watermark: int, shared: Shared, delivery_watermark: int | None = None) -> None:
        self.delivery_watermark = high_watermark
        self.take_watermarks(high_watermark, high_watermark if delivery_watermark is None else delivery_watermark)
        self.shared = shared
        self.listener_configs: list[ListenerConfig] = []  # whose deliveries are summed up
        self.pressed = False  # the process is near the limit of its memory, whatever is held (`memory_limit.py`)
        self.held = 0  # bytes from clients, at the last check
        self.deliveries = 0  # bytes for clients, at the last check
        self.stopped = 0  # connections that are not read because of it
        self.closed = 0  # connections that were closed because of it
        self._full_at = 0  # when it became full
        self._full_ns = 0  # full times that are over

    def take_watermarks(self, high_watermark: int, delivery_watermark: int) -> None:
        """They hold from the next check on."""
        self.high_watermark = high_watermark
        self.low_watermark = high_watermark * LOW_WATERMARK_FIFTHS // 5
        self.delivery_watermark = delivery_watermark

    @property
    def full(self) -> bool:
        return self.shared.memory_full

    def check(self, sweeper: Sweeper, now: int) -> bool:
        """Sum up and act; whether `full` has changed."""
        shared = self.shared
        before = shared.memory_full
        for config in self.listener_configs:
            config.delivery_bytes = 0
        self.held = sweeper.sum_up()
        freed = self._check_deliveries()
        full = self.pressed or self.held >= (self.low_watermark if before else self.high_watermark)
        if full != before:
            shared.memory_full = full
            if full:
                self._full_at = now
            else:
                self._full_ns += now - self._full_at
        if full or before:
            self._hold_back(sweeper, yes=full)
        if full:
            self._see_to_unfinished(sweeper, now)
        share = self.high_watermark // ROOM_SHARE
        sweeper.check_after_bytes = max(MIN_CHECK_BYTES, share if full else min((self.high_watermark - self.held) // 2, share))
        shared.unchecked_bytes = 0
        if full != before or freed:
            sweeper.poke_all()
        return full != before

    def _check_deliveries(self) -> bool:
        """Whether a listener's deliveries have become few enough to be read again."""
        freed = False
        self.deliveries = 0
        for config in self.listener_configs:
            self.deliveries += config.delivery_bytes
            mark = self.delivery_watermark * LOW_WATERMARK_FIFTHS // 5 if config.deliveries_full else self.delivery_watermark
            full = self.pressed or config.delivery_bytes >= mark
            freed = freed or (config.deliveries_full and not full)
            config.deliveries_full = full
        return freed

    def _hold_back(self, sweeper: Sweeper, *, yes: bool) -> None:
        self.stopped = 0
        for session in sweeper.sessions.values():
            budget = session.budget
            if budget.held_back != yes and (not yes or session.decode.publishes):
                budget.hold_back(yes=yes)
                sweeper.wake(session)
            if not yes:
                session.full_due = 0
            self.stopped += budget.held_back

    def _see_to_unfinished(self, sweeper: Sweeper, now: int) -> None:
        """Memory is full. Let frames be finished that fit, or one of them; stop the others. Close those that have had their time."""
        room = self.high_watermark + self.high_watermark // ROOM_SHARE - self.held
        unfinished = [session for session in open_sessions(sweeper.sessions.values()) if unfinished_bytes(session) > 0]
        # Small ones matter only where they are what keeps it full: not where it is `pressed`, nor where enough is held without them.
        if self.held < self.low_watermark or self.held - sum(map(unfinished_bytes, unfinished)) >= self.low_watermark:
            unfinished = [session for session in unfinished if unfinished_bytes(session) >= LARGE_FRAME_BYTES]
        unfinished.sort(key=missing_bytes)
        for at, session in enumerate(unfinished):
            room -= max(missing_bytes(session), LARGE_FRAME_BYTES)  # a small one is followed by others until the next look
            goes_on = at == 0 or room >= 0
            if session.budget.held_back == goes_on:
                session.budget.hold_back(yes=not goes_on)
                self.stopped += -1 if goes_on else 1
                sweeper.wake(session)
            due = now + (FINISH_NS if goes_on else STOPPED_NS)
            session.full_due = min(session.full_due or due, due)
        for session in sorted(unfinished, key=unfinished_bytes, reverse=True):
            if session.full_due <= now and self.held >= self.low_watermark:
                self.held -= session.decode.undecoded()
                self.close(session, now)
                sweeper.wake(session)

    def close(self, session: Session, now: int) -> None:
        """Close a session for the sake of the others."""
        self.closed += 1
        kept = session.buffered()
        words = f"this gateway is short of memory (memory.high_watermark), and this connection keeps {kept} bytes of it; try again later"
        send_close(session, words, BY_MEMORY, now)

    def close_largest(self, sweeper: Sweeper, now: int) -> bool:
        """Close the session that keeps most, where that is worth it; whether there was one."""
        largest = max(open_sessions(sweeper.sessions.values()), key=Session.buffered, default=None)
        if largest is None or largest.buffered() < LARGE_FRAME_BYTES:
            return False
        self.close(largest, now)
        sweeper.wake(largest)
        return True

    def full_ns(self, now: int) -> int:
        """For how long memory has been full so far: a counter."""
        return self._full_ns + (max(now - self._full_at, 0) if self.full else 0)

    def describe(self) -> MemoryView:
        return MemoryView(
            full=self.full,
            held_bytes=self.held,
            high_watermark=self.high_watermark,
            stopped_connections=self.stopped,
            delivery_bytes=self.deliveries,
        )

    def __repr__(self) -> str:
        return f"<MemoryWatermark {'full' if self.full else 'open'} {self.held}/{self.high_watermark} stopped={self.stopped}>"


def open_sessions(sessions: Iterable[Session]) -> list[Session]:
    return [session for session in sessions if session.state < CLOSING]


def unfinished_bytes(session: Session) -> int:
    """Bytes of an incomplete frame of the client's."""
    return 0 if session.decode.pending else session.decode.undecoded()


def missing_bytes(session: Session) -> int:
    """Bytes that the frame under way still lacks."""
    return max(session.conversation.need - session.decode.undecoded(), 0)
