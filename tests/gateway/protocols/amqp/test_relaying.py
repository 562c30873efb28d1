"""The broker's stream: untouched, unless a confirm has to be translated; the gateway's own words never in the middle of anything."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.amqp.conversation import AmqpConversation
from limiter.rules.rule import Rule
from support.amqp import frames as amqp
from support.cases import in_one_loop
from support.wires.conversations import MAX_FRAME, Talk, bytewise, randomly, rule, say_close

MIB = 1 << 20


def talking(*rules: Rule, confirms: tuple[int, ...] = (1, 2), **greeting: Any) -> Talk:
    talk = Talk("amqp", *rules)
    talk.client(amqp.greeting(channels=(1, 2, 3), confirms=confirms, **greeting))
    talk.broker(amqp.broker_opens())
    talk.broker(amqp.opened(1, 2, 3))
    talk.to_broker = talk.to_client = b""
    return talk


BROKER_SAYS = (
    amqp.HEARTBEAT,
    amqp.method(1, commands.Confirm.SelectOk()),
    amqp.deliver(3, b""),
    amqp.deliver(3, b"x" * 300, cut=100),
    amqp.deliver(2, b"\xce" * 9000, cut=5000),
    amqp.method(0, commands.Connection.Blocked("low on memory")),
    amqp.method(0, commands.Connection.Unblocked()),
    amqp.method(3, commands.Queue.DeclareOk("q", 0, 0)),
    amqp.method(1, commands.Basic.Return(312, "NO_ROUTE", "", "orders")) + amqp.content(1, b"hello"),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(BROKER_SAYS), max_size=8), st.integers(0, 1000))
def test_everything_passes_byte_for_byte_however_it_is_cut(said: list[bytes], seed: int) -> None:
    data = b"".join([*said, amqp.ack(1, 1), amqp.ack(1, 3, multiple=True), amqp.nack(1, 4)])
    for chunks in ([data], randomly(data, seed)):
        talk = talking()
        talk.client(amqp.publish(1, "orders") * 4)
        talk.broker(data, chunks)
        assert talk.to_client == data


def test_a_read_that_passes_untouched_is_not_copied() -> None:
    talk = talking()
    data = amqp.deliver(3, b"x" * 3000)
    out: list[bytes] = []
    talk.conversation.relay(data, out)
    assert len(out) == 1
    assert out[0] is data


def test_bodies_flow_through_without_being_collected() -> None:
    talk = talking()
    data = amqp.deliver(3, b"x" * 100_000)
    talk.broker(data[:5000])
    assert talk.to_client == data[:5000]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("said", [commands.Basic.Deliver("c", 1, False, "", "q"), commands.Basic.GetOk(1, False, "", "q", 0)])
def test_headers_that_grew_above_frame_max_pass(said: Any, chunked: bool) -> None:
    talk = talking(frame_max=4096)
    data = amqp.method(3, said) + amqp.grown_header(3, 131_200, b"body") + amqp.ack(3, 1)
    talk.broker(data, randomly(data, seed=3) if chunked else None)
    assert talk.to_client == data


def test_headers_above_max_frame_are_the_brokers_fault() -> None:
    talk = talking(frame_max=4096)
    talk.broker(amqp.method(3, commands.Basic.Deliver("c", 1, False, "", "q")))
    with pytest.raises(ProtocolError, match=f"a frame of {MAX_FRAME + 1} bytes, at most {MAX_FRAME} are taken"):
        talk.broker(b"\x02\x00\x03" + (MAX_FRAME + 1).to_bytes(4, "big"))


def test_acks_are_translated_from_the_first_refusal_on() -> None:
    talk = talking(rule(messages=2, burst=2))
    talk.client(amqp.publish(1, "orders") * 4)
    assert amqp.confirms(talk.to_client) == [amqp.Confirm(1, False, 3, False), amqp.Confirm(1, False, 4, False)]
    talk.to_client = b""
    talk.client(amqp.publish(1, "bills") * 2)
    acks = amqp.ack(1, 4, multiple=True)
    talk.broker(amqp.HEARTBEAT + acks + amqp.HEARTBEAT, bytewise(amqp.HEARTBEAT + acks + amqp.HEARTBEAT))
    assert amqp.names(talk.to_client) == ["Heartbeat", "Basic.Ack", "Basic.Ack", "Heartbeat"]
    assert amqp.confirms(talk.to_client) == [amqp.Confirm(1, True, 2, True), amqp.Confirm(1, True, 6, True)]
    assert talk.conversation.settled()


def test_channels_without_confirms_and_acks_of_others_are_left_alone() -> None:
    talk = talking(rule(messages=1, burst=1), confirms=(1,))
    talk.client(amqp.publish(1, "orders") * 2)
    talk.to_client = b""
    talk.broker(amqp.ack(3, 77))
    assert talk.to_client == amqp.ack(3, 77)


@in_one_loop
@pytest.mark.parametrize("cut_at", range(0, 130, 7))
def test_a_nack_waits_for_the_end_of_a_delivery_on_its_own_channel(cut_at: int) -> None:
    delivery = amqp.deliver(1, b"x" * 60, cut=20)
    assert len(delivery) > 130
    talk = talking(rule(messages=1, burst=1))
    talk.broker(delivery[:cut_at])
    talk.client(amqp.publish(1, "orders") * 2)
    talk.broker(delivery[cut_at:])
    answer = amqp.nack(1, 2)
    first_frame = len(amqp.read(delivery)[0].raw)
    # an incomplete method is kept back, so that the gateway may still speak before it
    assert talk.to_client == (answer + delivery if cut_at < first_frame else delivery + answer)


def test_a_nack_passes_between_the_frames_of_another_channels_delivery() -> None:
    talk = talking(rule(messages=1, burst=1))
    delivery = amqp.read(amqp.deliver(3, b"x" * 60, cut=20))
    talk.broker(b"".join(frame.raw for frame in delivery[:3]) + delivery[3].raw[:10])
    talk.client(amqp.publish(1, "orders") * 2)
    assert amqp.confirms(b"".join(frame.raw for frame in delivery[:3])) == []
    talk.broker(delivery[3].raw[10:] + delivery[4].raw)
    assert [(frame.channel, frame.name) for frame in amqp.read(talk.to_client)] == [
        (3, "Basic.Deliver"), (3, "ContentHeader"), (3, "ContentBody"), (3, "ContentBody"), (1, "Basic.Nack"), (3, "ContentBody"),
    ]  # fmt: skip


def test_a_nack_comes_before_the_acks_of_later_publishes() -> None:
    talk = talking(rule(messages=1, burst=1))
    delivery = amqp.deliver(1, b"x" * 60)
    talk.broker(delivery[:-30])
    talk.client(amqp.publish(1, "orders") * 2 + amqp.publish(1, "bills"))
    talk.broker(delivery[-30:] + amqp.ack(1, 2, multiple=True))
    assert amqp.confirms(talk.to_client) == [
        amqp.Confirm(1, False, 2, False),
        amqp.Confirm(1, True, 1, False),
        amqp.Confirm(1, True, 3, False),
    ]


def test_a_flood_of_translated_acks_leaves_in_few_pieces() -> None:
    talk = talking(rule(messages=1000, burst=1000))
    talk.client(amqp.publish(1, "orders") * 1001 + amqp.publish(1, "bills") * 500)
    talk.to_client = b""
    acks = b"".join(amqp.ack(1, tag) for tag in range(1, 1501))
    out: list[bytes] = []
    talk.conversation.relay(acks, out)
    assert len(out) < 20
    assert [confirm.tag for confirm in amqp.confirms(b"".join(out))] == [*range(1, 1001), *range(1002, 1502)]


def test_blocked_is_passed_on_and_shown() -> None:
    talk = talking()
    talk.broker(amqp.method(0, commands.Connection.Blocked("low on memory")))
    assert talk.conversation.reports.broker_blocked is True
    talk.broker(amqp.method(0, commands.Connection.Unblocked()))
    assert talk.conversation.reports.broker_blocked is False


# ---- closing ---------------------------------------------------------------------------------------------------------


def test_a_channel_used_again_counts_from_one() -> None:
    talk = talking(rule(messages=1, burst=1))
    talk.client(amqp.publish(1, "orders") * 2 + amqp.method(1, commands.Channel.Close(200, "bye", 0, 0)))
    talk.broker(amqp.ack(1, 1) + amqp.method(1, commands.Channel.CloseOk()))
    talk.to_client = b""
    talk.client(amqp.method(1, commands.Channel.Open()) + amqp.method(1, commands.Confirm.Select(nowait=True)) + amqp.publish(1, "bills"))
    talk.broker(amqp.ack(1, 1))
    assert amqp.confirms(talk.to_client) == [amqp.Confirm(1, True, 1, False)]
    assert talk.conversation.settled()


def test_channels_that_were_closed_are_forgotten() -> None:
    talk = talking(confirms=())
    for channel in (1, 2):
        talk.client(amqp.method(channel, commands.Channel.Close(200, "bye", 0, 0)))
        talk.broker(amqp.method(channel, commands.Channel.CloseOk()))
    talk.broker(amqp.method(3, commands.Channel.Close(404, "NOT_FOUND", 60, 40)))
    assert talk.conversation.describe()["channels"] == 1
    talk.client(amqp.method(3, commands.Channel.CloseOk()))
    assert talk.conversation.describe()["channels"] == 0
    assert isinstance(talk.conversation, AmqpConversation)
    assert talk.conversation.channels == {}


def test_nothing_is_sent_on_a_channel_the_broker_has_closed() -> None:
    talk = talking(rule(messages=1, burst=1))
    large = amqp.publish(1, "orders", b"x" * 10_000)
    talk.client(amqp.publish(1, "orders") + large[:5000])
    talk.broker(amqp.method(1, commands.Channel.Close(406, "PRECONDITION_FAILED", 60, 40)))
    talk.to_client = b""
    talk.client(large[5000:] + amqp.publish(1, "orders") + amqp.method(1, commands.Channel.CloseOk()))
    assert talk.to_client == b""


def test_after_the_brokers_connection_close_only_the_answer_matters() -> None:
    talk = talking(rule(messages=1, burst=1), confirms=(1,))
    talk.client(amqp.publish(3, "orders") * 3)
    assert talk.conversation.budget.held_messages == 2
    close = amqp.method(0, commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0))
    talk.broker(close)
    assert (talk.to_client, talk.holds_nothing()) == (close, True)
    assert [part.count for part in talk.conversation.reports.abandoned] == [2]
    talk.to_broker = b""
    rest = amqp.publish(3, "orders") * 2 + amqp.method(0, commands.Connection.CloseOk())
    talk.client(rest)
    assert talk.to_broker == rest
    assert say_close(talk.conversation, "shutdown")[1] == b""


def test_close_frames_are_for_both_sides() -> None:
    talk = talking(rule(messages=1, burst=1))
    to_client, to_broker = say_close(talk.conversation, "the gateway shuts down")
    for data, code, text in ((to_client, 320, "CONNECTION_FORCED - the gateway shuts down"), (to_broker, 200, "the gateway shuts down")):
        [frame] = amqp.read(data)
        assert isinstance(frame.value, commands.Connection.Close)
        assert (frame.value.reply_code, frame.value.reply_text) == (code, text)
    assert talk.conversation.draining
    talk.broker(amqp.method(0, commands.Connection.CloseOk()) + amqp.ack(1, 1))
    assert talk.to_client == b""
    assert talk.conversation.heartbeat() == b""


def test_before_the_handshake_there_are_no_close_frames() -> None:
    assert say_close(Talk("amqp").conversation, "shutdown") == (b"", b"")


def test_within_frames_there_are_no_close_frames() -> None:
    talk = talking(frame_max=0)
    talk.broker(amqp.deliver(3, b"x" * 5000)[:-100])
    talk.client(amqp.publish(3, "orders", b"x" * MIB, cut=MIB)[:-100])
    assert say_close(talk.conversation, "shutdown") == (b"", b"")


# ---- behind the broker's answers -----------------------------------------------------------------------------------------


def pipelining(*rules: Rule) -> Talk:
    """A client let in, without a channel so far."""
    talk = Talk("amqp", *rules)
    talk.client(amqp.greeting())
    talk.broker(amqp.broker_opens())
    talk.to_broker = talk.to_client = b""
    return talk


OPENS = amqp.method(1, commands.Channel.Open())
SELECTS = amqp.method(1, commands.Confirm.Select())
OPENED = amqp.method(1, commands.Channel.OpenOk())
SELECTED = amqp.method(1, commands.Confirm.SelectOk())


@pytest.mark.parametrize("bytes_at_once", [1, 5, 1000])
def test_a_refusal_comes_behind_the_answers_to_open_and_select_where_all_was_sent_in_one_write(bytes_at_once: int) -> None:
    talk = pipelining(rule(messages=1, burst=1))
    returned = amqp.publish(1, "orders", mandatory=True)
    talk.client(OPENS + SELECTS + amqp.publish(1, "orders") + returned + amqp.publish(1, "orders"))
    assert talk.to_client == b""
    answers = OPENED + SELECTED + amqp.ack(1, 1)
    talk.broker(answers, [answers[at : at + bytes_at_once] for at in range(0, len(answers), bytes_at_once)])
    names = ["Channel.OpenOk", "Confirm.SelectOk", "Basic.Return", "ContentHeader", "ContentBody", "Basic.Nack", "Basic.Nack", "Basic.Ack"]
    assert amqp.names(talk.to_client) == names
    assert not talk.conversation.budget.reply_bytes


def test_a_select_without_an_answer_is_not_waited_for_and_other_channels_do_not_wait() -> None:
    talk = pipelining(rule(messages=1, burst=1))
    talk.client(OPENS + amqp.method(1, commands.Confirm.Select(nowait=True)) + amqp.publish(1, "orders") * 2)
    talk.client(amqp.method(2, commands.Channel.Open()) + amqp.method(2, commands.Confirm.Select()) + amqp.publish(2, "orders"))
    talk.broker(OPENED)
    assert talk.to_client == OPENED + amqp.nack(1, 2)
    talk.broker(amqp.opened(2))
    assert talk.to_client == OPENED + amqp.nack(1, 2) + amqp.opened(2)
    talk.broker(amqp.method(2, commands.Confirm.SelectOk()))
    assert amqp.names(talk.to_client)[-2:] == ["Confirm.SelectOk", "Basic.Nack"]


def test_the_gateways_close_comes_behind_the_answers_too() -> None:
    talk = pipelining(rule("close", messages=1, burst=1))
    talk.client(OPENS + amqp.publish(1, "orders") * 2)
    assert (amqp.names(talk.to_broker)[-1], talk.to_client) == ("Channel.Close", b"")
    talk.broker(OPENED + amqp.method(1, commands.Channel.CloseOk()))
    assert amqp.names(talk.to_client) == ["Channel.OpenOk", "Channel.Close"]
    talk.client(amqp.method(1, commands.Channel.CloseOk()) + OPENS + SELECTS + amqp.publish(1, "orders"))
    talk.broker(OPENED + SELECTED)
    assert amqp.names(talk.to_client)[-3:-1] == ["Channel.OpenOk", "Confirm.SelectOk"]


def test_an_answer_that_never_comes_because_the_broker_closed_the_channel_is_not_waited_for_on_the_next() -> None:
    talk = pipelining(rule(messages=1, burst=1))
    closed = amqp.method(1, commands.Channel.Close(406, "cannot switch", 85, 10))
    talk.client(OPENS + amqp.method(1, commands.Tx.Select()) + SELECTS + amqp.publish(1, "free"))
    talk.broker(OPENED + amqp.method(1, commands.Tx.SelectOk()) + closed)
    talk.client(SELECTS + amqp.method(1, commands.Channel.CloseOk()) + OPENS + SELECTS + amqp.publish(1, "orders") * 2)
    talk.to_client = b""
    talk.broker(OPENED + SELECTED)
    assert talk.to_client == OPENED + SELECTED + amqp.nack(1, 2)


def test_a_channel_closed_and_opened_in_one_write_waits_for_both_opens() -> None:
    talk = pipelining(rule(messages=1, burst=1))
    closes = amqp.method(1, commands.Channel.Close(200, "", 0, 0))
    talk.client(OPENS + closes + OPENS + SELECTS + amqp.publish(1, "orders") * 2)
    answers = OPENED + amqp.method(1, commands.Channel.CloseOk()) + OPENED + SELECTED
    talk.broker(answers)
    assert talk.to_client == answers + amqp.nack(1, 2)


def test_a_second_select_is_not_waited_for_or_an_ack_would_overtake_the_refusal() -> None:
    """Found by `test_confirms_never_lie`: an ack with `multiple` that comes before the nack of an earlier one acks both."""
    talk = pipelining(rule(messages=1, burst=1))
    talk.client(OPENS + SELECTS + amqp.publish(1, "orders") * 2 + amqp.publish(1, "bills") + amqp.publish(1, "mail") + SELECTS)
    talk.broker(OPENED + SELECTED + amqp.ack(1, 3, multiple=True) + SELECTED)
    names = ["Channel.OpenOk", "Confirm.SelectOk", "Basic.Nack", "Basic.Ack", "Basic.Ack", "Confirm.SelectOk"]
    assert amqp.names(talk.to_client) == names
