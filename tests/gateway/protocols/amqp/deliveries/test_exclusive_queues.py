"""A client's exclusive queues: which they are, and what the broker is told of them when the client has gone."""

from __future__ import annotations

from typing import Any

from pamqp import commands

from gateway.protocols.amqp.channel import AmqpChannel
from gateway.protocols.amqp.channel_states import CLOSE_SENT
from gateway.protocols.amqp.deliveries.exclusive_queues import MAX_ARGUMENT_BYTES, MAX_QUEUES, ExclusiveQueues, is_exclusive, is_passive
from gateway.protocols.amqp.deliveries.subscription import Declared
from gateway.protocols.amqp.frames import CHANNEL_CLOSE, QUEUE_DECLARE_OK, QUEUE_DELETE_OK
from support.amqp import frames as amqp


def declaration(name: str, **fields: Any) -> bytes:
    """The arguments of a queue.declare."""
    return amqp.method(1, commands.Queue.Declare(queue=name, **({"exclusive": True} | fields)))[11:-1]


def queues(*names: str, made: str = "", **fields: Any) -> ExclusiveQueues:
    """A client's that is gone; `made`: the name that the broker has made for one."""
    found = ExclusiveQueues()
    for name in names:
        found.declare(declaration(name, **fields), Declared(name.encode()))
    if made:
        unnamed = Declared(None)
        found.declare(declaration(""), unnamed)
        unnamed.name = made.encode()
    found.leave()
    return found


def said(data: bytes) -> list[tuple[int, str, str]]:
    """Channel, method and queue of each frame."""
    return [(each.channel, each.name, getattr(each.value, "queue", "")) for each in amqp.read(data)]


def test_a_queue_is_exclusive_as_its_declaration_says_unless_it_only_asks() -> None:
    assert is_exclusive(declaration("q"))
    assert is_exclusive(declaration("q", durable=True, auto_delete=True, nowait=True))
    assert not is_exclusive(declaration("q", exclusive=False, durable=True, auto_delete=True, nowait=True))
    asks = declaration("q", passive=True)
    assert (is_exclusive(asks), is_passive(asks), is_passive(declaration("q"))) == (False, True, False)
    cut = declaration("q")[:4]
    assert (is_exclusive(cut), is_passive(cut)) == (False, False)


def test_each_is_declared_once_more_and_deleted_on_a_channel_that_the_client_does_not_use() -> None:
    """One whose name the broker has made cannot be declared, and is nobody else's."""
    found = queues("a", "b", made="amq.gen-1", nowait=True)
    channels = {number: AmqpChannel(number) for number in (1, 8, 9)}
    found.begin(channels, 9)
    assert (found.channel, channels[7].gateway_close) == (channels[7], CLOSE_SENT)
    assert found.waiting()
    sent = found.take_words()
    assert said(sent) == [
        (7, "Channel.Open", ""), (7, "Queue.Delete", "amq.gen-1"), (7, "Queue.Declare", "a"), (7, "Queue.Delete", "a"),
        (7, "Queue.Declare", "b"), (7, "Queue.Delete", "b"),
    ]  # fmt: skip
    declared = amqp.read(sent)[2].value
    assert (declared.exclusive, declared.nowait) == (True, False), "as the client did, but that it is answered"
    deleted = amqp.read(sent)[1].value
    assert (deleted.if_unused, deleted.if_empty, deleted.nowait) == (False, False, False)
    assert not found.waiting()
    assert found.take_words() == b""


def test_what_is_somebody_elses_by_now_is_left_and_the_others_are_asked_for_anew() -> None:
    found = queues("a", "b", "c")
    found.begin({}, 3)
    found.take_words()
    for method in (QUEUE_DECLARE_OK, QUEUE_DELETE_OK, CHANNEL_CLOSE):
        assert not found.waiting()
        found.hear(method)
    assert found.waiting()
    assert said(found.take_words()) == [
        (3, "Channel.CloseOk", ""), (3, "Channel.Open", ""), (3, "Queue.Declare", "c"), (3, "Queue.Delete", "c")
    ]  # fmt: skip
    found.hear(CHANNEL_CLOSE)
    assert found.waiting()
    assert said(found.take_words()) == [(3, "Channel.CloseOk", "")]
    assert not found.waiting()


def test_with_no_channel_free_or_nothing_to_delete_nothing_is_said() -> None:
    for found, channels in ((queues("a"), {1: AmqpChannel(1), 2: AmqpChannel(2)}), (queues(), {})):
        found.begin(channels, 2)
        assert (found.channel, found.waiting(), found.take_words()) == (None, False, b"")


def test_as_many_as_are_remembered_and_no_longer_declarations() -> None:
    found = queues(*(f"q{number}" for number in range(MAX_QUEUES - 1)), made="amq.gen-1")
    found.declare(declaration("more"), Declared(b"more"))
    found.leave()
    assert len(found.gone) == MAX_QUEUES
    assert b"more" not in found.gone
    fits = declaration("fits", arguments={"x": "y" * (MAX_ARGUMENT_BYTES - len(declaration("fits", arguments={"x": ""})))})
    assert len(fits) == MAX_ARGUMENT_BYTES
    other = ExclusiveQueues()
    other.declare(fits, Declared(b"fits"))
    other.declare(declaration("longer", arguments={"x": "y" * MAX_ARGUMENT_BYTES}), Declared(b"longer"))
    other.declare(declaration("shared", exclusive=False), Declared(b"shared"))
    other.leave()
    assert other.gone == {b"fits"}


def test_what_still_waits_for_one_of_them_goes_nowhere() -> None:
    found = queues("a", made="amq.gen-1")
    for name, gone in (("a", True), ("amq.gen-1", True), ("b", False), ("", True)):
        purge = amqp.method(1, commands.Queue.Purge(queue=name))[11:-1]
        assert found.takes(purge, None) == gone, "no name stands for the last one that was declared"
    unnamed = amqp.method(1, commands.Queue.Bind(queue="", exchange="e"))[11:-1]
    assert not queues().takes(unnamed, None)
    for last, gone in (("a", True), ("amq.gen-1", True), ("b", False)):
        assert found.takes(unnamed, Declared(last.encode())) == gone
    unanswered = ExclusiveQueues()
    last_declared = Declared(None)
    unanswered.declare(declaration(""), last_declared)
    unanswered.leave()
    assert unanswered.takes(unnamed, last_declared), "its declaration was not passed on, either"
    assert not found.takes(unnamed, Declared(None)), "one that is not exclusive has its name from the broker later"
    for data, gone in (
        (amqp.publish(1, "a"), True), (amqp.publish(1, "amq.gen-1"), True), (amqp.publish(1, "b"), False), (amqp.publish(1, ""), False),
        (amqp.publish(1, "a", exchange="e"), False),
    ):  # fmt: skip
        assert found.takes_publish(b"before" + data, 6) == gone


def test_a_name_that_is_declared_again_as_another_queue_is_none_of_them() -> None:
    found = ExclusiveQueues()
    found.declare(declaration("q"), Declared(b"q"))
    found.declare(declaration("q", passive=True, exclusive=False), Declared(b"q"))
    assert list(found.declared) == [b"q"]
    found.declare(declaration("q", exclusive=False, durable=True), Declared(b"q"))
    found.leave()
    assert found.gone == set()
