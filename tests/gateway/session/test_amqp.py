"""What only AMQP asks of a session: channels that wait, a close in the protocol's words. Heartbeats: test_heartbeats.py."""

from __future__ import annotations

import socket
from typing import Any

import pamqp.body
import pamqp.commands as amqp
import pamqp.frame
import pamqp.header

from gateway.clock import now_ns
from gateway.session import description
from gateway.session.ending import send_close
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.wires.wires import Wires


def method(command: Any, channel: int = 0) -> bytes:
    return pamqp.frame.marshal(command, channel)


def publish(channel: int, routing_key: str, body: bytes = b"x" * 100) -> bytes:
    properties = pamqp.header.ContentHeader(0, len(body), amqp.Basic.Properties(delivery_mode=2))
    head = method(amqp.Basic.Publish(exchange="orders", routing_key=routing_key), channel)
    return head + pamqp.frame.marshal(properties, channel) + pamqp.frame.marshal(pamqp.body.ContentBody(body), channel)


def commands(stream: bytes) -> list[tuple[int, Any]]:
    """(channel, method) of every method frame."""
    found = []
    while stream:
        size, channel, frame = pamqp.frame.unmarshal(stream)
        if hasattr(frame, "frame_id"):
            found.append((channel, frame))
        stream = stream[size:]
    return found


def names(stream: bytes) -> list[str]:
    return [frame.name for _, frame in commands(stream)]


def rule(rate: int = 1, **more: Any) -> Rule:
    limit = Limit(messages=Rate(rate), messages_burst=5)
    return Rule("limited", Match(protocol="amqp", routing_key="flood"), "topic", limit, open_for_ns=0, **more)


def open_connection(wires: Wires, heartbeat: int = 2, channels: int = 2) -> tuple[socket.socket, socket.socket]:
    """A session after its handshake, with open channels."""
    client, broker = wires.connect("amqp")
    steps = [
        (client, b"AMQP\x00\x00\x09\x01"),
        (broker, method(amqp.Connection.Start())),
        (client, method(amqp.Connection.StartOk({}, "PLAIN", "\0shop\0secret", "en_US"))),
        (broker, method(amqp.Connection.Tune(2047, 131072, heartbeat))),
        (client, method(amqp.Connection.TuneOk(2047, 131072, heartbeat)) + method(amqp.Connection.Open("/"))),
        (broker, method(amqp.Connection.OpenOk())),
    ]
    for number in range(1, channels + 1):
        steps += [(client, method(amqp.Channel.Open(), number)), (broker, method(amqp.Channel.OpenOk(), number))]
    for end, data in steps:
        end.sendall(data)
        wires.run(0.003)
        (broker if end is client else client).recv(1 << 20)
    return client, broker


def test_a_channel_without_confirms_waits_and_the_others_go_on() -> None:
    with Wires(rule()) as wires:
        client, broker = open_connection(wires)
        client.sendall(b"".join(publish(1, "flood", b"%d" % number) for number in range(20)))
        client.sendall(publish(2, "calm") + method(amqp.Basic.Qos(prefetch_count=1), 2) + method(amqp.Basic.Qos(prefetch_count=1), 1))
        wires.run()
        found = commands(wires.received(broker))
        assert [frame.name for channel, frame in found if channel == 1] == ["Basic.Publish"] * 5
        assert [frame.name for channel, frame in found if channel == 2] == ["Basic.Publish", "Basic.Qos"]
        assert description.state(wires.session(), now_ns()) == "throttled"
        assert description.bottleneck(wires.session(), now_ns()) == "limit"
        held_by = description.describe(wires.session(), now_ns())["held_by"]
        assert held_by == {"rule": rule().name, "topic": "%2F/orders/flood", "operation": "produce"}


def test_held_publishes_pass_in_order_as_tokens_come_and_a_close_waits_for_them() -> None:
    with Wires(rule(rate=500)) as wires:
        client, broker = open_connection(wires)
        client.sendall(b"".join(publish(1, "flood", b"%d" % number) for number in range(30)))
        client.sendall(method(amqp.Connection.Close(200, "bye", 0, 0)))
        wires.until(lambda: wires.session().conversation.budget.held_messages > 0)
        wires.until(lambda: wires.session().conversation.budget.held_messages == 0)
        wires.run()
        assert names(wires.received(broker)) == ["Basic.Publish"] * 30 + ["Connection.Close"]


def test_a_close_tells_both_sides_and_ends_when_they_answer() -> None:
    with Wires(rule()) as wires:
        client, broker = open_connection(wires)
        session = wires.session()
        send_close(session, "the gateway is stopping", "drain", now_ns())
        wires.sweeper.end(session)
        wires.run()
        (_, close), *_ = commands(wires.received(client))
        assert (close.name, close.reply_code) == ("Connection.Close", 320)
        assert "stopping" in close.reply_text
        assert names(wires.received(broker)) == ["Connection.Close"]
        client.sendall(method(amqp.Connection.CloseOk()))
        broker.sendall(method(amqp.Connection.CloseOk()))
        client.close()
        broker.close()
        wires.until(lambda: bool(wires.ended))
        assert wires.ended[0][0].cause == "drain"


def test_draining_waits_for_confirms_that_are_outstanding() -> None:
    with Wires(rule(rate=1000)) as wires:
        client, broker = open_connection(wires)
        client.sendall(method(amqp.Confirm.Select(), 1))
        wires.run(0.003)
        broker.sendall(method(amqp.Confirm.SelectOk(), 1))
        client.sendall(publish(1, "calm"))
        wires.run()
        session = wires.session()
        session.begin_drain()
        later = now_ns() + 10_000_000_000
        assert not session.drained(later, 1)
        broker.sendall(method(amqp.Basic.Ack(1), 1))
        wires.run()
        assert session.drained(now_ns() + 1_000_000_000, 1)


def test_a_limit_raised_live_frees_what_waits_within_half_a_second() -> None:
    from limiter.rules.rule_set import RuleSet

    with Wires(rule(rate=1)) as wires:
        client, broker = open_connection(wires)
        client.sendall(b"".join(publish(1, "flood") for _ in range(50)))
        wires.until(lambda: wires.session().conversation.budget.held_messages > 0)
        wires.judge.replace(RuleSet((rule(rate=100_000),)))
        started = wires.now()
        wires.until(lambda: wires.session().conversation.budget.held_messages == 0)
        assert wires.now() - started < 500_000_000
        wires.run()
        assert names(wires.received(broker)).count("Basic.Publish") == 50
