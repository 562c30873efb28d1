"""A rule's `max_message_size`: refused in the broker's own words, before the body is there, and nothing of it kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pamqp import commands

from gateway.pipeline.actions.table import ACTIONS
from limiter.limits import Limit, Rate
from limiter.rules.rule import Rule
from support.amqp import frames as amqp
from support.rocketmq import frames as rocketmq
from support.wires.conversations import Talk
from support.wires.wires import Wires

MIB = 1 << 20
LIMIT = Rule("small", limit=Limit(messages=Rate(1000)), open_for_ns=0, max_message_size=100)


def publish(size: int, number: int = 1, **more: Any) -> dict[str, bytes]:
    body = b"x" * size
    return {"amqp": amqp.publish(1, "orders", body, **more), "rocketmq": rocketmq.send("orders", body, opaque=number)}


def talking(protocol: str, rule: Rule = LIMIT, *, confirms: tuple[int, ...] = (1,)) -> Talk:
    talk = Talk(protocol, rule)
    if protocol == "amqp":
        talk.client(amqp.greeting(channels=(1, 2), confirms=confirms))
        talk.broker(amqp.broker_opens())
        talk.broker(amqp.opened(1, 2))
        talk.to_broker = talk.to_client = b""
    return talk


each_protocol = pytest.mark.parametrize("protocol", ["amqp", "rocketmq"])


def close(size: int = 101) -> bytes:
    text = f"PRECONDITION_FAILED - message size {size} is larger than configured max size 100 of rule small: %2F/amq.default/orders"
    return amqp.method(1, commands.Channel.Close(406, text, 60, 40))


def is_refusal(talk: Talk, protocol: str, size: int = 101) -> bool:
    """Whether all that the client heard is that its message is too large."""
    if protocol == "amqp":
        return talk.to_client == close(size)
    said = rocketmq.read_response(talk.to_client)
    return said["code"] == 13 and said["remark"] == f"[RateLimit] message body size {size} is over max_message_size 100 of rule small"


@each_protocol
@pytest.mark.parametrize("action", list(ACTIONS))
def test_it_is_refused_whatever_the_action_and_what_fits_passes(protocol: str, action: str) -> None:
    talk = talking(protocol, replace(LIMIT, action=action))
    talk.client(publish(100)[protocol])
    assert talk.to_broker == publish(100)[protocol]
    talk.client(publish(101)[protocol])
    assert is_refusal(talk, protocol)
    assert talk.forwarded == 1
    assert talk.holds_nothing()


@pytest.mark.parametrize(
    ("protocol", "size", "cut"),
    [("amqp", 5000, 1), ("amqp", 8 * MIB, 64_000), ("rocketmq", 5000, 1), ("rocketmq", 8 * MIB, 64_000)],
)
def test_the_rest_of_its_body_is_thrown_away_as_it_comes(protocol: str, size: int, cut: int) -> None:
    """RocketMQ's frames up to 1 MiB are read whole, as those that pass."""
    talk = talking(protocol)
    whole = publish(size)[protocol]
    for at in range(0, len(whole), cut):
        talk.client(whole[at : at + cut])
        assert len(talk.rest) <= (140_000 if size > MIB else size + 1000)  # a frame, or a read
        assert talk.conversation.budget.total_bytes() < 1000
    assert is_refusal(talk, protocol, size)
    assert b"xxx" not in talk.to_broker
    assert talk.holds_nothing()


def test_amqp_is_told_before_the_body_is_there() -> None:
    talk = talking("amqp")
    whole = publish(5 * MIB)["amqp"]
    talk.client(whole[:200])
    assert is_refusal(talk, "amqp", 5 * MIB)
    talk.client(whole[200:] + amqp.publish(2, "orders", b"other channel"))
    assert b"other channel" in talk.to_broker
    assert b"xxx" not in talk.to_broker


@pytest.mark.parametrize("confirms", [(), (1,)])
def test_amqps_channel_goes_on_after_the_close(confirms: tuple[int, ...]) -> None:
    talk = talking("amqp", confirms=confirms)
    talk.client(publish(101)["amqp"] + publish(1)["amqp"])
    assert talk.to_broker == close()
    talk.client(amqp.method(1, commands.Channel.CloseOk()) + amqp.method(1, commands.Channel.Open()) + publish(7)["amqp"])
    talk.broker(amqp.method(1, commands.Channel.CloseOk()))
    talk.wait(0)
    assert talk.to_broker == close() + amqp.method(1, commands.Channel.Open()) + publish(7)["amqp"]


def test_amqps_close_waits_for_what_is_held_before_it() -> None:
    talk = talking("amqp", replace(LIMIT, limit=Limit(messages=Rate(1), messages_burst=1), action="delay", max_delay_ns=2_500_000_000))
    talk.client(publish(1)["amqp"] + publish(2)["amqp"] + publish(101)["amqp"])
    assert talk.to_broker == publish(1)["amqp"]
    talk.wait(1_200_000_000)
    assert talk.to_broker == publish(1)["amqp"] + publish(2)["amqp"] + close()
    assert is_refusal(talk, "amqp")


def test_a_batch_too_large_to_be_kept_is_not_read_to_be_counted() -> None:
    talk = talking("rocketmq")
    talk.client(rocketmq.send("orders", b"x", opaque=1))
    batch = rocketmq.send("orders", rocketmq.batch_body(*[b"y" * 1000] * 3000), opaque=2, batch=True)
    assert len(batch) > 2 * MIB
    for at in range(0, len(batch), 64_000):
        talk.client(batch[at : at + 64_000])
        assert len(talk.rest) <= 128_000
    assert rocketmq.read_response(talk.to_client)["code"] == 13
    assert talk.forwarded == 1


@each_protocol
def test_it_is_counted_by_its_own_cause(protocol: str) -> None:
    with Wires(LIMIT) as wires:
        client, broker = wires.connect(protocol)
        if protocol == "amqp":
            client.sendall(amqp.greeting(channels=(1,), confirms=(1,)))
            wires.run()
            broker.sendall(amqp.broker_opens() + amqp.opened(1))
            wires.run()
        client.sendall(publish(10)[protocol] + publish(101, 2)[protocol])
        wires.run()
        wires.accounts.fold(0)
        (totals,) = wires.accounts.topics.values()
        assert (totals.received, totals.forwarded, totals.refused, totals.refused_size) == (2, 1, 1, 1)
