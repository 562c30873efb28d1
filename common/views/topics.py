"""Topics: what became of their messages, the limit that holds for each, and the clients refused most."""

from collections.abc import Sequence
from typing import Annotated, Final, Self

import msgspec
from msgspec import UNSET, UnsetType

from common.views.view import View, add, fact, join, least, merge_lists, most

MAX_CLIENTS_SHOWN: Final = 3  # clients; of each topic; a guess


class RefusedClientView(View, frozen=True, kw_only=True):
    """One client's messages to one topic, counted since the client is listed."""

    client: Annotated[str, fact("address")]
    user: str | None = None
    group: Annotated[str | None, fact("RocketMQ's: the producer's, of retries the consumer's")] = None
    waiting: Annotated[int, fact("messages that wait now", add, "messages")] = 0
    forwarded: Annotated[int, fact("messages that passed", add, "messages")] = 0
    refused: Annotated[int, fact("messages refused or dropped", add, "messages")] = 0
    received_per_second: Annotated[float, fact("of a client that is over a limit: a mean over ten seconds", add, "messages/s")] = 0.0
    refused_per_second: Annotated[float, fact("a mean over ten seconds", add, "messages/s")] = 0.0
    refused_per_second_1s: Annotated[float, fact("of the last second", add, "messages/s")] = 0.0
    would_refuse_per_second: Annotated[float, fact("over limits in mode shadow: a mean over ten seconds", add, "messages/s")] = 0.0
    over_since: Annotated[
        str | None, fact("when messages over a limit began to come; null: none came or waited within a minute", least)
    ] = None

    def key(self) -> object:
        return self.client


def worst_clients(one: Sequence[RefusedClientView], other: Sequence[RefusedClientView]) -> list[RefusedClientView]:
    """Of several processes those refused most now, then ever."""
    found = merge_lists(one, other)
    found.sort(key=lambda each: (-each.refused_per_second, -each.waiting, -each.would_refuse_per_second, -each.refused, each.client))
    return found[:MAX_CLIENTS_SHOWN]


class TopicLimitView(View, frozen=True, kw_only=True):
    """The limit per topic that is in force, with live changes and quotas, whoever sends."""

    messages: Annotated[
        str | None,
        fact(
            "the limit per topic in force, with live changes and quotas, whoever sends; of a cap that was tightened, what it is now; with "
            "its mode where it is not enforced: `100/s, shadow`",
            title="limit",
            rank=4,
        ),
    ] = None
    bytes: Annotated[str | None, fact("its limit of bytes", title="byte limit", rank=11)] = None
    messages_per_second: float | None = None
    bytes_per_second: float | None = None
    concurrent: int | None = None
    origin: Annotated[str, fact("its source: override (changed live), file, quota, quota+hour, default", rank=30)] = ""
    rule: str = ""
    mode: Annotated[str, fact("enforce; shadow: only counted, all passes; off", rank=31)] = ""
    action: Annotated[str, fact("what becomes of messages over it")] = ""
    by: str | None = None
    at: str | None = None
    reason: str | None = None
    expires: str | None = None


class TopicAccountView(View, frozen=True, kw_only=True):
    """What a topic's limit does to its messages now (`admin/views/topic_account.py`)."""

    state: Annotated[str, fact("refused; waiting (nothing is refused); would_refuse (the limit is only counted: mode shadow); within")]
    since: Annotated[
        str | None,
        fact("when its limit was reached, or what is over it began to come; bouts within a minute are one"),
    ] = None
    would_refuse_per_second: Annotated[float, fact("of a limit that is only counted: what it would refuse", unit="messages/s")] = 0.0
    first_waited_seconds: Annotated[
        float | None,
        fact(
            "how long the first of those that wait has waited; null: none does, it is not known, or longer than the series of the last "
            "quarter of an hour",
            unit="seconds",
        ),
    ] = None
    last_waits_seconds: Annotated[
        float | None,
        fact("how long the last of them will wait at the limit's rate; null: none waits, or without end", unit="seconds"),
    ] = None
    client: Annotated[str | None, fact("the one with most of what is refused, or else of what waits, or would be refused")] = None
    user: str | None = None
    group: Annotated[str | None, fact("the client's, of RocketMQ")] = None
    client_share: Annotated[float | None, fact("the client's part of it", unit="share")] = None
    unrefused_because: Annotated[
        str | None,
        fact(
            "why nothing is refused: no_confirms (a publisher that cannot be told), one_way (the same of RocketMQ), delay (its turn comes "
            "in time), block, spool, consume, requeue"
        ),
    ] = None


