"""Candidates over the admin API: set and removed live, counted, promoted in one change, and taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from limiter.limits import Limit, LimitChange, Rate
from limiter.rules.rule_set import Match, Rule
from limiter.topics import rocketmq_topic
from support.admin.admin_client import Control, control

SECOND = 10**9
RULE = "/v1/rules/topics"
ORDERS = rocketmq_topic(b"orders")
LIMIT = Limit(messages=Rate(500), bytes=Rate(10_000), messages_burst=900)


def rules(candidate: LimitChange | None = None) -> tuple[Rule, ...]:
    return (Rule("topics", Match(protocol="rocketmq"), limit=LIMIT, open_for_ns=0, candidate=candidate, place="limits.yaml:3"),)


IN_FILE = rules(LimitChange(messages=Rate(300)))


async def view(api: Control) -> dict[str, Any]:
    found: dict[str, Any] = (await api.ask("GET", RULE)).json()
    return found


def without_time(usage: dict[str, Any]) -> dict[str, Any]:
    """The test's wall clock stands still, the monotonic one of requests does not."""
    return {name: value for name, value in usage.items() if name != "since"}


async def test_a_candidate_of_the_file_is_shown_with_what_it_would_have_done(tmp_path: Path) -> None:
    async with control(tmp_path, IN_FILE) as api:
        seen = await view(api)
        assert (seen["candidate"]["messages"], seen["candidate"]["bytes"], seen["candidate"]["messages_burst"]) == ("300/s", "10kB/s", 900)
        assert seen["candidate_usage"] == {"would_admit": 0, "would_refuse": 0, "since": None, "clients": []}
        etag = (await api.ask("GET", RULE)).etag
        assert api.gateway.flood(ORDERS, 950, 10 * SECOND, size=0) == 900
        assert api.gateway.flood(ORDERS, 450, 11 * SECOND, size=0) == 450
        usage = (await view(api))["candidate_usage"]
        assert (usage["would_admit"], usage["would_refuse"]) == (900 + 300, 50 + 150)
        assert usage["clients"] == [{"client": "127.0.0.1", "refused": 200}]
        assert usage.pop("since").endswith("Z")
        assert (await api.ask("GET", RULE)).etag == etag  # counts are no part of what a write is checked against
        (listed,) = (await api.ask("GET", "/v1/rules")).json()["items"]
        assert without_time(listed["candidate_usage"]) == usage
        (level,) = (await api.ask("GET", "/v1/limits/rocketmq/orders")).json()["levels"]
        assert (level["candidate"], level["usage"]["candidate"]["would_refuse"]) == (seen["candidate"], 200)
        (item,) = (await api.ask("GET", "/v1/limits")).json()["items"]
        assert without_time(item["level"]["usage"]["candidate"]) == without_time(level["usage"]["candidate"])


async def test_promote_makes_it_the_limit_in_one_recorded_change_and_rollback_brings_both_back(tmp_path: Path) -> None:
    async with control(tmp_path, IN_FILE) as api:
        before = await view(api)
        answer = await api.ask("POST", f"{RULE}:promote?force=1", {"reason": "a week without refusals"})
        after = answer.json()
        assert answer.status == 200
        assert (after["limit"], after["candidate"], after["candidate_usage"]) == (before["candidate"], None, None)
        assert (after["origin"], after["override"]["reason"], after["override"]["by"]) == ("override", "a week without refusals", "admin")
        assert after["file_limit"] == before["limit"]
        assert api.gateway.flood(ORDERS, 2000, 10 * SECOND, size=0) == 900
        assert api.gateway.flood(ORDERS, 2000, 11 * SECOND, size=0) == 300
        assert api.gateway.judge.candidates(11 * SECOND) == {}
        (entry,) = (await api.ask("GET", "/v1/history")).json()["items"]
        (change,) = entry["changes"]
        assert (entry["revision"], entry["action"]) == (1, "POST /v1/rules/topics:promote")
        assert (change["target"], change.get("before"), change["after"]["messages"]) == ("rules/topics", None, "300/s")
        assert (await api.ask("POST", "/v1/history/0:rollback?force=1")).status == 200
        restored = await view(api)
        assert {**restored, "candidate_usage": None} == {**before, "candidate_usage": None}  # it counts anew
        assert restored["candidate_usage"]["would_refuse"] == 0


