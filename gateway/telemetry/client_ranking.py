"""The clients that limits refuse or hold, over all topics: who is it?

`refused_clients.py` answers that for one topic. An operator who is called does not have the topic yet, so here all of a client's messages
are one sum: of one address and user at one listener. What was folded is looked at, nothing per message.

It is bounded, because strangers choose their addresses: MAX_CLIENTS are listed. Of the others the messages over a limit are added up, over
all their topics, and once a second whoever was over its limits more of late takes the place of the one that was least. So the worst client
is listed after a few seconds. Only thousands of others can hide it: what the sums leave out of a client is less than a MAX_NEWCOMERS-th of
all that is added (Misra and Gries' summary of what is frequent).

One that was within its limits for KEEP_S is forgotten. Counts begin when a client is listed: they are at most what happened to it, never
more.

What a client says of itself (library, connection name) is known while it is connected (`limiter.keys.Origin`). It is copied here, so that
it is still known when the client has gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import convert

from common.views.topics import ClientView, LibraryView
from gateway.counting.recent_rates import RecentCounts

if TYPE_CHECKING:
    from limiter.keys import Key, Tally

MAX_CLIENTS: Final = 500  # clients; of all topics; described in 2 ms; a guess
MAX_NEWCOMERS: Final = 4096  # clients; that are not listed and whose messages over a limit are added up, twice as many for a while; a guess
MAX_TOPICS_OF_CLIENT: Final = 8  # topics; of each client, among which the worst is; a guess
KEEP_S: Final = 600.0  # seconds; without a message over a limit: what happened is still to be seen after a conference call; a guess

ClientPlace = tuple[str, str, str, str]  # protocol, listener, address, user ("": none is known)
TopicPlace = tuple[str, str]  # topic as text, operation


class RankedClient:
    """One client's messages over a limit, counted since the client is listed."""

    __slots__ = (
        "delayed", "last_rates", "last_s", "libraries", "names", "place", "previous", "rates", "recent", "refused", "topics", "window",
        "worst",
    )  # fmt: skip

    def __init__(self, place: ClientPlace) -> None:
        self.place = place
        self.refused = 0  # or dropped
        self.delayed = 0  # held at least once
        self.previous = (0, 0)  # refused and delayed, at the last tick
        self.rates: tuple[float, ...] = (0.0, 0.0)  # refused and delayed per second, means over ten seconds
        self.last_rates = (0.0, 0.0)  # the same, over the last tick
        self.window: RecentCounts | None = None  # None: nothing in the last ten seconds
        self.recent = 0.0  # over a limit of late: halved every second; decides who stays in the list
        self.last_s = 0.0  # when it was over a limit last, in seconds of the ranking
        self.topics: dict[TopicPlace, float] = {}  # over a limit of late, by topic: halved every second
        self.worst: TopicPlace = ("", "")  # the topic of which that was the most
        self.libraries: tuple[dict[str, object], ...] = ()  # what its connections say of themselves, as `Origin` has it
        self.names: tuple[str, ...] = ()

    def count(self, topic: TopicPlace, refused: int, delayed: int) -> None:
        over = refused + delayed
        self.refused += refused
        self.delayed += delayed
        self.recent += over
        topics = self.topics
        known = topics.get(topic)
        if known is None and len(topics) >= MAX_TOPICS_OF_CLIENT:
            least = min(topics, key=lambda each: topics[each])
            if over <= topics[least]:
                return
            del topics[least]
        topics[topic] = float(over) if known is None else known + over
        if known is None and topics[topic] >= topics.get(self.worst, 0.0):
            self.worst = topic

    def tick(self, seconds: float) -> None:
        refused, delayed = self.refused - self.previous[0], self.delayed - self.previous[1]
        self.last_rates = (refused / seconds, delayed / seconds)
        self.previous = (self.refused, self.delayed)
        window = self.window
        if window is None and (refused or delayed):
            window = self.window = RecentCounts(2)
        if window is not None:
            window.add(seconds, (refused, delayed))
            self.rates = window.rates()
            if window.empty():
                self.window = None
        self.recent /= 2
        if self.topics:
            topics = self.topics
            self.worst = max(topics, key=lambda each: topics[each])
            self.topics = {each: over / 2 for each, over in topics.items() if over >= 1.0}

    def describe(self, now_s: float) -> ClientView:
        """An item of `GET /v1/clients`; `now_s` in seconds of the ranking."""
        protocol, listener, address, user = self.place
        return ClientView(
            protocol=protocol,
            listener=listener,
            client=address,
            user=user or None,
            names=list(self.names),
            libraries=convert(self.libraries, list[LibraryView]),
            topic=self.worst[0],
            operation=self.worst[1],
            refused=self.refused,
            delayed=self.delayed,
            refused_per_second=round(self.rates[0], 3),
            delayed_per_second=round(self.rates[1], 3),
            refused_per_second_1s=round(self.last_rates[0], 3),
            delayed_per_second_1s=round(self.last_rates[1], 3),
            idle_seconds=round(max(0.0, now_s - self.last_s), 3),
        )

    def __repr__(self) -> str:
        return f"<RankedClient {self.place[2]} refused={self.refused} {self.rates[0]:.0f}/s delayed={self.delayed} worst={self.worst[0]}>"


