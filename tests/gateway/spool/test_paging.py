"""What all queues of the spool have in memory together: it stays within `memory.target`, and the largest goes to the disk first."""

from __future__ import annotations

from pathlib import Path

from gateway.pipeline.held_budget import HeldBudget
from gateway.pipeline.parts import REQUEST, Part
from gateway.spool.disk import READ, WRITE, SpoolDisk
from gateway.spool.paging import PageableQueue, Paging
from gateway.spool.queue import SpoolQueue
from limiter.judge import Judge
from limiter.keys import Key
from limiter.rules.rule_set import RuleSet
from limiter.topics import amqp_topic

JUDGE = Judge(RuleSet(()))
KEY = JUDGE.key(JUDGE.origin("amqp", "here", "10.0.0.7", "shop", b"/", 1), b"orders", amqp_topic(b"/", b"", b"orders"))
MEMORY = 8 << 20
SIZE = 600


def key_of(_: bytes) -> Key:
    return KEY


def cost_of(part: Part) -> int:
    return part.end - part.start + 400


def message(number: int) -> Part:
    data = number.to_bytes(8, "big") + bytes(SIZE - 8)
    return Part(REQUEST, 1, data, 0, len(data), KEY, 1, 1, SIZE)


class Queues:
    """Many queues over a disk whose jobs are done by hand."""

    def __init__(self, directory: Path, memory: int = MEMORY, size: int = 1 << 30) -> None:
        self.disk = SpoolDisk(directory, size, memory, threads=False)
        self.budgets: list[HeldBudget] = []
        self.queues: list[SpoolQueue] = []
        self.sent: list[int] = []
        self.most = 0  # bytes that were in memory at once

    def begin(self) -> SpoolQueue:
        self.budgets.append(HeldBudget())
        self.sent.append(0)
        queue = SpoolQueue(self.disk, self.budgets[-1], len(self.queues) + 1, 1, key_of, cost_of, lambda: None)
        self.queues.append(queue)
        return queue

    def add(self, at: int) -> None:
        part = message(self.sent[at])
        self.sent[at] += 1
        self.budgets[at].held_bytes += cost_of(part)
        self.queues[at].add(part)
        self.most = max(self.most, self.held())

    def fill(self) -> None:
        """A new queue gets all that it may keep in memory, and no more."""
        queue = self.begin()
        while queue.tail_cost + 1_000 < self.disk.share():
            self.add(len(self.queues) - 1)

    def work(self, kind: int) -> None:
        while self.disk.work(kind):
            pass
        for job in self.disk.collect():
            queue = job.owner
            assert isinstance(queue, SpoolQueue)
            queue.done(job)
            self.most = max(self.most, self.held())

    def held(self) -> int:
        """As the connections' budgets count it."""
        return sum(budget.held_bytes for budget in self.budgets)

    def take_all(self, at: int) -> list[int]:
        taken: list[int] = []
        queue = self.queues[at]
        while not queue.empty():
            parts = queue.take()
            if not parts:
                self.work(READ)
            for part in parts:
                self.budgets[at].held_bytes -= cost_of(part)
            taken += [int.from_bytes(part.data[:8], "big") for part in parts]
        return taken


def test_a_thousand_queues_filled_one_after_the_other_stay_within_the_memory_and_in_order(tmp_path: Path) -> None:
    """Each is filled to its share at that time: by their shares alone they may have a third more than there is."""
    queues = Queues(tmp_path)
    allowed = 0
    first: list[int] = []  # sizes of the tails that were paged first
    rest = 0  # the largest of those that were not
    for _ in range(1_000):
        sizes = [queue.tail_cost for queue in queues.queues]
        queues.fill()
        allowed += queues.disk.share()
        if queues.disk.paging.paged and not first:
            first = [size for size, queue in zip(sizes, queues.queues, strict=False) if queue.writing]
            rest = max(size for size, queue in zip(sizes, queues.queues, strict=False) if not queue.writing)
        queues.work(WRITE)
        assert queues.disk.paging.total() == queues.held()
    assert allowed > MEMORY * 4 // 3
    assert queues.most <= MEMORY
    assert 1 < len(first) < 100
    assert min(first) > rest - queues.disk.least
    for at in range(1_000):
        assert queues.take_all(at) == list(range(queues.sent[at]))
    assert (queues.held(), queues.disk.paging.total(), sum(budget.spool_writing for budget in queues.budgets)) == (0, 0, 0)
    assert not any(queues.disk.paging.classes)
    queues.disk.close(0)