async def test_a_promotion_survives_a_restart_and_a_reset_returns_to_the_file(tmp_path: Path) -> None:
    async with control(tmp_path, IN_FILE) as api:
        await api.ask("POST", f"{RULE}:promote?force=1")
    async with control(tmp_path, IN_FILE) as api:
        seen = await view(api)
        assert (seen["limit"]["messages"], seen["candidate"]) == ("300/s", None)
        back = (await api.ask("DELETE", f"{RULE}?force=1")).json()
        assert (back["limit"]["messages"], back["candidate"]["messages"]) == ("500/s", "300/s")


async def test_a_dry_run_says_what_would_become_of_each_topic(tmp_path: Path) -> None:
    async with control(tmp_path, IN_FILE) as api:
        api.gateway.flood(ORDERS, 1, SECOND)
        preview = (await api.ask("POST", f"{RULE}:promote?dry_run=1")).json()
        assert (preview["dry_run"], preview["topics_affected"], api.store.revision) == (True, 1, 0)
        (topic,) = preview["topics"]
        assert [level["limit"]["messages"] for level in (*topic["before"], *topic["after"])] == ["500/s", "300/s"]
        assert [level.get("candidate") is None for level in (*topic["before"], *topic["after"])] == [False, True]


async def test_a_rule_without_a_candidate_cannot_be_promoted(tmp_path: Path) -> None:
    async with control(tmp_path, rules()) as api:
        answer = await api.ask("POST", f"{RULE}:promote?force=1")
        assert (answer.status, answer.json()["type"]) == (409, "urn:sluice:problem:no-candidate")
        assert "PUT /v1/rules/topics" in answer.json()["detail"]
        assert (await api.ask("POST", "/v1/rules/nope:promote?force=1")).status == 404
        await api.ask("PUT", f"{RULE}?force=1", {"candidate": {"messages": "300/s"}})
        assert (await api.ask("POST", f"{RULE}:promote?force=1")).status == 200
        assert (await api.ask("POST", f"{RULE}:promote?force=1")).status == 409  # it is gone now
        assert api.store.revision == 2


async def test_two_promotions_at_the_same_revision_happen_once(tmp_path: Path) -> None:
    async with control(tmp_path, IN_FILE) as api:
        seen = (await api.ask("GET", RULE)).etag
        assert (await api.ask("POST", f"{RULE}:promote", headers={"If-Match": seen})).status == 200
        assert (await api.ask("POST", f"{RULE}:promote", headers={"If-Match": seen})).status == 412


async def test_a_candidate_is_set_replaced_and_removed_live(tmp_path: Path) -> None:
    async with control(tmp_path, IN_FILE) as api:
        set_ = (await api.ask("PUT", f"{RULE}?force=1", {"candidate": {"bytes": "2MiB/s", "burst": {"bytes": "1MiB"}}})).json()
        assert (set_["candidate"]["messages"], set_["candidate"]["bytes"], set_["candidate"]["bytes_burst"]) == ("500/s", "2MiB/s", 1 << 20)
        assert (set_["limit"]["messages"], set_["origin"]) == ("500/s", "override")
        removed = (await api.ask("PUT", f"{RULE}?force=1", {"candidate": "none"})).json()
        assert (removed["candidate"], removed["override"]["candidate"]) == (None, "none")
        kept = (await api.ask("PUT", f"{RULE}?force=1", {"messages": "400/s", "candidate": None})).json()
        assert (kept["limit"]["messages"], kept["candidate"]["messages"]) == ("400/s", "300/s")


async def test_promotion_keeps_what_else_is_changed_live(tmp_path: Path) -> None:
    async with control(tmp_path, IN_FILE) as api:
        await api.ask("PUT", f"{RULE}?force=1", {"bytes": "5kB/s", "action": "drop"})
        after = (await api.ask("POST", f"{RULE}:promote?force=1")).json()
        assert (after["limit"]["messages"], after["limit"]["bytes"], after["action"]) == ("300/s", "5kB/s", "drop")


@pytest.mark.parametrize(
    ("change", "burst"),
    [
        ({"candidate": {"burst": "3s"}}, (1500, 30_000)),
        ({"candidate": {"burst": {"messages": 7}}}, (7, 10_000)),
        ({"burst": "2s", "candidate": {"burst": {"messages": 7}}}, (7, 20_000)),
        ({"burst": {"bytes": 5}, "candidate": {"messages": "10/s", "burst": {"messages": 7}}}, (7, 5)),
        ({"burst": "2s", "candidate": {"messages": "0/s"}}, (0, 20_000)),
    ],
)
async def test_the_promoted_limit_is_the_one_that_was_tried_whatever_the_bursts(
    tmp_path: Path, change: dict[str, Any], burst: tuple[int, int]
) -> None:
    async with control(tmp_path, rules()) as api:
        tried = (await api.ask("PUT", f"{RULE}?force=1", change)).json()["candidate"]
        promoted = (await api.ask("POST", f"{RULE}:promote?force=1")).json()["limit"]
        assert promoted == tried
        assert (promoted["messages_burst"], promoted["bytes_burst"]) == burst


