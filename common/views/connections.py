"""Connections: what holds each up, and what has become of its messages. `GET /v1/connections`."""

from typing import Annotated, TypeAlias

from msgspec import UNSET, UnsetType

from common.views.view import View, fact


class HeldView(View, frozen=True, kw_only=True):
    """The rule that holds or has refused messages of a connection, and of which topic."""

    rule: Annotated[str, fact("the limit that holds its messages, or that refused some in the last 10 s", rank=11)]
    topic: Annotated[str, fact("the topic of that limit", rank=9)]
    operation: str = "produce"


class StageView(View, frozen=True, kw_only=True):
    """A stage of a connection: whether it waits for credit from the next one, or did within the last second, and for how long in all."""

    flow: bool = False
    credit: int = 0
    blocked_seconds: Annotated[
        float, fact("how long it was not read for want of credit, in all", unit="seconds", title="flow s", short="in flow", rank=31)
    ] = 0.0


class SpoolStageView(View, frozen=True, kw_only=True):
    """Where the spool keeps what waits of a connection. In memory is all that rules hold of it, as `held_bytes` says."""

    stage: Annotated[
        str,
        fact(
            "where the spool keeps what waits of it: memory (a short burst), disk, or full (the client is not read: no room, or a disk "
            "slower than it)",
            title="spool stage",
            short="spool",
            rank=23,
        ),
    ]
    memory_bytes: Annotated[int, fact("", unit="bytes")] = 0
    disk_bytes: Annotated[int, fact("", unit="bytes")] = 0


class CreditView(View, frozen=True, kw_only=True):
    """Credit of a connection's stages; `spool` is null where nothing of it waits there."""

    reader: StageView
    limiter: StageView
    spool: SpoolStageView | None = None


class EncryptionView(View, frozen=True, kw_only=True):
    """TLS of one hop of a connection."""

    version: str | None = None
    cipher: str | None = None
    certificate_user: Annotated[str | None, fact("the user that the peer's certificate names")] = None


class SilentConnectionView(View, frozen=True, kw_only=True):
    """A connection of a worker that does not answer: nothing else is known of it."""

    id: int
    protocol: str
    worker: int


