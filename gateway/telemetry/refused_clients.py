"""The clients behind each topic that is over a limit: refused, or made to wait, or only counted (mode shadow).

A retry storm has a topic, and the topic's name tells the consumer group. The next question of an operator is which of its consumers sends
it. Keys are per client address anyway, so the answer costs a look at what was folded, and nothing per message.

It is bounded, because strangers choose their addresses: MAX_CLIENTS_KEPT clients of each of the MAX_TOPICS topics refused or held last. A
new client takes the place of the one that was least so of late. So the worst client is always listed. Counts begin when a client is
listed: they are at most what it was refused, never more.

Consumer groups are bounded in the same way, for their metric: MAX_GROUPS_SHOWN have a series of their own, and one that was refused nothing
for long makes room for another one. Each begins at 0, and what it counted before stays in the sum of the others: nothing goes back.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from common.log import moment
from common.views.topics import RefusedClientView
from gateway.counting.accounts import FORGET_AFTER, OTHER
from gateway.counting.recent_rates import RecentCounts
from gateway.protocols import PROTOCOLS

if TYPE_CHECKING:
    from gateway.telemetry.exposition import Sample
    from limiter.keys import Key, Tally

MAX_TOPICS: Final = 1000  # topics; refused last, whose clients are known; a guess: 2 MB
MAX_CLIENTS_KEPT: Final = 8  # clients; of each topic; a guess
BOUTS_S: Final = 60.0  # seconds; without a message over a limit, until what comes is another bout; a guess
MAX_GROUPS_SHOWN: Final = 50  # consumer groups; with series of their own (the rest is under __other__); a guess
GROUP_IDLE_S: Final = FORGET_AFTER / 1e9  # seconds; refused nothing for so long, a group makes room for another one

TopicKey = tuple[str, str, str]  # protocol, topic as text, operation


def consumer_group(protocol: str, topic: str) -> str | None:
    """The consumer group whose retries the topic holds, or None."""
    prefix = PROTOCOLS[protocol].retry_prefix
    return topic.removeprefix(prefix) if prefix and topic.startswith(prefix) else None


def group_of(key: Key) -> str | None:
    """The consumer group of a retry topic, else RocketMQ's producer group."""
    return consumer_group(key.origin.protocol, key.text) or (None if key.group is None else key.group.decode(errors="backslashreplace"))


class TopicClient:
    """One client's messages to one topic, counted since the client is listed."""

    __slots__ = (
        "address", "forwarded", "group", "last_rate", "lately", "lately_s", "over_idle_s", "over_since", "previous", "received",
        "received_lately", "recent", "refused", "user", "waiting", "window", "would_lately", "would_refuse",
    )  # fmt: skip

    def __init__(self, address: str) -> None:
        self.address = address
        self.forwarded = 0
        self.refused = 0  # or dropped
        self.waiting = 0  # messages received and not settled, of those that came since it is listed
        self.user = ""  # of its last message over the limit
        self.group = ""  # the same
        self.received = 0
        self.previous = (0, 0, 0)  # `refused`, `would_refuse` and `received` at the last tick
        self.lately = 0  # refused in the last ten seconds
        self.lately_s = 0.0  # seconds; how long those are: less, where it was refused first only now
        self.would_refuse = 0  # over a limit in mode shadow
        self.would_lately = 0  # of these, in the last ten seconds
        self.received_lately = 0  # in the last ten seconds
        self.over_since = 0.0  # seconds since 1970; when messages over a limit began to come; 0: none came or waited within BOUTS_S
        self.over_idle_s = 0.0  # seconds; since such came or waited last
        self.last_rate = 0.0  # the same, over the last tick
        self.window: RecentCounts | None = None  # None: none refused in the last ten seconds, none would have been, none waits
        self.recent = 0.0  # refused, held or only counted of late: halved every second; decides who stays in the list

    def tick(self, seconds: float) -> None:
        before = self.previous
        self.previous = self.refused, self.would_refuse, self.received
        refused, would_refuse = self.refused - before[0], self.would_refuse - before[1]
        self.last_rate = refused / seconds
        self.over_idle_s = 0.0 if refused or would_refuse or self.waiting else self.over_idle_s + seconds
        if self.over_idle_s > BOUTS_S:
            self.over_since = 0.0
        window = self.window
        if window is None and (refused or would_refuse or self.waiting):
            window = self.window = RecentCounts(3)
        if window is not None:
            window.add(seconds, (refused, would_refuse, self.received - before[2]))
            _, self.lately, self.would_lately, self.received_lately = window.sums
            self.lately_s = window.seconds
            if not (self.lately or self.would_lately or self.waiting):
                self.window = None
        self.recent /= 2

    def rate(self, seconds: float = 0.0) -> float:
        """Refused per second, the mean over the last ten seconds, or as many of them as its topic's means are over (`seconds`).

        A topic's begin with its first message, a client's with the first refused: over that alone it would have more than its topic.
        """
        return self.lately / max(self.lately_s, seconds, 1e-9)

    def describe(self, seconds: float = 0.0) -> RefusedClientView:
        """`seconds`: those that the means of its topic are over."""
        return RefusedClientView(
            client=self.address,
            user=self.user or None,
            group=self.group or None,
            waiting=self.waiting,
            forwarded=self.forwarded,
            refused=self.refused,
            received_per_second=round(self.received_lately / max(self.lately_s, seconds, 1e-9), 3),
            refused_per_second=round(self.rate(seconds), 3),
            refused_per_second_1s=round(self.last_rate, 3),
            would_refuse_per_second=round(self.would_lately / max(self.lately_s, seconds, 1e-9), 3),
            over_since=moment(self.over_since) if self.over_since else None,
        )

    def __repr__(self) -> str:
        return f"<TopicClient {self.address} refused={self.refused} {self.rate():.0f}/s forwarded={self.forwarded}>"


