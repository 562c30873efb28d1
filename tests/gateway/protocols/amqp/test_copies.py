"""Copies that publishes name in CC and BCC: what RabbitMQ routes by, found in whatever a client sends."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from gateway.pipeline.parts import Part
from gateway.protocols.amqp.copies import copies_named, may_name_copies
from gateway.protocols.amqp.frames import OVERHEAD
from gateway.protocols.amqp.publishes import MAX_COPY_KEYS
from gateway.waiting.disk.waiting_disk import WaitingDisk
from limiter.limits import Limit, Rate
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from support.amqp import frames as amqp
from support.wires.conversations import SECOND, Talk, bytewise, rule


def publish(headers: dict[str, Any] | None, key: str = "orders", body: bytes = b"hello", channel: int = 1, **properties: Any) -> bytes:
    content = header.ContentHeader(body_size=len(body), properties=commands.Basic.Properties(headers=headers, **properties))
    frames = amqp.method(channel, commands.Basic.Publish(exchange="", routing_key=key)) + amqp.method(channel, content)
    return frames + (amqp.raw_frame(3, channel, body) if body else b"")


def with_table(table: bytes, body: bytes = b"hello") -> bytes:
    """A publish whose headers are these bytes."""
    payload = b"\0\x3c\0\0" + struct.pack(">QH", len(body), 0x2000) + struct.pack(">I", len(table)) + table
    return (
        amqp.method(1, commands.Basic.Publish(exchange="", routing_key="orders"))
        + amqp.raw_frame(2, 1, payload)
        + amqp.raw_frame(3, 1, body)
    )


def entry(name: bytes, kind: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + kind + struct.pack(">I", len(value)) + value


def long_string(text: bytes) -> bytes:
    return b"S" + struct.pack(">I", len(text)) + text


def found(data: bytes) -> list[bytes]:
    at = int.from_bytes(data[3:7], "big") + OVERHEAD
    stop = at + 7 + int.from_bytes(data[at + 3 : at + 7], "big")
    names = copies_named(data, at, stop)
    assert not names or may_name_copies(data, at, stop + 1)
    return names


# ---- the headers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("properties", [{}, {"content_type": "text/plain"}, {"content_encoding": "gzip", "message_id": "CC"}])
@pytest.mark.parametrize("before", [{}, {"a": 1, "b": "CC" * 300, "c": True, "d": 1.5, "e": None, "f": {"CC": ["h"]}, "i": -1 << 40}])
def test_they_are_found_wherever_they_stand(properties: dict[str, Any], before: dict[str, Any]) -> None:
    assert found(publish({**before, "CC": ["q1", "q2", "q1"], "z": 1, "BCC": ["q2", "q3"]}, **properties)) == [b"q1", b"q2", b"q3"]


@pytest.mark.parametrize(
    "headers",
    [
        None, {}, {"cc": ["q1"]}, {"CCC": ["q1"]}, {"CC": "q1"}, {"CC": 7}, {"CC": {"a": "q1"}}, {"CC": None}, {"CC": []},
        {"CC": [5, ["q1"], {"x": "q1"}, None, bytearray(b"q1")]}, {"inner": {"CC": ["q1"]}}, {"text": "\x02CCA\0\0\0\x07S\0\0\0\x02q1"},
    ],
)  # fmt: skip
def test_what_rabbitmq_refuses_or_does_not_look_at_names_nothing(headers: dict[str, Any] | None) -> None:
    assert found(publish(headers)) == []


def test_of_an_array_the_long_strings_count() -> None:
    assert found(publish({"CC": ["q1", 5, ["q2"], {"x": "q2"}, None, 1.5, "q3"]})) == [b"q1", b"q3"]


def test_the_first_of_two_entries_counts_as_in_rabbitmq() -> None:
    one, other = (entry(b"CC", b"A", long_string(name)) for name in (b"q1", b"q2"))
    assert found(with_table(one + other)) == [b"q1"]


@pytest.mark.parametrize(
    "table",
    [
        b"\x02CC", b"\x02CCA", b"\x02CCA\0\0\0", b"\x02CCA\0\0\0\xff" + long_string(b"q1"), entry(b"CC", b"A", b"S\0\0\0\xffq1"),
        entry(b"CC", b"A", b"S\0\0"), entry(b"CC", b"A", b"?" + long_string(b"q1")), b"\x01a?" + entry(b"CC", b"A", long_string(b"q1")),
        entry(b"a", b"S", b"x")[:-1] + b"\xff" * 4,
    ],
)  # fmt: skip
def test_a_table_that_does_not_fit_names_nothing(table: bytes) -> None:
    assert found(with_table(table)) == []


@given(st.binary(max_size=80), st.booleans())
def test_no_table_is_too_odd(table: bytes, begins: bool) -> None:
    assert all(len(name) <= 255 for name in found(with_table((b"\x02CCA" if begins else b"") + table)))


def test_a_name_longer_than_a_routing_key_is_known_by_its_first_255_bytes() -> None:
    assert found(publish({"CC": ["q" * 60_000, "q" * 255, "p"]})) == [b"q" * 255, b"p"]


# ---- the conversation --------------------------------------------------------------------------------------------------


def talking(*rules: Rule, confirms: tuple[int, ...] = (1,), **more: Any) -> Talk:
    talk = Talk("amqp", *rules, **more)
    talk.client(amqp.greeting(channels=(1, 2), confirms=confirms))
    talk.broker(amqp.broker_opens())
    talk.broker(amqp.opened(1, 2))
    talk.to_broker = talk.to_client = b""
    return talk


def limited(key: str, burst: int, **more: Any) -> Rule:
    return Rule(key, Match(protocol="amqp", routing_key=key), limit=Limit(messages=Rate(1), messages_burst=burst), open_for_ns=0, **more)


def admitted(talk: Talk) -> dict[str, int]:
    return {state.thing.rpartition("/")[2]: state.admitted for state in talk.judge.states(talk.now)}


@pytest.mark.parametrize("chunk", [bytewise, lambda data: [data]])
@pytest.mark.parametrize("body", [b"", b"hello", b"x" * 5000])
def test_copies_count_against_the_keys_they_name(chunk: Any, body: bytes) -> None:
    talk = talking(limited("orders", 9), limited("bills", 9), limited("mail", 9))
    sent = publish({"CC": ["bills", "orders"], "BCC": ["mail", "bills"]}, body=body)
    talk.client(sent * 2, chunk(sent * 2))
    assert talk.to_broker == sent * 2
    assert admitted(talk) == {"orders": 2, "bills": 2, "mail": 2}


def test_the_header_may_come_behind_another_channels_frames() -> None:
    talk = talking(limited("bills", 1))
    sent = publish({"CC": ["bills"]})
    method = int.from_bytes(sent[3:7], "big") + OVERHEAD
    talk.client(sent[:method] + amqp.publish(2, "other") + sent[method:])
    assert admitted(talk) == {"bills": 1}


def test_one_key_that_may_not_take_it_refuses_it_as_a_whole_and_is_named() -> None:
    talk = talking(limited("orders", 9), limited("bills", 1))
    sent = publish({"CC": ["bills"]})
    talk.client(sent + amqp.publish(1, "orders", b"alone"))
    method = amqp.method(1, commands.Basic.Publish(exchange="", routing_key="orders", mandatory=True))
    talk.client(method + sent[int.from_bytes(sent[3:7], "big") + OVERHEAD :])
    assert talk.to_broker == sent + amqp.publish(1, "orders", b"alone")
    frames = amqp.read(talk.to_client)
    assert [frame.name for frame in frames] == ["Basic.Return", "ContentHeader", "ContentBody", "Basic.Nack"]
    assert frames[0].value.reply_text == (
        "RATE_LIMITED - %2F/amq.default/bills is over its limit of 1/s of rule bills (%2F/amq.default/orders), wait 1000 ms"
    )
    assert admitted(talk) == {"orders": 2, "bills": 1}


@pytest.mark.parametrize("confirms", [(), (1,)])
def test_a_rule_that_refuses_copies_closes_the_channel(confirms: tuple[int, ...]) -> None:
    talk = talking(Rule("none", Match(protocol="amqp", routing_key="b*"), copies="refuse", action="delay"), confirms=confirms)
    talk.client(amqp.publish(1, "bills", b"alone") + publish({"CC": ["bills"]}))
    text = "PRECONDITION_FAILED - copies (CC, BCC) are refused by rule none: %2F/amq.default/orders"
    assert talk.to_client == amqp.method(1, commands.Channel.Close(406, text, 60, 40))
    assert talk.to_broker == amqp.publish(1, "bills", b"alone") + talk.to_client


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[WaitingDisk]:
    found = WaitingDisk(tmp_path / "spool", 1 << 30, 1, threads=False, least=3_000, most=3_000)
    yield found
    found.close(1.0)


@pytest.mark.parametrize("action", ["delay", "block", "spool"])
def test_what_waits_waits_for_the_key_that_is_short_of_room(action: str, disk: WaitingDisk) -> None:
    talk = talking(limited("bills", 1, action=action, **({"max_delay_ns": 8 * SECOND} if action == "delay" else {})), disk=disk)
    sent = b"".join(publish({"CC": ["bills"]}, body=b"%d" % number) for number in range(3))
    talk.client(sent)
    assert talk.to_broker == publish({"CC": ["bills"]}, body=b"0")
    talk.wait(2 * SECOND + SECOND // 10)
    talk.work()
    assert talk.to_broker == sent
    assert admitted(talk) == {"bills": 3}


def test_what_comes_back_from_the_disk_has_its_copies(disk: WaitingDisk) -> None:
    talk = talking(rule("spool", messages=1, burst=1, name="all", topic=None), limited("bills", 1), disk=disk, hold_bytes=4096)
    sent = [publish({"CC": ["bills"]}, key="orders", body=bytes([number]) * 1000) for number in range(12)]
    talk.client(b"".join(sent))
    talk.work()
    for _ in range(12):
        talk.wait(SECOND)
        talk.work()
    talk.wait(SECOND)
    assert talk.to_broker == b"".join(sent)
    assert admitted(talk)["bills"] == 12


def test_ten_thousand_names_cost_what_their_bytes_cost() -> None:
    rules = [rule(messages=10**6, burst=10**6)]
    talk = talking(*rules)
    sent = publish({"CC": [f"n{number}" for number in range(10_000)]})
    tracemalloc.start()
    try:
        talk.client(sent)
        first = tracemalloc.get_traced_memory()[0]
        for _ in range(10):
            talk.client(sent)
        assert tracemalloc.get_traced_memory()[0] - first < 12 * len(sent) + 2_000_000  # parts, to_broker; no keys
    finally:
        tracemalloc.stop()
    assert sum(admitted(talk).values()) == 11 * 10_001


def test_of_very_many_names_the_new_ones_count_for_the_publishs_own_topic() -> None:
    """Each would be a key and a bucket, in one turn of the event loop."""
    talk = talking(rule(messages=10**6, burst=10**6))
    talk.client(publish({"CC": ["known"]}))
    before = len(admitted(talk))
    talk.client(publish({"CC": [*(f"n{number}" for number in range(9_999)), "known"]}))
    assert len(admitted(talk)) == before + MAX_COPY_KEYS
    assert admitted(talk)["known"] == 2
    assert sum(admitted(talk).values()) == 2 + 10_001


def test_a_turn_makes_no_more_keys_of_copies_than_it_has_room_for() -> None:
    talk = talking(rule(messages=10**6, burst=10**6))
    parts: list[Part] = []
    sent = publish({"CC": [f"n{number}" for number in range(200)]})
    assert 2 * len(sent) < talk.conversation.decode(sent * 9, 0, 512, parts) <= 3 * len(sent)


def test_of_a_client_that_is_gone_a_copy_goes_to_the_queue_that_stays() -> None:
    talk = talking(rule("delay", messages=1, burst=1), confirms=())
    talk.client(amqp.method(1, commands.Queue.Declare(queue="mine", exclusive=True)))
    talk.broker(amqp.method(1, commands.Queue.DeclareOk("mine", 0, 0)))
    talk.client(publish(None, "mine") * 2 + publish(None, "mine") + publish({"CC": ["audit"]}, "mine"))
    talk.conversation.leave()
    talk.conversation.client_gone = True
    talk.to_broker = b""
    talk.conversation.take_farewells(quiet=True)
    for _ in range(9):
        talk.wait(SECOND)
    assert talk.to_broker == publish({"CC": ["audit"]}, "mine")
