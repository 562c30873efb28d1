"""Nine client libraries against every action: what the application sees when a limit bites, and that its other channels live on.

The table below is the table of `docs/rabbitmq.md` (and of `docs/design/amqp.md` 1.8) in executable form: a row per situation, a word per
library. What the libraries have in common (what arrived, what was returned, the state of the channel) stands once per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.probes import LIBRARIES, Probe, Report
from support.gateways import Gateway, amqp_listener

pytestmark = pytest.mark.rabbitmq

ONE_A_MINUTE = {"messages": "1/min", "burst": {"messages": 1}}  # the first passes, the second is over the limit
FIVE_A_SECOND = {"messages": "5/s", "burst": {"messages": 1}}  # the third has to wait 0.4 s
TWO_A_SECOND = {"messages": "2/s", "burst": {"messages": 1}}  # where each waits for its confirm, which takes a busy machine its time
WAITED_S = 120  # at most; no longer than it takes


# What a library says to a publish that was nacked, and to a mandatory one that was returned and nacked.
REFUSED = {
    "pika":        ("NackError",                                      "NackError"),
    "aio-pika":    ("DeliveryError",                                  "publish() = DeliveredMessage"),
    "amqpstorm":   ("publish() = False",                              "AMQPMessageError"),
    "py-amqp":     ("MessageNacked",                                  "ChannelError"),
    "amqplib":     ("callback: message nacked",                       "callback: message nacked"),
    "bunny":       ("wait_for_confirms = false, nacked_set has it",   "wait_for_confirms = false, nacked_set has it"),
    "java":        ("waitForConfirms = false",                        "waitForConfirms = false"),
    "go":          ("Ack=false",                                      "Ack=false"),
    "librabbitmq": ("basic.nack",                                     "basic.nack"),
}  # fmt: skip

# What it says when its channel is closed instead: to a publish with confirms, and to the commit of a transaction. Then how the application
# learns the reason: by that publish; by that commit; on a channel without confirms, by an event or by the next use.
CLOSED = {
    "pika":        ("ChannelClosedByBroker",    "ChannelClosedByBroker",
                    "ChannelClosedByBroker",    "ChannelClosedByBroker",     "ChannelWrongStateError"),
    "aio-pika":    ("ChannelClosed",            "RuntimeError",
                    "ChannelClosed",            "ChannelClosed",             "ChannelClosed"),
    "amqpstorm":   ("AMQPChannelError",         "AMQPChannelError",
                    "AMQPChannelError",         "AMQPChannelError",          "AMQPChannelError"),
    "py-amqp":     ("ResourceError",            "ResourceError",
                    "ResourceError",            "ResourceError",             "ResourceError"),
    "amqplib":     ("callback: channel closed", None,
                    "'error' event Error",      None,                        "'error' event Error"),
    "bunny":       ("Timeout::Error",           "Bunny::ChannelAlreadyClosed",
                    "Bunny::ChannelAlreadyClosed", "Bunny::ChannelAlreadyClosed", "Bunny::ChannelAlreadyClosed"),
    "java":        ("ShutdownSignalException",  "AlreadyClosedException",
                    "ShutdownSignalException",  "AlreadyClosedException",    "AlreadyClosedException"),
    "go":          ("Ack=false",                "error",
                    "NotifyClose",              "NotifyClose",               "NotifyClose"),
    "librabbitmq": ("channel.close",            "error",
                    "channel.close",            "channel.close",             "channel.close"),
}  # fmt: skip
WITHOUT_CODE = {"Bunny::ChannelAlreadyClosed", "ChannelPreconditionFailed", "ChannelWrongStateError"}
WITHOUT_TEXT = {"ChannelWrongStateError"}  # "Channel is closed.", and no more


def column(table: Mapping[str, tuple[str | None, ...]], number: int) -> dict[str, str]:
    return {library: found for library, row in table.items() if (found := row[number]) is not None}


NACK, RETURN_AND_NACK = column(REFUSED, 0), column(REFUSED, 1)
HANDLED_RETURN = {"aio-pika": "PublishError", "py-amqp": "MessageNacked"}  # with on_return_raises; with a handler of basic_return
CLOSED_PUBLISH, CLOSED_COMMIT = column(CLOSED, 0), column(CLOSED, 1)
WHY, WHY_COMMIT, WHY_PLAIN = column(CLOSED, 2), column(CLOSED, 3), column(CLOSED, 4)
ACK, SENT, COMMITTED = (dict.fromkeys(LIBRARIES, word) for word in ("ack", "sent", "committed"))
WITH_TX = {library: word for library, word in SENT.items() if library != "amqplib"}  # amqplib has no transactions


@dataclass(frozen=True)
class Situation:
    """A rule, what a client does under it, and what must come of it. `seen`: per library, the word for each publish in turn."""

    rule: dict[str, Any]
    order: dict[str, Any]
    seen: list[dict[str, str]]
    arrived: int
    returned: list[int] = field(default_factory=list)  # which publishes come back
    commit: dict[str, str] = field(default_factory=dict)
    closed: dict[str, str] = field(default_factory=dict)  # per library, how the application learns that the channel is closed
    refusal: tuple[int, str] = (506, "RESOURCE_ERROR - RATE_LIMITED - {topic} is over its limit of 1/min of rule ")  # where it is closed
    blocked: bool = False  # connection.blocked before, connection.unblocked after


SITUATIONS = {
    "no-limit": Situation({"limit": {"messages": "1000/s"}}, {}, [ACK], arrived=1),
    "reject": Situation({"limit": ONE_A_MINUTE}, {"count": 3}, [ACK, NACK, NACK], arrived=1),
    "reject-mandatory": Situation(
        {"limit": ONE_A_MINUTE},
        {"count": 3, "mandatory": 1},
        [ACK, RETURN_AND_NACK, RETURN_AND_NACK],
        arrived=1,
        returned=[1, 2],
    ),
    "reject-mandatory-handled": Situation(
        {"limit": ONE_A_MINUTE},
        {"count": 3, "mandatory": 1, "returns": "handled"},
        [dict.fromkeys(HANDLED_RETURN, "ack"), HANDLED_RETURN, HANDLED_RETURN],
        arrived=1,
        returned=[1, 2],
    ),
    "reject-plain": Situation({"limit": FIVE_A_SECOND}, {"mode": "plain", "count": 3, "other_first": 1}, [SENT] * 3, arrived=3),
    "reject-plain-drop": Situation({"limit": ONE_A_MINUTE, "fallback": "drop"}, {"mode": "plain", "count": 3}, [SENT] * 3, arrived=1),
    "reject-tx": Situation({"limit": FIVE_A_SECOND}, {"mode": "tx", "count": 3}, [WITH_TX] * 3, arrived=3, commit=COMMITTED),
    "delay": Situation({"limit": FIVE_A_SECOND, "action": "delay"}, {"count": 3}, [ACK] * 3, arrived=3),
    "delay-plain": Situation(
        {"limit": FIVE_A_SECOND, "action": "delay"}, {"mode": "plain", "count": 3, "other_first": 1}, [SENT] * 3, arrived=3
    ),
    "delay-too-long": Situation(
        {"limit": ONE_A_MINUTE, "action": "delay", "max_delay": "0.2s"}, {"count": 2}, [ACK, NACK], arrived=1
    ),
    "drop": Situation({"limit": ONE_A_MINUTE, "action": "drop"}, {"mode": "plain", "count": 3}, [SENT] * 3, arrived=1),
    "drop-confirm": Situation({"limit": ONE_A_MINUTE, "action": "drop"}, {"count": 2}, [ACK, NACK], arrived=1),
    "drop-tx": Situation(
        {"limit": FIVE_A_SECOND, "action": "drop"}, {"mode": "tx", "count": 3}, [WITH_TX] * 3, arrived=3, commit=COMMITTED
    ),
    "block": Situation({"limit": TWO_A_SECOND, "action": "block"}, {"count": 3, "linger": 60}, [ACK] * 3, arrived=3, blocked=True),
    "block-plain": Situation(
        {"limit": FIVE_A_SECOND, "action": "block"}, {"mode": "plain", "count": 3, "linger": 60}, [SENT] * 3, arrived=3, blocked=True
    ),
    "block-tx": Situation(
        {"limit": FIVE_A_SECOND, "action": "block"},
        {"mode": "tx", "count": 3, "linger": 60},
        [WITH_TX] * 3,
        arrived=3,
        commit=COMMITTED,
        blocked=True,
    ),
    "close": Situation({"limit": ONE_A_MINUTE, "action": "close"}, {"count": 2}, [ACK, CLOSED_PUBLISH], arrived=1, closed=WHY),
    "close-plain": Situation(
        {"limit": ONE_A_MINUTE, "action": "close"},
        {"mode": "plain", "count": 2, "linger": WAITED_S},
        [SENT] * 2,
        arrived=1,
        closed=WHY_PLAIN,
    ),
    "reject-plain-close": Situation(
        {"limit": ONE_A_MINUTE, "fallback": "close"},
        {"mode": "plain", "count": 2, "linger": WAITED_S},
        [SENT] * 2,
        arrived=1,
        closed=WHY_PLAIN,
    ),
    "close-tx": Situation(
        {"limit": ONE_A_MINUTE, "action": "close"},
        {"mode": "tx", "count": 2, "pause": WAITED_S},
        [WITH_TX] * 2,
        arrived=0,
        commit=CLOSED_COMMIT,
        closed=WHY_COMMIT,
    ),
}  # fmt: skip
TOO_LARGE = (406, "PRECONDITION_FAILED - message size 3 is larger than configured max size 1 of rule too-large")
OF_406 = {"aio-pika": "ChannelPreconditionFailed", "py-amqp": "PreconditionFailed"}  # the others have one name for all codes
SITUATIONS |= {
    "too-large": Situation(
        {"limit": {"messages": "1000/s"}, "max_message_size": "1B"},
        {},
        [CLOSED_PUBLISH | OF_406],
        arrived=0,
        closed=WHY | OF_406,
        refusal=TOO_LARGE,
    ),
    "too-large-plain": Situation(
        {"limit": {"messages": "1000/s"}, "max_message_size": "1B"},
        {"mode": "plain", "linger": WAITED_S},
        [SENT],
        arrived=0,
        closed=WHY_PLAIN | OF_406,
        refusal=TOO_LARGE,
    ),
}
ASKED_AGAIN = 5  # times, at most: see `closed_twice`
CELLS = [
    pytest.param(name, library, id=f"{name}-{library}")
    for name, one in SITUATIONS.items()
    for library in LIBRARIES
    if library in one.seen[0]
]


@pytest.fixture(scope="module")
def gateway(rabbitmq: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A rule for each situation; which one holds is said by the first word of the routing key."""
    rules = [{"name": name, "match": {"protocol": "amqp", "routing_key": f"{name}.*"}, **one.rule} for name, one in SITUATIONS.items()]
    directory = tmp_path_factory.mktemp("actions")
    with Gateway(directory, [amqp_listener(f"127.0.0.1:{rabbitmq.port}")], rules) as running:
        yield running


