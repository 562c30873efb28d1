"""Durable sends before a RocketMQ that authenticates its clients: a signature that was good once is good when its send is replayed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.rocketmq import RocketMQ
from support.clients.programs import CLIENT_JARS, CLIENTS
from support.gateways import Gateway
from support.java import compiled, java
from support.processes import LOOPBACK, wait_until
from support.rocketmq.frames import frame

pytestmark = pytest.mark.rocketmq

KEY, SECRET = "rocketmq", "12345678"
AUTHENTICATES = {
    "authenticationEnabled": "true",
    "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": KEY, "password": SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": KEY, "secretKey": SECRET}),
}
RULE: dict[str, object] = {
    "name": "durable",
    "match": {"protocol": "rocketmq", "topic": "signed-*"},
    "limit": {"messages": "20/s"},
    "action": "spool",
    "answer": "accepted_by_gateway",
    "durable": True,
    "breaker": {"open_for": "0s"},
}
COUNT = 300


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    with RocketMQ(tmp_path_factory.mktemp("authenticating"), AUTHENTICATES) as running:
        yield running


@pytest.fixture
def gateway(broker: RocketMQ, tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path, broker.listeners, [RULE], {"memory": {"target": "1MiB"}}) as running:
        yield running


def signed(code: int, fields: dict[str, str], body: bytes = b"", *, opaque: int, flag: int = 0, secret: str = SECRET) -> bytes:
    """A request with the signature that Java clients give it (`AclClientRPCHook`)."""
    said = {**fields, "AccessKey": KEY}
    content = "".join(said[name] for name in sorted(said)).encode() + body
    said["Signature"] = base64.b64encode(hmac.new(secret.encode(), content, hashlib.sha1).digest()).decode()
    header = {"code": code, "extFields": said, "flag": flag, "language": "JAVA", "opaque": opaque, "serializeTypeCurrentRPC": "JSON"}
    return frame(json.dumps({**header, "version": 479}, separators=(",", ":")).encode(), body)


def badly_signed(number: int) -> bytes:
    """A one-way send with another secret than the broker knows."""
    fields = {"a": "producers", "b": "signed-badly", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1795247411000", "h": "0"}
    return signed(310, {**fields, "i": "", "j": "0", "k": "false", "m": "false"}, b"%d" % number, opaque=number, flag=2, secret="another")


def ask(port: int, request: bytes) -> tuple[dict[str, object], bytes]:
    with socket.create_connection((LOOPBACK, port), timeout=30) as sock, sock.makefile("rb") as stream:
        sock.sendall(request)
        one = stream.read(int.from_bytes(stream.read(4)))
    body_at = 4 + (int.from_bytes(one[:4]) & 0xFFFFFF)
    header: dict[str, object] = json.loads(one[4:body_at])
    return header, one[body_at:]


def stored(broker: RocketMQ, topic: str) -> list[int]:
    """Numbers of the messages of queue 0, in the broker's order."""
    found: list[int] = []
    while True:
        fields = {"consumerGroup": "lookers", "topic": topic, "queueId": "0", "queueOffset": str(len(found)), "maxMsgNums": "32"}
        fields |= {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "1"}
        header, data = ask(broker.port, signed(11, {**fields, "expressionType": "TAG"}, opaque=1))
        if header["code"] != 0:
            assert header["code"] in (19, 21), header  # nothing more
            return found
        at = 0
        while at < len(data):
            length = int.from_bytes(data[at + 84 : at + 88])
            found.append(int(data[at + 88 : at + 88 + length]))
            at += int.from_bytes(data[at : at + 4])


def figures(gateway: Gateway) -> dict[str, object]:
    shown: dict[str, object] = gateway.get("/v1/spool")["spool"]
    return shown


@pytest.mark.parametrize("version", CLIENT_JARS)
def test_a_signed_send_is_accepted_by_the_broker_when_it_is_replayed(
    broker: RocketMQ, gateway: Gateway, version: str, tmp_path: Path
) -> None:
    """Of the Java clients of both versions, by their own `AclClientRPCHook`."""
    topic = f"signed-{version.replace('.', '-')}"
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topicSysFlag": "0"}
    assert ask(broker.port, signed(17, {**fields, "topicFilterType": "SINGLE_TAG", "order": "false"}, opaque=1))[0]["code"] == 0
    route = signed(105, {"topic": topic}, opaque=1)
    wait_until(lambda: ask(broker.name_server_ports[0], route)[0]["code"] == 0, within=60, what="the topic is known")
    class_path = compiled(CLIENTS / "java" / "rocketmq_signed", CLIENT_JARS[version])
    words = [broker.name_server, KEY, SECRET, topic, str(COUNT)]
    done = subprocess.run([*java(class_path, "Signed", tmp_path), *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) == COUNT - COUNT // 3, "all but the one-way sends are answered"
    wait_until(lambda: gateway.messages_by_fate("rocketmq", topic)["received"] == COUNT, within=30, what="all has come")
    wait_until(lambda: figures(gateway)["uncommitted_bytes"] == 0, within=30, what="all is committed")
    gateway.kill()
    gateway.write_rules([{**RULE, "limit": {"messages": "2000/s"}}])
    gateway.start()
    wait_until(lambda: figures(gateway)["replaying_bytes"] == 0, within=60, what="all is replayed")
    found = stored(broker, topic)
    assert set(found) == set(range(COUNT))
    assert int(str(figures(gateway)["replayed_messages"])) > COUNT / 3
    assert (figures(gateway)["set_aside_messages"], figures(gateway)["replay_trouble"]) == (0, None)


def test_a_send_whose_signature_the_broker_does_not_know_waits_with_its_words(broker: RocketMQ, gateway: Gateway) -> None:
    with socket.create_connection((broker.advertised, broker.port), timeout=30) as producer:
        producer.sendall(b"".join(badly_signed(number) for number in range(COUNT)))
        wait_until(lambda: gateway.messages_by_fate("rocketmq", "signed-badly")["received"] == COUNT, within=30, what="all has come")
        wait_until(lambda: figures(gateway)["uncommitted_bytes"] == 0, within=30, what="all is committed")
        gateway.kill()
    gateway.start()
    wait_until(lambda: figures(gateway)["replay_trouble"] is not None, within=60, what="the operator is told")
    assert "rocket signed-badly: 16 check signature failed" in str(figures(gateway)["replay_trouble"]), figures(gateway)["replay_trouble"]
    assert figures(gateway)["set_aside_messages"] == 0
    gateway.stop()
