"""RocketMQ over TLS: the Java clients' `tls.enable`, and the certificate a broker makes for itself when it starts."""

from __future__ import annotations

import copy

import pytest

from support.brokers.rocketmq import RocketMQ
from support.clients import RocketMQClient
from support.gateways import Gateway
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


def test_java_clients_send_through_tls_on_both_hops_and_are_limited(rocketmq: RocketMQ, rocketmq_client: RocketMQClient, tmp_path) -> None:
    """The client trusts any certificate (tls.client.authServer is false by default), and the broker's can be no CA's."""
    certificate, key = Authority(tmp_path).issue("gateway", "127.0.0.1")
    protection = {"tls": {"certificate": str(certificate), "key": str(key)}, "upstream_tls": {"verify": "none"}}
    topic = f"tls-{rocketmq_client.version.replace('.', '')}"
    rocketmq.create_topics(topic)
    with Gateway(tmp_path / "gateway", [{**listener, **copy.deepcopy(protection)} for listener in rocketmq.listeners], RULES) as gateway:
        (sent,) = rocketmq_client.produce("run", {"topic": topic, "mode": "sync", "count": 300, "size": 2000}, tls=True).result()
        opened = sum(each["connections_opened"] for each in gateway.get("/v1/listeners")["items"])
        fates = gateway.messages_by_fate("rocketmq", topic)
    assert sent["ok"] == rocketmq.stored(topic)[topic] == fates["forwarded"]
    assert 100 <= fates["forwarded"] < 300
    assert fates["forwarded"] + fates["refused"] == fates["received"]
    assert opened >= 1, "the client went round the gateway"
