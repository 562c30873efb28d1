"""Actions that reach beyond one message, on real sessions: a channel closed, a client not read, a connection ended."""

from __future__ import annotations

import socket
from typing import Any

import pamqp.commands as amqp
import pytest

from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.amqp import frames
from support.amqp.link import Link
from support.rocketmq import frames as rocketmq
from support.wires.wires import Wires

CAPABILITIES = {"connection.blocked": True}


def rule(action: str, rate: int = 1, protocol: str = "amqp", **more: Any) -> Rule:
    limit = Limit(messages=Rate(rate), messages_burst=1)
    return Rule("limited", Match(protocol=protocol), limit=limit, open_for_ns=0, action=action, **more)


def connected(wires: Wires) -> tuple[socket.socket, socket.socket]:
    """An AMQP session after its handshake, with channels 1 and 2 open."""
    client, broker = wires.connect("amqp")
    client.sendall(frames.greeting(capabilities=CAPABILITIES, heartbeat=2))
    wires.run(0.003)
    broker.sendall(frames.broker_opens())
    for number in (1, 2):
        client.sendall(frames.method(number, amqp.Channel.Open()))
        wires.run(0.003)
        broker.sendall(frames.method(number, amqp.Channel.OpenOk()))
    wires.run(0.003)
    wires.received(client)
    wires.received(broker)
    return client, broker


def flood(key: str, count: int, channel: int = 1) -> bytes:
    return b"".join(frames.publish(channel, key, b"%06d" % number) for number in range(count))


def on(data: bytes, channel: int) -> list[str]:
    return [frame.name for frame in frames.read(data) if frame.channel == channel]


def test_a_closed_channel_can_be_opened_again_and_its_messages_are_all_accounted_for() -> None:
    with Wires(rule("close")) as wires:
        client, broker = connected(wires)
        client.sendall(flood("orders", 5))
        wires.run(0.003)
        assert on(wires.received(client), 1) == ["Channel.Close"]
        assert on(wires.received(broker), 1) == ["Basic.Publish", "ContentHeader", "ContentBody", "Channel.Close"]
        client.sendall(frames.method(1, amqp.Channel.CloseOk()) + frames.method(1, amqp.Channel.Open()))
        wires.run(0.003)
        assert wires.received(broker) == b""
        broker.sendall(frames.method(1, amqp.Channel.CloseOk()))
        wires.run(0.003)
        assert on(wires.received(broker), 1) == ["Channel.Open"]
        totals = wires.totals("amqp", "%2F/amq.default/orders")
        assert (totals["received"], totals["forwarded"], totals["refused"], totals["waiting"]) == (5, 1, 4, 0)


def test_a_blocked_client_is_not_read_and_the_broker_hears_heartbeats() -> None:
    with Wires(rule("block")) as wires:
        client, broker = connected(wires)
        client.sendall(flood("orders", 2))
        wires.run(0.003)
        client.sendall(frames.publish(2, "calm"))
        wires.run(0.003)
        session = wires.session()
        assert session.withheld()
        assert on(wires.received(broker), 2) == []
        assert on(wires.received(client), 0) == ["Connection.Blocked"]
        wires.elapse(0.75)
        assert frames.HEARTBEAT not in wires.received(broker)
        wires.elapse(0.75)
        assert frames.HEARTBEAT in wires.received(broker)


def test_the_brokers_deliveries_still_reach_a_blocked_client() -> None:
    with Wires(rule("block")) as wires:
        client, broker = connected(wires)
        client.sendall(flood("orders", 2))
        wires.run(0.003)
        broker.sendall(frames.deliver(2, b"x" * 50_000))
        wires.run(0.003)
        assert on(wires.received(client), 2) == ["Basic.Deliver", "ContentHeader", "ContentBody"]


def test_all_of_a_blocked_flood_arrives_in_order_and_the_client_is_told_when_it_is_over() -> None:
    with Wires(rule("block", rate=500)) as wires:
        client, broker = connected(wires)
        client.sendall(flood("orders", 50))
        arrived = b""

        def all_there() -> bool:
            nonlocal arrived
            arrived += wires.received(broker)
            return arrived.endswith(flood("orders", 50)[-50:])

        wires.until(all_there)
        assert arrived == flood("orders", 50)
        assert not wires.session().withheld()
        wires.elapse(0.5)
        told = [name for name in on(wires.received(client), 0) if name != "Heartbeat"]  # on a busy machine the flood may take seconds
        assert told == ["Connection.Blocked", "Connection.Unblocked"]


