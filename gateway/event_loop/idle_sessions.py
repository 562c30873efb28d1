"""Sessions at rest, which the loop's ticks need not look at.

Looking at each session four times a second costs 0.2 to 0.5 µs each time, and a look that finds nothing still fetches a session from
memory: 9,500 idle ones are 1 to 2 % of a core, for nothing. So who has nothing held, queued or under way tells until when nothing can
become due there (`session_clock.rest`) and is put into the slot of that time; it leaves by whatever happens to it, or when the slot is
over. What it keeps in memory cannot change meanwhile and is counted once.
"""

from __future__ import annotations

from typing import Final

from gateway.session.session import Session

SLOT_NS: Final = 250_000_000  # of one list; who rests into it is looked at when it is over, one tick late at most


class Resting:
    """Who is at rest, and until when. Times are monotonic ns."""

    def __init__(self) -> None:
        self.buffered = 0  # bytes all of them keep
        self._slots: dict[int, list[int]] = {}  # session numbers by the slot's number; those that have left since are still there

    def enter(self, session: Session, until: int) -> None:
        session.resting_bytes = session.buffered()
        session.rests_until = until
        self.buffered += session.resting_bytes
        slot = until // SLOT_NS
        numbers = self._slots.get(slot)
        if numbers is None:
            self._slots[slot] = [session.number]
        else:
            numbers.append(session.number)

    def leave(self, session: Session) -> None:
        session.rests_until = 0
        self.buffered -= session.resting_bytes

    def take_due(self, now: int) -> list[int]:
        """The numbers of sessions whose rest may be over; who has left or been put off since is among them."""
        current = now // SLOT_NS
        due: list[int] = []
        for slot in [slot for slot in self._slots if slot <= current]:
            due += self._slots.pop(slot)
        return due

    def __repr__(self) -> str:
        return f"<Resting {len(self._slots)} slots, {self.buffered} bytes>"
