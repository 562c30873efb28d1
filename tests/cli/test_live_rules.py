"""`sluice rules add`, `remove` and `show`, keys that are no topics, and the end of a change."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

RULE = {"name": "storm", "match": {"topic": "order*"}, "place": "live", "limit": {"messages": "50/s"}, "live": {"rule": {}, "number": 1}}
TEXT = {"name": "storm", "match": {"topic": "order*"}, "per": "topic", "limit": {"messages": "50/s"}}
LATER = "2090-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["client", "10.0.0.7"], "client/10.0.0.7"),
        (["client", "2001:db8::/64"], "client/2001%3Adb8%3A%3A%2F64"),
        (["client", "10.0.0.7", "--operation", "consume"], "consume/client/10.0.0.7"),
        (["user", "shop"], "user/shop"),
        (["listener", "rabbit"], "listener/rabbit"),
        (["vhost", "/"], "vhost/%2F"),
        (["exchange", "/", "orders"], "exchange/%2F/orders"),
        (["namespace", "team"], "namespace/team"),
        (["group", "billing"], "consume/group/billing"),
        (["group", "billing", "--operation", "produce"], "group/billing"),
        (["queue", "/", "jobs"], "consume/queue/%2F/jobs"),
        (["rocketmq", "orders", "--operation", "consume"], "consume/rocketmq/orders"),
    ],
)
def test_keys_that_are_no_topics(sluice: Any, admin: Any, words: list[str], path: str) -> None:
    levels: dict[str, Any] = {"override": None, "levels": []}
    for method in ("GET", "PUT", "DELETE"):
        admin.answers[f"{method} /v1/limits/{path}"] = (200, levels)
    assert sluice("limits", "get", *words).code == 0
    assert sluice("limits", "set", *words, "--messages", "5/s").code == 0
    assert sluice("limits", "unset", *words).code == 0
    assert [request.path for request in admin.requests] == [f"/v1/limits/{path}"] * 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["client"], "a key of client is client ADDRESS, such as: client 10.0.0.7"),
        (["queue", "jobs"], "queue VHOST QUEUE"),
        (["exchange", "/", "orders", "--operation", "consume"], "queue VHOST QUEUE"),
        (["queue", "/", "jobs", "--operation", "produce"], "amqp VHOST amq.default QUEUE"),
        (["amqp", "/", "orders", "a", "--operation", "consume"], "queue VHOST QUEUE"),
        (["connection", "7"], "sluice connections close"),
        (["rule", "orders"], "sluice rules set"),
        (["topic", "orders"], "say amqp, rocketmq, client"),
        (["client", "10.0.0.7", "--literal"], "a client is never taken for a pattern"),
        (["client", "10.0.0.7", "--no-end", "--for", "1h"], "--no-end contradicts --for"),
    ],
)
def test_what_is_no_key_is_a_usage_error_with_the_way_out(sluice: Any, admin: Any, words: list[str], said: str) -> None:
    ran = sluice("limits", "set", *words, "--messages", "5/s")
    assert (ran.code, admin.writes()) == (2, [])
    assert said in ran.err


@pytest.mark.parametrize(
    ("options", "expected"),
    [([], LATER), (["--for", "1h"], "1h"), (["--no-end"], None)],
)
def test_the_end_of_the_earlier_change_stays(sluice: Any, admin: Any, options: list[str], expected: str | None) -> None:
    key = "/v1/limits/rocketmq/orders"
    admin.answers[f"GET {key}"] = (200, {"override": {"messages": "9/s", "expires": LATER}, "levels": []})
    admin.answers[f"PUT {key}"] = (200, {"override": {"messages": "5/s", **({"expires": LATER} if expected else {})}, "levels": []})
    ran = sluice("limits", "set", "rocketmq", "orders", "--messages", "5/s", *options)
    assert ran.code == 0, ran.err
    assert admin.writes()[-1].body.get("expires") == expected
    assert (f"it holds until {LATER}" in ran.err) == (expected is not None)
    assert ("--no-end" in ran.err) == (options == [])


def test_a_pattern_is_refused_by_policy_with_the_gateways_command(sluice: Any, admin: Any) -> None:
    fault = {"pointer": "{topic}", "message": "for every topic that matches: sluice rules add order"}
    problem = {"type": "urn:sluice:problem:pattern", "title": "Unprocessable", "status": 422, "detail": "a pattern", "errors": [fault]}
    admin.answers["PUT /v1/limits/rocketmq/order%2A"] = (422, problem)
    ran = sluice("limits", "set", "rocketmq", "order*", "--messages", "5/s")
    assert ran.code == 8
    assert "sluice rules add order" in ran.err


def test_a_network_is_refused_with_the_gateways_command(sluice: Any, admin: Any) -> None:
    """It has no limit to be read either; the answer to the change knows the command."""
    problem = {"type": "urn:sluice:problem:pattern", "status": 422, "detail": "a network", "errors": [{"pointer": "", "message": "CMD"}]}
    admin.answers["GET /v1/limits/client/10.0.0.0%2F8"] = (422, {**problem, "errors": []})
    admin.answers["PUT /v1/limits/client/10.0.0.0%2F8"] = (422, problem)
    ran = sluice("limits", "set", "client", "10.0.0.0/8", "--messages", "5/s")
    assert (ran.code, "CMD" in ran.err) == (8, True)
    assert admin.writes()[-1].headers["If-Match"] == '"none"', "which nothing ever is"


def test_add_sends_a_whole_rule_that_must_be_new(sluice: Any, admin: Any) -> None:
    admin.answers["GET /v1/rules/storm"] = (404, {"title": "Not Found", "status": 404})
    admin.answers["PUT /v1/rules/storm"] = (200, RULE)
    ran = sluice(
        "rules", "add", "storm", "--match", "topic=order*", "--protocol", "rocketmq", "--per", "topic", "--messages", "50/s",
        "--burst", "2s", "--open-for", "0s", "--mode", "shadow", "--for", "2h", "--before", "orders", "--weight", "3",
        "--max-age", "10min", "--drop-expired", "--ceiling",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    write = admin.writes()[-1]
    assert write.headers["If-None-Match"] == "*"
    assert write.body == {
        "match": {"topic": "order*", "protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "50/s", "burst": "2s"},
        "breaker": {"open_for": "0s"}, "mode": "shadow", "expires": "2h", "weight": 3.0, "before": "orders",
        "max_age": "10min", "drop_expired": True, "ceiling": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    "operations", [["--operation", "produce", "--operation", "declare"], ["--match", "operation=produce,declare"]], ids=["options", "match"]
)
def test_add_takes_several_operations_and_what_they_cost(sluice: Any, admin: Any, operations: list[str]) -> None:
    admin.answers |= NEW
    ran = sluice("rules", "add", "storm", *operations, "--per", "user", "--messages", "50/s", "--cost", "declare=10", "--cost", "step=4KiB")
    assert ran.code == 0, ran.err
    assert admin.writes()[-1].body == {
        "match": {"operation": ["produce", "declare"]}, "per": "user", "limit": {"messages": "50/s"},
        "cost": {"declare": 10, "step": "4KiB"},
    }  # fmt: skip


NEW = {"GET /v1/rules/storm": (404, {"title": "Not Found", "status": 404}), "PUT /v1/rules/storm": (200, RULE)}


def topics(*names: str) -> list[dict[str, Any]]:
    return [{"protocol": "amqp" if "/" in name else "rocketmq", "topic": name} for name in names]


@pytest.mark.parametrize(
    ("seen", "match", "missed", "pattern"),
    [
        (["orders", "order.eu", "bills"], "topic=order", "order.eu, orders", "--match 'topic=order*'"),
        (["%2F/x/eu.created", "%2F/x/eu.paid"], "routing_key=eu", "eu.created, eu.paid", "--match 'routing_key=eu.#'"),
        (["%2F/amq.default/jobs-2"], "queue=jobs", "jobs-2", "--match 'queue=jobs*'"),
        (["%2F/orders/made"], "exchange=order", "orders", "--match 'exchange=order*'"),
        (["shop-eu/orders/made", "order"], "vhost=shop", "shop-eu", "--match 'vhost=shop*'"),
        ([f"a{number}" for number in range(9)], "topic=a", "a0, a1, a2 and 6 more", "--match 'topic=a*'"),
    ],
)
def test_a_whole_name_where_a_pattern_was_meant_is_refused_with_the_command(
    sluice: Any, admin: Any, seen: list[str], match: str, missed: str, pattern: str
) -> None:
    admin.answers |= NEW
    admin.topics = topics(*seen)
    words = ["rules", "add", "storm", "--match", match, "--messages", "5/s", "--per", "topic", "--mode", "shadow", "--last", "--dry-run"]
    ran = sluice(*words, "--reason", "incident 12")
    assert (ran.code, admin.writes()) == (8, [])
    assert f"{match} is a whole name, of which no message has come; it does not match {missed}" in ran.err
    (command,) = [line.partition(": ")[2] for line in ran.err.splitlines() if "for these, too: " in line]
    assert pattern in command
    again = sluice(*shlex.split(command)[1:])
    assert again.code == 0, again.err
    (write,) = admin.writes()
    field, _, name = match.partition("=")
    assert write.body["match"] == {field: f"{name}.#" if field == "routing_key" else f"{name}*"}
    assert (write.query["dry_run"], write.body["mode"], write.body["position"]) == ("1", "shadow", "last")
    assert (write.body["per"], write.body["limit"], write.body["reason"]) == ("topic", {"messages": "5/s"}, "incident 12")


def test_a_whole_name_that_is_to_come_is_taken_if_one_says_so(sluice: Any, admin: Any) -> None:
    admin.answers |= NEW
    admin.topics = topics("orders", "order.eu")
    ran = sluice("rules", "add", "storm", "--match", "topic=order", "--messages", "5/s", "--literal")
    assert (ran.code, len(admin.writes())) == (0, 1), ran.err
    assert "topic=order is a whole name, of which no message has come; it does not match order.eu, orders" in ran.err


def test_deliveries_have_names_that_no_message_was_published_to(sluice: Any, admin: Any) -> None:
    """Queues are bound to exchanges, so a queue's name may be there and not among the topics: it is told, and not refused."""
    admin.answers |= NEW
    admin.topics = topics("%2F/amq.default/jobs-2")
    ran = sluice("rules", "add", "storm", "--match", "queue=jobs", "--operation", "consume", "--messages", "5/s")
    assert (ran.code, len(admin.writes())) == (0, 1), ran.err
    assert "it does not match jobs-2" in ran.err


