"""Connections counted over several processes: exact, whoever counts at the same time and whoever ends in the middle."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.admission import BY_ADDRESS, BY_ALL, BY_USER, Admission, ConnectionLimits, ConnectionPermit, ConnectionSlots, RefusedError
from gateway.workers import shared_counts
from gateway.workers.shared_counts import PATIENCE_S, SharedCounts
from limiter.limits import Rate

WORKERS = 3


@pytest.fixture
def counts() -> Iterator[SharedCounts]:
    with SharedCounts.create(WORKERS) as made:
        yield made


def worker(counts: SharedCounts, place: int, **limits: Any) -> Admission:
    """A listener of one worker. (The lock is a process's: these are all of this one.)"""
    slots = ConnectionSlots.unbounded()
    slots.others = SharedCounts(counts.descriptor, WORKERS, place)
    return Admission("rocket", ConnectionLimits(**limits), slots)


def test_a_rate_of_new_connections_holds_over_all_workers_and_by_a_reload() -> None:
    second = 1_000_000_000
    with SharedCounts.create(WORKERS) as counts:
        doors = []
        for place in (1, 2, 3):
            doors.append(Admission("rocket", ConnectionLimits(rate=Rate(10)), ConnectionSlots.unbounded()))
            doors[-1].count_with(SharedCounts(counts.descriptor, WORKERS, place, ["other", "rocket"]))

        def admitted(now: int, most: int) -> int:
            found = 0
            for at in range(most):
                with contextlib.suppress(RefusedError):
                    doors[at % 3].admit(f"10.0.0.{at}", now)
                    found += 1
            return found

        assert admitted(100 * second, 50) == 10, "the burst, once"
        assert [admitted(100 * second + at * second // 10, 50) for at in (1, 2, 3)] == [1, 1, 1]
        assert admitted(200 * second, 50) == 10, "no more than a burst after a long time"
        for door in doors:
            door.take_limits(ConnectionLimits(rate=Rate(20)))
        assert admitted(300 * second, 50) == 20


def refused(admission: Admission, address: str = "10.0.0.7") -> str:
    with pytest.raises(RefusedError) as refusal:
        admission.admit(address, 0)
    return refusal.value.cause


def test_a_cap_of_a_listener_holds_over_all_workers(counts: SharedCounts) -> None:
    workers = [worker(counts, place, connections=5) for place in (1, 2, 3)]
    permits = [workers[at % 3].admit(f"10.0.0.{at}", 0) for at in range(5)]
    assert [refused(each) for each in workers] == [BY_ALL] * 3
    permits[0].release()
    permits.append(workers[2].admit("10.0.0.9", 0))
    assert [refused(each) for each in workers] == [BY_ALL] * 3
    for permit in permits:
        permit.release()
    assert [each.admitted for each in workers] == [0, 0, 0]
    for at in range(5):
        workers[0].admit(f"10.0.1.{at}", 0)  # one worker may have them all


def test_caps_of_an_address_and_of_a_user_hold_over_all_workers(counts: SharedCounts) -> None:
    workers = [worker(counts, place, per_address=2, per_user=3) for place in (1, 2, 3)]
    workers[0].admit("10.0.0.7", 0)
    first = workers[1].admit("10.0.0.7", 0)
    assert [refused(each) for each in workers] == [BY_ADDRESS] * 3
    others = [workers[2].admit(f"10.0.1.{at}", 0) for at in range(3)]
    behind_proxy = workers[2].admit(None, 0)
    with pytest.raises(RefusedError, match="max_connections_per_address"):
        behind_proxy.take_address("10.0.0.7")
    for permit in (first, *others[:2]):
        permit.take_user("guest")
    with pytest.raises(RefusedError, match="max_connections_per_user") as refusal:
        others[2].take_user("guest")
    assert refusal.value.cause == BY_USER
    first.release()
    others[2].take_user("guest")
    workers[0].admit("10.0.0.7", 0)


def test_what_a_worker_had_that_has_ended_counts_no_more(counts: SharedCounts) -> None:
    lost, other = worker(counts, 1, per_address=2), worker(counts, 2, per_address=2)
    lost.admit("10.0.0.7", 0)
    lost.admit("10.0.0.7", 0)
    assert refused(other) == BY_ADDRESS
    counts.clear(1)
    other.admit("10.0.0.7", 0)
    worker(counts, 1, per_address=2).admit("10.0.0.7", 0)  # the one in its place
    assert refused(other) == BY_ADDRESS


def test_listeners_are_told_apart_and_names_too(counts: SharedCounts) -> None:
    one, other = SharedCounts(counts.descriptor, WORKERS, 1), SharedCounts(counts.descriptor, WORKERS, 2)
    names = [("rocket", BY_ADDRESS, f"10.0.{at // 256}.{at % 256}") for at in range(1000)]
    for at, name in enumerate(names):
        one.add(*name, at)
    found = Counter(other.count_elsewhere(*name) - at for at, name in enumerate(names))
    assert found == {0: 1000}, "one in ten million is counted too high"
    assert other.count_elsewhere("rabbit", BY_ADDRESS, "10.0.3.1") == other.count_elsewhere("rocket", BY_USER, "10.0.3.1") == 0
    assert one.count_elsewhere(*names[7]) == 0, "its own are not elsewhere"
    assert repr(other) == "<SharedCounts 2 of 3>"


RACER = """
import sys
from gateway.admission import Admission, ConnectionLimits, ConnectionSlots, RefusedError
from gateway.workers.shared_counts import SharedCounts

place, descriptor, workers = map(int, sys.argv[1:])
slots = ConnectionSlots.unbounded()
slots.others = SharedCounts(descriptor, workers, place)
admission = Admission("rocket", ConnectionLimits(connections=40, per_address=10), slots)
sys.stdin.readline()
held = []
for turn in range(400):
    try:
        held.append(admission.admit(f"10.0.0.{turn % 5}", 0))
    except RefusedError:
        pass
    if turn % 3 == 0 and held and turn < 300:
        held.pop(0).release()
print(admission.admitted, *(admission.by_address.get(f"10.0.0.{at}", 0) for at in range(5)), flush=True)
sys.stdin.readline()
"""


def test_processes_that_admit_at_the_same_time_admit_exactly_as_many_as_the_caps_allow(counts: SharedCounts) -> None:
    """Each wants far more than there is, and lets go of some for a while; in the end all that is allowed is taken, and no more."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(place), str(counts.descriptor), str(WORKERS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[counts.descriptor],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for place in (1, 2, 3)
    ]  # fmt: skip
    try:
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        found = []
        for racer in racers:
            assert racer.stdout is not None
            found.append([int(word) for word in racer.stdout.readline().split()])
    finally:
        for racer in racers:
            racer.communicate("end\n")
    admitted = [sum(numbers) for numbers in zip(*found, strict=True)]
    assert admitted == [40, *[8] * 5] or (admitted[0] == 40 and max(admitted[1:]) <= 10), found


def test_memory_of_a_worker_that_has_ended_is_given_back(counts: SharedCounts) -> None:
    other = SharedCounts(counts.descriptor, WORKERS, 2)
    before = os.fstat(counts.descriptor).st_blocks
    other.add("rocket", BY_ADDRESS, "10.0.0.7", 1)
    assert os.fstat(counts.descriptor).st_blocks > before
    counts.clear(2)
    assert os.fstat(counts.descriptor).st_blocks == before
    assert SharedCounts(counts.descriptor, WORKERS, 1).count_elsewhere("rocket", BY_ADDRESS, "10.0.0.7") == 0
    other.add("rocket", BY_ADDRESS, "10.0.0.7", 2)
    assert SharedCounts(counts.descriptor, WORKERS, 1).count_elsewhere("rocket", BY_ADDRESS, "10.0.0.7") == 2, "it is the same memory"


def test_waiting_for_the_lock_is_bounded_by_the_clock(counts: SharedCounts, monkeypatch: pytest.MonkeyPatch) -> None:
    """However late the kernel wakes who pauses."""
    now = [100.0]

    def pause(seconds: float) -> None:
        now[0] += seconds + 0.001

    def taken(*_: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(shared_counts, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=pause))
    monkeypatch.setattr(shared_counts, "fcntl", SimpleNamespace(lockf=taken, LOCK_EX=2, LOCK_NB=4, LOCK_UN=8))
    with counts.exclusive():
        assert 100 + PATIENCE_S <= now[0] < 100 + PATIENCE_S + 0.002


def test_a_worker_that_is_stopped_while_it_counts_keeps_nobody_for_long(counts: SharedCounts) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", "import fcntl, sys; fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX); print('held', flush=True); input()",
         str(counts.descriptor)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[counts.descriptor],
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        admission = worker(counts, 1, connections=1)
        done: list[ConnectionPermit] = []
        thread = threading.Thread(target=lambda: done.append(admission.admit("10.0.0.7", 0)), daemon=True)
        thread.start()
        thread.join(30)
        assert len(done) == 1, f"it waits {PATIENCE_S:g} s, and not for ever"
        assert refused(admission) == BY_ALL, "and counts all the same"
    finally:
        holder.communicate("end\n")
