"""RocketMQ over TLS: the Java clients' `tls.enable`, and the certificate a broker makes for itself when it starts."""

from __future__ import annotations

import copy
import json
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from support.brokers.rocketmq import RocketMQ
from support.clients.programs import RocketMQClient
from support.gateways import Gateway
from support.processes import HANG_S, wait_until
from support.rocketmq.frames import heartbeat
from support.tls import Authority

pytestmark = pytest.mark.rocketmq

RULES: list[dict[str, object]] = [
    {
        "name": "limited",
        "match": {"protocol": "rocketmq", "topic": "tls-*"},
        "per": "topic",
        "limit": {"messages": "1/s", "burst": {"messages": 100}},
        "breaker": {"open_for": "0s"},
    }
]


def test_java_clients_send_through_tls_on_both_hops_and_are_limited(
    rocketmq: RocketMQ, rocketmq_client: RocketMQClient, tmp_path: Path
) -> None:
    """The client trusts any certificate (tls.client.authServer is false by default), and the broker's can be no CA's."""
    certificate, key = Authority(tmp_path).issue("gateway", "127.0.0.1")
    protection = {"tls": {"certificate": str(certificate), "key": str(key)}, "upstream_tls": {"verify": "none"}}
    topic = f"tls-{rocketmq_client.version}"
    rocketmq.create_topics(topic)
    with Gateway(tmp_path / "gateway", [{**listener, **copy.deepcopy(protection)} for listener in rocketmq.listeners], RULES) as gateway:
        (sent,) = rocketmq_client.produce("run", {"topic": topic, "mode": "sync", "count": 300, "size": 2000}, tls=True).result()
        opened = sum(each["connections_opened"] for each in gateway.get("/v1/listeners")["items"])
        fates = gateway.messages_by_fate("rocketmq", topic)
    assert sent["ok"] == rocketmq.stored(topic)[topic] == fates["forwarded"]
    assert 100 <= fates["forwarded"] < 300
    assert fates["forwarded"] + fates["refused"] == fates["received"]
    assert opened >= 1, "the client went round the gateway"


@pytest.mark.long
@pytest.mark.usefixtures("rocketmq")  # which skips where there is no Maven Central
def test_a_permissive_gateway_serves_both_kinds_side_by_side_before_a_broker_that_takes_one(tmp_path: Path) -> None:
    """As on RocketMQ's own port: the first byte tells. Behind the gateway all is TLS."""
    certificate, key = Authority(tmp_path).issue("gateway", "127.0.0.1")
    tls = {"certificate": str(certificate), "key": str(key), "mode": "permissive"}
    protection = {"tls": tls, "upstream_tls": {"verify": "none"}}
    with RocketMQ(tmp_path / "enforcing", tls="enforcing") as broker:
        broker.create_topics("secret", "plain")
        client = RocketMQClient("5", tmp_path, broker.name_server)
        with Gateway(tmp_path / "gateway", [{**listener, **copy.deepcopy(protection)} for listener in broker.listeners], RULES) as gateway:
            jobs = {True: {"topic": "secret", "count": 300, "rate": 100}, False: {"topic": "plain", "count": 300, "rate": 100}}
            programs = {tls: client.produce("run", job, tls=tls) for tls, job in jobs.items()}

            def kinds() -> list[tuple[bool, bool]]:
                connections = gateway.get("/v1/connections")["items"]
                return sorted((each["tls"] is not None, each["upstream_tls"] is not None) for each in connections)

            wait_until(lambda: kinds() == [(False, True), (True, True)], within=30, what="one connection of each kind")
            for program in programs.values():
                (sent,) = program.result()
                assert (sent["ok"], sent["codes"]) == (300, {})
            modes = [each["tls"]["mode"] for each in gateway.get("/v1/listeners")["items"]]
        assert broker.stored("secret", "plain") == {"secret": 300, "plain": 300}
        assert modes == ["permissive", "permissive"]
        with socket.create_connection(("127.0.0.1", broker.port), timeout=HANG_S) as direct:
            direct.sendall(heartbeat())
            assert direct.recv(1) == b"", "the broker was to take TLS only"


def test_an_enforcing_gateway_closes_a_client_without_tls_and_says_what_to_do(rocketmq: RocketMQ, tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("gateway", "127.0.0.1")
    listeners = [{**rocketmq.listeners[0], "tls": {"certificate": str(certificate), "key": str(key)}}]
    with Gateway(tmp_path / "gateway", listeners, RULES) as gateway:
        with socket.create_connection(("127.0.0.2", rocketmq.port), timeout=HANG_S) as plain, suppress(ConnectionResetError):
            plain.sendall(heartbeat())
            assert plain.recv(1) == b""
        wait_until(lambda: "connection_closed" in gateway.log(), within=30, what="a line about it")
        (line,) = [line for line in map(json.loads, gateway.log().splitlines()) if line["event"] == "connection_closed"]
        (shown,) = gateway.get("/v1/listeners")["items"]
    assert line["cause"] == "tls_handshake_failed"
    assert line["detail"].endswith("without TLS: set tls.enable=true in the client, or `mode: permissive` in this listener's `tls`")
    assert shown["tls"]["handshakes_failed"] == {"not_tls": 1}
    assert shown["connections_closed"]["tls_handshake_failed"] == 1
