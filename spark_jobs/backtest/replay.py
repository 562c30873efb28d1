"""Replays lines of the access log through the limiter's own judge, in virtual time, once for each contender.

The caller hands over one second after the other (`replay_second`), all lines of those topics that share a bucket among them. The messages
of a line that arrive together (`arrivals`) are one request, as a gateway makes one of a batch: how many of them pass is the judge's answer.
The clock is the log's. The contenders see the same requests and know nothing of each other.

A message over a limit counts as refused, also where its rule would hold it first (`delay`, `block`): `held` counts those. A held message
is not judged again, so a rule that delays delays at most so much, and refuses at most so much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from limiter.judge import Judge
from limiter.limits import SECOND
from limiter.request import Request
from limiter.rules.actions import PATIENT
from limiter.topics import parse_topic
from spark_jobs.backtest.arrivals import INSTANTS_MS, cap_each_line, count_offered, spread_over_instants
from spark_jobs.backtest.raises import DayRaise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from limiter.keys import Key
    from spark_jobs.backtest.contender import Contender

MILLISECOND: Final = 1_000_000  # ns
MAX_CLIENTS: Final = 10_000  # clients of one topic and contender whose refusals are told apart; the rest is counted under "" (guess)


class ReplayedLine(NamedTuple):
    """One line of the log, as far as a replay needs it. `refused` and `refused_bytes` are without dropped messages."""

    protocol: str
    topic: str
    client: str
    user: str | None
    group: str | None
    messages: int
    bytes: int
    refused: int
    refused_bytes: int
    delayed: int
    dropped: int
    peak_100ms: int


class TopicCount:
    """A contender's refusals of one topic."""

    __slots__ = ("blackout", "clients", "held", "limited_seconds", "refused", "refused_bytes", "run")

    def __init__(self) -> None:
        self.refused = 0  # messages
        self.refused_bytes = 0
        self.held = 0  # messages of `refused` that the rule's action holds first
        self.limited_seconds = 0  # seconds in which something was refused
        self.blackout = 0  # most seconds with demand in a row in which nothing passed
        self.run = 0  # seconds of the present one
        self.clients: dict[str, int] = {}  # refused messages by client

    def __repr__(self) -> str:
        return f"<TopicCount refused={self.refused} in {self.limited_seconds} s, blackout {self.blackout} s>"


class Offered:
    """The demand of one topic."""

    __slots__ = ("bytes", "bytes_left", "messages", "name", "seconds")

    def __init__(self, name: tuple[str, str]) -> None:
        self.name = name  # protocol, topic
        self.messages = 0
        self.bytes = 0
        self.seconds = 0  # seconds with demand
        self.bytes_left = 0  # remainder of whole bytes a message, for the next line


class ReplayedSender(NamedTuple):
    """One topic as seen from one sender."""

    number: int
    topic: int  # number of the topic
    client: str


