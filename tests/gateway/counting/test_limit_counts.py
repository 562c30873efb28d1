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
    limit = Limit(messages=Rate(2, 3_000_000_000), messages_burst=5)  # of a slower one the gateway takes one at a time
    with Wires(Rule("jobs", Match(queue="jobs", operation="consume"), limit=limit)) as wires:
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
    ("said", "one_way", "expected"),
    [
        ({"action": "reject"}, False, {"refused": 6, "refused_bytes": 140, "dropped": 0, "delayed": 0}),
        ({"action": "reject"}, True, {"refused": 0, "refused_bytes": 0, "dropped": 6, "delayed": 0}),
        ({"action": "drop"}, False, {"refused": 0, "refused_bytes": 0, "dropped": 6, "delayed": 0}),
        ({"action": "block"}, False, {"refused": 0, "refused_bytes": 0, "dropped": 0, "delayed": 6}),
    ],
)
@pytest.mark.parametrize("per", ["topic", "listener"])
def test_a_batch_counts_all_its_messages_whatever_becomes_of_it(
    said: dict[str, Any], one_way: bool, expected: dict[str, int], per: str
) -> None:
    """Two of three batches of three messages, each of 70 bytes, are over the limit."""
    with Wires(Rule("r", Match(protocol="rocketmq"), per=per, limit=FIVE, open_for_ns=0, **said)) as wires:
        client, _ = wires.connect("rocketmq")
        body = rocketmq.batch_body(b"ab", b"c", b"d", properties=b"")
        client.sendall(b"".join(rocketmq.send("orders", body, opaque=at, code=320, batch=True, one_way=one_way) for at in range(3)))
        wires.run()
        wires.accounts.fold(0)
        (totals,) = wires.accounts.topics.values()
        assert {name: getattr(totals, name) for name in expected} == expected
        assert (totals.received, totals.forwarded) == (9, 3)
        assert totals.refused_share == (totals.refused if per == "listener" else 0)
        assert counts(wires) == (3, 6, expected["delayed"], expected["refused"] + expected["dropped"])


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
