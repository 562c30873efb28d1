"""Which tails go to the disk, and when, to the byte: over queues that only stand in for the spool's."""

from __future__ import annotations

from gateway.waiting.disk.paging import CLASSES, PageableQueue, Paging


class Tail(PageableQueue):
    """A queue that writes its tail when it is told, unless it cannot; `asked` how often it was told."""

    def __init__(self, paging: Paging, *, writes: bool = True) -> None:
        super().__init__()
        self.paging, self.writes, self.asked = paging, writes, 0

    def grow(self, size: int) -> None:
        self.tail_cost += size
        self.paging.grow_tail(self, size)

    def leave(self) -> None:
        self.paging.drop_tail(self, self.tail_cost)
        self.tail_cost = 0

    def page_out(self) -> bool:
        self.asked += 1
        if self.writes:
            self.leave()
        return self.writes


def test_tails_are_written_the_largest_first_once_they_come_to_two_thirds() -> None:
    paging = Paging(600, 10)
    small, middle, large = (Tail(paging) for _ in range(3))
    small.grow(100)
    large.grow(180)
    middle.grow(120)
    assert (paging.tails, paging.paged) == (400, 0), "two thirds are not too much"
    small.grow(1)
    assert ([each.asked for each in (small, middle, large)], paging.tails, paging.paged) == ([0, 0, 1], 221, 1)
    paging.read(180)
    assert (paging.tails, paging.read_ahead, paging.paged) == (101, 180, 2), "what is read ahead counts too"
    assert [each.asked for each in (small, middle, large)] == [0, 1, 1]
    assert paging.may_read_ahead()
    paging.read(200)
    assert (paging.paged, paging.may_read_ahead()) == (3, True)
    paging.read(20)
    assert paging.may_read_ahead(), "400, and nothing to write"
    paging.read(1)
    assert not paging.may_read_ahead()
    paging.read(-201)
    assert (paging.read_ahead, paging.total()) == (200, 200)


def test_what_is_left_may_be_half() -> None:
    paging = Paging(600, 10)
    tails = [Tail(paging) for _ in range(4)]
    for tail, size in zip(tails, (100, 100, 100, 120), strict=True):
        tail.grow(size)
    assert ([tail.asked for tail in tails], paging.tails) == ([0, 0, 0, 1], 300)


def test_what_becomes_less_makes_nothing_go_to_the_disk() -> None:
    paging = Paging(600, 10)
    tail = Tail(paging)
    tail.grow(250)
    paging.tails += 300
    paging.read(-10)
    assert tail.asked == 0
    paging.read(10)
    assert tail.asked == 1


def test_a_tail_that_is_not_worth_a_batch_or_has_left_is_not_asked_for() -> None:
    paging = Paging(600, 10)
    tiny, left = Tail(paging), Tail(paging)
    tiny.grow(9)
    left.grow(350)
    left.leave()
    paging.tails += 500
    tiny.grow(0)
    assert (tiny.asked, left.asked, paging.paged) == (0, 0, 0)
    tiny.grow(1)
    assert (tiny.asked, left.asked, paging.paged) == (1, 0, 1)


def test_a_tail_that_cannot_be_written_is_asked_for_again_when_it_has_grown_or_there_is_room() -> None:
    paging = Paging(600, 10)
    full, other = Tail(paging, writes=False), Tail(paging)
    full.grow(400)
    other.grow(15)
    assert (full.asked, other.asked, paging.paged) == (1, 1, 1)
    other.grow(9)
    assert (full.asked, other.asked) == (1, 1)
    paging.offer(full)
    full.writes = True
    other.grow(1)
    assert (full.asked, paging.tails) == (2, 10)


def test_the_largest_class_has_all_that_is_larger() -> None:
    paging = Paging(1 << 30, 10)
    for size, size_class in (
        (9, 0),
        (10, 1),
        (19, 1),
        (20, 2),
        (10 * CLASSES - 1, CLASSES - 1),
        (10 * CLASSES, CLASSES),
        (1 << 20, CLASSES),
    ):
        tail = Tail(paging)
        tail.grow(size)
        assert tail.size_class == size_class
        assert (tail in paging.classes[size_class]) == (size_class > 0)
        tail.leave()
        assert (tail.size_class, any(paging.classes)) == (0, False)
    assert paging.tails == 0


def test_a_target_is_some_batches_at_least() -> None:
    paging = Paging(1, 10)
    assert (paging.target, paging.high, paging.low) == (160, 106, 80)
    paging.take_target(301)
    assert (paging.target, paging.high, paging.low) == (301, 200, 150)
