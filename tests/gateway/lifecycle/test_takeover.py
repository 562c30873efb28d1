"""Where the next process asks: whatever else connects there keeps it from nothing."""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from gateway import systemd
from gateway.lifecycle.takeover import FORMAT, MAX_ASKING, STOPPING, Takeover, TakeoverPoint
from support.processes import HANG_S

HELLO = {"format": FORMAT, "pid": 4711, "workers": 1}


@pytest.fixture(autouse=True)
def no_service_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "notify", lambda *_, **__: None)
    monkeypatch.setattr(systemd, "keep_silent", dict)


class Place:
    """A running process, as far as the next one sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "takeover.sock"
        self.handed_over: list[int] = []
        self.listening = socket.create_server(("127.0.0.1", 0))

    async def hand_over(self, process: int) -> None:
        self.handed_over.append(process)

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(str(self.path))
        return sock

    def ask(self) -> socket.socket:
        """One that says what it is, as a process does, and gets the sockets."""
        sock = self.connect()
        sock.sendall(json.dumps({**HELLO, "state_directory": str(self.folder.resolve())}).encode() + b"\n")
        return sock


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Place]:
    place = Place(folder)
    point = TakeoverPoint(place.path, folder, 1, lambda: [place.listening], place.hand_over, lambda: False)
    with place.listening:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(point.run)
            while not place.path.exists():
                await trio.sleep(0.001)
            yield place
            nursery.cancel_scope.cancel()


def has_ended(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0]) and not sock.recv(1, socket.MSG_PEEK)


def take_over(place: Place) -> None:
    takeover = Takeover.begin(place.path, place.folder)
    assert takeover is not None
    takeover.commit()
    takeover.inheritance.close_rest()


@pytest.mark.parametrize("holders", [1, 8, 24])
@pytest.mark.parametrize("says", ["nothing", "half a line", "hello"])
async def test_a_holder_of_the_point_that_does_nothing_holds_up_nobody(tmp_path: Path, holders: int, says: str) -> None:
    async with running(tmp_path) as place:
        held = [place.ask() if says == "hello" else place.connect() for _ in range(holders)]
        try:
            if says == "half a line":
                for sock in held:
                    sock.sendall(b'{"format": 1')
            await trio.to_thread.run_sync(partial(take_over, place))
        finally:
            for sock in held:
                sock.close()
        assert place.handed_over == [os.getpid()]


async def test_whatever_says_nothing_pushes_out_nobody_that_has_said_hello(tmp_path: Path) -> None:
    async with running(tmp_path) as place:
        takeover = await trio.to_thread.run_sync(Takeover.begin, place.path, place.folder)
        assert takeover is not None
        held = [place.connect() for _ in range(24)]
        try:
            with trio.fail_after(HANG_S):
                while sum(map(has_ended, held)) <= len(held) - MAX_ASKING:
                    await trio.sleep(0.01)
            await trio.to_thread.run_sync(takeover.commit)
        finally:
            for sock in held:
                sock.close()
            takeover.inheritance.close_rest()
        assert place.handed_over == [os.getpid()]


async def test_the_first_that_is_ready_takes_over_and_no_other(tmp_path: Path) -> None:
    async with running(tmp_path) as place:
        with place.ask() as one, place.ask() as other:
            other.settimeout(60)
            one.settimeout(60)
            for sock in (one, other):
                await trio.to_thread.run_sync(sock.recv, 65_536)
            one.sendall(b'{"ready": true}\n')
            assert json.loads(await trio.to_thread.run_sync(one.recv, 65_536)) == {"go": True}
            try:
                other.sendall(b'{"ready": true}\n')
                answer = await trio.to_thread.run_sync(other.recv, 65_536)
            except ConnectionError:
                answer = b""
            assert answer in (b"", json.dumps({"error": STOPPING}).encode() + b"\n")
        assert place.handed_over == [os.getpid()]
        assert not place.path.exists()