async def test_a_candidate_tried_for_an_hour_is_promoted_without_an_end(tmp_path: Path) -> None:
    async with control(tmp_path, rules()) as api:
        await api.ask("PUT", f"{RULE}?force=1", {"candidate": {"messages": "300/s"}, "expires": "1h"})
        after = (await api.ask("POST", f"{RULE}:promote?force=1")).json()
        assert (after["limit"]["messages"], "expires" in after["override"]) == ("300/s", False)


async def test_a_change_with_an_end_is_not_made_endless_by_a_promotion(tmp_path: Path) -> None:
    async with control(tmp_path, IN_FILE) as api:
        await api.ask("PUT", f"{RULE}?force=1", {"action": "drop", "expires": "1h"})
        answer = await api.ask("POST", f"{RULE}:promote?force=1")
        assert (answer.status, answer.json()["type"]) == (409, "urn:sluice:problem:change-ends")
        assert api.store.revision == 1
        api.clock.now += 3600
        after = await api.ask("POST", f"{RULE}:promote?force=1")
        assert (after.status, "action" in after.json()["override"]) == (200, False), "it is over, though it is not removed yet"


async def test_a_key_may_have_a_candidate_of_its_own(tmp_path: Path) -> None:
    async with control(tmp_path, rules()) as api:
        path = "/v1/limits/rocketmq/orders"
        await api.ask("PUT", f"{path}?force=1", {"messages": "50/s"})
        (level,) = (await api.ask("PATCH", f"{path}?force=1", {"candidate": {"messages": "20/s"}})).json()["levels"]
        assert (level["limit"]["messages"], level["candidate"]["messages"]) == ("50/s", "20/s")
        (level,) = (await api.ask("PATCH", f"{path}?force=1", {"candidate": None})).json()["levels"]
        assert (level["limit"]["messages"], level["candidate"]) == ("50/s", None)


async def test_a_live_change_of_a_key_is_shown_beside_the_rules_limit_and_its_candidate(tmp_path: Path) -> None:
    """Each is what it is, wherever a limit is shown: the change in force, the rule's own limit, the candidate."""
    async with control(tmp_path, IN_FILE) as api:
        await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", {"messages": "100/s"})
        api.gateway.flood(ORDERS, 5, 10 * SECOND, size=0)
        (item,) = [each for each in (await api.ask("GET", "/v1/limits")).json()["items"] if each["level"]["thing"] == "orders"]
        answer = (await api.ask("GET", "/v1/limits/rocketmq/orders?explain=1")).json()
        for level in (item["level"], answer["levels"][0], answer["explanation"][0]["holds"]):
            shown = (level["limit"]["messages"], level["rule_limit"]["messages"], level["candidate"]["messages"])
            assert (*shown, level["candidate_here"]["messages"], level["origin"]) == ("100/s", "500/s", "300/s", "100/s", "override")
        (other,) = (await api.ask("GET", "/v1/limits/rocketmq/others")).json()["levels"]
        assert (other["limit"]["messages"], other["candidate"]["messages"]) == ("500/s", "300/s")
        assert (other["rule_limit"], other["candidate_here"]) == (None, None)
        (rule,) = (await api.ask("GET", "/v1/rules")).json()["items"]
        assert (rule["limit"]["messages"], rule["candidate"]["messages"]) == ("500/s", "300/s")


async def test_what_a_candidate_names_beside_a_live_change_is_tried_under_it(tmp_path: Path) -> None:
    async with control(tmp_path, rules(LimitChange(messages=Rate(300), bytes=Rate(5000)))) as api:
        await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", {"messages": "100/s"})
        (level,) = (await api.ask("GET", "/v1/limits/rocketmq/orders")).json()["levels"]
        found = [(level[name]["messages"], level[name]["bytes"]) for name in ("limit", "rule_limit", "candidate", "candidate_here")]
        assert found == [("100/s", "10kB/s"), ("500/s", "10kB/s"), ("300/s", "5kB/s"), ("100/s", "5kB/s")]


