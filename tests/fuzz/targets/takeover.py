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

from gateway.lifecycle.takeover import FORMAT, TakeoverPoint, _receive

STATE = Path("/")
logging.getLogger("sluice").addHandler(logging.NullHandler())


def lines_of(said: bytes) -> list[Any]:
    """The first two lines, as JSON; None: one that is none, or is not there."""
    found: list[Any] = []
    for line in [*said.split(b"\n")[:-1], b"", b""][:2]:
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
    handed_over: list[int] = []

    async def hand_over(process: int) -> None:
        handed_over.append(process)

    async def talk() -> bytes:
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.setblocking(False)
            point = TakeoverPoint(STATE / "none", STATE, 1, list, hand_over, lambda: False)
            point._socket = Gone()  # type: ignore[assignment]
            for piece in cut(said, how):
                with suppress(BlockingIOError, BrokenPipeError):
                    theirs.send(piece)
            theirs.shutdown(socket.SHUT_WR)
            await point._serve_one(trio.SocketStream(trio.socket.from_stdlib_socket(ours)), trio.CancelScope(), trio.CancelScope())
            with suppress(BlockingIOError):
                return theirs.recv(65_536)
        return b""

    told = trio.run(talk)
    for line in told.splitlines():
        assert isinstance(json.loads(line), dict)
    hello, ready = lines_of(said)
    right = isinstance(hello, dict) and hello.get("format") == FORMAT and hello.get("state_directory") == str(STATE)
    assert not handed_over or (right and isinstance(ready, dict) and ready.get("ready")), "handed over to one that has not asked"
    assert (b'"go"' in told) == bool(handed_over)


class Gone:
    """Stands for the socket that is asked at."""

    def remove(self) -> None:
        pass


def descriptors_open() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _answered(said: bytes, how: int) -> None:
    before = descriptors_open()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(10)
        descriptors = array("i", [theirs.fileno()] * (how % 4))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if descriptors else []
        theirs.setblocking(False)
        with suppress(BlockingIOError):
            theirs.sendmsg([said or b"x"], rights)
        theirs.shutdown(socket.SHUT_WR)
        try:
            answer, found = _receive(ours)
        except (OSError, ValueError):
            found = []
        else:
            assert isinstance(answer, dict)
            assert len(found) <= len(descriptors)
        for descriptor in found:
            os.close(descriptor)
    assert descriptors_open() == before, "a descriptor is left open"
