"""What only AMQP asks of a session: channels that wait, a close in the protocol's words. Heartbeats: test_heartbeats.py."""

from __future__ import annotations

from typing import Any

from pamqp import commands

from common.views.connections import HeldView
from gateway.clock import now_ns
from gateway.session import description
from gateway.session.ending import send_close
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.amqp import frames as amqp
from support.amqp.link import Link
from support.wires.wires import Wires

FLOOD = amqp.publish(1, "flood", b"x" * 100, exchange="orders")


def rule(rate: int = 1, **more: Any) -> Rule:
    limit = Limit(messages=Rate(rate), messages_burst=5)
    return Rule("limited", Match(protocol="amqp", routing_key="flood"), "topic", limit, open_for_ns=0, **more)


def methods(data: bytes, channel: int) -> list[str]:
    return [frame.name for frame in amqp.read(data) if frame.channel == channel and not frame.name.startswith("Content")]


def test_a_channel_without_confirms_waits_and_the_others_go_on() -> None:
    with Wires(rule()) as wires:
        link = Link(wires)
        qos = commands.Basic.Qos(prefetch_count=1)
        link.say(FLOOD * 20 + amqp.publish(2, "calm", exchange="orders") + amqp.method(2, qos) + amqp.method(1, qos))
        wires.run()
        found = link.at_broker()
        assert methods(found, 1) == ["Basic.Publish"] * 5
        assert methods(found, 2) == ["Basic.Publish", "Basic.Qos"]
        assert description.state(link.session, now_ns()) == "throttled"
        assert description.bottleneck(link.session, now_ns()) == "limit"
        held_by = description.describe(link.session, now_ns()).held_by
        assert held_by == HeldView(rule=rule().name, topic="%2F/orders/flood", operation="produce")


def test_held_publishes_pass_in_order_as_tokens_come_and_a_close_waits_for_them() -> None:
    with Wires(rule(rate=500)) as wires:
        link = Link(wires)
        bodies = [b"%d" % number for number in range(30)]
        link.say(b"".join(amqp.publish(1, "flood", body, exchange="orders") for body in bodies))
        link.say(amqp.method(0, commands.Connection.Close(200, "bye", 0, 0)))
        wires.until(lambda: link.session.conversation.budget.held_messages == 0)
        wires.run()
        found = amqp.read(link.at_broker())
        assert [frame.value.value for frame in found if frame.name == "ContentBody"] == bodies
        assert found[-1].name == "Connection.Close"


def test_a_close_tells_both_sides_and_ends_when_they_answer() -> None:
    with Wires(rule()) as wires:
        link = Link(wires)
        send_close(link.session, "the gateway is stopping", "drain", now_ns())
        wires.sweeper.end(link.session)
        wires.run()
        close = link.close_of(link.at_client())
        assert (close.reply_code, "stopping" in close.reply_text) == (320, True)
        assert amqp.names(link.at_broker()) == ["Connection.Close"]
        for end in (link.client, link.broker):
            end.sendall(amqp.method(0, commands.Connection.CloseOk()))
            end.close()
        wires.until(lambda: bool(wires.ended))
        assert wires.ended[0][0].cause == "drain"


def test_draining_waits_for_confirms_that_are_outstanding() -> None:
    with Wires(rule(rate=1000)) as wires:
        link = Link(wires, confirms=(1,))
        link.answer(amqp.method(1, commands.Confirm.SelectOk()))
        link.say(amqp.publish(1, "calm", exchange="orders"))
        link.session.begin_drain()
        assert not link.session.drained(now_ns() + 10_000_000_000, 1)
        link.answer(amqp.ack(1, 1))
        wires.run()
        assert link.session.drained(now_ns() + 1_000_000_000, 1)


def test_a_limit_raised_live_frees_what_waits_within_half_a_second() -> None:
    with Wires(rule()) as wires:
        link = Link(wires)
        link.say(FLOOD * 50)
        wires.until(lambda: link.session.conversation.budget.held_messages > 0)
        wires.judge.replace(RuleSet((rule(rate=100_000),)))
        started = wires.now()
        wires.until(lambda: link.session.conversation.budget.held_messages == 0)
        assert wires.now() - started < 500_000_000
        wires.run()
        assert amqp.names(link.at_broker()).count("Basic.Publish") == 50