def check_channel(report: Report, key: str, closed: str | None, refusal: tuple[int, str]) -> None:
    """The limited channel is open, or the application was told how and why it was closed."""
    if closed is None:
        assert report.channel == "open"
        return
    assert report.channel["class"] == closed
    code, text = refusal
    assert report.channel["code"] == (None if closed in WITHOUT_CODE else code)
    if closed not in WITHOUT_TEXT:
        assert text.format(topic=f"%2F/amq.default/{key}") in report.channel["text"]


def check_blocked(report: Report, library: str, key: str, situation: Situation) -> None:
    if not situation.blocked:
        assert (report.blocked, report.unblocked) == ([], 0)
        return
    assert len(report.blocked) == report.unblocked >= 1
    if library != "py-amqp":  # it reads no reason: "connection blocked, see broker logs"
        limit = situation.rule["limit"]["messages"]
        assert report.blocked[0].startswith(f"RATE_LIMITED - %2F/amq.default/{key} is over its limit of {limit} of rule ")


def closed_twice(library: str, report: Report) -> bool:
    """Whether AMQPStorm has sent channel.close behind its own close-ok, as its two threads do now and then where the machine is busy.

    Any broker ends the connection then (504): one of 80 runs beside twelve endless loops.
    """
    return library == "amqpstorm" and "expected 'channel.open'" in str(report.other)


