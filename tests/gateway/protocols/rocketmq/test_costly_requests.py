"""Requests that create, delete, look up and command: over their limit they wait, and are refused only when their client would give up."""

from __future__ import annotations

from typing import Any

import pytest

from limiter.limits import Limit, Rate
from limiter.operations import OPERATION_RECORDS
from limiter.rules.errors import RuleError
from limiter.rules.rule_set import Match, Rule
from support.rocketmq.frames import Value, encode_request, frame, json_header, read_response, send, split_frames
from support.wires.conversations import SECOND, Talk, randomly

MS = SECOND // 1000
CODES = {"declare": 17, "delete": 215, "query": 105, "admin": 25}


def limit(operation: str, messages: int = 10, *, burst: int = 1, per: str = "client", match: dict[str, str] | None = None) -> Rule:
    rate = Limit(messages=Rate(messages), messages_burst=burst)
    return Rule(f"limit {operation}", Match(operation=operation, **(match or {})), per=per, limit=rate)


def asks(operation: str, opaque: int = 1, body: bytes = b"", **fields: Value) -> bytes:
    return encode_request(CODES[operation], fields, body, opaque=opaque)


def told(talk: Talk) -> bytes:
    data, talk.to_broker = talk.to_broker, b""
    return data


@pytest.mark.parametrize("operation", CODES)
def test_what_is_over_the_limit_waits_and_all_others_pass_it_by(operation: str) -> None:
    talk = Talk("rocketmq", limit(operation))
    first, second = asks(operation, 1, topic="a"), asks(operation, 2, topic="b")
    others = b"".join(asks(other, 3) for other in CODES if other != operation) + send(opaque=4)
    talk.client(first + second + others)
    assert told(talk) == first + others
    talk.wait(99 * MS)
    assert told(talk) == b""
    talk.wait(1 * MS)
    assert told(talk) == second
    assert talk.to_client == b""
    assert talk.holds_nothing()


def test_a_client_that_would_give_up_is_told() -> None:
    talk = Talk("rocketmq", limit("declare", 1))
    requests = [asks("declare", opaque, topic="a") for opaque in range(1, 6)]
    talk.client(b"".join(requests))
    talk.wait(2_499 * MS)
    assert told(talk) == b"".join(requests[:3])
    assert talk.to_client == b""
    talk.wait(1 * MS)
    answers = [read_response(each) for each in split_frames(talk.to_client)]
    assert [(each["code"], each["opaque"]) for each in answers] == [(215, 4), (215, 5)]
    assert str(answers[0]["remark"]).startswith("[RateLimit] for a need wait:")
    assert talk.holds_nothing()
    key = talk.parts[0].key
    assert key is not None
    assert (key.operation, key.tally.refused, key.tally.dropped) == ("declare", 2, 0)


def test_what_names_no_topic_is_told_of_by_its_operation() -> None:
    talk = Talk("rocketmq", limit("admin", 0))
    talk.client(asks("admin"))
    talk.wait(3 * SECOND)
    assert "for admin need" in str(read_response(talk.to_client)["remark"])


def test_what_expects_no_answer_waits_on_and_is_never_dropped() -> None:
    talk = Talk("rocketmq", limit("query", 1))
    requests = [encode_request(105, {"topic": "t"}, opaque=opaque, flag=2) for opaque in range(6)]
    talk.client(b"".join(requests))
    talk.wait(5 * SECOND)
    assert told(talk) == b"".join(requests)
    assert talk.to_client == b""


@pytest.mark.parametrize(
    ("match", "fields", "limited"),
    [
        ({"topic": "orders*"}, {"topic": "orders-eu"}, True),
        ({"topic": "orders*"}, {"topic": "mail"}, False),
        ({"topic": "orders*"}, {}, False),
        ({"group": "billing"}, {"group": "billing"}, True),
        ({"group": "billing"}, {"consumerGroup": "billing"}, True),
        ({"group": "billing"}, {"groupName": "billing", "group": ""}, True),
        ({"group": "billing"}, {"topic": "billing"}, False),
        ({"user": "shop"}, {"AccessKey": "shop"}, True),
        ({"user": "shop"}, {"AccessKey": "mill"}, False),
        ({"namespace": "eu"}, {"topic": "eu%orders"}, True),
        ({"client": "10.0.0.0/8"}, {}, True),
        ({"client": "10.1.0.0/16"}, {}, False),
        ({}, {"topic": "TBW102"}, True),  # the broker's own topics are no way round it
        ({}, {"topic": 5}, True),
    ],
)
@pytest.mark.parametrize("binary", [False, True])
def test_whose_it_is_says_the_header(match: dict[str, str], fields: dict[str, Value], limited: bool, binary: bool) -> None:
    talk = Talk("rocketmq", limit("query", 0, match=match))
    request = encode_request(12, fields, opaque=1, binary=binary)
    talk.client(request)
    assert told(talk) == (b"" if limited else request)


