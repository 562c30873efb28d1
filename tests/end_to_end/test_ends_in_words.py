"""Nothing that the gateway has forwarded is lost by the way it ends a broker connection: RabbitMQ handles all, then the connection ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel

from support.amqp import frames as amqp
from support.brokers.queues import connect
from support.brokers.rabbitmq import RabbitMQ
from support.clients.raw_amqp import RawClient, opening
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import HANG_S, LOOPBACK, wait_until

pytestmark = pytest.mark.rabbitmq

MANY = 3000  # persistent messages
DRAIN_S = 3
QUEUE = "ends-in-words"
Results = Callable[[], int]


@pytest.fixture
def stored(rabbitmq: RabbitMQ) -> Iterator[Results]:
    """How many messages the queue has, asked on another connection."""
    with connect(rabbitmq.url) as connection:
        channel: BlockingChannel = connection.channel()
        channel.queue_declare(QUEUE, durable=True)
        yield lambda: int(channel.queue_declare(QUEUE, passive=True).method.message_count)
        channel.queue_delete(QUEUE)


def limited(rate: str) -> list[dict[str, object]]:
    return [{"name": "limited", "match": {"protocol": "amqp", "routing_key": QUEUE}, "limit": {"messages": rate}, "action": "spool"}]


def publishing(gateway: Gateway, *, confirms: bool = False) -> RawClient:
    """A client that has sent MANY messages."""
    client = RawClient(gateway.port("rabbit"))
    client.say(opening(1) + (amqp.method(1, commands.Confirm.Select()) if confirms else b""))
    client.wait_for("Channel.OpenOk")
    publish = amqp.method(1, commands.Basic.Publish(routing_key=QUEUE))
    client.say((publish + amqp.content(1, b"x" * 100, persistent=True)) * MANY)
    return client


def came(gateway: Gateway) -> float:
    """How many messages the gateway has read: what its kernel still has when it stops is not in flight yet."""
    return gateway.messages_by_fate("amqp", f"%2F/amq.default/{QUEUE}")["received"]


def acked(client: RawClient) -> int:
    return max([int(frame.value.delivery_tag) for frame in client.told if frame.name == "Basic.Ack"], default=0)


def leave(client: RawClient) -> None:
    """Be told, and close at once, as libraries do."""
    client.wait_for("Connection.Close")
    client.socket.close()


def stopped(log: str) -> dict[str, object]:
    (line,) = [found for found in map(json.loads, log.splitlines()) if found["event"] == "stopped"]
    return dict(line)


def check_nothing_is_lost(log: str, stored: Results) -> None:
    """All that waited is stored, but for what the gateway says it gave up: that only at its deadline, which a busy machine may reach."""
    line = stopped(log)
    lost = sum(int(str(line.get(name, 0))) for name in ("abandoned", "unsent"))
    wait_until(lambda: stored() + lost >= MANY, within=30, what=f"all to be stored: {line}")
    assert lost == 0 or int(str(line["after_ms"])) >= 1000 * DRAIN_S, line


@pytest.mark.parametrize("confirms", [False, True], ids=["without confirms", "confirms"])
def test_a_stop_loses_nothing_that_waits(rabbitmq: RabbitMQ, start_gateway: StartGateway, stored: Results, confirms: bool) -> None:
    """Clients close as soon as they are told: then the gateway's FIN went to the broker right behind its close."""
    gateway = start_gateway([amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], limited("50/s"), drain={"timeout": f"{DRAIN_S}s"})
    client = publishing(gateway, confirms=confirms)
    wait_until(lambda: stored() > 50 and came(gateway) == MANY, within=60, what="all to come, and the first to be stored")
    gateway.process.popen.send_signal(signal.SIGTERM)
    leave(client)
    assert gateway.process.popen.wait(HANG_S) == 0
    check_nothing_is_lost(gateway.log(), stored)
    assert acked(client) == (stored() if confirms else 0)


def replace_by_signal(gateway: Gateway) -> str:
    """SIGUSR2, then SIGTERM for the process that it has started; the log of the one before."""
    first = gateway.process
    first.popen.send_signal(signal.SIGUSR2)
    assert first.popen.wait(120) == 0
    log = first.output()
    (next_one,) = [line["pid"] for line in map(json.loads, log.splitlines()) if line["event"] == "taken_over"]
    os.kill(next_one, signal.SIGTERM)
    wait_until(lambda: first.output().count('"event": "stopped"') == 2, within=60, what="the next process to end")
    return log


@pytest.mark.parametrize("replace", [Gateway.replace, replace_by_signal], ids=["by hand", "SIGUSR2"])
def test_a_takeover_loses_nothing_that_waits(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, stored: Results, replace: Callable[[Gateway], str]
) -> None:
    settings = {
        "gateway": {"name": "end-to-end", "state_directory": "state", "takeover": "takeover.sock"},
        "drain": {"timeout": f"{DRAIN_S}s"},
    }
    gateway = start_gateway([amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], limited("50/s"), **settings)
    client = publishing(gateway)
    wait_until(lambda: stored() > 50 and came(gateway) == MANY, within=60, what="all to come, and the first to be stored")
    leaving = threading.Thread(target=leave, args=[client])
    leaving.start()
    log = replace(gateway)
    leaving.join()
    check_nothing_is_lost(log, stored)


def test_clients_that_end_behind_their_last_publish_lose_none(rabbitmq: RabbitMQ, start_gateway: StartGateway, stored: Results) -> None:
    """As `os._exit(0)`: nothing is said; one by a FIN, one by a reset."""
    gateway = start_gateway([amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], limited("5000/s"))
    clients = [publishing(gateway) for _ in range(3)]
    clients[0].socket.close()
    clients[1].socket.shutdown(socket.SHUT_WR)
    clients[2].reset()
    wait_until(lambda: gateway.get("/v1/status")["connections"] == 0, within=30, what="the connections to end")
    read = gateway.messages_by_fate("amqp", f"%2F/amq.default/{QUEUE}")
    assert read["received"] == read["forwarded"]
    wait_until(lambda: stored() == read["received"], within=30, what="the queue to have what its broker has taken")
    assert read["received"] >= 2 * MANY, "a reset may throw away what was not read yet"
    clients[1].socket.close()
