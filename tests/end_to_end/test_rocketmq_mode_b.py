"""RocketMQ through a name server's listener (mode B): brokers keep their own addresses, clients ask the gateway for routes.

Two masters and a slave of the first, real ones; the masters send whoever reads what they stored a while ago to their slave.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.brokers.name_servers import Asker, port_range
from support.brokers.rocketmq import RocketMQ
from support.clients.programs import RocketMQClient
from support.clients.rocketmq_probes import RocketmqProbe
from support.gateways import Gateway
from support.java import MavenUnreachableError
from support.processes import LOOPBACK, free_ports, wait_until

pytestmark = pytest.mark.rocketmq

READ_FROM_SLAVES = {
    "slaveReadEnable": "true",
    "accessMessageInMemoryMaxRatio": 0,  # whatever is stored counts as not in memory any more
    "registerNameServerPeriod": 10_000,  # ms, the least; a slave learns where its master is from the answer, 30 s later where it was early
}
LIBRARIES = ("cpp", "go", "node")  # whom the name server writes the keys of addresses as bare numbers, which is not JSON
RULES: list[dict[str, object]] = [
    {
        "name": "limited",
        "match": {"protocol": "rocketmq", "topic": "limited-*", "listener": "names/*"},
        "limit": {"messages": "1/s", "burst": {"messages": 50}},
        "breaker": {"open_for": "0s"},
    },
    {"name": "others", "match": {"protocol": "rocketmq"}, "limit": {"messages": "50k/s"}},
]


class Cluster:
    """Brokers, a gateway in front of their name server, and the ports of all."""

    def __init__(self, brokers: RocketMQ, directory: Path) -> None:
        self.brokers = brokers
        self.a = brokers.port
        (self.b,) = brokers.add_brokers(("broker-b", 0))
        topics = ["sent-5", "sent-4", "limited-5", "kept-5", "vip-5", "vip-4", *(f"sent-{library}" for library in LIBRARIES)]
        readers = [f"%RETRY%sent-readers-{reader}:1" for reader in ("5", "4", *LIBRARIES)]  # else clients learn of them up to 50 s late
        brokers.create_topics(*topics, *readers)
        brokers.create_topics(*topics, port=self.b)
        # As a slave has it that was there before: one that is new asks its master for the topics a minute after its start (measured).
        known = brokers.directory / "broker-broker-a-1-store" / "config" / "topics.json"
        known.parent.mkdir(parents=True)
        shutil.copyfile(brokers.directory / "broker-store" / "config" / "topics.json", known)
        (self.slave,) = brokers.add_brokers(("broker-a", 1))
        (port,) = free_ports(1)
        first, last = port_range(12)
        self.names = f"{LOOPBACK}:{port}"
        names: dict[str, object] = {
            "name": "names",
            "protocol": "rocketmq-nameserver",
            "bind": self.names,
            "upstream": brokers.name_server,
            "broker_ports": f"{first}-{last}",
        }
        self.gateway = Gateway(directory, [names], RULES)

    def stored(self, topic: str, *ports: int) -> list[int]:
        """How many messages of `topic` the brokers on these ports have."""
        return [self.brokers.stored(topic, port=port)[topic] for port in ports]

    def opened(self) -> dict[str, int]:
        """How many connections each broker's listener has had."""
        items = self.gateway.get("/v1/listeners")["items"]
        return {one["name"]: one["connections_opened"] for one in items if one["name"].startswith("names/")}

    def addresses(self) -> dict[str, str]:
        """Where the gateway listens for each broker."""
        return {one["name"]: one["bind"] for one in self.gateway.get("/v1/listeners")["items"] if one["name"].startswith("names/")}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        brokers = RocketMQ(tmp_path_factory.mktemp("cluster"), READ_FROM_SLAVES, advertised=LOOPBACK)
    except MavenUnreachableError as error:
        pytest.skip(f"ROCKETMQ'S MODE B IS NOT TESTED, its jars are not here and Maven Central cannot be reached: {error}")
    with brokers:
        one = Cluster(brokers, tmp_path_factory.mktemp("gateway"))
        with one.gateway:
            yield one


