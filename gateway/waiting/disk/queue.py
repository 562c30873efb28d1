"""PagedQueue: parts that wait behind others of their ordering key, in order; what does not fit into memory is on disk.

::

      taken out ◄── stored (on disk, oldest first) ◄── writing (on its way there) ◄── tail (in memory) ◄── added

Four stages in RabbitMQ's queues keep more and more of a message on disk: alpha all in memory, beta and gamma the content on disk and the
place in memory, delta both. Here there are two. A record on disk needs no place in memory, since it is read in order and the protocol finds
its key again from its bytes. So what waits costs memory per batch (some 256 KiB), not per message.

A short burst never touches the disk: a batch is written once `tail` is as large as the queue's share of `memory.target`, and what is still
in memory when its turn comes is taken from there, written or not. A batch ends where a frame ends. Where all queues together have too much
in memory, the largest tails are written before that (`paging.py`).

The files have a module of their own (`queue_files.py`).

Everything here is called on the event loop. The budget's `held_bytes` counts what is in memory, `spooled_bytes` what is on disk only, and
`held_messages` (which is not changed here) both. What is taken out still counts as waiting (`waiting_messages.py`), until it goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.pipeline.held_budget import HeldBudget
from gateway.pipeline.parts import BODY, REQUEST, Part
from gateway.waiting.disk.batches import DiskBatch
from gateway.waiting.disk.paging import PageableQueue
from gateway.waiting.disk.queue_files import QueueFiles
from gateway.waiting.disk.records import BATCH, RECORD, DamagedError, decode
from gateway.waiting.disk.waiting_disk import DELETE, READ, WRITE, DiskJob, WaitingDisk
from gateway.waiting.disk.waiting_messages import counts_of
from limiter.keys import Key
from limiter.limits import NEVER
from limiter.rules.rule import Rule

ENDLESS: Final = 1 << 62  # bytes; a rule without a size of its own


class PagedQueue(PageableQueue):
    """One ordering key's, of one connection."""

    def __init__(
        self,
        disk: WaitingDisk,
        budget: HeldBudget,
        connection: int,
        ordering_key: int,
        key_of: Callable[[bytes], Key | None],
        cost_of: Callable[[Part], int],
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__()
        self.disk = disk
        self.paging = disk.paging
        self.budget = budget
        self.connection = connection  # its number: the loop wakes its session when a job is done
        self.ordering_key = ordering_key
        self.key_of = key_of
        self.cost_of = cost_of  # bytes of memory a held part takes
        self.on_ready = on_ready  # called when `take` has something again
        self.damage = ""  # why the parts that follow are lost; nothing is taken out any more
        self.waiting = disk.waiting
        self.files = QueueFiles(disk, self)
        self.tail: list[Part] = []
        self.tail_size = BATCH.size
        self.within_frame = False  # the last part added ends within a frame: the next one goes where it went
        self.writing: deque[DiskBatch] = deque()
        self.stored: deque[DiskBatch] = deque()
        self.reading: DiskBatch | None = None
        self.read_job: DiskJob | None = None  # of `reading`
        self.read_ahead: list[Part] = []  # read, not yet taken out
        self.read_cost = 0  # bytes of memory of the two
        self.waits_for_room = False
        self.rule = ""  # whose action it is, of what stands first here
        self.rule_bytes = ENDLESS  # that it may have on disk in this process, over all queues
        self.max_age_ns = NEVER  # how long a message may wait
        self.drop_expired = False  # nor longer than it says itself
        self.rules = 0  # how often others have come in force

    # ---- in and out ------------------------------------------------------------------------------------------------

    def empty(self) -> bool:
        """Whether nothing waits here. Parts that go past an empty queue keep their order."""
        return not (self.tail or self.writing or self.stored or self.reading is not None or self.read_ahead)

    def add(self, part: Part) -> None:
        """Put `part`, which owns its bytes (`copy_out`), at the end."""
        if self.empty():
            self.disk.queues += 1
            self.budget.paged_queues += 1
        cost = self.cost_of(part)
        self.tail.append(part)
        self.tail_cost += cost
        self.tail_size += RECORD.size + part.end - part.start
        self.within_frame = part.kind == BODY and part.size > 0
        self.waiting.begin(part)
        self.paging.grow_tail(self, cost)
        if self.tail_cost >= self.disk.share():
            self.write_tail()

    def take_rule(self, rule: Rule) -> None:
        """`rule` has paged what stands first: its bounds hold for what comes from now on."""
        self.rule = rule.name
        self.rule_bytes = ENDLESS if rule.spool_size is None else self.disk.part_of(rule.spool_size)
        self.max_age_ns = NEVER if rule.max_age_ns is None else rule.max_age_ns
        self.drop_expired = rule.drop_expired

    def take(self) -> list[Part]:
        """The parts whose turn is next, or none: where they are on disk they are read now, and then `on_ready` is called."""
        parts: list[Part] = []
        if self.damage:
            return parts
        if self.read_ahead:
            parts = self.read_ahead
            self.read_ahead = []
            self._count_read(0)
        elif self.reading is not None:
            return parts
        elif self.stored:
            self._read_next()
            return parts
        elif self.writing:
            batch = self.writing.popleft()
            parts = batch.parts
            if batch.rules != self.rules:
                forget_all_verdicts(parts)
            self._leave(batch)
        else:
            parts = self.tail
            self.within_frame = False  # what continues this frame follows it, past this queue
            self._begin_tail()
        if parts and self.empty():
            self._end_use()
        return parts

    def read_next(self) -> None:
        """Begin to read what is next, if that is on disk, before it is asked for; not where memory is short."""
        if self.stored and self.reading is None and not self.read_ahead and not self.damage and self.paging.may_read_ahead():
            self._read_next()

    def forget(self) -> list[Part]:
        """Give up all that waits here: its messages, one part for each key, without bytes. `AmqpChannel` keeps what else must be known."""
        if self.empty():
            return []
        in_memory = [*self.read_ahead, *self.tail]
        for batch in self.writing:
            in_memory += batch.parts
            self._leave(batch)
        for part in in_memory:
            self.budget.held_bytes -= self.cost_of(part)
            self.waiting.end(part)
        gone = [counts_of(in_memory)]
        for batch in [*self.stored] if self.reading is None else [self.reading, *self.stored]:
            self.budget.paged_bytes -= batch.size
            self.waiting.forget(batch.counts)
            self.files.consume(batch)
            gone.append(batch.counts)
        self.stored.clear()
        self.writing.clear()
        self.reading = None
        self.read_ahead = []
        self._begin_tail()
        self._count_read(0)
        self.within_frame = False
        self._end_use()
        given_up: dict[str, Part] = {}
        for counts in gone:
            for text, each in counts.items():
                if text not in given_up:
                    given_up[text] = Part(REQUEST, self.ordering_key, b"", 0, 0, each.key, 0, 1)
                given_up[text].count += each.messages
        return list(given_up.values())

    def forget_verdicts(self) -> None:
        """Other rules are in force: what has passed by those before, and waits here all the same, is judged by these."""
        self.rules += 1
        forget_all_verdicts(self.read_ahead)
        forget_all_verdicts(self.tail)

    def _leave(self, batch: DiskBatch) -> None:
        """`batch`, which is on its way to the disk, is taken out or given up before it is there."""
        self._count_writing(-batch.cost)
        batch.taken = True
        batch.parts = batch.job.parts = []
        batch.job.cancelled = True  # where it has not begun; what is written of it is not read
        self.files.consume(batch)

    # ---- what comes back from the disk -----------------------------------------------------------------------------

    def finish_job(self, job: DiskJob) -> None:
        """A job of this queue is done."""
        if job.kind == WRITE:
            self._finish_write(job)
        elif job.kind == READ:
            self._finish_read(job)
        elif job.kind == DELETE:
            self.disk.finish_deletion(job)

    def _finish_write(self, job: DiskJob) -> None:
        batch = job.batch
        assert isinstance(batch, DiskBatch)
        batch.segment.writes -= 1
        if batch.taken:  # out, or given up, before it was written
            self.files.delete_if_over(batch.segment)
            return
        assert self.writing[0] is batch, "the writer keeps the order"
        self.writing.popleft()
        parts = batch.parts
        batch.parts = job.parts = []
        self._count_writing(-batch.cost)
        self.budget.held_bytes -= batch.cost
        self.budget.paged_bytes += batch.size
        batch.counts = counts_of(parts)
        self.waiting.leave_memory(batch.counts)
        self.stored.append(batch)

    def _finish_read(self, job: DiskJob) -> None:
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
        self.budget.paged_bytes -= batch.size
        self.read_ahead = parts
        if batch.rules != self.rules:
            forget_all_verdicts(parts)
        self.waiting.read(batch.counts, parts)
        cost = 0
        for part in parts:
            cost += self.cost_of(part)
        self.budget.held_bytes += cost
        self._count_read(cost)
        self.files.consume(batch)
        self.on_ready()

    # ---- files -----------------------------------------------------------------------------------------------------

    def write_tail(self) -> None:
        """Send what is in memory to the disk, where there is room for it and it ends with a frame."""
        if not self.tail or self.within_frame:
            return
        size = self.tail_size
        if not self.disk.room_for(size, self.rule, self.rule_bytes):
            if not self.waits_for_room:
                self.waits_for_room = True
                self.disk.out_of_room.append(self)
            return
        self._count_writing(self.tail_cost)
        self.writing.append(self.files.write(self.tail, self.tail_cost, size, self.rule, self.rules))
        self._begin_tail()

    def resume_writing(self) -> None:
        """There may be room on the disk again."""
        self.waits_for_room = False
        if self.tail_cost >= self.disk.share():
            self.write_tail()
        self.paging.offer(self)

    def page_out(self) -> bool:
        self.write_tail()
        return not self.tail

    def _begin_tail(self) -> None:
        self.tail = []
        self.paging.drop_tail(self, self.tail_cost)
        self.tail_cost = 0
        self.tail_size = BATCH.size

    def _read_next(self) -> None:
        batch = self.reading = self.stored.popleft()
        self.read_job = self.files.read(batch)
        self._count_read(batch.cost)

    def _count_read(self, cost: int) -> None:
        """What is read ahead, or just being read, takes so much memory."""
        grown = cost - self.read_cost
        self.read_cost = cost
        self.paging.read(grown)

    def _count_writing(self, size: int) -> None:
        """So much more memory, or (below zero) less, is of what is on its way to the disk."""
        self.paging.writing += size
        self.budget.paging_bytes += size

    def _end_use(self) -> None:
        """Nothing waits any more."""
        self.disk.queues -= 1
        self.budget.paged_queues -= 1
        self.files.end_segment()

    def __repr__(self) -> str:
        return f"<PagedQueue {self.ordering_key} stored={len(self.stored)} writing={len(self.writing)} tail={len(self.tail)}>"


def forget_all_verdicts(parts: list[Part]) -> None:
    for part in parts:
        part.forget_verdict()
