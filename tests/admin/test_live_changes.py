"""`/v1/live-changes`: all live changes in one piece, as `sluice fleet` gives them to another gateway."""

from __future__ import annotations

from typing import Any

import pytest

from support.admin.admin_client import Control, Reply

TARGET = "limits/rocketmq/orders"
FORGED: dict[str, Any] = {"messages": "5/s", "by": "alice", "at": "2020-01-01T00:00:00Z", "reason": "incident 12"}


async def give(api: Control, changes: dict[str, Any], role: str | None = "operator", **options: str) -> Reply:
    etag = (await api.ask("GET", "/v1/live-changes")).headers["etag"]
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return await api.ask("PUT", f"/v1/live-changes?{query}", {"changes": changes}, role=role, headers={"If-Match": etag})


async def test_the_token_is_the_author_whoever_the_body_names(api: Control) -> None:
    """An operator could have set limits in another one's name and time: `sluice why` would have shown these."""
    assert (await give(api, {TARGET: FORGED})).status == 200
    stored = (await api.ask("GET", "/v1/live-changes")).json()["changes"][TARGET]
    assert stored["by"] == "operator (for alice)"
    assert stored["at"].startswith("2026-")
    (level,) = [each for each in (await api.ask("GET", f"/v1/{TARGET}")).json()["levels"] if each["origin"] == "override"]
    assert (level["by"], level["reason"]) == ("operator (for alice)", "incident 12")
    entry = (await api.ask("GET", "/v1/history")).json()["items"][0]
    assert entry["by"] == "operator"
    line = (await api.ask("GET", "/v1/audit")).json()["items"][0]
    assert (line["by"], line["role"], line["action"]) == ("operator", "operator", "PUT /v1/live-changes")


@pytest.mark.parametrize(("named", "author"), [
    ("operator", "operator"), ("", "operator"), ("a\x1b[31m\nb", "operator (for a[31mb)"),
    ("operator (for alice)", "operator (for alice)"), ("fleet (for alice)", "operator (for alice)"),
    ("alice (for", "operator (for alice (for)"),
])  # fmt: skip
async def test_an_author_whom_the_body_names_is_a_claim_without_control_characters(api: Control, named: str, author: str) -> None:
    assert (await give(api, {TARGET: {**FORGED, "by": named}})).status == 200
    assert (await api.ask("GET", "/v1/live-changes")).json()["changes"][TARGET]["by"] == author


async def test_a_long_author_is_cut(api: Control) -> None:
    assert (await give(api, {TARGET: {**FORGED, "by": "x" * 5000}})).status == 200
    assert len((await api.ask("GET", "/v1/live-changes")).json()["changes"][TARGET]["by"]) < 120


async def test_another_author_or_time_alone_is_no_change(api: Control) -> None:
    """Two gateways have the same digest where they do the same, so a sync that is repeated changes nothing."""
    await give(api, {TARGET: FORGED})
    before = (await api.ask("GET", "/v1/live-changes")).json()
    assert (await give(api, {TARGET: {**FORGED, "by": "bob", "at": "2021-01-01T00:00:00Z"}})).status == 200
    assert (await api.ask("GET", "/v1/live-changes")).json() == before
    assert (await give(api, {TARGET: {**FORGED, "messages": "6/s"}})).status == 200
    after = (await api.ask("GET", "/v1/live-changes")).json()
    assert (after["digest"] != before["digest"], after["revision"]) == (True, before["revision"] + 1)


async def test_what_stays_keeps_its_author(api: Control) -> None:
    await api.ask("PUT", f"/v1/{TARGET}?force=1", {"messages": "5/s"}, role="admin")
    before = (await api.ask("GET", "/v1/live-changes")).json()["changes"]
    other = {"messages": "9/s"}
    assert (await give(api, {**before, "limits/rocketmq/bills": other})).status == 200
    after = (await api.ask("GET", "/v1/live-changes")).json()["changes"]
    assert (after[TARGET], after["limits/rocketmq/bills"]["by"]) == (before[TARGET], "operator")


async def test_a_viewer_may_read_and_not_give_them(api: Control) -> None:
    assert (await give(api, {TARGET: FORGED}, role="viewer")).status == 403
    assert (await give(api, {TARGET: FORGED}, role=None)).status == 401
    assert (await api.ask("GET", "/v1/live-changes", role="viewer")).json()["changes"] == {}


@pytest.mark.parametrize(("target", "meant"), [
    ("limits/rocketmq/%6Frders", TARGET), ("limits/amqp/%2f/orders/x", "limits/amqp/%2F/orders/x"),
    ("limits/client/2001:DB8:0:0:0:0:0:1", "limits/client/2001%3Adb8%3A%3A1"),
    ("limits/consume/queue/%2F/%6Aobs", "limits/consume/queue/%2F/jobs"),
])  # fmt: skip
async def test_a_target_has_one_spelling(api: Control, target: str, meant: str) -> None:
    """In another one the limit held, was shown nowhere, and could not be taken back."""
    answer = await give(api, {target: {"messages": "5/s"}})
    assert (answer.status, meant in answer.json()["errors"][0]["message"]) == (422, True), answer.body
    assert (await give(api, {meant: {"messages": "5/s"}})).status == 200
    assert (await api.ask("GET", f"/v1/{meant}")).json()["override"]["messages"] == "5/s"
    assert (await api.ask("DELETE", f"/v1/{meant}?force=1")).status == 200


async def test_a_dry_run_changes_nothing(api: Control) -> None:
    answer = await give(api, {TARGET: FORGED}, dry_run="1")
    assert [change["target"] for change in answer.json()["changes"]] == [TARGET]
    assert (await api.ask("GET", "/v1/live-changes")).json()["changes"] == {}
