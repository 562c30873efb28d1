"""Whose a delivery is: consumer tags, gets and their answers, laid beside each other as a real broker gives them."""

from __future__ import annotations

import pytest
from pamqp import base, commands
from pamqp.common import FieldTable

from gateway.protocols.amqp.deliveries import consumers
from support.amqp import frames as amqp
from support.cases import in_one_loop
from support.wires.conversations import Talk, bytewise

CONSUME = commands.Basic.Consume
CONSUMED = commands.Basic.ConsumeOk


def talking() -> Talk:
    talk = Talk("amqp")
    talk.client(amqp.greeting(channels=(1, 2)))
    talk.broker(amqp.broker_opens())
    talk.to_client = b""
    return talk


def asks(talk: Talk, *said: base.Frame, channel: int = 1) -> None:
    talk.client(b"".join(amqp.method(channel, one) for one in said))


def answers(talk: Talk, *said: base.Frame, channel: int = 1) -> None:
    talk.broker(b"".join(amqp.method(channel, one) for one in said))


def delivered(talk: Talk, tag: str = "c", *, channel: int = 1, size: int = 5) -> dict[str, tuple[int, int, int]]:
    """What one delivery for `tag` is counted under: (received, forwarded, bytes) by topic."""
    talk.conversation.reports.delivered = []
    delivery = amqp.deliver(channel, b"x" * size, consumer_tag=tag)
    before = len(talk.to_client)
    talk.broker(delivery)
    assert talk.to_client[before:] == delivery
    return counted(talk)


def counted(talk: Talk) -> dict[str, tuple[int, int, int]]:
    for one in talk.conversation.reports.delivered:
        assert one.key.operation == "consume"
    return {one.key.text: (one.received, one.forwarded, one.size) for one in talk.conversation.reports.delivered}


def jobs(size: int = 5) -> dict[str, tuple[int, int, int]]:
    return {"%2F/amq.default/jobs": (1, 1, size)}


def test_a_delivery_is_its_queues_wherever_it_was_published() -> None:
    talk = talking()
    asks(talk, CONSUME(queue="jobs", consumer_tag="c"))
    answers(talk, CONSUMED("c"))
    assert delivered(talk, size=7) == jobs(7)
    assert delivered(talk, size=0) == jobs(0)


def test_it_does_not_matter_how_the_bytes_are_cut() -> None:
    talk = talking()
    asked = amqp.method(1, CONSUME(queue="jobs", consumer_tag="c"))
    talk.client(asked, bytewise(asked))
    said = amqp.method(1, CONSUMED("c")) + amqp.deliver(1, b"hello", consumer_tag="c") * 3
    talk.broker(said, bytewise(said))
    assert counted(talk) == {"%2F/amq.default/jobs": (3, 3, 15)}
    assert talk.to_client == said


def test_tags_the_broker_makes_come_in_the_order_asked_for() -> None:
    talk = talking()
    asks(talk, CONSUME(queue="a"), CONSUME(queue="b", consumer_tag="mine"), CONSUME(queue="c"))
    answers(talk, CONSUMED("amq.ctag-1"), CONSUMED("mine"), CONSUMED("amq.ctag-2"))
    assert [list(delivered(talk, tag)) for tag in ("amq.ctag-1", "mine", "amq.ctag-2")] == [
        ["%2F/amq.default/a"], ["%2F/amq.default/b"], ["%2F/amq.default/c"],
    ]  # fmt: skip


def test_without_an_answer_a_tag_holds_at_once() -> None:
    talk = talking()
    asks(talk, CONSUME(queue="jobs", consumer_tag="c", nowait=True))
    assert delivered(talk) == jobs()


def test_the_same_tag_on_two_channels_is_two_consumers() -> None:
    talk = talking()
    asks(talk, CONSUME(queue="a", consumer_tag="c", nowait=True))
    asks(talk, CONSUME(queue="b", consumer_tag="c", nowait=True), channel=2)
    assert list(delivered(talk)) == ["%2F/amq.default/a"]
    assert list(delivered(talk, channel=2)) == ["%2F/amq.default/b"]


