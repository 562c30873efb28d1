"""Raw frames to the real RocketMQ broker: those a client could cheat with, and those that must pass whatever they are."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from support.brokers.name_servers import port_range, read_frame
from support.brokers.rocketmq import VERSION, RocketMQ
from support.gateways import Gateway
from support.processes import HANG_S, LOOPBACK
from support.rocketmq.bad_bytes import BAD
from support.rocketmq.frames import encode_request, frame, read_response, send

pytestmark = pytest.mark.rocketmq

RULES: list[dict[str, object]] = [
    {"name": "shut", "match": {"protocol": "rocketmq", "topic": "shut"}, "per": "topic", "limit": {"messages": "0/s"}},
]
EXT = json.dumps({
    "a": "g", "b": "shut", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1795247411000", "h": "0", "i": "WAIT\x01true\x02",
    "j": "0", "k": "false", "m": "false", "n": "broker-a", "topic": "open", "producerGroup": "g", "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4", "queueId": "0",
    "sysFlag": "0", "bornTimestamp": "1795247411000", "flag": "0", "properties": "WAIT\x01true\x02",
})  # fmt: skip
# RocketMQ 5.3.3 stores all of these in `shut`, which is not what a plain reading of them says. Beside each the code that 5.5 answers,
# which reads JSON with fastjson2; None: it takes the frame for an answer, and says nothing. What it answers 0 it stores in `open`.
CHEATS: dict[str, tuple[str, int | None]] = {
    "code behind extFields, twice": (f'{{"extFields":{EXT},"code":310,"code":34,"opaque":7}}', 1),
    "code in other digits, then again": (f'{{"code":"\uff13\uff11\uff10","code":10,"extFields":{EXT},"opaque":7}}', 0),
    "flag null, then an answer's": (f'{{"code":310,"flag":null,"flag":1,"extFields":{EXT},"opaque":7}}', None),
    "code with a capital": (f'{{"Code":310,"extFields":{EXT},"opaque":7}}', 3),
    "extFields with an underscore": (f'{{"code":310,"ext_fields":{EXT},"opaque":7}}', 1),
}
HEARTBEAT = encode_request(34, None, b'{"clientID":"c@1","consumerDataSet":[],"producerDataSet":[]}', opaque=5)


@pytest.fixture(scope="module")
def gateway(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    rocketmq.create_topics("shut:1", "open:1")
    names: dict[str, object] = {
        "name": "names",
        "protocol": "rocketmq-nameserver",
        "bind": f"{LOOPBACK}:0",
        "upstream": rocketmq.name_server,
    }
    names["broker_ports"] = "{}-{}".format(*port_range(8))
    with Gateway(tmp_path_factory.mktemp("gateway"), [*rocketmq.listeners, names], RULES) as running:
        yield running


def connect(rocketmq: RocketMQ, *, directly: bool = False) -> socket.socket:
    return socket.create_connection((LOOPBACK if directly else rocketmq.advertised, rocketmq.port), timeout=HANG_S)


def test_headers_that_cheat_are_stored_by_the_broker_and_end_the_connection_at_the_gateway(rocketmq: RocketMQ, gateway: Gateway) -> None:
    before = sum(rocketmq.stored("shut", "open").values())
    codes = {name: 0 if VERSION == "5.3.3" else code for name, (_, code) in CHEATS.items()}
    directly: dict[str, object] = {}
    for name, (header, _) in CHEATS.items():
        data = frame(header.encode(), b"cheated")
        with connect(rocketmq, directly=True) as client:
            client.sendall(data if codes[name] is not None else data + HEARTBEAT)
            answer = read_response(read_frame(client))
            directly[name] = answer["code"] if answer["opaque"] == 7 else None
        with connect(rocketmq) as client:
            client.sendall(data)
            assert read_frame(client) == b"", name
    assert directly == codes
    assert sum(rocketmq.stored("shut", "open").values()) - before == [*codes.values()].count(0), "the gateway let some through"
    fates = gateway.messages_by_fate("rocketmq", "shut")
    assert fates.get("forwarded", 0) == 0


@pytest.mark.usefixtures("gateway")
def test_bad_bytes_end_their_connection_and_no_other(rocketmq: RocketMQ) -> None:
    with connect(rocketmq) as other:
        for data, _, _ in BAD.values():
            with connect(rocketmq) as client:
                client.sendall(data)
                with suppress(ConnectionResetError):
                    assert read_frame(client) == b""
        other.sendall(HEARTBEAT)
        assert read_response(read_frame(other))["opaque"] == 5


@pytest.mark.usefixtures("gateway")
@pytest.mark.parametrize("directly", [True, False], ids=["directly", "through the gateway"])
def test_an_unknown_request_of_almost_16_mib_is_answered(rocketmq: RocketMQ, directly: bool) -> None:
    data = encode_request(29_999, {"b": "shut"}, b"\xa5" * ((1 << 24) - 300), opaque=-5)
    with connect(rocketmq, directly=directly) as client:
        client.sendall(data)
        answer = read_response(read_frame(client))
        assert (answer["code"], answer["opaque"]) == (3, -5)


@pytest.mark.usefixtures("gateway")
@pytest.mark.parametrize("directly", [True, False], ids=["directly", "through the gateway"])
def test_a_send_a_byte_at_a_time_is_answered_and_half_a_close_is_a_whole_one_to_the_broker(rocketmq: RocketMQ, directly: bool) -> None:
    with connect(rocketmq, directly=directly) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for octet in send("open", b"slowly", opaque=4):
            client.send(bytes([octet]))
        assert read_response(read_frame(client))["code"] == 0
        client.shutdown(socket.SHUT_WR)
        assert read_frame(client) == b""


@pytest.mark.usefixtures("gateway")
@pytest.mark.parametrize("directly", [True, False], ids=["directly", "through the gateway"])
@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
def test_properties_of_300_kb_are_answered_and_the_connection_goes_on(rocketmq: RocketMQ, directly: bool, binary: bool) -> None:
    extra = json.loads(EXT) | {"b": "open", "i": "LARGE\x01" + "x" * 300_000 + "\x02"}
    with connect(rocketmq, directly=directly) as client:
        client.sendall(encode_request(310, extra, b"body", opaque=5, binary=binary))
        answer = read_response(read_frame(client))
        assert (answer["opaque"], answer["code"]) == (5, 13), answer
        client.sendall(send("open", opaque=8))
        answer = read_response(read_frame(client))
        assert (answer["opaque"], answer["code"]) == (8, 0), answer


# ---- whatever the broker takes -------------------------------------------------------------------------------------------

TEXTS = [
    rb"hello \ud83d\u0002", rb"\ud83d", rb"\ude00\ud83d\ude00\ud83d", rb"\uD83D\uD83D", b"\x01raw\x02\n\t\x00", rb"\x41\x7f\xfF",
    rb"\0\7\v\F\'", rb"\\ud83d", "\U0001f600 \uffff \u2028".encode(), rb"\q", rb"\u12", rb"\x4", b"\\\n", b"\xc4\xe3........", b"\xe5",
    rb"\/",
    b"\x7f", b"\x1a",
]  # fmt: skip


def header_with(text: bytes, opaque: int) -> bytes:
    extra = EXT.replace('"b": "shut"', '"b": "open"').replace('"i": "WAIT\\u0001true\\u0002"', '"i": "KEYS\\u0001@@"').encode()
    assert extra.count(b"@@") == 1
    return b'{"code":310,"extFields":%b,"flag":0,"language":"JAVA","opaque":%d,"version":479}' % (extra.replace(b"@@", text), opaque)


def at_random(count: int) -> list[bytes]:
    """Texts that are wrong somewhere: pieces of those above, escapes and bytes of all kinds; ASCII before the quote that ends them."""
    chance = random.Random(2026)
    pieces = [*TEXTS, *(bytes([octet]) for octet in range(256) if octet not in b'"\\'), rb"\u0041", rb"\ud8", b"abcdef"]
    return [b"".join(chance.choices(pieces, k=chance.randrange(1, 6))) + b"........" for _ in range(count)]


def answers_of(rocketmq: RocketMQ, texts: list[bytes], *, directly: bool, before: int = 0) -> list[object]:
    """The code of the answer to a send with each text, or "closed"; each on a connection that has sent `before` usual ones."""
    found: list[object] = []
    client: socket.socket | None = None
    for text in texts:
        if client is None:
            client = connect(rocketmq, directly=directly)
            for number in range(before):
                client.sendall(frame(header_with(b"usual-%d" % number, number), b"body"))
                assert read_response(read_frame(client))["code"] == 0
        client.sendall(frame(header_with(text, 77), b"body"))
        try:
            answer = read_frame(client)
        except ConnectionResetError:
            answer = b""
        if answer:
            found.append(read_response(answer)["code"])
        else:
            client.close()
            client = None
            found.append("closed")
    if client is not None:
        client.close()
    return found


@pytest.mark.usefixtures("gateway")
@pytest.mark.parametrize("before", [0, 5], ids=["first", "after others"])
def test_a_send_with_any_text_is_answered_as_the_broker_answers_it(rocketmq: RocketMQ, before: int) -> None:
    texts = TEXTS + at_random(250)
    direct = answers_of(rocketmq, texts, directly=True)
    through = answers_of(rocketmq, texts, directly=False, before=before)
    assert [each for each in zip(texts, direct, through, strict=True) if each[1] != each[2]] == []
    assert direct.count(0) > 50
    assert direct.count("closed") > 5


@pytest.mark.usefixtures("gateway")
@pytest.mark.parametrize("code", [12, 14, 34, 36, 38, 310])
@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
def test_a_request_with_a_header_of_300_kb_is_answered_as_the_broker_answers_it(rocketmq: RocketMQ, code: int, binary: bool) -> None:
    extra = json.loads(EXT) | {"b": "open", "topic": "open", "group": "g", "i": "LARGE\x01" + "x" * 300_000}
    codes = []
    for directly in (True, False):
        with connect(rocketmq, directly=directly) as client:
            client.sendall(encode_request(code, extra, b"body" if code == 310 else b"", opaque=5, binary=binary))
            codes.append(read_response(read_frame(client))["code"])
    assert codes[0] == codes[1]


@pytest.mark.parametrize("size", [1000, 300_000, 2_000_000])
@pytest.mark.parametrize("text", ["x", "\ud83d"])
def test_a_name_server_takes_headers_of_any_length_and_text(rocketmq: RocketMQ, gateway: Gateway, size: int, text: str) -> None:
    asked = encode_request(105, {"topic": "open", "x": text * (size // len(json.dumps(text)))}, opaque=9)
    answers = []
    for port in (int(rocketmq.name_server.rpartition(":")[2]), gateway.port("names")):
        with socket.create_connection((LOOPBACK, port), timeout=HANG_S) as client:
            client.sendall(asked)
            answers.append(read_frame(client))
    assert [json.loads(answer[8 : 8 + int.from_bytes(answer[5:8], "big")])["code"] for answer in answers] == [0, 0]
    assert b"brokerAddrs" in answers[0]
    assert b"brokerAddrs" in answers[1]
