"""The broker's own flow control, seen and shown: blocked, sends that wait, confirms that take time, and who is the bottleneck."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import to_builtins
from pamqp import commands

from gateway.pipeline.reports import BusySignal
from gateway.session import description
from gateway.session.broker_flow import BrokerFlow
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules.rule_set import Match, Rule
from support.amqp import frames as amqp
from support.amqp.link import Link
from support.processes import HANG_S
from support.wires.wires import Decide, Wires

BLOCKED = amqp.method(0, commands.Connection.Blocked("low on memory"))
UNBLOCKED = amqp.method(0, commands.Connection.Unblocked())


def never() -> Rule:
    return Rule("never", Match(protocol="amqp", routing_key="never"), "topic", Limit(messages=Rate(0)), open_for_ns=0)


@pytest.fixture
def wires() -> Iterator[Wires]:
    with Wires(never(), backlog_bytes=50_000) as made:
        yield made


def shown(link: Link) -> dict[str, object]:
    found: dict[str, object] = to_builtins(description.describe(link.session, link.wires.now()))
    return found


def seconds(item: dict[str, object], name: str) -> float:
    value = item[name]
    assert isinstance(value, float)
    return value


def names(link: Link) -> tuple[object, object]:
    item = shown(link)
    return item["state"], item["bottleneck"]


def stages(link: Link) -> list[dict[str, Any]]:
    """The reader's and the limiter's."""
    credit: Any = shown(link)["credit"]
    return [credit["reader"], credit["limiter"]]


def latency(link: Link) -> tuple[int, float]:
    """How many confirms were timed, and the sum in seconds."""
    histogram = link.session.listener_config.flow.confirm_latency
    return sum(histogram.counts), histogram.sum


# ---- connection.blocked ------------------------------------------------------------------------------------------------


def test_a_blocked_broker_is_seen_timed_and_named(wires: Wires) -> None:
    link = Link(wires)
    link.answer(BLOCKED)
    wires.elapse(30)
    item = shown(link)
    flow = link.session.listener_config.flow
    assert (flow.blocked_now, flow.blocked_reason, flow.blocked_since > 0) == (1, "low on memory", True)
    assert (item["state"], item["bottleneck"], item["broker_blocked"]) == ("blocked", "broker_blocked", True)
    assert seconds(item, "broker_blocked_seconds") == pytest.approx(30, abs=1)
    link.answer(UNBLOCKED)
    wires.elapse(30)
    item = shown(link)
    assert (item["state"], item["bottleneck"], item["broker_blocked"]) == ("running", "none", False)
    assert seconds(item, "broker_blocked_seconds") == pytest.approx(30, abs=1)
    assert (flow.blocked_now, flow.blocked_reason, flow.blocked_since) == (0, "", 0.0)


def test_when_a_connection_is_over_its_times_are_its_listeners(wires: Wires) -> None:
    link = Link(wires)
    link.answer(BLOCKED)
    wires.elapse(5)
    flow = link.session.listener_config.flow
    assert (flow.blocked_ns, flow.blocked_now) == (0, 1)
    link.session.flow.close(wires.now())
    assert flow.blocked_ns == pytest.approx(5e9, abs=1e9)
    assert flow.blocked_now == 0


# ---- sends that wait ---------------------------------------------------------------------------------------------------


def test_time_blocked_in_sends_is_counted_and_the_broker_named(wires: Wires) -> None:
    link = Link(wires)
    link.flood(link.client, amqp.publish(1, "free", b"x" * 3000))
    assert names(link) == ("flow", "broker")
    wires.elapse(20)
    assert seconds(shown(link), "send_blocked_seconds") == pytest.approx(20, abs=1)
    link.at_broker()
    wires.elapse(20)
    assert seconds(shown(link), "send_blocked_seconds") == pytest.approx(20, abs=1)
    assert names(link) == ("running", "none")


# ---- confirms ----------------------------------------------------------------------------------------------------------


def test_the_time_to_a_confirm_is_measured(wires: Wires) -> None:
    link = Link(wires, confirms=(1, 2))
    link.say(amqp.publish(1, "free") * 3 + amqp.publish(2, "free"))
    wires.elapse(2)
    link.answer(amqp.ack(2, 1))  # another channel's: one publish is timed at a time
    assert latency(link)[0] == 0
    link.answer(amqp.ack(1, 1))
    count, total = latency(link)
    assert count == 1
    assert total == pytest.approx(2, abs=0.5)
    link.answer(amqp.ack(1, 3, multiple=True))
    assert latency(link)[0] == 1, "the others were not timed"
    link.say(amqp.publish(1, "free"))
    wires.elapse(1)
    link.answer(amqp.nack(1, 4))
    count, total = latency(link)
    assert count == 2
    assert total == pytest.approx(3, abs=0.5)


def test_a_publish_that_will_never_be_confirmed_is_not_timed_and_does_not_end_the_timing(wires: Wires) -> None:
    link = Link(wires, confirms=(1, 2))
    link.say(amqp.publish(1, "free"))
    wires.elapse(5)
    link.answer(amqp.method(1, commands.Channel.Close(404, "NOT_FOUND", 60, 40)))
    assert latency(link) == (0, 0.0)
    link.say(amqp.publish(2, "free"))
    wires.elapse(1)
    link.answer(amqp.ack(2, 1))
    count, total = latency(link)
    assert count == 1
    assert total == pytest.approx(1, abs=0.5), "not from the lost one's time on"


def test_a_refused_publish_is_not_timed(wires: Wires) -> None:
    link = Link(wires, confirms=(1,))
    link.say(amqp.publish(1, "never"))
    wires.elapse(5)
    link.say(amqp.publish(1, "free"))
    link.answer(amqp.ack(1, 1))
    count, total = latency(link)
    assert count == 1
    assert total < 1


# ---- the bottleneck ----------------------------------------------------------------------------------------------------


def test_nothing_holds_up_an_idle_connection_or_a_burst_that_was_judged_at_once(wires: Wires) -> None:
    link = Link(wires)
    assert names(link) == ("running", "none")
    link.say(amqp.publish(1, "free", b"") * 600)  # more than there is credit
    assert link.at_broker().count(b"free") == 600
    assert names(link) == ("running", "none")


def test_a_connection_held_by_a_rule_names_the_limit_as_its_bottleneck(wires: Wires) -> None:
    link = Link(wires)
    link.say(amqp.publish(1, "never"))
    assert names(link) == ("throttled", "limit")
    link.answer(BLOCKED)
    assert names(link) == ("blocked", "broker_blocked"), "no limit helps while the broker takes nothing"


def test_a_client_that_is_refused_names_the_limit_for_ten_seconds_and_the_rule_and_topic(wires: Wires) -> None:
    """Found by a reader: the bottleneck of a client whose messages were all refused was "none"."""
    link = Link(wires, confirms=(1,))
    link.say(amqp.publish(1, "never"))
    assert names(link) == ("running", "limit")
    item = shown(link)
    assert item["refused_by"] == {"rule": "never", "topic": "%2F/amq.default/never", "operation": "produce"}
    assert item["held_by"] is None
    assert (item["messages_refused"], item["refused_per_second"]) == (1, 1)
    link.say(amqp.publish(1, "never") * 2)
    assert (shown(link)["messages_refused"], shown(link)["refused_per_second"]) == (3, 3)
    wires.elapse(9)
    assert names(link) == ("running", "limit")
    wires.elapse(1.25)
    assert (names(link), shown(link)["refused_by"]) == (("running", "none"), None)
    assert (shown(link)["messages_refused"], shown(link)["refused_per_second"]) == (3, 0), "none now, three in all"


def test_a_client_that_does_not_read_holds_itself_up(wires: Wires) -> None:
    link = Link(wires)
    link.flood(link.broker, amqp.deliver(1, b"d" * 10_000))
    assert shown(link)["bottleneck"] == "client"


def test_a_slow_judge_is_named_for_a_second_after() -> None:
    gate = threading.Event()

    def slow(decide: Decide) -> Decide:
        def judge(requests: list[Request], now: int) -> None:
            gate.wait(HANG_S)
            decide(requests, now)

        return judge

    with Wires(never(), threads=1, wrap=slow) as wires:
        link = Link(wires)
        link.say(amqp.publish(1, "free", b"") * 600)
        assert names(link) == ("flow", "limiter")
        gate.set()
        wires.until(lambda: link.session.forward.messages == 600)
        link.at_broker()
        assert names(link) == ("flow", "limiter"), "shown for a second after the last block"
        reader, limiter = stages(link)
        assert (reader["flow"], limiter["flow"]) == (True, False)
        blocked = reader["blocked_seconds"]
        assert blocked > 0
        wires.elapse(1.25)
        assert names(link) == ("running", "none")
        assert stages(link) == [
            {"flow": False, "credit": 400, "blocked_seconds": blocked},
            {"flow": False, "credit": 400, "blocked_seconds": 0.0},
        ]


def test_both_out_of_credit_means_the_broker() -> None:
    """docs/design/limiter.md 6: reader in flow and limiter not, the limiter is slow; both in flow, the broker is."""
    with Wires() as wires:
        link = Link(wires)
        now = wires.now()
        link.session.decode.credit.spend(400, now)
        assert description.bottleneck(link.session, now + 1) == "limiter"
        link.session.forward.credit.spend(400, now)
        assert description.bottleneck(link.session, now + 1) == "broker"


def test_a_new_listener_has_seen_nothing() -> None:
    flow = BrokerFlow()
    assert (flow.blocked_ns, flow.send_blocked_ns, sum(flow.confirm_latency.counts)) == (0, 0, 0)


# ---- busy answers (RocketMQ) -------------------------------------------------------------------------------------------


def test_busy_answers_are_counted_by_reason_and_logged_once_in_ten_seconds(wires: Wires) -> None:
    session = Link(wires).session
    flow = session.listener_config.flow
    session.conversation.reports.busy = [
        BusySignal("timeout_clean_queue", 231, 17),
        BusySignal("timeout_clean_queue", 90, 3),
        BusySignal("overload", -1, -1),
    ]
    session.flow.observe(5)
    assert (session.conversation.reports.busy, flow.busy) == ([], {"timeout_clean_queue": 2, "overload": 1})
    assert sum(flow.queue_period.counts) == 2
    assert flow.queue_period.sum == pytest.approx(0.321)
    assert flow.busy_to_log(5) == {"timeout_clean_queue": 2, "overload": 1}
    session.conversation.reports.busy = [BusySignal("overload", -1, -1)]
    session.flow.observe(6)
    assert flow.busy_to_log(6) == {}
    assert flow.busy_to_log(10_000_000_005) == {"overload": 1}
    assert flow.busy_to_log(30_000_000_005) == {}
