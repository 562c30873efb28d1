"""Clients that end at random moments, and gateways and brokers that are killed beneath them, against a ledger on both sides.

What must be so is in `support/clients/actor.py`. `SLUICE_ENDS` and `SLUICE_KILLS` say how many: `make chaos` has 200 ends, and 100 kills
each of the gateway and of the broker. `SLUICE_SEED` repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from support.brokers.rabbitmq import RabbitMQ
from support.clients.actor import BROKER_KILLED, GATEWAY_KILLED, RULES, SURE, Actor
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import HANG_S, LOOPBACK, wait_until

pytestmark = pytest.mark.rabbitmq

ENDS = int(os.environ.get("SLUICE_ENDS", "16"))
KILLS = int(os.environ.get("SLUICE_KILLS", "2"))
SEED = int(os.environ.get("SLUICE_SEED", str(random.randrange(1 << 32))))
AT_ONCE = 8  # clients
KILLED_AT_ONCE = 3  # of a gateway or broker


@pytest.fixture(scope="module")
def gateway(rabbitmq: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("random"), [amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], RULES) as running:
        yield running


def over(actors: list[Actor], connection: pika.BlockingConnection, gateway: Gateway) -> bool:
    """Whether all has gone on. Clients that live read, and close when they are told."""
    connection.process_data_events(0)
    for actor in actors:
        if actor.end in SURE:
            actor.look(0.0001)
            if actor.client.count("Connection.CloseOk"):
                actor.client.socket.close()
    return bool(gateway.get("/v1/status")["connections"] == 0)


def dice() -> random.Random:
    return random.Random(SEED)


@contextmanager
def broker_channel(broker: RabbitMQ) -> Iterator[BlockingChannel]:
    """A channel with confirms, of the broker's own."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def found(actors: list[Actor]) -> list[str]:
    """What is wrong of them, whose queues are deleted."""
    faults = []
    for actor in actors:
        faults += [f"{actor.name}, {actor.end}: {fault}" for fault in actor.wrong()]
        actor.close()
    return faults


def all_gone(actors: list[Actor]) -> bool:
    return all(actor.gone() for actor in actors)


def act_until(actors: list[Actor], kill: Callable[[], None], seconds: float) -> None:
    """Let them act side by side, and kill something beneath them after so long; each reads its connection to the end."""
    acting = [threading.Thread(target=actor.act, name=actor.name) for actor in actors]
    for each in acting:
        each.start()
    time.sleep(seconds)  # any moment will do: nothing is waited for
    kill()
    for each in acting:
        each.join(HANG_S)
        assert not each.is_alive(), f"{each.name} is not told that its connection has ended"


def test_clients_that_end_at_random_moments_leave_what_they_had_said(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    thrown = dice()
    faults: list[str] = []
    with broker_channel(rabbitmq) as channel:
        for first in range(0, ENDS, AT_ONCE):
            actors = [Actor(first + number, thrown, channel, gateway.port("rabbit")) for number in range(min(AT_ONCE, ENDS - first))]
            for actor in actors:
                actor.act()
            wait_until(partial(over, actors, channel.connection, gateway), within=60, what="what waits to go on")
            wait_until(partial(all_gone, actors), within=10, what="consumers and exclusive queues to go")
            faults += found(actors)
    assert not faults, f"SLUICE_SEED={SEED}\n" + "\n".join(faults)


def test_a_gateway_killed_at_random_moments_claims_nothing_and_leaves_nothing_behind(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    thrown = dice()
    faults: list[str] = []
    with broker_channel(rabbitmq) as channel:
        for kill in range(KILLS):
            actors = [
                Actor(KILLED_AT_ONCE * kill + each, thrown, channel, gateway.port("rabbit"), GATEWAY_KILLED)
                for each in range(KILLED_AT_ONCE)
            ]
            act_until(actors, gateway.kill, thrown.uniform(0, 0.5))
            gateway.start()
            assert gateway.get("/v1/spool")["spool"]["used_bytes"] == 0
            wait_until(partial(all_gone, actors), within=10, what="consumers and exclusive queues to go")
            faults += found(actors)
    assert not faults, f"SLUICE_SEED={SEED}\n" + "\n".join(faults)


def test_a_broker_killed_at_random_moments_has_all_that_the_gateway_has_confirmed(tmp_path: Path, start_gateway: StartGateway) -> None:
    thrown = dice()
    faults: list[str] = []
    with RabbitMQ(tmp_path / "mortal") as mortal:
        gateway: Gateway = start_gateway([amqp_listener(f"{LOOPBACK}:{mortal.port}")], RULES)
        for kill in range(KILLS):
            wait_until(lambda: gateway.answers("/readyz"), within=60, what="the gateway to be ready")
            with broker_channel(mortal) as channel:
                actors = [
                    Actor(KILLED_AT_ONCE * kill + each, thrown, channel, gateway.port("rabbit"), BROKER_KILLED)
                    for each in range(KILLED_AT_ONCE)
                ]
            mortal.control("eval", "mnesia:sync_log().")  # else the queues themselves may be what a killed broker has forgotten
            act_until(actors, mortal.kill, thrown.uniform(0, 0.5))
            wait_until(lambda: gateway.get("/v1/status")["connections"] == 0, within=10, what="the sessions to end")
            assert gateway.get("/v1/spool")["spool"]["used_bytes"] == 0
            mortal.start_node()
            with broker_channel(mortal) as channel:
                for actor in actors:
                    actor.direct = channel
                faults += [f"{actor.name} is not gone" for actor in actors if not actor.gone()]
                faults += found(actors)
    assert not faults, f"SLUICE_SEED={SEED}\n" + "\n".join(faults)
