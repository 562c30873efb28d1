"""The door in front of RabbitMQ, as clients and operators see it: caps, a broker that is down, the PROXY protocol on both hops."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pamqp import commands

from gateway.transport import proxy_protocol
from gateway.transport.proxy_protocol import Ends
from support.amqp import frames as amqp
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.splice import Splice
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import HANG_S, LOOPBACK, Process, accepts, free_ports, wait_until

pytestmark = pytest.mark.rabbitmq


def connect(gateway: Gateway, credentials: str = "guest:guest") -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(gateway.amqp_url().replace("guest:guest", credentials)))


def refusal(gateway: Gateway) -> str:
    """What pika shows when it is turned away."""
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as caught:
        connect(gateway)
    return str(caught.value)


def shown(gateway: Gateway) -> Any:
    """The gateway's only listener, as GET /v1/listeners has it."""
    (listener,) = gateway.get("/v1/listeners")["items"]
    return listener


def works(connection: pika.BlockingConnection) -> bool:
    channel = connection.channel()
    channel.queue_declare("", exclusive=True)
    channel.close()
    return True


def test_more_connections_than_a_rate_allows_are_told_why_and_the_others_go_on(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    """The caps on how many there are: test_client_connections.py."""
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}", max_connection_rate="1/min")], [])
    with connect(gateway) as connection:
        text = refusal(gateway)
        assert "(320) 'CONNECTION_FORCED - more than 1/min new connections to listener rabbit (max_connection_rate);" in text
        assert works(connection)
        counted = {"max_connection_rate": 1}
        wait_until(lambda: shown(gateway)["connections_refused"] == counted, within=30, what="the refusal is counted, and it alone")
        assert shown(gateway)["max_connection_rate"] == "1/min"
    closed = [s for s in gateway.samples() if s.name == "sluice_connections_closed_total" and s.labels["cause"] == "max_connection_rate"]
    assert [sample.value for sample in closed] == [1]


def test_a_wrong_password_takes_nobodys_place(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}", max_connections_per_user=1)], [])
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(gateway, "guest:wrong")
    with connect(gateway) as connection:
        assert works(connection)
        assert "max_connections_per_user" in refusal(gateway)


def test_a_broker_that_is_down_is_told_to_clients_at_once_and_its_return_is_noticed(
    rabbitmq: RabbitMQ, start_gateway: StartGateway
) -> None:
    port = free_ports(1)[0]
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{port}")], [], until="/livez")
    for _ in range(5):
        text = refusal(gateway)
        assert (
            f"(320) 'CONNECTION_FORCED - the broker behind this gateway (127.0.0.1:{port}) cannot be reached: Connection refused'" in text
        )
    assert (shown(gateway)["upstream_reachable"], shown(gateway)["upstream_error"]) == (False, "Connection refused")
    assert [sample.value for sample in gateway.samples() if sample.name == "sluice_upstream_reachable"] == [0]
    assert gateway.request("GET", "/readyz", authorised=False).status == 503
    with Splice((LOOPBACK, port), (LOOPBACK, rabbitmq.port)):
        wait_until(lambda: gateway.answers("/readyz"), within=6, what="the gateway notices that its broker is back")
        with connect(gateway) as connection:
            assert works(connection)


# ---- the PROXY protocol ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def believing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A broker with `proxy_protocol = true`, and with AMQP 1.0."""
    with RabbitMQ(tmp_path_factory.mktemp("believing"), proxy_protocol=True, plugins=("rabbitmq_amqp1_0",)) as broker:
        yield broker


LOGIN = b"".join(
    [
        amqp.PROTOCOL_HEADER,
        amqp.method(0, commands.Connection.StartOk({"product": "test"}, "PLAIN", "\0guest\0guest", "en_US")),
        amqp.method(0, commands.Connection.TuneOk(2047, 131072, 60)),
        amqp.method(0, commands.Connection.Open("/")),
    ]
)


@contextmanager
def speaking_from(source: str, port: int, first: bytes = b"") -> Iterator[socket.socket]:
    """An open AMQP connection from the address `source`, spoken by hand: ordinary clients cannot choose where they connect from."""
    with socket.create_connection((LOOPBACK, port), timeout=HANG_S, source_address=(source, 0)) as client:
        client.sendall(first + LOGIN)
        data = b""
        while b"\x00\x0a\x00\x29" not in data:  # connection.open-ok
            received = client.recv(65536)
            assert received, f"closed: {data!r}"
            data += received
        yield client


def await_peers(broker: RabbitMQ, *hosts: str) -> None:
    """Wait until the broker has clients from these and no others; it forgets those that have left a moment later."""

    def there() -> bool:
        return sorted(line for line in broker.control("list_connections", "peer_host").split() if line != "peer_host") == sorted(hosts)

    wait_until(there, within=30, what=f"clients from {hosts} at the broker")


