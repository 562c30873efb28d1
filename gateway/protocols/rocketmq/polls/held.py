"""Polls that a rule keeps here for a while.

They are no `HeldSends`. A send waits behind those of its key until it passes or is refused at the head; a poll has a client that goes away
at a time of its own, wherever in the line the poll stands. Of a key's polls only the one that has waited longest asks the judge, however
many queues the client has. It asks at least every 100 ms (`gateway/pipeline/actions/holding.py`), and those behind it whose time is over
are taken with it. A client that got an empty answer for a queue and asks again keeps its place (`Reservation.since`).

What it costs: POLL_OVERHEAD beside the request's own bytes, counted in `bytes`. Bound: as for `HeldSends`.
"""

from __future__ import annotations

from typing import Final

from gateway.protocols.due_queue import DueQueue
from gateway.protocols.rocketmq.requests import Poll
from limiter.keys import Key

POLL_OVERHEAD: Final = 1016  # bytes: part 264, reservation 96 with its lists 112, terms 64, numbers 160, bytes object 33, places 210


class HeldPolls:
    """Polls that wait; `due_queue` says when the first is to be judged again, or answered."""

    __slots__ = ("bytes", "count", "due_queue", "lines")

    def __init__(self) -> None:
        self.bytes = 0
        self.count = 0
        self.lines: dict[Key, list[Poll]] = {}  # the one that has waited longest comes first
        self.due_queue = DueQueue()

    def hold(self, poll: Poll, due: int) -> None:
        """Keep `poll` until `due`, when it is to be judged again; behind another until that one has gone, or its own deadline."""
        key = poll.key
        assert key is not None
        poll.due = due
        if poll.order == 0:
            poll.copy_out()
            self.due_queue.number(poll)
        line = self.lines.get(key)
        if line is None:
            line = []
            self.lines[key] = line
        place = len(line)
        while place > 0 and waits_longer(poll, line[place - 1]):
            place -= 1
        if place == 0 and line:
            self.due_queue.give_way(line[0])
        line.insert(place, poll)
        if not self.due_queue.leads(line[0]):
            self.due_queue.lead(line[0])
        self._count(poll, 1)

    def take_due(self, now: int, room: int) -> list[Poll]:
        """The first of each line whose time has come, and those behind it that have no more time; about `room`."""
        taken: list[Poll] = []
        due_queue = self.due_queue
        while due_queue.next_due <= now and len(taken) < room:
            head = due_queue.take()
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
        return taken

    def go_on(self, key: Key, now: int) -> None:
        """One of `key` has passed or was answered: if that was the first, the next asks now."""
        line = self.lines.get(key)
        if line and not self.due_queue.leads(line[0]):
            line[0].due = now
            self.due_queue.lead(line[0])

    def abandon(self) -> list[Poll]:
        """Everything held."""
        polls = [poll for line in self.lines.values() for poll in line]
        self.lines.clear()
        self.due_queue.clear()
        self.bytes = 0
        self.count = 0
        return polls

    def longest(self) -> Poll | None:
        """The first of a line, for operators."""
        for line in self.lines.values():
            return line[0]
        return None

    def _count(self, poll: Poll, sign: int) -> None:
        self.bytes += sign * (poll.end - poll.start + POLL_OVERHEAD)
        self.count += sign

    def __repr__(self) -> str:
        return f"<HeldPolls {self.count} of {len(self.lines)} keys, {self.bytes} bytes>"


def waits_longer(one: Poll, other: Poll) -> bool:
    """Whether the queue of `one` has waited longer than that of `other`."""
    since = one.since()
    return since < other.since() or (since == other.since() and one.order < other.order)
