"""A limit for one client, user or group on one topic: a dry run says whether it holds there, and whether what it replaces is lower."""

from __future__ import annotations

from typing import Any

import pytest

from support.admin.admin_client import Control

ADDRESS = "10.0.0.9"
HERE = {"protocol": "rocketmq", "topic": "orders"}


async def remarks(api: Control, limit: str, per: str = "client", thing: str = ADDRESS, **more: Any) -> list[str]:
    rule = {"match": {**HERE, per: thing, **more}, "per": per, "limit": {"messages": limit}, "position": "first"}
    answer = await api.ask("PUT", "/v1/rules/act?force=1&dry_run=1", rule)
    assert answer.status == 200, answer.json()
    found: list[str] = answer.json()["remarks"]
    return found


async def put(api: Control, path: str, body: dict[str, Any]) -> None:
    assert (await api.ask("PUT", f"/v1/{path}?force=1", body)).status == 200


@pytest.mark.parametrize(("per", "thing"), [("client", ADDRESS), ("user", "billing"), ("group", "g1")])
async def test_a_limit_that_takes_the_place_of_a_lower_one_is_higher(api: Control, per: str, thing: str) -> None:
    assert await remarks(api, "100/s", per, thing) == []
    await put(api, "rules/closed", {"match": {per: thing}, "per": per, "limit": {"messages": "0/s"}})
    assert await remarks(api, "100/s", per, thing) == [
        f"the limit is higher than that of now: 0/s (rule closed) holds for {per} {thing} there, and the rule takes its place"
    ]
    assert await remarks(api, "0/s", per, thing) == []


async def test_a_live_change_of_the_client_stands_above_the_rule(api: Control) -> None:
    await put(api, f"limits/client/{ADDRESS}", {"messages": "500/s"})
    assert await remarks(api, "10/s") == [f"the rule has no effect on client {ADDRESS}: 500/s (a live change) holds there"]


@pytest.mark.parametrize("thing", ["10.0.0.0/8", "10.0.0.8"])
async def test_of_a_rule_for_others_or_for_several_nothing_is_said(api: Control, thing: str) -> None:
    await put(api, "rules/closed", {"match": {"client": ADDRESS}, "per": "client", "limit": {"messages": "0/s"}})
    assert await remarks(api, "100/s", thing=thing) == []
    assert await remarks(api, "100/s", topic="*") == []
    assert await remarks(api, "100/s", user="billing") == []
