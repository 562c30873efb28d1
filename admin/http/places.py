"""Places: how many connections a port of the admin serves at once, and whose turn it is when there are more.

    arrive ──► its request comes in ──► enter ──► the request is worked on ──► its answer ──► idle, the next request ...
    (at most ARRIVING)                  (a place; at most 64)

Requests without a good token take seats (`Seats`): few are worked on at once, probes and others apart, so that they take a part of the
processor at most, and nobody's work stands behind that of a hundred strangers. Addresses take seats in turn, so a newcomer waits for one
request of another address, whatever number it has sent. Within an address first requests are before later ones. A good token needs no seat.
Where places are short those with one and those without take turns: operators in number do not keep a probe out, nor strangers an operator.

A client without a good token has one answer. From then on it is the first to give way, also while its next request is there or worked on.
So nobody keeps a place by asking on and on, and no newcomer waits for more than first answers. Requests that are not whole hold no place:
half heads, and strangers' half bodies, wait where newcomers arrive, and there one of the address with the most gives way.
"""

from __future__ import annotations

import enum
import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Iterable

WAIT_S: Final = 5.0  # seconds; for a place, before 503: on a slow machine a burst of a hundred takes more than one; a guess
PATIENCE_S: Final = 0.05  # seconds; before a newcomer takes the place of a client that has a token or has just come; a guess
TOKEN: Final = 3  # the rank (`Connection.rank`) of an idle connection with a token; those before it have none, or are slow
LOOK_S: Final = 0.25  # seconds between two looks for places that time has freed; answers free them at once; a guess
FRESH: Final = 4  # the rank from which on a connection keeps its place for PATIENCE_S
BURST: Final = 50  # requests of strangers that may begin without a pace; a page with its scripts has 40
SEAT_S: Final = 0.25  # seconds; after which work that is not done yet leaves its seat to another; a guess
SLOW_S: Final = 0.1  # seconds; after which a request that is not whole gives way before whole ones; a guess
MAX_ADDRESSES: Final = 1024  # whose last turn is remembered


class Claim(enum.Enum):
    """What a request's head shows before it is worked on (`first_look.py`)."""

    KNOWN = "known"  # a good token is in it
    PROBE = "probe"  # it asks for a probe, which costs little
    STRANGER = "stranger"


class Connection(Protocol):
    """A connection as places see it (`exchange.py`)."""

    scope: trio.CancelScope  # cancelled to close it
    address: str  # IPv6: the network
    since: float  # seconds on trio's clock; when it began what it does

    def rank(self, now: float) -> int | None: ...


C = TypeVar("C", bound=Connection)


@dataclass(slots=True)
class Seats(Generic[C]):
    """Requests without a good token that are worked on: `most` at once, each for SEAT_S; after a burst one begins in `pace_s`."""

    most: int
    pace_s: float
    taken: dict[C, float] = field(default_factory=dict)  # -> since when, on trio's clock; the oldest first
    paid_until: float = 0.0

    def free_at(self) -> float:
        """When the next request may begin."""
        paced = self.paid_until - BURST * self.pace_s
        return paced if len(self.taken) < self.most else max(paced, next(iter(self.taken.values())) + SEAT_S)

    def take(self, connection: C, now: float) -> None:
        if len(self.taken) >= self.most:
            del self.taken[next(iter(self.taken))]
        self.taken[connection] = now
        self.paid_until = max(self.paid_until, now) + self.pace_s


@dataclass(slots=True)
class WaitingRequest:
    """A whole request in line."""

    since: float
    over: trio.Event = field(default_factory=trio.Event)  # it was admitted, or is turned away