class TopicView(View, frozen=True, kw_only=True):
    """A topic seen lately. Rates are means over ten seconds; those of the last second end in `_1s`. Counts are since the start."""

    protocol: Annotated[str, fact("rocketmq or amqp", rank=35)]
    topic: Annotated[str, fact("its name", rank=0)]
    operation: Annotated[
        str,
        fact(
            "produce; consume, what consumers get; requeue, what they give back; and what is no message: declare, bind, delete, purge, "
            "open, get, connect, query, admin",
            rank=38,
        ),
    ] = "produce"
    group: Annotated[str | None, fact("of a RocketMQ retry topic: the consumer group", rank=36)] = None
    received: Annotated[int, fact("messages received", add, "messages", short="total received", rank=40)] = 0
    forwarded: Annotated[int, fact("of these, forwarded", add, "messages", short="total passed", rank=41)] = 0
    refused: Annotated[int, fact("of these, refused", add, "messages", short="total refused", rank=32)] = 0
    delayed: Annotated[int, fact("held until the limit let them pass", add, "messages")] = 0
    dropped: Annotated[int, fact("dropped by a rule with `action: drop`", add, "messages", rank=42)] = 0
    abandoned: Annotated[int, fact("given up: their client or broker went while they waited", add, "messages", rank=43)] = 0
    bypassed: Annotated[int, fact("passed without a verdict", add, "messages")] = 0
    shadow_refused: Annotated[
        int,
        fact(
            "messages that passed, and that limits in shadow mode would have refused, since the gateway started",
            add,
            "messages",
            title="would refuse",
            rank=33,
            pressing=3,
            quiet=True,
        ),
    ] = 0
    redelivered: Annotated[
        int,
        fact(
            "operation `consume`: messages that the broker had delivered before (RocketMQ: that were given back before), since the "
            "gateway started",
            add,
            "messages",
            rank=34,
            quiet=True,
        ),
    ] = 0
    waiting: Annotated[int, fact("messages received and neither forwarded nor refused yet", add, "messages", rank=20, pressing=3)] = 0
    wait_p99_ms: Annotated[
        float | None,
        fact(
            "of the messages that a limit held and that passed or were given up within the last half minute to minute, 99 of 100 waited no "
            "longer; nothing: none was held",
            most,
            "wait ms",
            title="wait p99 ms",
            short="p99 wait",
            rank=13,
        ),
    ] = None
    spooled: Annotated[int, fact("messages that wait in the spool", add, "messages")] = 0
    bytes: Annotated[int, fact("bytes received", add, "bytes")] = 0
    received_per_second: Annotated[
        float,
        fact(
            "messages a second that clients sent (operation `consume`: that the broker sent)",
            add,
            "messages/s",
            title="received/s",
            short="received",
            rank=1,
        ),
    ] = 0.0
    forwarded_per_second: Annotated[float, fact("of these, forwarded", add, "messages/s", title="forwarded/s", short="passed", rank=2)] = (
        0.0
    )
    refused_per_second: Annotated[
        float, fact("of these, refused or dropped", add, "messages/s", title="refused/s", short="refused", rank=3)
    ] = 0.0
    bytes_per_second: Annotated[float, fact("bytes a second", add, "bytes/s", title="bytes/s", short="bytes", rank=15)] = 0.0
    received_per_second_1s: Annotated[float, fact("", add, "messages/s")] = 0.0
    forwarded_per_second_1s: Annotated[float, fact("", add, "messages/s")] = 0.0
    refused_per_second_1s: Annotated[float, fact("", add, "messages/s")] = 0.0
    bytes_per_second_1s: Annotated[float, fact("", add, "bytes/s")] = 0.0
    idle_seconds: Annotated[float, fact("since its last message", least, "seconds")] = 0.0
    clients: Annotated[list[RefusedClientView], fact("those refused most", worst_clients)] = []
    limit: Annotated[TopicLimitView | UnsetType | None, fact("the limit per topic in force; null: none")] = UNSET
    used: Annotated[
        float | UnsetType | None,
        fact(
            "how much of the limit passes: passed / limit, of messages or bytes, whichever is more. `100 %` with refusals: the limit is "
            "what slows the clients down. `60 %` with refusals: bursts are refused, or another limit refuses",
            unit="share",
            rank=5,
        ),
    ] = UNSET
    wait_ms: Annotated[
        float | UnsetType | None,
        fact(
            "how long until one more message would pass. `0s`: now. While the breaker is open: until it closes",
            unit="wait ms",
            title="wait ms",
            short="wait",
            rank=12,
        ),
    ] = UNSET

    account: Annotated[TopicAccountView | UnsetType, fact("what its limit does to its messages now")] = UNSET

    def key(self) -> tuple[str, str, str]:
        return self.protocol, self.topic, self.operation

    def strip_rates(self) -> Self:
        """Of a process that has ended: its counts without its rates. Messages that waited there are lost, so they are abandoned."""
        return msgspec.structs.replace(
            self, **dict.fromkeys(RATES, 0.0), waiting=0, wait_p99_ms=None, abandoned=self.abandoned + self.waiting, clients=[]
        )


