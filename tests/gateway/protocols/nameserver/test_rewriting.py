"""Routes in JSON, as name server 5.3.3 has written them (2026-11, two masters and a slave), and as nobody should."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.pipeline.routes import RouteError
from gateway.protocols.nameserver.rewriting import KNOWN, MAX_KNOWN_BYTES, KnownRoutes, addresses_in, rewrite, size_of
from support.cases import in_one_loop
from support.wires.conversations import Ports

MASTER_A, SLAVE_A, MASTER_B = "127.0.0.1:20835", "127.0.0.1:26484", "127.0.0.1:27751"

# To clients below version 4.9.4 (401), C++, Go and Node among them, keys are bare numbers; others get them in quotes.
ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:27751"},"brokerName":"broker-b","cluster":"DefaultCluster","enableActingMaster":false},'
    b'{"brokerAddrs":{0:"127.0.0.1:20835",1:"127.0.0.1:26484"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],'
    b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4},'
    b'{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)
CLUSTERS = (
    b'{"brokerAddrTable":{"broker-b":{"brokerAddrs":{0:"127.0.0.1:27751"},"brokerName":"broker-b","cluster":"DefaultCluster",'
    b'"enableActingMaster":false},"broker-a":{"brokerAddrs":{0:"127.0.0.1:20835",1:"127.0.0.1:26484"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-b","broker-a"]}}'
)
MEMBERS = (
    b'{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:20835",1:"127.0.0.1:26484"},"brokerName":"broker-a","cluster":"DefaultCluster"}}'
)
TOPICS = b'{"brokerAddr":"127.0.0.1:27751","topicList":["broker-b","broker-a","DefaultCluster"]}'


def quoted(body: bytes) -> bytes:
    """The other form of the keys."""
    return body.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":')


BODIES = {"105": ROUTE, "106": CLUSTERS, "901": MEMBERS}
FORMS = {name: body for name, bare in BODIES.items() for name, body in ((f"{name} bare", bare), (f"{name} quoted", quoted(bare)))}


@pytest.mark.parametrize("body", FORMS.values(), ids=FORMS)
def test_addresses_are_replaced_and_every_other_byte_stays(body: bytes) -> None:
    ports = Ports()
    expected = body
    rewritten = rewrite(body, ports)
    for broker, address in ports.addresses.items():
        expected = expected.replace(address.encode(), f"gateway.example:{ports.ports[broker]}".encode())
    assert rewritten == expected
    assert b"127.0.0.1" not in rewritten


def test_each_broker_and_id_has_a_port_of_its_own() -> None:
    ports = Ports()
    rewrite(ROUTE, ports)
    assert ports.addresses == {("broker-b", 0): MASTER_B, ("broker-a", 0): MASTER_A, ("broker-a", 1): SLAVE_A}
    assert len(set(ports.ports.values())) == 3


@pytest.mark.parametrize("body", FORMS.values(), ids=FORMS)
def test_the_object_that_the_go_client_splits_by_hand_gains_no_byte(body: bytes) -> None:
    """It splits the text of brokerAddrs at commas and the first colon (route.go): no blank, no new key."""
    rewritten = rewrite(body, Ports())
    for text in rewritten.split(b'"brokerAddrs":{')[1:]:
        inner = text[: text.index(b"}")]
        for entry in inner.split(b","):
            key, _, address = entry.partition(b":")
            assert key.strip(b'"').isdigit()
            assert address.startswith(b'"gateway.example:209')
            assert address.endswith(b'"')


def test_the_names_place_and_blanks_make_no_difference() -> None:
    body = json.dumps({"x": [{"brokerName": "b", "brokerAddrs": {"0": "10.0.0.1:1", "1": "10.0.0.2:1"}}]}, indent=2).encode()
    ports = Ports()
    assert json.loads(rewrite(body, ports)) == {
        "x": [{"brokerName": "b", "brokerAddrs": {"0": "gateway.example:20911", "1": "gateway.example:20912"}}]
    }
    assert ports.addresses == {("b", 0): "10.0.0.1:1", ("b", 1): "10.0.0.2:1"}


def test_a_name_nearer_the_root_or_the_leaves_is_not_the_brokers() -> None:
    body = b'{"brokerName":"outer","a":{"brokerAddrs":{0:"h:1"},"b":{"brokerName":"inner"},"brokerName":"own"}}'
    ports = Ports()
    rewrite(body, ports)
    assert list(ports.addresses) == [("own", 0)]


def test_text_that_only_looks_like_a_route_stays_as_it_is() -> None:
    body = json.dumps(
        {"orderTopicConf": '"brokerAddrs":{0:"10.0.0.1:1"}', "c": "brokerAddrs", "filterServerTable": {"10.0.0.1:1": ["f:2"]}}
    )
    assert rewrite(body.encode(), Ports()) == body.encode()


def test_escapes_are_read() -> None:
    ports = Ports()
    rewritten = rewrite(rb'{"broker\u0041ddrs":{0:"h\u002e:1"},"brokerName":"caf\u00e9"}', ports)
    assert ports.addresses == {("caf\u00e9", 0): "h.:1"}
    assert rewritten == rb'{"broker\u0041ddrs":{0:"gateway.example:20911"},"brokerName":"caf\u00e9"}'


@pytest.mark.parametrize(
    "body", [b'{"brokerDatas":[]}', b'{"brokerAddrs":null,"brokerName":"b"}', b'{"brokerAddrs":{},"brokerName":null}', b"{}"]
)
def test_a_route_without_addresses_stays_as_it_is(body: bytes) -> None:
    assert rewrite(body, Ports()) is body


def test_the_broker_of_the_list_of_system_topics_is_a_known_one_or_none() -> None:
    """Its address stands in the list of system topics (304) without its name; the Java client asks nobody where it is empty."""
    ports = Ports()
    assert rewrite(TOPICS, ports) == TOPICS.replace(MASTER_B.encode(), b"")
    rewrite(ROUTE, ports)
    assert rewrite(TOPICS, ports) == TOPICS.replace(MASTER_B.encode(), b"gateway.example:20911")
    assert rewrite(b'{"brokerAddr":"","topicList":[]}', ports) == b'{"brokerAddr":"","topicList":[]}'


UNREADABLE = {
    "empty": b"",
    "text": b"No route",
    "compressed": b"\x78\x9c\xab\x56\x4a\x2a\xca\xcf\x4e\x2d\x72\x49",
    "an array": b"[]",
    "ends early": ROUTE[:-1],
    "goes on": ROUTE + b"{}",
    "unbalanced": b'{"a":[}',
    "two names": b'{"a" "b":1}',
    "two values": b'{"a":1 2}',
    "no key": b'{:"a"}',
    "text not ended": b'{"a":"b}',
    "addresses are text": b'{"brokerAddrs":"10.0.0.1:1","brokerName":"b"}',
    "addresses are a list": b'{"brokerAddrs":["10.0.0.1:1"],"brokerName":"b"}',
    "an address is an object": b'{"brokerAddrs":{0:{"a":"10.0.0.1:1"}},"brokerName":"b"}',
    "an address is a number": b'{"brokerAddrs":{0:1},"brokerName":"b"}',
    "an id is a word": b'{"brokerAddrs":{"master":"10.0.0.1:1"},"brokerName":"b"}',
    "an id is negative": b'{"brokerAddrs":{-1:"10.0.0.1:1"},"brokerName":"b"}',
    "no name": b'{"brokerAddrs":{0:"10.0.0.1:1"}}',
    "not UTF-8": b'{"brokerAddrs":{0:"10.0.0.1:1"},"brokerName":"\xff"}',
}


@in_one_loop
@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
def test_a_route_that_cannot_be_read_for_certain_is_an_error(body: bytes) -> None:
    with pytest.raises(RouteError):
        rewrite(body, Ports())


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_anything_is_read_or_is_a_route_error(body: bytes) -> None:
    try:
        rewrite(body, Ports())
    except RouteError as error:
        assert "\n" not in str(error)  # noqa: PT017  -- whether it is raised depends on the bytes


@given(st.integers(0, len(ROUTE) - 1), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_no_address_slips_through_a_damaged_route(place: int, octet: int) -> None:
    """Whatever one byte is changed to: an error, or a route in which each value of a `brokerAddrs` was replaced."""
    body = ROUTE[:place] + bytes([octet]) + ROUTE[place + 1 :]
    try:
        rewritten = rewrite(body, Ports())
    except RouteError:
        return
    for text in rewritten.split(b'"brokerAddrs":{')[1:]:
        assert b'"127' not in text[: text.index(b"}")]


def test_equal_answers_are_taken_apart_once_and_their_brokers_looked_up_each_time() -> None:
    routes = Ports()
    before = KNOWN.taken_apart
    bodies = [ROUTE.replace(b"broker-a", b"once-%d" % number) for number in range(3)]
    first = [rewrite(body, routes) for body in bodies]
    assert [rewrite(bytes(bytearray(body)), routes) for body in bodies * 10] == first * 10
    assert KNOWN.taken_apart == before + 3
    assert rewrite(bodies[1], Ports()) != first[1], "other listeners"
    assert KNOWN.taken_apart == before + 3


def test_of_many_answers_the_latest_are_remembered() -> None:
    known = KnownRoutes()
    blank = b" " * (MAX_KNOWN_BYTES // 4 - size_of(ROUTE, addresses_in(ROUTE)))
    bodies = [ROUTE.replace(b"broker-a", b"broker-%d" % number) + blank for number in range(6)]
    for body in bodies:
        known.addresses_in(body)
    for body in (*bodies[-4:], bodies[0]):
        known.addresses_in(body)
    assert known.taken_apart == 7
    huge = ROUTE + b" " * MAX_KNOWN_BYTES
    assert known.addresses_in(huge) == known.addresses_in(huge) == addresses_in(ROUTE)
    assert known.taken_apart == 9
    many = b'{"brokerName":"b","brokerAddrs":{%b}}' % b",".join(b'%d:"a:1"' % number for number in range(3000))
    assert len(known.addresses_in(many)) == len(known.addresses_in(many)) == 3000
    assert known.taken_apart == 11, "what is remembered of many addresses is much more than they are"
    with pytest.raises(RouteError):
        known.addresses_in(b"{")
    with pytest.raises(RouteError):
        known.addresses_in(b"{")
