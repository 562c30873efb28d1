"""What happened in each second, over all workers (`control_plane/workers/summed_seconds.py`)."""

from __future__ import annotations

from typing import Any

from control_plane.workers.summed_seconds import MOST_OPEN, WAIT_S, SummedSeconds

A, B = ("rocketmq", "a", "produce"), ("rocketmq", "b", "produce")


def second(at: int, **topics: float) -> Any:
    """As msgpack decodes it: lists."""
    return [at, 1.0, [[["rocketmq", name, "produce"], [rate, rate, 0.0, 0.0, 1.0]] for name, rate in topics.items()]]


def values(rate: float, waiting: float = 1.0) -> tuple[float, ...]:
    return rate, rate, 0.0, 0.0, waiting


def test_a_second_is_closed_when_all_workers_have_reported_it() -> None:
    seconds = SummedSeconds()
    seconds.add(1, [second(100, a=5.0)], 0.0)
    assert seconds.take({1, 2}, 0.1) == []
    seconds.add(2, [second(100, a=7.0, b=1.0), second(101)], 0.2)
    assert seconds.take({1, 2}, 0.2) == [(100, 1.0, [(A, values(12.0, 2.0)), (B, values(1.0))])]
    assert seconds.seen == {1, 2}


def test_a_worker_that_is_late_is_not_waited_for_for_long() -> None:
    seconds = SummedSeconds()
    seconds.add(1, [second(100, a=5.0)], 0.0)
    assert seconds.take({1, 2}, WAIT_S - 0.1) == []
    assert [at for at, _, _ in seconds.take({1, 2}, WAIT_S)] == [100]
    assert seconds.seen == {1}
    seconds.add(2, [second(100, a=7.0), second(101, a=7.0)], WAIT_S)
    seconds.add(1, [second(101, a=1.0)], WAIT_S)
    assert seconds.take({1, 2}, WAIT_S) == [(101, 1.0, [(A, values(8.0, 2.0))])], "nothing is counted for another second"


def test_a_worker_that_has_ended_is_not_waited_for() -> None:
    seconds = SummedSeconds()
    seconds.add(1, [second(100), second(101), second(102)], 0.0)
    assert [at for at, _, _ in seconds.take({1}, 0.0)] == [100, 101, 102]
    assert seconds.take(set(), 9.0) == []


def test_a_clock_that_is_set_back_goes_on() -> None:
    seconds = SummedSeconds()
    seconds.add(1, [second(5000)], 0.0)
    seconds.take({1}, 0.0)
    seconds.add(1, [second(1400)], 1.0)
    assert [at for at, _, _ in seconds.take({1}, 1.0)] == [1400]


def test_what_is_open_is_bounded() -> None:
    seconds = SummedSeconds()
    seconds.add(1, [second(at) for at in range(10 * MOST_OPEN)], 0.0)
    assert len(seconds.take({1}, 0.0)) == MOST_OPEN
