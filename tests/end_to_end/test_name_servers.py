"""A name server's listener in a running gateway, with a name server and brokers that do what the test says."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from support.brokers.name_servers import Asker, NameServer, Server, port_range, through
from support.gateways import Gateway
from support.processes import HANG_S, LOOPBACK, wait_until

RULES: list[dict[str, object]] = [
    {"name": "all", "match": {"protocol": "rocketmq", "listener": "names/*"}, "limit": {"messages": "1000/s"}}
]


class Brokers:
    """A name server and the brokers it knows."""

    def __init__(self, running: ExitStack) -> None:
        self.running = running
        self.at: dict[tuple[str, int], Server] = {}
        self.names = NameServer({})
        running.enter_context(self.names)

    def add(self, name: str, number: int = 0) -> Server:
        """Another broker, or the same at another address."""
        broker = self.at[name, number] = Server()
        self.running.enter_context(broker)
        self.names.brokers[name, number] = broker.address
        return broker


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    with ExitStack() as running:
        yield Brokers(running)


def listener(brokers: Brokers, ports: int = 12, **more: object) -> dict[str, object]:
    return {
        "name": "names",
        "protocol": "rocketmq-nameserver",
        "bind": f"{LOOPBACK}:0",
        "upstream": brokers.names.address,
        "broker_ports": "{}-{}".format(*port_range(ports)),
        **more,
    }


def listeners(gateway: Gateway) -> dict[str, dict[str, Any]]:
    return {str(one["name"]): one for one in gateway.get("/v1/listeners")["items"]}


def events(gateway: Gateway, name: str, least: int = 1) -> list[dict[str, Any]]:
    """The log's lines of this event, once there are `least`."""

    def lines() -> list[dict[str, Any]]:
        return [line for line in map(json.loads, gateway.log().splitlines()) if line.get("event") == name]

    wait_until(lambda: len(lines()) >= least, within=30, what=f"{least} lines of {name}")
    return lines()


StartGateway = Callable[..., Gateway]


def test_brokers_get_listeners_as_routes_name_them_and_operators_see_them(brokers: Brokers, start_gateway: StartGateway) -> None:
    for broker in (("broker-a", 0), ("broker-a", 1), ("broker-b", 0)):
        brokers.add(*broker)
    gateway = start_gateway([listener(brokers)], RULES)
    with Asker(gateway.port("names")) as client:
        route = client.route()
        assert route.keys() == brokers.names.brokers.keys()
        assert set(route.values()).isdisjoint(brokers.names.brokers.values())
        assert client.route() == route
        for broker, address in route.items():
            assert through(address)["code"] == 0
            assert brokers.at[broker].codes() == [34]
        found = listeners(gateway)
        assert set(found) == {"names", "names/broker-a/0", "names/broker-a/1", "names/broker-b/0"}
        assert found["names"]["broker_ports"]["taken"] == 3
        assert found["names"]["routes"] == {"rewritten": 2, "failed": 0}
        for (name, number), address in route.items():
            one = found[f"names/{name}/{number}"]
            assert (one["protocol"], one["bind"], one["upstream"]) == ("rocketmq", address, brokers.names.brokers[name, number])
            assert one["connections_opened"] == 1
        wait_until(lambda: len(gateway.get("/v1/connections")["items"]) == 1, within=30, what="the end of those to brokers")
        (connection,) = gateway.get("/v1/connections")["items"]
        assert (connection["listener"], connection["protocol"]) == ("names", "rocketmq-nameserver")
    samples = {(one.name, *sorted(one.labels.items())): one.value for one in gateway.samples()}
    assert samples["sluice_route_answers_total", ("listener", "names"), ("result", "rewritten")] == 2
    assert samples["sluice_broker_ports", ("listener", "names"), ("state", "taken")] == 3
    assert samples["sluice_connections_opened_total", ("listener", "names/broker-b/0"), ("protocol", "rocketmq")] == 1
    assert [line["listener"] for line in events(gateway, "broker_listener_opened", len(route))] == [
        f"names/{name}/{n}" for name, n in sorted(route)
    ]


def test_a_broker_that_moves_is_followed_under_its_old_port(brokers: Brokers, start_gateway: StartGateway) -> None:
    old = brokers.add("broker-a")
    gateway = start_gateway([listener(brokers)], RULES, drain={"timeout": "1h"})  # which nothing waits for
    with Asker(gateway.port("names")) as client:
        ((_, address),) = client.route().items()
        new = brokers.add("broker-a")
        assert client.route() == {("broker-a", 0): address}
        assert through(address)["code"] == 0
    assert (old.codes(), new.codes()) == ([], [34])
    (moved,) = events(gateway, "broker_moved")
    assert (moved["listener"], moved["before"], moved["upstream"]) == ("names/broker-a/0", old.address, new.address)


