"""New names: how many a client may use a second before its names are told apart no more.

The naive way makes a key for each name that is met: 20 µs and 1 kB for the key, its buckets, its line in the access log, while its sender
pays 0.15 µs for a message. A client that invents a topic for each message made the gateway spend 250 times its own processor time.

So each client address has AT_ONCE new names on a listener, and PER_S more a second. A service that publishes to 5,000 topics at its start
meets no bound. Names beyond that are not told apart for now: those for which the same rules hold share one key (`Key.unnamed`), which is
counted as `__other__`. What holds for such a message: every level but `topic` as ever; a rule `per: topic` where it lets nothing pass;
and a name is told apart nevertheless where a rule, a live change or a quota names it, or where its topic has a bucket in use. So what
passes beyond its topic's limit is what comes to a topic that nobody has used for a while, until its turn for a key has come: some
hundred messages of a flood of other names. Of things above topics that names bring with them (`per: namespace`, `exchange`, `group`) each
client has its own for MAX_TOGETHER, further ones draw from one bucket.

Such a message costs look-ups (`limiter.decisions.alike_names`): no key, no subject, no walk over the rules. Nor is a new group told apart
then, unless a rule looks at groups: the messages of a topic count without it.

Threads: the loop's alone.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from limiter.limits import SECOND

AT_ONCE: Final = 6000  # names; more than a service has topics: a guess
PER_S: Final = 1000  # names a second, some 2 % of a processor: a guess
MAX_CLIENTS: Final = 10_000  # addresses and listeners remembered, 150 bytes each; of more the longest unseen begin anew: a guess
NAME_NS: Final = SECOND // PER_S


class NewNames:
    """Of one client address on one listener."""

    __slots__ = ("empty_at",)

    def __init__(self) -> None:
        self.empty_at = -AT_ONCE * NAME_NS  # monotonic ns: when as many were used as come in since; AT_ONCE more may be used ahead of that

    def used_up(self, now: int) -> bool:
        """Whether none may be used at `now` (monotonic ns)."""
        return self.empty_at + NAME_NS > now

    def take(self, now: int) -> bool:
        """Whether one more may be used at `now` (monotonic ns), which then counts."""
        begins = max(self.empty_at, now - AT_ONCE * NAME_NS) + NAME_NS
        if begins > now:
            return False
        self.empty_at = begins
        return True

    def __repr__(self) -> str:
        return f"<NewNames empty_at={self.empty_at}>"


class ClientsNames:
    """Of all clients, those who came last the longest."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: OrderedDict[tuple[str, str], NewNames] = OrderedDict()

    def of(self, listener: str, client: str) -> NewNames:
        place = (listener, client)
        found = self._of.pop(place, None)
        if found is None:
            found = NewNames()
            if len(self._of) >= MAX_CLIENTS:
                self._of.popitem(last=False)
        self._of[place] = found
        return found

    def __repr__(self) -> str:
        return f"<ClientsNames {len(self._of)}>"