class RefusedGroup:
    """A consumer group with series of its own."""

    __slots__ = ("last_s", "refused", "topic")

    def __init__(self, topic: TopicKey) -> None:
        self.topic = topic  # which holds its retries
        self.refused = 0  # or dropped
        self.last_s = 0.0  # when that was last, in seconds of `RefusedClients`

    def __repr__(self) -> str:
        return f"<RefusedGroup {self.topic[1]} refused={self.refused}>"


class RefusedClients:
    """The clients of every topic with refused messages."""

    def __init__(self) -> None:
        self._topics: OrderedDict[TopicKey, dict[str, TopicClient]] = OrderedDict()  # refused last at the end
        self.shown_groups: dict[str, RefusedGroup] = {}
        self.refused_of_others = 0  # messages of groups while they were not shown
        self._seconds = 0.0  # all ticks so far
        self._look_at = 0.0  # seconds, as before: earlier than that no group shown can be idle

    def add(self, key: Key, tally: Tally) -> None:
        """An observer of `Accounts`: what one key counted since it was folded last."""
        origin = key.origin
        topic = (origin.protocol, key.text, key.operation)
        refused = tally.refused + tally.dropped
        over = refused + tally.delayed + tally.shadow_refused
        if refused:
            self._count_group(topic, refused)
        clients = self._topics.get(topic)
        if clients is None:
            if over == 0:
                return
            clients = self._topics[topic] = {}
            if len(self._topics) > MAX_TOPICS:
                self._topics.popitem(last=False)
        client = clients.get(origin.client)
        if client is None:
            if over == 0 or not _has_room(clients, over):
                return
            client = clients[origin.client] = TopicClient(origin.client)
        client.received += tally.received
        client.forwarded += tally.messages
        client.waiting = max(0, client.waiting + tally.received - tally.messages - refused - tally.abandoned)
        if over:
            client.refused += refused
            if tally.shadow_refused:
                client.would_refuse += tally.shadow_refused
            client.recent += over
            client.over_since = client.over_since or time.time()
            client.user = origin.user or ""
            client.group = group_of(key) or ""
            self._topics.move_to_end(topic)

    def _count_group(self, topic: TopicKey, refused: int) -> None:
        name = consumer_group(topic[0], topic[1])
        if name is None:
            return
        group = self.shown_groups.get(name)
        if group is None:
            if not self._has_room_for_group():
                self.refused_of_others += refused
                return
            group = self.shown_groups[name] = RefusedGroup(topic)
        group.refused += refused
        group.last_s = self._seconds

    def _has_room_for_group(self) -> bool:
        """Whether one more group can be shown. Makes room for it."""
        if len(self.shown_groups) < MAX_GROUPS_SHOWN:
            return True
        if self._seconds < self._look_at:
            return False
        idle = min(self.shown_groups, key=lambda name: self.shown_groups[name].last_s)
        self._look_at = self.shown_groups[idle].last_s + GROUP_IDLE_S
        if self._seconds < self._look_at:
            return False
        del self.shown_groups[idle]
        return True

    def tick(self, seconds: float) -> None:
        """Once a second: work out the rates since the last tick."""
        self._seconds += seconds
        for clients in self._topics.values():
            for client in clients.values():
                client.tick(seconds)

    def of(self, topic: TopicKey) -> list[TopicClient]:
        """The listed clients of a topic, the one refused most of late first, then the one of which most waits."""
        clients = self._topics.get(topic, {}).values()
        return sorted(
            clients,
            key=lambda client: (-client.lately, -client.waiting, -client.would_lately, -client.recent, -client.refused, client.address),
        )

    def __repr__(self) -> str:
        return f"<RefusedClients of {len(self._topics)} topics>"


def _has_room(clients: dict[str, TopicClient], over: int) -> bool:
    """Whether a client with so many messages over the limit belongs into the list. Makes room for it."""
    if len(clients) < MAX_CLIENTS_KEPT:
        return True
    least = min(clients.values(), key=lambda client: client.recent)
    if over <= least.recent:
        return False
    del clients[least.address]
    return True


def retry_samples(clients: RefusedClients) -> dict[str, list[Sample]]:
    """Metrics of the consumer groups whose retries were refused. Clients are no labels: their addresses come and go without end."""
    ratios: dict[str, float] = {}
    for name, group in clients.shown_groups.items():
        refused = [client.lately for client in clients.of(group.topic)]
        if sum(refused) > 0:
            ratios[name] = max(refused) / sum(refused)
    rest = clients.refused_of_others
    others: list[Sample] = [((OTHER,), rest)] if rest else []
    return {
        "sluice_retries_refused_total": [*(((name,), group.refused) for name, group in clients.shown_groups.items()), *others],
        "sluice_retries_worst_client_ratio": [((name,), ratio) for name, ratio in ratios.items()],
    }
