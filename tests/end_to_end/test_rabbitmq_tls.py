"""TLS in front of RabbitMQ and behind the gateway: who gets in, who does not and what both are told, and certificates that change."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pika
import pika.credentials
import pika.exceptions
import pytest

from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import HANG_S, LOOPBACK, wait_until
from support.tls import Authority

pytestmark = pytest.mark.rabbitmq

FLOOD = {
    "name": "flood",
    "match": {"protocol": "amqp", "routing_key": "flood"},
    "per": "topic",
    "limit": {"messages": "1/s", "burst": {"messages": 5}},
}


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("tls"))
    made.issue("broker", "broker.example")
    made.issue("gateway", "gateway.example", LOOPBACK, common_name="gateway")
    made.issue("application", "application.example", common_name="application")
    return made


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("stranger"), "stranger")
    made.issue("application", "application.example", common_name="application")
    return made


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, ca: Authority) -> Iterator[RabbitMQ]:
    """It wants a certificate of everybody and takes its CN for the user where EXTERNAL is asked for."""
    tls = (ca.file, ca.directory / "broker.pem", ca.directory / "broker.key")
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq-tls"), tls=tls) as running:
        running.control("add_user", "gateway", "unused")
        running.control("set_permissions", "gateway", ".*", ".*", ".*")
        yield running


def pair_of(ca: Authority, name: str) -> dict[str, object]:
    return {"certificate": str(ca.directory / f"{name}.pem"), "key": str(ca.directory / f"{name}.key")}


def both_hops(broker: RabbitMQ, ca: Authority, /, **upstream: object) -> dict[str, object]:
    """A listener with TLS on both hops and certificates wanted everywhere."""
    behind = {"ca": str(ca.file), "server_name": "broker.example", **pair_of(ca, "gateway"), **upstream}
    shown = {key: value for key, value in behind.items() if value is not None}
    return amqp_listener(f"{LOOPBACK}:{broker.tls_port}", tls={**pair_of(ca, "gateway"), "client_ca": str(ca.file)}, upstream_tls=shown)


def parameters(gateway: Gateway, trusted: Authority, own: Path | None, credentials: Any = None) -> pika.ConnectionParameters:
    context = ssl.create_default_context(cafile=trusted.file)
    if own is not None:
        context.load_cert_chain(own, own.with_suffix(".key"))
    return pika.ConnectionParameters(
        LOOPBACK,
        gateway.port("rabbit"),
        credentials=credentials or pika.PlainCredentials("guest", "guest"),
        ssl_options=pika.SSLOptions(context, "gateway.example"),
    )


def connect(gateway: Gateway, ca: Authority, credentials: Any = None) -> pika.BlockingConnection:
    return pika.BlockingConnection(parameters(gateway, ca, ca.directory / "application.pem", credentials))


def refused(gateway: Gateway, trusted: Authority, own: Path | None) -> str:
    """What pika shows when it cannot get in."""
    with pytest.raises((pika.exceptions.AMQPError, ssl.SSLError)) as caught:
        pika.BlockingConnection(parameters(gateway, trusted, own))
    return repr(caught.value) + repr(getattr(caught.value, "args", ""))


def events(gateway: Gateway, name: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, gateway.log().splitlines()) if line.get("event") == name]


def said(gateway: Gateway, event: str, words: str) -> None:
    """Wait until an event's line says `words`."""
    wait_until(lambda: any(words in json.dumps(line) for line in events(gateway, event)), within=30, what=f"{event}: {words}")


def counted(gateway: Gateway, name: str, **labels: str) -> float:
    return sum(each.value for each in gateway.samples() if each.name == name and labels.items() <= each.labels.items())


def closed(gateway: Gateway, cause: str, times: int) -> None:
    """Wait until so many connections are counted as closed for `cause`: a client knows that before the gateway is done with it."""
    name = "sluice_connections_closed_total"
    wait_until(lambda: counted(gateway, name, cause=cause) == times, within=30, what=f"{times} closed with {cause}")


def works(connection: pika.BlockingConnection) -> bool:
    channel = connection.channel()
    channel.queue_declare("", exclusive=True)
    channel.close()
    return True


def served(gateway: Gateway, ca: Authority) -> int:
    """The serial number of the certificate a new connection is shown."""
    context = ssl.create_default_context(cafile=ca.file)
    own = ca.directory / "application.pem"
    context.load_cert_chain(own, own.with_suffix(".key"))
    with (
        socket.create_connection((LOOPBACK, gateway.port("rabbit")), timeout=HANG_S) as sock,
        context.wrap_socket(sock, server_hostname="gateway.example") as secured,
    ):
        found = secured.getpeercert()
        assert found is not None
        return int(str(found["serialNumber"]), 16)


