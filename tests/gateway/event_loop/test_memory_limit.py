"""The process near the limit of its memory: each step taken and undone, limits of control groups read, nothing done far from it."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from gateway.admission import BY_MEMORY, Admission, ConnectionLimits, ConnectionSlots, RefusedError
from gateway.event_loop import memory_limit
from gateway.event_loop.heap import give_back_heap
from gateway.event_loop.memory_limit import (
    CLOSE_EVERY_NS,
    TRIM_GROWN_EVERY_NS,
    MemoryLimit,
    cgroup_limits,
    find_limit,
    require_sizes,
    sizes,
)
from gateway.event_loop.memory_watermark import MemoryWatermark
from gateway.session.states import CLOSING
from support.rocketmq import frames as rocketmq
from support.wires.wires import Wires

LIMIT = 1000 << 20


class Ground:
    """A process whose size the test chooses."""

    def __init__(self, wires: Wires, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wires = wires
        self.watch = MemoryWatermark(1 << 30, wires.shared)
        self.slots = ConnectionSlots.unbounded()
        self.limit = MemoryLimit(LIMIT, wires.shared, self.watch, self.slots)
        self.percent = 0
        monkeypatch.setattr(memory_limit, "sizes", lambda: (LIMIT * self.percent // 100, 0))

    def look(self, percent: int, now: int = 0) -> bool:
        self.percent = percent
        return self.limit.check(self.wires.sweeper, now or self.wires.now())


def test_each_step_is_taken_at_its_mark_and_ends_three_points_below(monkeypatch: pytest.MonkeyPatch) -> None:
    with Wires() as wires:
        ground = Ground(wires, monkeypatch)
        seen = []
        for percent in (84, 85, 90, 91, 92, 97, 95, 93, 89, 88, 86, 82, 81):
            ground.look(percent)
            seen.append((percent, ground.limit.step))
        assert seen == [
            (84, 0), (85, 1), (90, 2), (91, 2), (92, 3), (97, 4), (95, 4), (93, 3), (89, 3), (88, 2), (86, 1), (82, 1), (81, 0),
        ]  # fmt: skip
        assert (wires.shared.patience_divisor, ground.watch.pressed, ground.slots.closed_because) == (1, False, "")


def test_a_step_says_what_it_does_and_newcomers_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with Wires() as wires:
        ground = Ground(wires, monkeypatch)
        assert ground.look(93)
        assert not ground.look(93), "no news"
        assert (wires.shared.patience_divisor, ground.slots.patience_divisor, ground.watch.pressed) == (4, 4, True)
        assert ground.limit.doing() == "time-outs are a quarter; publishers are not read; new connections are refused"
        admission = Admission("orders", ConnectionLimits(), ground.slots)
        with pytest.raises(RefusedError, match="this gateway is short of memory \\(930 of 1000 MiB are used\\); try again later") as caught:
            admission.admit("10.0.0.7", 0)
        assert caught.value.cause == BY_MEMORY
        ground.look(50)
        admission.admit("10.0.0.7", 0)


def test_under_pressure_publishers_are_not_read_whatever_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    with Wires() as wires:
        ground = Ground(wires, monkeypatch)
        client, broker = wires.connect("rocketmq")
        ground.watch.listener_configs = [wires.session().listener_config]
        client.sendall(rocketmq.send("orders"))
        wires.run(0.003)
        assert wires.received(broker)
        ground.look(91)
        ground.watch.check(wires.sweeper, wires.now())
        client.sendall(rocketmq.send("orders"))
        wires.run(0.003)
        assert wires.received(broker) == b""
        broker.sendall(rocketmq.response(1))
        wires.run(0.003)
        assert wires.received(client) == rocketmq.response(1), "what goes to clients leaves"
        ground.look(50)
        ground.watch.check(wires.sweeper, wires.now())
        wires.run(0.003)
        assert wires.received(broker)


def test_at_the_last_step_the_connection_that_keeps_most_is_closed_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with Wires() as wires:
        ground = Ground(wires, monkeypatch)
        for size in (80_000, 140_000, 100, 110_000):
            client, _ = wires.connect("rocketmq")
            client.sendall(rocketmq.send("orders") + rocketmq.send("orders", body=b"x" * size)[:-1])
            wires.run(0.003)
        closed = []
        began = wires.now()
        for tick in range(5):
            ground.look(98, began + tick * CLOSE_EVERY_NS)
            ground.look(98, began + tick * CLOSE_EVERY_NS + 1)  # much was read, so it is looked at before the next tick
            closed.append([number for number, session in wires.sweeper.sessions.items() if session.state >= CLOSING])
        assert closed == [[2], [2, 4], [1, 2, 4], [1, 2, 4], [1, 2, 4]], "and none that keeps next to nothing"
        assert wires.session(2).cause == "memory_full"
        assert wires.session(2).detail.endswith("try again later")


def test_a_process_that_has_grown_gives_back_what_is_free_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    trims: list[int] = []
    with Wires() as wires:
        ground = Ground(wires, monkeypatch)
        monkeypatch.setattr(memory_limit, "give_back_heap", lambda: trims.append(ground.percent))
        minute = TRIM_GROWN_EVERY_NS
        for now, percent in ((10, 30), (11, 30), (11, 31), (12, 31), (13, 31), (13, 20), (14, 20), (15, 21)):
            ground.look(percent, now * minute)
        assert trims == [30, 31, 21], "grown by ten MiB, and not within the minute"


def test_without_a_limit_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    with Wires() as wires:
        ground = Ground(wires, monkeypatch)
        ground.limit.limit = None
        assert not ground.look(300)
        assert ground.limit.step == 0


def test_a_limit_of_address_space_counts_by_virtual_size(monkeypatch: pytest.MonkeyPatch) -> None:
    with Wires() as wires:
        ground = Ground(wires, monkeypatch)
        monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 30, 1 << 30))
        monkeypatch.setattr(memory_limit, "sizes", lambda: (0, 930 << 20))
        ground.limit.check(wires.sweeper, wires.now())
        assert ground.limit.step == 2


def test_without_a_descriptor_the_size_is_known_all_the_same() -> None:
    """EMFILE; where the whole machine has none left (ENFILE) it is the same. The steps go on."""
    require_sizes()
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.open("/proc/self/statm", os.O_RDONLY)
        resident, virtual = sizes()
        kept = b"x" * (64 << 20)
        assert sizes()[0] - resident > len(kept) // 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
    assert 0 < resident <= virtual


def test_with_a_size_that_cannot_be_read_the_steps_go_on_with_the_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Wires() as wires:
        ground = Ground(wires, monkeypatch)
        assert ground.look(91)
        monkeypatch.setattr(memory_limit, "sizes", sizes)
        monkeypatch.setattr(memory_limit, "STATM", tmp_path / "statm")
        assert not ground.limit.check(wires.sweeper, wires.now())
        assert ground.limit.step == 2
        ground.limit.limit = ground.limit.size * 100 // 93  # a reload
        assert ground.limit.check(wires.sweeper, wires.now())
        assert ground.limit.step == 3
        assert ground.slots.closed_because
    with pytest.raises(OSError, match=r"/statm: No such file or directory: .*; mount /proc"):
        require_sizes()


def test_limits_of_control_groups_of_either_version_and_of_all_above(tmp_path: Path) -> None:
    v1 = tmp_path / "memory" / "docker" / "abc"
    v1.mkdir(parents=True)
    (v1 / "memory.limit_in_bytes").write_text("268435456\n")
    (v1.parent / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("1073741824\n")
    v2 = tmp_path / "kubepods" / "pod1"
    v2.mkdir(parents=True)
    (v2 / "memory.max").write_text("max\n")
    (v2.parent / "memory.max").write_text("536870912\n")
    lines = "12:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/kubepods/pod1\n"
    assert sorted(cgroup_limits(lines, tmp_path)) == [268435456, 536870912, 1073741824]
    assert cgroup_limits("0::/../../elsewhere\n", tmp_path) == [], "a namespace with another root"
    assert cgroup_limits("", tmp_path) == []


def test_this_process_has_a_size_and_a_limit() -> None:
    resident, virtual = sizes()
    assert 1 << 20 < resident < virtual
    assert find_limit() > 0
    give_back_heap()


@pytest.mark.parametrize(("limit", "workers", "part"), [(256, 1, 256), (256, 2, 96), (2048, 2, 960), (64, 2, 16)])
def test_workers_leave_something_to_their_parent(monkeypatch: pytest.MonkeyPatch, limit: int, workers: int, part: int) -> None:
    """Two of 115 MiB each, at which publishers are not read, and an idle parent were killed for more than 256 MiB."""
    monkeypatch.setattr(memory_limit, "cgroup_limits", lambda _: [limit << 20])
    assert find_limit(workers) == part << 20
