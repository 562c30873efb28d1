"""What a scrape sums over the open sessions, and what it tells together with those that are over."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pamqp import commands

from gateway.session.listener_config import ListenerConfig
from gateway.session.totals import SessionTotals, session_totals
from gateway.telemetry.collector import broker_flow_lines, limiter_lines
from gateway.telemetry.ports import ObservedGateway
from limiter.rules.rule_set import RuleSet
from support.amqp import frames as amqp
from support.amqp.link import Link
from support.expositions import families
from support.wires.wires import Wires

BLOCKED = amqp.method(0, commands.Connection.Blocked("low on memory"))


@pytest.fixture
def wires() -> Iterator[Wires]:
    with Wires(backlog_bytes=50_000) as made:
        yield made


def config(listener: str) -> ListenerConfig:
    return ListenerConfig(listener, "amqp", 1 << 24, 10_000_000_000)


def link(wires: Wires, at: ListenerConfig) -> Link:
    return Link(wires, connect=partial(wires.connect, config=at))


def sums(wires: Wires) -> SessionTotals:
    return session_totals(wires.sweeper.sessions, wires.now())


def about(seconds: float, wires: Wires, since: int, connections: int = 1) -> Any:
    """Nanoseconds of so many connections. What the machine has taken beside them since then may be in it."""
    expected = connections * seconds * 1e9
    return pytest.approx(expected, abs=1e9 + max(0.0, connections * (wires.now() - since) - expected))


def told(lines: Iterator[str]) -> dict[tuple[str, str], float]:
    """Of each sample with one label: its value, by name and label."""
    samples = [sample for family in families("".join(lines)) for sample in family.samples]
    return {(each.name, next(iter(each.labels.values()))): each.value for each in samples if len(each.labels) == 1}


def test_nothing_is_summed_of_no_sessions() -> None:
    found = session_totals({}, 1)
    assert (found.reader_ns, found.limiter_ns, found.flows) == (0, 0, {})
    assert (found.flow("any").blocked, found.flow("any").blocked_ns, found.flow("any").send_blocked_ns) == (0, 0, 0)


def test_blocked_brokers_are_summed_up_by_listener(wires: Wires) -> None:
    first, second = config("first"), config("second")
    links = [link(wires, first), link(wires, second), link(wires, first), link(wires, first)]
    began = wires.now()
    for each in links[:3]:
        each.answer(BLOCKED)
    wires.elapse(10)
    found = sums(wires)
    assert (found.flow("first").blocked, found.flow("second").blocked) == (2, 1)
    assert (found.flow("first").blocked_ns, found.flow("second").blocked_ns) == (about(10, wires, began, 2), about(10, wires, began))
    assert found.flow("first").send_blocked_ns == 0


def test_time_that_sends_and_stages_wait_is_summed_and_goes_on(wires: Wires) -> None:
    links = [link(wires, config("first")) for _ in range(2)]
    began = wires.now()
    for each in links:
        each.flood(each.client, amqp.publish(1, "free", b"x" * 3000))
    wires.elapse(10)
    before = sums(wires)
    assert before.flow("first").send_blocked_ns == about(10, wires, began, 2)
    waited = [each.session.forward.credit.blocked_ns(wires.now()) for each in links]
    assert before.limiter_ns == pytest.approx(sum(waited), abs=1e9)
    wires.elapse(10)
    after = sums(wires)
    assert after.flow("first").send_blocked_ns == about(20, wires, began, 2)


def test_each_stage_has_its_own_time(wires: Wires) -> None:
    one, other = link(wires, config("first")).session, link(wires, config("first")).session
    now = wires.now()
    one.decode.credit.spend(400, now - 5_000_000_000)
    other.decode.credit.spend(400, now - 2_000_000_000)
    other.forward.credit.spend(400, now - 1_000_000_000)
    found = session_totals(wires.sweeper.sessions, now)
    assert (found.reader_ns, found.limiter_ns) == (7_000_000_000, 1_000_000_000)


def test_the_brokers_times_do_not_go_back_when_a_connection_ends(wires: Wires) -> None:
    first = config("first")
    blocked = link(wires, first)
    link(wires, first)
    listening = {
        name: SimpleNamespace(name=name, config=at, protocol="amqp") for name, at in (("first", first), ("other", config("other")))
    }
    gateway = cast(ObservedGateway, SimpleNamespace(listening=listening))
    wires.at_end = lambda session, _: session.flow.close(wires.now())  # as the gateway does
    blocked.answer(BLOCKED)
    wires.elapse(10)
    before = told(broker_flow_lines(gateway, sums(wires)))
    blocked.session.abort("client", "over")
    wires.sweeper.end(blocked.session)
    assert len(wires.sweeper.sessions) == 1
    after = told(broker_flow_lines(gateway, sums(wires)))
    connections, seconds = "sluice_broker_blocked_connections", "sluice_broker_blocked_seconds_total"
    assert (before[connections, "first"], after[connections, "first"]) == (1, 0)
    assert before[seconds, "first"] == pytest.approx(10, abs=1)
    assert before[seconds, "first"] <= after[seconds, "first"] <= before[seconds, "first"] + 1
    assert (after[connections, "other"], after[seconds, "other"], after["sluice_send_blocked_seconds_total", "other"]) == (0, 0, 0)


def test_a_stages_time_is_that_of_open_connections_and_of_those_that_are_over(wires: Wires) -> None:
    gateway = SimpleNamespace(
        judge=wires.judge, rule_source=SimpleNamespace(rules=lambda: RuleSet(())), listening={}, executor=wires.executor,
        blocked_ns={"reader": 1_000_000_000, "limiter": 2_500_000_000},
        topic_limits=SimpleNamespace(rule_samples=lambda _: []),
    )  # fmt: skip
    open_now = SessionTotals()
    open_now.reader_ns = 4_000_000_000
    found = told(limiter_lines(cast(ObservedGateway, gateway), open_now))
    name = "sluice_credit_blocked_seconds_total"
    assert (found[name, "reader"], found[name, "limiter"]) == (5, 2.5)
