"""What a name server's client and the name server see of a gateway between them."""

from __future__ import annotations

import struct

import pytest

from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.routes import RouteError
from gateway.protocols.nameserver.conversation import NameserverConversation
from gateway.protocols.nameserver.pending_requests import MAX_PENDING_REQUESTS
from gateway.protocols.nameserver.requests import REGISTRATIONS
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Match, Rule
from support.rocketmq import frames as rocketmq
from support.wires.conversations import SECOND, Ports, Talk, bytewise, randomly

ROUTE = b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"c"}],"queueDatas":[]}'
LED = ROUTE.replace(b"10.0.0.1:10911", b"gateway.example:20911").replace(b"10.0.0.2:10911", b"gateway.example:20912")
CODES = (105, 106, 901)


class NoPorts(Ports):
    """Has no port for anybody."""

    def find(self, broker: str, number: int, address: str) -> str:
        raise RouteError("broker_ports (20911-20912) of listener names has room for 2 brokers, and no port is free: widen it")


def ask(opaque: int = 1, code: int = 105, *, binary: bool = False, flag: int = 0) -> bytes:
    return rocketmq.encode_request(code, {"topic": "orders"}, opaque=opaque, binary=binary, flag=flag)


def answer(opaque: int, body: bytes = ROUTE, code: int = 0, *, binary: bool = False, flag: int = 1) -> bytes:
    header = (rocketmq.binary_header if binary else rocketmq.json_header)(code, None, opaque=opaque, flag=flag)
    return rocketmq.frame(header, body, 1 if binary else 0)


def talk(**more: object) -> Talk:
    return Talk("rocketmq-nameserver", **more)  # type: ignore[arg-type]


def chunkings(data: bytes) -> list[list[bytes]]:
    return [[data], bytewise(data), *(randomly(data, seed) for seed in range(5)), *([data[:at], data[at:]] for at in range(1, len(data)))]


# ---- routes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("code", CODES)
def test_requests_pass_as_they_are_and_routes_lead_here(code: int, binary: bool) -> None:
    one = talk()
    one.client(ask(code=code, binary=binary))
    assert one.to_broker == ask(code=code, binary=binary)
    one.broker(answer(1, binary=binary))
    assert one.to_client == answer(1, LED, binary=binary)


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_however_an_answer_is_cut_the_client_gets_the_same_and_what_is_no_route_at_once(binary: bool) -> None:
    before, after = answer(2, b"x" * 300, binary=binary), rocketmq.encode_request(905, {"minBrokerId": "0"}, opaque=1, binary=binary)
    stream = before + answer(1, binary=binary) + after + answer(3, binary=binary) + answer(4, b"")
    expected = before + answer(1, LED, binary=binary) + after + answer(3, LED, binary=binary) + answer(4, b"")
    for chunks in chunkings(stream):
        one = talk()
        one.client(ask(1) + ask(2, 206) + ask(3) + ask(4))
        one.broker(b"", chunks)
        assert one.to_client == expected
        assert one.conversation.settled()
        assert one.conversation.budget.unanswered_bytes == 0


def test_answers_come_in_any_order_and_each_is_taken_for_what_was_asked() -> None:
    one = talk()
    one.client(ask(1) + ask(2, 100) + ask(3, 106))
    one.broker(answer(3))
    one.broker(answer(2))
    one.broker(answer(1))
    assert one.to_client == answer(3, LED) + answer(2) + answer(1, LED)


def test_a_body_that_nobody_asked_for_as_a_route_passes() -> None:
    one = talk()
    one.client(ask(1, 206))
    one.broker(answer(1) + answer(7))
    assert one.to_client == answer(1) + answer(7)


def test_a_number_used_again_before_its_answer_hides_no_route() -> None:
    for codes in ((105, 206), (206, 105), (105, 105)):
        one = talk()
        one.client(ask(5, codes[0]) + ask(5, codes[1]))
        one.broker(answer(5) + answer(5))
        assert one.to_client == answer(5, LED) + answer(5, LED)
        one.broker(answer(5))
        assert one.to_client.endswith(answer(5))  # nobody has asked for that one


