"""A RocketMQ console's own requests, and limits by access key and group: the gateway, the real broker and the real client's classes."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers.name_servers import read_frame
from support.brokers.rocketmq import ADVERTISED, JARS, RocketMQ
from support.clients.programs import CLIENTS, Program
from support.clients.storm import original
from support.gateways import Gateway, limit_path
from support.java import compiled, java
from support.processes import HANG_S, LOOPBACK, wait_until
from support.rocketmq.frames import encode_request, send

pytestmark = pytest.mark.rocketmq

NOT_SUPPORTED = 3  # REQUEST_CODE_NOT_SUPPORTED: what a broker says to codes it does not know
RULES: list[dict[str, object]] = [
    {"name": "topics", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "2000/s"}},
    {"name": "shop", "match": {"user": "shop"}, "per": "user", "limit": {"messages": "1/h", "burst": {"messages": 3}}},
    {
        "name": "declares",
        "match": {"operation": "declare", "topic": "made-*"},
        "per": "client",
        "limit": {"messages": "5/s", "burst": {"messages": 1}},
    },
    {
        "name": "searches",
        "match": {"operation": "query", "topic": "looked at"},
        "per": "rule",
        "limit": {"messages": "1/h", "burst": {"messages": 1}},
    },
    {"name": "requeues", "match": {"operation": "requeue", "group": "failing-*"}, "limit": {"messages": "10/s", "burst": {"messages": 1}}},
    {"name": "night", "match": {"group": "night-*"}, "per": "group", "limit": {"messages": "1/h", "burst": {"messages": 2}}},
]


@pytest.fixture(scope="module")
def gateway(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """In front of the broker, with four ways in: for the console, for its older codes, for nobody, and without remote admin."""
    rocket, vip = rocketmq.listeners
    rocket["remote_admin"] = {"allow": ["127.0.0.0/8"], "access_keys": ["mqcloud"]}
    upstream = {"protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": f"{LOOPBACK}:{rocketmq.port}"}
    others: list[dict[str, object]] = [
        {"name": "old", **upstream, "remote_admin": {"allow": [LOOPBACK], "legacy_codes": True}},
        {"name": "elsewhere", **upstream, "remote_admin": {"allow": ["10.0.0.0/8"]}},
        {"name": "plain", **upstream},
    ]
    with Gateway(tmp_path_factory.mktemp("gateway"), [rocket, vip, *others], RULES) as running:
        yield running


@pytest.fixture(scope="module")
def answers(rocketmq: RocketMQ, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the client saw of each job, by the job's name; all of them by one JVM, in this order."""
    rocketmq.create_topics("console", "free", "signed", "grouped")
    gateway.cli("limits", "set", "rocketmq", "%RETRY%set by cli", "--messages", "7/s")
    rocket = f"{ADVERTISED}:{rocketmq.port}"
    old, elsewhere, plain = (f"{LOOPBACK}:{gateway.port(name)}" for name in ("old", "elsewhere", "plain"))

    def change(topic: str, rate: object, **more: object) -> dict[str, object]:
        return {"to": rocket, "key": "mqcloud", "code": 9003, "fields": {"topic": topic, "topicLimitQps": rate}, **more}

    view = {"to": rocket, "key": "mqcloud", "code": 9002}
    jobs: dict[str, dict[str, object]] = {
        "the first view": view,
        "refuse all": change("console", 0.0),
        "refused": {"send": 3, "topic": "console", "group": "p"},
        "the view then": view,
        "let some pass": change("free", 0.0003),
        "some passed": {"send": 3, "topic": "free", "group": "p"},
        "another limit": change("console", 500.5),
        "binary": change("%RETRY%workers", 3.0, binary=True),
        "negative": change("console", -1.0),
        "not a number": change("console", "NaN"),
        "no topic": {**view, "code": 9003, "fields": {"topicLimitQps": "5.0"}},
        "no rate": {**view, "code": 9003, "fields": {"topic": "console"}},
        "another key": {**view, "key": "shop"},
        "no key": {"to": rocket, "code": 9003, "fields": {"topic": "console", "topicLimitQps": 1.0}},
        "older view": {"to": old, "code": 329},
        "older change": {"to": old, "code": 330, "fields": {"topic": "older", "topicLimitQps": 9.0}},
        "another address": {"to": elsewhere, "key": "mqcloud", "code": 9002},
        "the broker's view": {"to": plain, "key": "mqcloud", "code": 9002},
        "the broker's change": {"to": plain, "code": 9003, "fields": {"topic": "console", "topicLimitQps": 1.0}},
        "the broker's older change": {"to": plain, "code": 330, "fields": {"topic": "console", "topicLimitQps": 1.0}},
        "the last view": view,
        "signed": {"send": 5, "topic": "signed", "group": "p", "key": "shop"},
        "signed by another": {"send": 5, "topic": "signed", "group": "p", "key": "mill"},
        "of a group": {"send": 5, "topic": "grouped", "group": "night-1"},
        "of another group": {"send": 5, "topic": "grouped", "group": "night-2"},
        "made one by one": {"admin": "create", "to": rocket, "topic": "made-", "count": 4, "threads": 1},
        "made at once": {"admin": "create", "to": rocket, "topic": "made-", "count": 60, "threads": 60},
        "made elsewhere": {"admin": "create", "to": rocket, "topic": "other-", "count": 4, "threads": 1},
        "searched": {"admin": "time", "to": rocket, "topic": "looked at", "count": 3, "threads": 3},
        "deleted": {"admin": "delete", "to": rocket, "topic": "made-", "count": 20, "threads": 8},
        "of no such group": {"send": 5, "topic": "grouped", "group": "day"},
    }
    home = tmp_path_factory.mktemp("ask")
    class_path = compiled(CLIENTS / "java" / "rocketmq_limits", JARS)
    words = [rocketmq.name_server, *map(json.dumps, jobs.values())]
    lines = Program([*java(class_path, "Ask", home), *words], cwd=home).result()
    return dict(zip(jobs, lines, strict=True))