class ReplayedSide:
    """One contender: a judge of its own, the keys it knows senders by, and its refusals."""

    __slots__ = ("apart", "counts", "judge", "keys", "limited_before", "name", "now", "now_bytes", "open", "raises", "topic_keys")

    def __init__(self, contender: Contender) -> None:
        self.name = contender.name
        rules = contender.rule_set()
        self.judge = Judge(rules)
        self.raises = DayRaise(rules, contender.most) if contender.most else None
        self.apart = contender.tells_senders_apart()
        self.keys: list[Key | None] = []  # keys by number of the sender; None: no rule is for it
        self.topic_keys: dict[int, Key | None] = {}  # where senders are all alike
        self.counts: dict[int, TopicCount] = {}  # counts by number of the topic, of those that lost something
        self.now: dict[int, int] = {}  # messages refused in the running second, by topic
        self.now_bytes: dict[int, int] = {}  # the same in bytes, where quotas are raised
        self.open: set[int] = set()  # topics in a run of seconds in which nothing passed
        self.limited_before = 0

    def add(self, line: ReplayedLine, sender: ReplayedSender) -> None:
        """Know a new sender."""
        if self.apart or sender.topic not in self.topic_keys:
            self.topic_keys[sender.topic] = self._key(line)
        self.keys.append(self.topic_keys[sender.topic])

    def _key(self, line: ReplayedLine) -> Key | None:
        judge = self.judge
        client, user, group = (line.client, line.user, line.group) if self.apart else ("", None, None)
        name = parse_topic(line.protocol, line.topic)
        origin = judge.origin(line.protocol, line.protocol, client, user)  # the log has no listener: one for each protocol
        key = judge.key(origin, f"{line.topic}\0{group}".encode(), name, None if group is None else group.encode())
        return key if judge.is_limited(key) else None

    def decide(self, requests: list[Request], senders: list[ReplayedSender], now: int) -> None:
        """Judge the requests that arrive at `now` (ns), and note the messages that do not pass."""
        keys = self.keys
        for request, sender in zip(requests, senders, strict=True):
            request.key = keys[sender.number]
        self.judge.decide(requests, now)
        limited = self.judge.checks()["limited_enforced"]
        if limited == self.limited_before:
            return
        self.limited_before = limited
        for request, sender in zip(requests, senders, strict=True):
            count = request.count - request.passed
            if count > 0:
                self._refuse(request, sender, count)

    def _refuse(self, request: Request, sender: ReplayedSender, count: int) -> None:
        topic = sender.topic
        found = self.counts.get(topic)
        if found is None:
            found = self.counts[topic] = TopicCount()
        found.refused += count
        found.refused_bytes += count * request.size
        if request.rule is not None and request.rule.action in PATIENT:
            found.held += count
        client = sender.client if len(found.clients) < MAX_CLIENTS else ""
        found.clients[client] = found.clients.get(client, 0) + count
        self.now[topic] = self.now.get(topic, 0) + count
        if self.raises is not None:
            self.now_bytes[topic] = self.now_bytes.get(topic, 0) + count * request.size

    def begin_second(self, ts: int) -> None:
        """Raise quotas by the demand before the second `ts`."""
        if self.raises is not None:
            for at, rules in self.raises.raise_until(ts):
                self.judge.replace(rules, at * SECOND)

    def count_demand(self, topics: Sequence[Offered], asked: Mapping[int, tuple[int, int]]) -> None:
        """Count the demand of the second that ends: messages and bytes asked for, by topic."""
        assert self.raises is not None
        for topic, (messages, size) in asked.items():
            refused, refused_bytes = self.now.get(topic, 0), self.now_bytes.get(topic, 0)
            self.raises.count(topics[topic].name, (messages - refused, refused), (size - refused_bytes, refused_bytes))
        self.now_bytes.clear()

    def end_second(self, asked: Mapping[int, tuple[int, int]]) -> None:
        """Count the limited seconds and blackouts, where something was refused in this second or before it. `asked` as in
        `count_demand`."""
        for topic in [topic for topic in self.open if asked.get(topic, (0, 0))[0] > self.now.get(topic, 0)]:
            self.open.remove(topic)
            self.counts[topic].run = 0
        for topic, refused in self.now.items():
            found = self.counts[topic]
            found.limited_seconds += 1
            if refused == asked[topic][0]:
                found.run += 1
                found.blackout = max(found.blackout, found.run)
                self.open.add(topic)
        self.now.clear()

    def __repr__(self) -> str:
        return f"<ReplayedSide {self.name} {len(self.keys)} senders, {len(self.counts)} topics refused>"


