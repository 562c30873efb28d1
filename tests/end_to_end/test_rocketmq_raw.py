"""Raw frames to the real RocketMQ broker: those a client could cheat with, and those that must pass whatever they are."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from support.brokers.name_servers import read_frame
from support.brokers.rocketmq import VERSION, RocketMQ
from support.gateways import Gateway
from support.processes import LOOPBACK
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
CHEATS = {  # RocketMQ stores these in `shut`, which is not what a plain reading of them says; 5.5 refuses some
    "code behind extFields, twice": f'{{"extFields":{EXT},"code":310,"code":34,"opaque":7}}',
    "code in other digits, then again": f'{{"code":"\uff13\uff11\uff10","code":10,"extFields":{EXT},"opaque":7}}',
    "flag null, then an answer's": f'{{"code":310,"flag":null,"flag":1,"extFields":{EXT},"opaque":7}}',
    "code with a capital": f'{{"Code":310,"extFields":{EXT},"opaque":7}}',
    "extFields with an underscore": f'{{"code":310,"ext_fields":{EXT},"opaque":7}}',
}


@pytest.fixture(scope="module")
def gateway(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    rocketmq.create_topics("shut:1", "open:1")
    with Gateway(tmp_path_factory.mktemp("gateway"), rocketmq.listeners, RULES) as running:
        yield running


def connect(rocketmq: RocketMQ, *, directly: bool = False) -> socket.socket:
    return socket.create_connection((LOOPBACK if directly else rocketmq.advertised, rocketmq.port), timeout=20)


def test_headers_that_cheat_are_stored_by_the_broker_and_end_the_connection_at_the_gateway(rocketmq: RocketMQ, gateway: Gateway) -> None:
    before = rocketmq.stored("shut")["shut"]
    directly = []
    for name, header in CHEATS.items():
        data = frame(header.encode(), b"cheated")
        with connect(rocketmq, directly=True) as client:
            client.sendall(data)
            directly.append(read_response(read_frame(client))["code"])
        with connect(rocketmq) as client:
            client.sendall(data)
            assert read_frame(client) == b"", name
    assert directly.count(0) >= (len(CHEATS) if VERSION == "5.3.3" else 2), directly
    assert rocketmq.stored("shut")["shut"] - before == directly.count(0), "the gateway let some through"
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
        other.sendall(encode_request(34, None, b'{"clientID":"c@1","consumerDataSet":[],"producerDataSet":[]}', opaque=5))
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
