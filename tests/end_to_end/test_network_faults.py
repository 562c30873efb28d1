"""Networks at fault, on both hops of a gateway before a real RabbitMQ (docs/design/reliability.md F30 to F34, F11, F26).

Whatever is done to the network: what a client saw acked is at the broker, the gateway stores nothing twice, and when the fault is over a
fresh client publishes and gets its confirm (I1, I3, I8).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from support.brokers.fault_proxy import FaultProxy, Faults
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.fresh import expect_confirm
from support.clients.programs import Publishing, go_publish
from support.gateways import Gateway, amqp_listener
from support.processes import LOOPBACK, wait_until

pytestmark = pytest.mark.rabbitmq

CONNECTIONS = 4
COUNT = 300  # messages of a connection
RATE = 150  # of a connection, a second: two seconds of it
HOPS = ["client", "broker"]


class Ground:
    """client → (proxy) → gateway → (proxy) → broker."""

    def __init__(self, gateway: Gateway, to_gateway: FaultProxy, to_broker: FaultProxy, broker: RabbitMQ) -> None:
        self.gateway = gateway
        self.broker = broker
        self.by_hop = {"client": to_gateway, "broker": to_broker}
        self._before = 0.0  # messages of the queue's name that went on before this test's

    def url(self) -> str:
        return self.gateway.amqp_url().replace(f":{self.gateway.port('rabbit')}", f":{self.by_hop['client'].address.rpartition(':')[2]}")

    def publish(self, queue: Queue, run: str, **flags: float | str) -> Publishing:
        settings: dict[str, float | str] = {
            "connections": CONNECTIONS,
            "count": COUNT,
            "rate": RATE,
            "size": 500,
            "window": 50,
        }
        self._before = self.forwarded(queue)
        return go_publish(self.url(), "", queue.name, run, **(settings | flags))

    def under_way(self, queue: Queue) -> None:
        wait_until(lambda: self.forwarded(queue) > self._before + 50, within=30, what="messages to flow")

    def forwarded(self, queue: Queue) -> float:
        return self.gateway.messages_by_fate("amqp", f"%2F/amq.default/{queue.name}").get("forwarded", 0.0)

    def expect_alive(self, queue: Queue) -> None:
        expect_confirm(self.gateway, queue.name)


@pytest.fixture(scope="module")
def all_ground(rabbitmq: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ExitStack() as stack:
        to_broker = stack.enter_context(FaultProxy(f"{LOOPBACK}:{rabbitmq.port}"))
        gateway = stack.enter_context(Gateway(tmp_path_factory.mktemp("gateway"), [amqp_listener(to_broker.address)], []))
        to_gateway = stack.enter_context(FaultProxy(f"{LOOPBACK}:{gateway.port('rabbit')}"))
        yield Ground(gateway, to_gateway, to_broker, rabbitmq)


@pytest.fixture
def ground(all_ground: Ground) -> Iterator[Ground]:
    """Without faults, and without the connections of the test before."""
    yield all_ground
    for proxy in all_ground.by_hop.values():
        proxy.heal()
        proxy.reset_all()


def expect_truth(queue: Queue, acked: set[str]) -> None:
    stored = [name for name in queue.drain() if name != "probe"]
    assert acked <= set(stored), f"{len(acked - set(stored))} messages were acked and are lost"
    assert len(stored) == len(set(stored)), "something is stored twice"


LATE = {
    "50 ms, give or take 20 (F30)": lambda: Faults(latency_s=0.05, jitter_s=0.02),
    "1 Mbit/s (F32)": lambda: Faults(bytes_per_s=125_000),
    "slivers of 64 bytes (F11)": lambda: Faults(slice_bytes=64),
}


@pytest.mark.parametrize("hop", HOPS)
@pytest.mark.parametrize("what", LATE)
def test_a_late_network_delays_and_loses_nothing(ground: Ground, hop: str, what: str) -> None:
    with Queue(ground.broker.url, "late") as queue:
        proxy = ground.by_hop[hop]
        publishing = ground.publish(queue, "late")
        ground.under_way(queue)
        proxy.to_broker, proxy.to_client = LATE[what](), LATE[what]()
        published = publishing.result()
        proxy.heal()
        assert published.count("A") == published.sent == CONNECTIONS * COUNT
        ground.expect_alive(queue)
        expect_truth(queue, set(published.ids("A")))


@pytest.mark.parametrize("hop", HOPS)
def test_a_partition_that_heals_within_the_heartbeats_is_a_delay(ground: Ground, hop: str) -> None:
    """F33."""
    with Queue(ground.broker.url, "cut") as queue:
        proxy = ground.by_hop[hop]
        publishing = ground.publish(queue, "cut")
        ground.under_way(queue)
        proxy.to_broker, proxy.to_client = Faults(deaf=True), Faults(deaf=True)
        time.sleep(5)  # how long it lasts is the fault itself
        proxy.heal()
        published = publishing.result()
        assert published.count("A") == published.sent == CONNECTIONS * COUNT
        ground.expect_alive(queue)
        expect_truth(queue, set(published.ids("A")))


CUTS: dict[str, Callable[[FaultProxy], None]] = {
    "reset by the network (F34)": lambda proxy: proxy.reset_all(),
    "reset within a frame to the broker (F06)": lambda proxy: setattr(proxy, "to_broker", Faults(cut_after=200_003)),
    "reset within a frame to the client": lambda proxy: setattr(proxy, "to_client", Faults(cut_after=9_001)),
    "a wrong byte to the broker": lambda proxy: setattr(proxy, "to_broker", Faults(corrupt_after=200_003)),
}


@pytest.mark.parametrize("hop", HOPS)
@pytest.mark.parametrize("what", CUTS)
def test_connections_that_are_cut_or_corrupt_lose_nothing_that_was_acked(ground: Ground, hop: str, what: str) -> None:
    """A byte that is another one may lie in a body, which nobody checks; then it is at the broker like that."""
    with Queue(ground.broker.url, "torn") as queue:
        publishing = ground.publish(queue, "torn", patience=20)
        ground.under_way(queue)
        CUTS[what](ground.by_hop[hop])
        published = publishing.result()
        ground.by_hop[hop].heal()
        ground.expect_alive(queue)
        acked = set(published.ids("A"))
        assert acked, "nothing was acked before the fault"
        if "byte" in what:
            stored = {name for name in queue.drain() if name != "probe"}
            assert len(acked - stored) <= CONNECTIONS, "beyond the one message of each connection that has another name now"
        else:
            expect_truth(queue, acked)


@pytest.mark.parametrize("place", [600, 9_001, 20_011])
def test_a_broker_whose_bytes_are_wrong_costs_its_clients_their_connection_at_most(ground: Ground, place: int) -> None:
    """F26. What is wrong may be the number in a confirm, so nothing is said of what was acked, nor of what the client makes of it."""
    proxy = ground.by_hop["broker"]
    with Queue(ground.broker.url, "wrong") as queue:
        publishing = ground.publish(queue, "wrong", patience=5)
        ground.under_way(queue)
        proxy.to_client = Faults(corrupt_after=place)
        with contextlib.suppress(AssertionError):  # a client that stumbled over it
            publishing.result()
        proxy.heal()
        ground.expect_alive(queue)


def test_a_broker_that_refuses_everybody_is_found_again(ground: Ground) -> None:
    """F22, and back."""
    proxy = ground.by_hop["broker"]
    with Queue(ground.broker.url, "again") as queue:
        ground.expect_alive(queue)
        proxy.refuses = True
        proxy.reset_all()
        wait_until(lambda: not ground.gateway.answers("/readyz"), within=60, what="the gateway to say that it is not ready")
        proxy.heal()
        ground.expect_alive(queue)
        wait_until(lambda: ground.gateway.answers("/readyz"), within=60, what="the gateway to be ready again")
