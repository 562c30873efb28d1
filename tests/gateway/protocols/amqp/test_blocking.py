"""Action block: held in its place, the client not read meanwhile and told so; merged with what the broker says of itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from limiter.limits import NEVER, Limit, Rate
from limiter.rules.rule_set import Rule, RuleSet
from support.amqp import frames as amqp
from support.wires.conversations import SECOND, Talk, randomly, rule

BLOCKED = amqp.method(0, commands.Connection.Blocked("low on memory"))
UNBLOCKED = amqp.method(0, commands.Connection.Unblocked())
CAPABLE = {"connection.blocked": True}


def talking(*rules: Rule, confirms: tuple[int, ...] = (), capabilities: dict[str, bool] | None = CAPABLE) -> Talk:
    talk = Talk("amqp", *rules)
    talk.client(amqp.greeting(channels=(1, 2), confirms=confirms, capabilities=capabilities))
    talk.broker(amqp.broker_opens())
    talk.broker(amqp.opened(1, 2))
    talk.to_broker = talk.to_client = b""
    return talk


def blocked(**more: object) -> Talk:
    """A talk whose second publish of two is held and blocks; it may pass after a second."""
    talk = talking(rule("block", messages=1, burst=1), **more)  # type: ignore[arg-type]
    talk.client(amqp.publish(1, "orders") * 2)
    return talk


def quiet(talk: Talk) -> None:
    """Two ticks in which nothing is blocked."""
    talk.tick()
    talk.tick()


# ---- held in its place -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confirms", [(), (1,)])
def test_publishes_over_the_limit_wait_as_long_as_it_takes(confirms: tuple[int, ...]) -> None:
    talk = talking(rule("block", messages=1, burst=1), confirms=confirms, capabilities=None)
    said = b"".join(amqp.publish(1, "orders", b"%06d" % number) for number in range(30)) + amqp.ack(1, 1)
    talk.client(said)
    assert talk.conversation.budget.blocking == 1
    talk.wait(28 * SECOND)
    assert talk.conversation.budget.blocking == 1
    talk.wait(2 * SECOND)
    assert talk.to_broker == said
    assert talk.to_client == b""
    assert talk.holds_nothing()
    assert talk.conversation.budget.blocking == 0


def test_a_transaction_waits_and_is_committed_whole() -> None:
    talk = talking(rule("block", messages=1, burst=1))
    said = amqp.method(1, commands.Tx.Select()) + amqp.publish(1, "orders") * 3 + amqp.method(1, commands.Tx.Commit())
    talk.client(said)
    talk.wait(3 * SECOND)
    assert talk.to_broker == said


def test_it_blocks_until_the_last_of_several_has_passed() -> None:
    talk = talking(rule("block", messages=1, burst=1))
    talk.client(amqp.publish(1, "orders") * 2 + amqp.publish(2, "orders"))
    assert talk.conversation.budget.blocking == 2
    talk.wait(SECOND)
    assert talk.conversation.budget.blocking == 1
    talk.wait(SECOND)
    assert talk.conversation.budget.blocking == 0


def test_it_has_no_breaker_that_would_refuse_publishes_that_wait() -> None:

    assert Rule("r", limit=Limit(messages=Rate(1)), action="block").breaker_ns() == 0


def test_a_rule_made_to_refuse_meanwhile_unblocks() -> None:
    talk = blocked(confirms=(1,))
    talk.judge.replace(RuleSet((rule("reject", messages=1, burst=1),)))
    talk.wait(SECOND // 10)
    assert talk.conversation.budget.blocking == 0
    assert amqp.confirms(talk.to_client) == [amqp.Confirm(1, False, 2, False)]


def test_a_rule_made_to_delay_meanwhile_holds_the_channel_only() -> None:
    talk = blocked()
    talk.judge.replace(RuleSet((rule("delay", messages=1, burst=1),)))
    talk.wait(SECOND // 10)
    assert (talk.conversation.budget.blocking, talk.conversation.budget.held_messages) == (0, 1)


@pytest.mark.parametrize("how", ["channel", "connection", "client"])
def test_nothing_blocks_any_more_when_a_side_gives_up(how: str) -> None:
    talk = blocked()
    if how == "channel":
        talk.broker(amqp.method(1, commands.Channel.Close(404, "NOT_FOUND", 60, 40)))
        assert sum(part.count for part in talk.conversation.reports.abandoned) == 1
    elif how == "connection":
        talk.broker(amqp.method(0, commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0)))
        assert sum(part.count for part in talk.conversation.reports.abandoned) == 1
    else:
        assert sum(part.count for part in talk.conversation.abandon()) == 1
    assert talk.conversation.budget.blocking == 0
    assert talk.conversation.budget.next_due == NEVER


# ---- told --------------------------------------------------------------------------------------------------------------


def test_a_client_with_the_capability_is_told_by_which_limit() -> None:
    talk = blocked()
    (frame,) = amqp.read(talk.to_client)
    assert isinstance(frame.value, commands.Connection.Blocked)
    assert frame.value.reason == "RATE_LIMITED - %2F/amq.default/orders is over its limit of 1/s of rule all, wait 1000 ms"


@pytest.mark.parametrize("capabilities", [None, {}, {"connection.blocked": False}, {"basic.nack": True}])
def test_a_client_without_the_capability_is_not_told(capabilities: dict[str, bool] | None) -> None:
    talk = blocked(capabilities=capabilities)
    talk.wait(SECOND)
    quiet(talk)
    assert talk.to_client == b""
    talk.broker(BLOCKED + UNBLOCKED)  # not RabbitMQ's way, but not ours to judge
    assert talk.to_client == BLOCKED + UNBLOCKED


def test_it_is_told_again_when_nothing_was_blocked_for_a_whole_tick() -> None:
    talk = blocked()
    talk.to_client = b""
    talk.tick()
    talk.wait(SECOND)
    assert talk.conversation.budget.blocking == 0
    talk.tick()
    assert talk.to_client == b""
    talk.tick()
    assert talk.to_client == UNBLOCKED


def test_a_client_that_is_blocked_for_every_message_is_told_once() -> None:
    talk = talking(rule("block", messages=1, burst=1))
    talk.client(amqp.publish(1, "orders"))
    for _ in range(10):
        talk.client(amqp.publish(1, "orders"))
        talk.wait(SECOND)
        talk.tick()
    assert amqp.names(talk.to_client) == ["Connection.Blocked"]
    quiet(talk)
    assert amqp.names(talk.to_client) == ["Connection.Blocked", "Connection.Unblocked"]


def test_it_is_not_told_within_a_frame_of_the_brokers() -> None:
    talk = talking(rule("block", messages=1, burst=1))
    delivery = amqp.deliver(2, b"z" * 9000)
    talk.broker(delivery[:4000])
    talk.client(amqp.publish(1, "orders") * 2)
    assert talk.to_client == delivery[:4000]
    talk.broker(delivery[4000:] + amqp.HEARTBEAT)
    assert talk.to_client.startswith(delivery)
    assert amqp.names(talk.to_client[len(delivery) :]) == ["Connection.Blocked", "Heartbeat"]


def test_it_is_told_within_a_message_on_another_channel() -> None:
    talk = talking(rule("block", messages=1, burst=1))
    delivery = amqp.deliver(2, b"z" * 9000, cut=3000)
    talk.broker(delivery[:4000])
    talk.client(amqp.publish(1, "orders") * 2)
    talk.broker(delivery[4000:])
    names = amqp.names(talk.to_client)
    assert names.index("Connection.Blocked") < len(names) - 1


def test_memory_above_the_high_watermark_is_told_in_the_brokers_words() -> None:
    talk = talking(rule("delay", messages=1, burst=1))
    talk.conversation.memory_starved = True
    talk.flush()
    assert talk.to_client == BLOCKED
    quiet(talk)
    assert talk.to_client == BLOCKED
    talk.conversation.memory_starved = False
    quiet(talk)
    assert talk.to_client == BLOCKED + UNBLOCKED


# ---- merged with the broker's own --------------------------------------------------------------------------------------


def test_the_brokers_alarm_within_ours_is_not_told_twice() -> None:
    talk = blocked()
    talk.broker(BLOCKED)
    talk.wait(SECOND)
    quiet(talk)
    assert amqp.names(talk.to_client) == ["Connection.Blocked"]
    talk.broker(UNBLOCKED)
    assert amqp.names(talk.to_client) == ["Connection.Blocked", "Connection.Unblocked"]


def test_ours_within_the_brokers_alarm_is_not_told_twice() -> None:
    talk = talking(rule("block", messages=1, burst=1))
    talk.broker(BLOCKED)
    talk.client(amqp.publish(1, "orders") * 2)
    assert talk.to_client == BLOCKED
    talk.broker(UNBLOCKED)
    assert talk.to_client == BLOCKED
    talk.wait(SECOND)
    quiet(talk)
    assert talk.to_client == BLOCKED + UNBLOCKED


STEPS = ("publish", "broker blocks", "broker unblocks", "second", "tick")


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from(STEPS), max_size=25), st.integers(0, 100))
def test_in_every_order_the_client_hears_transitions_only_and_the_truth_in_the_end(steps: list[str], seed: int) -> None:
    talk = talking(rule("block", messages=1, burst=1))
    alarm = False
    for step in steps:
        if step == "publish":
            said = amqp.publish(1, "orders")
            talk.client(said, randomly(said, seed))
        elif step == "broker blocks" and not alarm:
            alarm = True
            talk.broker(BLOCKED, randomly(BLOCKED, seed))
        elif step == "broker unblocks" and alarm:
            alarm = False
            talk.broker(UNBLOCKED, randomly(UNBLOCKED, seed))
        elif step == "second":
            talk.wait(SECOND)
        elif step == "tick":
            talk.tick()
        told = amqp.names(talk.to_client)
        assert told == (["Connection.Blocked", "Connection.Unblocked"] * len(told))[: len(told)]
        if alarm or talk.conversation.budget.blocking:
            assert told[-1] == "Connection.Blocked"
    talk.wait(60 * SECOND)
    quiet(talk)
    told = amqp.names(talk.to_client)
    assert (len(told) % 2 == 1) == alarm
