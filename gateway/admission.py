"""Admission: who may connect, decided before anything is dialled for him.

Every connection a listener accepts asks for a **seat**; it is given back once, whatever ends the connection. What is counted is seats, so
the numbers are exact by construction: caps for the listener, for one client address and for one user, a rate of new connections, and,
over all listeners, the descriptors the process may open. A refusal takes nothing: no seat, no token.

A client's address is known at accept, or after the PROXY header where there is one. A user counts from the moment the broker has
authenticated him: counted any earlier, anybody could use up another's share with nothing but his name.

Tables shrink with their connections: an address or a user without a connection has no entry. No clock, no socket.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from limiter.algorithms.token_bucket import TokenBucket
from limiter.limits import NEVER, Limit, Rate
from limiter.units import format_rate

BY_ALL: Final = "max_connections"  # causes, as in sluice_connections_closed_total
BY_ADDRESS: Final = "max_connections_per_address"
BY_USER: Final = "max_connections_per_user"
BY_RATE: Final = "max_connection_rate"
BY_DESCRIPTORS: Final = "overload"
CAUSES: Final = (BY_ALL, BY_ADDRESS, BY_USER, BY_RATE, BY_DESCRIPTORS)
RESERVED: Final = 128  # descriptors for the admin API, files, the loop itself (a guess; an idle gateway has about 25 open)
PER_BROKER: Final = 2  # descriptors of a listener opened on demand: its socket, and the one in reserve
TURNED_AWAY: Final = 64  # clients per listener that are told at a time why they cannot connect; they hold no seat, but a descriptor
UNKNOWN_USER: Final = ""  # all whose login the gateway cannot read (mechanisms of plugins) count as one user
SHOWN: Final = 64  # characters of a name or an address in a text: AMQP's reply texts have 255 bytes


@dataclass(frozen=True, slots=True)
class Caps:
    """What a listener allows; None: any number."""

    connections: int | None = None
    per_address: int | None = None
    per_user: int | None = None
    rate: Rate | None = None  # of new connections


class Places:
    """What all listeners share: how many connections the process has descriptors for."""

    def __init__(self, most: int, descriptors: int) -> None:
        self.most = most
        self.descriptors = descriptors  # the limit `most` was made from, for the text
        self.taken = 0

    @classmethod
    def unbounded(cls) -> Places:
        return cls(sys.maxsize, 0)

    def __repr__(self) -> str:
        return f"<Places {self.taken}/{self.most}>"


class RefusedError(Exception):
    """No seat: `cause` for counting, the text for the client."""

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class Seat:
    """One connection's place in the counts. `leave` gives it back, once."""

    def __init__(self, admission: Admission, accepted_at: int) -> None:
        self.accepted_at = accepted_at  # monotonic ns
        self._admission = admission
        self._address: str | None = None
        self._user: str | None = None
        self._left = False

    def take_address(self, address: str) -> None:
        """Count for `address`. Raises RefusedError."""
        assert self._address is None, "a connection has one address"
        self._admission.count_address(address)
        self._address = address

    def take_user(self, user: str) -> None:
        """Count for `user`, who is authenticated. Raises RefusedError."""
        assert self._user is None, "a connection has one user"
        self._admission.count_user(user)
        self._user = user

    def leave(self) -> None:
        if self._left:
            return
        self._left = True
        self._admission.give_back(self._address, self._user)

    def __repr__(self) -> str:
        return f"<Seat {'left' if self._left else 'taken'} address={self._address} user={self._user}>"


class Admission:
    """The counts of one listener."""

    def __init__(self, listener: str, caps: Caps, places: Places, now: int) -> None:
        self.listener = listener
        self.caps = caps
        self.places = places
        self.seated = 0
        self.by_address: dict[str, int] = {}
        self.by_user: dict[str, int] = {}
        self._rate = None if caps.rate is None else TokenBucket(Limit(messages=caps.rate), now)

    @property
    def most(self) -> int | None:
        """How many connections may be seated here; None: any number. Other listeners may take some of the places that all share."""
        most = min(self.places.most, sys.maxsize if self.caps.connections is None else self.caps.connections)
        return None if most == sys.maxsize else most

    def enter(self, address: str | None, now: int) -> Seat:
        """A seat for a connection just accepted; `address` is None where a PROXY header will tell it. Raises RefusedError.

        The address is looked at first: who exceeds his own share must not show up as everybody's.
        """
        if address is not None:
            self._look_at_address(address)
        most = self.caps.connections
        if most is not None and self.seated >= most:
            raise RefusedError(BY_ALL, self._reached(BY_ALL, most))
        places = self.places
        if places.taken >= places.most:
            text = (
                f"this gateway's limit of open files ({places.descriptors}) leaves room for {places.most} connections; raise it (ulimit -n)"
            )
            raise RefusedError(BY_DESCRIPTORS, text)
        self._spend(now)
        seat = Seat(self, now)
        self.seated += 1
        places.taken += 1
        if address is not None:
            seat.take_address(address)
        return seat

    def _look_at_address(self, address: str) -> None:
        most = self.caps.per_address
        count = self.by_address.get(address, 0)
        if most is not None and count >= most:
            raise RefusedError(BY_ADDRESS, self._reached(BY_ADDRESS, most, f" by {address[:SHOWN]}"))

    def _reached(self, setting: str, most: int, whom: str = "") -> str:
        return f"{setting} of listener {self.listener[:SHOWN]} ({most}) is reached{whom}; close some connections or raise it"

    def _spend(self, now: int) -> None:
        """A token of the rate."""
        bucket, rate = self._rate, self.caps.rate
        if bucket is None or rate is None:
            return
        if not bucket.available(1, 1, 0, now):
            wait = bucket.wait_ns(1, 0, now)
            remedy = "raise it" if wait >= NEVER else f"try again in {max(1, round(wait / 1e6))} ms"
            raise RefusedError(
                BY_RATE, f"more than {format_rate(rate)} new connections to listener {self.listener} (max_connection_rate); {remedy}"
            )
        bucket.take(1, 1, 0)

    def count_address(self, address: str) -> None:
        self._look_at_address(address)
        self.by_address[address] = self.by_address.get(address, 0) + 1

    def count_user(self, user: str) -> None:
        most = self.caps.per_user
        count = self.by_user.get(user, 0)
        if most is not None and count >= most:
            # Worded after RabbitMQ: "connection refused for user 'x': user connection limit (3) is reached" (rabbit_reader.erl).
            who = "a user this gateway cannot tell from others" if user == UNKNOWN_USER else f"user {user[:SHOWN]!a}"
            text = f"connection refused for {who}: {self._reached(BY_USER, most)}"
            raise RefusedError(BY_USER, text)
        self.by_user[user] = count + 1

    def give_back(self, address: str | None, user: str | None) -> None:
        self.seated -= 1
        self.places.taken -= 1
        if address is not None:
            _less(self.by_address, address)
        if user is not None:
            _less(self.by_user, user)

    def __repr__(self) -> str:
        return f"<Admission {self.listener} seated={self.seated} addresses={len(self.by_address)} users={len(self.by_user)}>"


def room_for_connections(descriptors: int, listeners: int, brokers: int = 0) -> int:
    """How many connections a process that may open so many descriptors has room for: two each, and the admin stays reachable.

    `brokers`: how many listeners may be opened on demand, for brokers of a name server.
    """
    return max(1, (descriptors - RESERVED - listeners * TURNED_AWAY - brokers * PER_BROKER) // 2)


def _less(counts: dict[str, int], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
