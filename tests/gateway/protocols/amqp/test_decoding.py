"""The client's stream: what is offered to the judge, and that it does not matter how the bytes are cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.parts import REQUEST, Part
from limiter.rules.rule import Rule
from support.amqp import frames as amqp
from support.wires.conversations import Talk, bytewise, randomly, rule

MIB = 1 << 20


def talking(*rules: Rule, channels: tuple[int, ...] = (1, 2, 3), confirms: tuple[int, ...] = (), **greeting: Any) -> Talk:
    talk = Talk("amqp", *rules)
    talk.client(amqp.greeting(channels=channels, confirms=confirms, **greeting))
    talk.broker(amqp.broker_opens())
    talk.to_broker = talk.to_client = b""
    return talk


def test_likes_that_follow_one_another_are_one_part() -> None:
    talk = talking()
    talk.parts.clear()
    talk.client(amqp.publish(1, "orders") * 5 + amqp.publish(1, "orders", b"longer than before") * 2 + amqp.publish(1, "bills", b"hello"))
    assert [(part.kind, part.count, part.size, part.key.text if part.key else None) for part in talk.parts] == [
        (REQUEST, 5, 5, "%2F/amq.default/orders"),
        (REQUEST, 2, 18, "%2F/amq.default/orders"),
        (REQUEST, 1, 5, "%2F/amq.default/bills"),
    ]


def told(data: bytes, pieces: list[bytes]) -> tuple[object, ...]:
    """What a connection on which `data` comes in `pieces` asks of the judge and tells the broker, and what it ends with."""
    talk = talking()
    try:
        talk.client(data, pieces)
    except ProtocolError as error:  # what came before it in the same read is given up with it
        return (str(error),)
    return talk.requests, talk.to_broker


@pytest.mark.parametrize("body", [b"", b"hello"])
def test_whichever_octet_of_a_publish_is_not_as_in_the_one_before_it_is_read_as_if_it_came_alone(body: bytes) -> None:
    usual = amqp.publish(1, "orders", body)
    seen = set()
    for place in range(len(usual)):
        for octet in {0, 1, 2, 3, 8, 0xCE, 0xFF, usual[place] ^ 1} - {usual[place]}:
            other = usual[:place] + bytes([octet]) + usual[place + 1 :]
            data = usual + usual + other + usual
            whole = told(data, [data])
            assert whole == told(data, bytewise(data)), (place, octet)
            seen.add(str(whole[0]))
    assert len(seen) > 5, "some are refused for various reasons, some ask for something else"


def test_everything_contiguous_leaves_as_the_bytes_it_came_in() -> None:
    talk = talking()
    data = amqp.publish(1, "orders") * 3 + amqp.HEARTBEAT + amqp.ack(2, 5) + amqp.publish(2, "", b"", exchange="e")
    parts: list[Part] = []
    assert talk.conversation.decode(data, 0, 100, parts) == len(data)
    assert parts[0].start == 0
    assert all(part.data is data for part in parts)
    assert [part.end for part in parts[:-1]] == [part.start for part in parts[1:]]
    assert parts[-1].end == len(data)


def test_decoding_stops_when_there_is_no_more_room() -> None:
    talk = talking()
    data = amqp.publish(1, "orders") * 10
    parts: list[Part] = []
    position = talk.conversation.decode(data, 0, 4, parts)
    assert position == len(data) * 4 // 10
    assert [part.count for part in parts] == [4]
    assert talk.conversation.need == 1
    for part in parts:
        talk.conversation.admit(part)
    assert talk.conversation.decode(data, position, 100, parts) == len(data)
    assert [part.count for part in parts] == [4, 6]


@pytest.mark.parametrize("length", [0, 1, 254, 255])
def test_names_of_any_length_are_distinguished(length: int) -> None:
    talk = talking()
    names = b"\x00\x00" + bytes([length]) + b"x" * length + bytes([length]) + b"k" * length
    message = amqp.raw_frame(1, 1, b"\x00\x3c\x00\x28" + names + b"\x00") + amqp.content(1, b"hello")
    talk.client(message * 2)
    talk.client(message, bytewise(message))
    exchange = "x" * length or "amq.default"
    assert [key for key, *_ in talk.requests] == [f"%2F/{exchange}/{'k' * length}"] * 3
    assert talk.to_broker == message * 3


def test_names_are_bytes() -> None:
    talk = talking()
    method = amqp.raw_frame(1, 1, b"\x00\x3c\x00\x28\x00\x00\x00\x03a.\xff\x00")
    talk.client(method + amqp.content(1, b"x"))
    assert [key for key, *_ in talk.requests] == ["%2F/amq.default/a.%FF"]


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 65536, 300_000, 2 * MIB])
@pytest.mark.parametrize("cut", [500, 131_064])
def test_a_publish_costs_its_body_size_however_it_is_cut(size: int, cut: int) -> None:
    talk = talking()
    data = amqp.publish(1, "orders", b"x" * size, cut=cut)
    talk.client(data, randomly(data, seed=size) if size < 100_000 else [data[: MIB // 3], data[MIB // 3 :]])
    assert [(key, size) for key, _, _, size in talk.requests] == [("%2F/amq.default/orders", size)]
    assert talk.to_broker == data


def test_a_publish_is_judged_as_soon_as_its_header_is_there() -> None:
    talk = talking()
    data = amqp.publish(1, "orders", b"x" * 100_000)
    talk.client(data[:200])
    assert [size for *_, size in talk.requests] == [100_000]
    assert amqp.names(talk.to_broker) == ["Basic.Publish", "ContentHeader"]


def test_a_small_body_is_waited_for() -> None:
    talk = talking()
    data = amqp.publish(1, "orders", b"x" * 100)
    talk.client(data[:-1])
    assert talk.to_broker == b""
    talk.client(data[-1:])
    assert talk.to_broker == data


def test_a_body_frame_leaves_whole_up_to_256_kib_and_in_pieces_above() -> None:
    talk = talking(frame_max=0)
    whole = amqp.publish(1, "orders", b"x" * 262_144, cut=262_144)
    talk.client(whole[:200_000])
    assert amqp.names(talk.to_broker) == ["Basic.Publish", "ContentHeader"]
    assert talk.conversation.heartbeat() == amqp.HEARTBEAT
    talk.client(whole[200_000:])
    assert talk.to_broker == whole
    talk.to_broker = b""
    large = amqp.publish(1, "orders", b"x" * MIB, cut=MIB)
    talk.client(large[:200_000])
    assert talk.to_broker == large[:200_000]
    assert talk.conversation.heartbeat() == b""
    talk.client(large[200_000:])
    assert talk.to_broker == large
    assert talk.conversation.heartbeat() == amqp.HEARTBEAT


def test_empty_body_frames_are_legal_within_a_body() -> None:
    talk = talking()
    empty = amqp.raw_frame(3, 1, b"")
    middle = amqp.raw_frame(3, 1, b"ll")
    data = amqp.publish(1, "orders", b"hello", cut=2).replace(middle, empty + middle)
    talk.client(data)
    talk.client(data, bytewise(data))
    assert talk.to_broker == data * 2
    assert len(talk.requests) == 2


def test_a_method_waits_for_its_header_while_other_channels_go_on() -> None:
    talk = talking()
    message = amqp.publish(1, "orders", b"hello")
    method, header, body = [frame.raw for frame in amqp.read(message)]
    other = amqp.publish(2, "bills", b"there")
    talk.client(method + amqp.HEARTBEAT + other)
    assert amqp.names(talk.to_broker) == ["Heartbeat", "Basic.Publish", "ContentHeader", "ContentBody"]
    talk.client(header + amqp.HEARTBEAT + body)
    assert amqp.per_channel(talk.to_broker) == {0: amqp.HEARTBEAT * 2, 1: message, 2: other}
    assert [key for key, *_ in talk.requests] == ["%2F/amq.default/bills", "%2F/amq.default/orders"]


def test_publishes_after_the_brokers_channel_close_are_not_judged() -> None:
    talk = talking(rule(messages=1))
    talk.client(amqp.publish(1, "orders"))
    talk.broker(amqp.method(1, commands.Channel.Close(404, "NOT_FOUND - no exchange", 60, 40)))
    talk.client(amqp.publish(1, "orders") * 3)
    assert len(talk.requests) == 1
    assert talk.to_broker == amqp.publish(1, "orders") * 4
    # close-ok, open and publish in one read: judged again
    again = amqp.method(1, commands.Channel.CloseOk()) + amqp.method(1, commands.Channel.Open()) + amqp.publish(1, "bills")
    talk.client(again)
    assert [key for key, *_ in talk.requests] == ["%2F/amq.default/orders", "%2F/amq.default/bills"]


def test_frames_of_a_channel_that_was_never_opened_are_for_the_broker_to_refuse() -> None:
    talk = talking(rule(messages=1))
    data = amqp.publish(9, "orders", b"x" * 300_000) * 2
    talk.client(data)
    assert (talk.requests, talk.to_broker) == ([], data)


# ---- however the bytes are cut ---------------------------------------------------------------------------------------


def streams(data: bytes) -> list[bytes]:
    return [frame.raw for frame in amqp.read(data)]


@st.composite
def sessions(draw: st.DrawFn) -> bytes:
    """What a client may say on channels 1 (confirms), 2 and 3: publishes cut and interleaved in every legal way, acks, heartbeats."""
    per_channel: dict[int, list[bytes]] = {0: [], 1: [], 2: [], 3: []}
    for _ in range(draw(st.integers(1, 12))):
        channel = draw(st.sampled_from((0, 1, 1, 2, 3)))
        if channel == 0:
            per_channel[0].append(amqp.HEARTBEAT)
        elif draw(st.integers(0, 4)) == 0:
            per_channel[channel].append(amqp.ack(channel, draw(st.integers(1, 100))))
        else:
            message = amqp.publish(
                channel,
                draw(st.sampled_from(("a", "b", ""))),
                b"\xce" * draw(st.sampled_from((0, 1, 5, 5, 5, 40, 4090, 5000))),
                exchange=draw(st.sampled_from(("", "x"))),
                mandatory=draw(st.booleans()),
                cut=draw(st.sampled_from((3, 100, 4088))) if draw(st.booleans()) else 5000,
            )
            per_channel[channel].extend(streams(message) if len(message) < 9000 else [message])
    mixed = draw(st.booleans())
    said: list[bytes] = []
    while any(per_channel.values()):
        channel = draw(st.sampled_from([number for number, frames in per_channel.items() if frames]))
        said.append(per_channel[channel].pop(0))
        if not mixed:
            said.extend(per_channel[channel])
            per_channel[channel].clear()
    return b"".join(said)


def converse(said: bytes, cuts: list[bytes], *rules: Rule) -> tuple[list[tuple[str, str | None, int, int]], bytes, bytes, int, int]:
    talk = talking(*rules, confirms=(1,), frame_max=8192)
    talk.client(said, cuts)
    held = talk.conversation.budget.held_messages
    talk.wait(20_000_000_000)
    return talk.requests, talk.to_broker, talk.to_client, held, talk.conversation.budget.held_bytes


@settings(deadline=None, max_examples=60)
@given(sessions(), st.integers(0, 1000))
def test_without_limits_every_channels_bytes_pass_untouched(said: bytes, seed: int) -> None:
    _, to_broker, to_client, held, _ = converse(said, randomly(said, seed))
    assert (to_client, held) == (b"", 0)
    assert amqp.per_channel(to_broker) == amqp.per_channel(said)


@settings(deadline=None, max_examples=60)
@given(sessions(), st.integers(0, 1000))
def test_however_the_bytes_are_cut_requests_and_output_are_the_same(said: bytes, seed: int) -> None:
    limit = rule(messages=2, burst=2)
    whole = converse(said, [said], limit)
    assert converse(said, randomly(said, seed), limit) == whole
    assert converse(said, bytewise(said), limit) == whole
