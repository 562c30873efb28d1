"""Durable sends before a RocketMQ that authenticates its clients: a signature that was good once is good when its send is replayed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.rocketmq import RocketMQ
from support.gateways import Gateway
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
    "limit": {"messages": "200/s"},
    "action": "spool",
    "answer": "accepted_by_gateway",
    "durable": True,
    "breaker": {"open_for": "0s"},
}
COUNT = 600
V4_9_8, V5_3_3 = 407, 479  # MQVersion, as clients of these versions say it


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    with RocketMQ(tmp_path_factory.mktemp("authenticating"), AUTHENTICATES) as running:
        yield running


@pytest.fixture
def gateway(broker: RocketMQ, tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path, broker.listeners, [RULE], {"memory": {"target": "1MiB"}}) as running:
        yield running


def signed(
    code: int, fields: dict[str, str], body: bytes = b"", *, opaque: int, flag: int = 0, version: int = V5_3_3, secret: str = SECRET
) -> bytes:
    """A request with the signature that the Java clients give it (AclClientRPCHook, which is one for both versions)."""
    said = {**fields, "AccessKey": KEY}
    content = "".join(said[name] for name in sorted(said)).encode() + body
    said["Signature"] = base64.b64encode(hmac.new(secret.encode(), content, hashlib.sha1).digest()).decode()
    header = {"code": code, "extFields": said, "flag": flag, "language": "JAVA", "opaque": opaque, "serializeTypeCurrentRPC": "JSON"}
    return frame(json.dumps({**header, "version": version}, separators=(",", ":")).encode(), body)


def sends(topic: str, version: int, *, secret: str = SECRET) -> bytes:
    """Sends to queue 0; each third is one-way."""
    found = b""
    for number in range(COUNT):
        fields = {"a": "producers", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1795247411000", "h": "0"}
        fields |= {"i": f"UNIQ_KEY\x017F00000112342A139A5534EF{number:08X}\x02", "j": "0", "k": "false", "m": "false"}
        one_way = 2 if number % 3 == 0 else 0
        found += signed(310, fields, b"%d" % number, opaque=number, flag=one_way, version=version, secret=secret)
    return found


def ask(broker: RocketMQ, request: bytes) -> tuple[dict[str, object], bytes]:
    with socket.create_connection((LOOPBACK, broker.port), timeout=30) as sock, sock.makefile("rb") as stream:
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
        header, data = ask(broker, signed(11, {**fields, "expressionType": "TAG"}, opaque=1))
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


def commit_and_kill(broker: RocketMQ, gateway: Gateway, topic: str, frames: bytes) -> None:
    with socket.create_connection((broker.advertised, broker.port), timeout=30) as producer:
        producer.sendall(frames)
        wait_until(lambda: gateway.messages_by_fate("rocketmq", topic)["received"] == COUNT, within=30, what="all has come")
        wait_until(lambda: figures(gateway)["uncommitted_bytes"] == 0, within=30, what="all is committed")
        gateway.kill()


@pytest.mark.parametrize("version", [V4_9_8, V5_3_3], ids=["4.9.8", "5.3.3"])
def test_a_signed_send_is_accepted_by_the_broker_when_it_is_replayed(broker: RocketMQ, gateway: Gateway, version: int) -> None:
    topic = f"signed-{version}"
    commit_and_kill(broker, gateway, topic, sends(topic, version))
    gateway.start()
    wait_until(lambda: figures(gateway)["replaying_bytes"] == 0, within=60, what="all is replayed")
    found = stored(broker, topic)
    assert set(found) == set(range(COUNT))
    assert int(str(figures(gateway)["replayed_messages"])) > COUNT / 3
    assert (figures(gateway)["set_aside_messages"], figures(gateway)["replay_trouble"]) == (0, None)


def test_a_send_whose_signature_the_broker_does_not_know_waits_with_its_words(broker: RocketMQ, gateway: Gateway) -> None:
    commit_and_kill(broker, gateway, "signed-badly", sends("signed-badly", V5_3_3, secret="another"))
    gateway.start()
    wait_until(lambda: figures(gateway)["replay_trouble"] is not None, within=60, what="the operator is told")
    assert "rocket signed-badly: 1" in str(figures(gateway)["replay_trouble"]), figures(gateway)["replay_trouble"]
    assert figures(gateway)["set_aside_messages"] == 0
    gateway.stop()