@pytest.mark.parametrize("odd", [b'{"topic":["a"]}', b'{"topic":{"a":1}}', b'{"topic":1.5,"group":[]}', b"null"])
def test_a_name_that_is_none_closes_no_connection(odd: bytes) -> None:
    talk = Talk("rocketmq", limit("query", match={"group": "g"}))
    request = frame(json_header(12, None).replace(b'"code":12,', b'"code":12,"extFields":' + odd + b","))
    talk.client(request)
    assert told(talk) == request


@pytest.mark.parametrize("seed", range(5))
def test_a_large_one_in_pieces_is_held_whole_and_passes_as_it_came(seed: int) -> None:
    talk = Talk("rocketmq", limit("declare"))
    first, second = (asks("declare", opaque, bytes(range(256)) * 8192) for opaque in (1, 2))
    data = first + second + send()
    pieces = [*randomly(data[:3000], seed), data[3000:-3000], *randomly(data[-3000:], seed)]
    talk.client(data, pieces)
    assert told(talk) == first + send()
    talk.wait(SECOND)
    assert told(talk) == second


def test_where_no_rule_is_for_it_no_key_is_made() -> None:
    talk = Talk("rocketmq", limit("declare"))
    talk.client(b"".join(asks("query", number, topic=f"topic {number}") for number in range(50)))
    assert [part.key for part in talk.parts] == [None]
    assert len(talk.parts[0].data) == len(told(talk))


def test_answers_to_the_brokers_own_requests_pass() -> None:
    talk = Talk("rocketmq", limit("admin", 0))
    answer = encode_request(309, {"group": "g"}, flag=1)
    talk.client(answer)
    assert told(talk) == answer


def test_templates_of_sends_are_kept_whatever_is_asked_beside_them() -> None:
    talk = Talk("rocketmq", limit("query", 1_000_000, burst=1_000_000))
    for number in range(40):
        talk.client(send(opaque=number) + asks("query", number, topic=f"topic {number}"))
    frames: Any = talk.conversation
    assert all(template.header.topic for template in frames.frames.templates.templates)


def test_what_waits_goes_when_its_limit_is_raised() -> None:
    talk = Talk("rocketmq", limit("admin", 0))
    request = asks("admin")
    talk.client(request)
    talk.judge.replace(type(talk.judge.rules)((limit("admin", 100),)), talk.now)
    talk.wait(SECOND // 2)
    assert told(talk) == request


@pytest.mark.parametrize(
    ("operation", "match", "more", "field"),
    [
        ("query", {"protocol": "amqp"}, {}, "match.operation"),
        ("admin", {"vhost": "/"}, {}, "match.operation"),
        ("bind", {"protocol": "rocketmq"}, {}, "match.operation"),
        ("purge", {"topic": "orders"}, {}, "match.operation"),
        ("query", {}, {"per": "vhost"}, "per"),
        ("bind", {}, {"per": "group"}, "per"),
        ("query", {}, {"per": "topic"}, "per"),
        ("declare", {"protocol": "rocketmq"}, {"action": "drop"}, "action"),
        ("declare", {"protocol": "rocketmq"}, {"action": "spool"}, "action"),
        ("admin", {}, {"action": "close"}, "action"),
        ("admin", {}, {"fallback": "drop"}, "fallback"),
        ("delete", {"topic": "orders"}, {"limit": Limit(bytes=Rate(5))}, "limit.bytes"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_field(operation: str, match: dict[str, str], more: dict[str, Any], field: str) -> None:
    with pytest.raises(RuleError) as refused:
        Rule("costly", Match(operation=operation, **match), **{"per": "client", "limit": Limit(messages=Rate(5)), **more})
    assert refused.value.field == field


@pytest.mark.parametrize("per", ["group", "namespace", "user", "client", "connection", "listener", "rule"])
def test_each_level_of_rocketmq_fits(per: str) -> None:
    assert Rule("queries", Match(operation="query", topic="orders"), per=per, limit=Limit(messages=Rate(5))).breaker_ns() == 0


def test_each_protocol_has_its_own_words() -> None:
    of_rocketmq = [name for name, record in OPERATION_RECORDS.items() if "rocketmq" in record.protocols and not record.methods]
    assert set(CODES) - set(of_rocketmq) == {"declare", "delete"}, "which have methods of AMQP, too"
