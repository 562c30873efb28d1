"""`/v1/limits/client/…`, `/v1/limits/consume/queue/…` and their like: live changes of what is not published to a topic."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from limiter.topics import amqp_topic, rocketmq_topic
from support.admin.admin_client import Control, control

CLIENT = "/v1/limits/client/10.0.0.7"
KEYS = [
    ("client/10.0.0.7", "client 10.0.0.7", {"client": "10.0.0.7"}, "produce"),
    ("client/2001%3Adb8%3A%3A%2F64", "client 2001:db8::/64", {"client": "2001:db8::1234"}, "produce"),
    ("client/%3A%3Affff%3A10.0.0.9", "client 10.0.0.9", {"client": "10.0.0.9"}, "produce"),
    ("user/shop%2Feu", "user shop/eu", {"user": "shop/eu"}, "produce"),
    ("listener/rocket", "listener rocket", {"listener": "rocket"}, "produce"),
    ("vhost/%2F", "vhost /", {}, "produce"),
    ("exchange/%2F/amq.default", "exchange / amq.default", {}, "produce"),
    ("consume/queue/%2F/jobs", "queue / jobs", {}, "consume"),
    ("consume/client/10.0.0.7", "client 10.0.0.7", {"client": "10.0.0.7"}, "consume"),
    ("consume/user/shop", "user shop", {"user": "shop"}, "consume"),
    ("requeue/queue/%2F/jobs", "queue / jobs", {}, "requeue"),
    ("requeue/client/10.0.0.7", "client 10.0.0.7", {"client": "10.0.0.7"}, "requeue"),
    ("requeue/vhost/%2F", "vhost /", {}, "requeue"),
]
JOBS = amqp_topic(b"/", b"", b"jobs")


@pytest.mark.parametrize(("path", "key", "sender", "operation"), KEYS, ids=[path for path, *_ in KEYS])
async def test_every_key_that_a_rule_can_have_can_be_changed_without_a_rule(
    api: Control, path: str, key: str, sender: dict[str, Any], operation: str
) -> None:
    answer = await api.ask("PUT", f"/v1/limits/{path}?force=1", {"messages": "7/s", "reason": "incident 12"})
    view = answer.json()
    assert (answer.status, view["key"], view["operation"]) == (200, key, operation), view
    assert {(level["origin"], level["rule"], level["limit"]["messages"]) for level in view["levels"]} == {("override", "unruled", "7/s")}
    found = [each for each in api.store.rules().effective(JOBS, operation=operation, **sender) if each.origin == "override"]
    assert [(each.limit.messages, each.rule.mode) for each in found] == [(Rate(7), "enforce")]
    other: dict[str, Any] = {"client": "10.0.0.8", "user": "other", "listener": "other"}
    others = api.store.rules().effective(amqp_topic(b"v", b"x", b"k"), operation=operation, **other)
    assert all(each.origin != "override" for each in others), "another key is as before"
    assert (await api.ask("DELETE", f"/v1/limits/{path}?force=1")).json()["override"] is None
    assert all(each.origin != "override" for each in api.store.rules().effective(JOBS, operation=operation, **sender))


@pytest.mark.parametrize(
    "path",
    ["consume/group/billing", "group/billing", "consume/rocketmq/orders", "namespace/team", "consume/namespace/team"],
)
async def test_rocketmqs_groups_topics_and_namespaces(api: Control, path: str) -> None:
    assert (await api.ask("PUT", f"/v1/limits/{path}?force=1", {"messages": "7/s"})).status == 200
    operation = "consume" if path.startswith("consume") else "produce"
    topic = b"team%orders" if "namespace" in path else b"orders"
    found = api.store.rules().effective(rocketmq_topic(topic), group=b"billing", operation=operation)
    assert [each.limit.messages for each in found if each.origin == "override"] == [Rate(7)]


async def test_a_change_keeps_what_the_rule_says_and_gives_one_bucket(tmp_path: Path) -> None:
    rules = (
        Rule("narrow", Match(exchange="orders"), per="client", limit=Limit(messages=Rate(5)), action="drop"),
        Rule("clients", Match(protocol="amqp"), per="client", limit=Limit(messages=Rate(50)), action="block", mode="shadow"),
    )
    async with control(tmp_path, rules) as api:
        view = (await api.ask("PUT", f"{CLIENT}?force=1", {"messages": "20/s"})).json()
        level = view["levels"][0]
        assert (level["action"], level["mode"], level["rule"]) == ("block", "enforce", "clients")
        names = [amqp_topic(b"/", b"orders", b"a"), amqp_topic(b"/", b"other", b"a")]
        found = [each for name in names for each in api.store.rules().effective(name, client="10.0.0.7")]
        assert [(each.identity, each.rule.action) for each in found] == [
            (("client", "", "", "10.0.0.7"), "drop"), (("client", "", "", "10.0.0.7"), "block"),
        ]  # fmt: skip
        assert api.store.rules().effective(names[1], client="10.0.0.8")[0].origin == "default"


async def test_reads_carry_an_etag_and_writes_need_it(api: Control) -> None:
    seen = (await api.ask("GET", CLIENT)).etag
    assert (await api.ask("PUT", CLIENT, {"messages": "1/s"})).status == 428
    assert (await api.ask("PUT", CLIENT, {"messages": "1/s"}, headers={"If-Match": seen})).status == 200
    assert (await api.ask("PUT", CLIENT, {"messages": "2/s"}, headers={"If-Match": seen})).status == 412
    assert (await api.ask("PATCH", f"{CLIENT}?force=1", {"bytes": "1MiB/s"})).json()["override"]["messages"] == "1/s"
    assert (await api.ask("DELETE", f"{CLIENT}?force=1")).status == 200
    assert (await api.ask("DELETE", f"{CLIENT}?force=1")).status == 404


async def test_a_dry_run_shows_the_key_before_and_after(api: Control) -> None:
    body = (await api.ask("PUT", f"{CLIENT}?dry_run=1", {"messages": "9/s"})).json()
    assert [(topic["topic"], topic["before"], topic["after"][0]["limit"]["messages"]) for topic in body["topics"]] == [
        ("client 10.0.0.7", [], "9/s")
    ]
    assert api.store.revision == 0


async def test_a_change_ends_when_it_says(api: Control) -> None:
    await api.ask("PUT", f"{CLIENT}?force=1", {"messages": "9/s", "expires": "30m"})
    api.clock.now += 1801
    assert api.store.rules().effective(JOBS, client="10.0.0.7") == []
    assert await api.store.remove_expired() == ""
    assert api.store.state.levels == {}
    history = (await api.ask("GET", "/v1/history")).json()["items"][0]
    assert (history["action"], history["changes"][0]["target"]) == ("expiry", "limits/client/10.0.0.7")


async def test_a_rollback_takes_it_back_and_gives_it_again(api: Control) -> None:
    await api.ask("PUT", f"{CLIENT}?force=1", {"messages": "9/s"})
    await api.ask("PUT", f"{CLIENT}?force=1", {"messages": "8/s"})
    for revision, expected in ((0, {}), (1, {"limits/client/10.0.0.7": "9/s"}), (2, {"limits/client/10.0.0.7": "8/s"})):
        assert (await api.ask("POST", f"/v1/history/{revision}:rollback?force=1", {})).status in {200, 404 if revision == 0 else 200}
        if revision:
            assert {target: stored.messages for target, stored in api.store.state.levels.items()} == expected


async def test_the_list_shows_it_with_its_origin(api: Control) -> None:
    await api.ask("PUT", f"{CLIENT}?force=1", {"messages": "9/s"})
    await api.ask("PUT", "/v1/limits/consume/queue/%2F/jobs?force=1", {"messages": "9/s"})
    items = (await api.ask("GET", "/v1/limits")).json()["items"]
    assert {(item["path"], item["operation"], item["level"]["origin"]) for item in items} == {
        ("/v1/limits/client/10.0.0.7", "produce", "override"),
        ("/v1/limits/consume/queue/%2F/jobs", "consume", "override"),
    }


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("client/10.0.0.0%2F8", 422, "sluice rules add 10.0.0.0-8 --match client=10.0.0.0/8 --per client --messages 5/s"),
        ("client/2001%3Adb8%3A%3A%2F32", 422, "--per client --messages 5/s"),
        ("client/nobody", 422, "give an address"),
        ("user/%FF", 422, "UTF-8"),
        ("user/" + "x" * 256, 422, "256 bytes"),
        ("listener/rabit", 422, "there is no listener 'rabit'"),
        ("exchange/%2F", 404, ""),
        ("consume/exchange/%2F/orders", 404, ""),
        ("requeue/exchange/%2F/orders", 404, ""),
        ("requeue/rocketmq/orders", 404, ""),
        ("consume/consume/client/10.0.0.7", 404, ""),
        ("queue/%2F/jobs", 404, ""),
        ("connection/7", 404, ""),
    ],
)
async def test_what_is_no_key_is_refused_with_the_way_out(api: Control, path: str, status: int, said: str) -> None:
    answer = await api.ask("PUT", f"/v1/limits/{path}?force=1", {"messages": "5/s"})
    assert answer.status == status, answer.body
    assert said in answer.body.decode()
    assert api.store.revision == 0


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("client/10.0.0.7", {"action": "delay"}, "/messages"),
        ("consume/client/10.0.0.7", {"messages": "5/s", "action": "drop"}, "/action"),
        ("requeue/queue/%2F/jobs", {"messages": "5/s", "action": "block"}, "/action"),
        ("requeue/queue/%2F/jobs", {"bytes": "5KiB/s"}, "/bytes"),
        ("listener/rocket", {"messages": "5/s", "open_for": "2s"}, "/open_for"),
        ("client/10.0.0.7", {"messages": "5/s", "max_delay": "8s"}, "/max_delay"),
    ],
)
async def test_what_cannot_hold_at_its_level_is_refused(api: Control, path: str, body: dict[str, str], pointer: str) -> None:
    answer = await api.ask("PUT", f"/v1/limits/{path}?force=1", body)
    assert (answer.status, [fault["pointer"] for fault in answer.json().get("errors", [])]) == (422, [pointer])


PATTERNS = [
    ("rocketmq/order%2A", "sluice rules add order --match protocol=rocketmq --match 'topic=order*' --per topic --messages 5/s --for 2h"),
    ("amqp/%2F/orders/order.eu.%23", "--match exchange=orders --match 'routing_key=order.eu.#' --per topic --messages 5/s --for 2h"),
    ("amqp/%2F/orders/%2A.created", "--match 'routing_key=*.created'"),
    ("amqp/%2F/ord%3Frs/a", "--match 'exchange=ord?rs'"),
]


@pytest.mark.parametrize(("path", "command"), PATTERNS)
async def test_a_pattern_is_refused_with_the_command_that_does_what_was_meant(api: Control, path: str, command: str) -> None:
    body = {"messages": "5/s", "expires": "2h"}
    answer = await api.ask("PUT", f"/v1/limits/{path}?force=1", body)
    assert (answer.status, answer.json()["type"]) == (422, "urn:sluice:problem:pattern")
    assert command in answer.json()["errors"][0]["message"]
    assert (await api.ask("PUT", f"/v1/limits/{path}?force=1&literal=1", body)).status == 200
    assert (await api.ask("PUT", f"/v1/limits/{path}?force=1", body)).status == 200, "it is changed literally already"


LEVEL_PATTERNS = [
    ("user/svc-%2A", "sluice rules add svc --match 'user=svc-*' --per user --messages 5/s --for 2h"),
    ("consume/user/svc-%2A", "--match 'user=svc-*' --match operation=consume --per user"),
    ("consume/group/bill%3Fng", "--match 'group=bill?ng' --match operation=consume --per group"),
    ("consume/queue/%2F/jobs%2A", "--match vhost=/ --match 'queue=jobs*' --match operation=consume --per topic"),
    ("consume/rocketmq/order%2A", "--match protocol=rocketmq --match 'topic=order*' --match operation=consume --per topic"),
    ("exchange/%2F/ord%2A", "--match vhost=/ --match 'exchange=ord*' --per exchange"),
    ("exchange/team-%2A/orders", "sluice rules add team --match 'vhost=team-*' --match exchange=orders --per exchange"),
    ("vhost/team-%5Bab%5D", "--match 'vhost=team-[ab]' --per vhost"),
    ("namespace/team%2A", "--match 'namespace=team*' --per namespace"),
]


@pytest.mark.parametrize(("path", "command"), LEVEL_PATTERNS)
async def test_a_pattern_of_users_groups_and_queues_is_refused_with_the_command(api: Control, path: str, command: str) -> None:
    body = {"messages": "5/s", "expires": "2h"}
    answer = await api.ask("PUT", f"/v1/limits/{path}?force=1", body)
    assert (answer.status, answer.json()["type"]) == (422, "urn:sluice:problem:pattern")
    said = answer.json()["errors"][0]["message"]
    assert command in said
    assert api.store.revision == 0
    words = shlex.split(said.partition("by itself: ")[2].partition(";")[0])
    options = [*zip(words[4::2], words[5::2], strict=True)]  # behind `sluice rules add NAME`
    match = dict(value.split("=", 1) for option, value in options if option == "--match")
    rule = {"match": match, "per": dict(options)["--per"], "limit": {"messages": "5/s"}}
    added = await api.ask("PUT", f"/v1/rules/{words[3]}?force=1", rule)
    assert added.status == 200, added.body  # what it says can be done
    assert (await api.ask("PUT", f"/v1/limits/{path}?force=1&literal=1", body)).status == 200
    assert (await api.ask("PUT", f"/v1/limits/{path}?force=1", body)).status == 200, "it is changed literally already"


async def test_the_name_of_a_group_of_topics_is_no_pattern(tmp_path: Path) -> None:
    words = Rule("words", Match(protocol="amqp", exchange="orders"), limit=Limit(messages=Rate(5)), routing_key_words=2)
    async with control(tmp_path, (words,)) as api:
        assert (await api.ask("PUT", "/v1/limits/amqp/%2F/orders/order.eu.%23?force=1", {"messages": "5/s"})).status == 200
        assert (await api.ask("PUT", "/v1/limits/amqp/%2F/orders/order.%23?force=1", {"messages": "5/s"})).status == 422
