"""Loops over many topics: the worst of them, and the sums of their rates, as if all were sorted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.counting.accounts import TopicTotals
from gateway.counting.topic_numbers import KINDS, Worst, note_numbers

NUMBERS = st.tuples(*[st.integers(0, 3)] * 5)


def topics(numbers: list[tuple[int, ...]]) -> list[TopicTotals]:
    made = []
    for at, (received, forwarded, refused, size, waiting) in enumerate(numbers):
        totals = TopicTotals("amqp", f"t{at}")
        totals.rates = (float(received), float(forwarded), float(refused), float(size))
        totals.received = waiting
        made.append(totals)
    return made


@given(numbers=st.lists(NUMBERS, max_size=40), most=st.integers(1, 6), at_a_time=st.integers(1, 9))
def test_the_worst_are_those_that_come_first_where_all_are_sorted(numbers: list[tuple[int, ...]], most: int, at_a_time: int) -> None:
    made = topics(numbers)
    worst = Worst(most)
    for first in range(0, len(made), at_a_time):
        worst.add(made[first : first + at_a_time])
    every = {each.place: (each.rates[2], float(each.waiting), each.rates[0]) for each in made}
    troubles = [trouble for trouble in sorted(every.values(), reverse=True) if any(trouble)]
    assert list(worst.list_troubles().values()) == troubles[:most]
    assert all(every[place] == trouble for place, trouble in worst.list_troubles().items())
    sums = [sum(each.rates[at] for each in made) for at in range(4)]
    assert [worst.received, worst.forwarded, worst.refused, worst.bytes] == sums


def test_only_numbers_that_are_not_0_are_noted() -> None:
    made = topics([(0, 0, 0, 0, 0), (1, 2, 3, 4, 5)])
    made[1].shadow_refused = 9
    for name, number in (
        ("received_per_second", 1.0), ("forwarded_per_second", 2.0), ("refused_per_second", 3.0), ("bytes_per_second", 4.0),
        ("waiting", 5.0), ("moving", 8.0), ("shadow_refused", 9.0), ("trouble", 351.0),
    ):  # fmt: skip
        found: dict[tuple[str, str, str], float] = {}
        note_numbers(made, KINDS[name], (100.0, 10.0, 1.0), found)
        assert found == {("amqp", "t1", "produce"): number}, name