@pytest.mark.parametrize("made", ["named", "by the broker", "passively", "without an answer"])
def test_an_empty_name_is_the_queue_declared_last_on_that_channel(made: str) -> None:
    talk = talking()
    asks(talk, commands.Queue.Declare(queue="other"))
    answers(talk, commands.Queue.DeclareOk("other", 0, 0))
    asks(
        talk,
        commands.Queue.Declare(
            queue="" if made == "by the broker" else "jobs", passive=made == "passively", nowait=made == "without an answer"
        ),
        CONSUME(queue="", consumer_tag="c"),
        commands.Queue.Declare(queue="later"),
    )
    if made != "without an answer":
        answers(talk, commands.Queue.DeclareOk("jobs", 0, 0))
    answers(talk, commands.Queue.DeclareOk("later", 0, 0), CONSUMED("c"))  # RabbitMQ's consume-ok takes the way round by the queue
    assert delivered(talk) == jobs()


def test_an_empty_name_without_any_declared_queue_has_no_consumer() -> None:
    talk = talking()
    asks(talk, CONSUME(queue="", consumer_tag="c"))
    answers(talk, CONSUMED("c"))
    assert delivered(talk) == {}


def test_gets_are_answered_in_order() -> None:
    talk = talking()
    asks(talk, *(commands.Basic.Get(queue=name) for name in ("a", "b", "c")))
    answer = amqp.method(1, commands.Basic.GetOk(1, exchange="x", routing_key="y", message_count=0)) + amqp.content(1, b"hello")
    talk.broker(answer + amqp.method(1, commands.Basic.GetEmpty()) + answer)
    assert counted(talk) == {"%2F/amq.default/a": (1, 1, 5), "%2F/amq.default/c": (1, 1, 5)}


def test_a_get_overtakes_the_answer_to_a_consume() -> None:
    talk = talking()
    asks(talk, CONSUME(queue="a", consumer_tag="c"), commands.Basic.Get(queue="b"))
    talk.broker(amqp.method(1, commands.Basic.GetOk(1, exchange="x", routing_key="y", message_count=0)) + amqp.content(1, b"hello"))
    answers(talk, CONSUMED("c"))
    assert counted(talk) == {"%2F/amq.default/b": (1, 1, 5)}
    assert list(delivered(talk)) == ["%2F/amq.default/a"]


def test_until_cancel_ok_deliveries_still_come() -> None:
    talk = talking()
    asks(talk, CONSUME(queue="jobs", consumer_tag="c", nowait=True), commands.Basic.Cancel("c"))
    assert delivered(talk) == jobs()
    answers(talk, commands.Basic.CancelOk("c"))
    assert delivered(talk) == {}


def test_the_broker_cancels_when_the_queue_is_deleted() -> None:
    talk = talking()
    asks(talk, CONSUME(queue="jobs", consumer_tag="c", nowait=True))
    answers(talk, commands.Basic.Cancel("c", nowait=True))
    assert delivered(talk) == {}


def test_tags_cancelled_without_an_answer_are_kept_for_a_while() -> None:
    talk = talking()
    for number in range(consumers.MAX_CANCELLED_TAGS + 1):
        asks(talk, CONSUME(queue="jobs", consumer_tag=f"c{number}", nowait=True), commands.Basic.Cancel(f"c{number}", nowait=True))
    assert delivered(talk, "c0") == {}
    assert delivered(talk, "c1") == jobs()


def test_a_closed_channel_is_forgotten_but_not_what_was_asked_for_after_it() -> None:
    talk = talking()
    asks(talk, CONSUME(queue="old", consumer_tag="c", nowait=True), CONSUME(queue="old"), commands.Channel.Close(200, "", 0, 0))
    asks(talk, commands.Channel.Open(), CONSUME(queue="jobs"))
    answers(talk, CONSUMED("amq.1"), commands.Channel.CloseOk())
    assert delivered(talk) == {}
    answers(talk, commands.Channel.OpenOk(), CONSUMED("amq.2"))
    assert delivered(talk, "amq.2") == jobs()
    assert delivered(talk, "amq.1") == {}


