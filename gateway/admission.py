"""Admission control: which clients may connect, decided before anything is dialled for them.

Every connection that a listener accepts asks for a **permit**, which is released once, however the connection ends. Only permits are
counted, so the numbers are exact by construction. There are limits per listener, per client address and per user, a rate of new
connections, and, over all listeners, the descriptors that the process may open. A refusal takes nothing: no permit, no token.

A client's address is known at accept, or after the PROXY header where there is one. A user is counted once the broker has authenticated
them. Counted any earlier, anybody could use up another user's share with nothing but that user's name.

Tables shrink with their connections: an address or a user without a connection has no entry. No clock, no socket.

Of several workers each counts its own connections, and learns from shared memory what the others have (`OtherProcesses`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from common.records import dataclass
from limiter.limits import NEVER, Limit, Rate
from limiter.units import format_rate

BY_ALL: Final = "max_connections"  # causes, as in sluice_connections_closed_total
BY_ADDRESS: Final = "max_connections_per_address"
BY_USER: Final = "max_connections_per_user"
BY_RATE: Final = "max_connection_rate"
BY_DESCRIPTORS: Final = "overload"
BY_MEMORY: Final = "memory_full"
CAUSES: Final = (BY_ALL, BY_ADDRESS, BY_USER, BY_RATE, BY_DESCRIPTORS, BY_MEMORY)
UNKNOWN_USER: Final = ""  # all whose login the gateway cannot read (mechanisms of plugins) count as one user
ALONE: Final = nullcontext()  # nobody else counts
MAX_CHARS_SHOWN: Final = 64  # of a name or an address in a text; AMQP's reply texts have 255 bytes


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a listener allows; None: any number."""

    connections: int | None = None
    per_address: int | None = None
    per_user: int | None = None
    rate: Rate | None = None  # of new connections


class OtherProcesses(Protocol):
    """What other processes of the same gateway have: `workers.shared_counts.SharedCounts`."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Nobody else counts meanwhile. May be nested."""

    def count_elsewhere(self, listener: str, kind: str, name: str) -> int:
        """How many connections they have of this name."""

    def add(self, listener: str, kind: str, name: str, number: int) -> None:
        """Tell them of `number` more here."""

    def arrivals(self, listener: str) -> memoryview[int] | None:
        """The cell of `ArrivalRate` that all of them share; None: this listener has none."""


class ConnectionSlots:
    """How many connections the process has descriptors for. All listeners share them."""

    def __init__(self, maximum: int, descriptors: int) -> None:
        self.maximum = maximum
        self.descriptors = descriptors  # the limit `maximum` was made from, for the text
        self.taken = 0
        self.others: OtherProcesses | None = None  # None: this process is the whole gateway
        self.closed_because = ""  # why there are none for now: the process is short of memory
        self.patience_divisor = 1  # time-outs of handshakes are so much shorter while memory is scarce
        self.make_room: Callable[[str, str, str], None] | None = None  # told the listener, cause and address of who was refused

    @classmethod
    def unbounded(cls) -> ConnectionSlots:
        return cls(sys.maxsize, 0)

    def __repr__(self) -> str:
        return f"<ConnectionSlots {self.taken}/{self.maximum}>"