@pytest.mark.parametrize(("name", "library"), CELLS)
def test_the_application_sees_what_the_table_says(
    name: str, library: str, rabbitmq: RabbitMQ, gateway: Gateway, probe: Callable[[str], Probe]
) -> None:
    situation = SITUATIONS[name]
    key = f"{name}.{library}"
    given_up = {"timeout": 2000} if situation.seen[-1].get(library) == "Timeout::Error" else {}
    for _ in range(ASKED_AGAIN):
        with Queue(rabbitmq.url, key) as queue, Queue(rabbitmq.url, f"free.{library}") as free:
            report: Report = probe(library).ask(url=gateway.amqp_url(), key=key, free=free.name, run="m", **situation.order, **given_up)
            arrived = queue.contents()
        if not closed_twice(library, report):
            break
    assert report.refused is None
    assert report.seen == [publish[library] for publish in situation.seen]
    assert arrived == [f"m-{number}" for number in range(situation.arrived)]
    assert [(one["code"], one["key"], one["body"]) for one in report.returns] == [(312, key, f"m-{n}") for n in situation.returned]
    for one in report.returns:
        assert f"RATE_LIMITED - %2F/amq.default/{key} is over its limit" in one["text"]
    assert report.commit == situation.commit.get(library, "")
    check_channel(report, key, situation.closed.get(library), situation.refusal)
    check_blocked(report, library, key, situation)
    assert report.other == "ok", "the connection's other channel was hurt"
