"""Whose a request is: the access key it claims, and the consumer group of what goes to a retry topic."""

from __future__ import annotations

import pytest

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.conversation import RocketmqConversation
from gateway.protocols.rocketmq.headers import Header, read_binary, read_json
from gateway.protocols.rocketmq.origins import MAX_USER_BYTES, MAX_USERS
from gateway.protocols.rocketmq.template_cache import TemplateCache
from gateway.session.description import describe
from limiter.judge import Judge
from limiter.limits import SECOND, Limit, Rate
from limiter.rules.rule_set import Match, Rule, RuleSet
from support.cases import in_one_loop
from support.rocketmq import frames as rocketmq
from support.wires.conversations import Talk
from support.wires.wires import Wires

SHORT = (310, 320, 325)
LONG = (10, 324, 370)
BOTH = pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
PER_CONNECTION = Rule("each", per="connection", limit=Limit(messages=Rate(5, 60_000_000_000), messages_burst=5), open_for_ns=0)
PER_USER = Rule("users", per="user", limit=Limit(messages=Rate(2)), open_for_ns=0)


def read(code: int, extra: dict[str, rocketmq.Value], binary: bool) -> Header:
    data = rocketmq.binary_header(code, extra) if binary else rocketmq.json_header(code, extra)
    return read_binary(data, 0, len(data)) if binary else read_json(data)


def signed(opaque: int, key: rocketmq.Value, *, topic: str = "orders", binary: bool = False) -> bytes:
    """A send as an ACL client writes it; its signature is another each time."""
    extra: dict[str, rocketmq.Value] = {
        "AccessKey": key, "Signature": f"{opaque:027d}=", "a": "producers", "b": topic, "e": str(opaque % 4), "m": "false",
    }  # fmt: skip
    return rocketmq.encode_request(310, extra, b"body", opaque=opaque, binary=binary)


@in_one_loop
@pytest.mark.parametrize("code", [*SHORT, *LONG, 36])
@BOTH
@pytest.mark.parametrize(
    ("key", "user"), [("AK-shop", b"AK-shop"), (4711, b"4711"), ("", b""), (None, b""), ("\u4e2d", "\u4e2d".encode())]
)  # fmt: skip
def test_the_access_key_of_a_request_is_its_user(code: int, binary: bool, key: rocketmq.Value, user: bytes) -> None:
    """C++ clients always send an empty one: that is nobody."""
    header = read(code, {"AccessKey": key, "Signature": "x=", "b": "t", "topic": "t", "group": "g", "producerGroup": "p"}, binary)
    assert header.topic
    assert header.user == user


def test_the_last_of_two_access_keys_counts_as_in_the_brokers_map() -> None:
    assert read_json(b'{"code":10,"extFields":{"AccessKey":"free","topic":"t","AccessKey":"paid"},"opaque":3}').user == b"paid"


def test_an_access_key_that_a_broker_could_read_differently_ends_the_connection() -> None:
    with pytest.raises(ProtocolError, match="access key"):
        read_json(b'{"code":10,"extFields":{"topic":"t","AccessKey":["a"]},"opaque":3}')


@pytest.mark.parametrize("code", SHORT + LONG)
@BOTH
def test_a_send_to_a_retry_topic_belongs_to_its_consumer_group(code: int, binary: bool) -> None:
    """Java falls back from a send-back to a send under CLIENT_INNER_PRODUCER: limits per group must not see another group then."""
    names = rocketmq.SHORT if code in SHORT else rocketmq.LONG
    header = read(code, {names["group"]: "CLIENT_INNER_PRODUCER", names["topic"]: "%RETRY%workers"}, binary)
    assert (header.topic, header.group) == (b"%RETRY%workers", b"workers")


@pytest.mark.parametrize("per", ["topic", "group"])
@BOTH
def test_send_backs_and_sends_to_the_retry_topic_are_one_key(per: str, binary: bool) -> None:
    talk = Talk("rocketmq", Rule("r", Match(topic="%RETRY%*"), per=per, limit=Limit(messages=Rate(3)), open_for_ns=0))
    talk.client(
        rocketmq.send_back("workers", opaque=1, binary=binary) * 2
        + rocketmq.send("%RETRY%workers", opaque=2, group="CLIENT_INNER_PRODUCER", binary=binary) * 2
    )
    assert talk.forwarded == 3
    assert [(state.thing, state.over_limit) for state in talk.judge.states(talk.now)] == [
        ("%RETRY%workers" if per == "topic" else "workers", 1)
    ]
    assert talk.judge.usage()["keys"] == 1


def test_a_signature_varies_and_an_access_key_does_not() -> None:
    """A header is recognised although its signature is new; one with another access key is not taken for it."""
    templates = TemplateCache()
    for opaque in (1, 2, 3):
        text = signed(opaque, "AK")[8:-4]
        templates.learn(text, read_json(text))
    same = signed(77, "AK")[8:-4]
    found = templates.match(same, 0, len(same))
    assert found is not None
    assert (found.user, templates.opaque) == (b"AK", 77)
    other = signed(78, "BK")[8:-4]
    assert templates.match(other, 0, len(other)) is None