def test_clients_follow_a_master_and_a_slave_that_change_places_while_both_live(brokers: Brokers, start_gateway: StartGateway) -> None:
    """The route that clients read is the same before and after, so nothing but the end of their connections tells them."""
    first, second = brokers.add("broker-a"), brokers.add("broker-a", 1)
    brokers.add("broker-b")
    gateway = start_gateway([listener(brokers)], RULES)
    with Asker(gateway.port("names")) as client, ExitStack() as clients:
        before = client.route()
        on_a, on_slave, on_b = [clients.enter_context(Asker(int(at.rpartition(":")[2]))) for _, at in sorted(before.items())]
        for code, asker in ((34, on_a), (35, on_slave), (38, on_b)):
            asker.ask(code)
        assert (first.codes(), second.codes()) == ([34], [35])
        brokers.names.brokers["broker-a", 0], brokers.names.brokers["broker-a", 1] = second.address, first.address
        assert client.route() == before
        assert (on_a.sock.recv(1), on_slave.sock.recv(1)) == (b"", b""), "closed within the time-out"
        assert through(before["broker-a", 0])["code"] == 0
        assert (first.codes(), second.codes()) == ([34], [35, 34])
        on_b.ask(38)  # of a broker that has not moved
        assert client.route() == before

    def closed() -> dict[str, float]:
        return {one.labels["listener"]: one.value for one in gateway.samples() if one.labels.get("cause") == "broker_moved"}

    wait_until(lambda: sum(closed().values()) == 2, within=30, what="both ends of the closed connections")
    assert closed() == {"names/broker-a/0": 1, "names/broker-a/1": 1, "names/broker-b/0": 0}


def test_brokers_cannot_register_here_and_operators_can_write(brokers: Brokers, start_gateway: StartGateway) -> None:
    gateway = start_gateway([listener(brokers)], RULES)
    with Asker(gateway.port("names")) as client:
        for _ in range(20):
            header, _ = client.ask(103, b"x" * 10_000)
            assert header["code"] == 16
            assert "namesrvAddr" in str(header["remark"])
        assert client.ask(216)[0]["code"] == 0
    assert brokers.names.codes() == [216]
    (line,) = events(gateway, "registration_refused")
    assert (line["request"], line["client"].partition(":")[0]) == ("REGISTER_BROKER (103)", LOOPBACK)
    assert brokers.names.address in line["remedy"]
    assert listeners(gateway)["names"]["registrations_refused"] == 20


def test_a_gateway_is_ready_while_it_reaches_the_name_server_and_some_broker(brokers: Brokers, start_gateway: StartGateway) -> None:
    live, gone = brokers.add("a"), Server()
    gateway = start_gateway([listener(brokers)], RULES)
    with gone:
        brokers.names.brokers["b", 0] = gone.address
        with Asker(gateway.port("names")) as client:
            client.route()
        wait_until(lambda: listeners(gateway)["names/b/0"]["upstream_reachable"], within=30, what="the broker is dialled without a client")
    gateway.get("/v1/status")
    route = listeners(gateway)
    with socket.create_connection((LOOPBACK, int(route["names/b/0"]["bind"].rpartition(":")[2])), timeout=5) as client_of_b:
        client_of_b.sendall(b"\0\0\0\x20")  # enough to be dialled for
        wait_until(lambda: listeners(gateway)["names/b/0"]["upstream_reachable"] is False, within=30, what="one broker is away")
    assert gateway.answers("/readyz")
    brokers.running.close()
    with socket.create_connection((LOOPBACK, int(route["names/a/0"]["bind"].rpartition(":")[2])), timeout=5) as client_of_a:
        client_of_a.sendall(b"\0\0\0\x20")
        wait_until(lambda: not gateway.answers("/readyz"), within=30, what="all brokers are away")
    assert "none of the 2 brokers" in str(gateway.get("/v1/status")["not_ready_because"])
    assert live.codes() == []


def test_clients_connected_to_brokers_listeners_are_drained_as_others_are(brokers: Brokers, start_gateway: StartGateway) -> None:
    brokers.add("a")
    gateway = start_gateway([listener(brokers)], RULES, drain={"timeout": "1h"})  # which nothing waits for
    with Asker(gateway.port("names")) as client:
        ((_, address),) = client.route().items()
        with Asker(int(address.rpartition(":")[2])) as sender:
            sender.ask(34)
            gateway.process.popen.send_signal(signal.SIGTERM)
            assert sender.sock.recv(1) == b""
            assert client.sock.recv(1) == b""
    assert gateway.process.popen.wait(HANG_S) == 0
    assert len(events(gateway, "stopped")) == 1
