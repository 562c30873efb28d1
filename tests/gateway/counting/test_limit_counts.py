"""What a limit has counted, and whose it says it is: what was only held is not refused, and a text names the bucket that was empty."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from limiter.limit_state import LimitState
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.amqp import frames as amqp
from support.rocketmq import frames as rocketmq
from support.wires.wires import Wires

FIVE = Limit(messages=Rate(5, 60_000_000_000), messages_burst=5)


def only(wires: Wires) -> LimitState:
    (state,) = wires.judge.states(0)
    return state


def counts(wires: Wires) -> tuple[int, int, int, int]:
    state = only(wires)
    return state.admitted, state.over_limit, state.held, state.refused


@pytest.mark.parametrize(
    ("said", "confirms", "expected"),
    [
        ({"action": "reject"}, (1,), (5, 3, 0, 3)),
        ({"action": "reject"}, (), (5, 3, 3, 0)),  # without confirms they wait: fallback delay
        ({"action": "delay", "max_delay_ns": 8_000_000_000}, (1,), (5, 3, 3, 0)),
        ({"action": "block"}, (1,), (5, 3, 3, 0)),
        ({"action": "drop"}, (), (5, 3, 0, 3)),
    ],
)
def test_held_messages_are_not_counted_as_refused(said: dict[str, Any], confirms: tuple[int, ...], expected: tuple[int, ...]) -> None:
    with Wires(Rule("r", Match(protocol="amqp"), limit=FIVE, open_for_ns=0, **said)) as wires:
        client, broker = wires.connect("amqp")
        broker.sendall(amqp.broker_opens())
        client.sendall(amqp.greeting(channels=(1,), confirms=confirms))
        wires.run()
        client.sendall(b"".join(amqp.publish(1, "orders", b"x") for _ in range(8)))
        wires.run()
        assert counts(wires) == expected


def test_deliveries_that_wait_are_held_and_never_refused() -> None:
    with Wires(Rule("jobs", Match(queue="jobs", operation="consume"), limit=FIVE)) as wires:
        client, broker = wires.connect("amqp")
        client.sendall(amqp.greeting(channels=(1,)))
        broker.sendall(amqp.broker_start() + amqp.method(0, commands.Connection.OpenOk()))
        client.sendall(amqp.method(1, commands.Basic.Consume(queue="jobs", consumer_tag="c", nowait=True)))
        wires.run()
        broker.sendall(b"".join(amqp.deliver(1, b"x", tag=tag) for tag in range(1, 9)))
        wires.run()
        assert counts(wires) == (5, 3, 3, 0)


def test_rocketmq_counts_the_same() -> None:
    with Wires(Rule("r", Match(protocol="rocketmq"), limit=FIVE, open_for_ns=0)) as wires:
        client, _ = wires.connect("rocketmq")
        client.sendall(b"".join(rocketmq.send("orders", opaque=number) for number in range(8)))
        wires.run()
        assert counts(wires) == (5, 3, 0, 3)


@pytest.mark.parametrize(
    ("per", "text"),
    [
        ("topic", "RATE_LIMITED - %2F/x/orders is over its limit of 5/min of rule r, wait "),
        ("exchange", "RATE_LIMITED - exchange %2F/x is over its limit of 5/min of rule r (%2F/x/orders), wait "),
        ("vhost", "RATE_LIMITED - vhost %2F is over its limit of 5/min of rule r (%2F/x/orders), wait "),
        ("rule", "RATE_LIMITED - rule r is over its limit of 5/min (%2F/x/orders), wait "),
        ("listener", "RATE_LIMITED - %2F/x/orders is over its share of the cap of 5/min of rule r, wait "),
        ("connection", "RATE_LIMITED - connection 1 is over its limit of 5/min of rule r (%2F/x/orders), wait "),
    ],
)
def test_a_refusals_text_names_the_owner_of_the_limit(per: str, text: str) -> None:
    with Wires(Rule("r", Match(protocol="amqp"), per=per, limit=FIVE, open_for_ns=0)) as wires:
        client, broker = wires.connect("amqp")
        broker.sendall(amqp.broker_opens())
        client.sendall(amqp.greeting(channels=(1,), confirms=(1,)))
        wires.run()
        broker.sendall(amqp.opened(1))
        wires.run()
        wires.received(client)
        client.sendall(b"".join(amqp.publish(1, "orders", b"x", exchange="x", mandatory=True) for _ in range(6)))
        wires.run()
        (returned,) = [frame.value for frame in amqp.read(wires.received(client)) if frame.name == "Basic.Return"]
        assert returned.reply_text.startswith(text)
        assert returned.reply_text.endswith(" ms")
