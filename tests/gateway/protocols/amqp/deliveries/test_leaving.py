"""What is not passed on for a client that leaves: what would take more messages, and what goes with it."""

from __future__ import annotations

from pamqp import base, commands

from gateway.pipeline.parts import PLAIN, Part
from gateway.protocols.amqp.conversation import AmqpConversation
from gateway.protocols.amqp.deliveries.leaving import Leaving
from gateway.protocols.amqp.deliveries.subscription import Declared
from support.amqp import frames as amqp
from support.wires.conversations import Talk

TAKES: list[base.Frame] = [
    commands.Basic.Consume(queue="q", consumer_tag="c"), commands.Basic.Get(queue="q"), commands.Basic.Recover(requeue=True),
    commands.Queue.Declare(queue="own", exclusive=True),
    commands.Queue.Declare(queue="any", passive=True), commands.Queue.Purge(queue="own"), commands.Queue.Bind(queue="own", exchange="e"),
]  # fmt: skip
PASSES: list[base.Frame] = [
    commands.Basic.Ack(5), commands.Basic.Cancel("c"), commands.Queue.Declare(queue="any"), commands.Queue.Purge(queue="other"),
    commands.Exchange.Declare(exchange="e"), commands.Tx.Commit(),
]  # fmt: skip


def leaving() -> Leaving:
    """Of a client that is gone, with an exclusive queue."""
    conversation = Talk("amqp").conversation
    assert isinstance(conversation, AmqpConversation)
    found = conversation.deliveries.leaving
    found.exclusive.declare(amqp.method(1, TAKES[3])[11:-1], Declared(b"own"))
    found.exclusive.leave()
    return found


def rest(*said: base.Frame) -> list[str] | None:
    """The methods that are left of these."""
    data = b"".join(amqp.method(1, one) for one in said)
    part = Part(PLAIN, 1, b"before" + data + b"behind", 6, 6 + len(data))
    found = leaving().without_takes(part)
    if found is not None and found.ordering_key == 1 and not [one for one in said if one in TAKES]:
        assert found is part, "as it was"
    return None if found is None else amqp.names(found.data[found.start : found.end])


def test_each_method_is_left_out_or_passes_by_what_it_does() -> None:
    for one in TAKES:
        assert rest(one) is None
    for one in PASSES:
        assert rest(one) == [one.name]


def test_of_many_at_once_those_that_pass_keep_their_order() -> None:
    for one in TAKES:
        assert rest(one, *PASSES) == [each.name for each in PASSES]
        assert rest(*PASSES, one) == [each.name for each in PASSES]
        assert rest(*PASSES, one, one, *PASSES) == [each.name for each in (*PASSES, *PASSES)]
    assert rest(*TAKES) is None
    mixed = [each for pair in zip(TAKES, [*PASSES, *PASSES], strict=False) for each in pair]
    assert rest(*mixed) == [each.name for each in [*PASSES, *PASSES][: len(TAKES)]]


def test_what_the_broker_throws_away_is_no_method() -> None:
    """On a channel that the broker has closed publishes pass as they are, their bodies too."""
    for body in (b"", b"a", b"abc", amqp.method(1, TAKES[1])[7:-1]):
        data = amqp.publish(1, "orders", body)
        part = Part(PLAIN, 1, data, 0, len(data))
        assert leaving().without_takes(part) is part