def test_a_rule_that_is_replaced_keeps_its_match(sluice: Any, admin: Any) -> None:
    admin.answers |= NEW | {"GET /v1/rules/storm": (200, {**RULE, "match": {"topic": "order"}})}
    admin.topics = topics("orders")
    ran = sluice("rules", "add", "storm", "--match", "topic=order", "--messages", "5/s", "--replace")
    assert (ran.code, len(admin.writes())) == (0, 1), ran.err
    assert "whole name" not in ran.err


@pytest.mark.parametrize(
    ("seen", "match", "said"),
    [
        (["orders", "order"], "topic=order", False),  # it has come
        (["bills"], "topic=order", True),  # nothing is like it
        (["%2F/bills/made"], "exchange=orders", True),
        (["%2F/order/made", "%2F/orders/made"], "exchange=order", False),
        (["%2F/bills/made"], "vhost=/", False),
        (["%2F/bills/made"], "vhost=%2F", True),
        (["orders"], "topic=order*", False),  # a pattern already
        (["orders"], "client=10.0.0.7", False),
        (["%2F/x/euro"], "routing_key=eu", True),  # no pattern of words is for it
    ],
)
def test_a_name_like_which_there_is_none_is_taken_with_a_word(sluice: Any, admin: Any, seen: list[str], match: str, *, said: bool) -> None:
    admin.answers |= NEW
    admin.topics = topics(*seen)
    ran = sluice("rules", "add", "storm", "--match", match, "--messages", "5/s")
    assert (ran.code, len(admin.writes())) == (0, 1), ran.err
    assert (f"{match} is a whole name, of which no message has come yet" in ran.err) == said