def test_a_channel_the_broker_closes_is_forgotten() -> None:
    talk = talking()
    asks(talk, CONSUME(queue="jobs", consumer_tag="c", nowait=True), CONSUME(queue="nowhere"), commands.Queue.Declare(queue="q"))
    answers(talk, commands.Channel.Close(404, "NOT_FOUND", 60, 20))
    asks(talk, commands.Channel.CloseOk(), commands.Channel.Open(), CONSUME(queue=""))
    answers(talk, commands.Channel.OpenOk(), CONSUMED("amq.1"))
    assert delivered(talk) == {}
    assert delivered(talk, "amq.1") == {}
    assert talk.conversation.describe()["consumers"] == 0


def test_names_need_not_be_utf_8() -> None:
    talk = talking()
    arguments = b"\0\0" + b"\x02q\xff" + b"\x02\xfe/" + b"\x08" + b"\0\0\0\0"
    talk.client(amqp.raw_frame(1, 1, b"\x00\x3c\x00\x14" + arguments))
    delivery = amqp.raw_frame(1, 1, b"\x00\x3c\x00\x3c" + b"\x02\xfe/" + bytes(8) + b"\0" + b"\x01x" + b"\x01y") + amqp.content(1, b"hello")
    talk.broker(delivery)
    assert counted(talk) == {"%2F/amq.default/q%FF": (1, 1, 5)}


@in_one_loop
@pytest.mark.parametrize("method", [b"\x00\x3c\x00\x14", b"\x00\x3c\x00\x46", b"\x00\x3c\x00\x1e", b"\x00\x32\x00\x0a"])
@pytest.mark.parametrize("arguments", [b"", b"\0\0", b"\0\0\xff", b"\0\0\x05ab", b"\0\0\x01a\xff"])
def test_arguments_that_do_not_parse_are_the_brokers_to_judge(method: bytes, arguments: bytes) -> None:
    talk = talking()
    asked = amqp.raw_frame(1, 1, method + arguments)
    talk.client(asked)
    assert talk.to_broker.endswith(asked)
    answers(talk, CONSUMED("c"), commands.Queue.DeclareOk("q", 0, 0), commands.Basic.CancelOk("c"), commands.Basic.GetEmpty())
    delivered(talk)


def test_answers_nobody_asked_for_do_no_harm() -> None:
    talk = talking()
    answers(talk, CONSUMED("c"), commands.Basic.GetEmpty(), commands.Queue.DeclareOk("q", 0, 0), commands.Basic.CancelOk("c"))
    talk.broker(amqp.method(1, commands.Basic.GetOk(1, exchange="x", routing_key="y", message_count=0)) + amqp.content(1, b"hello"))
    assert delivered(talk) == {}


def test_remembered_consumers_are_bounded_and_answers_stay_in_step() -> None:
    """Beyond the bound a consumer is not known; those asked for before and after it still are."""
    talk = talking()
    known = talk.conversation.deliveries.consumers  # type: ignore[attr-defined]
    known.max_kept = 3
    asks(talk, *(CONSUME(queue=name) for name in "abcde"))
    answers(talk, *(CONSUMED(f"t{name}") for name in "ab"))
    asks(talk, commands.Basic.Cancel("ta"), CONSUME(queue="f"))
    answers(talk, commands.Basic.CancelOk("ta"), *(CONSUMED(f"t{name}") for name in "cdef"))
    found = {name: delivered(talk, f"t{name}") for name in "abcdef"}
    assert [name for name, seen in found.items() if seen] == ["b", "c"]
    for _ in range(50):
        asks(talk, commands.Channel.Close(200, "", 0, 0), commands.Channel.Open(), *(CONSUME(queue=name) for name in "abcde"))
    assert known.kept <= 3 + 3


def test_the_arguments_of_what_is_not_answered_yet_count_for_what_is_remembered() -> None:
    """A client may ask with 100 kB each, of a broker that does not answer: of so many only few are remembered."""
    talk = talking()
    known = talk.conversation.deliveries.consumers  # type: ignore[attr-defined]
    large: FieldTable = {"x": "y" * 100_000}
    for number in range(200):
        asks(talk, CONSUME(queue="jobs", consumer_tag=f"c{number}", arguments=large))
    assert known.kept <= known.max_kept + 100
    kept = len(known.channels[1].consumes.kept)
    assert kept < 200
    answers(talk, *[CONSUMED(f"c{number}") for number in range(kept)])
    assert known.kept == kept * 98, "as many as it has, now that they are answered"