@pytest.fixture(scope="module")
def new_client(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> RocketMQClient:
    return client_of("5", cluster, tmp_path_factory)


@pytest.fixture(scope="module", params=["5", pytest.param("4", marks=pytest.mark.long)])
def client(request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> RocketMQClient:
    return client_of(request.param, cluster, tmp_path_factory)


def client_of(version: str, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> RocketMQClient:
    try:
        return RocketMQClient(version, tmp_path_factory.mktemp(f"mode-b-{version}"), cluster.names)
    except MavenUnreachableError as error:
        pytest.skip(f"THE ROCKETMQ CLIENT {version} IS NOT TESTED IN MODE B, its jars cannot be fetched: {error}")


def name(use: str, client: RocketMQClient) -> str:
    return f"{use}-{client.version}"


@pytest.mark.parametrize("library", LIBRARIES)
def test_clients_that_get_bare_numbers_for_keys_find_the_brokers_here(cluster: Cluster, library: str, tmp_path: Path) -> None:
    topic = f"sent-{library}"
    before = sum(cluster.opened().values())
    with closing(RocketmqProbe(library, tmp_path, cluster.names)) as probe:
        sent = probe.send(topic, count=40)
        assert sent.seen == [None] * 40
        assert sum(cluster.opened().values()) > before, "it went past the gateway"
        assert cluster.gateway.messages_by_fate("rocketmq", topic)["forwarded"] == 40
        assert min(cluster.stored(topic, cluster.a, cluster.b)) > 0, "not all brokers were found"
        assert len(set(probe.consume(topic, f"sent-readers-{library}", expected=40).consumed)) == 40


def test_limits_hold_for_topics_on_several_brokers_together(cluster: Cluster, new_client: RocketMQClient) -> None:
    topic = name("limited", new_client)
    (sent,) = new_client.produce("run", {"topic": topic, "mode": "sync", "count": 300}).result()
    fates = cluster.gateway.messages_by_fate("rocketmq", topic)
    assert set(sent["codes"]) == {"215"}
    assert (fates["received"], fates["forwarded"], fates["refused"]) == (300, sent["ok"], sent["codes"]["215"])
    assert 50 <= sent["ok"] < 150
    assert sum(cluster.stored(topic, cluster.a, cluster.b)) == sent["ok"]


def test_clients_with_the_vip_channel_on_reach_all_brokers_here_too(cluster: Cluster, client: RocketMQClient) -> None:
    """They dial two below the port that the route told them."""
    topic = name("vip", client)
    (sent,) = client.produce("run", {"topic": topic, "mode": "sync", "count": 40}, vip=True).result()
    assert (sent["ok"], sent["codes"]) == (40, {}), sent["errors"]
    assert cluster.gateway.messages_by_fate("rocketmq", topic)["forwarded"] == 40
    assert min(cluster.stored(topic, cluster.a, cluster.b)) > 0, "not all brokers were found"


def test_operators_see_the_gateways_addresses_only(cluster: Cluster) -> None:
    """Java's own admin client reads these answers in test_rocketmq_suite.py. A broker registers 10 s after its start."""
    with Asker(int(cluster.names.rpartition(":")[2])) as asker:

        def told(code: int) -> list[str]:
            return sorted(re.findall(r'"([0-9.]+:[0-9]+)"', asker.ask(code, topic="sent-5")[1].decode()))

        wait_until(lambda: len(told(106)) == 3, within=60, what="all brokers have registered")
        here = sorted(cluster.addresses().values())
        assert told(106) == here
        assert told(105) == here
        assert set(told(304)) <= set(here)


def test_a_producer_that_asks_for_no_route_finds_the_brokers_again_after_a_restart(
    cluster: Cluster, new_client: RocketMQClient, tmp_path: Path
) -> None:
    """Clients ask every 30 s; these sends go on for less, but on a machine that is very slow."""
    topic = name("kept", new_client)
    gateway = cluster.gateway
    enough = tmp_path / "enough"
    sending = new_client.produce("run", {"topic": topic, "mode": "sync", "rate": 20, "until": enough}, timeout_ms=3000)
    wait_until(lambda: gateway.messages_by_fate("rocketmq", topic)["forwarded"] > 20, within=30, what="the producer sends")
    before = cluster.addresses()
    assert gateway.stop() == 0
    gateway.start()
    assert cluster.addresses() == before
    wait_until(lambda: gateway.messages_by_fate("rocketmq", topic)["forwarded"] > 20, within=60, what="it sends again")
    enough.touch()
    (sent,) = sending.result()
    assert sent["outcomes"][0].endswith("A" * 20)


def test_sends_reach_both_masters_through_the_gateway_and_readers_are_led_to_the_slave(cluster: Cluster, client: RocketMQClient) -> None:
    topic = name("sent", client)
    before = cluster.opened().get("names/broker-a/1", 0)
    (sent,) = client.produce("run", {"topic": topic, "mode": "async", "count": 400}).result()
    assert (sent["ok"], sent["codes"]) == (400, {})
    stored = cluster.stored(topic, cluster.a, cluster.b)
    assert sum(stored) == 400
    assert min(stored) > 0
    assert cluster.gateway.messages_by_fate("rocketmq", topic)["forwarded"] == 400
    wait_until(lambda: cluster.stored(topic, cluster.slave) == stored[:1], within=60, what="the slave has it all")
    line = client.consume(name("sent-readers", client), topic, expected=400).result()[0]
    assert len(set(line["consumed"])) == 400
    assert cluster.opened().keys() == {"names/broker-a/0", "names/broker-a/1", "names/broker-b/0"}
    assert cluster.opened()["names/broker-a/1"] > before, "nobody was led to the slave"
