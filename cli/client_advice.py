"""What each client library shows when a limit of sluice bites, and what to do about it there: a table.

The facts are measured, but for Spring AMQP's: docs/rabbitmq.md and docs/rocketmq.md say with which versions. `sluice why` shows the rows of
the libraries that are being limited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from limiter.operations import HELD_OPERATIONS
from limiter.rules.actions import ACTION_RECORDS

# How a limit bites, as the client meets it.
REFUSED: Final = "refused"  # AMQP: basic.nack on a channel with confirms; RocketMQ: code 215
SYSTEM_BUSY: Final = "system_busy"  # RocketMQ: code 2, by a rule with reply: system_busy
HELD: Final = "held"  # the message waits for its turn
SPOOLED: Final = "spooled"  # AMQP: the message waits as long as it takes, on disk where there are many
BLOCKED: Final = "blocked"  # the connection is not read; AMQP: connection.blocked
DROPPED: Final = "dropped"  # swallowed
CLOSED: Final = "closed"  # AMQP: channel.close 506; RocketMQ: the connection is closed
CONSUMING: Final = "consuming"  # deliveries, or the answers to pulls, come later
SITUATIONS: Final = (REFUSED, SYSTEM_BUSY, HELD, SPOOLED, BLOCKED, DROPPED, CLOSED, CONSUMING)


@dataclass(frozen=True, slots=True)
class ClientAdvice:
    """One library. `shows`: situation -> what the application sees. `to_do`: what to change in the application."""

    name: str
    protocol: str
    shows: Mapping[str, str]
    to_do: str
    products: tuple[str, ...] = ()  # AMQP: how product or platform of its client_properties begins, in lower case
    connection_names: tuple[str, ...] = ()  # AMQP: how its connection_name begins where nobody chose one, in lower case
    languages: tuple[str, ...] = ()  # of RocketMQ's requests
    versions: tuple[int, int] = (0, 1 << 30)  # of RocketMQ's requests, from and below
    also: tuple[str, ...] = ()  # other names that people look for


AMQP: Final = {  # what most libraries show
    HELD: "nothing: the confirm comes later; without confirms the message waits on its channel",
    SPOOLED: "nothing: publishes go on, confirms come later; a publish that waits for its confirm returns when the message has passed",
    DROPPED: "nothing: the publish succeeds and the message is gone (with confirms: as refused)",
    CONSUMING: "deliveries come more slowly, in order; none is lost",
}
ROCKETMQ: Final = {
    HELD: "nothing: the send returns later",
    BLOCKED: "the send returns later, or after 2.5 s as refused",
    CONSUMING: "pulls return later, or with nothing found; no message is lost",
}
WAIT_LONGER: Final = "publish on, and let confirms take as long as the spool takes to drain: no time-out of seconds that sends again"
BACK_OFF: Final = "repeat it after a pause that grows (0.1 s, 0.2 s, 0.4 s ...), not in a loop"

AMQP_CLIENTS: Final = (
    ClientAdvice(
        "pika",
        "amqp",
        {
            **AMQP,
            REFUSED: "NackError from basic_publish",
            BLOCKED: "add_on_connection_blocked_callback is called with the reason",
            CLOSED: "ChannelClosedByBroker (506, RATE_LIMITED); without confirms a later ChannelWrongStateError",
        },
        f"call channel.confirm_delivery(); catch NackError and {BACK_OFF}",
        products=("pika",),
    ),
    ClientAdvice(
        "aio-pika",
        "amqp",
        {
            **AMQP,
            REFUSED: "DeliveryError from publish(); of a mandatory message no exception: publish() returns it",
            BLOCKED: "a warning in aiormq's log",
            CLOSED: "ChannelClosed",
        },
        f"open channels with on_return_raises=True; catch DeliveryError and {BACK_OFF}",
        products=("aio-pika", "aiormq"),
    ),
    ClientAdvice(
        "Celery / kombu (py-amqp)",
        "amqp",
        {
            **AMQP,
            REFUSED: "MessageNacked, where confirm_publish is on",
            HELD: "nothing: apply_async returns, the task arrives later, in order",
            SPOOLED: "nothing: the task arrives later, in order; with confirm_publish apply_async returns when it has passed",
            BLOCKED: "on_blocked is called",
            CLOSED: "ResourceError with the text; the channel is opened again by itself",
            CONSUMING: "tasks start more slowly, in order; none is lost",
        },
        "set broker_transport_options = {'confirm_publish': True} to learn of refusals; kombu's retry policy repeats them with pauses",
        products=("py-amqp",),
        also=("celery", "kombu", "py-amqp"),
    ),
    ClientAdvice(
        "AMQPStorm",
        "amqp",
        {
            **AMQP,
            REFUSED: "publish() returns False; of a mandatory message AMQPMessageError with the text",
            BLOCKED: "connection.is_blocked is True",
            CLOSED: "AMQPChannelError; without confirms check_for_errors() raises it",
        },
        f"call channel.confirm_deliveries(); where publish() returns False, {BACK_OFF}",
        products=("amqpstorm",),
    ),
    ClientAdvice(
        "Spring AMQP",
        "amqp",
        {
            **AMQP,
            REFUSED: "the ConfirmCallback of RabbitTemplate gets ack=false; without confirms nothing is refused, it waits",
            BLOCKED: "a ConnectionBlockedEvent",
            CLOSED: "an error in the log of CachingConnectionFactory with the text; the channel is opened again",
        },
        f"spring.rabbitmq.publisher-confirm-type=correlated; in the ConfirmCallback, {BACK_OFF}",
        connection_names=("rabbitconnectionfactory",),
    ),
    ClientAdvice(
        "Java amqp-client",
        "amqp",
        {
            **AMQP,
            REFUSED: "waitForConfirms() is false, ConfirmListener.handleNack is called",
            BLOCKED: "BlockedListener.handleBlocked is called with the reason",
            CLOSED: "ShutdownSignalException or AlreadyClosedException with the text",
        },
        f"call channel.confirmSelect(); for each nacked sequence number, {BACK_OFF}",
        products=("java",),
    ),
    ClientAdvice(
        "amqp091-go",
        "amqp",
        {
            **AMQP,
            REFUSED: "Ack: false from NotifyPublish or DeferredConfirmation.Wait",
            BLOCKED: "NotifyBlocked with the reason",
            CLOSED: "NotifyClose with code 506 and the text",
        },
        f"use version 1.8.0 or later: before it, a refused message may be reported as acked. Where Ack is false, {BACK_OFF}",
        products=("amqp 0.9.1 client", "golang"),
        also=("go",),
    ),
    ClientAdvice(
        "Bunny",
        "amqp",
        {
            **AMQP,
            REFUSED: "wait_for_confirms is false, the tag is in nacked_set",
            BLOCKED: "on_blocked is called with the reason",
            CLOSED: "Timeout::Error from wait_for_confirms after 15 s; the next use raises ChannelAlreadyClosed with the text",
        },
        f"call channel.confirm_select; for each tag in nacked_set, {BACK_OFF}",
        products=("bunny",),
        also=("ruby",),
    ),
    ClientAdvice(
        "amqplib (Node)",
        "amqp",
        {
            **AMQP,
            REFUSED: "the publish callback gets the error 'message nacked'",
            BLOCKED: "the event 'blocked' with the reason",
            CLOSED: "the channel's event 'error' with the text; where nobody listens to it, the process ends",
        },
        f"use createConfirmChannel() and listen to 'error'; on 'message nacked', {BACK_OFF}",
        products=("amqplib",),
        also=("node",),
    ),
    ClientAdvice(
        "librabbitmq (C)",
        "amqp",
        {
            **AMQP,
            REFUSED: "the frame basic.nack",
            BLOCKED: "the frame connection.blocked, where the application declared the capability",
            CLOSED: "the frame channel.close with the text",
        },
        f"select confirms and read basic.nack; then {BACK_OFF}",
        products=("rabbitmq-c",),
        also=("c",),
    ),
)
ROCKETMQ_CLIENTS: Final = (
    ClientAdvice(
        "RocketMQ Java 5",
        "rocketmq",
        {
            **ROCKETMQ,
            REFUSED: "MQBrokerException, code 215, [RateLimit] ... need wait:<n>microsecs; not repeated",
            SYSTEM_BUSY: "MQClientException, code 2, after 3 attempts at once",
            DROPPED: "RemotingTooMuchRequestException after 3 s",
            CLOSED: "MQClientException 'Send [3] times' after 0.1 s",
        },
        "catch MQBrokerException, and where getResponseCode() is 215 wait for the time in the message, then send again",
        languages=("JAVA",),
        versions=(412, 1 << 30),
        also=("java",),
    ),
    ClientAdvice(
        "RocketMQ Java 4",
        "rocketmq",
        {
            **ROCKETMQ,
            REFUSED: "MQBrokerException, code 215, [RateLimit] ... need wait:<n>microsecs; not repeated",
            SYSTEM_BUSY: "MQBrokerException, code 2; not repeated",
            DROPPED: "RemotingTooMuchRequestException after 3 s",
            CLOSED: "a time-out after 3 s",
        },
        "catch MQBrokerException, and where getResponseCode() is 215 wait for the time in the message, then send again",
        languages=("JAVA",),
        versions=(122, 412),
        also=("java",),
    ),
    ClientAdvice(
        "RocketMQ C++",
        "rocketmq",
        {
            **ROCKETMQ,
            REFUSED: "'No route info of this topic' after 3 attempts at once: the limit is not named",
            SYSTEM_BUSY: "'No route info of this topic' after 3 attempts at once",
            DROPPED: "'No route info of this topic' after 9 s and 3 attempts",
            CLOSED: "'No route info of this topic' after 9 s and 3 attempts",
        },
        "send more slowly: this client repeats each refused send at once. Ask for action: delay, which it does not notice",
        languages=("CPP",),
        also=("c++", "python"),
    ),
    ClientAdvice(
        "RocketMQ Go",
        "rocketmq",
        {
            **ROCKETMQ,
            REFUSED: "an error 'CODE: 215, DESC: [RateLimit] ...'; not repeated",
            SYSTEM_BUSY: "an error 'CODE: 2 ...'; not repeated",
            DROPPED: "'request timeout' after 12 s and 4 attempts; an asynchronous send panics the process",
            CLOSED: "'request timeout' after 12 s and 4 attempts",
        },
        "where the error contains 'CODE: 215', wait for the time in it, then send again",
        languages=("GO",),
    ),
    ClientAdvice(
        "RocketMQ Node (ali-ons)",
        "rocketmq",
        {
            **ROCKETMQ,
            REFUSED: "MQClientException, code 215; not repeated",
            SYSTEM_BUSY: "an error with code 2; not repeated",
            DROPPED: "'Send [4] times' after 3 s",
            CLOSED: "'Send [4] times' at once",
        },
        "where err.code is 215, wait for the time in the message, then send again",
        languages=("JAVA",),
        versions=(0, 122),  # it says 121, and JAVA
        also=("javascript",),
    ),
    ClientAdvice(
        "gRPC clients behind the RocketMQ Proxy",
        "rocketmq",
        {
            **ROCKETMQ,
            REFUSED: "some sends fail as INTERNAL_SERVER_ERROR",
            SYSTEM_BUSY: "TOO_MANY_REQUESTS, which the client repeats by itself with pauses",
            DROPPED: "a time-out",
            CLOSED: "a time-out",
        },
        "ask for reply: system_busy (the Proxy makes TOO_MANY_REQUESTS of it) or action: delay",
        also=("grpc", "proxy"),
    ),
)
CLIENT_ADVICE: Final = (*AMQP_CLIENTS, *ROCKETMQ_CLIENTS)


def library_of(connection: Mapping[str, Any]) -> ClientAdvice | None:
    """The library behind a connection as `/v1/connections` describes it, by what it says of itself; None: it is not known."""
    language, version = connection.get("language"), connection.get("version")
    own = connection.get("client_properties")
    name, *said = [
        str((own if isinstance(own, dict) else {}).get(each) or "").lower() for each in ("connection_name", "product", "platform")
    ]
    for advice in CLIENT_ADVICE:
        if advice.protocol != connection.get("protocol"):
            continue
        if language in advice.languages and isinstance(version, int) and advice.versions[0] <= version < advice.versions[1]:
            return advice
        if name.startswith(advice.connection_names) or any(text.startswith(advice.products) for text in said):
            return advice
    return None


def find_libraries(words: str, protocol: str) -> list[ClientAdvice]:
    """The libraries of a protocol that people call `words`: by their name, a part of it, or another name they are known by."""
    wanted = words.lower()
    return [advice for advice in CLIENT_ADVICE if advice.protocol == protocol and (wanted in advice.name.lower() or wanted in advice.also)]


def situations_of(level: Mapping[str, Any], confirms: bool | None) -> tuple[str, ...]:  # noqa: FBT001  -- None: not known
    """How a limit bites, from its level as `/v1/limits` shows it, for clients with publisher confirms, without, or with either."""
    if level.get("operation") in HELD_OPERATIONS:
        return (CONSUMING,)
    action, fallback = str(level.get("action")), str(level.get("fallback"))
    record = ACTION_RECORDS[action]
    if level.get("protocol") == "amqp" and (level.get("max_message_size") or level.get("copies") == "refuse"):
        limited = any((level.get("limit") or {}).values())
        plain = situations_of({**level, "max_message_size": None, "copies": ""}, confirms) if limited else ()
        return tuple(dict.fromkeys((*plain, ACTION_RECORDS["close"].situation)))
    if action != "reject":
        return (record.situation, *record.then)
    if level.get("reply") == "system_busy":
        return (SYSTEM_BUSY,)
    unconfirmed = ACTION_RECORDS[fallback].situation
    if level.get("protocol") != "amqp" or confirms:
        return (REFUSED,)
    return (unconfirmed,) if confirms is False else tuple(dict.fromkeys((REFUSED, unconfirmed)))
