"""What the limit of open files leaves for whom: the admin API, the probes' port, and the clients.

All sides take their numbers from here: the two servers what they hold, the listeners how many clients they have room for beside that.
"""

from __future__ import annotations

import resource
from typing import Final, NamedTuple

PART: Final = 4  # the two ports have a quarter of the descriptors at most; a guess
OWN: Final = 32  # for files and the loop itself; an idle gateway has about 25 open (a guess)
PER_BROKER: Final = 2  # of a listener opened on demand: its socket, and the one in reserve
# Clients per listener that are told at a time why they cannot connect: they hold no permit, but a descriptor (a guess)
MAX_REJECTING: Final = 64
LEAST: Final = 4  # of each kind, however few descriptors there are: a person and a probe are answered


class DescriptorShare(NamedTuple):
    """Descriptors by what they are for, where there are enough."""

    connections: int = 64  # of the admin API, with a place; docs/design/reliability.md F53
    probes: int = 32  # of the probes' listener, with a place; a guess
    arriving: int = 128  # of each of the two: without a whole request, or waiting for a place; some 32 KiB each at most
    handshakes: int = 128  # of TLS, under way; of some 60 KiB each (measured 2026-11-24)
    streams: int = 64  # which have no part in the places of other requests; a guess

    @property
    def total(self) -> int:
        return self.connections + self.probes + 2 * self.arriving + self.handshakes + self.streams


WHOLE: Final = DescriptorShare()


def share_of(descriptors: int) -> DescriptorShare:
    """What the two ports may hold where the process may open so many files; RLIM_INFINITY: any number."""
    wanted = PART * WHOLE.total
    if descriptors == resource.RLIM_INFINITY or descriptors >= wanted:
        return WHOLE
    return DescriptorShare(*(max(LEAST, size * descriptors // wanted) for size in WHOLE))


def own_share() -> DescriptorShare:
    """What the ports of this process may hold, by its limit as it is now."""
    return share_of(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def room_for_connections(descriptors: int, listeners: int, brokers: int = 0) -> int:
    """How many connections a process that may open so many descriptors has room for: two each, and the admin stays reachable.

    `brokers`: how many listeners may be opened on demand, for brokers of a name server.
    """
    reserved = OWN + share_of(descriptors).total
    return max(1, (descriptors - reserved - listeners * MAX_REJECTING - brokers * PER_BROKER) // 2)
