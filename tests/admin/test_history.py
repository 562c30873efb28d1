"""`/v1/history` and `/v1/audit`: who, when, why, before and after; and back."""

from __future__ import annotations

import pytest

from support.admin.admin_client import RULES, Control

ORDERS = "/v1/limits/rocketmq/orders"


async def set_rate(api: Control, rate: int, path: str = ORDERS, role: str = "admin") -> None:
    answer = await api.ask("PUT", f"{path}?force=1", {"messages": f"{rate}/s", "reason": f"because {rate}"}, role=role)
    assert answer.status == 200


async def rate_now(api: Control, path: str = ORDERS) -> str:
    return str((await api.ask("GET", path)).json()["levels"][0]["limit"]["messages"])


async def test_every_change_has_its_line(api: Control) -> None:
    await set_rate(api, 1)
    await set_rate(api, 2, role="operator")
    page = (await api.ask("GET", "/v1/history")).json()
    assert [item["revision"] for item in page["items"]] == [2, 1]
    entry = page["items"][0]
    assert (entry["by"], entry["role"], entry["address"], entry["reason"]) == ("operator", "operator", "127.0.0.1", "because 2")
    assert (entry["at"], entry["action"]) == ("2026-11-18T11:06:40.000Z", f"PUT {ORDERS}")
    assert [entry["changes"][0][when]["messages"] for when in ("before", "after")] == ["1/s", "2/s"]
    assert (await api.ask("GET", "/v1/history/2")).json()["entry"] == entry


async def test_rolling_back_is_a_new_revision(api: Control) -> None:
    for rate in (1, 2, 3):
        await set_rate(api, rate)
    await set_rate(api, 9, "/v1/limits/rocketmq/other")
    await api.ask("PUT", "/v1/rules/rocketmq-topics?force=1", {"messages": "8/s"})
    answer = await api.ask("POST", "/v1/history/2:rollback?force=1", {"reason": "too tight"})
    assert (answer.status, answer.json()["revision"], answer.json()["entry"]["reason"]) == (200, 6, "too tight")
    assert (await rate_now(api), await rate_now(api, "/v1/limits/rocketmq/other")) == ("2/s", "2000/s")
    assert (await api.ask("GET", "/v1/rules/rocketmq-topics")).json()["origin"] == "file"
    assert (await api.ask("POST", "/v1/history/5:rollback?force=1")).json()["revision"] == 7
    assert (await rate_now(api), await rate_now(api, "/v1/limits/rocketmq/other")) == ("3/s", "9/s")
    assert (await api.ask("POST", "/v1/history/0:rollback?force=1")).status == 200
    assert (await rate_now(api), api.store.state.keys, api.store.state.rules) == ("2000/s", {}, {})


async def test_rolling_back_does_not_revive_what_has_expired(api: Control) -> None:
    await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "1/s", "expires": "1h"})
    await set_rate(api, 2)
    api.clock.now += 7200
    await api.ask("POST", "/v1/history/1:rollback?force=1")
    assert (await rate_now(api), api.store.state.keys) == ("2000/s", {})


async def test_rolling_back_needs_what_was_seen(api: Control) -> None:
    await set_rate(api, 1)
    await set_rate(api, 2)
    seen = (await api.ask("GET", "/v1/history")).etag
    assert (await api.ask("GET", "/v1/history/1")).etag == seen
    assert (await api.ask("POST", "/v1/history/1:rollback")).status == 428
    await set_rate(api, 3)
    assert (await api.ask("POST", "/v1/history/1:rollback", headers={"If-Match": seen})).status == 412
    seen = (await api.ask("GET", "/v1/history")).etag
    assert (await api.ask("POST", "/v1/history/1:rollback", headers={"If-Match": seen})).status == 200


async def test_a_dry_run_of_rolling_back(api: Control) -> None:
    await set_rate(api, 1)
    await set_rate(api, 2)
    preview = (await api.ask("POST", "/v1/history/1:rollback?dry_run=1")).json()
    assert (preview["dry_run"], preview["changes"][0]["after"]["messages"], api.store.revision) == (True, "1/s", 2)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/history/7", 404),
        ("GET", "/v1/history/x", 404),
        ("GET", "/v1/history/-1", 404),
        ("GET", "/v1/history/" + "9" * 30, 404),
        ("POST", "/v1/history/1:rollback?force=1", 422),
        ("POST", "/v1/history/9:rollback?force=1", 422),
        ("POST", "/v1/history/x:rollback?force=1", 404),
        ("GET", "/v1/history/1:rollback", 405),
        ("POST", "/v1/history/1", 405),
    ],
)
async def test_revisions_that_are_not(api: Control, method: str, path: str, status: int) -> None:
    await set_rate(api, 1)
    assert (await api.ask(method, path)).status == status


async def test_history_in_pages(api: Control) -> None:
    for rate in range(1, 8):
        await set_rate(api, rate)
    first = (await api.ask("GET", "/v1/history?limit=3")).json()
    second = (await api.ask("GET", f"/v1/history?limit=3&cursor={first['next']}")).json()
    third = (await api.ask("GET", f"/v1/history?limit=3&cursor={second['next']}")).json()
    assert [[item["revision"] for item in page["items"]] for page in (first, second, third)] == [[7, 6, 5], [4, 3, 2], [1]]
    assert third["next"] is None


async def test_the_audit_has_what_was_refused_and_what_was_done(api: Control) -> None:
    await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "x"})
    await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "1/s"}, role="viewer")
    await set_rate(api, 1)
    await api.ask("POST", "/v1/config:reload")
    await api.ask("GET", ORDERS)
    lines = (await api.ask("GET", "/v1/audit")).json()["items"]
    assert [(line["sequence"], line["by"], line["outcome"]) for line in lines] == [
        (4, "admin", "done"),
        (3, "admin", "applied"),
        (2, "viewer", "refused"),
        (1, "admin", "refused"),
    ]
    assert lines[2]["detail"].startswith("403 ")
    page = (await api.ask("GET", "/v1/audit?limit=3")).json()
    rest = (await api.ask("GET", f"/v1/audit?limit=3&cursor={page['next']}")).json()
    assert ([line["sequence"] for line in page["items"] + rest["items"]], rest["next"]) == ([4, 3, 2, 1], None)


async def test_rolling_back_past_a_rule_that_is_gone(api: Control) -> None:
    await api.ask("PUT", "/v1/rules/orders?force=1", {"messages": "8/s"})
    await api.ask("PUT", "/v1/rules/orders?force=1", {"messages": "9/s"})
    await set_rate(api, 3)
    api.store.replace_file_rules(RULES[:1])
    assert (await api.ask("POST", "/v1/history/1:rollback?force=1")).status == 200
    assert (await api.ask("GET", "/v1/rules")).json()["orphans"]["orders"]["messages"] == "8/s"