def test_the_broker_sees_the_clients_own_address(believing: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{believing.port}", send_proxy_protocol="v2")], [])
    with speaking_from("127.0.0.5", gateway.port("rabbit")) as client:
        await_peers(believing, "127.0.0.5")
        (connection,) = gateway.get("/v1/connections")["items"]
        assert connection["client"] == f"127.0.0.5:{client.getsockname()[1]}"


@pytest.mark.parametrize("version", ["send-proxy", "send-proxy-v2"])
def test_behind_haproxy_limits_and_broker_see_the_original_client(
    believing: RabbitMQ, start_gateway: StartGateway, tmp_path: Path, version: str
) -> None:
    gateway: Gateway = start_gateway(
        [
            amqp_listener(
                f"127.0.0.1:{believing.port}",
                accept_proxy_protocol=True,
                trusted_proxies=["127.0.0.0/8"],
                send_proxy_protocol="v2",
                max_connections_per_address=1,
            )
        ],
        [],
    )
    port = free_ports(1)[0]
    (tmp_path / "haproxy.cfg").write_text(
        "defaults\n mode tcp\n timeout connect 300s\n timeout client 300s\n timeout server 300s\n"
        f"listen amqp\n bind {LOOPBACK}:{port}\n server gateway {LOOPBACK}:{gateway.port('rabbit')} {version}\n"
    )
    with Process(["haproxy", "-db", "-f", tmp_path / "haproxy.cfg"], log=tmp_path / "haproxy.log") as haproxy:
        haproxy.wait_until(lambda: accepts(LOOPBACK, port), within=30, what="HAProxy")
        with speaking_from("127.0.0.5", port), speaking_from("127.0.0.6", port):
            await_peers(believing, "127.0.0.5", "127.0.0.6")
            with pytest.raises(AssertionError, match=r"is reached by 127[.]0[.]0[.]6"), speaking_from("127.0.0.6", port):
                pass
        clients = {connection["client"].partition(":")[0] for connection in gateway.get("/v1/connections")["items"]}
        assert clients <= {"127.0.0.5", "127.0.0.6"}


def test_health_checks_of_the_balancer_keep_their_own_address_and_what_has_no_header_is_closed(
    believing: RabbitMQ, start_gateway: StartGateway
) -> None:
    gateway: Gateway = start_gateway(
        [
            amqp_listener(
                f"127.0.0.1:{believing.port}", accept_proxy_protocol=True, trusted_proxies=["127.0.0.0/8"], send_proxy_protocol="v2"
            )
        ],
        [],
    )
    port = gateway.port("rabbit")
    with speaking_from("127.0.0.7", port, proxy_protocol.write(None)):
        await_peers(believing, "127.0.0.7")
    told = Ends(("2001:db8::7", 5000), ("2001:db8::1", 5672))
    with speaking_from("127.0.0.7", port, proxy_protocol.write(told)):
        await_peers(believing, "2001:db8::7")
    with pytest.raises((AssertionError, ConnectionError), match=r"closed: b''|reset|[Bb]roken pipe"), speaking_from("127.0.0.7", port):
        pass
    wait_until(lambda: shown(gateway)["connections_closed"].get("proxy_protocol") == 1, within=30, what="its end is counted")


def exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        received = client.recv(size - len(data))
        assert received, f"closed after {data!r}"
        data += received
    return data


def test_amqp_1_0_passes_as_it_is_where_the_listener_says_so(believing: RabbitMQ, start_gateway: StartGateway) -> None:
    """SASL PLAIN by hand (AMQP 1.0, part 5): header, sasl-mechanisms, sasl-init, sasl-outcome, then the header of AMQP itself."""
    gateway: Gateway = start_gateway(
        [amqp_listener(f"127.0.0.1:{believing.port}", send_proxy_protocol="v2", other_protocols="pass")],
        [{"name": "all", "match": {"protocol": "amqp"}, "limit": {"messages": "0/s"}}],
    )
    with socket.create_connection((LOOPBACK, gateway.port("rabbit")), timeout=HANG_S) as client:
        client.sendall(b"AMQP\x03\x01\x00\x00")
        assert exactly(client, 8) == b"AMQP\x03\x01\x00\x00"
        assert b"PLAIN" in exactly(client, int.from_bytes(exactly(client, 4), "big") - 4)
        arguments = b"\xa3\x05PLAIN" + b"\xa0\x0c\x00guest\x00guest"
        body = b"\x02\x01\x00\x00" + b"\x00\x53\x41\xc0" + bytes([len(arguments) + 1, 2]) + arguments
        client.sendall((len(body) + 4).to_bytes(4, "big") + body)
        outcome = exactly(client, int.from_bytes(exactly(client, 4), "big") - 4)
        assert outcome[4:7] == b"\x00\x53\x44"
        client.sendall(b"AMQP\x00\x01\x00\x00")
        assert exactly(client, 8) == b"AMQP\x00\x01\x00\x00"
        assert len(gateway.get("/v1/connections")["items"]) == 1


def is_found_away(gateway: Gateway) -> bool:
    return shown(gateway)["upstream_reachable"] is False


def is_deserted(gateway: Gateway) -> bool:
    return bool(shown(gateway)["connections_active"] == 0)


def test_a_proxy_header_the_broker_misses_or_does_not_expect_is_told_to_the_client_and_in_the_log(
    start_gateway: StartGateway, believing: RabbitMQ, rabbitmq: RabbitMQ
) -> None:
    """Both ways round the naive gateway shows a bare end, and nobody knows whose setting is wrong."""
    for port, sent in ((believing.port, "none"), (rabbitmq.port, "v2")):
        gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{port}", send_proxy_protocol=sent)], [], until="/livez")
        wait_until(partial(is_found_away, gateway), within=30, what="the gateway has asked the broker")
        text = refusal(gateway)
        assert f"does send_proxy_protocol ({sent}) fit the broker's proxy_protocol?" in text
        wait_until(partial(is_deserted, gateway), within=30, what="the connection is gone")
        assert shown(gateway)["connections_closed"] == {"upstream_unreachable": 1}
        (line,) = [line for line in map(json.loads, gateway.log().splitlines()) if line["event"] == "upstream_unreachable"]
        assert (line["reason"] in {"closed", "wrong_answer"}, line["level"]) == (True, "warning")
        assert line["err"] in text