class ClientRanking:
    """The clients over a limit, of all topics together."""

    def __init__(self) -> None:
        self._clients: dict[ClientPlace, RankedClient] = {}
        self._newcomers: dict[ClientPlace, float] = {}  # not listed: over a limit of late, as `RankedClient.recent`
        self._seconds = 0.0  # all ticks so far

    def add(self, key: Key, tally: Tally) -> None:
        """An observer of `Accounts`: what one key counted since it was folded last."""
        refused = tally.refused + tally.dropped
        over = refused + tally.delayed
        if over == 0:
            return
        origin = key.origin
        place = (origin.protocol, origin.listener, origin.client, origin.user or "")
        client = self._clients.get(place)
        if client is None:
            if len(self._clients) >= MAX_CLIENTS:
                self._newcomers[place] = self._newcomers.get(place, 0.0) + over
                if len(self._newcomers) > 2 * MAX_NEWCOMERS:
                    self._thin_out()
                return
            client = self._clients[place] = RankedClient(place)
        client.count((key.text, key.operation), refused, tally.delayed)
        client.last_s = self._seconds
        if origin.libraries:
            client.libraries = origin.libraries
        if origin.names:
            client.names = origin.names

    def _thin_out(self) -> None:
        """Keep the MAX_NEWCOMERS that were over a limit most, less what the next one has."""
        ranked = sorted(self._newcomers.values(), reverse=True)
        least = ranked[MAX_NEWCOMERS]
        self._newcomers = {place: over - least for place, over in self._newcomers.items() if over > least}

    def _admit(self) -> None:
        """List the newcomers that were over a limit more than those listed, in their places."""
        newcomers = sorted(self._newcomers.items(), key=lambda each: -each[1])
        listed = sorted(self._clients.values(), key=lambda client: client.recent)
        room = MAX_CLIENTS - len(listed)
        for at, (place, over) in enumerate(newcomers):
            if at >= room:
                if at - room >= len(listed) or over <= listed[at - room].recent:
                    break
                del self._clients[listed[at - room].place]
            del self._newcomers[place]
            client = self._clients[place] = RankedClient(place)
            client.recent = over
            client.last_s = self._seconds

    def tick(self, seconds: float) -> None:
        """Once a second: see who is listed, work out the rates since the last tick, and forget who was within their limits for long."""
        self._seconds += seconds
        if self._newcomers:
            self._admit()
            self._newcomers = {place: over / 2 for place, over in self._newcomers.items() if over >= 1.0}
        for client in list(self._clients.values()):
            client.tick(seconds)
            if self._seconds - client.last_s > KEEP_S:
                del self._clients[client.place]

    def describe(self) -> list[ClientView]:
        """`GET /v1/clients`, in no order; without those of which nothing was counted yet, as they are listed only now."""
        return [client.describe(self._seconds) for client in self._clients.values() if client.refused or client.delayed]

    def __repr__(self) -> str:
        return f"<ClientRanking of {len(self._clients)} clients>"
