"""Polls that a rule keeps here for a while.

They are no `HeldSends`: a send waits behind those of its key until it passes or is refused at the head; a poll has a client that goes away
at a time of its own, wherever in the line it stands. Of a key's polls only the one that has waited longest asks the judge, however many
queues the client has; it asks at least every 100 ms (`gateway/pipeline/actions/holding.py`), and those behind it whose time is over are
taken with it. Who asks again for a queue for which it was answered empty-handed keeps its place (`Reservation.since`).

What it costs: POLL_OVERHEAD beside the request's own bytes, counted in `bytes`. Bound: as for `HeldSends`.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from gateway.pipeline.parts import NEVER
from gateway.protocols.rocketmq.requests import Poll
from limiter.keys import Key

POLL_OVERHEAD: Final = 1000  # bytes: part 248, reservation 96 with its lists 112, terms 64, numbers 160, bytes object 33, places 210


class HeldPolls:
    """Polls that wait; `next_due` says when the first is to be judged again, or answered."""

    __slots__ = ("bytes", "count", "heads", "heap", "last_order", "lines", "next_due")

    def __init__(self) -> None:
        self.bytes = 0
        self.count = 0
        self.next_due = NEVER
        self.lines: dict[Key, list[Poll]] = {}  # the one that has waited longest comes first
        self.heads: dict[int, Poll] = {}  # by order: the first of each line
        self.heap: list[tuple[int, int]] = []  # (due, order) of heads, and of what no longer is one
        self.last_order = 0

    def hold(self, poll: Poll, due: int) -> None:
        """Keep `poll` until `due`, when it is to be judged again; behind another until that one has gone, or its own deadline."""
        key = poll.key
        assert key is not None
        poll.due = due
        if poll.order == 0:
            poll.copy_out()
            self.last_order += 1
            poll.order = self.last_order
        line = self.lines.get(key)
        if line is None:
            line = []
            self.lines[key] = line
        place = len(line)
        while place > 0 and waits_longer(poll, line[place - 1]):
            place -= 1
        if place == 0 and line:
            self.heads.pop(line[0].order, None)
        line.insert(place, poll)
        if line[0].order not in self.heads:
            self._lead(line[0])
        self._count(poll, 1)
        self._refresh()

    def take_due(self, now: int, room: int) -> list[Poll]:
        """The first of each line whose time has come, and those behind it that have no more time; about `room`."""
        taken: list[Poll] = []
        while self.next_due <= now and len(taken) < room:
            head = self.heads.pop(heappop(self.heap)[1])
            key = head.key
            assert key is not None
            line = self.lines[key]
            leaving = [poll for poll in line if poll is head or poll.deadline <= now]
            for poll in leaving:
                self._count(poll, -1)
            if len(leaving) == len(line):
                del self.lines[key]
            else:
                self.lines[key] = [poll for poll in line if poll is not head and poll.deadline > now]
            taken.extend(leaving)
            self._refresh()
        return taken

    def go_on(self, key: Key, now: int) -> None:
        """One of `key` has passed or was answered: if that was the first, the next asks now."""
        line = self.lines.get(key)
        if line and line[0].order not in self.heads:
            line[0].due = now
            self._lead(line[0])
            self._refresh()

    def abandon(self) -> list[Poll]:
        """Everything held."""
        polls = [poll for line in self.lines.values() for poll in line]
        self.lines.clear()
        self.heads.clear()
        self.heap.clear()
        self.bytes = 0
        self.count = 0
        self.next_due = NEVER
        return polls

    def longest(self) -> Poll | None:
        """The first of a line, for operators."""
        for line in self.lines.values():
            return line[0]
        return None

    def _lead(self, poll: Poll) -> None:
        self.heads[poll.order] = poll
        heappush(self.heap, (poll.due, poll.order))

    def _refresh(self) -> None:
        """Drop entries of polls that no longer lead their line, and say when the next is due."""
        heap = self.heap
        while heap:
            due, order = heap[0]
            poll = self.heads.get(order)
            if poll is not None and poll.due == due:
                self.next_due = due
                return
            heappop(heap)
        self.next_due = NEVER

    def _count(self, poll: Poll, sign: int) -> None:
        self.bytes += sign * (poll.end - poll.start + POLL_OVERHEAD)
        self.count += sign

    def __repr__(self) -> str:
        return f"<HeldPolls {self.count} of {len(self.lines)} keys, {self.bytes} bytes>"


def waits_longer(one: Poll, other: Poll) -> bool:
    """Whether the queue of `one` has waited longer than that of `other`."""
    since = one.since()
    return since < other.since() or (since == other.since() and one.order < other.order)
