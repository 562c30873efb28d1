"""The PROXY protocol towards a real RocketMQ broker: it knows its clients' own addresses, and only from the gateway."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.transport import proxy_protocol
from gateway.transport.proxy_protocol import Ends
from support.brokers.rocketmq import RocketMQ
from support.clients.programs import RocketMQClient
from support.gateways import Gateway
from support.processes import HANG_S, LOOPBACK, wait_until
from support.rocketmq.frames import encode_request, heartbeat

pytestmark = pytest.mark.rocketmq

CONSUMER_CONNECTION = 203


def asked(broker: RocketMQ, code: int, **extra: str) -> dict[str, Any] | None:
    """The body of the broker's answer, asked directly; None where it has none."""
    with socket.create_connection((LOOPBACK, broker.port), timeout=HANG_S) as sock, sock.makefile("rb") as stream:
        sock.sendall(encode_request(code, extra))
        length = int.from_bytes(stream.read(4), "big")
        header = int.from_bytes(stream.read(4), "big") & 0xFFFFFF
        rest = stream.read(length - 4)
    body: dict[str, Any] | None = json.loads(rest[header:]) if rest[header:] else None
    return body


def clients(broker: RocketMQ, group: str) -> list[str]:
    found = asked(broker, CONSUMER_CONNECTION, consumerGroup=group) or {"connectionSet": []}
    return [each["clientAddr"] for each in found["connectionSet"]]


def test_consumer_connection_shows_the_clients_own_address(rocketmq: RocketMQ, rocketmq_client: RocketMQClient, tmp_path: Path) -> None:
    topic = f"proxied-{rocketmq_client.version}"
    rocketmq.create_topics(topic)
    listeners = [{**listener, "send_proxy_protocol": "v2"} for listener in rocketmq.listeners]
    with Gateway(tmp_path / "gateway", listeners, []) as gateway:
        consumer = rocketmq_client.consume(topic, topic, expected=20)
        wait_until(lambda: clients(rocketmq, topic) != [], within=30, what="the consumer at the broker")
        shown = clients(rocketmq, topic)
        known = [each["client"] for each in gateway.get("/v1/connections")["items"]]
        (sent,) = rocketmq_client.produce("run", {"topic": topic, "count": 20}).result()
        (line,) = consumer.result()
    assert (sent["ok"], sent["codes"], len(set(line["consumed"]))) == (20, {}, 20)
    assert shown == known, "not the gateway's own socket, the client's"


def test_a_header_of_the_clients_own_never_reaches_the_broker(rocketmq: RocketMQ, tmp_path: Path) -> None:
    """The broker would believe it: RocketMQ has no list of who may send one."""
    forged = proxy_protocol.write(Ends(("192.0.2.7", 4711), (LOOPBACK, rocketmq.port)))
    body = json.dumps({"clientID": "forger", "consumerDataSet": [consumer("forged")], "producerDataSet": []}).encode()
    with socket.create_connection((LOOPBACK, rocketmq.port), timeout=HANG_S) as direct:
        direct.sendall(forged + encode_request(34, None, body))
        assert direct.recv(1) != b""
        assert clients(rocketmq, "forged") == ["192.0.2.7:4711"], "the broker does not believe headers: this test shows nothing"
    wait_until(lambda: clients(rocketmq, "forged") == [], within=30, what="the broker's forgetting")
    with Gateway(tmp_path / "gateway", rocketmq.listeners[:1], []) as gateway:
        with socket.create_connection(("127.0.0.2", rocketmq.port), timeout=HANG_S) as sock, suppress(ConnectionResetError):
            sock.sendall(forged + encode_request(34, None, body))
            assert sock.recv(1) == b""
        wait_until(lambda: "connection_closed" in gateway.log(), within=30, what="a line about it")
        (line,) = [line for line in map(json.loads, gateway.log().splitlines()) if line["event"] == "connection_closed"]
        assert line["cause"] == "wrong_protocol"
        assert "set `accept_proxy_protocol: true` and `trusted_proxies` if a load balancer sends it" in line["detail"]
        assert clients(rocketmq, "forged") == []
        # in the middle of a connection it is no header any more, and no frame either
        with socket.create_connection(("127.0.0.2", rocketmq.port), timeout=HANG_S) as sock, suppress(ConnectionResetError):
            sock.sendall(heartbeat() + forged + encode_request(34, None, body))
            while sock.recv(4096):
                pass
        assert clients(rocketmq, "forged") == []


def consumer(group: str) -> dict[str, object]:
    return {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [],
        "unitMode": False,
    }
