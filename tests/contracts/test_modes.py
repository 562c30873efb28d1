"""What each mode promises, over every action and algorithm, for what is published and for what is consumed: `shadow` is judged and counted
in full and never enforced, `off` is not judged, and `enforce` is (so that these tests could fail).
"""

from __future__ import annotations

import re
import socket
from dataclasses import replace

import pytest
from pamqp import commands

from limiter.algorithms import ALGORITHMS
from limiter.algorithms.setting_errors import has_burst
from limiter.judge import Judge, LimitState
from limiter.limits import Lag, Limit, LimitChange, Rate
from limiter.protocols import PROTOCOL_NAMES
from limiter.rules.actions import ACTIONS
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.amqp import frames as amqp
from support.cases import in_one_loop
from support.models.asking import SECOND, ask, key_of
from support.rocketmq import frames as rocketmq
from support.rocketmq.stored_messages import found, pull, stored
from support.wires.wires import Wires

FLOOD = 12  # messages at once, of which the limits below let one or two pass
ONE = Rate(1)
LIMITS = {  # a new algorithm is added here, or this suite fails
    "token_bucket": Limit(messages=ONE),
    "pacing": Limit(messages=ONE),
    "warm_up": Limit(messages=ONE),
    "concurrency": Limit(concurrent=2),
    "adaptive": Limit(concurrent=2),
    "lag": Limit(messages=ONE, lag=Lag(target=10, slowest=ONE, group="billing")),
}
RATES = ("token_bucket", "pacing", "warm_up")
PROTOCOLS = ("amqp", "rocketmq")

every_algorithm = pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
every_action = pytest.mark.parametrize("action", ACTIONS)
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)
every_action_of_each_protocol = pytest.mark.parametrize(
    ("protocol", "action"),
    [(names.name, action) for names in PROTOCOL_NAMES.values() for action in ACTIONS if action != "spool" or names.spools],
)


def rule(mode: str, algorithm: str, action: str = "reject", operation: str = "produce", protocol: str | None = None) -> Rule:
    limit = LIMITS[algorithm]
    if limit.lag is not None and protocol == "amqp":
        limit = replace(limit, lag=replace(limit.lag, group="", queue="orders"))
    match = Match(protocol=protocol, operation=operation)
    return Rule("limited", match, limit=limit, algorithm=algorithm, action=action, mode=mode, fallback="delay")


def flood(protocol: str) -> bytes:
    if protocol == "rocketmq":
        return b"".join(rocketmq.send("orders", opaque=opaque) for opaque in range(1, FLOOD + 1))
    return b"".join(amqp.publish(1, "orders", b"%06d" % number) for number in range(FLOOD))


def connected(wires: Wires, protocol: str) -> tuple[socket.socket, socket.socket]:
    client, broker = wires.connect(protocol)
    if protocol == "amqp":
        client.sendall(amqp.greeting(channels=(1,), confirms=(1,)))
        broker.sendall(amqp.broker_start() + amqp.method(0, commands.Connection.OpenOk()))
        wires.run(0.003)
        wires.received(client)
        wires.received(broker)
    return client, broker


def state_of(wires: Wires) -> LimitState:
    (state,) = wires.judge.states(wires.now())
    return state


def totals(wires: Wires, protocol: str) -> dict[str, int]:
    return wires.totals(protocol, "orders" if protocol == "rocketmq" else "%2F/amq.default/orders")


@every_action_of_each_protocol
@every_algorithm
def test_shadow_enforces_nothing_and_counts_all(protocol: str, action: str, algorithm: str) -> None:
    with Wires(rule("shadow", algorithm, action, protocol=protocol)) as wires:
        client, broker = connected(wires, protocol)
        client.sendall(flood(protocol))
        wires.run(0.003)
        assert wires.received(broker) == flood(protocol)
        assert wires.received(client) == b""
        assert not wires.session().withheld()
        counted = totals(wires, protocol)
        assert (counted["received"], counted["forwarded"]) == (FLOOD, FLOOD)
        assert not any(counted[fate] for fate in ("refused", "dropped", "delayed", "abandoned", "waiting", "bypassed"))
        state = state_of(wires)
        assert 0 < state.shadow_refused < FLOOD
        assert state.admitted + state.shadow_refused == FLOOD
        assert (state.over_limit, state.refused, state.held) == (0, 0, 0)
        checks = {"ok": state.admitted, "limited_shadow": state.shadow_refused, "limited_enforced": 0}
        assert wires.judge.checks() == checks


@every_action_of_each_protocol
@every_algorithm
def test_enforce_does_not_let_all_of_it_pass(protocol: str, action: str, algorithm: str) -> None:
    with Wires(rule("enforce", algorithm, action, protocol=protocol)) as wires:
        client, broker = connected(wires, protocol)
        client.sendall(flood(protocol))
        wires.run(0.003)
        assert wires.received(broker) != flood(protocol)
        assert wires.judge.checks()["limited_enforced"] > 0


