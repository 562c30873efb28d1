"""A limit that is set limits: the mode of a live change, whatever the mode of its rule, and what is said where nothing is enforced."""

from __future__ import annotations

import csv
import io
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admin.store.state import StoredOverride
from cli import explain
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from limiter.topics import amqp_topic
from support.admin.admin_client import Control, Reply, control

ORDERS = "/v1/limits/amqp/%2F/orders/created"
CLIENT = "/v1/limits/client/10.0.0.7"
JOBS = "/v1/limits/consume/queue/%2F/jobs"
MODES = ("shadow", "off")
both_modes = pytest.mark.parametrize("mode", MODES)


def rules(mode: str) -> tuple[Rule, ...]:
    """Of each level one, in `mode`."""
    limit = Limit(messages=Rate(2000))
    return (
        Rule("topics", Match(), limit=limit, mode=mode),
        Rule("clients", Match(), "client", limit=limit, mode=mode),
        Rule("queues", Match(operation="consume"), limit=limit, mode=mode),
    )


async def changed(api: Control, method: str, path: str, body: dict[str, Any]) -> tuple[str, str | None]:
    """The mode that holds then, and the one that is stored."""
    answer = await api.ask(method, f"{path}?force=1", body)
    view = answer.json()
    assert answer.status == 200, view
    level = next(each for each in view["levels"] if each["origin"] == "override")
    return level["mode"], view["override"].get("mode")


def unenforced(answer: Reply) -> list[str]:
    return [each for each in answer.json()["remarks"] if "not enforced" in each]


@both_modes
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize("path", [ORDERS, CLIENT, JOBS])
@pytest.mark.parametrize("body", [{"messages": "7/s"}, {"bytes": "1MiB/s", "mode": None}, {"action": "delay"}, {"burst": "2s"}])
async def test_a_limit_that_is_set_is_enforced_whatever_the_rules_mode(
    tmp_path: Path, mode: str, method: str, path: str, body: dict[str, Any]
) -> None:
    async with control(tmp_path, rules(mode)) as api:
        assert await changed(api, method, path, body) == ("enforce", "enforce")


@pytest.mark.parametrize("path", [ORDERS, CLIENT, JOBS])
async def test_a_mode_that_is_said_holds_and_stays_when_another_field_is_changed(tmp_path: Path, path: str) -> None:
    async with control(tmp_path, rules("enforce")) as api:
        assert await changed(api, "PUT", path, {"messages": "7/s", "mode": "shadow"}) == ("shadow", "shadow")
        assert await changed(api, "PATCH", path, {"messages": "8/s"}) == ("shadow", "shadow")
        assert await changed(api, "PATCH", path, {"reason": "incident 12"}) == ("shadow", "shadow")
        assert await changed(api, "PATCH", path, {"mode": None}) == ("enforce", "enforce")
        assert await changed(api, "PUT", path, {"messages": "7/s", "mode": "off"}) == ("off", "off")
        assert await changed(api, "PUT", path, {"messages": "9/s"}) == ("enforce", "enforce")


async def test_a_change_that_sets_no_limit_leaves_the_rules_mode(tmp_path: Path) -> None:
    """Trying a candidate must not begin to refuse what passes."""
    async with control(tmp_path, rules("shadow")) as api:
        assert await changed(api, "PUT", ORDERS, {"candidate": {"messages": "7/s"}, "reason": "try it"}) == ("shadow", None)
        assert await changed(api, "PATCH", ORDERS, {"expires": "1h"}) == ("shadow", None)
        assert await changed(api, "PATCH", ORDERS, {"messages": "8/s"}) == ("enforce", "enforce")
        assert await changed(api, "PATCH", ORDERS, {"messages": None, "reason": "it was too little"}) == ("shadow", None)


async def test_a_rules_mode_changes_only_where_it_is_named(tmp_path: Path) -> None:
    async with control(tmp_path, rules("shadow")) as api:
        for body, mode in (({"messages": "9/s"}, "shadow"), ({"mode": "enforce"}, "enforce"), ({"messages": "8/s"}, "shadow")):
            view = (await api.ask("PUT", "/v1/rules/topics?force=1", body)).json()
            assert (view["mode"], bool(view["remarks"])) == (mode, mode == "shadow")


