"""Rules added live: `PUT /v1/rules/{name}` with a whole rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from admin.store.changes import Author
from admin.store.live_rules import merge_rules
from admin.store.state import StoredRule
from admin.store.store import Store
from config.rule_texts import RuleTexts
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from limiter.topics import amqp_topic, rocketmq_topic
from support.admin.admin_client import RULES, Clock, Control, control

STORM: dict[str, Any] = {"match": {"topic": "order*"}, "limit": {"messages": "7/s"}}
ORDERS = rocketmq_topic(b"orders")


async def add(api: Control, name: str = "storm", **more: Any) -> Any:
    answer = await api.ask("PUT", f"/v1/rules/{name}?force=1", {**STORM, **more})
    assert answer.status == 200, answer.body
    return answer.json()


def names(api: Control) -> list[str]:
    return [rule.name for rule in api.store.rules().rules]


def rate(api: Control) -> Rate | None:
    return api.store.rules().effective(ORDERS)[0].limit.messages


async def test_a_rule_holds_for_the_next_batch_and_after_a_restart(tmp_path: Path) -> None:
    async with control(tmp_path) as api:
        view = await add(api, reason="incident 12")
        assert (view["origin"], view["place"], view["live"]["reason"], view["in_file"]) == ("override", "live", "incident 12", False)
        assert rate(api) == Rate(7)
        assert api.gateway.judge.rules.rules[0].name == "storm"
    async with control(tmp_path) as api:
        assert rate(api) == Rate(7)
        answer = await api.ask("DELETE", "/v1/rules/storm?force=1")
        assert (answer.status, rate(api), names(api)) == (200, Rate(2000), [rule.name for rule in RULES])
        assert (await api.ask("DELETE", "/v1/rules/storm?force=1")).status == 404


async def test_a_rule_of_the_file_is_put_aside_and_comes_back(api: Control) -> None:
    await add(api, "rocketmq-topics")
    assert names(api) == ["rocketmq-topics", "orders"], "in its place"
    assert rate(api) == Rate(7)
    assert (await api.ask("GET", "/v1/rules/rocketmq-topics")).json()["in_file"]
    await api.ask("DELETE", "/v1/rules/rocketmq-topics?force=1")
    assert rate(api) == Rate(2000)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ({}, ["storm", "rocketmq-topics", "orders"]),
        ({"position": "first"}, ["storm", "rocketmq-topics", "orders"]),
        ({"position": "last"}, ["rocketmq-topics", "orders", "storm"]),
        ({"before": "orders"}, ["rocketmq-topics", "storm", "orders"]),
        ({"after": "rocketmq-topics"}, ["rocketmq-topics", "storm", "orders"]),
    ],
)
async def test_its_place_among_the_others(api: Control, place: dict[str, str], expected: list[str]) -> None:
    await add(api, **place)
    assert names(api) == expected
    await add(api, limit={"messages": "8/s"})
    assert names(api) == expected, "it keeps its place"


async def test_a_rule_whose_neighbour_is_gone_is_first_and_none_is_lost(api: Control) -> None:
    await add(api, "a", after="orders")
    await add(api, "b", after="a")
    await add(api, "a", after="b")  # of each other
    assert sorted(names(api)) == ["a", "b", "orders", "rocketmq-topics"]
    await add(api, "c", after="orders")
    api.store.replace_file_rules(RULES[:1])
    assert sorted(names(api)) == ["a", "b", "c", "rocketmq-topics"]
    assert names(api)[-1] == "rocketmq-topics"


def test_a_thousand_rules_in_a_chain_keep_their_order() -> None:
    live = {f"r{at}": Rule(f"r{at}", limit=Limit(messages=Rate(1))) for at in range(1000)}
    stored = {name: StoredRule({}, at, f"after r{at - 1}" if at else "last") for at, name in enumerate(live)}
    assert [rule.name for rule in merge_rules(RULES, live, stored)] == [*(rule.name for rule in RULES), *live]


async def test_it_ends_when_it_says_with_a_line_in_the_history(api: Control) -> None:
    await add(api, expires="30m")
    assert api.store.next_expiry == api.clock.now + 1800
    api.clock.now += 1801
    assert rate(api) == Rate(2000)
    assert names(api) == [rule.name for rule in RULES]
    assert await api.store.remove_expired() == ""
    assert api.store.state.live_rules == {}
    assert (await api.ask("GET", "/v1/history")).json()["items"][0]["changes"][0]["target"] == "live-rules/storm"


@pytest.mark.parametrize("name", ["orders", "storm"])
async def test_its_change_ends_with_it_and_is_no_change_of_the_files_rule(api: Control, name: str) -> None:
    """It was asked of the rule that has ended: 5000/s held on the file's rule of that name, for ever."""
    await add(api, name, expires="30m")
    view = (await api.ask("PUT", f"/v1/rules/{name}?force=1", {"messages": "5000/s"})).json()
    assert (view["limit"]["messages"], view["live"] is None) == ("5000/s", False)
    before = (await api.ask("GET", "/v1/rules")).json()
    api.clock.now += 1800
    for removed in (False, True):
        if removed:
            assert await api.store.remove_expired() == ""
            assert (api.store.state.rules, api.store.state.live_rules) == ({}, {})
        view = (await api.ask("GET", "/v1/rules")).json()
        assert {(each["name"], each["origin"], each["override"], each["live"]) for each in view["items"]} == {
            (rule.name, "file", None, None) for rule in RULES
        }
        assert (view["orphans"], len(before["items"])) == ({}, len({name, *(rule.name for rule in RULES)}))
        assert api.store.unfit() == {}
    assert (await api.ask("POST", "/v1/history/2:rollback?force=1", {})).status == 200
    assert (api.store.state.rules, api.store.state.live_rules) == ({}, {})


