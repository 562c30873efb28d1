"""Remote admin: what a RocketMQ console is shown, and what its changes do."""

from __future__ import annotations

import errno
import json
import math
from typing import Any

import pytest

from admin.remote_admin import LOG_EVERY_NS, LimitRequestService
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules.rule_set import Match, Rule
from limiter.topics import amqp_topic, rocketmq_topic
from support.admin.admin_client import Control

WHO = ("10.0.0.7", "", "17/3")  # client, access key, request
ORDERS = rocketmq_topic(b"orders")
CLOCK = 5_000_000_000  # the tests' moment, monotonic ns


@pytest.fixture
def service(api: Control) -> LimitRequestService:
    return LimitRequestService(api.gateway, api.store, api.clock, lambda: CLOCK)


async def viewed(service: LimitRequestService) -> dict[str, dict[str, Any]]:
    """The limits that are shown, by topic."""
    body = json.loads(await service.view())
    assert sorted(body) == ["dataVersion", "topicRateLimitList"]
    return {each["topic"]: each for each in body["topicRateLimitList"]}


async def test_topics_in_use_are_shown_with_true_values(api: Control, service: LimitRequestService) -> None:
    assert api.gateway.flood(ORDERS, 1, CLOCK - 2_000_000_000) == 1
    assert api.gateway.flood(rocketmq_topic(b"%RETRY%g"), 3000, CLOCK - 250_000_000) == 2000
    shown = await viewed(service)
    assert shown["orders"] == {"topic": "orders", "limitQps": 2000.0, "lastNeedWaitMicrosecs": 0, "lastRateLimitTimestamp": -1}
    refused_at = int((api.clock.now - 0.25) * 1000)
    retries = shown["%RETRY%g"]
    assert (retries["limitQps"], retries["lastRateLimitTimestamp"]) == (2000.0, refused_at)
    assert retries["lastNeedWaitMicrosecs"] == 750_000  # the breaker's second, a quarter of which is over


async def test_live_changes_are_shown_before_anybody_uses_the_topic(service: LimitRequestService) -> None:
    assert await service.change("9003", b"never seen", 0.5, *WHO) == ""
    assert (await viewed(service))["never seen"] == {
        "topic": "never seen", "limitQps": 0.5, "lastNeedWaitMicrosecs": 0, "lastRateLimitTimestamp": -1,
    }  # fmt: skip


async def test_limits_that_the_consoles_fields_cannot_express_are_left_out(api: Control, service: LimitRequestService) -> None:
    rules = (
        Rule("topics", Match(topic="orders"), limit=Limit(messages=Rate(5))),
        Rule("bytes", Match(topic="bytes"), limit=Limit(bytes=Rate(5))),
        Rule("watched", Match(topic="watched"), limit=Limit(messages=Rate(5)), mode="shadow"),
        Rule("clients", per="client", limit=Limit(messages=Rate(5))),
        Rule("queues", Match(vhost="/"), limit=Limit(messages=Rate(5))),
    )
    api.gateway.judge.replace(api.store.replace_file_rules(rules))
    for topic in (b"orders", b"bytes", b"watched", b"free"):
        api.gateway.flood(rocketmq_topic(topic), 1, CLOCK)
    api.gateway.flood(amqp_topic(b"/", b"", b"jobs"), 1, CLOCK)
    assert list(await viewed(service)) == ["orders"]


async def test_of_several_limits_of_one_topic_the_tightest_is_shown(api: Control, service: LimitRequestService) -> None:
    rules = (
        Rule("here", Match(topic="orders", client="127.0.0.1"), limit=Limit(messages=Rate(9))),
        Rule("all", Match(protocol="rocketmq", listener="rocket"), limit=Limit(messages=Rate(5))),
    )
    api.gateway.judge.replace(api.store.replace_file_rules(rules))
    judge = api.gateway.judge
    for client in ("127.0.0.1", "10.0.0.9"):
        origin = judge.origin("rocketmq", "rocket", client, None)
        judge.decide([Request(judge.key(origin, b"orders", ORDERS), 1, 1, 1)], CLOCK)
    assert sorted(state.effective.rule.name for state in judge.states(CLOCK)) == ["all", "here"]
    assert (await viewed(service))["orders"]["limitQps"] == 5.0


async def test_the_data_version_counts_changes(api: Control, service: LimitRequestService) -> None:
    assert json.loads(await service.view())["dataVersion"] == {"stateVersion": 0, "timestamp": 0, "counter": 0}
    await service.change("9003", b"orders", 5, *WHO)
    assert json.loads(await service.view())["dataVersion"] == {"stateVersion": 0, "timestamp": int(api.clock.now * 1000), "counter": 1}


