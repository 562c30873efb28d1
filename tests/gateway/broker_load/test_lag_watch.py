"""Limits that follow a backlog, set by looks at a broker; and kept where they are while it cannot be asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.broker_load.lag_watch import NO_LOGIN, FollowingLimit, LagWatch
from limiter.judge import Judge
from limiter.limits import SECOND, Lag, Limit, Rate
from limiter.request import Request
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from limiter.topics import amqp_topic
from support.brokers.queue_broker import Broker, Said, declared

NOW = 5 * SECOND
RULE = Rule(
    "follows", Match(queue="jobs"), limit=Limit(messages=Rate(1000), lag=Lag(100, Rate(10), queue="jobs")), algorithm="lag", open_for_ns=0
)


@pytest.fixture
def brokers() -> Iterator[list[Broker]]:
    made: list[Broker] = []
    yield made
    for broker in made:
        broker.close()


def used(rule: Rule = RULE) -> Judge:
    """A judge, one message of whose rule's topic has passed."""
    judge = Judge(RuleSet((rule,)))
    send(judge, 1)
    return judge


def send(judge: Judge, count: int) -> None:
    origin = judge.origin("amqp", "rabbit", "10.0.0.7", "shop")
    judge.decide([Request(judge.key(origin, b"jobs", amqp_topic(b"/", b"", b"jobs")), count, 1, 10)], NOW)


def rate(judge: Judge) -> str:
    (state,) = judge.states(NOW)
    assert state.rate_now is not None
    return str(state.rate_now.messages)


def watching(judge: Judge, broker: Broker | None, login: Any = lambda: ("sluice", "secret")) -> LagWatch:
    listening: dict[str, Any] = {} if broker is None else {"rabbit": SimpleNamespace(protocol="amqp", upstreams=broker.upstreams)}
    return LagWatch(
        judge, listening, {} if login is None else {"rabbit": login}, lambda identity, rate: judge.set_rate(identity, rate, NOW)
    )


async def test_a_backlog_above_the_target_slows_its_topic_down_and_one_look_alone_does_not(brokers: list[Broker]) -> None:
    judge = used()
    brokers.append(Broker([declared(50)], [declared(5000)]))
    lag_watch = watching(judge, brokers[0])
    await lag_watch.look_at_all()
    assert rate(judge) == "1000/s"
    await lag_watch.look_at_all()
    assert rate(judge) == "10/s"  # consumers have taken nothing in between
    assert lag_watch.looks == {"ok": 2, "failed": 0}
    lag_watch.close()


@pytest.mark.parametrize("acknowledged_every", [1, 5])
@pytest.mark.parametrize("gateways", [1, 2, 3])
def test_gateways_that_follow_one_backlog_let_pass_together_what_consumers_take(gateways: int, acknowledged_every: int) -> None:
    """None knows of the others; consumers take 200/s, and say so every second or every five."""
    limit = Limit(messages=Rate(1000), lag=Lag(500, Rate(20), queue="jobs"))
    made: list[Any] = [SimpleNamespace(rule=SimpleNamespace(limit=limit), admitted=0, shadow_refused=0) for _ in range(gateways)]
    ends = [FollowingLimit(bucket) for bucket in made]
    rates = [1000.0] * gateways
    taken, passed = 0, []
    for second in range(200):
        for one, rate in zip(ends, rates, strict=True):
            one.bucket.admitted += int(rate)
        there = sum(one.bucket.admitted for one in ends)
        if second % acknowledged_every == 0:
            taken = min(there, taken + 200 * acknowledged_every)
        found = [one.look(there - taken, second) for one in ends]
        rates = [
            one.controller.next_rate(limit, there - taken, *each).per_second if each else 1000.0
            for one, each in zip(ends, found, strict=True)
        ]
        passed.append(there)
    assert (passed[-1] - passed[-61]) / 60 <= 200 * 1.02
    assert passed[-1] - taken <= 5 * 500


async def test_what_a_rule_in_shadow_would_refuse_passes_and_is_taken_too(brokers: list[Broker]) -> None:
    judge = used(replace(RULE, mode="shadow"))
    send(judge, 2000)
    brokers.append(Broker([declared(150)], [declared(150)]))
    lag_watch = watching(judge, brokers[0])
    await lag_watch.look_at_all()
    send(judge, 2000)
    await lag_watch.look_at_all()
    assert rate(judge) == "1000/s", "the consumers have taken 2000 in a moment"
    lag_watch.close()


async def test_while_the_broker_cannot_be_asked_the_last_rate_holds_and_it_is_said_once(
    brokers: list[Broker], caplog: pytest.LogCaptureFixture
) -> None:
    judge = used()
    brokers.append(Broker([declared(50)], [declared(5000)]))
    lag_watch = watching(judge, brokers[0])
    for _ in range(2):
        await lag_watch.look_at_all()
    brokers[0].close()
    for _ in range(3):
        await lag_watch.look_at_all()
    assert rate(judge) == "10/s"
    assert lag_watch.looks == {"ok": 2, "failed": 3}
    lag_watch.close()


async def test_after_a_reload_has_moved_the_broker_the_new_one_is_asked(brokers: list[Broker]) -> None:
    judge = used()
    few: Said = [declared(50)]
    many: Said = [declared(5000)]
    brokers += [Broker(few, few, few, few), Broker(many, many)]
    lag_watch = watching(judge, brokers[0])
    for _ in range(2):
        await lag_watch.look_at_all()
    assert rate(judge) == "1000/s"
    brokers[0].upstreams.move([brokers[1].upstreams.members[0].address], None)
    for _ in range(2):
        await lag_watch.look_at_all()
    assert rate(judge) == "10/s"
    assert [broker.connections for broker in brokers] == [1, 1]
    lag_watch.close()


@pytest.mark.parametrize(("listener", "login", "why"), [(False, True, "not open any more"), (True, False, NO_LOGIN)])
async def test_a_limit_whose_broker_cannot_be_asked_keeps_its_highest_rate_and_the_log_says_why(
    brokers: list[Broker], listener: bool, login: bool, why: str
) -> None:
    judge = used()
    brokers.append(Broker())
    lag_watch = watching(judge, brokers[0] if listener else None, (lambda: ("sluice", "secret")) if login else None)
    await lag_watch.look_at_all()
    assert rate(judge) == "1000/s"
    (followed,) = lag_watch.followed.values()
    assert why in followed.trouble


async def test_a_limit_that_follows_no_more_is_forgotten(brokers: list[Broker]) -> None:
    judge = used()
    brokers.append(Broker([declared(1)], [declared(1)]))
    lag_watch = watching(judge, brokers[0])
    await lag_watch.look_at_all()
    plain = Rule("follows", Match(queue="jobs"), limit=Limit(messages=Rate(1000)))
    judge.replace(RuleSet((plain,)), NOW)
    assert judge.states(NOW) != []  # which brings what is in use under the rules in force
    await lag_watch.look_at_all()
    assert lag_watch.followed == {}
    lag_watch.close()
