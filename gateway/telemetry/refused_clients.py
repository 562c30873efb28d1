"""The clients behind each topic that is over a limit.

A retry storm has a topic, and the topic's name tells the consumer group. The next question of an operator is which of its consumers sends
it. Keys are per client address anyway, so the answer costs a look at what was folded, and nothing per message.

It is bounded, because strangers choose their addresses: MAX_CLIENTS_KEPT clients of each of the MAX_TOPICS topics refused last. A new
client takes the place of the one that was refused least of late. So the worst client is always listed. Counts begin when a client is
listed: they are at most what it was refused, never more.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from gateway.counting.accounts import OTHER, Accounts
from gateway.counting.recent_rates import RecentCounts
from gateway.protocols import PROTOCOLS

if TYPE_CHECKING:
    from gateway.telemetry.exposition import Sample
    from limiter.keys import Key, Tally

MAX_TOPICS: Final = 1000  # topics; refused last, whose clients are known; a guess: 2 MB
MAX_CLIENTS_KEPT: Final = 8  # clients; of each topic; a guess
MAX_CLIENTS_SHOWN: Final = 3  # clients; of each topic in `GET /v1/topics`; a guess
MAX_GROUPS_SHOWN: Final = 50  # consumer groups; refused most, with series of their own (the rest is under __other__); a guess

TopicKey = tuple[str, str, str]  # protocol, topic as text, operation


def consumer_group(protocol: str, topic: str) -> str | None:
    """The consumer group whose retries the topic holds, or None."""
    prefix = PROTOCOLS[protocol].retry_prefix
    return topic.removeprefix(prefix) if prefix and topic.startswith(prefix) else None


class Client:
    """One client's messages to one topic, counted since the client is listed."""

    __slots__ = ("address", "forwarded", "last_rate", "previous", "rate", "recent", "refused", "window")

    def __init__(self, address: str) -> None:
        self.address = address
        self.forwarded = 0
        self.refused = 0  # or dropped
        self.previous = 0  # of `refused`, at the last tick
        self.rate = 0.0  # refused per second, the mean over ten seconds
        self.last_rate = 0.0  # the same, over the last tick
        self.window: RecentCounts | None = None  # None: none refused in the last ten seconds
        self.recent = 0.0  # refused of late: halved every second; decides who stays in the list

    def tick(self, seconds: float) -> None:
        refused = self.refused - self.previous
        self.last_rate = refused / seconds
        self.previous = self.refused
        window = self.window
        if window is None and refused:
            window = self.window = RecentCounts(1)
        if window is not None:
            window.add(seconds, (refused,))
            self.rate = window.rates()[0]
            if window.empty():
                self.window = None
        self.recent /= 2

    def describe(self) -> dict[str, object]:
        return {
            "client": self.address,
            "forwarded": self.forwarded,
            "refused": self.refused,
            "refused_per_second": round(self.rate, 3),
            "refused_per_second_1s": round(self.last_rate, 3),
        }

    def __repr__(self) -> str:
        return f"<Client {self.address} refused={self.refused} {self.rate:.0f}/s forwarded={self.forwarded}>"


class RefusedClients:
    """The clients of every topic with refused messages."""

    def __init__(self) -> None:
        self._topics: OrderedDict[TopicKey, dict[str, Client]] = OrderedDict()  # refused last at the end
        self.shown_groups: dict[str, None] = {}  # groups with series of their own, for good: `retry_samples`

    def add(self, key: Key, tally: Tally) -> None:
        """An observer of `Accounts`: what one key counted since it was folded last."""
        origin = key.origin
        topic = (origin.protocol, key.text, key.operation)
        refused = tally.refused + tally.dropped
        clients = self._topics.get(topic)
        if clients is None:
            if refused == 0:
                return
            clients = self._topics[topic] = {}
            if len(self._topics) > MAX_TOPICS:
                self._topics.popitem(last=False)
        client = clients.get(origin.client)
        if client is None:
            if refused == 0 or not _has_room(clients, refused):
                return
            client = clients[origin.client] = Client(origin.client)
        client.forwarded += tally.messages
        if refused:
            client.refused += refused
            client.recent += refused
            self._topics.move_to_end(topic)

    def tick(self, seconds: float) -> None:
        """Once a second: work out the rates since the last tick."""
        for clients in self._topics.values():
            for client in clients.values():
                client.tick(seconds)

    def of(self, topic: TopicKey) -> list[Client]:
        """The listed clients of a topic, the one refused most of late first."""
        clients = self._topics.get(topic, {}).values()
        return sorted(clients, key=lambda client: (-client.rate, -client.recent, -client.refused, client.address))

    def __repr__(self) -> str:
        return f"<RefusedClients of {len(self._topics)} topics>"


def _has_room(clients: dict[str, Client], refused: int) -> bool:
    """Whether a client with so many refused messages belongs into the list. Makes room for it."""
    if len(clients) < MAX_CLIENTS_KEPT:
        return True
    least = min(clients.values(), key=lambda client: client.recent)
    if refused <= least.recent:
        return False
    del clients[least.address]
    return True


def retry_samples(accounts: Accounts, clients: RefusedClients) -> dict[str, list[Sample]]:
    """Metrics of the consumer groups whose retries were refused. Clients are no labels: their addresses come and go without end."""
    refused: dict[str, int] = {}
    ratios: dict[str, float] = {}
    for topic, totals in accounts.topics.items():
        group = consumer_group(totals.protocol, totals.text)
        lost = totals.refused + totals.dropped
        if group is None or lost == 0:
            continue
        refused[group] = lost
        rates = [client.rate for client in clients.of(topic)]
        if sum(rates) > 0:
            ratios[group] = max(rates) / sum(rates)
    for group in refused:
        if len(clients.shown_groups) < MAX_GROUPS_SHOWN:
            clients.shown_groups.setdefault(group, None)
    shown = [group for group in clients.shown_groups if group in refused]
    rest = sum(refused.values()) - sum(refused[group] for group in shown)
    others: list[Sample] = [((OTHER,), rest)] if rest else []
    return {
        "sluice_retries_refused_total": [*(((group,), refused[group]) for group in shown), *others],
        "sluice_retries_worst_client_ratio": [((group,), ratios[group]) for group in shown if group in ratios],
    }
