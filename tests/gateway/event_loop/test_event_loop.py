"""The loop beside other tasks of trio's: both get their turns, whoever sleeps. With trio's own epoll set inside ours, and through trio."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio

from gateway.event_loop import event_loop
from gateway.event_loop.event_loop import MAX_SLEEP_S, EventLoop, descriptor_of_trio
from support.rocketmq import frames as rocketmq
from support.wires.wires import Wires

SOON_S = 10.0  # far less than what a sleep that nothing ends would take
LONG_S = 60.0
ASKED = rocketmq.heartbeat(opaque=1)


@pytest.fixture
def wires() -> Iterator[Wires]:
    with Wires() as made:
        yield made


@pytest.fixture(params=["inside", "through trio"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "inside":
        monkeypatch.setattr(event_loop, "descriptor_of_trio", lambda: -1)
    return str(request.param)


@asynccontextmanager
async def looping(wires: Wires) -> AsyncIterator[EventLoop]:
    """The loop runs beside the block; afterwards it stops by itself when told to."""
    loop = EventLoop(wires.sweeper)
    with trio.fail_after(LONG_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.run)
            yield loop
            loop.stop()


def hear(end: socket.socket, expected: bytes) -> None:
    got = b""
    while len(got) < len(expected):
        data = end.recv(4096)
        assert data, "ended"
        got += data
    assert got == expected


async def carried(client: socket.socket, broker: socket.socket) -> None:
    """Bytes of the client reach the broker while every task of trio's waits, for a thread."""

    def say() -> None:
        client.sendall(ASKED)
        hear(broker, ASKED)

    await trio.to_thread.run_sync(say)


def test_this_trio_has_its_set_where_it_is_looked_for() -> None:
    async def look() -> int:
        return descriptor_of_trio()

    assert trio.run(look) >= 0
    assert descriptor_of_trio() == -1, "no trio runs here"


async def test_sessions_get_their_turns_while_all_tasks_wait(wires: Wires, way: str) -> None:
    client, broker = wires.connect("rocketmq")
    async with looping(wires):
        for _ in range(20):
            await carried(client, broker)
    assert wires.session().upstream.sent == 20 * len(ASKED)


async def test_a_lone_message_does_not_wake_trio(wires: Wires) -> None:
    client, broker = wires.connect("rocketmq")
    passes = 0

    class Passes(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            nonlocal passes
            passes += 1

    def say() -> None:
        for _ in range(50):
            client.sendall(ASKED)
            hear(broker, ASKED)

    async with looping(wires):
        await carried(client, broker)
        counter = Passes()
        trio.lowlevel.add_instrument(counter)
        await trio.to_thread.run_sync(say)
        trio.lowlevel.remove_instrument(counter)
    assert passes < 25


async def test_tasks_that_are_always_runnable_and_sessions_take_turns(wires: Wires, way: str) -> None:
    client, broker = wires.connect("rocketmq")
    turns = 0
    async with looping(wires), trio.open_nursery() as nursery:

        async def spin() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        nursery.start_soon(spin)
        nursery.start_soon(spin)
        for _ in range(5):
            before = turns
            await carried(client, broker)
            assert turns > before
        nursery.cancel_scope.cancel()


async def test_timers_of_tasks_are_in_time_while_sessions_are_busy_and_while_they_are_not(wires: Wires, way: str) -> None:
    client, broker = wires.connect("rocketmq")
    over = threading.Event()

    def flood() -> None:
        while not over.is_set():
            client.sendall(ASKED)
            hear(broker, ASKED)

    async with looping(wires), trio.open_nursery() as nursery:
        for busy in (False, True):
            if busy:
                nursery.start_soon(trio.to_thread.run_sync, flood)
            began = trio.current_time()
            for _ in range(20):
                await trio.sleep(0.01)
            assert 0.2 <= trio.current_time() - began < SOON_S
        over.set()


async def test_a_task_that_a_session_wakes_runs_at_once(wires: Wires, way: str) -> None:
    client, broker = wires.connect("rocketmq")
    gone = trio.Event()
    wires.at_end = lambda _session, _error: gone.set()
    async with looping(wires):
        await carried(client, broker)
        began = trio.current_time()
        client.close()
        broker.close()
        await gone.wait()
        assert trio.current_time() - began < SOON_S


async def test_a_session_that_a_task_adds_or_wakes_gets_its_turn(wires: Wires, way: str) -> None:
    async with looping(wires) as loop:
        await trio.sleep(0.05)
        client, broker = wires.connect("rocketmq")
        loop.wake()
        await carried(client, broker)
        session = wires.session()
        before = wires.sweeper.sweeps
        await trio.sleep(0.02)
        wires.sweeper.wake(session)
        loop.wake()
        await trio.sleep(0.02)
        assert wires.sweeper.sweeps > before


async def test_a_signal_is_heard_while_nothing_happens(wires: Wires, way: str) -> None:
    async with looping(wires):
        with trio.open_signal_receiver(signal.SIGUSR1) as signals:
            began = trio.current_time()
            threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident or 0, signal.SIGUSR1)).start()
            async for number in signals:
                assert number == signal.SIGUSR1
                break
        assert trio.current_time() - began < SOON_S


async def test_the_set_of_trio_wakes_for_a_tasks_own_socket(wires: Wires, way: str) -> None:
    left, theirs = socket.socketpair()
    async with looping(wires):
        with trio.socket.from_stdlib_socket(left) as ours, theirs:
            began = trio.current_time()
            threading.Timer(0.05, theirs.send, (b"x",)).start()
            assert await ours.recv(1) == b"x"
            assert trio.current_time() - began < SOON_S


async def test_tasks_go_on_although_trio_has_taken_the_instrument_out(wires: Wires) -> None:
    """As it does for good where an instrument fails."""
    async with looping(wires) as loop:
        await trio.sleep(0.02)
        trio.lowlevel.remove_instrument(loop)
        for _ in range(3):
            began = trio.current_time()
            await trio.sleep(0.01)
            for _ in range(5):
                await trio.lowlevel.checkpoint()
            assert trio.current_time() - began < MAX_SLEEP_S + SOON_S


async def test_the_loop_stops_when_asked_to_and_removes_its_instrument(wires: Wires, way: str) -> None:
    async with looping(wires) as loop:
        await trio.sleep(0.02)
    wires.sweeper.called = False
    await trio.lowlevel.checkpoint()
    assert not wires.sweeper.called
    loop.stop()
