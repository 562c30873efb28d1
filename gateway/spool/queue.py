"""SpoolQueue: parts that wait behind others of their ordering key, in order; what does not fit into memory is on disk.

::

      taken out ◄── stored (on disk, oldest first) ◄── writing (on its way there) ◄── tail (in memory) ◄── added

Four stages in RabbitMQ's queues keep more and more of a message on disk: alpha all in memory, beta and gamma the content on disk and the
place in memory, delta both. Here there are two. A record on disk needs no place in memory, since it is read in order and the protocol finds
its key again from its bytes. So what waits costs memory per batch (some 256 KiB), not per message.

A short burst never touches the disk: a batch is written once `tail` is as large as the queue's share of `spool.memory`, and what is still
in memory when its turn comes is taken from there, written or not. A batch ends where a frame ends.

Everything here is called on the event loop. The budget's `held_bytes` counts what is in memory, `spooled_bytes` what is on disk only, and
`held_messages` (which is not changed here) both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.pipeline.held_budget import HeldBudget
from gateway.pipeline.parts import BODY, PLAIN, REQUEST, Part
from gateway.pipeline.spool_orders import COPYING, PREVIEW, SpoolOrder
from gateway.spool.disk import DELETE, READ, WRITE, Job, SpoolDisk
from gateway.spool.records import BATCH, RECORD, DamagedError, decode
from limiter.keys import Key
from limiter.limits import NEVER
from limiter.rules.rule import Rule

ENDLESS: Final = 1 << 62  # bytes; a rule without a size of its own
SEGMENT_BYTES: Final = 16 << 20  # after which a new file begins; a file is deleted as a whole, when all of it was read (a guess)


class KeyWaiting:
    """Messages of one key that wait in a queue, or in a batch of it."""

    __slots__ = ("bytes", "key", "messages")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.messages = 0
        self.bytes = 0


class Batch:
    """Parts that are written and read together."""

    __slots__ = ("cost", "counts", "job", "parts", "rule", "segment", "size")

    def __init__(
        self, parts: list[Part], cost: int, size: int, segment: Segment, job: Job, rule: str, counts: dict[str, KeyWaiting]
    ) -> None:
        self.parts = parts  # empty once written
        self.cost = cost  # bytes of memory, as the budget counts them
        self.size = size  # bytes on disk
        self.segment = segment
        self.job = job  # its write
        self.rule = rule  # which it counts for
        self.counts = counts  # its messages, by the text of their key when they came


class WaitingBatch:
    """Where parts wait that a copy is made of: in memory (`parts`, of which none is changed), or in a file that is kept for it."""

    __slots__ = ("batch", "length", "name", "offset", "parts")

    def __init__(self, parts: list[Part], batch: Batch | None = None) -> None:
        self.parts = [still(part) for part in parts]
        self.batch = batch
        self.name = "" if batch is None else batch.segment.name
        self.offset = 0 if batch is None else batch.job.offset
        self.length = 0 if batch is None else batch.size

    def read(self, queue: SpoolQueue) -> list[Part]:
        """The parts; those out of a file have no keys. On any thread. Raises OSError, DamagedError."""
        if self.batch is None:
            return self.parts
        job = Job(None, READ, self.name, self.offset, self.length)
        queue.disk.read_now(job)
        return decode(job.data, queue.ordering_key, lambda _: None)


def still(part: Part) -> Part:
    """A copy of what a part is now, which nobody changes."""
    data = part.data[part.start : part.end]
    return Part(part.kind, part.ordering_key, data, 0, len(data), part.key, part.count, part.messages, part.size, part.complete)


class Segment:
    """One file. `batches` of it are still to be taken out; it may be deleted when there are none, and none is being written."""

    __slots__ = ("batches", "name", "size", "writes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0  # bytes, of batches written and being written
        self.batches = 0
        self.writes = 0


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
        self.added = 0  # messages, ever
        self.gone = 0  # of these, taken out or given up
        self.last_place = 0  # of the request added last, among those added
        self.last_complete = True  # whether its message has come whole
        self.orders: list[SpoolOrder] = []  # of an operator, for messages before their `place` among those added

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
        self.within_frame = part.kind == BODY and part.size > 0
        if part.kind == REQUEST:
            self.last_place = self.added
        if part.kind != PLAIN:
            self.last_complete = part.complete
        self._count_in(part)
        if self.tail_cost >= self.disk.share():
            self.write_tail()

    def take_rule(self, rule: Rule) -> None:
        """`rule` spools what stands first: its bounds hold for what comes from now on."""
        self.rule = rule.name
        self.rule_bytes = ENDLESS if rule.spool_size is None else rule.spool_size
        self.max_age_ns = NEVER if rule.max_age_ns is None else rule.max_age_ns

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
        elif self.writing:
            batch = self.writing.popleft()
            batch.job.cancelled = True  # where it has not begun; what is written of it is not read
            parts = batch.parts
            counts = batch.counts
            batch.parts = batch.job.parts = []
            self._consume(batch)
        else:
            parts = self.tail
            counts = self.tail_counts
            self.within_frame = False  # what continues this frame follows it, past this queue
            self._begin_tail()
        if self.orders:
            self._mark(parts)
        self._count_out(counts)
        if parts and self.empty():
            self._end_use()
        return parts

    def read_next(self) -> None:
        """Begin to read what is next, if that is on disk, before it is asked for."""
        if self.stored and self.reading is None and not self.read_ahead and not self.damage:
            self._read_next()

    def forget(self) -> list[Part]:
        """Give up all that waits here: its messages, one part for each key, without bytes. `AmqpChannel` keeps what else must be known."""
        if self.empty():
            return []
        parts: list[Part] = []
        for text, waiting in self.waiting.items():
            parts.append(Part(REQUEST, self.ordering_key, b"", 0, 0, waiting.key, waiting.messages, 1))
            self.disk.count(text, -waiting.messages, -waiting.bytes)
        self.waiting = {}
        self.gone = self.added
        self.orders = []
        for batch in self.stored:
            self.budget.spooled_bytes -= batch.size
        for batch in self.writing:
            batch.job.cancelled = True
            batch.parts = batch.job.parts = []
            self.budget.held_bytes -= batch.cost
        if self.reading is not None:
            self.budget.spooled_bytes -= self.reading.size
        self.budget.held_bytes -= self.tail_cost
        for part in self.read_ahead:
            self.budget.held_bytes -= self.cost_of(part)
        for batch in (*self.stored, *self.writing):
            self._consume(batch)
        if self.reading is not None:
            self._consume(self.reading)
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
        if job.kind == WRITE:
            self._written(job)
        elif job.kind == READ:
            self._have_read(job)
        else:
            self.disk.deleted(job)

    def _written(self, job: Job) -> None:
        for batch in self.writing:  # the first, or one behind those that were taken meanwhile
            if batch.job is job:
                batch.segment.writes -= 1
                break
        else:
            self._write_was_idle(job)
            return
        assert self.writing[0] is batch, "the writer keeps the order"
        self.writing.popleft()
        batch.parts = job.parts = []
        self.budget.held_bytes -= batch.cost
        self.budget.spooled_bytes += batch.size
        self.stored.append(batch)

    def _write_was_idle(self, job: Job) -> None:
        """The batch of `job` was taken out, or given up, before it was written."""
        segment = job.segment
        assert isinstance(segment, Segment)
        segment.writes -= 1
        self._delete_if_over(segment)

    def _have_read(self, job: Job) -> None:
        batch = self.reading
        if batch is None or job is not self.read_job:  # given up meanwhile
            return
        try:
            if job.error is not None:
                raise DamagedError(str(job.error))
            parts = decode(job.data, self.ordering_key, self.key_of)
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
        self._consume(batch)
        self.on_ready()

    # ---- files -----------------------------------------------------------------------------------------------------

    def write_tail(self) -> None:
        """Send what is in memory to the disk, where there is room for it and it ends with a frame."""
        if not self.tail or self.within_frame:
            return
        disk = self.disk
        size = self.tail_size
        if not disk.room_for(size, self.rule, self.rule_bytes):
            if not self.waits_for_room:
                self.waits_for_room = True
                disk.out_of_room.append(self)
            return
        segment = self.segment
        if segment is None or segment.size >= SEGMENT_BYTES:
            if segment is not None:
                self.segment = None
                self._delete_if_over(segment)
            segment = self.segment = Segment(disk.new_name())
        job = Job(self, WRITE, segment.name, segment.size, size, self.tail)
        job.segment = segment
        batch = Batch(self.tail, self.tail_cost, size, segment, job, self.rule, self.tail_counts)
        disk.add(self.rule, size)
        segment.size += size
        segment.batches += 1
        segment.writes += 1
        disk.used += size
        self.writing.append(batch)
        self._begin_tail()
        disk.submit(job)

    def room_again(self) -> None:
        """There may be room on the disk again."""
        self.waits_for_room = False
        if self.tail_cost >= self.disk.share():
            self.write_tail()

    def _begin_tail(self) -> None:
        self.tail = []
        self.tail_counts = {}
        self.tail_cost = 0
        self.tail_size = BATCH.size

    def _read_next(self) -> None:
        batch = self.reading = self.stored.popleft()
        self.read_job = Job(self, READ, batch.segment.name, batch.job.offset, batch.size)
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
            self.disk.submit(job)

    def _end_use(self) -> None:
        """Nothing waits any more."""
        self.disk.queues -= 1
        self.budget.spool_queues -= 1
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
        self.added += messages
        for counts in (self.waiting, self.tail_counts):
            counted = counts.get(text)
            if counted is None:
                counted = counts[text] = KeyWaiting(key)
            counted.messages += messages
            counted.bytes += size
        self.disk.count(text, messages, size)

    def _count_out(self, counts: dict[str, KeyWaiting]) -> None:
        """What came in with these counts is taken out."""
        for text, gone in counts.items():
            waiting = self.waiting[text]
            waiting.messages -= gone.messages
            waiting.bytes -= gone.bytes
            self.gone += gone.messages
            if waiting.messages == 0:
                del self.waiting[text]
            self.disk.count(text, -gone.messages, -gone.bytes)

    # ---- what operators order --------------------------------------------------------------------------------------

    def give_order(self, order: SpoolOrder) -> None:
        """Count what waits here of its topic; unless it is a preview, it holds for that."""
        waiting = self.waiting.get(order.topic)
        if waiting is None:
            return
        order.add(waiting.messages, waiting.bytes)
        if order.state != PREVIEW:
            order.place = self.added if self.last_complete or order.state != COPYING else self.last_place
            self.orders.append(order)

    def hold_files(self) -> list[WaitingBatch]:
        """What waits here, in order. Its files are kept until `release_files`."""
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

    def _mark(self, parts: list[Part]) -> None:
        """Mark those of `parts`, which leave, that an order is for."""
        at = self.gone
        for part in parts:
            key = part.key
            if part.kind != REQUEST or key is None:
                continue
            for order in self.orders:
                if part.spool_order is None and at < order.place and order.topic == key.text:
                    part.spool_order = order
            at += int(part.count) * int(part.messages)
        self.orders = [order for order in self.orders if at < order.place]

    def __repr__(self) -> str:
        return f"<SpoolQueue {self.ordering_key} stored={len(self.stored)} writing={len(self.writing)} tail={len(self.tail)}>"
