"""RocketMQ clients that end while their one-way sends wait for a limit: they leave their groups at once, and what waits goes on."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from support.brokers.name_servers import read_frame
from support.brokers.rocketmq import RocketMQ
from support.gateways import Gateway, limit_path
from support.processes import HANG_S, LOOPBACK, wait_until
from support.rocketmq.frames import encode_request, pull, read_response, send

pytestmark = pytest.mark.rocketmq

MANY = 50  # sends
HEART_BEAT = 34
CONSUMERS_OF_GROUP = 38


@pytest.fixture(scope="module")
def gateway(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    rocketmq.create_topics("gone-in:1", *(f"gone-{end}:4" for end in ENDS))  # `send` names one of four queues
    match = {"protocol": "rocketmq", "topic": "gone-*", "operation": "produce"}
    rules: list[dict[str, object]] = [{"name": "gone", "match": match, "limit": {"messages": "0/s"}, "action": "spool"}]
    with Gateway(tmp_path_factory.mktemp("gone"), rocketmq.listeners, rules, {"drain": {"timeout": "3s"}}) as running:
        yield running


def heartbeat(client_id: str, group: str) -> bytes:
    """As the Java client's, of a push consumer and a producer."""
    subscription = {"topic": "gone-in", "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1, "expressionType": "TAG"}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
        "unitMode": False,
    }
    body = {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": [{"groupName": f"{group}-producers"}]}
    return encode_request(HEART_BEAT, None, json.dumps(body).encode(), opaque=1)


def members(rocketmq: RocketMQ, group: str) -> list[str]:
    with socket.create_connection((LOOPBACK, rocketmq.port), timeout=HANG_S) as asking:
        asking.sendall(encode_request(CONSUMERS_OF_GROUP, {"consumerGroup": group}))
        answer = read_frame(asking)
    header = read_response(answer)
    if header["code"] != 0:
        return []
    size = struct.unpack_from(">I", answer, 4)[0] & 0xFFFFFF
    return list(json.loads(answer[8 + size :])["consumerIdList"])


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


ENDS: dict[str, Callable[[socket.socket], None]] = {
    "dies": socket.socket.close,
    "resets": reset,
    "half-closes": lambda client: client.shutdown(socket.SHUT_WR),
}


class Client:
    """A consumer and producer of one connection. Its group has the name of the topic that it sends to."""

    def __init__(self, rocketmq: RocketMQ, end: str) -> None:
        self.topic = f"gone-{end}"
        self.end = ENDS[end]
        self.socket = socket.create_connection((rocketmq.advertised, rocketmq.port), timeout=HANG_S)
        self.address = "{}:{}".format(*self.socket.getsockname())
        self.socket.sendall(heartbeat("10.0.0.7@1", self.topic))
        answered = 0
        while answered != 1:
            answered = int(str(read_response(read_frame(self.socket))["opaque"]))
        sends = b"".join(send(self.topic, opaque=3 + number, one_way=True) for number in range(MANY))
        self.socket.sendall(pull(topic="gone-in", group=self.topic, opaque=2) + sends + heartbeat("10.0.0.7@1", self.topic))


def test_clients_that_end_leave_their_groups_and_their_sends_go_on(rocketmq: RocketMQ, gateway: Gateway) -> None:
    clients = [Client(rocketmq, end) for end in ENDS]
    topics = [client.topic for client in clients]
    stored = rocketmq.stored(*topics)

    def wait() -> bool:
        held = {each["client"]: each["held_messages"] for each in gateway.get("/v1/connections?limit=200")["items"]}
        return all(held.get(client.address, 0) >= MANY for client in clients)

    wait_until(wait, within=10, what="the sends to wait in the gateway")
    assert {topic: members(rocketmq, topic) for topic in topics} == {topic: ["10.0.0.7@1"] for topic in topics}
    for client in clients:
        client.end(client.socket)
    wait_until(lambda: not any(members(rocketmq, topic) for topic in topics), within=5, what="the clients to leave their groups")
    assert rocketmq.stored(*topics) == stored, "the sends still wait"
    for topic in topics:
        gateway.put(limit_path("rocketmq", topic), {"messages": "10000/s", "reason": "test"})
    expected = {topic: before + MANY for topic, before in stored.items()}
    wait_until(lambda: rocketmq.stored(*topics) == expected, within=20, what="what waited to be stored")
    assert not any(members(rocketmq, topic) for topic in topics), "and a heartbeat behind it does not bring its client back"
    for client in clients:
        client.socket.close()
