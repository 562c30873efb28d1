"""Polls that a rule keeps here for a while.

They are no `Lines`. A send waits behind those of its key until it passes or is refused at the head; a poll has a client that goes away
at a time of its own, wherever in the line the poll stands. Of a key's polls only the one that has waited longest asks the judge, however
many queues the client has. It asks at least every 100 ms (`gateway/pipeline/actions/holding.py`), and those behind it whose time is over
are taken with it. A client that got an empty answer for a queue and asks again keeps its place (`Reservation.since`).

What it costs: POLL_OVERHEAD beside the request's own bytes, counted in `bytes`. Bound: as for `Lines`.
"""

from __future__ import annotations

from typing import Final

from gateway.pipeline.empties import NO_ENTRIES, put
from gateway.protocols.rocketmq.requests import Poll
from gateway.waiting.due_queue import DueLine, DueQueue
from limiter.keys import Key
from limiter.limits import NEVER

POLL_OVERHEAD: Final = 1096  # bytes: part 320, `Held` 72, reservation 96, its lists 112, terms 64, numbers 188, bytes object 33, places 208


class PollLine(DueLine):
    """One key's."""

    __slots__ = ("polls",)

    def __init__(self) -> None:
        super().__init__()
        self.polls: list[Poll] = []  # the one that has waited longest comes first

    def __repr__(self) -> str:
        return f"<PollLine {len(self.polls)}>"


class HeldPolls:
    """Polls that wait; `due_queue` says when the first is to be judged again, or answered."""

    __slots__ = ("_last_order", "bytes", "count", "due_queue", "lines")

    def __init__(self) -> None:
        self.bytes = 0
        self.count = 0
        self.lines: dict[Key, PollLine] = NO_ENTRIES  # a line is due while its first poll does not ask the judge
        self.due_queue = DueQueue()
        self._last_order = 0

    def hold(self, poll: Poll, due: int) -> None:
        """Keep `poll` until `due`, when it is to be judged again; behind another until that one has gone, or its own deadline."""
        key = poll.key
        assert key is not None
        poll.due = due
        if poll.order == 0:
            poll.copy_out()
            self._last_order += 1
            poll.order = self._last_order
        line = self.lines.get(key)
        if line is None:
            line = PollLine()
            self.lines = put(self.lines, key, line)
        place = len(line.polls)
        while place > 0 and waits_longer(poll, line.polls[place - 1]):
            place -= 1
        line.polls.insert(place, poll)
        if place == 0 or line.due_at == NEVER:
            self.due_queue.set_due(line, line.polls[0].due)
        self._count(poll, 1)

    def take_due(self, now: int, room: int) -> list[Poll]:
        """The first of each line whose time has come, and those behind it that have no more time; about `room`."""
        taken: list[Poll] = []
        due_queue = self.due_queue
        while due_queue.next_due <= now and len(taken) < room:
            line = due_queue.take()
            assert isinstance(line, PollLine)
            head = line.polls[0]
            leaving = [poll for poll in line.polls if poll is head or poll.deadline <= now]
            for poll in leaving:
                self._count(poll, -1)
            line.polls = [poll for poll in line.polls if poll is not head and poll.deadline > now]
            if not line.polls and head.key is not None:
                del self.lines[head.key]
            taken.extend(leaving)
        return taken

    def go_on(self, key: Key, now: int) -> None:
        """One of `key` has passed or was answered: if that was the first, the next asks now."""
        line = self.lines.get(key)
        if line is not None and line.due_at == NEVER:
            line.polls[0].due = now
            self.due_queue.set_due(line, now)

    def abandon(self) -> list[Poll]:
        """Everything held."""
        polls = [poll for line in self.lines.values() for poll in line.polls]
        self.lines.clear()
        self.due_queue.clear()
        self.bytes = 0
        self.count = 0
        return polls

    def longest(self) -> Poll | None:
        """The first of a line, for operators."""
        for line in self.lines.values():
            return line.polls[0]
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
