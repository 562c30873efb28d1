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
            waits="what is given back waits for its turn, in its place in the consumer's prefetch",
            passes="goes back to its queue; what is over the limit waits for its turn",
            remedy="Nothing is lost. See why consumers fail on these messages: what they give back comes again at once.",
            not_of="what is given back goes to the queue that it came from, wherever it was published; say queue VHOST QUEUE",
        ),
        *(
            Operation(
                name, f"what clients {does}", whose=f"{name}, ", waits="its client waits for the answer, and its channel with it",
                passes="passes; the rest waits for its turn", remedy="Nothing is lost or refused: its answers come late. Say it once.",
                not_of=f"it is limited by rules: sluice rules add NAME --match operation={name} --per client --messages 10/s",
                methods=methods,
            )
            for name, does, methods in (
                (DECLARE, "declare", ("queue.declare", "exchange.declare")),
                (BIND, "bind and unbind", ("queue.bind", "queue.unbind", "exchange.bind", "exchange.unbind")),
                (DELETE, "delete", ("queue.delete", "exchange.delete")),
                (PURGE, "purge", ("queue.purge",)),
                (OPEN, "open", ("channel.open",)),
            )
        ),
    )
}  # fmt: skip
OF_TOPICS: Final = (PRODUCE, CONSUME, REQUEUE)  # what is done with the messages of one topic; the others are of no topic
WITH_BODIES: Final = (PRODUCE, CONSUME)  # what has a size, and a place in the access log
OPERATIONS: Final = tuple(OPERATION_RECORDS)
HELD_OPERATIONS: Final = frozenset(record.name for record in OPERATION_RECORDS.values() if record.held)