def test_numbers_of_the_two_directions_are_apart() -> None:
    one = talk()
    one.client(ask(1))
    one.broker(answer(1, flag=0))  # a request of the name server's, which happens to have the same number
    one.broker(answer(1))
    assert one.to_client == answer(1, flag=0) + answer(1, LED)


def test_an_error_passes_as_it_is_before_its_body_is_there() -> None:
    one = talk()
    one.client(ask(1))
    error = answer(1, ROUTE, 17)
    one.broker(error[:-20])
    assert one.to_client == error[:-20]
    one.broker(error[-20:])
    assert one.to_client == error


def test_a_route_is_kept_until_it_is_whole_and_replies_go_before_it() -> None:
    one = talk()
    one.client(ask(1))
    one.broker(answer(1)[:-1])
    assert one.to_client == b""
    assert one.conversation.budget.unanswered_bytes == len(answer(1)) - 1
    one.client(ask(2, 103))
    assert rocketmq.read_response(one.to_client)["opaque"] == 2
    one.broker(answer(1)[-1:])
    assert one.to_client.endswith(answer(1, LED))


def test_a_reply_waits_for_the_end_of_what_is_passing() -> None:
    one = talk()
    one.client(ask(1, 206))
    one.broker(answer(1)[:-1])
    one.client(ask(2, 103))
    assert one.to_client == answer(1)[:-1]
    one.broker(answer(1)[-1:])
    assert one.to_client.startswith(answer(1))
    assert rocketmq.read_response(one.to_client[len(answer(1)) :])["opaque"] == 2


# ---- routes that cannot lead here --------------------------------------------------------------------------------------


def test_replies_that_wait_count_as_held_so_that_a_client_cannot_pile_them_up() -> None:
    """At `hold_bytes` of what is held a session reads no more of its client."""
    one = talk()
    long = answer(1, b"x" * 1000)
    one.client(ask(1, 206))
    one.broker(long[:-1])
    one.client(ask(2, 103))
    once = one.conversation.budget.reply_bytes
    one.client(b"".join(ask(opaque, 103) for opaque in range(3, 102)))
    assert once > 200
    assert one.conversation.budget.reply_bytes == pytest.approx(100 * once, rel=0.1)
    one.broker(long[-1:])
    assert one.to_client.startswith(long)
    assert len(one.to_client) > len(long) + 90 * once
    assert one.conversation.budget.reply_bytes == 0


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_a_route_without_a_port_is_an_honest_error(binary: bool) -> None:
    one = talk(routes=NoPorts())
    one.client(ask(7, binary=binary))
    one.broker(answer(7, binary=binary) + answer(8))
    error, rest = rocketmq.split_frames(one.to_client)
    fields = rocketmq.read_response(error)
    assert (fields["code"], fields["opaque"], fields["flag"]) == (1, 7, 1)
    assert "widen it" in str(fields["remark"])
    assert rest == answer(8)
    assert b"10.0.0.1" not in error


def test_a_route_that_cannot_be_read_is_an_honest_error_and_counted() -> None:
    ports = Ports()
    one = talk(routes=ports)
    one.client(ask(7))
    one.broker(answer(7, b"\x78\x9c" + ROUTE))
    assert rocketmq.read_response(one.to_client)["code"] == 1
    ((result, detail),) = ports.answers
    assert result == "failed"
    assert "cannot be read" in detail


def test_a_route_beyond_max_frame_is_an_honest_error_however_it_is_cut() -> None:
    large = answer(7, ROUTE + b" " * 5000)
    for chunks in ([large + answer(8)], bytewise(large + answer(8)), [large[:50], large[50:] + answer(8)]):
        one = talk(max_frame=4096)
        one.client(ask(7))
        one.broker(b"", chunks)
        error, rest = rocketmq.split_frames(one.to_client)
        assert "max_frame" in str(rocketmq.read_response(error)["remark"])
        assert rest == answer(8)
        assert one.conversation.budget.unanswered_bytes == 0