def test_what_is_read_back_makes_room_first_and_nothing_is_read_ahead_where_there_is_none(tmp_path: Path) -> None:
    queues = Queues(tmp_path, memory=1 << 20)
    for at in range(12):
        queues.begin()
        while not queues.queues[at].stored:  # one batch of a size of when there were few
            queues.add(at)
            queues.work(WRITE)
        queues.add(at)
    paging = queues.disk.paging
    for queue in queues.queues:
        queue.read_next()
        queues.work(READ)
        queues.work(WRITE)
    assert not paging.may_read_ahead()
    waiting = [queue for queue in queues.queues if not queue.read_ahead]
    assert 0 < len(waiting) < 12
    assert paging.read_ahead <= paging.high + queues.disk.most, "one batch more than there is memory for, at the most"
    for at in range(12):
        assert queues.take_all(at) == list(range(queues.sent[at])), "what is needed is read all the same"
    assert paging.total() == 0
    queues.disk.close(0)


def test_a_full_spool_is_not_asked_again_and_again_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    queues = Queues(tmp_path, memory=64 << 10, size=0)
    for at in range(20):
        queues.begin()
        for _ in range(20):
            queues.add(at)
    paging = queues.disk.paging
    assert paging.paged == 0
    assert paging.over()
    assert sum(len(each) for each in paging.classes) == 0, "who finds no room stands in no class"
    queues.disk.max_bytes = 1 << 30
    for _ in range(len(queues.disk.out_of_room)):
        queue = queues.disk.out_of_room.popleft()
        assert isinstance(queue, SpoolQueue)
        queue.room_again()
    queues.add(0)
    queues.work(WRITE)
    assert not paging.over()
    for at in range(20):
        assert queues.take_all(at) == list(range(queues.sent[at]))
    queues.disk.close(0)


def test_a_target_that_is_lowered_holds_from_the_next_message_on(tmp_path: Path) -> None:
    queues = Queues(tmp_path)
    for at in range(10):
        queues.begin()
        for _ in range(50):
            queues.add(at)
    assert queues.disk.paging.total() == 500_000
    queues.disk.take_settings(1 << 30, 200_000, 0, 0)
    queues.add(0)
    queues.work(WRITE)
    assert queues.disk.paging.total() <= 200_000
    for at in range(10):
        assert queues.take_all(at) == list(range(queues.sent[at]))
    queues.disk.close(0)


def test_the_largest_is_found_whatever_grew_and_left(tmp_path: Path) -> None:
    class Tail(PageableQueue):
        def page_out(self) -> bool:
            paged.append(self.tail_cost)
            paging.emptied(self, self.tail_cost)
            self.tail_cost = 0
            return True

    paging = Paging(10_000, 100)
    paged: list[int] = []
    tails = [Tail() for _ in range(10)]
    for size, tail in enumerate(tails, 1):
        for _ in range(size):
            tail.tail_cost += 100
            paging.grown(tail, 100)
    paging.emptied(tails[9], 1_000)
    tails[9].tail_cost = 0
    assert paged == []
    tails[0].tail_cost += 2_500
    paging.grown(tails[0], 2_500)
    assert paged == [2_600]
    paging.take_target(3_000)
    tails[1].tail_cost += 1
    paging.grown(tails[1], 1)
    assert paged == [2_600, 900, 800, 700, 600]