async def test_a_change_made_after_its_end_is_of_the_files_rule(api: Control) -> None:
    await add(api, "orders", expires="30m")
    api.clock.now += 1800
    assert (await api.ask("PUT", "/v1/rules/orders?force=1", {"messages": "600/s"})).json()["limit"]["messages"] == "600/s"
    assert await api.store.remove_expired() == ""
    view = (await api.ask("GET", "/v1/rules/orders")).json()
    assert (view["limit"]["messages"], view["live"], api.store.state.live_rules) == ("600/s", None, {})


async def test_changes_and_rollbacks_of_it(api: Control) -> None:
    await add(api)
    assert (await api.ask("PUT", "/v1/rules/storm?force=1", {"messages": "9/s"})).json()["limit"]["messages"] == "9/s"
    await add(api, limit={"messages": "8/s"})
    assert (rate(api), api.store.state.rules) == (Rate(8), {}), "a whole rule states the whole"
    assert (await api.ask("POST", "/v1/history/2:rollback?force=1", {})).status == 200
    assert rate(api) == Rate(9)
    await api.ask("DELETE", "/v1/rules/storm?force=1")
    assert (rate(api), api.store.state.rules) == (Rate(2000), {})
    assert (await api.ask("POST", "/v1/history/1:rollback?force=1", {})).status == 200
    assert rate(api) == Rate(7)


async def test_its_candidate_can_be_promoted_and_its_text_is_for_the_file(api: Control) -> None:
    await add(api, candidate={"messages": "5/s"}, mode="shadow")
    view = (await api.ask("POST", "/v1/rules/storm:promote?force=1", {})).json()
    assert view["text"] == {"name": "storm", "match": {"topic": "order*"}, "per": "topic", "limit": {"messages": "5/s"}, "mode": "shadow"}


async def test_only_a_new_rule_where_a_new_one_is_meant(api: Control) -> None:
    new = {"If-None-Match": "*"}
    assert (await api.ask("PUT", "/v1/rules/storm", STORM)).status == 428
    assert (await api.ask("PUT", "/v1/rules/storm", STORM, headers=new)).status == 200
    assert (await api.ask("PUT", "/v1/rules/storm", STORM, headers=new)).status == 412
    assert (await api.ask("PUT", "/v1/rules/orders", STORM, headers=new)).status == 412
    seen = (await api.ask("GET", "/v1/rules/storm")).etag
    other = {**STORM, "mode": "shadow"}
    assert (await api.ask("PUT", "/v1/rules/storm", other, headers={"If-Match": seen})).status == 200
    assert (await api.ask("PUT", "/v1/rules/storm", STORM, headers={"If-Match": seen})).status == 412