TROUBLE: Final = {"refused_per_second": 1e6, "waiting": 1.0, "received_per_second": 1e-6}  # weights: what makes a topic worse than others
RATES: Final = tuple(f"{what}_per_second{window}" for what in ("received", "forwarded", "refused", "bytes") for window in ("", "_1s"))


class LibraryView(View, frozen=True, kw_only=True):
    """What a client says of itself: AMQP's client-properties, or the language and version of RocketMQ's requests."""

    product: str | UnsetType = UNSET
    language: str | UnsetType = UNSET
    version: str | int | UnsetType = UNSET
    platform: str | UnsetType = UNSET


class ClientView(View, frozen=True, kw_only=True):
    """A client that limits refuse or hold, over all topics: an address and user at a listener. Counted since it is listed."""

    protocol: Annotated[str, fact("rocketmq or amqp", rank=31)]
    listener: Annotated[str, fact("its listener", rank=30)]
    client: Annotated[str, fact("address", rank=0)]
    user: Annotated[str | None, fact("its user", rank=4)] = None
    names: Annotated[list[str], fact("AMQP: the connection names, up to three", join)] = []
    libraries: Annotated[list[LibraryView], fact("what the client says of itself; up to three different ones", join)] = []
    topic: Annotated[str, fact("the topic of which most was over a limit of late", short="worst topic", rank=3)] = ""
    operation: Annotated[str, fact("of the worst topic", rank=32)] = "produce"
    refused: Annotated[int, fact("since the client is listed", add, "messages", short="total refused", rank=6)] = 0
    delayed: Annotated[int, fact("since the client is listed", add, "messages", short="total held", rank=8, quiet=True)] = 0
    refused_per_second: Annotated[
        float, fact("messages a second: refused or dropped", add, "messages/s", title="refused/s", short="refused", rank=1)
    ] = 0.0
    delayed_per_second: Annotated[
        float,
        fact(
            "messages a second: held until the limit lets them pass. Publishers without confirms are held where a rule says `reject`",
            add,
            "messages/s",
            title="delayed/s",
            short="held",
            rank=2,
            quiet=True,
        ),
    ] = 0.0
    refused_per_second_1s: Annotated[float, fact("", add, "messages/s")] = 0.0
    delayed_per_second_1s: Annotated[float, fact("", add, "messages/s")] = 0.0
    idle_seconds: Annotated[float, fact("when it was over a limit last", least, "seconds", title="idle s", short="last", rank=9)] = 0.0

    def key(self) -> object:
        return self.protocol, self.listener, self.client, self.user

    def weight(self) -> tuple[float, float]:
        """Its worst topic is that of the process where more is over a limit now, or else was over it last."""
        return self.refused_per_second + self.delayed_per_second, -self.idle_seconds