Answers = dict[str, dict[str, Any]]


def test_the_console_sees_live_changes_and_topics_in_use(answers: Answers) -> None:
    first, then, last = (answers[name] for name in ("the first view", "the view then", "the last view"))
    assert (first["code"], first["opaque"], first["limits"]) == (0, True, {"%RETRY%set by cli": [7.0, 0, -1]})
    rate, wait, refused_at = then["limits"]["console"]
    assert rate == 0.0
    assert wait > 1e12  # microseconds: nothing will ever pass
    assert abs(refused_at / 1000 - time.time()) < 120
    assert {topic: limit[0] for topic, limit in last["limits"].items()} == {
        "%RETRY%set by cli": 7.0, "%RETRY%workers": 3.0, "console": 500.5, "free": 0.0003, "older": 9.0,
    }  # fmt: skip
    assert abs(last["limits"]["console"][2] - refused_at) <= 20  # ms: kept as monotonic time, and the wall clock is steered
    assert [view["version"][1] for view in (first, then, last)] == [1, 2, 6]


def test_a_change_is_in_force_when_it_is_answered(answers: Answers) -> None:
    assert [answers[name]["code"] for name in ("refuse all", "let some pass", "another limit", "binary")] == [0] * 4
    assert answers["refused"] == {"ok": 0, "codes": {"215": 3}}
    assert answers["some passed"] == {"ok": 1, "codes": {"215": 2}}  # the least that a bucket holds


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("negative", "topicLimitQps -1.0 is negative"),
        ("not a number", "'NaN' is no number"),
        ("no topic", "topic is missing"),
        ("no rate", "topicLimitQps is missing"),
    ],
)
def test_a_console_request_that_cannot_be_carried_out_is_answered_with_an_error(answers: Answers, job: str, said: str) -> None:
    assert answers[job]["code"] == 1
    assert said in answers[job]["remark"]


@pytest.mark.parametrize(("job", "said"), [("another key", "access_keys"), ("no key", "access_keys"), ("another address", "allow")])
def test_a_console_without_permission_is_refused(answers: Answers, job: str, said: str) -> None:
    assert answers[job]["code"] == 16
    assert f"remote_admin.{said}" in answers[job]["remark"]