class RefusedError(Exception):
    """There is no permit: `cause` for counting, the text for the client."""

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class ArrivalRate:
    """A rate of new connections, over all processes that share the cell: a token bucket as one number (GCRA).

    The cell holds the moment until which arrivals are paid for, in nanoseconds of the machine's monotonic clock. 0: nobody has come yet.
    Whole numbers: a float's last digit is more than a nanosecond once a machine is up for two months.
    """

    def __init__(self, rate: Rate) -> None:
        limit = Limit(messages=rate)
        interval_ns = -(-rate.per_ns // rate.amount) if rate.amount else 0  # rounded up
        self._interval_ns = min(interval_ns, NEVER // 2)  # a cell has 64 bits; 0: nobody is admitted
        self._ahead_ns = self._interval_ns * limit.messages_capacity()  # how far the cell may be ahead of the clock: the burst
        self._cell = memoryview(bytearray(8)).cast("q")

    def share(self, cell: memoryview[int] | None) -> None:
        """Hold the rate together with whoever has the same `cell`."""
        if cell is not None:
            self._cell = cell

    def wait_ns(self, now: int) -> int:
        """Until one more may come; 0: now."""
        if not self._interval_ns:
            return NEVER
        return max(0, self._paid_until(now) + self._interval_ns - self._ahead_ns - now)

    def spend(self, now: int) -> None:
        self._cell[0] = self._paid_until(now) + self._interval_ns

    def _paid_until(self, now: int) -> int:
        """No further ahead than the burst: a slower rate may have been in force, or the clock set back."""
        self._cell[0] = min(max(self._cell[0], now), now + self._ahead_ns)
        return self._cell[0]

    def __repr__(self) -> str:
        return f"<ArrivalRate every {self._interval_ns} ns, paid until {self._cell[0]} ns>"


class ConnectionPermit:
    """One connection's part of the counts. `release` gives it back, once."""

    def __init__(self, admission: Admission, accepted_at: int) -> None:
        self.accepted_at = accepted_at  # monotonic ns
        self._admission = admission
        self._address: str | None = None
        self._user: str | None = None
        self._released = False

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

    def release(self) -> None:
        if self._released:
            return
        self._released = True
        self._admission.take_back(self._address, self._user)

    def __repr__(self) -> str:
        return f"<ConnectionPermit {'released' if self._released else 'held'} address={self._address} user={self._user}>"


class Admission:
    """The counts of one listener."""

    def __init__(self, listener: str, limits: ConnectionLimits, slots: ConnectionSlots) -> None:
        self.listener = listener
        self.limits = limits
        self.slots = slots
        self.admitted = 0
        self.by_address: dict[str, int] = {}
        self.by_user: dict[str, int] = {}
        self._rate = None if limits.rate is None else ArrivalRate(limits.rate)

    def take_limits(self, limits: ConnectionLimits) -> None:
        """Admit by these limits from now on. Nobody who is in is turned out; a rate that has not changed goes on."""
        if limits.rate != self.limits.rate:
            self._rate = None if limits.rate is None else ArrivalRate(limits.rate)
        self.limits = limits
        if self.slots.others is not None:
            self.count_with(self.slots.others)

    def count_with(self, others: OtherProcesses) -> None:
        """Hold these limits together with other processes."""
        self.slots.others = others
        if self._rate is not None:
            self._rate.share(others.arrivals(self.listener))

    @property
    def maximum(self) -> int | None:
        """How many connections may be admitted here; None: any number. Other listeners may take some of the slots that all share."""
        maximum = min(self.slots.maximum, sys.maxsize if self.limits.connections is None else self.limits.connections)
        return None if maximum == sys.maxsize else maximum

    def admit(self, address: str | None, now: int) -> ConnectionPermit:
        """A permit for a connection just accepted; `address` is None where a PROXY header will tell it. Raises RefusedError.

        The address is checked first, so that one address over its limit is counted under that limit and not under the listener's.
        """
        with self._exclusive():
            return self._admit(address, now)

    def _exclusive(self) -> AbstractContextManager[None]:
        others = self.slots.others
        return ALONE if others is None else others.exclusive()

    def _count_elsewhere(self, kind: str, name: str = "") -> int:
        others = self.slots.others
        return 0 if others is None else others.count_elsewhere(self.listener, kind, name)

    def _tell(self, kind: str, name: str, number: int) -> None:
        if self.slots.others is not None:
            self.slots.others.add(self.listener, kind, name, number)

    def _admit(self, address: str | None, now: int) -> ConnectionPermit:
        if address is not None:
            self._check_address(address)
        maximum = self.limits.connections
        if maximum is not None and self.admitted + self._count_elsewhere(BY_ALL) >= maximum:
            raise RefusedError(BY_ALL, self._reached(BY_ALL, maximum))
        slots = self.slots
        if slots.closed_because:
            raise RefusedError(BY_MEMORY, slots.closed_because)
        if slots.taken >= slots.maximum:
            room = f"leaves room for {slots.maximum} connections; raise it (ulimit -n)"
            text = f"this gateway's limit of open files ({slots.descriptors}) {room}"
            raise RefusedError(BY_DESCRIPTORS, text)
        self._spend(now)
        permit = ConnectionPermit(self, now)
        self.admitted += 1
        slots.taken += 1
        self._tell(BY_ALL, "", 1)
        if address is not None:
            permit.take_address(address)
        return permit

    def _check_address(self, address: str) -> None:
        maximum = self.limits.per_address
        count = self.by_address.get(address, 0)
        if maximum is not None and count + self._count_elsewhere(BY_ADDRESS, address) >= maximum:
            raise RefusedError(BY_ADDRESS, self._reached(BY_ADDRESS, maximum, f" by {address[:MAX_CHARS_SHOWN]}"))

    def _reached(self, setting: str, maximum: int, by: str = "") -> str:
        return f"{setting} of listener {self.listener[:MAX_CHARS_SHOWN]} ({maximum}) is reached{by}; close some connections or raise it"

    def _spend(self, now: int) -> None:
        """A token of the rate."""
        arrivals, rate = self._rate, self.limits.rate
        if arrivals is None or rate is None:
            return
        wait = arrivals.wait_ns(now)
        if wait > 0:
            remedy = "raise it" if wait >= NEVER else f"try again in {max(1, round(wait / 1e6))} ms"
            raise RefusedError(
                BY_RATE, f"more than {format_rate(rate)} new connections to listener {self.listener} (max_connection_rate); {remedy}"
            )
        arrivals.spend(now)

    def count_address(self, address: str) -> None:
        with self._exclusive():
            self._check_address(address)
            self.by_address[address] = self.by_address.get(address, 0) + 1
            self._tell(BY_ADDRESS, address, 1)

    def count_user(self, user: str) -> None:
        with self._exclusive():
            self._count_user(user)

    def _count_user(self, user: str) -> None:
        maximum = self.limits.per_user
        count = self.by_user.get(user, 0)
        if maximum is not None and count + self._count_elsewhere(BY_USER, user) >= maximum:
            # Worded after RabbitMQ: "connection refused for user 'x': user connection limit (3) is reached" (rabbit_reader.erl).
            user_text = "a user this gateway cannot tell from others" if user == UNKNOWN_USER else f"user {user[:MAX_CHARS_SHOWN]!a}"
            text = f"connection refused for {user_text}: {self._reached(BY_USER, maximum)}"
            raise RefusedError(BY_USER, text)
        self.by_user[user] = count + 1
        self._tell(BY_USER, user, 1)

    def take_back(self, address: str | None, user: str | None) -> None:
        self.admitted -= 1
        self.slots.taken -= 1
        self._tell(BY_ALL, "", -1)
        if address is not None:
            _decrement(self.by_address, address)
            self._tell(BY_ADDRESS, address, -1)
        if user is not None:
            _decrement(self.by_user, user)
            self._tell(BY_USER, user, -1)

    def __repr__(self) -> str:
        return f"<Admission {self.listener} admitted={self.admitted} addresses={len(self.by_address)} users={len(self.by_user)}>"


def _decrement(counts: dict[str, int], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