def test_a_rule_is_added_though_its_topics_cannot_be_read(sluice: Any, admin: Any) -> None:
    admin.answers["GET /v1/rules/storm"] = (404, {"title": "Not Found", "status": 404})
    admin.answers["PUT /v1/rules/storm"] = (200, RULE)
    admin.answers["GET /v1/topics"] = (503, {"title": "Service Unavailable", "status": 503})
    ran = sluice("rules", "add", "storm", "--match", "topic=order", "--messages", "5/s")
    assert (ran.code, len(admin.writes())) == (0, 1), ran.err
    assert "rule storm added" in ran.err
    assert any(request.path == "/v1/topics" for request in admin.requests)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--match", "topic"], 2, "FIELD=PATTERN"),
        (["--match", "topic=a", "--match", "topic=b"], 2, "given twice"),
        (["--cost", "declare"], 2, "WHAT=NUMBER"),
        (["--cost", "declare=1", "--cost", "declare=2"], 2, "each once"),
        (["--before", "a", "--last"], 2, "one place"),
        (["--no-candidate"], 2, "--no-candidate"),
        ([], 6, "--replace"),
    ],
)
def test_add_says_what_cannot_be(sluice: Any, admin: Any, options: list[str], code: int, said: str) -> None:
    admin.answers["GET /v1/rules/storm"] = (200, RULE)
    ran = sluice("rules", "add", "storm", "--messages", "5/s", *options)
    assert (ran.code, admin.writes()) == (code, [])
    assert said in ran.err


