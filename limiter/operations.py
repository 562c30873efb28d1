"""Operations: what is done with the messages of a topic, one record each. From these follow the words of `match.operation`, the paths of
live changes, and what `sluice why`, alerts and the advice for clients say.

The nightly job imports this module, so it uses the standard library only, holds plain values and is never compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PRODUCE: Final = "produce"
CONSUME: Final = "consume"
REQUEUE: Final = "requeue"
DECLARE: Final = "declare"
BIND: Final = "bind"
DELETE: Final = "delete"
PURGE: Final = "purge"
OPEN: Final = "open"
GET: Final = "get"
CONNECT: Final = "connect"
QUERY: Final = "query"
ADMIN: Final = "admin"

BOTH: Final = ("amqp", "rocketmq")
IN_AMQP: Final = ("amqp",)
IN_ROCKETMQ: Final = ("rocketmq",)
ITS_CHANNEL: Final = ", and its channel with it"
AT_MOST: Final = " for up to 2.5s; then it is refused"
IN_EITHER: Final = " (AMQP: its channel with it; RocketMQ: up to 2.5s, then it is refused)"
LATE: Final = "answers come late"
MAY_FAIL: Final = "answers come late, and RocketMQ's clients are told of what would come too late"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation."""

    name: str
    what: str  # is limited, in a sentence
    held: bool = True  # over the limit it waits, whatever the action, and is never refused
    whose: str = ""  # what stands before whose limit it is
    waits: str = ""  # what becomes of what is over the limit
    passes: str = ""  # what stands behind the rate that passes
    remedy: str = ""  # what an application can do
    not_of: str = ""  # a key that it does not have: what to say instead
    methods: tuple[str, ...] = ()  # of AMQP 0-9-1: what it stands for, where that is no message
    protocols: tuple[str, ...] = BOTH  # that have it


OPERATION_RECORDS: Final[Mapping[str, Operation]] = {
    record.name: record
    for record in (
        Operation(
            PRODUCE, "what is published", held=False,
            not_of="a queue is published to through an exchange; say amqp VHOST amq.default QUEUE for the default one",
        ),
        Operation(
            CONSUME, "what consumers get", whose="to consumers, ", waits="deliveries wait for their turn",
            passes="is delivered; what the broker has more waits for its turn",
            remedy="Nothing is lost; consumers that need more have to ask for more.",
            not_of="a delivery is known by its queue, wherever it was published; say queue VHOST QUEUE",
        ),
        Operation(
            REQUEUE, "what consumers give back", whose="given back by consumers, ",
            waits="what is given back waits for its turn (AMQP: in the consumer's prefetch; RocketMQ: up to 2.5s, then it is refused)",
            passes="goes back; what is over the limit waits for its turn",
            remedy="Nothing is lost. See why consumers fail on these messages: what they give back comes again at once.",
            not_of="what is given back goes to the queue that it came from, wherever it was published; say queue VHOST QUEUE (RocketMQ: "
            "group GROUP)",
        ),
        *(
            Operation(
                name, f"what clients {does}", whose=f"{name}, ", waits=f"its client waits for the answer{where}",
                passes="passes; the rest waits for its turn", remedy=f"Nothing is lost: {late}. Say it once.",
                not_of=f"it is limited by rules: sluice rules add NAME --match operation={name} --per client --messages 10/s",
                methods=methods, protocols=protocols,
            )
            for name, does, methods, protocols, where, late in (
                (DECLARE, "declare", ("queue.declare", "exchange.declare"), BOTH, IN_EITHER, MAY_FAIL),
                (BIND, "bind and unbind", ("queue.bind", "queue.unbind", "exchange.bind", "exchange.unbind"), IN_AMQP, ITS_CHANNEL, LATE),
                (DELETE, "delete", ("queue.delete", "exchange.delete"), BOTH, IN_EITHER, MAY_FAIL),
                (PURGE, "purge", ("queue.purge",), IN_AMQP, ITS_CHANNEL, LATE),
                (OPEN, "open", ("channel.open",), IN_AMQP, ITS_CHANNEL, LATE),
                (GET, "fetch from empty queues", ("basic.get",), IN_AMQP, ITS_CHANNEL, LATE),
                (QUERY, "look up", (), IN_ROCKETMQ, AT_MOST, MAY_FAIL),
                (ADMIN, "command as operators", (), IN_ROCKETMQ, AT_MOST, MAY_FAIL),
            )
        ),
        Operation(
            CONNECT, "who connects", held=False, whose="connections, ", methods=("connection.open",),
            not_of="it is limited by rules: sluice rules add NAME --match operation=connect --per user --messages 5/s",
            protocols=IN_AMQP,
        ),
    )
}  # fmt: skip
OF_TOPICS: Final = (PRODUCE, CONSUME, REQUEUE)  # what is done with the messages of one topic; the others are of no topic
WITH_BODIES: Final = (PRODUCE, CONSUME)  # what has a size, and a place in the access log
OPERATIONS: Final = tuple(OPERATION_RECORDS)
HELD_OPERATIONS: Final = frozenset(record.name for record in OPERATION_RECORDS.values() if record.held)
WAITING: Final = HELD_OPERATIONS - {CONSUME}  # which clients ask for themselves: over the limit the asking waits
