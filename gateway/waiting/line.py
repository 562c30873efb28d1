"""A line: parts that wait in order, because a limit holds the first of them.

What a line is, the protocol says: in AMQP all of a channel, in RocketMQ the sends of one key. A refused part that nobody can be told of can
only wait, and all that comes behind it in its line must wait behind it, or order would be lost. So at any time outside a batch: either
nothing is held, or the first held part is a request without a verdict, due at its time, or something that the protocol makes due itself.

A batch takes requests from the front (`take`). While they are away with the judge, `taken` counts them. The first of them that must wait
again makes the others come back behind it, in order (`returned`), those with a verdict as `paid`.

Where a rule pages, only the first are in `parts`. The rest waits in the line's `PagedQueue` (`paged`), on disk if it is much.
"""

from __future__ import annotations

from typing import Final

from gateway.pipeline.empties import NO_ITEMS
from gateway.pipeline.parts import REQUEST, Part
from gateway.waiting.disk.queue import PagedQueue
from gateway.waiting.due_queue import DueLine
from limiter.keys import Key
from limiter.limits import NEVER

FIRST_PAUSE_NS: Final = 100_000_000  # 0.1 s; what a requeue over its limit waits at most before it is judged again; a guess


class Line(DueLine):
    """One connection's, of one name. `Lines` keeps those in which something waits."""

    __slots__ = ("last_key", "name", "paged", "paged_answers", "parts", "pause_ns", "refill_at", "returned", "taken", "turn")

    def __init__(self, name: object) -> None:
        super().__init__()
        self.name = name  # the protocol's: what has an order
        self.last_key: Key | None = None  # of what came last, where all of a line have one
        self.parts: list[Part] = []  # held; the first comes next
        self.taken = 0  # held parts that are with the judge
        self.returned: list[Part] = NO_ITEMS
        self.paged: PagedQueue | None = None  # what waits behind `parts`, once a rule that pages has held something
        self.refill_at = 0  # so many of `parts` are left when more is taken out of `paged`
        self.paged_answers: list[Part] = NO_ITEMS  # in `paged`: what is answered even when all is given up (`Lines.is_answered`)
        self.turn = 0  # among the connection's lines: the lowest comes first
        self.pause_ns = 0  # which it has made last, beyond what its limit asks for

    def waits(self) -> bool:
        """Whether what is settled now must go behind something else."""
        return len(self.returned) > 0 if self.taken else len(self.parts) > 0 or self.pages()

    def pages(self) -> bool:
        """Whether something waits in `paged`."""
        return self.paged is not None and not self.paged.empty()

    def idle(self) -> bool:
        """Whether nothing of it waits, nor is with the judge."""
        return not (self.parts or self.taken or self.pages())

    def due(self) -> int:
        """When the first held part is to be judged again."""
        return self.parts[0].begin_hold().due if self.parts else NEVER

    def pause(self, most_ns: int) -> int:
        """How long (ns) what meets its limit now waits beyond what that asks for: twice as long as the last time, up to `most_ns`. Behind
        another not at all: that one pauses."""
        if self.waits():
            return 0
        self.pause_ns = min(max(2 * self.pause_ns, FIRST_PAUSE_NS), most_ns)
        return self.pause_ns

    def take(self, now: int, room: int, parts: list[Part]) -> int:
        """Take what stands at the front and whose time has come, about `room` requests; returns what is left of the room."""
        held = self.parts
        while held and room > 0:
            part = held[0]
            due = part.begin_hold().due
            if due > now or (due == 0 and (part.kind != REQUEST or part.paid)):
                break
            alone = self.goes_alone(part)
            if alone and self.taken > 0:
                break
            held.pop(0)
            parts.append(part)
            self.taken += 1
            room -= part.count
            if alone:
                break
        return room

    def goes_alone(self, part: Part) -> bool:
        """Whether `part` is judged by itself: of very many that are not alike, only the first has a chance, and each costs a verdict."""
        return False

    def forget_held(self) -> list[Part]:
        """Let go of all held parts: returns them. Requests that are away with the judge stay `taken`."""
        parts = self.returned + self.parts
        self.returned.clear()
        self.parts.clear()
        return parts

    def __repr__(self) -> str:
        return f"<Line {self.name} held={len(self.parts)} taken={self.taken}>"