class ConnectionPlaces(Generic[C]):
    """The connections of one port: those that have a place, and those that arrive."""

    def __init__(self, most: int, arriving: int) -> None:
        self.most = most
        self.most_arriving = arriving  # without a whole request, or waiting for a place
        self.held: dict[C, None] = {}
        self.gave_way = 0  # connections closed for others
        self.seats: dict[Claim, Seats[C]] = {  # at 0.8 ms of processor for a request, 0.3 for a probe (2026-11): a third of one at most
            Claim.STRANGER: Seats(2, 0.008),
            Claim.PROBE: Seats(8, 0.004),
        }
        self._arriving: dict[C, None] = {}  # without a place
        self._lines: dict[Claim, dict[C, WaitingRequest]] = {claim: {} for claim in Claim}  # whole requests, in the order they came
        self._served: OrderedDict[str, int] = OrderedDict()  # address -> the number of its last turn
        self._turns = 0
        self._last_known = False  # the last that was admitted had a good token
        self._due = math.inf  # when to look again
        self._earlier = trio.Event()  # that time was moved forward

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
        """Whether all places are taken, and somebody waits for one."""
        return self.are_taken and any(connection in self._arriving for line in self._lines.values() for connection in line)

    def arrive(self, connection: C) -> bool:
        """Take in a connection whose request is to come; False where its own address has the most, and all with a good token.

        Of the address that has the most others give way, without a good token first: the oldest that is slow to become whole, else the last
        in line.
        """
        if len(self._arriving) >= self.most_arriving and not self._thin_out(connection.address):
            return False
        self._arriving[connection] = None
        return True

    def _thin_out(self, newcomer: str) -> bool:
        crowded = _most_common(self._arriving)
        known, *others = (self._in_line_of(crowded, claim) for claim in Claim)
        waiting = {**others[0], **others[1]}
        unready = [each for each in self._arriving if each.address == crowded and each not in known and each not in waiting]
        oldest = min(unready, key=lambda connection: connection.since, default=None)
        if oldest is not None and (not waiting or trio.current_time() - oldest.since > SLOW_S):
            self._close(oldest)
            return True
        if not waiting and crowded == newcomer:
            return False
        waiting = waiting or known
        last = max(waiting, key=waiting.__getitem__)
        del self._arriving[last]
        self._end_wait(last)
        return True

    def _in_line_of(self, address: str, claim: Claim) -> dict[C, float]:
        """Those of an address that wait for a place, and since when."""
        line = self._lines[claim].items()
        return {each: waiting.since for each, waiting in line if each.address == address and each in self._arriving}

    async def enter(self, connection: C, claim: Claim = Claim.STRANGER) -> bool:
        """Wait for a place and, without a good token, for a seat; False after WAIT_S, or where others needed the room."""
        if connection in self.held:
            if claim is Claim.KNOWN:
                return True
        elif connection not in self._arriving:  # it gave way, and is cancelled at its next wait
            return False
        line = self._lines[claim]
        waiting = line[connection] = WaitingRequest(trio.current_time())
        try:
            self.usher()
            with trio.move_on_after(WAIT_S):
                await waiting.over.wait()
            return connection not in line and connection in self.held
        finally:
            line.pop(connection, None)

    def _end_wait(self, connection: C) -> Claim | None:
        """What it claimed; None where it was in no line."""
        for claim, line in self._lines.items():
            if (waiting := line.pop(connection, None)) is not None:
                waiting.over.set()
                return claim
        return None

    def leave_seat(self, connection: C) -> None:
        """The work is done, and the answer is to be written."""
        if self._free_seat(connection):
            self.usher()

    def step_back(self, connection: C) -> None:
        """Give place and seat up until the rest of the request is there; `enter` follows."""
        if self.held.pop(connection, self) is None:
            self._arriving[connection] = None
            self._free_seat(connection)
            self.usher()

    def leave(self, connection: C) -> None:
        """The connection has ended, or needs no place any more."""
        self._arriving.pop(connection, None)
        if self.held.pop(connection, self) is None:
            self._free_seat(connection)
            self.usher()

    def _free_seat(self, connection: C) -> bool:
        return any(seats.taken.pop(connection, None) is not None for seats in self.seats.values())

    async def run(self) -> None:
        """Look again when time brings somebody's turn. Whatever else does is looked at as it happens."""
        while True:
            self._earlier = trio.Event()
            with trio.move_on_at(self._due) as sleep:
                await self._earlier.wait()
            if sleep.cancelled_caught:
                self.usher()

    def usher(self) -> None:
        """Let those in line in whose turn it is; connections with less of a claim give way.

        Once one has waited for PATIENCE_S, whoever has just come or has a token gives way, too.
        """
        now = trio.current_time()
        while (first := self._next_in_line(now)) is not None and self._has_room(first, now):
            self._admit(first, now)
        before, self._due = self._due, self._next_look(first, now)
        if self._due < before:
            self._earlier.set()

    def _next_in_line(self, now: float) -> C | None:
        """One with a good token, of the address with the fewest places, and one that may have a seat, of the address served longest ago,
        take turns.
        """
        known = self._lines[Claim.KNOWN]
        may = [each for claim, seats in self.seats.items() if (line := self._lines[claim]) and seats.free_at() <= now for each in line]
        if may and (self._last_known or not known):
            return min(may, key=lambda connection: (self._served.get(connection.address, 0), connection in self.held))
        places = Counter(connection.address for connection in self.held) if len(known) > 1 else Counter[str]()
        return min(known, key=lambda connection: places[connection.address], default=None)

    def _next_look(self, first: C | None, now: float) -> float:
        """When to usher again; `first` is next in line, and there is no room for it."""
        if first is None:
            return min((seats.free_at() for claim, seats in self.seats.items() if self._lines[claim]), default=math.inf)
        patient_at = self._came_at(first) + PATIENCE_S
        return patient_at if patient_at > now else now + LOOK_S

    def _came_at(self, connection: C) -> float:
        return next(line[connection].since for line in self._lines.values() if connection in line)

    def _admit(self, connection: C, now: float) -> None:
        self._arriving.pop(connection, None)
        self.held[connection] = None
        claim = self._end_wait(connection)
        self._last_known = claim is Claim.KNOWN
        if claim is not None and claim is not Claim.KNOWN:
            self.seats[claim].take(connection, now)
            self._turns += 1
            self._served[connection.address] = self._turns
            self._served.move_to_end(connection.address)
            if len(self._served) > MAX_ADDRESSES:
                self._served.popitem(last=False)

    def _has_room(self, connection: C, now: float) -> bool:
        if connection in self.held or not self.are_taken:
            return True
        return self._make_room(now, patient=now - self._came_at(connection) >= PATIENCE_S)

    def _make_room(self, now: float, *, patient: bool) -> bool:
        """Close the connection with the least rank, of the address with the most places; False where none may be closed."""
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
        self._free_seat(connection)
        self._end_wait(connection)
        connection.scope.cancel()

    def __repr__(self) -> str:
        return f"<ConnectionPlaces {len(self.held)}/{self.most} held, {len(self._arriving)} arriving>"


def _most_common(connections: Iterable[Connection]) -> str:
    return Counter(connection.address for connection in connections).most_common(1)[0][0]
