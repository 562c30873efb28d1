"""Rules: what is wrong is found when they are made, with field and remedy."""

from __future__ import annotations

import pytest

from limiter.limits import Adapt, Limit, LimitChange, Rate
from limiter.quota_snapshot import Quota
from limiter.rules.actions import ACTIONS
from limiter.rules.errors import RuleError
from limiter.rules.live_change import Override, apply_quota
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from support.cases import in_one_loop

SECOND = 1_000_000_000
FIVE = Limit(messages=Rate(5))


@in_one_loop
@pytest.mark.parametrize(
    ("make", "field", "remedy"),
    [
        (lambda: Match(protocol="kafka"), "match.protocol", "known: amqp, rocketmq"),
        (lambda: Match(protocol="rocktmq"), "match.protocol", "did you mean rocketmq?"),
        (lambda: Match(protocol="amqp", topic="orders"), "match.topic", "AMQP's is routing_key"),
        (lambda: Match(protocol="rocketmq", routing_key="a"), "match.routing_key", "RocketMQ's is topic"),
        (lambda: Match(protocol="rocketmq", vhost="/"), "match.vhost", "RocketMQ has none"),
        (lambda: Match(topic="orders", exchange="x"), "match.exchange", "RocketMQ has none"),
        (lambda: Match(protocol="amqp", group="g"), "match.group", "AMQP publishers have none"),
        (lambda: Match(protocol="amqp", namespace="shop"), "match.namespace", "AMQP's is vhost"),
        (lambda: Match(namespace="shop", vhost="/"), "match.vhost", "RocketMQ has none"),
        (lambda: Rule("r", limit=FIVE, per="namespace", match=Match(protocol="amqp")), "per", "AMQP has no namespace; say per: vhost"),
        (lambda: Rule("r", limit=FIVE, per="group", match=Match(exchange="x")), "per", "AMQP has no group; say per: user"),
        (lambda: Rule("r", limit=FIVE, per="vhost", match=Match(topic="t")), "per", "RocketMQ has no vhost; say per: namespace"),
        (lambda: Match(queue="q", routing_key="q"), "match.queue", "name the queue, or exchange and routing_key"),
        (lambda: Match(queue="q", exchange="x"), "match.queue", "name the queue, or exchange and routing_key"),
        (lambda: Match(client="10.0.0.1/8"), "match.client", "write an address or a network like 10.0.0.0/8"),
        (lambda: Match(client="host"), "match.client", "write an address or a network like 10.0.0.0/8"),
        (lambda: Match(operation="publish"), "match.operation", "known: produce, consume"),
        (lambda: Rule("r", limit=FIVE, match=Match(topic="a", operation="consume"), action="drop"), "action", "only held"),
        (lambda: Rule("r", limit=FIVE, match=Match(vhost="/", exchange="x", operation="consume")), "match.exchange", "say queue: NAME"),
        (lambda: Match(queue="q", exchange="x", operation="consume"), "match.exchange", "leave exchange out"),
        (
            lambda: Rule("r", limit=FIVE, match=Match(protocol="amqp", operation="consume"), routing_key_words=1),
            "routing_key_words",
            "known by its queue",
        ),
        (lambda: Rule("r", limit=FIVE, match=Match(queue="q", operation="consume"), per="exchange"), "per", "say per: topic"),
        (lambda: Rule("r", limit=FIVE, match=Match(queue="q", operation="consume"), action="drop"), "action", "only held"),
        (lambda: Rule("r", limit=FIVE, match=Match(topic="t", operation="consume"), action="close"), "action", "leave it out"),
        (lambda: Rule("r", limit=FIVE, match=Match(queue="q", operation="consume"), fallback="close"), "fallback", "leave it out"),
        (lambda: Rule("r", limit=FIVE, match=Match(queue="q", operation="consume"), fallback="drop"), "fallback", "only held"),
        (lambda: Rule("", limit=FIVE), "name", "needs a name"),
        (lambda: Rule("r", limit=FIVE, routing_key_words=2), "routing_key_words", "say match: {protocol: amqp}"),
        (lambda: Rule("r", limit=FIVE, routing_key_words=2, match=Match(topic="a")), "routing_key_words", "only AMQP has routing keys"),
        (lambda: Rule("r", limit=FIVE, routing_key_words=2, per="exchange", match=Match(vhost="/")), "routing_key_words", "say per: topic"),
        (lambda: Rule("r", limit=FIVE, routing_key_words=0, match=Match(vhost="/")), "routing_key_words", "outside 1 to 128"),
        (lambda: Rule("r", limit=FIVE, per="topics"), "per", "did you mean topic?"),
        (lambda: Rule("r", limit=FIVE, per="exchange", match=Match(protocol="rocketmq")), "per", "RocketMQ has no exchange"),
        (lambda: Match(protocol="rocketmq", operation=("produce", "open")), "match.operation", "open is RabbitMQ's; RocketMQ has produce"),
        (lambda: Rule("r", limit=Limit(messages=Rate(5), burst_ns=SECOND), algorithm="pacing"), "limit.burst", "leave it out, or use"),
        (lambda: Rule("r", limit=Limit(messages=Rate(5), messages_burst=2), algorithm="pacing"), "limit.burst", "has no burst"),
        (lambda: Rule("r", limit=FIVE, algorithm="pacing", candidate=LimitChange(burst_ns=SECOND)), "candidate.burst", "leave it out"),
        (lambda: Rule("r", limit=FIVE, algorithm="pacing", open_for_ns=SECOND), "breaker.open_for", "leave it out, or set 0s"),
        (lambda: Rule("r", limit=Limit(messages=Rate(5), warm_up_ns=SECOND)), "warm_up", "set algorithm: warm_up, or leave it out"),
        (lambda: Rule("r", limit=Limit(messages=Rate(5), warm_up_ns=9), algorithm="warm_up"), "warm_up.over", "1ms to 24h"),
        (lambda: Rule("r", limit=FIVE, algorithm="token-bucket"), "algorithm", "did you mean token_bucket?"),
        (lambda: Rule("r", limit=FIVE, action="rejct"), "action", "did you mean reject?"),
        (lambda: Rule("r", limit=FIVE, fallback="block"), "fallback", "known: delay, drop, close"),
        (lambda: Rule("r", limit=FIVE, mode="on"), "mode", "known: enforce, shadow, off"),
        (lambda: Rule("r", limit=FIVE, reply="busy"), "reply", "known: flow_control, system_busy"),
        (lambda: Rule("r", limit=FIVE, reply="system_busy", match=Match(vhost="/")), "reply", "reply is RocketMQ's"),
        (lambda: Rule("r", limit=FIVE, max_delay_ns=3 * SECOND), "max_delay", "set at most 2.5s, or 8s with match: {protocol: amqp}"),
        (
            lambda: Rule("r", limit=FIVE, max_delay_ns=3 * SECOND, match=Match(topic="a")),
            "max_delay",
            "RocketMQ's clients give up after 3s",
        ),
        (lambda: Rule("r", limit=FIVE, max_delay_ns=9 * SECOND, match=Match(vhost="/")), "max_delay", "Java NIO) or 30s (Bunny)"),
        (lambda: Rule("r", limit=FIVE, max_delay_ns=0), "max_delay", "0s to 2.5s"),
        (lambda: Rule("r", limit=FIVE, open_for_ns=-1), "breaker.open_for", "outside"),
        (lambda: Rule("r"), "limit", "mode: off"),
        (lambda: Rule("r", limit=FIVE, candidate=LimitChange()), "candidate", "give messages, bytes or burst"),
        (lambda: Rule("r", limit=FIVE, weight=0), "weight", "1 is the default"),
        (lambda: Rule("r", limit=FIVE, weight=2, per="client"), "weight", "set it on a rule with per: topic"),
        (lambda: Rule("r", limit=FIVE, protected=True, match=Match(operation="consume")), "protected", "set it on a rule with per: topic"),
        (lambda: Rule("r", limit=FIVE, per="listener", open_for_ns=SECOND), "breaker.open_for", "which share its cap by weight"),
        (lambda: Rule("r", limit=Limit(messages=Rate(5), adapt=Adapt())), "adapt", "per: listener"),
        (lambda: Override(action="hold"), "action", f"known: {', '.join(ACTIONS)}"),
        (lambda: Override(messages=Rate(5), messages_burst=0), "burst", "say a rate of 0"),
        (lambda: Override(max_delay_ns=9 * SECOND), "max_delay", "0s to 8s"),
    ],
)
def test_errors(make: object, field: str, remedy: str) -> None:
    with pytest.raises(RuleError) as caught:
        make()  # type: ignore[operator]
    assert caught.value.field == field
    assert remedy in caught.value.message
    assert str(caught.value) == f"{field}: {caught.value.message}"


