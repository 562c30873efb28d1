"""Connections of several workers: a parent and its workers over streams in memory, the workers' sessions over socket pairs."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from common.views.connections import ConnectionView, SilentConnectionView
from common.views.topics import TopicView
from control_plane.workers.child import DESCRIBE_S
from gateway.data_plane import Close
from gateway.telemetry import status
from gateway.telemetry.views import DECODERS
from gateway.workers import rules as rule_sets
from gateway.workers.wire import FOR_PARENTS, FOR_WORKERS, Begin, Describe, Described, Reload, StateReport, listen
from gateway.workers.worker import Worker, encode
from support.idle_standalone import idle_parent, written
from support.wires.wires import Wires

CONFIGURATION = """\
gateway: {name: several, workers: 2, state_directory: state}
listeners: [{name: here, protocol: amqp, bind: "127.0.0.1:0", upstream: "127.0.0.1:1"}]
rules: [{name: all, limit: {messages: 100/s}}]
access_log: off
limiter: {threads: 0}
"""


class Gateways:
    """A parent and two workers, each with its own sessions: the first 1, 2 and 3, the second 11, 12 and 13."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.parent = parent = stack.enter_context(idle_parent(written(folder, CONFIGURATION)))
        self.workers: dict[int, Worker] = {}
        for worker in parent.children:
            ends = socket.socketpair()
            for end in ends:
                stack.callback(end.close)
            begin = Begin(worker, 2, 0, "boot", "", {}, 0, rule_sets.encode(parent.store.rules()))
            self.workers[worker] = Worker(begin, parent.settings, parent.log_handler, ends[0])
            gateway = self.workers[worker].gateway
            gateway.sweeper.close()
            stack.callback(gateway.executor.close, 5)
            wires = stack.enter_context(Wires())
            wires._number = 10 * (worker - 1)
            for _ in range(3):
                wires.connect("amqp")
            gateway.sweeper = wires.sweeper
        self.asked: list[tuple[int, list[int]]] = []  # worker, the connections it was to describe
        self.hung: set[int] = set()  # workers that do not describe

    def take(self, worker: int, message: Any) -> None:
        if isinstance(message, Describe):
            self.asked.append((worker, message.connections))
            if worker in self.hung:
                return
        self.workers[worker].take(message)

    @asynccontextmanager
    async def talking(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            for worker, child in self.parent.children.items():
                mine, theirs = trio.testing.memory_stream_pair()
                nursery.start_soon(child.outbox.send_to, mine)
                nursery.start_soon(listen, mine, FOR_PARENTS, child.take)
                nursery.start_soon(self.workers[worker].outbox.send_to, theirs)
                nursery.start_soon(listen, theirs, FOR_WORKERS, lambda message, worker=worker: self.take(worker, message))
            await self.parent.gather(["connections"])
            yield
            nursery.cancel_scope.cancel()


@pytest.fixture
def several(tmp_path: Path) -> Iterator[Gateways]:
    with ExitStack() as stack:
        yield Gateways(tmp_path, stack)


async def test_each_worker_describes_those_of_its_own_that_are_asked_for(several: Gateways) -> None:
    async with several.talking():
        known = several.parent.connections()
        items = await several.parent.describe_connections([12, 2, 99, 3])
    assert known == dict.fromkeys((1, 2, 3, 11, 12, 13), "amqp")
    assert [(item.id, item.worker, getattr(item, "listener", "")) for item in items] == [(12, 2, "here"), (2, 1, "here"), (3, 1, "here")]
    assert sorted(several.asked) == [(1, [2, 3]), (2, [12])]


async def test_a_worker_is_asked_slice_by_slice(several: Gateways, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "MAX_CONNECTIONS_PER_SLICE", 2)
    async with several.talking():
        items = await several.parent.describe_connections([1, 2, 3, 11])
    assert [item.id for item in items] == [1, 2, 3, 11]
    assert sorted(several.asked) == [(1, [1, 2]), (1, [3]), (2, [11])]


async def test_a_connection_that_has_ended_is_left_out(several: Gateways) -> None:
    async with several.talking():
        sweeper = several.workers[1].gateway.sweeper
        sweeper.sessions[2].abort("client", "")
        sweeper.end(sweeper.sessions[2])
        assert [item.id for item in await several.parent.describe_connections([1, 2, 3])] == [1, 3]


async def test_a_worker_that_does_not_answer_is_shown_by_what_is_known(
    several: Gateways, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    del autojump_clock
    monkeypatch.setattr(status, "MAX_CONNECTIONS_PER_SLICE", 2)
    several.hung.add(2)
    async with several.talking():
        began = trio.current_time()
        items = await several.parent.describe_connections([1, 11, 12, 13])
        assert trio.current_time() - began == DESCRIBE_S, "it is waited for once, not for each slice"
    assert (items[0].id, getattr(items[0], "listener", "")) == (1, "here")
    assert items[1:] == [SilentConnectionView(id=number, protocol="amqp", worker=2) for number in (11, 12, 13)]


async def test_an_answer_that_comes_too_late_is_not_kept(several: Gateways) -> None:
    child = several.parent.children[1]
    with trio.move_on_after(0):
        await child.describe([1])
    child.take(Described(1, [ConnectionView(id=1, listener="here", protocol="amqp")]))
    assert (child._waiting, child._described) == ({}, {})


async def test_an_ended_worker_describes_nothing(several: Gateways) -> None:
    child = several.parent.children[1]
    child.over.set()
    assert await child.describe([1]) == []


def test_the_worker_that_has_a_connection_is_told_to_close_it(several: Gateways) -> None:
    for worker, child in several.parent.children.items():
        child.take(StateReport(7, {"connections": encode({10 * worker: "amqp"})}, []))
    assert [several.parent.close_connection(number, "why") for number in (20, 99)] == [True, False]
    said = [child.outbox._frames[-1:] for child in several.parent.children.values()]
    assert [FOR_WORKERS.decode(frames[0][4:]) if frames else None for frames in said] == [None, Close(20, "why")]


def test_a_forgotten_topic_that_cannot_be_told_is_left_out_and_ends_no_worker(several: Gateways, monkeypatch: pytest.MonkeyPatch) -> None:
    """It left the reader of what the parent sends, and the worker ended; while `topics` failed, none was ever let go."""
    worker = several.workers[2]
    views = [TopicView(protocol="amqp", topic=topic, operation="produce", received=count) for topic, count in (("a", 1 << 64), ("b", 3))]
    monkeypatch.setattr("gateway.workers.worker.status", SimpleNamespace(topic=lambda _, view, __: view))
    monkeypatch.setattr(worker.plane, "view", lambda _: 1 << 64)
    worker._forgotten_topics += cast("Any", views)
    told = worker._report(1, ["topics"]).views
    assert list(told) == ["forgotten"]
    assert [(each.topic, each.received) for each in DECODERS["topics"].decode(told["forgotten"])] == [("b", 3)]
    assert worker._forgotten_topics == []


async def test_a_reload_that_has_no_thread_fails_and_ends_no_worker(several: Gateways, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(trio.to_thread, "run_sync", no_thread)
    assert await several.workers[2]._reload(Reload(1, "{}")) == "RuntimeError: can't start new thread"


async def test_a_view_that_cannot_be_told_is_left_out_and_ends_no_worker(
    several: Gateways, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    del autojump_clock
    plane = several.workers[2].plane
    view = plane.view
    monkeypatch.setattr(plane, "view", lambda name: 1 << 64 if name == "overhead" else view(name))
    untold = ConnectionView(id=1 << 64, listener="here", protocol="amqp")
    monkeypatch.setattr(plane, "describe_connections", lambda _: [untold])
    async with several.talking():
        await several.parent.gather(["overhead", "connections"])
        assert await several.parent.describe_connections([11]) == [SilentConnectionView(id=11, protocol="amqp", worker=2)]
    assert several.parent.children[2].view("overhead") is None
    assert several.parent.children[2].view("connections") == {11: "amqp", 12: "amqp", 13: "amqp"}
    said = [getattr(record, "fields", None) for record in caplog.records if record.msg == "view_failed"]
    assert said == [{"view": "overhead"}, {"view": "connections"}]
