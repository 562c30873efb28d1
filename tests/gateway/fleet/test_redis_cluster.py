"""A fleet's buckets on a real Redis Cluster of three nodes: every script touches one slot, wherever that is, or has moved to."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pytest

from gateway.fleet.outages import OwnerGoneError
from gateway.fleet.redis_owner import Ask, RedisOwner, Slice
from gateway.fleet.script import key_of, rates_of
from limiter.limits import Limit, Rate
from support.brokers.redis_server import RedisServer
from support.models.fleets import fleet_settings
from support.processes import LOOPBACK, free_ports, wait_until

pytestmark = pytest.mark.slow  # a cluster of Redis

HUNDRED = rates_of(Limit(messages=Rate(100)))
TOPICS = [f"t{n}" for n in range(40)]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    with ExitStack() as running:
        made = []
        for n in range(3):
            server = RedisServer(tmp_path_factory.mktemp(f"node-{n}"))
            server.options = ("--cluster-enabled", "yes", "--cluster-port", str(free_ports(1)[0]))
            made.append(running.enter_context(server))
        addresses = [f"{LOOPBACK}:{server.port}" for server in made]
        command = ["redis-cli", "--cluster", "create", *addresses, "--cluster-replicas", "0", "--cluster-yes"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        for server in made:
            wait_until(partial(is_formed, server), within=20, what="the cluster")
        yield made


def is_formed(server: RedisServer) -> bool:
    return "cluster_state:ok" in str(server.command("CLUSTER", "INFO"))


def owner_of(node: RedisServer, *, cluster: bool = True, member: str = "a") -> RedisOwner:
    return RedisOwner(replace(fleet_settings(node.url, timeout_ms=2000), cluster=cluster), member)


def ask_for(topic: str) -> Ask:
    return Ask(("topic", "", "rocketmq", topic), HUNDRED, 60, 0)


def test_buckets_are_on_all_nodes_and_every_gateway_finds_them(nodes: list[RedisServer]) -> None:
    one, other = owner_of(nodes[0]), owner_of(nodes[2], member="b")
    assert {slice_.messages for slice_ in one.ask([ask_for(topic) for topic in TOPICS])} == {60}
    assert {30 <= slice_.messages <= 60 for slice_ in other.ask([ask_for(topic) for topic in TOPICS])} == {True}
    assert [one.show().there, other.show().there] == [1, 2]
    assert all(int(str(node.command("DBSIZE"))) >= 5 for node in nodes)
    one.close()
    other.close()


def test_a_slot_that_moves_costs_a_round(nodes: list[RedisServer]) -> None:
    owner = owner_of(nodes[0])
    owner.ask([ask_for("moves")])
    key = key_of("tests", ("topic", "", "rocketmq", "moves"))
    slot = int(str(nodes[0].command("CLUSTER", "KEYSLOT", key)))
    holder = next(node for node in nodes if node.command("CLUSTER", "COUNTKEYSINSLOT", slot) == 1)
    target = next(node for node in nodes if node is not holder)
    holder.command("DEL", key)
    name = str(target.command("CLUSTER", "MYID"))
    for node in (target, holder, *nodes):
        node.command("CLUSTER", "SETSLOT", slot, "NODE", name)
    with pytest.raises(OwnerGoneError, match="not_ready"):
        owner.ask([ask_for("moves")])
    assert owner.ask([ask_for("moves")]) == [Slice(60, 0, 40, 0)]
    owner.close()


def test_a_client_that_does_not_know_of_the_cluster_says_so(nodes: list[RedisServer]) -> None:
    owner = owner_of(nodes[0], cluster=False)
    with pytest.raises(OwnerGoneError, match=r"set fleet\.redis\.cluster: true"):
        owner.ask([ask_for(topic) for topic in TOPICS])
