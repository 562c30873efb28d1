"""Limits on what is in flight over the admin API: shown with what is in flight now, changed live."""

from __future__ import annotations

from pathlib import Path

import pytest

from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from limiter.topics import rocketmq_topic
from support.admin.admin_client import control

RULES = (
    Rule("few", Match(topic="orders"), limit=Limit(concurrent=5), algorithm="concurrency"),
    Rule("found", Match(topic="found"), limit=Limit(concurrent=100, at_least=10, start=50), algorithm="adaptive"),
    Rule("rate", Match(topic="rate"), limit=Limit(messages=Rate(9)), open_for_ns=0),
)
NOW = 10**9


async def test_a_limit_shows_how_many_requests_are_in_flight_and_how_many_may_be(tmp_path: Path) -> None:
    async with control(tmp_path, RULES) as api:
        assert api.gateway.flood(rocketmq_topic(b"orders"), 7, NOW) == 5
        (item,) = (await api.ask("GET", "/v1/limits")).json()["items"]
        usage = item["level"]["usage"]
        assert (usage["in_flight"], usage["concurrent_now"], usage["fill"], usage["wait_ms"]) == (5, 5, 0.0, 1.0)
        assert item["level"]["limit"] == {"concurrent": 5}
        assert api.gateway.flood(rocketmq_topic(b"rate"), 7, NOW) == 7
        (usage,) = [
            each["level"]["usage"] for each in (await api.ask("GET", "/v1/limits")).json()["items"] if each["level"]["thing"] == "rate"
        ]
        assert (usage["in_flight"], usage["concurrent_now"]) == (None, None)


async def test_the_number_is_changed_live_and_what_is_in_flight_stays_counted(tmp_path: Path) -> None:
    async with control(tmp_path, RULES) as api:
        orders = rocketmq_topic(b"orders")
        assert api.gateway.flood(orders, 4, NOW) == 4
        assert (await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", {"concurrent": 2})).status == 200
        assert api.gateway.flood(orders, 9, NOW) == 0
        assert (await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", {"concurrent": 7})).status == 200
        assert api.gateway.flood(orders, 9, NOW) == 3
        assert (await api.ask("PUT", "/v1/rules/few?force=1", {"concurrent": 8})).status == 200
        (level,) = (await api.ask("DELETE", "/v1/limits/rocketmq/orders?force=1")).json()["levels"]
        assert level["limit"]["concurrent"] == 8


async def test_a_ceiling_below_its_other_bounds_lowers_them_too(tmp_path: Path) -> None:
    async with control(tmp_path, RULES) as api:
        assert (await api.ask("PUT", "/v1/limits/rocketmq/found?force=1", {"concurrent": 3})).status == 200
        assert api.gateway.flood(rocketmq_topic(b"found"), 99, NOW) == 3


async def test_a_limit_on_requests_in_flight_is_refused_for_a_topic_whose_limit_is_a_rate(tmp_path: Path) -> None:
    async with control(tmp_path, RULES) as api:
        answer = await api.ask("PUT", "/v1/limits/rocketmq/rate?force=1", {"concurrent": 3})
        (error,) = answer.json()["errors"]
        assert (answer.status, error["pointer"]) == (422, "/concurrent")
        assert "set one of them" in error["message"]


@pytest.mark.parametrize("number", [0, -1, 1_000_001, 1.5, "many"])
async def test_a_value_that_is_no_number_of_requests_is_refused(tmp_path: Path, number: object) -> None:
    async with control(tmp_path, RULES) as api:
        answer = await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", {"concurrent": number})
        assert answer.status == 422
        assert answer.json()["errors"][0]["pointer"] == "/concurrent"