FAULTY = [
    ({"candidate": {"messages": 300}}, ["/candidate/messages"]),
    ({"candidate": {"messages": "300"}}, ["/candidate/messages"]),
    (
        {"candidate": {"messages": "x", "bytes": "5 bananas/s", "burst": "2"}},
        ["/candidate/messages", "/candidate/bytes", "/candidate/burst"],
    ),
    ({"candidate": {"burst": {"messages": "x"}}}, ["/candidate/burst/messages"]),
    ({"candidate": {"burst": {"messages": 0}}}, ["/candidate"]),
    ({"candidate": {"mesages": "5/s"}}, ["/candidate"]),
    ({"candidate": {}}, ["/candidate"]),
    ({"candidate": "off"}, ["/candidate"]),
    ({"candidate": 5, "messages": "1"}, ["/candidate"]),
    # and of a rule's change otherwise
    ({"messages": 500}, ["/messages"]),
    ({"messages": "1e999/s", "bytes": "5 bananas/s"}, ["/messages", "/bytes"]),
    ({"mesages": "5/s"}, ["/mesages"]),
    ({"burst": "0s"}, ["/burst"]),
    ({"burst": {"bytes": "1 brick"}}, ["/burst"]),
    ({"action": "explode"}, ["/action"]),
    ({"reply": "shrug"}, ["/reply"]),
    ({"mode": "maybe"}, ["/mode"]),
    ({"open_for": "2h"}, ["/open_for"]),
    ({"open_for": "2"}, ["/open_for"]),
    ({"max_delay": "3s"}, ["/max_delay"]),
    ({"fallback": "reject"}, ["/fallback"]),
    ({"messages": "5/s", "expires": "soon"}, ["/expires"]),
    ({"reason": "only"}, [""]),
    ({"reason": 5}, ["/reason"]),
]


@pytest.mark.parametrize(("body", "pointers"), FAULTY, ids=[str(body) for body, _ in FAULTY])
async def test_every_fault_of_a_rules_change_is_named_and_the_rules_stay(tmp_path: Path, body: Any, pointers: list[str]) -> None:
    async with control(tmp_path, IN_FILE) as api:
        before = await view(api)
        answer = await api.ask("PUT", f"{RULE}?force=1", body)
        assert (answer.status, [fault["pointer"] for fault in answer.json()["errors"]]) == (422, pointers)
        assert (api.store.revision, await view(api)) == (0, before)


@pytest.mark.parametrize(
    ("match", "body", "pointer"),
    [
        (Match(protocol="amqp"), {"reply": "system_busy"}, "/reply"),
        (Match(protocol="rocketmq", operation="consume"), {"action": "drop"}, "/action"),
        (Match(protocol="rocketmq", operation="consume"), {"fallback": "close"}, "/fallback"),
        (Match(protocol="rocketmq"), {"max_delay": "3s"}, "/max_delay"),
    ],
)
async def test_fields_that_do_not_fit_the_rule_are_named_too(tmp_path: Path, match: Match, body: Any, pointer: str) -> None:
    async with control(tmp_path, (Rule("topics", match, limit=LIMIT),)) as api:
        answer = await api.ask("PUT", f"{RULE}?force=1", body)
        assert (answer.status, [fault["pointer"] for fault in answer.json()["errors"]]) == (422, [pointer])
        assert api.store.revision == 0


@pytest.mark.parametrize("path", [RULE, "/v1/limits/rocketmq/orders"])
async def test_limits_that_are_no_rates_have_no_candidates(tmp_path: Path, path: str) -> None:
    counting = Rule("topics", limit=Limit(concurrent=8), algorithm="concurrency")
    async with control(tmp_path, (counting,)) as api:
        answer = await api.ask("PUT", f"{path}?force=1", {"candidate": {"messages": "5/s"}})
        assert (answer.status, [fault["pointer"] for fault in answer.json()["errors"]]) == (422, ["/candidate"])
        assert "algorithm: concurrency" in answer.json()["errors"][0]["message"]
        assert api.store.revision == 0


@pytest.mark.parametrize("body", [b"{", b"\xff", b"nope"])
async def test_a_body_that_is_not_json_is_400(tmp_path: Path, body: bytes) -> None:
    async with control(tmp_path, IN_FILE) as api:
        assert (await api.ask("PUT", f"{RULE}?force=1", body)).status == 400
        assert (await api.ask("POST", f"{RULE}:promote?force=1", body)).status == 400
        assert api.store.revision == 0