def test_max_frame_is_that_of_each_route_whatever_came_with_it() -> None:
    route = answer(7, ROUTE)
    for room, passes in ((len(route), True), (len(route) - 1, False)):
        one = talk(max_frame=room)
        one.client(ask(9, 206) + ask(7))
        one.broker(answer(9, b"x" * 3000) + route)
        _, found = rocketmq.split_frames(one.to_client)
        assert ("max_frame" not in str(rocketmq.read_response(found).get("remark"))) == passes


def test_an_answer_that_is_no_route_may_be_of_any_size() -> None:
    one = talk(max_frame=4096)
    one.client(ask(7, 206))
    one.broker(answer(7, b"x" * 100_000))
    assert one.to_client == answer(7, b"x" * 100_000)


# ---- brokers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("code", REGISTRATIONS)
def test_requests_that_only_brokers_send_are_refused_with_the_way_out(code: int, binary: bool) -> None:
    ports = Ports()
    one = talk(routes=ports)
    registration = rocketmq.encode_request(code, {"brokerName": "b"}, b"z" * 3000, opaque=9, binary=binary)
    one.client(ask(1) + registration + ask(2), randomly(ask(1) + registration + ask(2), 1))
    assert one.to_broker == ask(1) + ask(2)
    fields = rocketmq.read_response(one.to_client)
    assert (fields["code"], fields["opaque"], fields["flag"]) == (16, 9, 1)
    assert "namesrvAddr" in str(fields["remark"])
    assert ports.registrations == [code]


def test_a_registration_is_refused_when_all_of_it_is_in_and_nothing_of_it_is_kept() -> None:
    one = talk()
    registration = rocketmq.encode_request(103, {"brokerName": "b"}, b"z" * 100_000, opaque=9)
    one.client(registration[:-1], randomly(registration[:-1], 2))
    assert (one.to_client, one.rest) == (b"", b"")
    one.client(registration[-1:])
    assert rocketmq.read_response(one.to_client)["opaque"] == 9


def test_a_one_way_registration_is_not_answered_but_counted() -> None:
    ports = Ports()
    one = talk(routes=ports)
    one.client(rocketmq.encode_request(103, {"brokerName": "b"}, b"z", opaque=9, flag=2))
    assert (one.to_broker, one.to_client, ports.registrations) == (b"", b"", [103])


def test_requests_of_operators_pass() -> None:
    """mqadmin's wipeWritePerm, addWritePerm, updateKvConfig, deleteKvConfig, deleteTopic, updateNamesrvConfig."""
    one = talk()
    written = b"".join(rocketmq.encode_request(code, {"a": "b"}, opaque=code) for code in (205, 327, 100, 102, 216, 318))
    one.client(written)
    assert one.to_broker == written
    assert one.to_client == b""


# ---- bounds and the end ------------------------------------------------------------------------------------------------


def test_too_many_unanswered_requests_are_answered_so_and_the_others_go_on() -> None:
    one = talk()
    for opaque in range(MAX_PENDING_REQUESTS):
        one.client(ask(opaque))
    one.client(ask(MAX_PENDING_REQUESTS))
    fields = rocketmq.read_response(one.to_client)
    assert (fields["code"], fields["opaque"]) == (2, MAX_PENDING_REQUESTS)
    assert len(one.to_broker) == sum(len(ask(opaque)) for opaque in range(MAX_PENDING_REQUESTS))
    one.broker(answer(0))
    assert one.to_client.endswith(answer(0, LED))
    one.client(ask(MAX_PENDING_REQUESTS))
    assert one.to_broker.endswith(ask(MAX_PENDING_REQUESTS))