@both_modes
@pytest.mark.parametrize("path", [ORDERS, CLIENT, JOBS])
async def test_what_is_not_enforced_says_so_before_and_after(tmp_path: Path, mode: str, path: str) -> None:
    async with control(tmp_path, rules("enforce")) as api:
        body = {"messages": "7/s", "mode": mode}
        (before,) = unenforced(await api.ask("PUT", f"{path}?force=1&dry_run=1", body))
        (after,) = unenforced(await api.ask("PUT", f"{path}?force=1", body))
        assert unenforced(await api.ask("GET", path)) == [after]
        assert before == after
        assert "(7/s) is not enforced" in after
        assert f"mode: {mode}" in after
        assert unenforced(await api.ask("PUT", f"{path}?force=1&dry_run=1", {"messages": "7/s"})) == []


async def test_rules_say_it_too(tmp_path: Path) -> None:
    async with control(tmp_path, rules("shadow")) as api:
        (said,) = (await api.ask("PUT", "/v1/rules/topics?force=1&dry_run=1", {"messages": "9/s"})).json()["remarks"]
        assert "the limit of rule topics (9/s) is not enforced (mode: shadow)" in said
        storm = {"match": {"exchange": "ord*"}, "per": "topic", "limit": {"messages": "5/s"}, "mode": "shadow"}
        for query in ("dry_run=1", "reason=try"):
            answer = await api.ask("PUT", f"/v1/rules/storm?force=1&{query}", storm)
            assert ["is not enforced" in each for each in answer.json()["remarks"]] == [True], answer.json()
        every = (await api.ask("GET", "/v1/rules")).json()["items"]
        assert {each["name"]: len(each["remarks"]) for each in every} == {"storm": 1, "topics": 1, "clients": 1, "queues": 1}