def test_defaults_of_the_contract() -> None:
    rule = Rule("r", limit=FIVE)
    assert (rule.per, rule.algorithm, rule.action, rule.reply, rule.mode, rule.fallback) == (
        "topic", "token_bucket", "reject", "flow_control", "enforce", "delay",
    )  # fmt: skip
    assert (rule.max_delay_ns, rule.breaker_ns()) == (SECOND, SECOND)


def test_an_override_keeps_what_it_does_not_name() -> None:
    rule = Rule(
        "r", limit=Limit(messages=Rate(5), bytes=Rate(100), burst_ns=2 * SECOND), action="delay", max_delay_ns=7, mode="shadow", place="f:1"
    )
    changed = Override(messages=Rate(9)).over(rule)
    assert changed.limit == Limit(messages=Rate(9), bytes=Rate(100), burst_ns=2 * SECOND)
    assert (changed.name, changed.action, changed.max_delay_ns, changed.mode, changed.place) == ("r", "delay", 7, "shadow", "f:1")


def test_a_burst_as_time_replaces_bursts_as_tokens() -> None:
    rule = Rule("r", limit=Limit(messages=Rate(5), bytes=Rate(100), messages_burst=50, bytes_burst=900))
    assert Override(burst_ns=SECOND).over(rule).limit == Limit(messages=Rate(5), bytes=Rate(100), burst_ns=SECOND)
    assert Override(messages_burst=7).over(rule).limit.messages_burst == 7
    assert Override(messages_burst=7).over(rule).limit.bytes_burst == 900