@every_action_of_each_protocol
def test_off_judges_nothing(protocol: str, action: str) -> None:
    with Wires(rule("off", "token_bucket", action)) as wires:
        client, broker = connected(wires, protocol)
        client.sendall(flood(protocol))
        wires.run(0.003)
        assert wires.received(broker) == flood(protocol)
        assert wires.judge.states(wires.now()) == []
        assert wires.judge.checks() == {"ok": 0, "limited_shadow": 0, "limited_enforced": 0}


@pytest.mark.parametrize(
    ("algorithm", "open_for_ns"),
    [
        (algorithm, open_for_ns)
        for algorithm in sorted(ALGORITHMS)
        for open_for_ns in (0, SECOND // 2)
        if not open_for_ns or has_burst(algorithm)
    ],
)
def test_a_shadow_is_judged_as_the_enforced_limit_would_be(algorithm: str, open_for_ns: int) -> None:
    """The same demand at the same times: as many admitted, as many over the limit, the same fill, the same breaker."""
    limit = LIMITS[algorithm]
    limit = replace(limit, messages=Rate(20), bytes=Rate(3000)) if limit.messages is not None else replace(limit, concurrent=4)
    match = Match(protocol="rocketmq")
    seen = []
    for mode in ("enforce", "shadow"):
        judge = Judge(RuleSet((Rule("r", match, limit=limit, algorithm=algorithm, open_for_ns=open_for_ns, mode=mode),)))
        key = key_of(judge, "orders")
        for step in range(60):
            ask(judge, key, 5 * SECOND + step * SECOND // 23, count=step % 5 + 1, messages=step % 2 + 1, size=40 * (step % 4))
        (state,) = judge.states(8 * SECOND)
        over = state.over_limit if mode == "enforce" else state.shadow_refused
        seen.append((state.admitted, state.admitted_bytes, over, state.fill, state.breaker, state.last_refused_at))
    enforced, shadow = seen
    assert enforced == shadow
    assert enforced[2] > 0


@every_action_of_each_protocol
@pytest.mark.parametrize("mode", ["enforce", "shadow"])
def test_a_candidate_sees_all_that_arrives_once_and_nothing_else_changes(protocol: str, action: str, mode: str) -> None:
    plain = rule(mode, "token_bucket", action, protocol=protocol)
    said = []
    for each in (plain, replace(plain, candidate=LimitChange(messages=Rate(5)))):
        with Wires(each) as wires:
            client, broker = connected(wires, protocol)
            client.sendall(flood(protocol))
            wires.run(0.003)
            said.append((wires.received(broker), totals(wires, protocol), bool(wires.received(client)), wires.session().withheld()))
            wires.elapse(0.3)  # what is held is judged again
            counts = wires.judge.candidates(wires.now()).get("limited")
    assert said[0] == said[1]
    assert counts is not None
    assert (counts.admitted, counts.refused, counts.clients) == (5, FLOOD - 5, {"10.0.0.7": FLOOD - 5})


@in_one_loop
@pytest.mark.parametrize("action", ["reject", "delay", "block"])
@pytest.mark.parametrize("algorithm", RATES)
@pytest.mark.parametrize("mode", ["shadow", "enforce"])
def test_amqp_consumers_get_every_delivery_in_shadow_and_not_every_one_in_enforce(action: str, algorithm: str, mode: str) -> None:
    with Wires(rule(mode, algorithm, action, "consume")) as wires:
        client, broker = connected(wires, "amqp")
        client.sendall(amqp.method(1, commands.Basic.Consume(queue="jobs", consumer_tag="c", nowait=True)))
        wires.run(0.003)
        wires.received(broker)
        said = b"".join(amqp.deliver(1, b"x", tag=tag) for tag in range(1, FLOOD + 1))
        broker.sendall(said)
        wires.run(0.003)
        arrived = wires.received(client)
        state = state_of(wires)
        if mode == "shadow":
            assert (arrived, state.held, state.over_limit) == (said, 0, 0)
            assert state.admitted + state.shadow_refused == FLOOD
            assert state.shadow_refused > 0
        else:
            assert arrived != said
            assert (state.shadow_refused, state.over_limit > 0) == (0, True)


@in_one_loop
@pytest.mark.parametrize("action", ["reject", "delay", "block"])
@pytest.mark.parametrize("algorithm", RATES)
@pytest.mark.parametrize("mode", ["shadow", "enforce"])
def test_rocketmq_consumers_polls_all_pass_in_shadow_and_only_the_first_in_enforce(action: str, algorithm: str, mode: str) -> None:
    with Wires(rule(mode, algorithm, action, "consume")) as wires:
        client, broker = wires.connect("rocketmq")
        asked = [pull("orders", queue=number, opaque=number + 1) for number in range(3)]
        client.sendall(b"".join(asked))
        wires.run(0.003)
        if mode == "enforce":
            assert re.findall(rb'"opaque": ?(\d+)', wires.received(broker)) == [b"1"]  # for as many messages as pass in a second
            return
        assert wires.received(broker) == b"".join(asked)
        said = b"".join(found(opaque, *[stored()] * 4) for opaque in (1, 2, 3))
        broker.sendall(said)
        wires.run(0.003)
        assert wires.received(client) == said
        state = state_of(wires)
        assert (state.admitted + state.shadow_refused, state.held, state.over_limit) == (12, 0, 0)
        assert state.shadow_refused > 0