def test_five_mebibytes_pass_both_hops_byte_for_byte_and_limits_hold(broker: RabbitMQ, ca: Authority, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([both_hops(broker, ca)], [FLOOD])
    payload = bytes(range(256)) * (5 << 12)
    with connect(gateway, ca) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_publish("", queue, payload)
        _, _, body = channel.basic_get(queue, auto_ack=True)
        assert body == payload
        channel.queue_bind(channel.queue_declare("flood", exclusive=True).method.queue, "amq.direct", "flood")
        outcomes = []
        for _ in range(8):
            try:
                channel.basic_publish("amq.direct", "flood", b"x")
                outcomes.append("ack")
            except pika.exceptions.NackError:
                outcomes.append("nack")
        assert outcomes == ["ack"] * 5 + ["nack"] * 3
        (shown,) = gateway.get("/v1/connections")["items"]
        assert shown["user"] == "guest"
        assert shown["tls"]["certificate_user"] == "application"
        assert {shown["tls"]["version"], shown["upstream_tls"]["version"]} == {"TLSv1.3"}
        assert works(connection)


def test_external_is_the_certificates_user_here_and_the_gateways_at_the_broker(
    broker: RabbitMQ, ca: Authority, start_gateway: StartGateway
) -> None:
    gateway: Gateway = start_gateway([both_hops(broker, ca)], [])
    with connect(gateway, ca, pika.credentials.ExternalCredentials()) as connection:
        assert works(connection)
        (shown,) = gateway.get("/v1/connections")["items"]
        assert shown["user"] == "application"
        rows = broker.control("list_connections", "user", "auth_mechanism").splitlines()[1:]
        logged_in = [row.split() for row in rows if row.split()[:1] not in ([], ["none"])]  # a probe of the gateway's does not log in
        assert logged_in == [["gateway", "EXTERNAL"]]
    done = gateway.cli("check", "-c", str(gateway.config))
    assert "every client that logs in with SASL EXTERNAL is the user of this certificate" in done.stdout + done.stderr


def test_a_client_without_a_certificate_cannot_log_in_as_the_gateway(broker: RabbitMQ, ca: Authority, start_gateway: StartGateway) -> None:
    listener = both_hops(broker, ca)
    del listener["tls"]
    gateway: Gateway = start_gateway([listener], [])
    plain = {"host": LOOPBACK, "port": gateway.port("rabbit")}
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match=r"403.*ACCESS_REFUSED - Login was refused.*log in with PLAIN"):
        pika.BlockingConnection(pika.ConnectionParameters(**plain, credentials=pika.credentials.ExternalCredentials()))
    closed(gateway, "access_refused", 1)
    with pika.BlockingConnection(pika.ConnectionParameters(**plain)) as connection:
        assert works(connection)


def test_clients_that_are_not_let_in_and_clients_that_do_not_want_in(
    broker: RabbitMQ, ca: Authority, stranger: Authority, start_gateway: StartGateway
) -> None:
    gateway: Gateway = start_gateway([both_hops(broker, ca)], [])
    dials = counted(gateway, "sluice_upstream_connect_total", result="ok")
    assert "certificate required" in refused(gateway, ca, None).lower().replace("_", " ")
    said(gateway, "connection_closed", "TLS: the peer has shown no certificate, and one is required")
    assert "unknown ca" in refused(gateway, ca, stranger.directory / "application.pem").lower().replace("_", " ")
    assert "certificate verify failed" in refused(gateway, stranger, ca.directory / "application.pem").lower().replace("_", " ")
    plain = pika.ConnectionParameters(LOOPBACK, gateway.port("rabbit"))
    with pytest.raises(pika.exceptions.AMQPError):
        pika.BlockingConnection(plain)
    closed(gateway, "tls_handshake_failed", 4)
    failures = {each.labels["reason"]: each.value for each in gateway.samples() if each.name == "sluice_tls_failures_total" and each.value}
    assert failures == {"no_certificate": 1, "unknown_ca": 1, "refused": 1, "not_tls": 1}
    assert counted(gateway, "sluice_upstream_connect_total", result="ok") == dials, "a failed handshake costs no dial"
    said(gateway, "connection_closed", "TLS: the client speaks AMQP without TLS: use amqps:// in the client")
    with connect(gateway, ca) as connection:
        assert works(connection)


def test_a_tls_client_on_a_plain_listener_is_named(broker: RabbitMQ, ca: Authority, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"{LOOPBACK}:{broker.port}")], [])
    with pytest.raises(ssl.SSLError, match=r"(?i)wrong.version.number"):
        connect(gateway, ca)
    said(gateway, "connection_closed", "TLS")
    closed(gateway, "wrong_protocol_tls", 1)


def test_a_broker_that_cannot_be_trusted_is_told_to_the_client_and_to_operators(
    broker: RabbitMQ, ca: Authority, stranger: Authority, start_gateway: StartGateway
) -> None:
    gateway: Gateway = start_gateway([both_hops(broker, ca, ca=str(stranger.file))], [], until="/livez")
    words = "certificate ends in a CA that is not trusted"
    assert words in refused(gateway, ca, ca.directory / "application.pem")
    said(gateway, "upstream_unreachable", words)
    assert not gateway.answers("/readyz")
    gateway.config.write_text(gateway.config.read_text().replace(str(stranger.file), str(ca.file)))
    changed = json.loads(gateway.cli("-o", "json", "reload").stdout)
    assert changed["in_force"] == [
        f"listeners.rabbit.upstream_tls.ca: {stranger.file} -> {ca.file}",
        "listeners.rabbit.upstream_tls: the files have changed",
    ]
    wait_until(lambda: gateway.answers("/readyz"), within=30, what="the broker is reached again")
    with connect(gateway, ca) as connection:
        assert works(connection)


