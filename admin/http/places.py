"""Places: how many connections a port of the admin serves at once, and whose turn it is when there are more.

    arrive ──► its request comes in ──► enter ──► the request is worked on ──► idle, the next request ...
    (at most ARRIVING)                  (a place; at most 64)

A client without a good token has one answer. From then on it is the first to give way, also while its next request is there or worked on.
So nobody keeps a place by asking on and on, and no newcomer waits for more than first answers. Requests that are not whole hold no place:
half heads, and strangers' half bodies, wait where newcomers arrive, and there the oldest of the address with the most gives way. Freed
places go to the address that has the fewest.

Requests without a good token begin in turns (`Pace`), so that they take a part of the processor at most. Those that follow an answer on the
same connection share one seat in that line: the first request of a newcomer is not behind all of theirs.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Iterable

WAIT_S: Final = 5.0  # seconds; for a place, before 503: on a slow machine a burst of a hundred takes more than one; a guess
PATIENCE_S: Final = 0.05  # seconds; before a newcomer takes the place of a client that has a token or has just come; a guess
TOKEN: Final = 3  # the rank (`Connection.rank`) of an idle connection with a token; those before it have none, or are slow
LOOK_S: Final = 0.25  # seconds between two looks of a newcomer for places that time has freed; answers free them at once; a guess
FRESH: Final = 4  # the rank from which on a connection keeps its place for PATIENCE_S
PACE_S: Final = 0.003  # seconds between two requests of strangers; at 1.3 ms of processor each (2026-11, a busy machine) not half a core
BURST: Final = 50  # requests of strangers that may begin at once; a page with its scripts has 40


class Pace:
    """Lets requests of strangers begin, one after another: BURST at once, then one in PACE_S."""

    def __init__(self) -> None:
        self._turn = trio.Lock()
        self._later = trio.Lock()
        self._paid_until = 0.0

    async def turn(self, *, first: bool) -> None:
        """Wait for a turn; requests that are not the first of their connection take turns for one seat in the line."""
        if first:
            await self._next_turn()
            return
        async with self._later:
            await self._next_turn()

    async def _next_turn(self) -> None:
        async with self._turn:
            await trio.sleep_until(self._paid_until - BURST * PACE_S)
            self._paid_until = max(self._paid_until, trio.current_time()) + PACE_S


class Connection(Protocol):
    """A connection as places see it (`exchange.py`)."""

    scope: trio.CancelScope  # cancelled to close it
    address: str  # IPv6: the network
    since: float  # seconds on trio's clock; when it began what it does

    def rank(self, now: float) -> int | None: ...


C = TypeVar("C", bound=Connection)


class Places(Generic[C]):
    """The connections of one port: those that have a place, and those that arrive."""

    def __init__(self, most: int, arriving: int) -> None:
        self.most = most
        self.most_arriving = arriving  # without a whole request, or waiting for a place
        self.held: dict[C, None] = {}
        self.gave_way = 0  # connections closed for others
        self.pace = Pace()
        self._arriving: dict[C, None] = {}  # without a place
        self._line: dict[C, trio.Event] = {}  # those of them whose request is whole, in the order they came -> set when admitted
        self._waiting_since: dict[C, float] = {}  # of those in line; seconds on trio's clock

    def __len__(self) -> int:
        return len(self.held) + len(self._arriving)

    @property
    def connections(self) -> list[C]:
        return [*self.held, *self._arriving]

    @property
    def are_taken(self) -> bool:
        return len(self.held) >= self.most

    @property
    def are_short(self) -> bool:
        """Whether somebody waits for a place."""
        return bool(self._line)

    def arrive(self, connection: C) -> bool:
        """Take in a connection whose request is to come; False where too many whole requests wait already.

        Others give way: the oldest without a whole request, of the address that has the most of them. If all have one, the last in line of
        the address that has the most, unless that is the newcomer's.
        """
        if len(self._arriving) >= self.most_arriving and not self._thin_out(connection.address):
            return False
        self._arriving[connection] = None
        return True

    def _thin_out(self, newcomer: str) -> bool:
        unready = [connection for connection in self._arriving if connection not in self._line]
        if unready:
            crowded = _most_common(unready)
            self._close(
                min((connection for connection in unready if connection.address == crowded), key=lambda connection: connection.since)
            )
            return True
        crowded = _most_common(self._line)
        if crowded == newcomer:
            return False
        last = next(connection for connection in reversed(self._line) if connection.address == crowded)
        del self._arriving[last]
        self._line.pop(last).set()
        return True

    async def enter(self, connection: C) -> bool:
        """Wait for a place, for a request that is whole; False after WAIT_S, or where others needed the room."""
        if connection in self.held:
            return True
        if connection not in self._arriving:  # it gave way, and is cancelled at its next wait
            return False
        admitted = self._line[connection] = trio.Event()
        self._waiting_since[connection] = trio.current_time()
        look_after = PATIENCE_S
        try:
            self.usher()
            with trio.move_on_after(WAIT_S):
                while self._line.get(connection) is admitted:
                    with trio.move_on_after(look_after):
                        await admitted.wait()
                        break
                    self.usher()
                    look_after = LOOK_S
        finally:
            self._line.pop(connection, None)
            del self._waiting_since[connection]
        return connection in self.held

    def step_back(self, connection: C) -> None:
        """Give the place up until the rest of the request is there; `enter` follows."""
        if self.held.pop(connection, self) is None:
            self._arriving[connection] = None
            self.usher()

    def leave(self, connection: C) -> None:
        """The connection has ended, or needs no place any more."""
        self._arriving.pop(connection, None)
        if self.held.pop(connection, self) is None:
            self.usher()

    def usher(self) -> None:
        """Give free places to those in line, the address with the fewest places first; connections with less of a claim give way.

        Once the first in line has waited for PATIENCE_S, whoever has just come or has a token gives way, too.
        """
        while self._line and (len(self.held) < self.most or self._make_room()):
            places = Counter(connection.address for connection in self.held) if len(self._line) > 1 else Counter[str]()
            first = min(self._line, key=lambda connection: places[connection.address])
            admitted = self._line.pop(first)
            self._arriving.pop(first, None)
            self.held[first] = None
            admitted.set()

    def _make_room(self) -> bool:
        """Close the connection with the least rank, of the address with the most places; False where none may be closed."""
        now = trio.current_time()
        patient = now - self._waiting_since[next(iter(self._line))] >= PATIENCE_S
        places = Counter(connection.address for connection in self.held)
        ranks = {connection: rank for connection in self.held if (rank := connection.rank(now)) is not None}
        below = FRESH if len(ranks) == len(self.held) else TOKEN  # a first answer that is worked on frees its place in a moment
        may_lose = ranks if patient else [connection for connection, rank in ranks.items() if rank < below]
        loser = min(may_lose, key=lambda connection: (ranks[connection], -places[connection.address], connection.since), default=None)
        if loser is None:
            return False
        self._close(loser)
        return True

    def _close(self, connection: C) -> None:
        self.gave_way += 1
        self.held.pop(connection, None)
        self._arriving.pop(connection, None)
        connection.scope.cancel()

    def __repr__(self) -> str:
        return f"<Places {len(self.held)}/{self.most} held, {len(self._arriving)} arriving>"


def _most_common(connections: Iterable[Connection]) -> str:
    return Counter(connection.address for connection in connections).most_common(1)[0][0]
