"""What the admin API adds to the snapshots of the stream: live changes, quotas, the limits of the topics shown (`glance.py`)."""

from __future__ import annotations

from typing import Any

import pytest

from admin.views import glance, topic_limits
from admin.views.topic_limits import topic_limit
from common.views.snapshot import LiveChangesView, SnapshotView
from support.admin.admin_client import Control
from support.admin.streams import reading

ORDERS = {"protocol": "rocketmq", "topic": "orders", "operation": "produce", "forwarded_per_second": 4.0, "bytes_per_second": 0.0}
QUOTAS = {"version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "1", "quotas": [
    {"protocol": "rocketmq", "topic": "paid", "messages": {"rate": 5, "burst": 5}},
]}  # fmt: skip


async def snapshot(api: Control) -> Any:
    async with reading(api, "?events=0") as stream:
        return (await stream.next("snapshot")).data


async def change(api: Control, path: str, body: Any) -> None:
    assert (await api.ask("PUT", f"{path}?force=1", body, role="operator")).status == 200


async def test_without_changes_there_are_none(api: Control) -> None:
    found = await snapshot(api)
    assert found["live_changes"] == {"total": 0, "without_end": 0, "next_end": None, "items": []}
    assert found["quotas"] is None


async def test_live_changes_with_an_end_come_first(api: Control) -> None:
    await change(api, "/v1/limits/rocketmq/orders", {"messages": "5/s", "reason": "incident 12"})
    await change(api, "/v1/rules/rocketmq-topics", {"messages": "9/s", "expires": "2h"})
    await change(api, "/v1/limits/client/10.0.0.7", {"bytes": "1MiB/s", "expires": "30min"})
    changes = (await snapshot(api))["live_changes"]
    assert {name: changes[name] for name in ("total", "without_end", "next_end")} == {
        "total": 3, "without_end": 1, "next_end": "2026-11-18T11:36:40.000Z",
    }  # fmt: skip
    assert [item["target"] for item in changes["items"]] == ["limits/client/10.0.0.7", "rules/rocketmq-topics", "limits/rocketmq/orders"]
    assert changes["items"][2] == {
        "target": "limits/rocketmq/orders", "by": "operator", "at": "2026-11-18T11:06:40.000Z", "reason": "incident 12", "expires": None,
        "messages": "5/s", "bytes": None,
    }  # fmt: skip


async def test_a_change_shows_in_the_next_snapshot(api: Control) -> None:
    api.gateway.seen_topics = [dict(ORDERS)]
    async with reading(api, "?events=0") as stream:
        first = (await stream.next("snapshot")).data
        assert first["topics"][0]["limit"]["messages"] == "2000/s"
        await change(api, "/v1/limits/rocketmq/orders", {"messages": "8/s", "reason": "incident 12", "expires": "1h"})
        while (found := (await stream.next("snapshot")).data)["live_changes"]["total"] == 0:
            pass
    limit = found["topics"][0]["limit"]
    assert (limit["messages"], limit["origin"], limit["by"], limit["reason"]) == ("8/s", "override", "operator", "incident 12")
    assert (limit["at"], limit["expires"]) == ("2026-11-18T11:06:40.000Z", "2026-11-18T12:06:40.000Z")
    assert found["topics"][0]["used"] == 0.5


async def test_a_change_that_has_ended_is_not_counted(api: Control) -> None:
    """Though it is in the state, as where the folder cannot be written."""
    await change(api, "/v1/limits/rocketmq/orders", {"messages": "5/s", "expires": "30min"})
    await change(api, "/v1/rules/mine", {"match": {"topic": "orders"}, "limit": {"messages": "5/s"}, "expires": "30min"})
    await change(api, "/v1/limits/rocketmq/others", {"messages": "5/s", "expires": "2h"})
    shown = glance.AdminGlance(api.gateway, api.store)
    before = (await shown.added_to(SnapshotView(), 0)).live_changes
    assert isinstance(before, LiveChangesView)
    assert before.total == 3
    api.clock.now += 3600
    api.store.lapse()
    found = (await shown.added_to(SnapshotView(), 0)).live_changes
    assert isinstance(found, LiveChangesView)
    assert [each.target for each in found.items] == ["limits/rocketmq/others"]
    assert (found.total, found.next_end) == (1, "2026-11-18T13:06:40.000Z")


async def test_what_is_shown_of_changes_is_bounded(api: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glance, "MOST_CHANGES", 3)
    for number in range(5):
        await change(api, f"/v1/limits/rocketmq/t{number}", {"messages": "5/s"})
    changes = (await snapshot(api))["live_changes"]
    assert (changes["total"], len(changes["items"])) == (5, 3)


async def test_the_quotas_in_force_are_named(api: Control) -> None:
    await change(api, "/v1/quotas", QUOTAS)
    assert (await snapshot(api))["quotas"] == {
        "date": None, "computed_at": "2026-11-21T01:00:00Z", "at": "2026-11-18T11:06:40.000Z", "by": "operator", "topics": 1,
    }  # fmt: skip


async def test_limits_are_looked_up_once_for_each_topic(api: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(rules: Any, place: Any) -> Any:
        asked.append(place[1])
        return topic_limit(rules, place)

    monkeypatch.setattr(topic_limits, "topic_limit", counted)
    api.gateway.seen_topics = [dict(ORDERS)]
    async with reading(api, "?events=0") as stream:
        for _ in range(3):
            await stream.next("snapshot")
    assert asked == ["orders"]