def test_the_older_codes_are_answered_where_the_listener_says_so(answers: Answers) -> None:
    assert (answers["older view"]["code"], answers["older change"]["code"]) == (0, 0)
    assert answers["older view"]["limits"]["%RETRY%workers"] == [3.0, 0, -1]


@pytest.mark.parametrize("job", ["the broker's view", "the broker's change", "the broker's older change"])
def test_without_remote_admin_the_brokers_own_answer_passes(answers: Answers, job: str) -> None:
    assert answers[job]["code"] == NOT_SUPPORTED


@pytest.mark.usefixtures("answers")
def test_changes_are_in_history_and_audit_and_survive_as_any_other(gateway: Gateway) -> None:
    entries = gateway.get("/v1/history")["items"]
    assert [(entry["by"], entry["action"], entry["address"]) for entry in entries[:-1]] == [
        ("remote-admin", "330", LOOPBACK),
        *[("remote-admin mqcloud", "9003", LOOPBACK)] * 4,
    ]
    shown = gateway.cli("history", "list").stdout
    assert "remote-admin mqcloud" in shown
    assert "limits/rocketmq/%25RETRY%25workers" in gateway.cli("history", "list", "-o", "json").stdout
    audit = [(line["by"], line["outcome"], line["action"]) for line in gateway.get("/v1/audit")["items"]]
    assert ("remote-admin mqcloud", "refused", "9003") in audit
    assert any(by == "nobody" and outcome == "refused" for by, outcome, _ in audit)
    level = gateway.get(limit_path("rocketmq", "%RETRY%workers"))["levels"][0]
    assert (level["origin"], level["by"], level["limit"]["messages"]) == ("override", "remote-admin mqcloud", "3/s")


def test_an_access_key_has_its_limit_and_others_theirs(answers: Answers) -> None:
    assert answers["signed"] == {"ok": 3, "codes": {"215": 2}}
    assert answers["signed by another"] == {"ok": 5, "codes": {}}


def test_a_group_has_its_limit_and_others_theirs(answers: Answers) -> None:
    assert [answers[name]["ok"] for name in ("of a group", "of another group", "of no such group")] == [2, 2, 5]


def test_topics_are_created_late_and_what_would_come_too_late_is_refused(answers: Answers) -> None:
    """By the client that mqadmin is, which waits 5 s for an answer."""
    one_by_one = answers["made one by one"]
    assert (one_by_one["ok"], one_by_one["codes"]) == (4, {})
    assert one_by_one["ms"] >= 550
    at_once = answers["made at once"]
    assert set(at_once["codes"]) == {"215"}
    assert at_once["ok"] + at_once["codes"]["215"] == 60
    assert at_once["ok"] >= 10
    assert answers["made elsewhere"]["ok"] == 4
    assert answers["deleted"]["ok"] == 20, "on the same connection, which nobody has closed"


def test_a_search_is_refused_where_its_turn_is_too_far(answers: Answers) -> None:
    assert (answers["searched"]["ok"], answers["searched"]["codes"]) == (1, {"215": 2})


# ---- what consumers give back --------------------------------------------------------------------------------------------


def say(to: tuple[str, int], *requests: bytes) -> tuple[dict[int, int], float]:
    """Send all at once; the code that each opaque is answered with, and how many seconds the last took."""
    begun = time.monotonic()
    with socket.create_connection(to, timeout=HANG_S) as connection:
        connection.sendall(b"".join(requests))
        answers = [header_of(read_frame(connection)) for _ in requests]
    return {int(each["opaque"]): int(each["code"]) for each in answers}, time.monotonic() - begun


def header_of(answer: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer[8 : 8 + (int.from_bytes(answer[4:8], "big") & 0xFFFFFF)])
    return found


