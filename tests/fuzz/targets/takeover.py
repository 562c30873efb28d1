"""What is fuzzed of takeovers: what a process says that wants to take over, and what one answers that is taken over from."""

from __future__ import annotations

import json
import logging
import os
import socket
from array import array
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio
from fuzz.scripts import cut

from control_plane.takeover import FORMAT, SERVING, Asker, TakeoverPoint, _receive

STATE = Path("/")
logging.getLogger("sluice").addHandler(logging.NullHandler())


def lines_of(said: bytes) -> list[Any]:
    """The first three lines, as JSON; None: one that is none, or is not there."""
    found: list[Any] = []
    for line in [*said.split(b"\n")[:-1], b"", b"", b""][:3]:
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            found.append(None)
    return found


def takeover(data: bytes) -> None:
    """The running side goes on unless it hears a right hello and `ready`; the next side has a line, or its documented errors."""
    if not data:
        return
    if data[0] & 1:
        _asked(data[1:], data[0] >> 1)
    else:
        _answered(data[1:], data[0] >> 1)


def _asked(said: bytes, how: int) -> None:
    lender = Lender()

    async def talk() -> bytes:
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.setblocking(False)
            point = TakeoverPoint(STATE / "none", STATE, 1, list, lender, lambda: False)
            for piece in cut(said, how):
                with suppress(BlockingIOError, BrokenPipeError):
                    theirs.send(piece)
            theirs.shutdown(socket.SHUT_WR)
            asker = Asker(trio.SocketStream(trio.socket.from_stdlib_socket(ours)))
            await point._hear(asker, trio.CancelScope(), trio.CancelScope())
            if point._ready is not None:
                assert await point._hand_over_to(point._ready) == (lender.acts[-1] == "give")
            with suppress(BlockingIOError):
                return theirs.recv(65_536)
        return b""

    told = trio.run(talk)
    for line in told.splitlines():
        assert isinstance(json.loads(line), dict)
    hello, ready, serving = lines_of(said)
    right = isinstance(hello, dict) and hello.get("format") == FORMAT and hello.get("state_directory") == str(STATE)
    assert not lender.acts or (right and isinstance(ready, dict) and ready.get("ready")), "lent to one that has not asked"
    assert (b'"go"' in told) == bool(lender.acts)
    says = right and hello.get("says") == SERVING
    assert "give" not in lender.acts or not says or (isinstance(serving, dict) and serving.get(SERVING)), "given to one that does not serve"
    assert lender.acts in ([], ["lend", "give"], ["lend", "take back"])


class Lender:
    """Stands for what only one process can have."""

    def __init__(self) -> None:
        self.acts: list[str] = []

    async def lend(self) -> None:
        self.acts.append("lend")

    def give(self, process: int) -> None:
        del process
        self.acts.append("give")

    async def take_back(self) -> None:
        self.acts.append("take back")


def descriptors_open() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _answered(said: bytes, how: int) -> None:
    before = descriptors_open()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        descriptors = array("i", [theirs.fileno()] * (how % 4))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if descriptors else []
        theirs.setblocking(False)
        with suppress(BlockingIOError):
            theirs.sendmsg([said or b"x"], rights)
        theirs.shutdown(socket.SHUT_WR)
        try:
            answer, found = _receive(ours, 10)
        except (OSError, ValueError):
            found = []
        else:
            assert isinstance(answer, dict)
            assert len(found) <= len(descriptors)
        for descriptor in found:
            os.close(descriptor)
    assert descriptors_open() == before, "a descriptor is left open"
