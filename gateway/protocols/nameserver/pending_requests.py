"""Pending requests: which requests of one client its name server has not answered yet, and which of the answers hold routes.

An answer says nothing of what was asked but its `opaque`, the client's own number. So every request that will be answered is remembered
by it until then; where a client uses a number again before it is answered, all answers to that number are looked at. The table is bounded:
a client with MAX_PENDING_REQUESTS unanswered requests is told to wait, so what is forgotten is never a route.
"""

from __future__ import annotations

from typing import Final

# GET_ROUTEINFO_BY_TOPIC, GET_BROKER_CLUSTER_INFO, GET_SYSTEM_TOPIC_LIST_FROM_NS, GET_BROKER_MEMBER_GROUP. No other answer of 5.3.3's name
# server has the address of a broker.
ROUTES: Final = frozenset((105, 106, 304, 901))
MAX_PENDING_REQUESTS: Final = 4096  # clients have one or two open at a time; 100 bytes each: a guess with much room
ROUTE: Final = 1  # bit of an entry: an answer with this number may hold a route
ONE: Final = 2  # what one request adds to an entry


class PendingRequests:
    """Those of one connection, by opaque."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open: dict[int, int] = {}

    def ask(self, opaque: int, code: int) -> bool:
        """A request will be passed on. False, changing nothing, where there are too many without an answer."""
        known = self.open.get(opaque, 0)
        if not known and len(self.open) >= MAX_PENDING_REQUESTS:
            return False
        self.open[opaque] = (known + ONE) | (ROUTE if code in ROUTES else 0)
        return True

    def answer(self, opaque: int) -> bool:
        """An answer has come: whether it may hold a route."""
        known = self.open.get(opaque, 0)
        if not known:
            return False
        if known < 2 * ONE:
            del self.open[opaque]
        else:
            self.open[opaque] = known - ONE
        return known & ROUTE != 0

    def __repr__(self) -> str:
        return f"<PendingRequests open={len(self.open)}>"