@pytest.mark.parametrize(
    ("rate", "stored"), [(500.0, "500/s"), (0.0, "0/s"), (-0.0, "0/s"), (0.5, "0.5/s"), (1e7, "10000000/s"), (1 / 3, "20/min")]
)
async def test_a_change_is_a_live_override_with_its_line_in_the_history(
    api: Control, service: LimitRequestService, rate: float, stored: str
) -> None:
    assert await service.change("9003", b"%RETRY%workers", rate, "10.0.0.7", "mqcloud", "17/3") == ""
    (change,) = api.store.state.keys.values()
    assert (change.messages, change.mode, change.by) == (stored, "enforce", "remote-admin mqcloud")
    assert api.gateway.enforced[-1].revision == 1
    (entry,) = await api.store.entries([1])
    assert (entry.by, entry.role, entry.address, entry.request_id) == ("remote-admin mqcloud", "operator", "10.0.0.7", "17/3")
    assert (entry.action, entry.outcome, entry.changes[0].target) == ("9003", "applied", "limits/rocketmq/%25RETRY%25workers")
    shown = (await api.ask("GET", "/v1/limits/rocketmq/%25RETRY%25workers")).json()
    assert (shown["levels"][0]["origin"], shown["levels"][0]["limit"]["messages"]) == ("override", stored)


async def test_a_change_keeps_what_an_earlier_one_says_but_its_end_and_that_it_only_watches(
    api: Control, service: LimitRequestService
) -> None:
    body = {"messages": "5/s", "bytes": "1MiB/s", "action": "delay", "mode": "shadow", "expires": "1h", "reason": "incident 12"}
    assert (await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", body)).status == 200
    assert await service.change("9003", b"orders", 7, *WHO) == ""
    change = api.store.state.keys["limits/rocketmq/orders"]
    assert (change.messages, change.bytes, change.action) == ("7/s", "1MiB/s", "delay")
    assert (change.mode, change.expires, change.by, change.reason) == ("enforce", None, "remote-admin", "")


async def test_a_change_keeps_nothing_of_one_that_has_ended(api: Control, service: LimitRequestService) -> None:
    """Its bytes and action would have held again, without an end."""
    await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", {"bytes": "1MiB/s", "action": "delay", "expires": "1h"})
    api.clock.now += 3600
    assert await service.change("9003", b"orders", 7, *WHO) == ""
    change = api.store.state.keys["limits/rocketmq/orders"]
    assert (change.messages, change.bytes, change.action) == ("7/s", None, None)


async def test_a_topic_that_a_rule_exempts_is_limited_when_the_console_says_so(api: Control, service: LimitRequestService) -> None:
    api.store.replace_file_rules((Rule("exempt", Match(topic="orders"), mode="off"),))
    assert await service.change("9003", b"orders", 7, *WHO) == ""
    (one,) = api.store.rules().effective(ORDERS)
    assert (one.rule.mode, one.limit.messages) == ("enforce", Rate(7))


FAULTS = [
    (b"orders", 1e-9, "too little to be kept"),
    (b"orders", 1e300, "leave the limit out"),
    (b"orders", math.nan, "no rate"),
    (b"orders", -5.0, "negative"),
    (b"o" * 256, 5.0, "no broker takes more than 255"),
]


@pytest.mark.parametrize(("topic", "rate", "said"), FAULTS, ids=[case[2] for case in FAULTS])
async def test_an_impossible_change_is_refused_with_its_reason_and_noted_and_changes_nothing(
    api: Control, service: LimitRequestService, topic: bytes, rate: float, said: str
) -> None:
    assert said in await service.change("9003", topic, rate, *WHO)
    assert api.store.revision == 0
    (line,) = await api.store.lines(10, 10)
    assert (line.by, line.outcome, line.action) == ("remote-admin", "refused", "9003")
    assert said in line.detail


async def test_a_full_disk_is_said_and_the_old_limit_stays(
    api: Control, service: LimitRequestService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(api.store._directory, "commit", full)
    assert "No space left on device" in await service.change("9003", b"orders", 5, *WHO)
    assert (api.store.revision, api.gateway.enforced) == (0, [])


async def test_refused_changes_in_a_loop_do_not_push_out_the_history(api: Control, service: LimitRequestService) -> None:
    for _ in range(50):
        assert "negative" in await service.change("9003", b"orders", -1, *WHO)
    assert len(await api.store.lines(100, 100)) == 1


async def test_requests_without_permission_are_noted_once_a_second_with_a_count(api: Control) -> None:
    now = [CLOCK]
    service = LimitRequestService(api.gateway, api.store, api.clock, lambda: now[0])
    for _ in range(5):
        await service.turn_away("9003", "10.0.0.7 is not in this listener's remote_admin.allow", *WHO)
    now[0] += LOG_EVERY_NS
    await service.turn_away("9002", "10.0.0.7 is not in this listener's remote_admin.allow", *WHO)
    last, first = await api.store.lines(10, 10)
    assert (first.by, first.address, first.action, first.outcome) == ("nobody", "10.0.0.7", "9003", "refused")
    assert last.detail.endswith("4 more since the line before")
