"""Several addresses behind a listener, on real brokers: one is killed or hangs under load, and clients go on at the other one."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pika
import pytest

from gateway.listeners.hold_down import MIN_HOLD_S
from gateway.listeners.upstream import ANSWER_S, FRESH_S
from support.brokers.name_servers import Asker, port_range
from support.brokers.queues import PATIENTLY
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.rocketmq import RocketMQ
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import LOOPBACK, wait_until

QUEUE = "failover"
RUNTIME_INFO = 28  # GET_BROKER_RUNTIME_INFO of RocketMQ
PATIENCE_S = 60.0  # within which a newcomer must be at a broker that works: half of what a kernel waits for one that is silent


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RabbitMQ, RabbitMQ]]:
    """Two brokers that know nothing of each other, so that each tells who was there."""
    with RabbitMQ(tmp_path_factory.mktemp("first")) as first, RabbitMQ(tmp_path_factory.mktemp("second")) as second:
        yield first, second


def text(broker: RabbitMQ) -> str:
    return f"{LOOPBACK}:{broker.port}"


def start(start_gateway: StartGateway, pair: tuple[RabbitMQ, RabbitMQ], **settings: object) -> Gateway:
    return start_gateway([amqp_listener("") | {"upstream": [text(each) for each in pair]}], [], **settings)


@contextlib.contextmanager
def publisher(gateway: Gateway) -> Iterator[Any]:
    """A connection with a channel in confirm mode."""
    parameters = pika.URLParameters(f"{gateway.amqp_url()}?connection_attempts=1&{PATIENTLY}")
    connection = pika.BlockingConnection(parameters)
    try:
        channel = connection.channel()
        channel.queue_declare(QUEUE)
        channel.confirm_delivery()
        yield channel
    finally:
        with contextlib.suppress(pika.exceptions.AMQPError, OSError):
            connection.close()


def newcomer(gateway: Gateway) -> float:
    """Connects, publishes one confirmed message, leaves. Seconds from the first packet to the confirm; raises whatever goes wrong."""
    began = time.monotonic()
    with publisher(gateway) as channel:
        channel.basic_publish("", QUEUE, b"x")
        return time.monotonic() - began


def states(gateway: Gateway) -> dict[str, str]:
    """Address -> state, of the listener `rabbit`."""
    return {each["address"]: each["state"] for each in gateway.get("/v1/listeners")["items"][0]["upstreams"]}


def samples(gateway: Gateway, name: str) -> dict[str, float]:
    """The metric by address, added up over workers; "" where it has none."""
    found: dict[str, float] = {}
    for sample in gateway.samples():
        if sample.name == name:
            address = sample.labels.get("upstream", "")
            found[address] = found.get(address, 0) + sample.value
    return found


def switches(gateway: Gateway) -> list[str]:
    return [line for line in gateway.log().splitlines() if '"upstream_switched"' in line]


@pytest.mark.rabbitmq
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_broker_that_is_killed_under_load(pair: tuple[RabbitMQ, RabbitMQ], start_gateway: StartGateway, workers: int) -> None:
    """No newcomer is refused, whoever is at the other broker goes on, and the first one returns once, after its hold."""
    first, second = pair
    gateway = start(start_gateway, pair, gateway={"workers": workers})
    with publisher(gateway) as lost, ThreadPoolExecutor(8) as clients:
        lost.basic_publish("", QUEUE, b"x")
        assert samples(gateway, "sluice_upstream_connections") == {text(first): 1, text(second): 0}
        first.kill()
        killed = time.monotonic()
        waits = list(clients.map(lambda _: newcomer(gateway), range(40)))  # raises where one of them was refused
        assert max(waits) < PATIENCE_S
        assert gateway.answers("/readyz"), "one address suffices"
        assert states(gateway) == {text(first): "down", text(second): "up"}
        assert samples(gateway, "sluice_upstream_reachable") == {text(first): 0, text(second): workers}
        with publisher(gateway) as stays:
            stays.basic_publish("", QUEUE, b"x")
            assert samples(gateway, "sluice_upstream_connections")[text(second)] == 1
            first.start_node()
            seen: set[str] = set()

            def is_back() -> bool:
                stays.basic_publish("", QUEUE, b"x")
                seen.add(states(gateway)[text(first)])
                return samples(gateway, "sluice_upstream_reachable")[text(first)] == workers

            wait_until(is_back, within=60, what="the first address in use again")
            assert time.monotonic() - killed > MIN_HOLD_S
            assert seen <= {"down", "held", "up"}
            assert newcomer(gateway) < PATIENCE_S
            stays.basic_publish("", QUEUE, b"x")
            assert samples(gateway, "sluice_upstream_connections")[text(second)] == 1, "whoever is there stays there"
    assert len(switches(gateway)) == 2 * workers, "to the second and back: no flapping"
    assert samples(gateway, "sluice_upstream_switched_total") == {"": 2 * workers}


@pytest.mark.rabbitmq
def test_a_broker_that_hangs_under_load(pair: tuple[RabbitMQ, RabbitMQ], start_gateway: StartGateway) -> None:
    """It takes connections and says nothing. Newcomers are at the other one soon, and are not refused."""
    first, second = pair
    gateway = start(start_gateway, pair)
    with publisher(gateway) as held, ThreadPoolExecutor(8) as clients:
        for _ in range(100):
            held.basic_publish("", QUEUE, b"x")
        first.pause()
        try:
            # Whoever comes while the broker's last byte is fresh (FRESH_S) is led to it, and on to the next one after ANSWER_S.
            waits = list(clients.map(lambda _: newcomer(gateway), range(40)))
            assert max(waits) < PATIENCE_S
            assert sorted(waits)[20] < ANSWER_S, "who comes when it is known does not wait"
            assert states(gateway) == {text(first): "down", text(second): "up"}
            assert gateway.answers("/readyz")
            shown = gateway.cli("listeners", "-o", "csv").stdout
            assert f"{text(second)} in use" in shown
            assert "did not answer AMQP's header" in shown
        finally:
            first.resume()
        with publisher(gateway) as stays:
            numbers = count()

            def is_back() -> bool:
                stays.basic_publish("", QUEUE, str(next(numbers)).encode())
                return states(gateway) == {text(first): "up", text(second): "up"}

            wait_until(is_back, within=60, what="the first address in use again")
            stays.basic_publish("", QUEUE, b"x")
        held.basic_publish("", QUEUE, b"x")  # its own connection has outlived the pause
        assert newcomer(gateway) < PATIENCE_S
    assert len(switches(gateway)) == 2


@pytest.mark.rocketmq
@pytest.mark.long
def test_a_name_server_that_hangs(tmp_path_factory: pytest.TempPathFactory, start_gateway: StartGateway) -> None:
    """Routes come from the other one, and lead to the gateway's own ports as before."""
    first_port, last_port = port_range(12)
    with RocketMQ(tmp_path_factory.mktemp("names"), advertised=LOOPBACK, name_servers=2) as broker:
        listener = {
            "name": "names",
            "protocol": "rocketmq-nameserver",
            "bind": f"{LOOPBACK}:0",
            "upstream": broker.name_servers,
            "broker_ports": f"{first_port}-{last_port}",
        }
        gateway = start_gateway([listener], [{"name": "all", "match": {"protocol": "rocketmq"}, "limit": {"messages": "1000/s"}}])
        broker.create_topics("orders")

        def route() -> dict[tuple[str, int], str]:
            with Asker(gateway.port("names")) as asker:
                return asker.route()

        before = route()
        (address,) = before.values()
        assert first_port <= int(address.rpartition(":")[2]) <= last_port
        broker.pause_name_server(0)
        try:
            paused = time.monotonic()
            wait_until(lambda: time.monotonic() - paused > FRESH_S, within=5, what="its last byte to be old")
            asked = time.monotonic()
            assert route() == before, "from the other name server, rewritten as before"
            assert time.monotonic() - asked < PATIENCE_S
            with Asker(int(address.rpartition(":")[2])) as client:
                assert client.ask(RUNTIME_INFO)[0]["code"] == 0, "and the broker is reached by it"
            (names,) = [each for each in gateway.get("/v1/listeners")["items"] if each["name"] == "names"]
            assert [each["state"] for each in names["upstreams"]] == ["down", "up"]
            assert gateway.answers("/readyz")
        finally:
            broker.resume_name_server(0)
        wait_until(
            lambda: gateway.log().count('"upstream_switched"') == 2, within=60, what="the first name server in use again"
        )  # fmt: skip
        assert route() == before


@pytest.mark.parametrize("protocol", ["amqp", "rocketmq"])
def test_where_no_address_answers_the_client_hears_it_at_once(start_gateway: StartGateway, protocol: str) -> None:
    with socket.create_server((LOOPBACK, 0)) as one, socket.create_server((LOOPBACK, 0)) as other:
        addresses = [f"{LOOPBACK}:{each.getsockname()[1]}" for each in (one, other)]
    listener = {"name": "rabbit", "protocol": protocol, "bind": f"{LOOPBACK}:0", "upstream": addresses}
    gateway = start_gateway([listener], [], until="/livez")
    wait_until(lambda: set(states(gateway).values()) == {"down"}, within=10, what="both known to be down")
    (reason,) = gateway.request("GET", "/readyz").json["reasons"]
    assert reason == (
        f"listener rabbit: none of its 2 brokers is reachable: {addresses[0]}: Connection refused; {addresses[1]}: Connection refused"
    )
    if protocol == "amqp":
        with pytest.raises(pika.exceptions.AMQPError, match="none of the brokers behind this gateway can be reached"):
            newcomer(gateway)