class ConnectionView(View, frozen=True, kw_only=True):
    """A connection. Counts are since it was opened. What one protocol alone knows is absent for others."""

    id: Annotated[int, fact("its number", rank=1)]
    listener: Annotated[str, fact("its listener", rank=30)]
    protocol: str
    worker: Annotated[int | UnsetType, fact("of several processes, the one that serves it")] = UNSET
    client: Annotated[str, fact("address and port", rank=0)] = ""
    user: Annotated[str | None, fact("its user", rank=3)] = None
    state: Annotated[
        str,
        fact(
            "running, flow (not read for a moment), waiting (for a limit; in a pipe and JSON `throttled`), refused (messages of it are; "
            "in a pipe and JSON `running` or `flow`), client_gone (it has closed, or is gone; what it "
            "had sent still goes on), blocked (by the broker), draining",
            rank=7,
        ),
    ] = ""
    bottleneck: Annotated[str, fact("what keeps it from being faster; see `sluice connections list --help`", rank=2)] = "none"
    held_by: Annotated[HeldView | None, fact("the rule that holds something of it; one of them where there are more")] = None
    refused_by: Annotated[HeldView | None, fact("the rule that refused something of it last, within ten seconds")] = None
    credit: CreditView | UnsetType = UNSET
    client_gone_seconds: Annotated[
        float, fact("since it has closed or is gone", unit="seconds", title="client gone s", short="client", rank=5)
    ] = 0.0
    age_seconds: Annotated[float, fact("since it was opened", unit="seconds", title="age s", short="age", rank=13)] = 0.0
    bytes_from_client: Annotated[int, fact("", unit="bytes")] = 0
    bytes_to_client: Annotated[int, fact("", unit="bytes")] = 0
    backlog_to_client: Annotated[
        int,
        fact(
            "bytes that wait for it",
            unit="bytes",
            title="unread",
            quiet=True,
            rank=5,
        ),
    ] = 0
    upstream: Annotated[str | None, fact("the broker's address")] = None
    unread_seconds: Annotated[
        float,
        fact(
            "for how long it has taken nothing of what waits for it; after 5 minutes it is closed (`client_stalled`)",
            unit="seconds",
            title="unread s",
            quiet=True,
            short="unread for",
            rank=12,
        ),
    ] = 0.0
    backlog_to_broker: Annotated[int, fact("", unit="bytes")] = 0
    held_messages: Annotated[
        int, fact("messages of it that wait for a limit", unit="messages", title="held", short="waiting", quiet=True, rank=4)
    ] = 0
    held_bytes: Annotated[
        int, fact("bytes of the messages that wait for a limit", unit="bytes", title="held bytes", short="waiting bytes", rank=22)
    ] = 0
    spooled_bytes: Annotated[
        int,
        fact(
            "bytes of those that are on the gateway's disk only, by a rule with `action: spool`",
            unit="bytes",
            title="spooled bytes",
            quiet=True,
            short="spooled",
            rank=5,
        ),
    ] = 0
    held_deliveries: Annotated[int, fact("deliveries to it that wait for a limit", unit="messages")] = 0
    held_delivery_bytes: Annotated[int, fact("of these", unit="bytes")] = 0
    messages_forwarded: Annotated[
        int, fact("messages that it published, since it was opened", unit="messages", title="forwarded", quiet=True, short="passed", rank=6)
    ] = 0
    messages_refused: Annotated[
        int,
        fact(
            "messages of it that limits refused or dropped, since it was opened",
            unit="messages",
            title="refused",
            quiet=True,
            short="total refused",
            rank=27,
        ),
    ] = 0
    refused_per_second: Annotated[
        float,
        fact(
            "messages a second that limits refused or dropped, a mean over ten seconds",
            unit="messages/s",
            title="refused/s",
            quiet=True,
            short="refused",
            rank=4,
        ),
    ] = 0.0
    broker_blocked: Annotated[bool, fact("whether the broker has told it to wait")] = False
    broker_blocked_seconds: Annotated[
        float, fact("how long the broker had told it to wait, in all", unit="seconds", title="blocked s", short="blocked", rank=32)
    ] = 0.0
    send_blocked_seconds: Annotated[
        float,
        fact("how long the broker was slow to take bytes, in all", unit="seconds", title="send blocked s", short="send blocked", rank=33),
    ] = 0.0
    tls: Annotated[EncryptionView | None, fact("towards the client; null: nothing protects it")] = None
    upstream_tls: Annotated[EncryptionView | None, fact("towards the broker")] = None
    # AMQP
    vhost: Annotated[str | UnsetType | None, fact("AMQP: its virtual host", rank=25)] = UNSET
    client_properties: Annotated[
        dict[str, str] | UnsetType, fact("AMQP: the name of the connection, where the client gives one", title="name", rank=8)
    ] = UNSET
    channels: Annotated[int | UnsetType, fact("AMQP: open now")] = UNSET
    confirm_channels: Annotated[int | UnsetType, fact("AMQP: of these, those with publisher confirms")] = UNSET
    held_channels: Annotated[int | UnsetType, fact("AMQP: of these, those on which something waits")] = UNSET
    consumers: Annotated[int | UnsetType, fact("AMQP")] = UNSET
    messages_delivered: Annotated[
        int | UnsetType,
        fact(
            "messages that were sent to it, AMQP: of a connection that only consumes the other numbers are 0",
            unit="messages",
            title="delivered",
            quiet=True,
            rank=10,
        ),
    ] = UNSET
    frame_max: Annotated[int | UnsetType, fact("AMQP", unit="bytes")] = UNSET
    heartbeat: Annotated[int | UnsetType, fact("AMQP", unit="seconds")] = UNSET
    # RocketMQ
    language: Annotated[str | UnsetType | None, fact("RocketMQ: of its client library")] = UNSET
    version: Annotated[int | UnsetType | None, fact("RocketMQ: of its client library, as its protocol numbers it")] = UNSET
    held: Annotated[int | UnsetType, fact("RocketMQ: sends that wait")] = UNSET
    unanswered: Annotated[int | UnsetType, fact("RocketMQ's name server: requests that wait for their answer")] = UNSET
    held_polls: Annotated[int | UnsetType, fact("RocketMQ: polls that wait")] = UNSET
    limited_polls: Annotated[int | UnsetType, fact("RocketMQ: polls that a limit has made wait or shortened")] = UNSET
    empty_polls: Annotated[int | UnsetType, fact("RocketMQ: polls that were answered without messages")] = UNSET


AnyConnection: TypeAlias = ConnectionView | SilentConnectionView