class Replay:
    """The replay of some topics: all that share a bucket, or none of them. Seconds come in order."""

    def __init__(self, contenders: Sequence[Contender], counted: Mapping[tuple[str, str], int] | None = None) -> None:
        """`counted`: how many refused messages of a topic (protocol, name) count as demand in a second, at most; others all do."""
        self.sides = [ReplayedSide(contender) for contender in contenders]
        self._counted = counted or {}
        self.storm = 0  # refused messages that did not count
        self.topics: list[Offered] = []
        self.lines = 0
        self._numbers: dict[tuple[str, str], int] = {}
        self._senders: dict[tuple[str, str, str, str | None, str | None], ReplayedSender] = {}
        self._waiting: dict[int, int] = {}  # held messages by sender

    def replay_second(self, ts: int, lines: Sequence[ReplayedLine]) -> None:
        """Replay the lines of one second, which is later than all before. Their order is the order of arrival at each instant."""
        batches: list[tuple[list[Request], list[ReplayedSender]]] = [([], []) for _ in INSTANTS_MS]
        asked: dict[int, tuple[int, int]] = {}
        for side in self.sides:
            side.begin_second(ts)
        for line in self._drop_storms(lines) if self._counted else lines:
            self._arrive(line, batches, asked)
        for at_ms, (requests, senders) in zip(INSTANTS_MS, batches, strict=True):
            if requests:
                now = ts * SECOND + at_ms * MILLISECOND
                for side in self.sides:
                    side.decide(requests, senders, now)
        for topic, (messages, _) in asked.items():
            self.topics[topic].messages += messages
            self.topics[topic].seconds += 1
        for side in self.sides:
            if side.raises is not None:
                side.count_demand(self.topics, asked)
            if side.now or side.open:
                side.end_second(asked)
        self.lines += len(lines)

    def _drop_storms(self, lines: Sequence[ReplayedLine]) -> Sequence[ReplayedLine]:
        """The lines without those refused messages that are no demand."""
        refusing: dict[tuple[str, str], list[int]] = {}
        for at, line in enumerate(lines):
            if (line.refused or line.dropped) and (line.protocol, line.topic) in self._counted:
                refusing.setdefault((line.protocol, line.topic), []).append(at)
        if not refusing:
            return lines
        found = list(lines)
        for topic, places in refusing.items():
            for at, count in zip(
                places, cap_each_line([lines[at].refused + lines[at].dropped for at in places], self._counted[topic]), strict=True
            ):
                line = lines[at]
                left_out = line.refused + line.dropped - count
                self.storm += left_out
                refused = max(line.refused - left_out, 0)
                size = line.refused_bytes * refused // line.refused if line.refused else 0
                found[at] = line._replace(refused=refused, refused_bytes=size, dropped=count - refused)
        return found

    def _arrive(
        self, line: ReplayedLine, batches: list[tuple[list[Request], list[ReplayedSender]]], asked: dict[int, tuple[int, int]]
    ) -> None:
        sender = self._senders.get(line[:5])
        if sender is None:
            sender = self._new_sender(line)
        departed = line.messages + line.refused + line.dropped
        messages = departed
        if line.delayed or sender.number in self._waiting:
            messages, waiting = count_offered(departed, line.delayed, self._waiting.get(sender.number, 0))
            if waiting:
                self._waiting[sender.number] = waiting
            else:
                self._waiting.pop(sender.number, None)
        if messages <= 0:
            return
        topic = self.topics[sender.topic]
        judged = line.messages + line.refused  # messages whose bytes the log has
        size = (line.bytes + line.refused_bytes) * messages // judged if judged else 0
        before = asked.get(sender.topic, (0, 0))
        asked[sender.topic] = (before[0] + messages, before[1] + size)
        topic.bytes += size
        each, topic.bytes_left = divmod(size + topic.bytes_left, messages)
        for (requests, senders), count in zip(batches, spread_over_instants(messages, line.peak_100ms), strict=True):
            if count:
                requests.append(Request(None, count, 1, each))
                senders.append(sender)

    def _new_sender(self, line: ReplayedLine) -> ReplayedSender:
        name = (line.protocol, line.topic)
        topic = self._numbers.get(name)
        if topic is None:
            topic = self._numbers[name] = len(self.topics)
            self.topics.append(Offered(name))
        sender = self._senders[line[:5]] = ReplayedSender(len(self._senders), topic, line.client)
        for side in self.sides:
            side.add(line, sender)
        return sender

    def __repr__(self) -> str:
        return f"<Replay of {self.lines} lines, {len(self.topics)} topics, {[side.name for side in self.sides]}>"
