"""Refused, held, dropped: nacks with the client's own tags, lines that keep their order, returns with the original message."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands, header

from gateway.pipeline.conversation import DROPPED
from gateway.pipeline.parts import Part
from limiter.limits import NEVER
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from support.amqp import frames as amqp
from support.wires.conversations import Talk, bytewise, randomly, rule

SECOND = 1_000_000_000
MIB = 1 << 20
CLOSE = amqp.method(0, commands.Connection.Close(200, "bye", 0, 0))


def talking(*rules: Rule, confirms: tuple[int, ...] = (), hold_bytes: int = MIB, **greeting: Any) -> Talk:
    talk = Talk("amqp", *rules, hold_bytes=hold_bytes)
    talk.client(amqp.greeting(channels=(1, 2, 3), confirms=confirms, **greeting))
    talk.broker(amqp.broker_opens())
    talk.broker(amqp.opened(1, 2, 3))
    talk.to_broker = talk.to_client = b""
    return talk


def bodies(data: bytes) -> list[bytes]:
    return [frame.raw[7:-1] for frame in amqp.read(data) if frame.name == "ContentBody"]


def numbered(channel: int, key: str, *numbers: int) -> bytes:
    return b"".join(amqp.publish(channel, key, b"%06d" % number) for number in numbers)


def limited(key: str, action: str, **more: Any) -> Rule:
    """One message a second for one routing key."""
    return replace(rule(action, messages=1, burst=1, name=key, **more), match=Match(protocol="amqp", routing_key=key))


# ---- refused ---------------------------------------------------------------------------------------------------------


def test_each_refused_publish_gets_a_nack_of_its_own() -> None:
    talk = talking(rule(messages=2, burst=2), confirms=(1,))
    talk.client(numbered(1, "orders", 1, 2, 3, 4, 5) + numbered(1, "bills", 6))
    assert bodies(talk.to_broker) == [b"000001", b"000002", b"000006"]
    assert talk.to_client == b"".join(amqp.nack(1, tag) for tag in (3, 4, 5))


def test_tags_count_from_the_select_on() -> None:
    talk = talking(rule(messages=1, burst=1))
    select = amqp.method(1, commands.Confirm.Select(nowait=True))
    talk.client(numbered(1, "bills", 1) + select + numbered(1, "orders", 2) + select + numbered(1, "orders", 3))
    assert amqp.confirms(talk.to_client) == [amqp.Confirm(1, False, 2, False)]


def test_a_nack_comes_when_the_refused_content_is_complete() -> None:
    talk = talking(rule(messages=1, burst=1), confirms=(1,))
    refused = amqp.publish(1, "orders", b"x" * 20_000, cut=4000)
    talk.client(numbered(1, "orders", 1) + refused[:-1])
    assert talk.to_client == b""
    talk.client(refused[-1:] + numbered(1, "bills", 3))
    assert talk.to_client == amqp.nack(1, 2)
    assert bodies(talk.to_broker) == [b"000001", b"000003"]


def test_refusals_within_a_run_that_ends_in_an_unfinished_message() -> None:
    talk = talking(rule(messages=1, burst=1, size=None), confirms=(1,))
    message = amqp.publish(1, "orders", b"y" * 5000)
    data = message * 3
    talk.client(data[:-100])
    assert talk.to_client == amqp.nack(1, 2)
    talk.client(data[-100:])
    assert talk.to_client == amqp.nack(1, 2) + amqp.nack(1, 3)
    assert talk.to_broker == message


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [0, 6, 4088, 4089, 20_000])
def test_mandatory_gets_its_own_message_back_before_the_nack(size: int, chunked: bool) -> None:
    talk = talking(rule(messages=1, burst=1), confirms=(1,), frame_max=4096)
    body = bytes(number % 251 for number in range(size))
    data = amqp.publish(1, "orders", body, exchange="x", mandatory=True, cut=4096, message_id="m-17")
    talk.client(amqp.publish(1, "orders", exchange="x"))
    talk.client(data, randomly(data, seed=3) if chunked else None)
    frames = amqp.read(talk.to_client)
    returned = frames[0].value
    assert isinstance(returned, commands.Basic.Return)
    assert (returned.reply_code, returned.exchange, returned.routing_key) == (312, "x", "orders")
    assert returned.reply_text.startswith("RATE_LIMITED - %2F/x/orders is over its limit of 1/s of rule all, wait ")
    assert isinstance(frames[1].value, header.ContentHeader)
    assert (frames[1].value.body_size, frames[1].value.properties.message_id) == (size, "m-17")
    assert b"".join(bodies(talk.to_client)) == body
    assert all(len(frame.raw) <= 4096 for frame in frames)
    assert amqp.confirms(talk.to_client) == [amqp.Confirm(1, False, 2, False)]
    assert frames[-1].name == "Basic.Nack"


def test_a_header_as_large_as_the_broker_takes_it_is_returned_too() -> None:
    talk = talking(rule(messages=1, burst=1), confirms=(1,), frame_max=4096)
    talk.client(amqp.publish(1, "orders"))
    taken = amqp.grown_header(1, 4096, b"")  # RabbitMQ counts frame_max without the 8 bytes around the payload
    talk.client(amqp.method(1, commands.Basic.Publish(routing_key="orders", mandatory=True)) + taken)
    assert amqp.names(talk.to_client) == ["Basic.Return", "ContentHeader", "Basic.Nack"]
    assert taken in talk.to_client


def test_only_the_mandatory_ones_are_returned() -> None:
    talk = talking(rule(messages=1, burst=1), confirms=(1,))
    plain = amqp.publish(1, "orders")
    talk.client(plain * 3 + amqp.publish(1, "orders", mandatory=True) + plain)
    assert amqp.names(talk.to_client) == [
        "Basic.Nack", "Basic.Nack", "Basic.Return", "ContentHeader", "ContentBody", "Basic.Nack", "Basic.Nack",
    ]  # fmt: skip
    assert [confirm.tag for confirm in amqp.confirms(talk.to_client)] == [2, 3, 4, 5]


def test_a_body_above_the_budget_is_not_kept_for_its_return() -> None:
    talk = talking(rule(messages=1, burst=1), confirms=(1, 2), hold_bytes=50_000)
    talk.client(amqp.publish(1, "orders"))
    large = amqp.publish(1, "orders", b"x" * 60_000, mandatory=True, cut=4000)
    talk.client(large, [large[:9000], large[9000:]])
    assert talk.to_client == amqp.nack(1, 2)
    talk.to_client = b""
    for _ in range(3):  # the budget is given back each time
        large = amqp.publish(1, "orders", b"x" * 30_000, mandatory=True, cut=4000)
        talk.client(large, [large[:9000], large[9000:]])
        assert b"".join(bodies(talk.to_client)) == b"x" * 30_000
        talk.to_client = b""


@pytest.mark.parametrize(("size", "returns"), [(927_000, True), (929_000, False)])
def test_a_body_that_is_still_coming_in_is_returned_up_to_eight_ninths_of_the_budget(size: int, returns: bool) -> None:
    """`docs/rabbitmq.md` says about 928 kB of the default of `memory.per_connection`, 1 MiB."""
    talk = talking(rule(messages=1, burst=1), confirms=(1,), hold_bytes=1 << 20)
    talk.client(amqp.publish(1, "orders"))
    body = bytes(number % 251 for number in range(size))
    large = amqp.publish(1, "orders", body, mandatory=True, cut=131_064)
    talk.client(large, [large[at : at + 65_536] for at in range(0, len(large), 65_536)])
    assert b"".join(bodies(talk.to_client)) == (body if returns else b"")
    assert amqp.names(talk.to_client)[-1] == "Basic.Nack"


def test_a_body_in_absurdly_many_frames_is_not_kept() -> None:
    talk = talking(rule(messages=1, burst=1), confirms=(1,))
    talk.client(amqp.publish(1, "orders"))
    talk.client(amqp.publish(1, "orders", b"x" * 20_000, mandatory=True, cut=1))
    assert talk.to_client == amqp.nack(1, 2)


# ---- held ------------------------------------------------------------------------------------------------------------


def test_a_channel_without_confirms_is_held_and_the_others_go_on() -> None:
    talk = talking(rule(messages=1, burst=1))
    talk.client(numbered(1, "orders", 1, 2, 3) + amqp.ack(1, 7) + numbered(2, "bills", 4) + amqp.HEARTBEAT + amqp.ack(3, 9))
    assert bodies(talk.to_broker) == [b"000001", b"000004"]
    assert [frame.name for frame in amqp.read(talk.to_broker)][-2:] == ["Heartbeat", "Basic.Ack"]
    assert (talk.conversation.budget.held_messages, talk.to_client) == (2, b"")
    talk.wait(SECOND)
    assert bodies(talk.to_broker) == [b"000001", b"000004", b"000002"]
    talk.wait(SECOND)
    assert amqp.per_channel(talk.to_broker)[1] == numbered(1, "orders", 1, 2, 3) + amqp.ack(1, 7)
    assert talk.holds_nothing()


def test_nothing_overtakes_within_a_channel_and_publishes_with_a_verdict_are_not_judged_again() -> None:
    talk = talking(rule(messages=1, burst=1))
    said = numbered(1, "orders", 1, 2) + numbered(1, "bills", 3) + amqp.ack(1, 5) + numbered(1, "orders", 4) + numbered(1, "more", 5)
    talk.client(said)
    assert talk.to_broker == numbered(1, "orders", 1)
    talk.wait(SECOND)
    assert talk.to_broker == numbered(1, "orders", 1, 2) + numbered(1, "bills", 3) + amqp.ack(1, 5)
    talk.client(numbered(1, "bills", 6))
    talk.wait(SECOND)
    assert talk.to_broker == said + numbered(1, "bills", 6)


def test_transactions_are_held_too() -> None:
    talk = talking(rule("drop", messages=1, burst=1))
    select = amqp.method(1, commands.Tx.Select())
    commit = amqp.method(1, commands.Tx.Commit())
    talk.client(select + numbered(1, "orders", 1, 2) + commit)
    assert talk.to_broker == select + numbered(1, "orders", 1)
    talk.wait(SECOND)
    assert talk.to_broker == select + numbered(1, "orders", 1, 2) + commit


def test_delayed_publishes_on_a_confirm_channel_are_refused_when_the_time_is_up() -> None:
    talk = talking(rule("delay", messages=1, burst=1, max_delay_ns=1_500_000_000), confirms=(1,))
    talk.client(numbered(1, "orders", 1, 2, 3) + numbered(1, "bills", 4))
    assert (bodies(talk.to_broker), talk.to_client) == ([b"000001"], b"")
    talk.wait(SECOND)
    assert bodies(talk.to_broker) == [b"000001", b"000002"]
    talk.wait(SECOND)
    assert bodies(talk.to_broker) == [b"000001", b"000002", b"000004"]
    assert talk.to_client == amqp.nack(1, 3)
    talk.broker(amqp.ack(1, 3, multiple=True))
    assert amqp.confirms(talk.to_client)[1:] == [amqp.Confirm(1, True, 2, True), amqp.Confirm(1, True, 4, False)]
    assert talk.holds_nothing()
    assert talk.conversation.settled()


def test_a_large_body_waits_with_its_publish_and_follows_it() -> None:
    talk = talking(rule(messages=1, burst=1))
    large = amqp.publish(1, "orders", b"x" * 50_000, cut=8000)
    talk.client(numbered(1, "orders", 1) + large[:20_000])
    assert talk.to_broker == numbered(1, "orders", 1)
    talk.wait(SECOND)
    assert amqp.names(talk.to_broker)[3:] == ["Basic.Publish", "ContentHeader", "ContentBody", "ContentBody"]
    assert talk.holds_nothing()
    talk.client(large[20_000:] + amqp.ack(1, 1))
    assert talk.to_broker == numbered(1, "orders", 1) + large + amqp.ack(1, 1)


def test_a_large_body_is_thrown_away_with_its_publish() -> None:
    talk = talking(rule("delay", messages=1, burst=1, max_delay_ns=SECOND // 2), confirms=(1,))
    large = amqp.publish(1, "orders", b"x" * 50_000, cut=8000)
    talk.client(numbered(1, "orders", 1) + large[:20_000])
    talk.wait(SECOND // 2)
    assert talk.holds_nothing()
    assert talk.to_client == b""
    talk.client(large[20_000:] + numbered(1, "bills", 3))
    assert talk.to_client == amqp.nack(1, 2)
    assert talk.to_broker == numbered(1, "orders", 1) + numbered(1, "bills", 3)


def test_held_bytes_count_held_parts_and_their_objects() -> None:
    talk = talking(rule(messages=1, burst=1))
    talk.client(numbered(1, "orders", 1))
    said = numbered(1, "orders", *range(2, 12)) + amqp.ack(1, 1) * 50
    talk.client(said)
    assert len(said) <= talk.conversation.budget.held_bytes <= len(said) + 4 * 400
    assert talk.conversation.budget.held_messages == 10
    for left in range(9, -1, -1):
        talk.wait(SECOND)
        assert talk.conversation.budget.held_messages == left
    assert talk.holds_nothing()


def test_held_parts_do_not_keep_whole_reads_alive() -> None:
    talk = talking(rule(messages=1, burst=1))
    talk.client(numbered(1, "orders", 1, 2) + numbered(2, "bills", *range(1000)))
    part = talk.conversation.abandon()[0]
    assert part.ordering_key == 1
    assert len(part.data) == len(numbered(1, "orders", 2))


def test_the_connections_close_waits_for_everything_held_and_everything_waits_behind_it() -> None:
    talk = talking(rule(messages=1, burst=1))
    talk.client(numbered(1, "orders", 1, 2, 3) + numbered(2, "bills", 4, 5) + CLOSE + amqp.HEARTBEAT)
    assert amqp.names(talk.to_broker).count("Connection.Close") == 0
    assert talk.conversation.lines.holds_close()
    talk.wait(5 * SECOND)
    frames = amqp.read(talk.to_broker)
    assert sorted(bodies(talk.to_broker)) == [b"00000%d" % number for number in range(1, 6)]
    assert [frame.name for frame in frames[-2:]] == ["Connection.Close", "Heartbeat"]
    assert talk.holds_nothing()


def test_a_channels_close_waits_behind_its_held_publishes() -> None:
    talk = talking(rule(messages=1, burst=1))
    close = amqp.method(1, commands.Channel.Close(200, "bye", 0, 0))
    reopened = amqp.method(1, commands.Channel.Open())
    talk.client(numbered(1, "orders", 1, 2) + close + reopened + numbered(1, "bills", 3))
    assert talk.to_broker == numbered(1, "orders", 1)
    talk.wait(SECOND)
    assert talk.to_broker == numbered(1, "orders", 1, 2) + close + reopened + numbered(1, "bills", 3)


def test_channels_with_held_parts_take_turns() -> None:
    talk = talking(rule(messages=10, burst=1))
    talk.client(numbered(1, "orders", *range(20)) + numbered(2, "orders", *range(20)) + numbered(3, "orders", *range(20)))
    talk.wait(SECOND * 5 // 2)
    passed = {channel: len(bodies(data)) for channel, data in amqp.per_channel(talk.to_broker).items()}
    assert sum(passed.values()) == 26
    assert min(passed.values()) >= 5


def test_channels_with_held_parts_take_turns_however_little_room_there_is() -> None:
    talk = talking(rule(messages=1, burst=1))
    talk.client(numbered(1, "orders", 1, 2) + numbered(2, "orders", 3))
    per_channel: list[int] = []
    for _ in range(4):
        talk.now += SECOND // 5  # both are due
        parts = talk.conversation.lines.take_due(talk.now, 1)
        per_channel.extend(part.ordering_key for part in parts)
        talk.settle(parts)
    assert per_channel == [1, 2, 1, 2]


def test_a_part_that_is_not_due_yet_stays_held() -> None:
    talk = talking(rule(messages=1, burst=1))
    talk.client(numbered(1, "orders", 1, 2))
    first_due = talk.conversation.budget.next_due
    talk.now += 1_000_000
    talk.client(numbered(1, "orders", 3))
    assert [part.count for part in talk.conversation.lines.take_due(first_due, 100)] == [1]
    assert talk.conversation.budget.held_messages == 2


def test_refused_again_they_go_back_in_their_order() -> None:
    talk = talking(rule(messages=1, burst=1))
    said = b"".join(amqp.publish(1, "orders", b"x" * size) for size in (1, 2, 3, 4, 5, 6))
    talk.client(said)
    talk.wait(5 * SECOND)
    assert talk.to_broker == said


def test_a_refusal_does_not_overtake_what_is_delayed_before_it() -> None:
    talk = talking(limited("slow", "delay", max_delay_ns=SECOND // 2), limited("orders", "reject"), confirms=(1,))
    talk.client(numbered(1, "orders", 1) + numbered(1, "slow", 2, 3) + numbered(1, "orders", 4))
    assert (bodies(talk.to_broker), talk.to_client) == ([b"000001", b"000002"], b"")
    talk.wait(SECOND // 2 - 1)
    assert talk.to_client == b""
    talk.wait(1)
    assert amqp.confirms(talk.to_client) == [amqp.Confirm(1, False, 3, False), amqp.Confirm(1, False, 4, False)]
    assert talk.holds_nothing()


def test_a_publish_to_be_dropped_waits_for_its_turn_too() -> None:
    talk = talking(limited("slow", "delay"), limited("lossy", "drop"))
    large = amqp.publish(1, "lossy", b"x" * 20_000, cut=4000)
    talk.client(numbered(1, "lossy", 1) + numbered(1, "slow", 2, 3) + large[:9000])
    talk.client(large[9000:] + amqp.ack(1, 1))
    assert talk.to_broker == numbered(1, "lossy", 1) + numbered(1, "slow", 2)
    talk.wait(SECOND)
    rest = talk.to_broker[len(numbered(1, "lossy", 1) + numbered(1, "slow", 2)) :]
    assert rest == numbered(1, "slow", 3) + large + amqp.ack(1, 1)
    assert talk.holds_nothing()


def test_held_parts_are_given_up_when_the_broker_closes_the_channel() -> None:
    talk = talking(rule(messages=1, burst=1))
    talk.client(numbered(1, "orders", 1, 2, 3) + amqp.ack(1, 1) + numbered(2, "orders", 4))
    talk.broker(amqp.method(1, commands.Channel.Close(404, "NOT_FOUND", 60, 40)))
    assert [part.count for part in talk.conversation.reports.abandoned] == [2]
    assert talk.conversation.budget.held_messages == 1
    close_ok = amqp.method(1, commands.Channel.CloseOk())
    talk.client(amqp.ack(1, 2) + numbered(1, "bills", 5) + close_ok)
    assert amqp.per_channel(talk.to_broker)[1] == numbered(1, "orders", 1) + close_ok
    talk.client(amqp.method(1, commands.Channel.Open()) + numbered(1, "bills", 6))
    assert bodies(talk.to_broker)[-1] == b"000006"
    talk.wait(SECOND)
    assert bodies(talk.to_broker)[-1] == b"000004"
    assert talk.holds_nothing()


@pytest.mark.parametrize("client_first", [True, False])
def test_both_sides_close_a_held_channel_and_both_get_their_close_ok(client_first: bool) -> None:
    talk = talking(rule(messages=1, burst=1))
    client_closes = amqp.method(1, commands.Channel.Close(200, "bye", 0, 0))
    close_ok = amqp.method(1, commands.Channel.CloseOk())
    talk.client(numbered(1, "orders", 1, 2) + numbered(2, "orders", 3) + (client_closes if client_first else b""))
    talk.broker(amqp.method(1, commands.Channel.Close(404, "NOT_FOUND", 60, 40)))
    talk.wait(0)
    talk.client((b"" if client_first else client_closes) + close_ok)
    assert talk.to_broker == numbered(1, "orders", 1) + client_closes + close_ok
    talk.to_client = b""
    talk.broker(close_ok)
    assert talk.to_client == close_ok
    assert talk.conversation.describe()["channels"] == 2
    talk.wait(SECOND)
    assert talk.holds_nothing()


def test_the_broker_closes_the_channel_while_the_judge_has_its_publishes() -> None:
    talk = talking(rule(messages=1, burst=1), confirms=(2,))
    talk.client(numbered(1, "orders", 1, 2, 3) + numbered(2, "orders", 4))
    talk.to_client = b""
    due = talk.conversation.budget.next_due
    talk.now = due
    taken = talk.conversation.lines.take_due(due, 100)
    assert [part.count for part in taken] == [2]
    fresh: list[Part] = []
    talk.conversation.decode(numbered(2, "orders", 5), 0, 100, fresh)
    for channel in (1, 2):
        talk.broker(amqp.method(channel, commands.Channel.Close(404, "NOT_FOUND", 60, 40)))
    talk.to_client = talk.to_broker = b""
    talk.settle(taken)
    assert talk.to_broker == b""
    assert talk.conversation.refuse(fresh[0]) == DROPPED
    assert talk.to_client == b""
    assert talk.holds_nothing()


def test_giving_up_returns_everything_held() -> None:
    talk = talking(rule(messages=1, burst=1))
    talk.client(numbered(1, "orders", 1, 2) + numbered(2, "orders", 3) + amqp.ack(2, 1) + CLOSE)
    parts = talk.conversation.abandon()
    assert sum(part.count * part.messages for part in parts) == 2
    assert talk.holds_nothing()
    assert talk.conversation.budget.next_due == NEVER


def test_nothing_held_is_let_go_into_the_middle_of_a_frame_that_flows_through() -> None:
    talk = talking(rule(messages=1, burst=1), frame_max=0)
    large = amqp.publish(2, "bills", b"x" * MIB, cut=MIB)
    talk.client(numbered(1, "orders", 1, 2) + large[:400_000])
    assert talk.conversation.budget.next_due == NEVER
    assert talk.conversation.lines.take_due(talk.now + 3 * SECOND, 100) == []
    talk.wait(3 * SECOND)
    talk.client(large[400_000:])
    talk.wait(SECOND)
    assert talk.to_broker == numbered(1, "orders", 1) + large + numbered(1, "orders", 2)


def test_a_held_frame_that_flows_in_is_let_go_after_all_other_channels() -> None:
    talk = talking(rule(messages=10, burst=1), frame_max=0)
    large = amqp.publish(1, "large", b"x" * MIB, cut=MIB)
    talk.client(numbered(1, "orders", 1, 2) + numbered(2, "bills", 3, 4) + large[:400_000])
    talk.to_broker = b""
    talk.wait(SECOND // 10)
    assert talk.to_broker == numbered(2, "bills", 4) + numbered(1, "orders", 2) + large[:400_000]
    talk.client(large[400_000:])
    assert talk.holds_nothing()
    assert talk.to_broker == numbered(2, "bills", 4) + numbered(1, "orders", 2) + large


# ---- dropped ---------------------------------------------------------------------------------------------------------


def test_dropped_where_no_answer_was_promised() -> None:
    talk = talking(rule("drop", messages=1, burst=1), confirms=(2,))
    large = amqp.publish(1, "orders", b"x" * 20_000, cut=4000)
    talk.client(numbered(1, "orders", 1) + large[:9000])
    talk.client(large[9000:] + numbered(1, "bills", 3))
    assert talk.to_broker == numbered(1, "orders", 1) + numbered(1, "bills", 3)
    talk.client(numbered(2, "orders", 4))
    assert talk.to_client == amqp.nack(2, 1)


# ---- all of it, at random ----------------------------------------------------------------------------------------------


@st.composite
def floods(draw: st.DrawFn) -> list[tuple[int, str, int, bool, int]]:
    """Publishes: channel, key, body size, mandatory, how long to wait after it (ms)."""
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from((1, 2, 3)),
                st.sampled_from(("free", "slow", "slower")),
                st.sampled_from((6, 6, 100, 9000)),
                st.booleans(),
                st.sampled_from((0, 0, 0, 100, 700)),
            ),
            max_size=25,
        )
    )


@settings(deadline=None, max_examples=60)
@given(floods(), st.sampled_from(("reject", "delay", "drop")), st.randoms(use_true_random=False))
def test_confirms_never_lie_and_order_is_kept(flood: list[tuple[int, str, int, bool, int]], action: str, random: Random) -> None:
    """Channels 1 and 2 with confirms, 3 without; the broker withholds and gathers its confirms. Acked means the broker has that message."""
    talk = talking(rule(action, messages=2, burst=2, max_delay_ns=SECOND), confirms=(1, 2))
    sent: dict[int, list[bytes]] = {1: [], 2: [], 3: []}
    confirmed = {1: 0, 2: 0}

    def received(channel: int) -> list[bytes]:
        stream = amqp.per_channel(talk.to_broker).get(channel, b"")
        messages: list[bytes] = []
        for frame in amqp.read(stream):
            if frame.name == "Basic.Publish":
                messages.append(b"")
            messages[-1] += frame.raw
        return messages

    def broker_confirms() -> None:
        for channel in (1, 2):
            count = len(received(channel))
            if count > confirmed[channel]:
                confirmed[channel] = random.randint(confirmed[channel] + 1, count)
                said = amqp.ack(channel, confirmed[channel], multiple=True)
                talk.broker(said, bytewise(said))

    for number, (channel, key, size, mandatory, wait_ms) in enumerate(flood):
        message = amqp.publish(channel, key, (b"%06d" % number).ljust(size, b"."), mandatory=mandatory, cut=4000, message_id=str(number))
        sent[channel].append(message)
        talk.client(message, randomly(message, number))
        talk.wait(wait_ms * 1_000_000)
        broker_confirms()
    talk.wait(60 * SECOND)
    for _ in range(len(flood)):
        broker_confirms()
    assert talk.holds_nothing()
    assert talk.conversation.settled()
    results: dict[int, dict[int, bool]] = {1: {}, 2: {}}
    for confirm in amqp.confirms(talk.to_client):
        answers = results[confirm.channel]
        outstanding = [tag for tag in range(1, len(sent[confirm.channel]) + 1) if tag not in answers]
        for tag in outstanding if confirm.multiple else [confirm.tag]:
            if tag <= confirm.tag:
                assert tag not in answers
                answers[tag] = confirm.acked
    for channel in (1, 2):
        here = received(channel)
        assert results[channel] == {tag: message in here for tag, message in enumerate(sent[channel], 1)}
    for channel, messages in sent.items():
        here = received(channel)
        assert here == [message for message in messages if message in here]
        if channel == 3 and action != "drop":
            assert here == messages