def test_a_broker_by_another_name_is_not_talked_to(broker: RabbitMQ, ca: Authority, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([both_hops(broker, ca, server_name=None)], [], until="/livez")
    assert "certificate is for another address (IP address mismatch, certificate is not valid for" in refused(
        gateway, ca, ca.directory / "application.pem"
    )


def test_a_broker_that_wants_a_certificate_and_gets_none_is_named(broker: RabbitMQ, ca: Authority, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([both_hops(broker, ca, certificate=None, key=None)], [], until="/livez")
    said(gateway, "upstream_unreachable", "a certificate")
    told = refused(gateway, ca, ca.directory / "application.pem")
    assert "TLS: the peer requires a certificate and was shown none" in told or "does it require a certificate" in told
    assert not gateway.answers("/readyz")


def test_certificates_change_with_a_reload_while_connections_live(broker: RabbitMQ, ca: Authority, start_gateway: StartGateway) -> None:
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    certificate, key = ca.issue("renewed", "gateway.example", not_after=now + timedelta(days=10))
    listener = both_hops(broker, ca)
    listener["tls"] = {"certificate": str(certificate), "key": str(key), "client_ca": str(ca.file)}
    gateway: Gateway = start_gateway([listener], [])

    def expires() -> float:
        return counted(gateway, "sluice_tls_cert_expiry_timestamp_seconds", hop="client")

    assert expires() == (now + timedelta(days=10)).replace(tzinfo=UTC).timestamp()
    assert "in 9 days" in gateway.cli("check", "-c", str(gateway.config)).stderr + gateway.cli("check", "-c", str(gateway.config)).stdout
    with connect(gateway, ca) as old:
        assert works(old)
        first = served(gateway, ca)
        ca.issue("renewed", "gateway.example", not_after=now + timedelta(days=90))
        assert served(gateway, ca) == first, "files are read on a reload only"
        assert json.loads(gateway.cli("-o", "json", "reload").stdout)["in_force"] == ["listeners.rabbit.tls: the files have changed"]
        second = served(gateway, ca)
        assert second != first
        assert expires() == (now + timedelta(days=90)).replace(tzinfo=UTC).timestamp()

        key.write_text(key.read_text()[:100])
        failed = gateway.cli("reload", check=False)
        assert failed.returncode != 0
        assert (
            f"{key} holds no private key in PEM form" in failed.stdout + failed.stderr
            or f"{key} cannot be used" in failed.stdout + failed.stderr
        )
        assert "listeners[0].tls.key" in failed.stdout + failed.stderr
        assert counted(gateway, "sluice_config_last_reload_successful") == 0
        assert gateway.answers("/readyz")
        assert served(gateway, ca) == second
        assert works(old), "a connection keeps what it began with"


def test_a_client_that_only_opens_the_port_does_not_hurt(broker: RabbitMQ, ca: Authority, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([{**both_hops(broker, ca), "handshake_timeout": "1s"}], [])
    with closing(socket.create_connection((LOOPBACK, gateway.port("rabbit")), timeout=HANG_S)) as silent:
        with connect(gateway, ca) as connection:
            assert works(connection)
        assert silent.recv(1) == b"", "closed at its deadline"
    said(gateway, "connection_closed", "handshake")


def test_workers_go_on_with_the_files_that_were_good(broker: RabbitMQ, ca: Authority, start_gateway: StartGateway) -> None:
    """A reload reaches them all. After it the key is a FIFO: a worker that has to be replaced serves all the same, and opens none."""
    certificate, key = ca.issue("shared", "gateway.example")
    listener = both_hops(broker, ca)
    listener["tls"] = {"certificate": str(certificate), "key": str(key), "client_ca": str(ca.file)}
    gateway: Gateway = start_gateway([listener], [], gateway={"name": "tls-workers", "workers": 2})
    first = served(gateway, ca)
    ca.issue("shared", "gateway.example")
    gateway.cli("reload")
    second = {served(gateway, ca) for _ in range(12)}
    assert len(second) == 1
    assert first not in second
    key.unlink()
    os.mkfifo(key)
    assert f"{key} cannot be read: it is no regular file" in gateway.cli("reload", check=False).stderr
    for each in gateway.get("/v1/status")["workers"]:
        os.kill(each["pid"], signal.SIGKILL)
    wait_until(lambda: gateway.get("/v1/status")["workers_replaced"] == 2, within=HANG_S, what="both workers replaced")
    wait_until(lambda: gateway.answers("/readyz"), within=HANG_S, what="both to serve")
    assert {served(gateway, ca) for _ in range(12)} == second
    with connect(gateway, ca) as connection:
        assert works(connection)