def test_remove_is_for_live_rules(sluice: Any, admin: Any) -> None:
    admin.answers["GET /v1/rules/orders"] = (200, {"name": "orders", "place": "limits.yaml:9"})
    ran = sluice("rules", "remove", "orders")
    assert (ran.code, "limits.yaml:9" in ran.err, admin.writes()) == (8, True, [])
    admin.answers["GET /v1/rules/storm"] = (200, RULE)
    admin.answers["DELETE /v1/rules/storm"] = (200, {"items": []})
    ran = sluice("rules", "remove", "storm")
    assert (ran.code, ran.out) == (0, "")  # an empty table it was
    ran = sluice("rules", "reset", "storm")
    assert (ran.code, "sluice rules remove storm" in ran.err) == (8, True)


def test_a_rule_is_shown_as_it_would_stand_in_the_file(sluice: Any, admin: Any) -> None:
    admin.answers["GET /v1/rules/storm"] = (200, {**RULE, "text": TEXT})
    expected = "- name: storm\n  match: {topic: order*}\n  per: topic\n  limit: {messages: 50/s}\n"
    assert sluice("rules", "show", "storm").out == expected
    ran = sluice("rules", "promote", "storm")
    assert (ran.code, ran.out, admin.writes()) == (0, expected, [])
    assert "put this into the rules file" in ran.err


def test_a_dry_run_that_changes_no_topic_says_so(sluice: Any, admin: Any) -> None:
    admin.answers["POST /v1/rules/orders:promote"] = (200, {"dry_run": True, "topics": [], "changes": []})
    admin.answers["GET /v1/rules/orders"] = (200, {"name": "orders", "candidate": {"messages": "5/s"}})
    ran = sluice("rules", "promote", "orders", "--dry-run")
    assert (ran.code, ran.out) == (0, "")
    assert "no topic in use would have another limit" in ran.err
