"""Deliveries taken many at once (`DeliveryIntake.run`) against the same bytes frame by frame: nobody can tell the difference."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pamqp import commands

from gateway.pipeline.errors import ProtocolError
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.amqp import frames as amqp
from support.wires.conversations import SECOND, Talk

LONG = "amq.ctag-abcdefghijklmnopqrstu"
TAGS = ("", "j", "k", "jobs-consumer", LONG + "1", LONG + "2")  # alike in length, in their beginnings, or not at all
UNKNOWN = "nobody"
LIMITED = TAGS[3]  # consumes from q2
SLOW = Rule("slow", Match(queue="q2", operation="consume"), limit=Limit(messages=Rate(10), messages_burst=3))

DELIVERY = st.tuples(st.sampled_from((1, 1, 1, 2)), st.sampled_from((*TAGS, UNKNOWN)), st.sampled_from((0, 5, 5, 300, 9000)))


def frames(data: bytes) -> list[bytes]:
    """Cut at the frames' ends, as far as there are any."""
    found = []
    at = 0
    while at < len(data):
        stop = at + 8 + int.from_bytes(data[at + 3 : at + 7], "big")
        found.append(data[at:stop])
        at = stop
    return found


def consuming() -> Talk:
    talk = Talk("amqp", SLOW)
    talk.client(amqp.greeting(channels=(1, 2), frame_max=4096))
    talk.broker(amqp.broker_opens() + amqp.method(0, commands.Connection.OpenOk()))
    for channel in (1, 2):
        for number, tag in enumerate(TAGS[1:]):
            talk.client(amqp.method(channel, commands.Basic.Consume(queue=f"q{number}", consumer_tag=tag, nowait=True)))
    talk.to_client = b""
    return talk


def outcome(pieces: list[bytes], wait: int) -> tuple[bytes, dict[str, list[int]], int, str]:
    """What the client has got of `pieces` and after some time, what was counted, and what was wrong."""
    talk = consuming()
    fault = ""
    try:
        for piece in pieces:
            talk.broker(piece)
        talk.wait(wait)
    except ProtocolError as error:
        fault = str(error)
        talk.to_client += error.last_frames
    counted: dict[str, list[int]] = {}
    for one in talk.conversation.reports.delivered:
        sums = counted.setdefault(one.key.text, [0, 0, 0])
        sums[0] += one.received
        sums[1] += one.forwarded
        sums[2] += one.size
    return talk.to_client, counted, talk.conversation.budget.parked_messages, fault


@settings(deadline=None, max_examples=150)
@given(st.lists(DELIVERY, min_size=1, max_size=30), st.sampled_from((0, SECOND // 5, 100 * SECOND)))
@example([(1, "jobs-consumer", 5)] * 9 + [(1, "j", 5)] * 9, 0)
@example([(1, LONG + "1", 5), (1, LONG + "2", 5)] * 5, 0)
def test_many_at_once_are_like_one_by_one(said: list[tuple[int, str, int]], wait: int) -> None:
    per_channel = [
        (1 if name == LIMITED else channel_id, name, size) for channel_id, name, size in said
    ]  # or two channels race for one limit
    data = b"".join(
        amqp.deliver(channel_id, b"x" * size, tag=tag, consumer_tag=name, cut=4088)
        for tag, (channel_id, name, size) in enumerate(per_channel, 1)
    )
    at_once = outcome([data], wait)
    one_by_one = outcome(frames(data), wait)
    assert at_once[1:] == one_by_one[1:]
    assert amqp.per_channel(at_once[0]) == amqp.per_channel(one_by_one[0])


@settings(deadline=None, max_examples=300)
@given(st.lists(DELIVERY, min_size=1, max_size=8), st.integers(0, 1 << 20), st.integers(0, 255))
def test_a_wrong_byte_is_found_at_the_same_place(said: list[tuple[int, str, int]], place: int, byte: int) -> None:
    """Of queues nobody limits, so that what the client gets is the same to the byte."""
    free = [(channel_id, UNKNOWN if name == LIMITED else name, size) for channel_id, name, size in said]
    data = b"".join(
        amqp.deliver(channel_id, b"x" * size, tag=tag, consumer_tag=name, cut=4088) for tag, (channel_id, name, size) in enumerate(free, 1)
    )
    data += amqp.HEARTBEAT
    at = place % len(data)
    damaged = data[:at] + bytes((byte,)) + data[at + 1 :]
    at_once = outcome([damaged], 0)
    one_by_one = outcome(frames(damaged), 0)
    assert at_once[1:] == one_by_one[1:]
    assert at_once[3] or at_once[0] == one_by_one[0]