async def test_quotas_under_a_shadow_rule_stay_so_and_are_counted(tmp_path: Path) -> None:
    orders = Rule("orders", Match(topic="order*"), limit=Limit(messages=Rate(5)), mode="shadow")
    mixed = (orders, Rule("all", Match(), limit=Limit(messages=Rate(9))))
    quotas = [{"protocol": "rocketmq", "topic": name, "messages": {"rate": 7, "burst": 7}} for name in ("orders", "order-lines", "other")]
    snapshot = {"version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "0.1.0", "inputs": [], "parameters": {}, "quotas": quotas}
    async with control(tmp_path, mixed) as api:
        for query in ("dry_run=1", "reason=night"):
            (said,) = (await api.ask("PUT", f"/v1/quotas?force=1&{query}", snapshot)).json()["remarks"]
            assert said.startswith("2 of 3 quotas are not enforced: their rules are not (orders: 2)")
        levels = {name: (await api.ask("GET", f"/v1/limits/rocketmq/{name}")).json()["levels"][0] for name in ("orders", "other")}
        assert {name: (level["origin"], level["mode"]) for name, level in levels.items()} == {
            "orders": ("quota", "shadow"), "other": ("quota", "enforce"),
        }  # fmt: skip
        await api.ask("PUT", "/v1/rules/orders?force=1", {"mode": "enforce"})
        assert (await api.ask("PUT", "/v1/quotas?force=1", snapshot)).json()["remarks"] == []


async def test_an_old_state_means_what_it_meant(tmp_path: Path) -> None:
    """Changes that older versions have stored without a mode keep their rule's: an upgrade refuses nothing that passed, and says so."""
    stored = msgspec.to_builtins(StoredOverride(messages="7/s", by="ops", at="2026-11-01T00:00:00Z"))
    async with control(tmp_path, rules("shadow")) as api:
        changes = {ORDERS.removeprefix("/v1/"): stored, CLIENT.removeprefix("/v1/"): stored}
        changes["limits/client/10.0.0.8"] = {"action": "delay"}  # no limit
        changes["limits/client/10.0.0.9"] = stored | {"mode": "shadow"}
        answer = await api.ask("PUT", "/v1/live-changes?force=1", {"changes": changes})
        assert answer.status == 200, answer.json()
    async with control(tmp_path, rules("shadow")) as api:  # as after an upgrade: from the files
        assert any("2 live changes of limits are not enforced (limits/" in each for each in api.store.warnings)
        for path in (ORDERS, CLIENT):
            view = (await api.ask("GET", path)).json()
            assert [(each["origin"], each["mode"]) for each in view["levels"] if each["origin"] == "override"] == [("override", "shadow")]
            assert any("(7/s) is not enforced" in each for each in view["remarks"])
            assert await changed(api, "PATCH", path, {"messages": "8/s"}) == ("enforce", "enforce")


async def test_lists_show_the_mode_and_what_would_be_refused(tmp_path: Path) -> None:
    async with control(tmp_path, rules("shadow")[:1]) as api:
        api.gateway.flood(amqp_topic(b"/", b"orders", b"created"), 5000, 10**9)
        (item,) = (await api.ask("GET", "/v1/limits")).json()["items"]
        would = item["level"]["usage"]["would_refuse"]
        assert (item["level"]["mode"], would > 0, item["level"]["usage"]["refused"]) == ("shadow", True, 0)
        (rule,) = (await api.ask("GET", "/v1/rules")).json()["items"]
        assert (rule["mode"], rule["would_refuse"]) == ("shadow", would)
        head, row = (await api.ask("GET", "/v1/rules?format=csv")).body.decode().splitlines()
        shown = dict(zip(head.split(","), row.split(","), strict=True))
        assert (shown["mode"], shown["would_refuse"]) == ("shadow", str(would))
        await api.ask("PUT", "/v1/rules/topics?force=1", {"mode": "enforce"})
        assert (await api.ask("GET", "/v1/rules")).json()["items"][0]["would_refuse"] is None


async def test_a_limit_shows_what_its_own_rule_would_have_refused(tmp_path: Path) -> None:
    """Regression: it showed what all rules in shadow had counted that ever held there, also where the one that holds now is enforced."""

    async def shown() -> list[object]:
        level = (await api.ask("GET", ORDERS)).json()["levels"][0]
        (row,) = csv.DictReader(io.StringIO((await api.ask("GET", "/v1/limits?format=csv")).body.decode()))
        usage = level["usage"]
        said = re.search(r"[\d,]+ of them would", explain.describe_use(usage))
        return [row["rule"], usage["would_refuse"], usage["shadow_refused"], row["would_refuse"], None if said is None else said[0]]

    async with control(tmp_path, rules("shadow")[:1]) as api:
        api.gateway.flood(amqp_topic(b"/", b"orders", b"created"), 5000, 10**9)
        assert await shown() == ["topics", 3000, 3000, "3000", "3,000 of them would"]
        storm = {"match": {"exchange": "ord*"}, "per": "topic", "limit": {"messages": "2000/s"}, "mode": "shadow"}
        assert (await api.ask("PUT", "/v1/rules/storm?force=1", storm)).status == 200
        assert await shown() == ["storm", 0, 3000, "0", None]
        api.gateway.flood(amqp_topic(b"/", b"orders", b"created"), 5000, time.monotonic_ns())
        assert await shown() == ["storm", 3000, 6000, "3000", "3,000 of them would"]
        assert (await api.ask("PUT", "/v1/rules/storm?force=1", {"mode": "enforce"})).status == 200
        assert await shown() == ["storm", None, 6000, "", None]


@pytest.mark.parametrize(
    ("rule", "held"),
    [
        (Rule("roof", Match(topic="order*"), limit=Limit(messages=Rate(5)), ceiling=True), True),
        (Rule("shut", Match(topic="order*"), limit=Limit(messages=Rate(0))), True),
        (Rule("named", Match(protocol="rocketmq", topic="orders"), limit=Limit(messages=Rate(5))), True),
        (Rule("glob", Match(topic="order*"), limit=Limit(messages=Rate(5))), False),  # a pin comes before it
        (Rule("roof", Match(topic="order*"), limit=Limit(messages=Rate(7)), ceiling=True), False),
    ],
)
async def test_a_pin_that_a_rule_holds_down_is_said(tmp_path: Path, rule: Rule, held: bool) -> None:
    """The night published it, the gateway held the topic lower, and nobody was told."""
    pinned: dict[str, Any] = {"status": "pinned", "reason": "pinned: contract", "bytes": {"status": "published"}}
    quotas = [
        {"protocol": "rocketmq", "topic": name, "messages": {"rate": 7, "burst": 7}, "evidence": evidence}
        for name, evidence in (("order-lines", {}), ("orders", pinned))
    ]
    snapshot = {"version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "0.1.0", "inputs": [], "parameters": {}, "quotas": quotas}
    async with control(tmp_path, (rule,)) as api:
        for query in ("dry_run=1", "reason=night"):
            said = (await api.ask("PUT", f"/v1/quotas?force=1&{query}", snapshot)).json()["remarks"]
            assert [each.partition(", as ")[0] for each in said] == (
                [f"1 of 2 quotas are pinned and do not hold: rules hold their topics lower ({rule.name}: 1)"] if held else []
            )
        await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", {"messages": "3/s"})
        assert (await api.ask("PUT", "/v1/quotas?force=1", snapshot)).json()["remarks"] == [], "a live change is a person's, too"
