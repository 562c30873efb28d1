"""`GET /v1/limits/KEY?explain=1`: what holds for a given sender, from where, what lost and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from limiter.limits import Limit, LimitChange, Rate
from limiter.rules.rule_set import Match, Rule
from limiter.topics import rocketmq_topic
from support.admin.admin_client import Control, control

ORDERS = "/v1/limits/rocketmq/orders"


def rule(name: str, rate: int, line: int, match: Match = Match(), per: str = "topic", **more: Any) -> Rule:  # noqa: B008  -- immutable
    return Rule(name, match, per=per, limit=Limit(messages=Rate(rate)), place=f"limits.yaml:{line}", **more)


RULES = (
    rule("all", 2000, 3, candidate=LimitChange(messages=Rate(1000))),
    rule("order-like", 700, 9, Match(topic="order*")),
    rule("vips", 50, 14, Match(client="10.0.0.0/8"), per="client"),
    rule("rocket", 90_000, 20, Match(listener="rocket"), per="listener"),
)


async def explained(api: Control, query: str = "", path: str = ORDERS) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.ask("GET", f"{path}?explain=1&operation=produce{query}")).json()["explanation"]
    return found


async def test_each_level_says_what_holds_from_where_and_what_lost(tmp_path: Path) -> None:
    async with control(tmp_path, RULES) as api:
        await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "5/s", "reason": "incident 12"})
        assert api.gateway.flood(rocketmq_topic(b"orders"), 9, 10**9) == 5
        topic, listener, client = await explained(api)
        holds = topic["holds"]
        assert (holds["origin"], holds["by"], holds["reason"], holds["limit"]["messages"]) == ("override", "admin", "incident 12", "5/s")
        assert (holds["usage"]["admitted"], holds["usage"]["over_limit"]) == (5, 4)
        assert [(lost["origin"], lost["rule"], lost["place"], lost["limit"]["messages"]) for lost in topic["lost"]] == [
            ("default", "order-like", "limits.yaml:9", "700/s"),
            ("default", "all", "limits.yaml:3", "2000/s"),
        ]
        assert all(lost["reason"] for lost in topic["lost"])
        assert (client["holds"], client["missed"][0]["reason"]) == (None, "is for client 10.0.0.0/8, and no client is given")
        assert (listener["holds"]["thing"], listener["rules"], listener["more"]) == ("rocket", 1, 0)


async def test_for_a_given_sender(tmp_path: Path) -> None:
    async with control(tmp_path, RULES) as api:
        levels = await explained(api, "&client=10.1.2.3&listener=rocket")
        assert [(level["per"], level["holds"]["rule"], level["holds"]["thing"]) for level in levels] == [
            ("topic", "order-like", "orders"),
            ("client", "vips", "10.1.2.3"),
            ("listener", "rocket", "rocket"),
        ]
        answer = (await api.ask("GET", f"{ORDERS}?client=10.1.2.3&operation=produce")).json()
        assert ([level["rule"] for level in answer["levels"]], answer["explanation"]) == (["order-like", "vips", "rocket"], None)


async def test_the_only_listener_of_a_protocol_is_the_one_that_a_key_comes_by(tmp_path: Path) -> None:
    """Nobody said which, and `why` found no limit for a topic that the cap of the only listener refused."""
    async with control(tmp_path, RULES[3:]) as api:
        api.gateway.flood(rocketmq_topic(b"orders"), 1, 10**9)
        answer = await api.ask("GET", ORDERS)
        (level,) = (level for level in answer.json()["levels"] if level["operation"] == "produce")
        assert (level["thing"], level["usage"]["admitted"]) == ("rocket", 1)
        named = await api.ask("GET", f"{ORDERS}?listener=rocket")
        assert (named.json(), named.etag) == (answer.json(), answer.etag)
        changed = await api.ask("PUT", ORDERS, {"messages": "5/s"}, headers={"If-Match": answer.etag})
        assert {level["per"] for level in changed.json()["levels"]} == {"topic", "listener"}
        assert (await api.ask("GET", "/v1/limits/amqp/%2F/orders/created")).json()["levels"] == []


async def test_usage_of_a_clients_own_level(tmp_path: Path) -> None:
    async with control(tmp_path, (rule("each", 3, 1, per="client"),)) as api:
        api.gateway.flood(rocketmq_topic(b"orders"), 5, 10**9)
        (level,) = await explained(api, "&client=127.0.0.1")
        assert (level["holds"]["usage"]["admitted"], level["holds"]["usage"]["over_limit"]) == (3, 2)
        (level,) = await explained(api, "&client=127.0.0.2")
        assert level["holds"]["usage"] is None
        (level,) = await explained(api)
        assert level["holds"]["usage"] is None  # whose, is not said


async def test_both_operations_unless_one_is_asked_for(tmp_path: Path) -> None:
    rules = (*RULES, rule("consumers", 40, 30, Match(operation="consume")))
    async with control(tmp_path, rules) as api:
        found = (await api.ask("GET", f"{ORDERS}?explain=1")).json()["explanation"]
        assert [(level["operation"], level["per"]) for level in found] == [
            ("produce", "topic"), ("produce", "listener"), ("produce", "client"), ("consume", "topic"),
        ]  # fmt: skip
        (level,) = (await api.ask("GET", f"{ORDERS}?explain=1&operation=consume")).json()["explanation"]
        assert level["holds"]["rule"] == "consumers"
        consume = await api.ask("GET", "/v1/limits/amqp/%2F/orders/a?explain=1")
        assert {level["operation"] for level in consume.json()["explanation"]} == {"produce"}  # no queue's name


async def test_the_etag_is_the_keys_whatever_is_asked_about_it(tmp_path: Path) -> None:
    async with control(tmp_path, RULES) as api:
        plain = (await api.ask("GET", ORDERS)).etag
        assert (await api.ask("GET", f"{ORDERS}?explain=1&client=10.1.2.3&user=shop&group=billing")).etag == plain
        assert (await api.ask("PUT", ORDERS, {"messages": "5/s"}, headers={"If-Match": plain})).status == 200


async def test_thousands_of_rules_are_explained_as_well(tmp_path: Path) -> None:
    many = tuple(rule(f"r{number}", 1, number, Match(topic=f"t{number}")) for number in range(1, 1500))
    async with control(tmp_path, (*many, *RULES)) as api:
        topic = (await explained(api))[0]
        assert (topic["holds"]["rule"], topic["rules"], len(topic["lost"])) == ("order-like", 1501, 1)


async def test_wrong_parameters_are_named(tmp_path: Path) -> None:
    async with control(tmp_path, RULES) as api:
        answer = await api.ask("GET", f"{ORDERS}?explain=maybe&operation=sell&clientt=x")
        assert (answer.status, [fault["pointer"] for fault in answer.json()["errors"]]) == (422, ["?explain", "?operation", "?clientt"])
        answer = await api.ask("GET", f"{ORDERS}?listener=nowhere")
        assert (answer.status, answer.json()["errors"]) == (
            422, [{"pointer": "?listener", "message": "there is no listener 'nowhere'; known: rocket"}],
        )  # fmt: skip
        for client in ("10.0.0.7:5672", "shop", ""):
            answer = await api.ask("GET", f"{ORDERS}?client={client}")
            message = f"{client!r} is no address; give one without its port, e.g. 10.0.0.7"
            assert (answer.status, answer.json()["errors"]) == (422, [{"pointer": "?client", "message": message}])
        assert (await api.ask("GET", f"{ORDERS}?client=2001:db8::7")).status == 200


@pytest.mark.parametrize(
    ("key", "asked", "message"),
    [
        ("amqp/%2F/orders/created", "group=billing", "group is RocketMQ's; AMQP publishers have none"),
        (
            "amqp/%2F/orders/created",
            "operation=query",
            "query is RocketMQ's; AMQP has produce, consume, requeue, declare, bind, delete, purge",
        ),
        (
            "rocketmq/orders",
            "operation=connect",
            "connect is RabbitMQ's; RocketMQ has produce, consume, requeue, declare, delete, query, admin",
        ),
    ],
)
async def test_what_the_protocol_of_the_key_does_not_have_is_named(tmp_path: Path, key: str, asked: str, message: str) -> None:
    """Regression: a group was no part of the answer, and another protocol's operation had limits that hold for no message."""
    async with control(tmp_path, (rule("each", 3, 1, per="client", match=Match(operation=("produce", "query", "connect"))),)) as api:
        answer = await api.ask("GET", f"/v1/limits/{key}?client=10.1.2.3&{asked}")
        (fault,) = answer.json()["errors"]
        assert (answer.status, fault["pointer"]) == (422, f"?{asked.partition('=')[0]}")
        assert fault["message"].startswith(message)
