"""How many connections the admin API and the probes' port may hold at once, by the limit of open files. Clients leave so much free.

Both sides take their numbers from here: the two servers what they hold, `gateway/admission.py` what it leaves.
"""

from __future__ import annotations

import resource
from typing import Final, NamedTuple

PART: Final = 4  # the two ports have a quarter of the descriptors at most; a guess
LEAST: Final = 4  # of each kind, however few descriptors there are: a person and a probe are answered


class Share(NamedTuple):
    """Descriptors by what they are for, where there are enough."""

    connections: int = 64  # of the admin API, with a place; docs/design/reliability.md F53
    probes: int = 32  # of the probes' listener, with a place; a guess
    arriving: int = 128  # of each of the two: without a whole request, or waiting for a place; some 32 KiB each at most
    handshakes: int = 128  # of TLS, under way; of some 60 KiB each (measured 2026-11-24)
    streams: int = 64  # which have no part in the places of other requests; a guess

    @property
    def total(self) -> int:
        return self.connections + self.probes + 2 * self.arriving + self.handshakes + self.streams


WHOLE: Final = Share()


def share_of(descriptors: int) -> Share:
    """What the two ports may hold where the process may open so many files; RLIM_INFINITY: any number."""
    wanted = PART * WHOLE.total
    if descriptors == resource.RLIM_INFINITY or descriptors >= wanted:
        return WHOLE
    return Share(*(max(LEAST, size * descriptors // wanted) for size in WHOLE))


def own_share() -> Share:
    """What the ports of this process may hold, by its limit as it is now."""
    return share_of(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
