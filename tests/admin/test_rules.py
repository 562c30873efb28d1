"""`/v1/rules`: a rule's limit changed live."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from limiter.topics import rocketmq_topic
from support.admin.admin_client import RULES, Control, control

RULE = "/v1/rules/rocketmq-topics"


async def test_rules_are_listed_in_the_order_of_the_file(api: Control) -> None:
    items = (await api.ask("GET", "/v1/rules")).json()["items"]
    assert [(item["name"], item["place"], item["origin"]) for item in items] == [
        ("rocketmq-topics", "limits.yaml:3", "file"),
        ("orders", "limits.yaml:9", "file"),
    ]
    assert items[1]["match"] == {"exchange": "orders", "routing_key": "order.#"}


NUMBERED = tuple(Rule(f"r{number}", Match(topic=f"t{number}"), limit=Limit(messages=Rate(5)), place="") for number in range(9))


async def names(api: Control, query: str) -> list[str]:
    """The rules of all pages."""
    found: list[str] = []
    cursor = ""
    while True:
        page = (await api.ask("GET", f"/v1/rules?{query}{cursor}")).json()
        found += [item["name"] for item in page["items"]]
        if page["next"] is None:
            assert page["total"] == len(found)
            return found
        cursor = f"&cursor={page['next']}"


async def test_rules_are_paged_and_filtered(api: Control) -> None:
    """Until November 2026 the list took no parameters, and 1,000 live rules came in one answer."""
    api.store.replace_file_rules((*NUMBERED, Rule("any", Match(user="shop"), limit=Limit(messages=Rate(5))), *RULES))
    every = [f"r{number}" for number in range(9)] + ["any", "rocketmq-topics", "orders"]
    for limit in (1, 3, 12, 500):
        assert await names(api, f"limit={limit}") == every
    assert await names(api, "limit=2&q=R1") == ["r1"]
    assert await names(api, "limit=2&q=t3") == ["r3"], "what it matches counts, too"
    assert await names(api, "limit=2&protocol=amqp") == ["any", "orders"]
    assert await names(api, "limit=4&protocol=rocketmq") == every[:-1]
    assert await names(api, "q=nothing") == []


async def test_rules_put_in_front_between_two_pages_repeat_and_hide_nothing(api: Control) -> None:
    api.store.replace_file_rules(NUMBERED)
    page = (await api.ask("GET", "/v1/rules?limit=3")).json()
    storm = Rule("storm", Match(topic="s"), limit=Limit(messages=Rate(5)), place="")
    api.store.replace_file_rules((storm, *NUMBERED))
    rest = (await api.ask("GET", f"/v1/rules?limit=3&cursor={page['next']}")).json()
    assert [item["name"] for item in rest["items"]] == ["r3", "r4", "r5"]
    api.store.replace_file_rules(tuple(rule for rule in NUMBERED if rule.name != "r2"))
    rest = (await api.ask("GET", f"/v1/rules?limit=3&cursor={page['next']}")).json()
    assert [item["name"] for item in rest["items"]] == ["r3", "r4", "r5"], "the last of the page before is gone"


@pytest.mark.parametrize("forged", ["x", '[-5,"x"]', '[1e308,"x"]', '[1e999,"x"]', "[null,1]", '[1e9,"x"]'])
async def test_a_cursor_that_was_not_given_is_refused_or_ends_the_list(api: Control, forged: str) -> None:
    cursor = base64.urlsafe_b64encode(forged.encode()).rstrip(b"=").decode()
    for path in ("/v1/rules", "/v1/listeners"):
        assert (await api.ask("GET", f"{path}?cursor={cursor}")).status in {200, 422}


async def test_a_rule_shows_how_many_words_of_a_key_share_a_bucket_and_until_when_a_change_holds(api: Control) -> None:
    words = Rule("words", Match(exchange="words"), limit=Limit(messages=Rate(50)), routing_key_words=2, place="limits.yaml:9")
    api.store.replace_file_rules((*api.store.file_rules, words))
    await api.ask("PUT", "/v1/rules/words?force=1", {"messages": "10/s", "expires": "30m"})
    items = {item["name"]: item for item in (await api.ask("GET", "/v1/rules")).json()["items"]}
    assert (items["words"]["routing_key_words"], items["orders"]["routing_key_words"]) == (2, None)
    assert items["words"]["override"]["expires"].endswith("Z")


async def test_a_default_changed_live_leaves_overrides_alone(api: Control) -> None:
    """issue 3, done when 5."""
    await api.ask("PUT", "/v1/limits/rocketmq/vip?force=1", {"messages": "700/s"})
    answer = await api.ask("PUT", f"{RULE}?force=1", {"messages": "10/s", "reason": "storm"})
    view = answer.json()
    assert (view["limit"]["messages"], view["file_limit"]["messages"], view["origin"], view["override"]["reason"]) == (
        "10/s",
        "2000/s",
        "override",
        "storm",
    )
    now = 10**9
    assert api.gateway.flood(rocketmq_topic(b"vip"), 5000, now) == 700
    assert api.gateway.flood(rocketmq_topic(b"any"), 5000, now) == 10
    back = await api.ask("DELETE", f"{RULE}?force=1")
    assert (back.status, back.json()["limit"]["messages"], back.json()["origin"]) == (200, "2000/s", "file")
    assert (await api.ask("GET", "/v1/limits/rocketmq/vip")).json()["levels"][0]["limit"]["messages"] == "700/s"


async def test_a_rule_changed_live_stays_so_over_a_restart(tmp_path: Path) -> None:
    async with control(tmp_path) as api:
        await api.ask("PUT", f"{RULE}?force=1", {"messages": "10/s"})
    async with control(tmp_path) as api:
        assert (await api.ask("GET", RULE)).json()["limit"]["messages"] == "10/s"
        assert api.gateway.flood(rocketmq_topic(b"any"), 5000, 10**9) == 10


async def test_preconditions(api: Control) -> None:
    seen = (await api.ask("GET", RULE)).etag
    assert (await api.ask("PUT", RULE, {"messages": "10/s"})).status == 428
    assert (await api.ask("PUT", RULE, {"messages": "10/s"}, headers={"If-Match": seen})).status == 200
    assert (await api.ask("PUT", RULE, {"messages": "11/s"}, headers={"If-Match": seen})).status == 412
    assert (await api.ask("DELETE", RULE, headers={"If-Match": seen})).status == 412


async def test_unknown_rules(api: Control) -> None:
    for method, body in (("GET", None), ("PUT", {"messages": "1/s"}), ("DELETE", None)):
        assert (await api.ask(method, "/v1/rules/nope?force=1" if body or method == "DELETE" else "/v1/rules/nope", body)).status == 404
    assert (await api.ask("DELETE", f"{RULE}?force=1")).status == 404


async def test_a_change_its_rule_cannot_take_is_refused(api: Control) -> None:
    answer = await api.ask("PUT", "/v1/rules/orders?force=1", {"messages": "1/s", "reply": "system_busy"})
    assert answer.status == 422
    assert api.store.revision == 0


async def test_a_rule_that_leaves_the_file_keeps_its_change_for_when_it_comes_back(api: Control) -> None:
    await api.ask("PUT", f"{RULE}?force=1", {"messages": "10/s"})
    api.store.replace_file_rules(RULES[1:])
    listed = (await api.ask("GET", "/v1/rules")).json()
    assert ([item["name"] for item in listed["items"]], list(listed["orphans"])) == (["orders"], ["rocketmq-topics"])
    api.store.replace_file_rules(RULES)
    assert (await api.ask("GET", RULE)).json()["limit"]["messages"] == "10/s"
    api.store.replace_file_rules(RULES[1:])
    assert (await api.ask("DELETE", f"{RULE}?force=1")).json()["orphans"] == {}


async def test_a_change_that_no_longer_fits_its_rule_is_kept_but_does_not_hold(api: Control) -> None:
    await api.ask("PUT", f"{RULE}?force=1", {"messages": "10/s", "reply": "system_busy"})
    amqp = Rule("rocketmq-topics", Match(protocol="amqp"), limit=Limit(messages=Rate(3)))
    api.store.replace_file_rules((amqp,))
    view = (await api.ask("GET", RULE)).json()
    assert (view["limit"]["messages"], view["origin"]) == ("3/s", "file")
    assert "AMQP" in view["unfit"]