def test_an_override_can_change_everything() -> None:
    change = Override(action="drop", reply="system_busy", open_for_ns=0, max_delay_ns=5, mode="shadow")
    changed = change.over(Rule("r", limit=FIVE))
    assert (changed.action, changed.reply, changed.breaker_ns(), changed.max_delay_ns, changed.mode) == (
        "drop",
        "system_busy",
        0,
        5,
        "shadow",
    )


def test_enforcing_nothing_is_off() -> None:
    """An override may be made for a topic whose rule limits nothing: that must not fail when its first message comes."""
    assert Override(mode="enforce").over(Rule("r", mode="off")).mode == "off"


def test_a_quota_sets_what_it_names() -> None:
    rule = Rule("r", limit=Limit(messages=Rate(5), bytes=Rate(100), burst_ns=2 * SECOND), action="drop")
    changed = apply_quota(rule, Quota("rocketmq", "t", messages=(12.5, 30)))
    assert changed.limit == Limit(messages=Rate(25, 2 * SECOND), bytes=Rate(100), messages_burst=30, burst_ns=2 * SECOND)
    assert changed.action == "drop"
    assert apply_quota(rule, Quota("rocketmq", "t", bytes=(0, 0))).limit.bytes == Rate(0)


@pytest.mark.parametrize("action", ["reject", "delay", "block"])
def test_deliveries_are_held_without_a_breaker_whatever_the_action(action: str) -> None:
    rule = Rule("r", match=Match(queue="q", operation="consume"), limit=FIVE, action=action)
    assert rule.breaker_ns() == 0
    assert Rule("r", match=rule.match, limit=FIVE, open_for_ns=SECOND).breaker_ns() == SECOND


def test_a_live_change_cannot_make_deliveries_be_dropped() -> None:
    with pytest.raises(RuleError, match="only held"):
        Override(action="drop").over(Rule("r", match=Match(queue="q", operation="consume"), limit=FIVE))


@pytest.mark.parametrize(("weight", "thousandths"), [(1, 1000), (0.25, 250), (0.0001, 1), (1000, 1_000_000)])
def test_no_weight_is_nothing(weight: float, thousandths: int) -> None:
    cap = Rule("cap", Match(topic="orders"), weight=weight, limit=Limit(messages=Rate(5)))
    assert cap.weight_in_thousandths() == thousandths
