"""The running process's part in a takeover, the same for one process alone and for the parent of workers: what it gives up, and who asks.

`takeover.py` has what the two processes say to each other, `next_process.py` starts the next one at SIGUSR2.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from gateway.lifecycle import signals
from gateway.lifecycle.next_process import NextProcess
from gateway.lifecycle.takeover import TakeoverPoint

if TYPE_CHECKING:
    from config.known_settings import Gateway as Place
    from gateway.lifecycle.admin_server import AdminServer
    from gateway.lifecycle.fill_levels import FillLevelsFile

    Task = Callable[[], Awaitable[None]]


class StateDirectory(Protocol):
    """Whoever has the state directory: `admin.store.store.Store`."""

    async def hand_over(self) -> None: ...


class Handover:
    """What only one process can have, until the next one asks for it. `drain` has the host begin to drain, and call `give_up` amid it."""

    def __init__(self, store: StateDirectory, admin_server: AdminServer, fill_levels: FillLevelsFile, drain: Callable[[], None]) -> None:
        self.asked = False  # a process takes over:
        self._successor = 0  # its number; 0: it is of another namespace
        self._store = store
        self._admin_server = admin_server
        self._fill_levels = fill_levels
        self._drain = drain
        self._given_up = trio.Event()
        self._next_process: NextProcess | None = None

    def tasks(self, place: Place, sockets: Callable[[], Sequence[socket.socket]], draining: Callable[[], bool]) -> list[Task]:
        """What waits for the next process; none without `gateway.takeover`. `sockets`: all that listen."""
        if place.takeover is None:
            signals.no_next_process()
            return []
        self._next_process = NextProcess(draining, lambda: self._successor if self.asked else None)
        point = TakeoverPoint(place.takeover, place.state_directory, place.workers, sockets, self._to_the_next, draining)
        return [point.run, self._next_process.run]

    async def give_up(self) -> None:
        """The state directory, the admin port and the fill levels. Nobody is accepted any more."""
        await self._store.hand_over()
        self._admin_server.leave()
        await trio.to_thread.run_sync(self._fill_levels.freeze)
        self._given_up.set()

    async def _to_the_next(self, process: int) -> None:
        """When this returns the next process, `process`, may have everything."""
        self._successor = process
        self.asked = True
        self._drain()
        await self._given_up.wait()
        if self._next_process is not None:
            self._next_process.pass_on()

    def __repr__(self) -> str:
        return f"<Handover {'given up' if self._given_up.is_set() else 'asked' if self.asked else 'not asked'}>"