def test_it_is_settled_when_everything_is_answered_and_one_way_requests_count_for_nothing() -> None:
    one = talk()
    conversation = one.conversation
    assert conversation.knows_answers
    one.client(ask(1, 206) + ask(2, 999, flag=2))
    assert not conversation.settled()
    one.broker(answer(1, b""))
    assert conversation.settled()


def test_an_unfinished_request_is_known_so_that_nothing_is_sent_into_it() -> None:
    one = talk()
    request = rocketmq.encode_request(100, {"a": "b"}, b"x" * 100, opaque=1)
    one.client(request[:-30])
    assert one.to_broker == request[:-30]
    assert one.conversation.budget.frame_left == 30
    one.client(request[-30:])
    assert one.conversation.budget.frame_left == 0


@pytest.mark.parametrize(("said", "known"), [((1 << 31) - 1, (1 << 31) - 1), (1 << 31, 0), (10**26, 0), (-1, 0), (True, 0)])
def test_a_clients_version_is_an_int_of_java(said: int, known: int) -> None:
    one = talk()
    one.client(rocketmq.frame(rocketmq.json_header(105, {"topic": "orders"}, version=said)))
    version = one.conversation.describe()["version"]
    assert version == known
    assert type(version) is int


def test_a_description_names_the_clients_language_and_version() -> None:
    one = talk()
    one.client(ask(1))
    assert one.conversation.describe() == {"language": "JAVA", "version": 479, "unanswered": 1, "held": 0}
    assert isinstance(one.conversation, NameserverConversation)
    assert one.conversation.handshake_done


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("cut", [1 << 16, 1 << 24], ids=["in reads", "at once"])
def test_a_request_with_a_header_of_any_length_passes_and_its_route_leads_here(binary: bool, cut: int) -> None:
    asked = rocketmq.encode_request(105, {"topic": "orders", "x": "y" * (15 << 20)}, opaque=-3, binary=binary)
    asked += rocketmq.frame(b'{"code": 105, "extFields": {"x": "%b"}, "opaque": 4}' % (b"y" * 300_000)) + ask(5)
    one = talk()
    one.client(b"", [asked[at : at + cut] for at in range(0, len(asked), cut)])
    assert one.to_broker == asked
    for opaque in (-3, 4, 5):
        one.broker(answer(opaque))
    assert one.to_client == answer(-3, LED) + answer(4, LED) + answer(5, LED)


# ---- bad bytes ---------------------------------------------------------------------------------------------------------

BAD_REQUESTS = {
    "too large": (struct.pack(">I", 1 << 25), "frame_too_large"),
    "http": (b"GET / HTTP/1.1\r\n", "wrong_protocol"),
    "too short": (struct.pack(">I", 3), "bad_length"),
    "header beyond its frame": (struct.pack(">II", 20, 30) + b"x" * 16, "bad_header"),
    "unknown encoding": (struct.pack(">II", 20, 2 << 24 | 4) + b"x" * 16, "bad_header"),
    "header no JSON": (rocketmq.frame(b"not JSON"), "bad_header"),
    "binary header too short": (rocketmq.frame(b"\0" * 20, b"", 1), "bad_header"),
    "code beyond 32 bits": (rocketmq.frame(b'{"code":4294967399,"opaque":1}'), "bad_header"),
    "no opaque": (rocketmq.frame(b'{"code":105,"flag":0}'), "bad_header"),
    "null for an opaque": (rocketmq.frame(b'{"code":105,"opaque":null}'), "bad_header"),
    "code said twice": (rocketmq.frame(b'{"code":105,"code":103,"opaque":1}'), "bad_header"),
}


