"""SpoolQueue: parts that wait behind others of their ordering key, in order; what does not fit into memory is on disk.

::

      taken out ◄── stored (on disk, oldest first) ◄── writing (on its way there) ◄── tail (in memory) ◄── added

Four stages in RabbitMQ's queues keep more and more of a message on disk: alpha all in memory, beta and gamma the content on disk and the
place in memory, delta both. Here there are two. A record on disk needs no place in memory, since it is read in order and the protocol finds
its key again from its bytes. So what waits costs memory per batch (some 256 KiB), not per message.

A short burst never touches the disk: a batch is written once `tail` is as large as the queue's share of `spool.memory`, and what is still
in memory when its turn comes is taken from there, written or not. A batch ends where a frame ends.

Where a rule is `durable` and the sender is never told what has arrived, parts are written at once, and one batch is on its way while the
next one gathers: the disk sets the size of batches, not the sender's pace. Such a batch stays in its file until the broker's machine has
what is in it (`mark_off`), and what is left in the end is an `Orphan`, to be replayed. So a message is in a file from its commit until
nobody here can lose it any more, and the position in the file stands between two messages.

Everything here is called on the event loop. The budget's `held_bytes` counts what is in memory, `spooled_bytes` what is on disk only, and
`held_messages` (which is not changed here) both.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.clock import now_ns
from gateway.pipeline.held_budget import HeldBudget
from gateway.pipeline.parts import BODY, PLAIN, REQUEST, Part
from gateway.pipeline.spool_orders import COPYING, PREVIEW, SpoolOrder
from gateway.spool.batches import Batch, KeyWaiting, Segment, WaitingBatch
from gateway.spool.disk import DELETE, MARK, READ, WRITE, Job, Orphan, SpoolDisk
from gateway.spool.durable import CLOCK, SUFFIX, head_of
from gateway.spool.records import BATCH, RECORD, DamagedError, decode_all, encode
from gateway.spool.removal_writer import RemovalWriter
from gateway.spool.removals import Range, place_of
from limiter.keys import Key
from limiter.limits import NEVER
from limiter.rules.rule import Rule

ENDLESS: Final = 1 << 62  # bytes; a rule without a size of its own
# Until a broker has read what its machine has, also one that is slow for a moment: longer than a drain gives a broker that does not answer
# its close (`gateway/lifecycle/drain.py`, RELEASE_S and CLOSE_S). A crash repeats what was forwarded in that time.
READ_NS: Final = 5_000_000_000
SEGMENT_BYTES: Final = 16 << 20  # after which a new file begins; a file is deleted as a whole, when all of it was read (a guess)


class SpoolQueue:
    """One ordering key's, of one connection."""

    def __init__(
        self,
        disk: SpoolDisk,
        budget: HeldBudget,
        connection: int,
        ordering_key: int,
        key_of: Callable[[bytes], Key | None],
        cost_of: Callable[[Part], int],
        on_ready: Callable[[], None],
        origin: dict[str, str] | None = None,
        unmarked_queues: list[SpoolQueue] | None = None,
    ) -> None:
        self.disk = disk
        self.budget = budget
        self.connection = connection  # its number: the loop wakes its session when a job is done
        self.ordering_key = ordering_key
        self.key_of = key_of
        self.cost_of = cost_of  # bytes of memory a held part takes
        self.on_ready = on_ready  # called when `take` has something again
        self.damage = ""  # why the parts that follow are lost; nothing is taken out any more
        self.waiting: dict[str, KeyWaiting] = {}  # what waits here, by the text its key had when it came: rules change, and keys with them
        self.tail_counts: dict[str, KeyWaiting] = {}  # of `tail`
        self.read_counts: dict[str, KeyWaiting] = {}  # of `read_ahead`
        self.tail: list[Part] = []
        self.tail_cost = 0
        self.tail_size = BATCH.size
        self.within_frame = False  # the last part added ends within a frame: the next one goes where it went
        self.writing: deque[Batch] = deque()
        self.stored: deque[Batch] = deque()
        self.reading: Batch | None = None
        self.read_job: Job | None = None  # of `reading`
        self.read_ahead: list[Part] = []  # read, not yet taken out
        self.segment: Segment | None = None  # that is being written
        self.waits_for_room = False
        self.rule = ""  # that spools what stands first here
        self.rule_bytes = ENDLESS  # that it may have on disk, over all queues
        self.max_age_ns = NEVER  # how long a message may wait
        self.accepts = False  # the gateway answers what it spools (RocketMQ)
        self.drop_expired = False  # nor longer than it says itself
        self.messages_added = 0  # messages, ever
        self.messages_gone = 0  # of these, taken out or given up
        self.last_place = -1  # of the request added last, among those added; -1: none was
        self.last_complete = True  # whether its message has come whole
        self.orders: list[SpoolOrder] = []  # of an operator, for messages before their `place` among those added
        # Of durable messages:
        self.durable = False  # the rule that spools what stands first is
        self.replays = True  # what comes now is of a sender that is never told what has arrived
        self.origin = origin or {}  # whose messages these are, for the replay
        self.unmarked_queues: list[SpoolQueue] = [] if unmarked_queues is None else unmarked_queues  # of the connection: this one, too
        self.tail_durable = False
        self.inside = 0  # bytes of the parts that wait here
        self.came = 0  # bytes of parts that were held on this channel so far
        self.gone = 0  # and bytes of those that are settled
        self.in_flight = 0  # durable batches on their way to the disk
        self.kept = 0  # durable batches that are not marked off
        self.unmarked: deque[Batch] = deque()  # durable ones that were taken out, and are not marked off
        self.handed = -1  # bytes the broker's machine must have, until all before `handed_gone` is safe; -1: nothing is looked for
        self.handed_at = 0  # monotonic ns
        self.handed_gone = 0
        self.passed = 0  # all before it is safe, as `gone` counts
        self.given_up = False  # the channel is closed
        self.left = False  # the connection is over
        self.removals = RemovalWriter(disk, self)
        self.copies = 0  # that are being made of what waits here: its files stay until they are over

    # ---- in and out ------------------------------------------------------------------------------------------------

    def empty(self) -> bool:
        """Whether nothing waits here. Parts that go past an empty queue keep their order."""
        return not (self.tail or self.writing or self.stored or self.reading is not None or self.read_ahead)

    def add(self, part: Part) -> None:
        """Put `part`, which owns its bytes (`copy_out`), at the end."""
        if self.empty():
            self.last_complete = True
            self.disk.queues += 1
            self.budget.spool_queues += 1
        self.tail.append(part)
        self.tail_cost += self.cost_of(part)
        self.tail_size += RECORD.size + part.end - part.start
        self.inside += part.end - part.start
        self.within_frame = part.kind == BODY and part.size > 0
        if part.kind == REQUEST:
            self.last_place = self.messages_added
        if part.kind != PLAIN:
            self.last_complete = part.complete
        self._count_in(part)
        part.replays = self.durable and self.replays
        if part.replays:
            self.tail_durable = True
        if self.tail_cost >= self.disk.share() or (self.tail_durable and self.in_flight == 0):
            self.write_tail()

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes more than what waits in memory can be written, as far as can be told."""
        return not (self.disk.trouble or self.waits_for_room) and self.disk.room_for(self.tail_size + size, self.rule, self.rule_bytes)

    def write_through(self, part: Part) -> None:
        """Write `part`, which stands before all that waits here and stays in memory, where that is durable."""
        if not self.durable or not self.replays:
            return
        part.replays = True
        size = BATCH.size + RECORD.size + part.end - part.start
        if self.disk.room_for(size, self.rule, self.rule_bytes):
            batch = self._write([part], 0, size, {}, durable=True)
            batch.taken = True
            self.unmarked.append(batch)

    def take_rule(self, rule: Rule) -> None:
        """`rule` spools what stands first: its bounds hold for what comes from now on."""
        self.rule = rule.name
        self.rule_bytes = ENDLESS if rule.spool_size is None else rule.spool_size
        self.max_age_ns = NEVER if rule.max_age_ns is None else rule.max_age_ns
        self.drop_expired = rule.drop_expired
        if rule.durable:
            self.durable = True  # also for what stands behind, whatever its own rule is
        elif self.empty() and not self.unmarked:
            self.durable = False

    def take(self) -> list[Part]:
        """The parts whose turn is next, or none: where they are on disk they are read now, and then `on_ready` is called."""
        parts: list[Part] = []
        if self.damage:
            return parts
        if self.read_ahead:
            parts = self.read_ahead
            counts = self.read_counts
            self.read_ahead = []
        elif self.reading is not None:
            return parts
        elif self.stored:
            self._read_next()
            return parts
        elif self.writing or (self.tail_durable and self._write_tail()):
            batch = self.writing.popleft()
            parts = batch.parts
            counts = batch.counts
            batch.taken = True
            batch.parts = batch.job.parts = []
            if batch.durable:
                self.unmarked.append(batch)
            else:
                batch.job.cancelled = True  # where it has not begun; what is written of it is not read
                self._consume(batch)
        else:
            parts = self.tail
            counts = self.tail_counts
            self.within_frame = False  # what continues this frame follows it, past this queue
            self._begin_tail()
        if self.orders:
            self._mark_ordered(parts)
        self._count_out(counts)
        for part in parts:
            self.inside -= part.end - part.start
        if parts and self.empty():
            self._end_use()
        return parts

    def read_next(self) -> None:
        """Begin to read what is next, if that is on disk, before it is asked for."""
        if self.stored and self.reading is None and not self.read_ahead and not self.damage:
            self._read_next()

    def forget(self) -> list[Part]:
        """Give up all that waits here: its messages, one part for each key, without bytes. `AmqpChannel` keeps what else must be known.

        Durable batches stay on disk. After them the queue takes nothing more.
        """
        if self.tail_durable:
            self._write_tail()
        if self.unmarked or self.in_flight:
            self.given_up = True
        if self.empty():
            return []
        parts: list[Part] = []
        for text, waiting in self.waiting.items():
            parts.append(Part(REQUEST, self.ordering_key, b"", 0, 0, waiting.key, waiting.messages, 1))
            self.disk.count(waiting.key.origin.protocol, text, -waiting.messages, -waiting.bytes)
        self.waiting = {}
        self.messages_gone = self.messages_added
        self.orders = []
        for batch in self.stored:
            self.budget.spooled_bytes -= batch.size
        for batch in self.writing:
            batch.job.cancelled = not batch.durable
            batch.taken = True
            batch.parts = batch.job.parts = []
            self.budget.held_bytes -= batch.cost
        if self.reading is not None:
            self.budget.spooled_bytes -= self.reading.size
        self.budget.held_bytes -= self.tail_cost
        for part in self.read_ahead:
            self.budget.held_bytes -= self.cost_of(part)
        for batch in (*(() if self.reading is None else (self.reading,)), *self.stored, *self.writing):
            if batch.durable:
                self.given_up = True
                self.unmarked.append(batch)
            else:
                self._consume(batch)
        self.inside = 0
        self.stored.clear()
        self.writing.clear()
        self.reading = None
        self.read_ahead = []
        self._begin_tail()
        self.within_frame = False
        self._end_use()
        return parts

    # ---- what comes back from the disk -----------------------------------------------------------------------------

    def done(self, job: Job) -> None:
        """A job of this queue is done."""
        if job.kind == WRITE and job.removes:
            self.removals.done(job)
            if self.left:
                self._finish_leaving()
        elif job.kind == WRITE:
            self._written(job)
        elif job.kind == READ:
            self._have_read(job)
        elif job.kind == DELETE:
            self.disk.deleted(job)

    def _written(self, job: Job) -> None:
        batch = job.batch
        assert isinstance(batch, Batch)
        batch.segment.writes -= 1
        batch.written = True
        if batch.durable:
            job.data = b""
            self.budget.held_bytes -= batch.size
            self.disk.uncommitted -= batch.size
            self.in_flight -= 1
        if batch.taken:  # out, or given up, before it was written
            self._delete_if_over(batch.segment)
        else:
            assert self.writing[0] is batch, "the writer keeps the order"
            self.writing.popleft()
            batch.parts = job.parts = []
            self.budget.held_bytes -= batch.cost
            self.budget.spooled_bytes += batch.size
            if not self._joins_last(batch):
                self.stored.append(batch)
        if not batch.durable:
            return
        if self.left:
            self._finish_leaving()
        elif self.tail_durable and self.in_flight == 0:
            self.write_tail()

    def _joins_last(self, batch: Batch) -> bool:
        """Whether `batch` is read together with the one before it: small ones, of which a quick disk makes many, would fill memory."""
        if not self.stored:
            return False
        last = self.stored[-1]
        if last.segment is not batch.segment or not batch.durable or last.rule != batch.rule:
            return False
        if last.offset + last.size != batch.offset or last.size + batch.size > self.disk.share():
            return False
        last.size += batch.size
        last.end = batch.end
        last.whole = batch.whole
        for text, counted in batch.counts.items():
            known = last.counts.get(text)
            if known is None:
                last.counts[text] = counted
            else:
                known.messages += counted.messages
                known.bytes += counted.bytes
        batch.segment.batches -= 1
        self.kept -= 1
        return True

    def _have_read(self, job: Job) -> None:
        batch = self.reading
        if batch is None or job is not self.read_job:  # given up meanwhile
            return
        try:
            if job.error is not None:
                raise DamagedError(str(job.error))
            parts = decode_all(job.data, self.ordering_key, self.key_of, batch.place())
        except DamagedError as error:
            self.disk.lost_batches += 1
            self.damage = str(error)  # `forget` gives the batch up, with all behind it
            self.on_ready()
            return
        self.reading = None
        self.read_job = None
        self.budget.spooled_bytes -= batch.size
        self.read_ahead = parts
        self.read_counts = batch.counts
        for part in parts:
            self.budget.held_bytes += self.cost_of(part)
        if batch.durable:
            self.unmarked.append(batch)
        else:
            self._consume(batch)
        self.on_ready()

    # ---- marking off -----------------------------------------------------------------------------------------------

    def mark_off(self, queued: int, acknowledged: int, now: int, *, read: bool) -> None:
        """A few times a second: mark off what the broker has. So many bytes were put on its connection, so many has its machine; `read`:
        also the broker itself has them. Else it is given a moment, because a connection that is reset loses what is not read yet.
        """
        if 0 <= self.handed <= acknowledged and (read or now - self.handed_at >= READ_NS):
            self.passed = self.handed_gone
            self.handed = -1
        if self.unmarked and self.unmarked[0].end <= self.passed:
            self._mark()
        if self.handed < 0 and self.unmarked and self.unmarked[0].end <= self.gone and self.passed < self.gone:
            self.handed = queued
            self.handed_at = now
            self.handed_gone = self.gone
        if self.given_up and self.handed < 0:
            self.leave()

    def unsafe(self) -> bool:
        """Whether something is still to be marked off, or to be written."""
        return not self.left and (self.kept > 0 or self.given_up)

    def leave(self) -> None:
        """The connection, or the channel, is over: what is not marked off is to be replayed."""
        if not self.left:
            self.left = True
            self._finish_leaving()

    def _mark(self) -> None:
        """Mark off what has passed, up to the end of a message."""
        count = 0
        waiting = len(self.unmarked)
        for number, batch in enumerate(self.unmarked, 1):
            if not batch.written or batch.end > self.passed:
                break
            if batch.whole or (number == waiting and self.empty()):  # the rest of that message came when nothing waited, past this queue
                count = number
        last: Batch | None = None
        for _ in range(count):
            last = self.unmarked.popleft()
            self.kept -= 1
            self._consume(last)
        if last is not None and last.segment.name:
            self.disk.submit(Job(self, MARK, last.segment.name, last.offset + last.size))
        if not self.unmarked and self.empty():
            self._end_segment()

    def _finish_leaving(self) -> None:
        """Once all is written: what has not passed is an orphan."""
        if self.in_flight or self.removals.in_flight or self.copies:
            return
        self._mark()
        first = self.unmarked[0] if self.unmarked else None
        names: list[str] = []
        size = 0
        for batch in self.unmarked:
            segment = batch.segment
            self.disk.add(batch.rule, -batch.size)
            if segment.name:
                names.append(segment.name)
                size += segment.size
                segment.name = ""
        self.removals.segments.clear()
        self.unmarked.clear()
        self.segment = None
        if first is not None:
            self.disk.orphans.append(Orphan(names, first.offset, size))

    # ---- files -----------------------------------------------------------------------------------------------------

    def write_tail(self) -> None:
        """Send what is in memory to the disk, where there is room for it and it ends with a frame."""
        if self.tail and not self.within_frame:
            self._write_tail()

    def _write_tail(self) -> bool:
        """Send what is in memory to the disk, wherever it ends; False where there is no room."""
        size = self.tail_size
        if not self.disk.room_for(size, self.rule, self.rule_bytes):
            if not self.waits_for_room:
                self.waits_for_room = True
                self.disk.out_of_room.append(self)
            return False
        self.writing.append(self._write(self.tail, self.tail_cost, size, self.tail_counts, durable=self.tail_durable))
        self._begin_tail()
        return True

    def _write(self, parts: list[Part], cost: int, size: int, counts: dict[str, KeyWaiting], *, durable: bool) -> Batch:
        """The batch of `parts`, on its way to the disk."""
        disk = self.disk
        segment = self.segment
        head = b""
        if segment is None or segment.size >= SEGMENT_BYTES or segment.durable != durable:
            self._end_segment()
            name = disk.new_name()
            if durable:
                name += SUFFIX
                clock = str(time.time_ns() - now_ns())
                head = head_of({**self.origin, "queue": self.origin.setdefault("queue", name), CLOCK: clock})
            segment = self.segment = Segment(name, durable=durable)
            if durable:
                self.removals.segments[segment.serial] = segment
        job = Job(self, WRITE, segment.name, segment.size, size, parts)
        batch = Batch(parts, cost, size, segment, job, self.rule, counts)
        job.batch = batch
        batch.offset = segment.size + len(head)
        if durable:
            job.durable = batch.durable = True
            job.data = head + encode(parts)  # now: parts are cut where only some of their messages may pass
            place = place_of(segment.serial, batch.offset) + BATCH.size
            for part in parts:
                place += RECORD.size
                part.place = place - part.start
                place += part.end - part.start
            batch.end = self.came
            last = parts[-1]
            batch.whole = last.kind == PLAIN or last.complete
            self.budget.held_bytes += size
            disk.uncommitted += size
            self.in_flight += 1
            self.kept += 1
            if self not in self.unmarked_queues:
                self.unmarked_queues.append(self)
        disk.add(self.rule, size)
        segment.size += len(head) + size
        segment.batches += 1
        segment.writes += 1
        disk.used += len(head) + size
        disk.submit(job)
        return batch

    def room_again(self) -> None:
        """There may be room on the disk again."""
        self.waits_for_room = False
        if self.tail_cost >= self.disk.share() or self.tail_durable:
            self.write_tail()

    def _begin_tail(self) -> None:
        self.tail = []
        self.tail_counts = {}
        self.tail_cost = 0
        self.tail_size = BATCH.size
        self.tail_durable = False

    def _read_next(self) -> None:
        batch = self.reading = self.stored.popleft()
        self.read_job = Job(self, READ, batch.segment.name, batch.offset, batch.size)
        self.disk.submit(self.read_job)

    def _consume(self, batch: Batch) -> None:
        """`batch` is not needed on the disk any more."""
        self.disk.add(batch.rule, -batch.size)
        batch.segment.batches -= 1
        self._delete_if_over(batch.segment)

    def _delete_if_over(self, segment: Segment) -> None:
        if segment.batches == 0 and segment.writes == 0 and segment is not self.segment and segment.name:
            job = Job(self, DELETE, segment.name, 0, segment.size)
            segment.name = ""
            if segment.durable:
                self.removals.segments.pop(segment.serial, None)
            self.disk.submit(job)

    def _end_use(self) -> None:
        """Nothing waits any more."""
        self.disk.queues -= 1
        self.budget.spool_queues -= 1
        self._end_segment()

    def _end_segment(self) -> None:
        """Nothing more is written to the last file."""
        segment = self.segment
        if segment is not None:
            self.segment = None
            self._delete_if_over(segment)

    def _count_in(self, part: Part) -> None:
        key = part.key
        if part.kind != REQUEST or key is None:
            return
        text = key.text
        messages: int = int(part.count) * int(part.messages)
        size: int = part.end - part.start
        if not part.complete:
            size += part.size  # of its body, which comes in parts of its own
        self.messages_added += messages
        for counts in (self.waiting, self.tail_counts):
            counted = counts.get(text)
            if counted is None:
                counted = counts[text] = KeyWaiting(key)
            counted.messages += messages
            counted.bytes += size
        self.disk.count(key.origin.protocol, text, messages, size)

    def _count_out(self, counts: dict[str, KeyWaiting]) -> None:
        """What came in with these counts is taken out."""
        for text, gone in counts.items():
            waiting = self.waiting[text]
            waiting.messages -= gone.messages
            waiting.bytes -= gone.bytes
            self.messages_gone += gone.messages
            if waiting.messages == 0:
                del self.waiting[text]
            self.disk.count(gone.key.origin.protocol, text, -gone.messages, -gone.bytes)

    # ---- what operators order --------------------------------------------------------------------------------------

    def give_order(self, order: SpoolOrder) -> None:
        """Count what waits here of its topic; unless it is a preview, it holds for that."""
        waiting = self.waiting.get(order.topic)
        if waiting is None:
            return
        messages = waiting.messages
        size = waiting.bytes
        for other in self.orders:
            if other.topic == order.topic and not other.called_off():
                messages -= other.queued
                size -= other.queued_bytes
                order.begins = max(order.begins, other.place)
        if messages <= 0:
            return
        order.add_queued(messages, size)
        if order.state != PREVIEW:
            order.place = self.messages_added if self.last_complete or order.state != COPYING else self.last_place
            self.orders.append(order)

    def hold_files(self) -> list[WaitingBatch]:
        """What waits here, in order. Its files are kept until `release_files`."""
        self.copies += 1
        found = [WaitingBatch(self.read_ahead)]
        for batch in ([] if self.reading is None else [self.reading]) + list(self.stored):
            batch.segment.writes += 1
            found.append(WaitingBatch([], batch))
        found += [WaitingBatch(batch.parts) for batch in self.writing]
        return [*found, WaitingBatch(self.tail)]

    def release_files(self, batches: list[WaitingBatch]) -> None:
        """Files that were held are deleted when nothing else needs them."""
        for each in batches:
            if each.batch is not None:
                each.batch.segment.writes -= 1
                self._delete_if_over(each.batch.segment)
        self.copies -= 1
        if self.left:
            self._finish_leaving()

    def remove(self, part: Part) -> None:
        """`part`, whose turn it was, is given up: it is not replayed, whatever happens next."""
        if part.place and part.replays:
            self.removals.add(part.place + part.start, part.place + part.end)

    def remove_all(self, parts: list[Part], places: list[Range], on_synced: Callable[[], None]) -> None:
        """`parts`, in memory, and what stands at `places` are given up; `on_synced` is called when nothing of it will be replayed."""
        written = list(places)
        for part in parts:
            if not part.place:
                part.replays = False  # it may be written yet
            elif part.replays:  # also where another removal of it is on its way: this one is not done before it is on the medium, too
                written.append((part.place + part.start, part.place + part.end))
        self.removals.write(written, on_synced)

    def _mark_ordered(self, parts: list[Part]) -> None:
        """Mark those of `parts`, which leave, that an order is for."""
        at = self.messages_gone
        for part in parts:
            key = part.key
            if part.kind != REQUEST or key is None:
                continue
            messages: int = int(part.count) * int(part.messages)
            for order in self.orders:
                if part.spool_order is None and order.begins <= at < order.place and order.topic == key.text and not order.called_off():
                    part.spool_order = order
                    order.queued -= messages
                    order.queued_bytes -= part.end - part.start + (0 if part.complete else part.size)
            at += messages
        self.orders = [order for order in self.orders if at < order.place]

    def __repr__(self) -> str:
        return f"<SpoolQueue {self.ordering_key} stored={len(self.stored)} writing={len(self.writing)} tail={len(self.tail)}>"
