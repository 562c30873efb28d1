"""Clients that end at random moments, with a consumer, confirms, plain publishes and transactions on one connection, against a ledger.

What the broker has in the end must be what it would have had of the same client directly, but for the limit: of each channel's publishes a
beginning, in order, nothing twice; all of them where the client's last bytes are sure to arrive; nothing of a transaction without its
commit; all that was confirmed; and of the jobs just those that were not acknowledged. `SLUICE_ENDS` says how many ends: `make chaos` has
200.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pika
import pytest
from pamqp import commands

from support.amqp import frames as amqp
from support.brokers.rabbitmq import RabbitMQ
from support.clients.raw_amqp import CLOSE, RawClient, opening
from support.gateways import Gateway, amqp_listener
from support.processes import LOOPBACK, wait_until

pytestmark = pytest.mark.rabbitmq

ENDS = int(os.environ.get("SLUICE_ENDS", "16"))
AT_ONCE = 8  # clients
JOBS = 40
STEPS = 80  # of a client, at most
PLAIN, CONFIRMS, TRANSACTIONS = 1, 2, 3  # channels; jobs are consumed on the first
SURE = ("FIN, everything read", "half-close", "connection.close")  # ends behind which all that was sent arrives
UNSURE = ("FIN", "RST", "connection.close and gone", "within a frame")


@pytest.fixture(scope="module")
def gateway(rabbitmq: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    rules: list[dict[str, object]] = [
        {
            "name": action,
            "match": {"protocol": "amqp", "routing_key": f"{action}.*"},
            "limit": {"messages": "100/s"},
            "action": action,
        }
        for action in ("spool", "delay", "block", "reject")
    ]
    with Gateway(tmp_path_factory.mktemp("random"), [amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], rules) as running:
        yield running


class Actor:
    """One client, with what it has said."""

    def __init__(self, number: int, dice: random.Random, channel: pika.adapters.blocking_connection.BlockingChannel, port: int) -> None:
        self.dice = dice
        self.end = dice.choice(SURE + UNSURE)
        self.action = dice.choice(("spool", "delay", "block", "reject"))
        self.name = f"{self.action}.{number}"
        self.jobs = f"jobs-{self.name}"
        self.sent: dict[int, list[str]] = {PLAIN: [], CONFIRMS: [], TRANSACTIONS: []}
        self.commits = self.committed = 0
        self.acknowledged: list[int] = []  # jobs, in the order in which they came
        self.direct = channel
        for queue in (self.jobs, *self.queues()):
            channel.queue_declare(queue, durable=True)
        for job in range(JOBS):
            channel.basic_publish("", self.jobs, b"", pika.BasicProperties(message_id=str(job)))
        self.client = RawClient(port)
        self.client.socket.settimeout(60)
        select = amqp.method(CONFIRMS, commands.Confirm.Select()) + amqp.method(TRANSACTIONS, commands.Tx.Select())
        prefetch = amqp.method(PLAIN, commands.Basic.Qos(prefetch_count=dice.choice((0, 1, 10))))
        self.client.say(opening(PLAIN, CONFIRMS, TRANSACTIONS) + select + prefetch)
        self.client.say(amqp.method(PLAIN, commands.Basic.Consume(queue=self.jobs, exclusive=dice.random() < 0.5)))
        self._until("Basic.ConsumeOk")

    def queues(self) -> list[str]:
        """Where it publishes to, by channel: with a limit."""
        return [f"{self.name}-{channel}" for channel in self.sent]

    def _until(self, name: str) -> None:
        while not self.client.count(name):
            assert self.client.read(), [frame.name for frame in self.client.told]

    def look(self, seconds: float) -> None:
        """Read what comes within so long."""
        if self.client.ended or self.client.socket.fileno() < 0:
            return
        self.client.socket.settimeout(seconds)
        with suppress(TimeoutError, BlockingIOError):
            while self.client.read():
                pass
        self.client.socket.settimeout(60)

    def act(self) -> None:
        """Say something at random, again and again, then end at random."""
        for _ in range(self.dice.randrange(STEPS)):
            channel = self.dice.choice(list(self.sent))
            committing = self.commits > self.client.count("Tx.CommitOk")  # then RabbitMQ takes nothing on that channel
            match self.dice.choice(("publish", "publish", "publish", "settle", "commit", "look")):
                case "publish" | "commit" if committing and channel == TRANSACTIONS:
                    self.look(0.01)
                case "publish":
                    self._publish(channel)
                case "settle":
                    self._acknowledge()
                case "commit" if not committing:
                    self.commits += 1
                    self.client.say(amqp.method(TRANSACTIONS, commands.Tx.Commit()))
                    self.committed = len(self.sent[TRANSACTIONS])
                case "look":
                    self.look(self.dice.choice((0.0001, 0.01)))
        self._end()

    def _publish(self, channel: int) -> None:
        body = b"x" * self.dice.choice((0, 10, 3_000, 9_000))
        messages = b""
        for _ in range(self.dice.randrange(1, 6)):
            identity = str(len(self.sent[channel]))
            messages += amqp.publish(channel, f"{self.name}-{channel}", body, message_id=identity)
            self.sent[channel].append(identity)
        self.client.say(messages)

    def _acknowledge(self) -> None:
        tags = [int(frame.value.delivery_tag) for frame in self.client.told if frame.name == "Basic.Deliver"]
        new = tags[len(self.acknowledged) :]
        if new:
            last = new[self.dice.randrange(len(new))]
            self.acknowledged += [tag for tag in new if tag <= last]
            self.client.say(amqp.method(PLAIN, commands.Basic.Ack(last, multiple=True)))

    def _end(self) -> None:
        client = self.client
        if self.end == "FIN, everything read":
            client.socket.shutdown(socket.SHUT_WR)
            self.look(0.01)
            return
        if self.end == "half-close":
            client.socket.shutdown(socket.SHUT_WR)
        elif self.end == "connection.close":
            client.say(CLOSE)
        elif self.end == "FIN":
            client.socket.close()
        elif self.end == "RST":
            client.reset()
        elif self.end == "within a frame":
            client.say(amqp.publish(PLAIN, f"{self.name}-{PLAIN}", b"y" * 9_000, message_id="half")[:-100])
            client.socket.close()
        else:
            client.say(CLOSE)
            client.socket.close()

    # ---- the other side ----------------------------------------------------------------------------------------------

    def take(self, queue: str) -> list[str]:
        found = []
        while (got := self.direct.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(str(got[1].message_id))
        return found

    def wrong(self) -> list[str]:
        """What the ledgers do not agree about."""
        if self.end in SURE:
            self.look(0.01)
        stored = {channel: self.take(f"{self.name}-{channel}") for channel in self.sent}
        acked, nacked = confirmed(self.client)
        faults = []
        for channel, sent in self.sent.items():
            expected = sent[: self.committed] if channel == TRANSACTIONS else sent
            if channel == CONFIRMS and self.action in ("reject", "delay"):  # some are refused, and the client told so
                if stored[channel] != [identity for identity in expected if identity in set(stored[channel])]:
                    faults.append(f"confirms out of order: {stored[channel]}")
            elif stored[channel] != expected[: len(stored[channel])]:
                faults.append(f"channel {channel}: {stored[channel]} is no beginning of {expected}")
            elif self.end in SURE and len(stored[channel]) != len(expected):
                faults.append(f"channel {channel}: {len(stored[channel])} of {len(expected)} stored")
        lost = [tag for tag in acked if str(tag - 1) not in stored[CONFIRMS]]
        refused = [tag for tag in nacked if str(tag - 1) in stored[CONFIRMS]]
        jobs = [int(job) for job in self.take(self.jobs)]
        left = list(range(len(self.acknowledged), JOBS))
        if jobs != left and (self.end in SURE or jobs != list(range(JOBS - len(jobs), JOBS)) or len(jobs) < len(left)):
            faults.append(f"jobs {jobs} are left, acknowledged were {len(self.acknowledged)}")
        return faults + [f"confirmed and not stored: {lost}"] * bool(lost) + [f"refused and stored: {refused}"] * bool(refused)

    def close(self) -> None:
        self.client.socket.close()
        for queue in (self.jobs, *self.queues()):
            self.direct.queue_delete(queue)


def confirmed(client: RawClient) -> tuple[set[int], set[int]]:
    """The tags that were acked and nacked."""
    answers: dict[int, bool] = {}
    low = 0
    for frame in client.told:
        if frame.channel == CONFIRMS and frame.name in ("Basic.Ack", "Basic.Nack"):
            tag, acked = int(frame.value.delivery_tag), frame.name == "Basic.Ack"
            for each in range(low + 1, tag + 1) if frame.value.multiple else (tag,):
                answers.setdefault(each, acked)
            while low + 1 in answers:
                low += 1
    return {tag for tag, acked in answers.items() if acked}, {tag for tag, acked in answers.items() if not acked}


def over(actors: list[Actor], connection: pika.BlockingConnection, gateway: Gateway) -> bool:
    """Whether all has gone on. Clients that live read, and close when they are told."""
    connection.process_data_events(0)
    for actor in actors:
        if actor.end in SURE:
            actor.look(0.0001)
            if actor.client.count("Connection.CloseOk"):
                actor.client.socket.close()
    return bool(gateway.get("/v1/status")["connections"] == 0)


def test_clients_that_end_at_random_moments_leave_what_they_had_said(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    seed = int(os.environ.get("SLUICE_SEED", str(random.randrange(1 << 32))))
    dice = random.Random(seed)
    faults: list[str] = []
    with pika.BlockingConnection(pika.URLParameters(rabbitmq.url)) as connection:
        channel = connection.channel()
        for first in range(0, ENDS, AT_ONCE):
            actors = [Actor(first + number, dice, channel, gateway.port("rabbit")) for number in range(min(AT_ONCE, ENDS - first))]
            for actor in actors:
                actor.act()
            wait_until(partial(over, actors, connection, gateway), within=60, what="what waits to go on")
            for actor in actors:
                faults += [f"{actor.name}, {actor.end}: {fault}" for fault in actor.wrong()]
                actor.close()
    assert not faults, f"SLUICE_SEED={seed}\n" + "\n".join(faults)