@pytest.mark.parametrize(("data", "cause"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_a_client_that_breaks_the_protocol_is_closed_after_what_it_said_before(data: bytes, cause: str) -> None:
    one = talk()
    with pytest.raises(ProtocolError) as caught:
        one.client(ask(1) + data)
    assert (caught.value.cause, caught.value.whose) == (cause, "client")
    assert one.to_broker == ask(1)


BAD_ANSWERS = {
    "too short": struct.pack(">I", 3),
    "negative": struct.pack(">i", -5),
    "header beyond its frame": struct.pack(">II", 20, 30),
    "unknown encoding": struct.pack(">II", 20, 2 << 24 | 4),
    "header no JSON": rocketmq.frame(b"not JSON"),
    "binary header too short": rocketmq.frame(b"\0" * 12, b"", 1),
}


@pytest.mark.parametrize("data", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
def test_a_name_server_that_breaks_the_protocol_is_named(data: bytes) -> None:
    one = talk()
    one.client(ask(1))
    with pytest.raises(ProtocolError) as caught:
        one.broker(answer(9) + data)
    assert (caught.value.cause, caught.value.whose) == ("broker_protocol_error", "broker")


def test_a_length_that_cannot_be_is_seen_in_its_four_bytes_however_they_come() -> None:
    for chunks in ([b"\xff" * 4], bytewise(b"\xff" * 4)):
        one = talk()
        with pytest.raises(ProtocolError, match="announced a frame of 4294967295 bytes"):
            one.broker(answer(9) + b"\xff" * 4, [answer(9), *chunks])


# ---- limits ------------------------------------------------------------------------------------------------------------------


def routes_limited(messages: int = 10) -> Rule:
    rate = Limit(messages=Rate(messages), messages_burst=1)
    return Rule("routes", Match(operation="query", topic="orders"), per="client", limit=rate)


def limited_talk(messages: int = 10) -> Talk:
    return Talk("rocketmq-nameserver", routes_limited(messages))


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_routes_over_their_limit_wait_and_all_else_passes_them_by(binary: bool) -> None:
    one = limited_talk()
    first, second = ask(1, binary=binary), ask(2, binary=binary)
    others = ask(3, code=100) + rocketmq.encode_request(105, {"topic": "mail"}, opaque=4)
    one.client(first + second + others, bytewise(first + second + others))
    assert one.to_broker == first + others
    one.broker(answer(3) + answer(1))
    assert one.to_client == answer(3) + answer(1, LED)
    one.wait(SECOND // 10)
    assert one.to_broker == first + others + second
    one.broker(answer(2))
    assert one.to_client == answer(3) + answer(1, LED) + answer(2, LED)
    assert one.holds_nothing()


def test_a_client_that_would_give_a_route_up_is_told() -> None:
    one = limited_talk(1)
    one.client(b"".join(ask(opaque) for opaque in range(1, 6)))
    one.wait(5 * SECOND // 2)
    assert one.to_broker == ask(1) + ask(2) + ask(3)
    answers = [rocketmq.read_response(each) for each in rocketmq.split_frames(one.to_client)]
    assert [(each["code"], each["opaque"]) for each in answers] == [(215, 4), (215, 5)]
    assert one.holds_nothing()


def test_nothing_held_goes_within_a_frame_that_still_comes_in() -> None:
    one = limited_talk()
    large = rocketmq.encode_request(100, None, bytes(9_000), opaque=9)
    one.client(ask(1) + ask(2) + large[:500])
    one.wait(SECOND)
    assert one.to_broker == ask(1) + large[:500]
    one.client(large[500:])
    one.wait(SECOND)
    assert one.to_broker == ask(1) + large + ask(2)


def test_too_many_without_an_answer_are_told_so_when_their_turn_comes() -> None:
    one = limited_talk(1_000_000)
    one.client(b"".join(ask(opaque, code=100) for opaque in range(MAX_PENDING_REQUESTS)))
    one.client(ask(MAX_PENDING_REQUESTS))
    assert rocketmq.read_response(one.to_client)["code"] == 2
    assert [part.count for part in one.conversation.reports.abandoned] == [1]


def test_what_waits_is_given_up_with_its_client() -> None:
    one = limited_talk()
    one.client(ask(1) + ask(2) + ask(3))
    assert len(one.conversation.abandon()) == 2
    one.conversation.end()
    assert one.holds_nothing()