@BOTH
def test_each_access_key_has_its_bucket_also_on_one_connection(binary: bool) -> None:
    talk = Talk("rocketmq", PER_USER)
    talk.client(b"".join(signed(number, ("A", "B", "")[number % 3], binary=binary) for number in range(12)))
    assert talk.forwarded == 6
    assert sorted(state.thing for state in talk.judge.states(talk.now)) == ["", "A", "B"]
    assert talk.conversation.user == "B"


def test_a_rule_names_an_access_key_and_the_addresses_it_may_be_claimed_from() -> None:
    none = Limit(messages=Rate(0))
    rules = (
        Rule("elsewhere", Match(user="A", client="192.168.0.0/16"), limit=none),
        Rule("here", Match(user="B", client="10.0.0.0/8"), limit=none),
    )
    talk = Talk("rocketmq", *rules)
    talk.client(b"".join(signed(number, key) for number, key in enumerate("ABAB")))
    assert talk.forwarded == 2


def test_a_client_that_makes_up_access_keys_costs_little_and_gets_no_second_bucket_of_its_connection() -> None:
    with Wires(PER_CONNECTION) as wires:
        client, broker = wires.connect("rocketmq")
        for first in range(0, 3 * MAX_USERS, MAX_USERS // 2):
            client.sendall(b"".join(signed(number, f"made up {number}") for number in range(first, first + MAX_USERS // 2)))
            wires.run()
        assert len(rocketmq.split_frames(wires.received(broker))) == 5
        assert wires.judge.usage()["origins"] == MAX_USERS
        client.close()
        broker.close()
        wires.run()
        assert (wires.judge.usage()["origins"], wires.judge.usage()["levels"]) == (0, 0)


def test_connections_of_several_access_keys_are_told_apart_when_a_rule_comes_that_does() -> None:
    with Wires() as wires:
        pairs = [wires.connect("rocketmq") for _ in range(2)]
        for client, _ in pairs:
            client.sendall(signed(1, "A") + signed(2, "B"))
        wires.run()
        wires.enforce(RuleSet((PER_CONNECTION,)))
        for client, _ in pairs:
            client.sendall(b"".join(signed(number, "AB"[number % 2]) for number in range(8)))
        wires.run()
        assert [len(rocketmq.split_frames(wires.received(broker))) for _, broker in pairs] == [2 + 5, 2 + 5]


def test_an_endless_access_key_is_cut() -> None:
    talk = Talk("rocketmq", PER_USER)
    talk.client(signed(1, "k" * 10_000) + signed(2, "k" * 20_000))
    assert [len(state.thing) for state in talk.judge.states(talk.now)] == [MAX_USER_BYTES]
    assert talk.conversation.user == "k" * MAX_USER_BYTES


def test_operators_see_the_access_key_of_a_connection() -> None:
    with Wires() as wires:
        client, _ = wires.connect("rocketmq")
        client.sendall(signed(1, "AK"))
        wires.run()
        assert describe(wires.session(), wires.now()).user == "AK"


def test_a_consumer_that_sends_nothing_is_known_by_its_heartbeats() -> None:
    talk = Talk("rocketmq")
    talk.client(rocketmq.encode_request(34, {"AccessKey": "AK", "Signature": "x="}, b"{}"))
    assert talk.conversation.user == "AK"


def test_access_keys_made_up_for_each_request_count_as_nobodys_beyond_a_bound() -> None:
    """Each would be an origin, a key and buckets of its own. The first of a connection, and so many at once, are known."""
    judge = Judge(RuleSet((PER_USER,)), bounds_names=True)
    talk = Talk("rocketmq", judge=judge)
    assert isinstance(talk.conversation, RocketmqConversation)
    frames = talk.conversation.frames
    talk.client(b"".join(signed(number, f"made up {number}") for number in range(MAX_USERS)))
    assert frames.origin.user == f"made up {MAX_USERS - 1}"
    while frames.origin.new_names is not None and frames.origin.new_names.take(judge.origins.now):
        pass  # others behind this address
    talk.client(signed(1, "one more"))
    assert frames.origin.user is None
    assert judge.usage()["origins"] <= MAX_USERS
    talk.wait(SECOND)
    talk.client(signed(2, "one more"))  # the judge hears of the time
    talk.client(signed(3, "one more"))
    assert frames.origin.user == "one more"


def test_topics_in_turn_are_those_of_the_user_that_each_request_claims() -> None:
    """Keys are remembered with the template of a header: for its user, and for as long as that is known."""
    talk = Talk("rocketmq", PER_USER)
    number = 0
    for users in (["ann"], ["ann", "bob"], [f"u{each}" for each in range(MAX_USERS + 2)], ["ann", "bob"]):
        for _ in range(6):
            for user in users:
                for topic in ("orders", "bills", "%RETRY%workers", "bills", "mail", "orders"):
                    number += 1
                    talk.parts.clear()
                    talk.client(signed(number, user, topic=topic))
                    part = talk.parts[0]
                    assert part.key is not None
                    assert (part.key.name.text(), part.key.origin.user) == (topic, user)
                    assert part.key.origin.sessions == 1, "an origin that is not in use any more"
    talk.conversation.renew_keys()
    talk.client(signed(1, "ann"))
    assert talk.parts[-1].key is not None
    assert talk.parts[-1].key.origin.sessions == 1
