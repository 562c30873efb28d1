"""The running process's part in a takeover, the same for one process alone and for the parent of workers: what it gives up, and who asks.

`takeover.py` has what the two processes say to each other, `next_process.py` starts the next one at SIGUSR2.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import trio

from common import log
from control_plane.next_process import NextProcess
from control_plane.takeover import TakeoverPoint
from gateway.lifecycle import signals

if TYPE_CHECKING:
    from admin.store.store import Store
    from config.known_settings import GatewaySettings
    from control_plane.admin_server import AdminServer
    from gateway.lifecycle.fill_levels import FillLevelsFile
    from gateway.telemetry.exposition import Samples
    from limiter.rules.rule_set import RuleSet

    Task = Callable[[], Awaitable[None]]

RETRY_S: Final = 1.0  # between two attempts to have the state directory again; a guess
NOT_TAKEN_BACK: Final = (
    "limits hold as before and changes are refused; it is tried every second. End the process that has it, or mend what is named; or start "
    "the next process again: it takes over with the state as it finds it"
)


class HandoverHost(Protocol):
    """The process that is taken over from."""

    def stand_still(self) -> None:
        """Accept nobody and read no client, until one of the other two."""

    def go_on(self) -> None: ...

    def hand_over(self) -> None:
        """Begin to drain: another process serves."""

    def enforce(self, rules: RuleSet) -> None: ...


class Handover:
    """What only one process can have: lent to the next one until that serves, then given, or taken back."""

    def __init__(self, store: Store, admin_server: AdminServer, fill_levels: FillLevelsFile, host: HandoverHost) -> None:
        self.asked = False  # a process has taken over:
        self._successor = 0  # its number; 0: it is of another namespace
        self.lent = False  # it is open whether another process takes over
        self._without_store = False
        self._taken_back = 0  # times
        self._settled = trio.Event()  # it is not open any more
        self._went_on = trio.Event()  # after a process that came to nothing; the state is to be had again
        self._store = store
        self._admin_server = admin_server
        self._fill_levels = fill_levels
        self._host = host
        self._next_process: NextProcess | None = None

    def tasks(self, place: GatewaySettings, sockets: Callable[[], Sequence[socket.socket]], draining: Callable[[], bool]) -> list[Task]:
        """What waits for the next process; none without `gateway.takeover`. `sockets`: all that listen."""
        if place.takeover is None:
            signals.ignore_takeover_signal()
            return []
        self._next_process = NextProcess(draining, lambda: self._successor if self.asked else None, self.wait_until_settled)
        point = TakeoverPoint(place.takeover, place.state_directory, place.workers, sockets, self, draining)
        return [point.run, self._next_process.run, self._have_state_again]

    async def wait_until_settled(self) -> None:
        """Until it is known whether the process that was lent everything serves."""
        while self.lent:
            await self._settled.wait()

    async def lend(self) -> None:
        """Let the next process have the state directory, the admin port and the fill levels, and stand still meanwhile."""
        self.lent = True
        self._settled = trio.Event()
        await self._store.hand_over()  # first: while a change is being written all goes on
        self._without_store = True
        self._host.stand_still()
        self._admin_server.leave()
        await trio.to_thread.run_sync(self._fill_levels.freeze, abandon_on_cancel=True)

    def give(self, process: int) -> None:
        """The next process, `process`, serves: this one drains."""
        self._successor = process
        self.asked = True
        self._store.give()
        self._host.hand_over()
        if self._next_process is not None:
            self._next_process.pass_on()
        self._settle()

    async def take_back(self) -> None:
        """The next process has come to nothing. Clients go on at once, and the next one may ask; changes once the state is had again."""
        self._taken_back += 1
        self._host.go_on()
        self._admin_server.come_back()
        self._settle()
        await trio.to_thread.run_sync(self._fill_levels.thaw)
        self._went_on.set()

    async def _have_state_again(self) -> None:
        """A task. The state may be kept or damaged for long: meanwhile a process may ask, and takes over with the state as it finds it."""
        told = False
        while True:
            await self._went_on.wait()
            self._went_on = trio.Event()
            while self._without_store and not self.lent and not self.asked:
                try:
                    await self._store.take_again()
                except Exception as error:  # the other one still has it, or has left it damaged: what was in force stays so
                    if not told:
                        told = True
                        log.event(logging.ERROR, "state_not_taken_back", err=str(error), remedy=NOT_TAKEN_BACK)
                    await trio.sleep(RETRY_S)
                else:  # at once: the next process may wait for its turn
                    self._without_store = False
                    self._host.enforce(self._store.rules())
            if told and not self._without_store:
                told = False
                log.event(logging.INFO, "state_taken_back")

    def _settle(self) -> None:
        self.lent = False
        self._settled.set()

    def samples(self) -> Samples:
        """For `/metrics`."""
        return {} if self._next_process is None else {"sluice_takeovers_taken_back_total": [((), self._taken_back)]}

    def __repr__(self) -> str:
        return f"<Handover {'lent' if self.lent else 'given' if self.asked else 'not asked'}, taken back {self._taken_back} times>"
