"""Held sends: requests of one connection that wait for their limit.

Only the request that was refused waits; other keys on the connection pass it by. Within a key it is first come, first served: a later send
that the judge lets pass goes behind the held ones, already paid for, or an asynchronous producer would see its messages swapped.
A part keeps its place (`order`) when it is judged again and refused again.

Where a rule spools a key's one-way sends, only the first of them are in its line; those behind wait in the key's `SpoolQueue`, on disk if
it is much, and come into the line when that is empty.

What it costs: one heap entry (`due_queue.py`) and one list per key that waits, and each part its objects. These are counted in `bytes`
(PART_OVERHEAD), or many small sends would take several times their budget. Bound: the session stops reading its client at `hold_bytes`,
so at most that, one read and one batch frame wait here.
"""

from __future__ import annotations

from typing import Final

from gateway.pipeline.parts import Part
from gateway.protocols.due_queue import DueQueue
from gateway.protocols.rocketmq.requests import Sends, restored
from gateway.spool.queue import SpoolQueue
from limiter.keys import Key
from limiter.limits import NEVER

PART_OVERHEAD: Final = 640  # bytes: part 180, opaques 100, bytes object 33, list 90, two dictionary entries 170, heap entry 70 (getsizeof)


class HeldSends:
    """Sends that wait, in one line for each key; `due_queue` says when the first may be judged again."""

    __slots__ = ("blocking", "bytes", "due_queue", "emptied", "lines", "messages", "spooled", "spooled_messages")

    def __init__(self) -> None:
        self.bytes = 0
        self.messages = 0
        self.blocking = 0  # parts for whose sake the client is not read
        self.lines: dict[Key, list[Sends]] = {}
        self.due_queue = DueQueue()
        self.spooled: dict[Key, SpoolQueue] = {}  # of keys whose one-way sends are spooled, while something of them waits
        self.spooled_messages = 0  # in these queues, beyond `messages`
        self.emptied: list[Key] = []  # of these: those whose line may go on with what is next in the queue

    def hold(self, part: Sends, due: int, *, blocking: bool) -> None:
        """Keep `part` in its place among its key's; its turn comes at `due`, or when those before it have gone."""
        part.copy_out()
        part.due = due
        part.blocking = blocking
        self._insert(part)

    def goes_behind(self, part: Sends) -> bool:
        """Whether `part`, which may pass, would overtake a held one of its key."""
        key = part.key
        assert key is not None
        line = self.lines.get(key)
        return line is not None and (part.order == 0 or part.order > line[0].order)

    def hold_behind(self, part: Sends, *, paid: bool = True) -> None:
        """Keep `part`, judged and passed, until those before it have gone; not `paid`: then it is judged again."""
        part.copy_out()
        self.begin_wait(part)
        part.paid = paid
        part.due = NEVER if paid else 0
        self._insert(part)

    def take_due(self, now: int, room: int) -> list[Sends]:
        """Take the first of each key whose time has come and what may follow at once; about `room` requests that are to be judged.

        All that was taken before is settled by now.
        """
        taken: list[Sends] = []
        if self.emptied:
            emptied = self.emptied
            self.emptied = []
            for each in emptied:
                self._refill(each)
        due_queue = self.due_queue
        requests = 0
        while due_queue.next_due <= now and requests < room:
            key = due_queue.take().key
            assert key is not None
            line = self.lines[key]
            while line and (line[0].paid or (line[0].due <= now and requests < room)):
                part = line.pop(0)
                taken.append(part)
                self._count(part, -1)
                if not part.paid:
                    requests += part.count
            if line:
                due_queue.lead(line[0])
            else:
                del self.lines[key]
                if key in self.spooled:
                    self.emptied.append(key)
        return taken

    def spool(self, part: Sends) -> None:
        """Keep `part`, not judged, behind all that waits of its key."""
        key = part.key
        assert key is not None
        part.copy_out()
        queue = self.spooled[key]
        queue.budget.held_bytes += held_cost(part)
        self.spooled_messages += part.count * part.messages
        queue.add(part)

    def _refill(self, key: Key) -> None:
        """Take what is next out of the key's spool into its line, if that is empty; what is on disk comes when it was read."""
        queue = self.spooled.get(key)
        if queue is None or key in self.lines:  # the line's parts were refused again
            return
        for part in queue.take():
            sends = part if isinstance(part, Sends) else restored(part)
            queue.budget.held_bytes -= held_cost(sends)
            self.spooled_messages -= sends.count * sends.messages
            sends.due = 0
            self._insert(sends)
        if key not in self.lines and queue.empty():
            del self.spooled[key]
        else:
            queue.read_next()

    def begin_spool(self, key: Key, queue: SpoolQueue) -> None:
        """What comes of `key` waits in `queue`, behind what is held of it."""
        self.spooled[key] = queue
        for part in self.lines.get(key, ()):
            queue.waiting.begin(part)

    def begin_wait(self, part: Sends) -> None:
        """`part` waits in the spool, if what is held of its key does."""
        assert part.key is not None
        queue = self.spooled.get(part.key)
        if queue is not None:
            queue.waiting.begin(part)

    def forget_verdicts(self) -> None:
        """As `Conversation.limits_changed`."""
        for key, queue in self.spooled.items():
            for part in self.lines.get(key, ()):
                if part.paid:
                    part.forget_verdict()
                    part.due = 0  # once those before it have gone
            queue.forget_verdicts()

    def abandon(self) -> list[Part]:
        """Everything held, in the order it came; of what is spooled one part a key, without bytes."""
        sends = [part for line in self.lines.values() for part in line]
        sends.sort(key=order_of)
        parts: list[Part] = list(sends)
        for queue in self.spooled.values():
            parts.extend(queue.forget())
        self.spooled.clear()
        self.emptied = []
        self.spooled_messages = 0
        self.lines.clear()
        self.due_queue.clear()
        self.bytes = 0
        self.messages = 0
        self.blocking = 0
        return parts

    def _insert(self, part: Sends) -> None:
        key = part.key
        assert key is not None
        self.due_queue.number(part)
        self._count(part, 1)
        line = self.lines.get(key)
        if line is None:
            line = []
            self.lines[key] = line
        place = len(line)
        while place > 0 and line[place - 1].order > part.order:
            place -= 1
        if place == 0:
            if line:
                self.due_queue.give_way(line[0])
            self.due_queue.lead(part)
        line.insert(place, part)

    def _count(self, part: Sends, sign: int) -> None:
        self.bytes += sign * held_cost(part)
        self.messages += sign * part.count * part.messages
        if part.blocking:
            self.blocking += sign

    def __repr__(self) -> str:
        return f"<HeldSends {self.messages} messages, {self.bytes} bytes, {len(self.lines)} keys>"


def held_cost(part: Part) -> int:
    """Bytes of memory a held part takes."""
    return part.end - part.start + PART_OVERHEAD


def order_of(part: Sends) -> int:
    return part.order