def test_send_backs_of_a_group_wait_and_others_do_not(rocketmq: RocketMQ, gateway: Gateway) -> None:
    rocketmq.create_topics("sent-back")
    rocket = (ADVERTISED, rocketmq.port)
    offset = original(rocket, "sent-back", 100)
    fields = {"offset": str(offset), "originTopic": "sent-back", "delayLevel": "18", "maxReconsumeTimes": "16", "unitMode": "false"}
    failing = [encode_request(36, {"group": "failing-1", **fields}, opaque=opaque) for opaque in range(40)]
    well = [encode_request(36, {"group": "well", **fields}, opaque=opaque) for opaque in range(100, 140)]
    codes, took = say(rocket, *failing, *well)
    passed = [opaque for opaque in range(40) if codes[opaque] == 0]
    assert {codes[opaque] for opaque in range(40)} == {0, 215}
    assert passed == list(range(len(passed))), "in the order in which they came"
    assert 5 <= len(passed) <= 27
    assert took >= 2.4
    assert [codes[opaque] for opaque in range(100, 140)] == [0] * 40


def test_what_pop_gives_back_waits_and_comes_again(rocketmq: RocketMQ, gateway: Gateway) -> None:
    rocketmq.create_topics("popped:1")
    rocket = (ADVERTISED, rocketmq.port)
    assert set(say(rocket, *(send("popped", b"x", opaque=4 * number) for number in range(12)))[0].values()) == {0}
    pop = {
        "consumerGroup": "failing-2", "topic": "popped", "queueId": "-1", "maxMsgNums": "32", "invisibleTime": "60000", "pollTime": "2000",
        "initMode": "0", "exp": "*", "expType": "TAG", "order": "false",
    }  # fmt: skip

    def popped() -> dict[str, Any]:
        with socket.create_connection(rocket, timeout=HANG_S) as connection:
            connection.sendall(encode_request(200_050, pop | {"bornTime": str(int(time.time() * 1000))}, opaque=1))
            return header_of(read_frame(connection))

    header = popped()
    assert header["code"] == 0, header
    more = header["extFields"]
    start = more["startOffsetInfo"].split(" ")[2]
    offsets = more["msgOffsetInfo"].split(" ")[2].split(",")
    assert len(offsets) == 12
    given_back = [
        encode_request(
            200_053,
            {
                "consumerGroup": "failing-2", "topic": "popped", "queueId": "0", "offset": offset, "invisibleTime": "1000",
                "extraInfo": f"{start} {more['popTime']} {more['invisibleTime']} {more['reviveQid']} 0 broker-a 0 {offset}",
            },
            opaque=number,
        )
        for number, offset in enumerate(offsets)
    ]  # fmt: skip
    codes, took = say(rocket, *given_back)
    assert set(codes.values()) == {0}
    assert took >= 1.0
    assert gateway.messages_by_fate("rocketmq", "%RETRY%failing-2", "requeue")["forwarded"] == 12

    def come_again() -> bool:
        popped()
        found = [
            each for each in gateway.samples() if each.name == "sluice_messages_redelivered_total" and each.labels["topic"] == "popped"
        ]
        return [each.value for each in found] == [12]

    wait_until(come_again, within=HANG_S, what="all comes again")


# ---- last: the gateway ends --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("answers")
def test_operators_see_the_users_and_groups_that_were_refused(gateway: Gateway) -> None:
    limits = gateway.get("/v1/limits")["items"]
    found = {(item["level"]["per"], item["level"]["thing"]): item["level"]["usage"]["refused"] for item in limits if item["level"]["usage"]}
    assert (found["user", "shop"], found["group", "night-1"], found["group", "night-2"]) == (2, 3, 3)
    gateway.stop()  # closes the access log
    lines = [json.loads(line) for file in Path(gateway.directory, "access-log").rglob("*.jsonl") for line in file.read_text().splitlines()]
    users = {line["user"] for line in lines if line.get("topic") == "signed"}
    assert users == {"shop", "mill"}
    groups = {line["group"] for line in lines if line.get("topic") == "grouped"}
    assert groups == {"night-1", "night-2", "day"}
    events = [json.loads(line) for line in gateway.log().splitlines() if '"limit_reached"' in line]
    assert ("user", "shop", "shop") in {(event["per"], event["thing"], event.get("user")) for event in events}
