"""SpoolQueue: parts that wait behind others of their ordering key, in order; what does not fit into memory is on disk.

::

      taken out ◄── stored (on disk, oldest first) ◄── writing (on its way there) ◄── tail (in memory) ◄── added

Four stages in RabbitMQ's queues keep more and more of a message on disk: alpha all in memory, beta and gamma the content on disk and the
place in memory, delta both. Here there are two. A record on disk needs no place in memory, since it is read in order and the protocol finds
its key again from its bytes. So what waits costs memory per batch (some 256 KiB), not per message.

A short burst never touches the disk: a batch is written once `tail` is as large as the queue's share of `memory.target`, and what is still
in memory when its turn comes is taken from there, written or not. A batch ends where a frame ends. Where all queues together have too much
in memory, the largest tails are written before that (`paging.py`).

Where a rule is `durable` and the sender is never told what has arrived, parts are written at once, and one batch is on its way while the
next one gathers: the disk sets the size of batches, not the sender's pace. Such a batch stays in its file until the broker's machine has
what is in it (`mark_off`), and what is left in the end is an `Orphan`, to be replayed. So a message is in a file from its commit until
nobody here can lose it any more, and the position in the file stands between two messages.

Three parts have modules of their own: which messages wait (`waiting_messages.py`), the files they are written to (`queue_files.py`), and
the durable batches that are not marked off (`unmarked_batches.py`).

Everything here is called on the event loop. The budget's `held_bytes` counts what is in memory, `spooled_bytes` what is on disk only, and
`held_messages` (which is not changed here) both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.pipeline.held_budget import HeldBudget
from gateway.pipeline.parts import BODY, Part
from gateway.pipeline.spool_orders import SpoolOrder
from gateway.spool.batches import Batch, KeyWaiting, WaitingBatch
from gateway.spool.disk import DELETE, READ, WRITE, Job, SpoolDisk
from gateway.spool.paging import PageableQueue
from gateway.spool.queue_files import QueueFiles
from gateway.spool.records import BATCH, RECORD, DamagedError, decode_all
from gateway.spool.removals import Range
from gateway.spool.unmarked_batches import UnmarkedBatches
from gateway.spool.waiting_messages import WaitingMessages
from limiter.keys import Key
from limiter.limits import NEVER
from limiter.rules.rule import Rule

ENDLESS: Final = 1 << 62  # bytes; a rule without a size of its own


class SpoolQueue(PageableQueue):
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
        self.messages = WaitingMessages(disk)
        self.tail_counts: dict[str, KeyWaiting] = {}  # the messages in `tail`, by topic
        self.read_counts: dict[str, KeyWaiting] = {}  # of `read_ahead`
        self.tail: list[Part] = []
        self.tail_size = BATCH.size
        self.within_frame = False  # the last part added ends within a frame: the next one goes where it went
        self.writing: deque[Batch] = deque()
        self.stored: deque[Batch] = deque()
        self.reading: Batch | None = None
        self.read_job: Job | None = None  # of `reading`
        self.read_ahead: list[Part] = []  # read, not yet taken out
        self.read_cost = 0  # bytes of memory of the two
        self.waits_for_room = False
        self.rule = ""  # that spools what stands first here
        self.rule_bytes = ENDLESS  # that it may have on disk, over all queues
        self.max_age_ns = NEVER  # how long a message may wait
        self.accepts = False  # the gateway answers what it spools (RocketMQ)
        self.drop_expired = False  # nor longer than it says itself
        # Of durable messages:
        self.durable = False  # the rule that spools what stands first is
        self.replays = True  # what comes now is of a sender that is never told what has arrived
        self.unmarked_queues: list[SpoolQueue] = [] if unmarked_queues is None else unmarked_queues  # of the connection: this one, too
        self.tail_durable = False
        self.inside = 0  # bytes of the parts that wait here
        self.came = 0  # bytes of parts that were held on this channel so far
        self.gone = 0  # and bytes of those that are settled
        self.committed = 0  # and bytes of those that came up to the last one that is on the disk for good
        self.on_committed: Callable[[], None] | None = None  # called when that has grown
        # Last, since they are given this queue: what it has is there.
        self.files = QueueFiles(disk, self, origin or {})
        self.unmarked = UnmarkedBatches(budget, self.files, self.empty)

    # ---- in and out ------------------------------------------------------------------------------------------------

    def empty(self) -> bool:
        """Whether nothing waits here. Parts that go past an empty queue keep their order."""
        return not (self.tail or self.writing or self.stored or self.reading is not None or self.read_ahead)

    def add(self, part: Part) -> None:
        """Put `part`, which owns its bytes (`copy_out`), at the end."""
        if self.empty():
            self.messages.last_complete = True
            self.disk.queues += 1
            self.budget.spool_queues += 1
        cost = self.cost_of(part)
        self.tail.append(part)
        self.tail_cost += cost
        self.tail_size += RECORD.size + part.end - part.start
        self.inside += part.end - part.start
        self.within_frame = part.kind == BODY and part.size > 0
        self.messages.add(part, self.tail_counts)
        part.replays = self.durable and self.replays
        if part.replays:
            self.tail_durable = True
        self.paging.grown(self, cost)
        if self.tail_cost >= self.disk.share() or (self.tail_durable and self.unmarked.in_flight == 0):
            self.write_tail()

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes more than what waits in memory can be written, and read again, as far as can be told."""
        return not (self.damage or self.disk.trouble or self.waits_for_room) and self.disk.room_for(
            self.tail_size + size, self.rule, self.rule_bytes
        )

    def write_through(self, part: Part) -> None:
        """Write `part`, which stands before all that waits here and stays in memory, where that is durable."""
        if not self.durable or not self.replays:
            return
        part.replays = True
        size = BATCH.size + RECORD.size + part.end - part.start
        if self.disk.room_for(size, self.rule, self.rule_bytes):
            batch = self._write([part], 0, size, {}, durable=True)
            batch.taken = True
            self.unmarked.batches.append(batch)

    def take_rule(self, rule: Rule) -> None:
        """`rule` spools what stands first: its bounds hold for what comes from now on."""
        self.rule = rule.name
        self.rule_bytes = ENDLESS if rule.spool_size is None else rule.spool_size
        self.max_age_ns = NEVER if rule.max_age_ns is None else rule.max_age_ns
        self.drop_expired = rule.drop_expired
        if rule.durable:
            self.durable = True  # also for what stands behind, whatever its own rule is
        elif self.empty() and not self.unmarked.batches:
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
            self._count_read(0)
        elif self.reading is not None:
            return parts
        elif self.stored:
            self._read_next()
            return parts
        elif self.writing or (self.tail_durable and self._write_tail()):
            batch = self.writing.popleft()
            self._count_writing(-batch.cost)
            parts = batch.parts
            counts = batch.counts
            batch.taken = True
            batch.parts = batch.job.parts = []
            if batch.durable:
                self.unmarked.batches.append(batch)
            else:
                batch.job.cancelled = True  # where it has not begun; what is written of it is not read
                self.files.consume(batch)
        else:
            parts = self.tail
            counts = self.tail_counts
            self.within_frame = False  # what continues this frame follows it, past this queue
            self._begin_tail()
        self.messages.take_out(parts, counts)
        for part in parts:
            self.inside -= part.end - part.start
        if parts and self.empty():
            self._end_use()
        return parts

    def read_next(self) -> None:
        """Begin to read what is next, if that is on disk, before it is asked for; not where memory is short."""
        if self.stored and self.reading is None and not self.read_ahead and not self.damage and self.paging.may_read_ahead():
            self._read_next()

    def forget(self) -> list[Part]:
        """Give up all that waits here: its messages, one part for each key, without bytes. `AmqpChannel` keeps what else must be known.

        Durable batches stay on disk. After them the queue takes nothing more.
        """
        if self.tail_durable:
            self._write_tail()
        if self.unmarked.batches or self.unmarked.in_flight:
            self.unmarked.given_up = True
        if self.empty():
            return []
        parts = self.messages.give_up(self.ordering_key)
        for batch in self.stored:
            self.budget.spooled_bytes -= batch.size
        for batch in self.writing:
            batch.job.cancelled = not batch.durable
            batch.taken = True
            batch.parts = batch.job.parts = []
            self._count_writing(-batch.cost)
            self.budget.held_bytes -= batch.cost
        if self.reading is not None:
            self.budget.spooled_bytes -= self.reading.size
        self.budget.held_bytes -= self.tail_cost
        for part in self.read_ahead:
            self.budget.held_bytes -= self.cost_of(part)
        for batch in (*(() if self.reading is None else (self.reading,)), *self.stored, *self.writing):
            if batch.durable:
                self.unmarked.given_up = True
                self.unmarked.batches.append(batch)
            else:
                self.files.consume(batch)
        self.inside = 0
        self.stored.clear()
        self.writing.clear()
        self.reading = None
        self.read_ahead = []
        self._begin_tail()
        self._count_read(0)
        self.within_frame = False
        self._end_use()
        return parts

    # ---- what comes back from the disk -----------------------------------------------------------------------------

    def done(self, job: Job) -> None:
        """A job of this queue is done."""
        if job.kind == WRITE and job.removes:
            self.files.removals.done(job)
            if self.unmarked.left:
                self.unmarked.finish_leaving()
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
            self.unmarked.written(batch)
        if batch.taken:  # out, or given up, before it was written
            self.files.delete_if_over(batch.segment)
        else:
            assert self.writing[0] is batch, "the writer keeps the order"
            self.writing.popleft()
            batch.parts = job.parts = []
            self._count_writing(-batch.cost)
            self.budget.held_bytes -= batch.cost
            self.budget.spooled_bytes += batch.size
            if not self._joins_last(batch):
                self.stored.append(batch)
        if not batch.durable:
            return
        self.committed = batch.end
        if self.on_committed is not None and not self.unmarked.left:
            self.on_committed()
        if self.unmarked.left:
            self.unmarked.finish_leaving()
        elif self.tail_durable and self.unmarked.in_flight == 0:
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
        last.cost += batch.cost
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
        self.unmarked.kept -= 1
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
        cost = 0
        for part in parts:
            cost += self.cost_of(part)
        self.budget.held_bytes += cost
        self._count_read(cost)
        if batch.durable:
            self.unmarked.batches.append(batch)
        else:
            self.files.consume(batch)
        self.on_ready()

    # ---- marking off -----------------------------------------------------------------------------------------------

    def mark_off(self, queued: int, acknowledged: int, now: int, *, read: bool) -> None:
        """A few times a second: mark off what the broker has. So many bytes were put on its connection, so many has its machine; `read`:
        also the broker itself has them. Else it is given a moment, because a connection that is reset loses what is not read yet.
        """
        self.unmarked.mark_off(self.gone, queued, acknowledged, now, read=read)

    def unsafe(self) -> bool:
        """Whether something is still to be marked off, or to be written."""
        return self.unmarked.unsafe()

    def leave(self) -> None:
        """The connection, or the channel, is over: what is not marked off is to be replayed."""
        self.unmarked.leave()

    def given_up(self) -> bool:
        """Whether the channel is closed, and something of it is still to be marked off."""
        return self.unmarked.given_up

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
        self._count_writing(self.tail_cost)
        self.writing.append(self._write(self.tail, self.tail_cost, size, self.tail_counts, durable=self.tail_durable))
        self._begin_tail()
        return True

    def _write(self, parts: list[Part], cost: int, size: int, counts: dict[str, KeyWaiting], *, durable: bool) -> Batch:
        """The batch of `parts`, on its way to the disk."""
        batch = self.files.write(parts, cost, size, self.rule, counts, self.came, durable=durable)
        if durable:
            self.unmarked.begin(batch)
            if self not in self.unmarked_queues:
                self.unmarked_queues.append(self)
        return batch

    def room_again(self) -> None:
        """There may be room on the disk again."""
        self.waits_for_room = False
        if self.tail_cost >= self.disk.share() or self.tail_durable:
            self.write_tail()
        self.paging.offer(self)

    def page_out(self) -> bool:
        self.write_tail()
        return not self.tail

    def _begin_tail(self) -> None:
        self.tail = []
        self.tail_counts = {}
        self.paging.emptied(self, self.tail_cost)
        self.tail_cost = 0
        self.tail_size = BATCH.size
        self.tail_durable = False

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
        self.budget.spool_writing += size

    def _end_use(self) -> None:
        """Nothing waits any more."""
        self.disk.queues -= 1
        self.budget.spool_queues -= 1
        self.files.end_segment()

    # ---- what operators order --------------------------------------------------------------------------------------

    def give_order(self, order: SpoolOrder) -> None:
        """Count what waits here of its topic; unless it is a preview, it holds for that."""
        self.messages.give_order(order)

    def hold_files(self) -> list[WaitingBatch]:
        """What waits here, in order. Its files are kept until `release_files`."""
        self.unmarked.copies += 1
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
                self.files.delete_if_over(each.batch.segment)
        self.unmarked.copies -= 1
        if self.unmarked.left:
            self.unmarked.finish_leaving()

    def remove(self, part: Part) -> None:
        """`part`, whose turn it was, is given up: it is not replayed, whatever happens next."""
        if part.place and part.replays:
            self.files.removals.add(part.place + part.start, part.place + part.end)

    def remove_all(self, parts: list[Part], places: list[Range], on_synced: Callable[[], None]) -> None:
        """`parts`, in memory, and what stands at `places` are given up; `on_synced` is called when nothing of it will be replayed."""
        written = list(places)
        for part in parts:
            if not part.place:
                part.replays = False  # it may be written yet
            elif part.replays:  # also where another removal of it is on its way: this one is not done before it is on the medium, too
                written.append((part.place + part.start, part.place + part.end))
        self.files.removals.write(written, on_synced)

    def __repr__(self) -> str:
        return f"<SpoolQueue {self.ordering_key} stored={len(self.stored)} writing={len(self.writing)} tail={len(self.tail)}>"
