"""What all queues of the spool have in memory together: it stays within `memory.target`, and the largest goes to the disk first."""

from __future__ import annotations

from pathlib import Path

from gateway.pipeline.held_budget import HeldBudget
from gateway.pipeline.parts import REQUEST, Part
from gateway.waiting.disk.paging import Paging
from gateway.waiting.disk.queue import PagedQueue
from gateway.waiting.disk.waiting_disk import READ, WRITE, WaitingDisk
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
        self.disk = WaitingDisk(directory, size, memory, threads=False)
        self.budgets: list[HeldBudget] = []
        self.queues: list[PagedQueue] = []
        self.sent: list[int] = []
        self.most = 0  # bytes that were in memory at once

    def begin(self) -> PagedQueue:
        self.budgets.append(HeldBudget())
        self.sent.append(0)
        queue = PagedQueue(self.disk, self.budgets[-1], len(self.queues) + 1, 1, key_of, cost_of, lambda: None)
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
            assert isinstance(queue, PagedQueue)
            queue.finish_job(job)
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
    assert (queues.held(), queues.disk.paging.total(), sum(budget.paging_bytes for budget in queues.budgets)) == (0, 0, 0)
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
        assert isinstance(queue, PagedQueue)
        queue.resume_writing()
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
    queues = Queues(tmp_path)
    for at in range(10):
        queues.begin()
        for _ in range(10 * (at + 1)):
            queues.add(at)
    assert queues.take_all(9) == list(range(100)), "the largest of them has left"
    queues.disk.take_settings(1 << 30, 300_000, 0, 0)
    queues.add(0)
    written = [bool(queue.writing) for queue in queues.queues]
    assert written == [False] * 4 + [True] * 5 + [False], "451,000 bytes in tails of 11,000 to 90,000, and half of 300,000 is the bound"
    for _ in range(110):
        queues.add(1)
    assert queues.queues[1].writing, "by now the largest"
    assert not queues.queues[0].writing
    queues.work(WRITE)
    for at in range(9):
        assert queues.take_all(at) == list(range(queues.sent[at]))
    queues.disk.close(0)


def test_what_comes_what_is_written_and_what_is_read_back_count_together() -> None:
    paging = Paging(160, 10)
    paging.tails, paging.writing, paging.read_ahead = 60, 70, 30
    assert (paging.total(), paging.over()) == (160, False), "the target itself is not too much"
    for kind in ("tails", "writing", "read_ahead"):
        setattr(paging, kind, getattr(paging, kind) + 1)
        assert paging.over()
        setattr(paging, kind, getattr(paging, kind) - 1)


def test_tails_are_written_until_it_is_half_and_no_more(tmp_path: Path) -> None:
    queues = Queues(tmp_path)
    paging = queues.disk.paging
    for _ in range(1000):
        queues.fill()
        if paging.paged:
            break
    largest = max(queue.tail_cost for queue in queues.queues)
    assert paging.low - 2 * largest < paging.tails <= paging.low
    assert paging.paged == sum(bool(queue.writing) for queue in queues.queues), "each once"
    queues.work(WRITE)
    queues.disk.close(0)


def test_a_batch_counts_as_memory_while_it_is_written_and_while_it_is_read(tmp_path: Path) -> None:
    """For all queues together, and for its connection while it is on its way to the disk."""
    queues = Queues(tmp_path)
    paging, queue, budget = queues.disk.paging, queues.begin(), queues.budgets
    while not queue.writing:
        queues.add(0)
    cost = sum(cost_of(message(number)) for number in range(queues.sent[0]))
    assert (paging.writing, budget[0].paging_bytes, paging.read_ahead) == (cost, cost, 0)
    queues.work(WRITE)
    assert (paging.writing, budget[0].paging_bytes, paging.read_ahead) == (0, 0, 0)
    assert queue.take() == [], "it is on disk"
    assert paging.read_ahead == cost
    queues.work(READ)
    assert len(queue.take()) == queues.sent[0]
    assert paging.read_ahead == 0
    queues.disk.close(0)
