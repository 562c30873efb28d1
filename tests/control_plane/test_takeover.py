"""Where the next process asks: whatever else connects there keeps it from nothing, and one that does not come to serve gets nothing.

With real gateways: tests/end_to_end/test_takeover.py.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from control_plane import takeover
from control_plane.takeover import FORMAT, MAX_ASKING, MAX_LINE, Takeover, TakeoverError, TakeoverPoint
from gateway import systemd
from support.processes import HANG_S
from support.threads import working

READY = b'{"ready": true}\n'
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
        self.acts: list[str | int] = []  # the process that everything was given to, at last
        self.listening = socket.create_server(("127.0.0.1", 0))

    async def lend(self) -> None:
        self.acts.append("lends")

    def give(self, process: int) -> None:
        self.acts.append(process)

    async def take_back(self) -> None:
        self.acts.append("takes back")

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(str(self.path))
        return sock

    def ask(self, **more: object) -> socket.socket:
        """One that says what it is, as a process does, and gets the sockets."""
        sock = self.connect()
        sock.sendall(json.dumps({**HELLO, "state_directory": str(self.folder.resolve()), **more}).encode() + b"\n")
        return sock

    async def has_done(self, *acts: str | int) -> None:
        with trio.fail_after(HANG_S):
            while self.acts != list(acts):
                await trio.sleep(0.001)


@asynccontextmanager
async def running(folder: Path, serving_s: float = HANG_S) -> AsyncIterator[Place]:
    place = Place(folder)
    point = TakeoverPoint(place.path, folder, 1, lambda: [place.listening], place, lambda: False, serving_s)
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
    one = begun(place)
    one.commit()
    one.confirm()


def begun(place: Place) -> Takeover:
    """A process that has the sockets and is to be ready next."""
    one = Takeover.begin(place.path, place.folder)
    assert one is not None
    one.inheritance.close_rest()
    return one


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
        assert place.acts == ["lends", os.getpid()]


async def test_whatever_says_nothing_pushes_out_nobody_that_has_said_hello(tmp_path: Path) -> None:
    async with running(tmp_path) as place:
        one = await trio.to_thread.run_sync(begun, place)
        held = [place.connect() for _ in range(24)]
        try:
            with trio.fail_after(HANG_S):
                while sum(map(has_ended, held)) <= len(held) - MAX_ASKING:
                    await trio.sleep(0.01)
            await trio.to_thread.run_sync(one.commit)
            await trio.to_thread.run_sync(one.confirm)
        finally:
            for sock in held:
                sock.close()
        assert place.acts == ["lends", os.getpid()]


async def test_the_first_that_is_ready_takes_over_and_the_other_is_told_so(tmp_path: Path) -> None:
    async with running(tmp_path) as place:
        one, other = [await trio.to_thread.run_sync(begun, place) for _ in range(2)]
        await trio.to_thread.run_sync(one.commit)
        with pytest.raises(TakeoverError, match="another process was ready first and takes over"):
            await trio.to_thread.run_sync(other.commit)
        await trio.to_thread.run_sync(one.confirm)
        assert place.acts == ["lends", os.getpid()]
        assert not place.path.exists()


async def test_a_process_of_the_version_before_takes_over_when_it_is_ready(tmp_path: Path) -> None:
    async with running(tmp_path) as place:
        with place.ask() as sock:
            await trio.to_thread.run_sync(sock.recv, 65_536)
            sock.sendall(READY)
            assert json.loads(await trio.to_thread.run_sync(sock.recv, 65_536)) == {"go": True}
        assert place.acts == ["lends", os.getpid()]


@pytest.mark.parametrize(
    ("says", "closes", "because"),
    [
        pytest.param(b"", True, "its connection broke", id="resets"),
        pytest.param(b'{"serv', True, "its connection broke", id="half a line"),
        pytest.param(READY, False, "it does not say that it serves", id="ready again"),
        pytest.param(b'{"serving": false}\n', False, "it does not say that it serves", id="serves not"),
        pytest.param(b"x" * (MAX_LINE + 1), False, "it says more than it should", id="too much"),
        pytest.param(b"", False, "it took too long", id="nothing"),
        pytest.param(b'{"serving": tr', False, "it took too long", id="half a line and hangs"),
    ],
)
async def test_what_was_lent_is_taken_back_from_a_process_that_does_not_come_to_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, says: bytes, because: str, *, closes: bool
) -> None:
    late = because == "it took too long"
    async with running(tmp_path, 0.05 if late else HANG_S) as place:
        with place.ask(says="serving") as sock:
            await trio.to_thread.run_sync(sock.recv, 65_536)
            await trio.to_thread.run_sync(sock.sendall, READY + says)
            if closes:
                await trio.lowlevel.wait_readable(sock)  # "go", which stays unread
                sock.close()
            await place.has_done("lends", "takes back")
        with trio.fail_after(HANG_S):
            while not place.path.exists():
                await trio.sleep(0.001)
        with place.ask() as sock:  # the point is there again
            await trio.to_thread.run_sync(sock.recv, 65_536)
    (line,) = [record for record in caplog.records if record.message == "taken_back"]
    assert line.__dict__["fields"]["err"] == because


NEXT = """\
import json, socket, sys, time
sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
sock.connect(sys.argv[1])
sock.sendall(sys.argv[2].encode() + b"\\n")
sock.recv(65_536)
sock.sendall(b'{"ready": true}\\n')
time.sleep(3600)
"""


async def test_a_process_that_hangs_with_what_it_was_lent_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "END_S", 0.05)
    async with running(tmp_path, 0.05) as place:
        hello = json.dumps({**HELLO, "state_directory": str(tmp_path.resolve()), "says": "serving"})
        with subprocess.Popen([sys.executable, "-c", NEXT, str(place.path), hello]) as process:
            assert await trio.to_thread.run_sync(partial(process.wait, HANG_S)) == -signal.SIGKILL
        await place.has_done("lends", "takes back")


async def test_a_process_that_is_late_is_told_so_and_ends(tmp_path: Path) -> None:
    async with running(tmp_path, 0.05) as place:
        late = await trio.to_thread.run_sync(begun, place)
        with suppress(TakeoverError):  # it is told so here where lending took long
            await trio.to_thread.run_sync(late.commit)
            await place.has_done("lends", "takes back")
            with pytest.raises(TakeoverError, match="has taken its state back"):
                await trio.to_thread.run_sync(late.confirm)


@pytest.mark.parametrize("way", ["says nothing", "drips", "never ends", "resets"])
def test_a_running_process_that_does_not_answer_holds_up_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """A time-out for each read was none: one that dripped held the next process for a day."""
    monkeypatch.setattr(takeover, "ANSWER_S", 0.3)
    ended = threading.Event()

    def answer() -> None:
        sock = listening.accept()[0]
        with sock, suppress(OSError):
            while way != "resets" and not ended.wait(0.01):
                if way != "says nothing":
                    sock.sendall(b"x" if way == "drips" else b"x" * 4096)

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "takeover.sock"))
        listening.listen()
        with working(answer, ended), pytest.raises(TakeoverError, match="cannot be taken over from"):
            Takeover.begin(tmp_path / "takeover.sock", tmp_path)


async def test_one_that_finds_the_process_before_gone_serves_on(tmp_path: Path) -> None:
    """Ending as well would leave nobody."""
    async with running(tmp_path) as place:
        one = await trio.to_thread.run_sync(begun, place)
        await trio.to_thread.run_sync(one.commit)
    await trio.to_thread.run_sync(one.confirm)
    assert place.acts == ["lends"]


async def test_where_the_path_is_taken_a_process_can_ask_once_it_is_free(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As after a process that hung and was not to be ended: until November 2026 none could take over until a restart."""
    caplog.set_level(logging.WARNING)
    async with running(tmp_path) as place:
        path = tmp_path / "taken.sock"
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            other.listen()
            point = TakeoverPoint(path, tmp_path, 1, lambda: [place.listening], place, lambda: False)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(point.run)
                with trio.fail_after(HANG_S):
                    while not caplog.records:
                        await trio.sleep(0.001)
                    other.close()
                    while True:
                        with suppress(ConnectionRefusedError, FileNotFoundError), socket.socket(socket.AF_UNIX) as asking:
                            asking.connect(str(path))
                            break
                        await trio.sleep(0.01)
                nursery.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records] == ["takeover_unavailable"]