def test_what_a_client_was_blocked_for_goes_on_when_it_has_gone_away() -> None:
    with Wires(rule("block", rate=0)) as wires:
        link = Link(wires)
        link.say(flood("orders", 3))
        wires.until(lambda: link.session.conversation.budget.blocking > 0)
        link.client.close()
        wires.elapse(70)
        assert not wires.ended, "however long that takes"
        wires.judge.replace(RuleSet(()))
        wires.elapse(1)
        assert on(link.end_in_words(), 1).count("Basic.Publish") == 3
        assert wires.totals("amqp", "%2F/amq.default/orders")["abandoned"] == 0


def test_a_broker_that_goes_away_frees_a_blocked_client() -> None:
    with Wires(rule("block", rate=0)) as wires:
        client, broker = connected(wires)
        client.sendall(flood("orders", 3))
        wires.until(lambda: wires.session().conversation.budget.blocking > 0)
        broker.close()
        wires.run(0.003)
        client.close()
        wires.until(lambda: bool(wires.ended))
        assert wires.totals("amqp", "%2F/amq.default/orders")["abandoned"] == 3


def test_memory_above_the_high_watermark_is_reported_to_the_clients_it_stops() -> None:
    with Wires(rule("delay")) as wires:
        client, _ = connected(wires)
        other, _ = connected(wires)
        client.sendall(flood("orders", 2))
        wires.run(0.003)
        wires.shared.memory_full = True
        wires.sweeper.poke_all()
        wires.run(0.003)
        assert on(wires.received(client), 0) == ["Connection.Blocked"]
        assert wires.received(other) == b""
        wires.shared.memory_full = False
        wires.sweeper.poke_all()
        wires.run(0.003)
        wires.elapse(0.5)
        assert on(wires.received(client), 0) == ["Connection.Unblocked"]


def test_a_rocketmq_connection_is_ended_in_order_and_counted_by_its_cause() -> None:
    with Wires(rule("close", protocol="rocketmq")) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(rocketmq.send("orders", opaque=1) + rocketmq.send("orders", opaque=2))
        wires.run(0.003)
        assert wires.received(broker) == rocketmq.send("orders", opaque=1)
        assert client.recv(100) == b""
        client.close()
        broker.close()
        wires.until(lambda: bool(wires.ended))
        assert [session.cause for session, _ in wires.ended] == ["limit"]
        assert wires.totals("rocketmq", "orders")["refused"] == 1


def test_a_blocked_rocketmq_client_is_not_read_until_its_send_is_settled() -> None:
    with Wires(rule("block", protocol="rocketmq", rate=20)) as wires:
        client, broker = wires.connect("rocketmq")
        client.sendall(rocketmq.send("orders", opaque=1) + rocketmq.send("orders", opaque=2))
        wires.until(lambda: wires.session().conversation.budget.blocking > 0)
        assert wires.session().withheld()
        client.sendall(rocketmq.heartbeat(opaque=3))
        wires.until(lambda: wires.session().conversation.budget.blocking == 0)
        wires.run()
        expected = rocketmq.send("orders", opaque=1) + rocketmq.send("orders", opaque=2) + rocketmq.heartbeat(opaque=3)
        assert wires.received(broker) == expected


@pytest.mark.parametrize(("action", "fewest", "most"), [("delay", 400, 900), ("block", 400, 900), ("reject", None, None)])
def test_how_long_a_topics_messages_waited_is_told(action: str, fewest: int | None, most: int | None) -> None:
    """Five a tenth of a second apart, so the last waits 0.4 s at least; a topic that nothing holds has waited for nothing."""
    more = {"max_delay_ns": 8 * 10**9} if action == "delay" else {"fallback": "drop"} if action == "reject" else {}
    with Wires(rule(action, rate=10, **more)) as wires:
        client, _ = connected(wires)
        client.sendall(flood("orders", 5))
        started = wires.now()
        wires.run(0.003)
        wires.until(lambda: wires.totals("amqp", "%2F/amq.default/orders")["received"] == 5)
        wires.until(lambda: wires.totals("amqp", "%2F/amq.default/orders")["waiting"] == 0)
        took_ms = (wires.now() - started) / 1e6
        found = wires.accounts.waits.p99_ms(("amqp", "%2F/amq.default/orders", "produce"), wires.now())
        if fewest is None:
            assert found is None
        else:
            assert found is not None
            assert fewest * 0.9 <= found <= max(most or 0, took_ms * 1.2)
        assert wires.accounts.waits.p99_ms(("amqp", "%2F/amq.default/calm", "produce"), wires.now()) is None