@pytest.mark.parametrize(
    ("name", "body", "pointers"),
    [
        ("storm", {"match": {"topik": "a"}, "limit": {"messages": "500"}}, {"/match/topik", "/limit/messages"}),
        ("storm", {"match": {"topic": "a"}, "per": "topic"}, {"/limit"}),
        ("storm", {**STORM, "per": "vhost"}, {"/per"}),
        ("storm", {**STORM, "name": "other"}, {"/name"}),
        ("storm", {**STORM, "position": "middle"}, {"/position"}),
        ("storm", {**STORM, "before": "nobody"}, {"/before"}),
        ("storm", {**STORM, "before": "storm"}, {"/before"}),
        ("storm", {**STORM, "before": "orders", "after": "orders"}, {"/before", "/after"}),
        ("storm", {**STORM, "expires": "1970-01-01T00:00:00Z"}, {"/expires"}),
        ("storm", {**STORM, "messages": "1/s"}, {"/messages"}),
        ("unruled", STORM, {"{name}"}),
        ("a%2Fb", STORM, {"/name"}),
        ("%FF", STORM, {"/name"}),
        ("x" * 101, STORM, {"/name"}),
        ("..", STORM, {"/name"}),
    ],
)
async def test_every_fault_is_named_and_nothing_changes(api: Control, name: str, body: object, pointers: set[str]) -> None:
    answer = await api.ask("PUT", f"/v1/rules/{name}?force=1", body)
    assert (answer.status, {fault["pointer"] for fault in answer.json().get("errors", [])}) == (422, pointers), answer.body
    assert api.store.revision == 0


async def test_a_body_too_long_is_refused(api: Control) -> None:
    answer = await api.ask("PUT", "/v1/rules/storm?force=1", {**STORM, "reason": "x" * 10**6})
    assert answer.status == 413


async def test_a_change_of_a_rule_that_is_not_there_adds_none(api: Control) -> None:
    assert (await api.ask("PUT", "/v1/rules/storm?force=1", {"messages": "5/s"})).status == 404


async def test_there_are_only_so_many(api: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admin.store.rules_in_force.MAX_LIVE_RULES", 2)
    await add(api, "a")
    await add(api, "b")
    answer = await api.ask("PUT", "/v1/rules/c?force=1", STORM)
    assert (answer.status, "already" in answer.body.decode()) == (422, True)
    await add(api, "b")


async def test_a_dry_run_adds_nothing_and_shows_the_topics_in_use(api: Control) -> None:
    api.gateway.flood(ORDERS, 1, 10**9)
    body = (await api.ask("PUT", "/v1/rules/storm?dry_run=1", STORM)).json()
    assert [(topic["topic"], topic["after"][0]["rule"]) for topic in body["topics"]] == [("orders", "storm")]
    assert (api.store.revision, names(api)) == (0, [rule.name for rule in RULES])


async def test_a_file_read_again_keeps_live_rules_and_its_own_do_not_hold_beside_one_of_the_same_name(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "state", RULES, Clock(), rule_texts=RuleTexts())
    stored = StoredRule({"match": {"exchange": "orders"}, "limit": {"messages": "3/s"}}, 1)
    plan = await store.change(lambda: ([("live-rules/orders", stored)], None), Author("tester"), "test")
    assert [rule.name for rule in plan.rules.rules] == ["rocketmq-topics", "orders"]
    assert plan.rules.effective(amqp_topic(b"/", b"orders", b"a"))[0].limit.messages == Rate(3)
    assert store.live_rules_over(RULES) == ["orders"]
    other = (Rule("new", Match(protocol="amqp"), limit=Limit(messages=Rate(1))),)
    assert [rule.name for rule in store.replace_file_rules(other).rules] == ["orders", "new"]
    store.close()
