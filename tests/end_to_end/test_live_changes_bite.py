"""Live changes of everything that can have one, made by the command line, against traffic, with two workers.

With one process: `make test-long`. The one that is meant is refused or held, another one of its kind is not, and once the change is taken
back nobody is.

The limit is 0/s, so that no test depends on how fast anything is.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import pika
import pika.exceptions
import pytest

from support.brokers.stand_ins import rabbitmq, rocketmq
from support.gateways import Gateway, amqp_listener
from support.processes import HANG_S, LOOPBACK, wait_until
from support.rocketmq.frames import read_response, send
from support.rocketmq.stored_messages import pull
from support.wires.receiving import receive_frame

RULES: list[dict[str, object]] = [{"name": "topics", "match": {}, "per": "topic", "limit": {"messages": "1000000/s"}}]
MAX_CONNECTIONS = 80  # the kernel spreads them over the workers; that all of so many went to one is as good as impossible
PATIENCE_S = HANG_S


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.long), 2], ids=["one process", "two workers"])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with ExitStack() as running:
        rabbit, rocket = running.enter_context(rabbitmq(delivers=True)), running.enter_context(rocketmq(delivers=True))
        listeners: list[dict[str, object]] = [
            amqp_listener(rabbit.address),
            {**amqp_listener(rabbit.address), "name": "other-rabbit"},
            {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": rocket.address},
        ]
        settings = {"gateway": {"name": "end-to-end", "state_directory": "state", "workers": request.param}}
        made = Gateway(tmp_path_factory.mktemp("bite"), listeners, RULES, settings)
        yield running.enter_context(made)


# ---- who sends ---------------------------------------------------------------------------------------------------------

Send = Callable[[], bool]  # one message; whether it was taken


@dataclass(frozen=True)
class Amqp:
    """A publisher with confirms."""

    listener: str = "rabbit"
    user: str = "guest"
    vhost: str = "%2F"
    exchange: str = "orders"

    def connect(self, gateway: Gateway, running: ExitStack) -> Send:
        parameters = pika.URLParameters(f"amqp://{self.user}:secret@{LOOPBACK}:{gateway.port(self.listener)}/{self.vhost}?heartbeat=0")
        connection = pika.BlockingConnection(parameters)
        running.callback(quietly, connection.close)
        channel = connection.channel()
        channel.confirm_delivery()

        def publish() -> bool:
            try:
                channel.basic_publish(self.exchange, "created", b"x")
            except pika.exceptions.NackError:
                return False
            return True

        return publish


@dataclass(frozen=True)
class RocketMQ:
    """A producer, at an address of this host's."""

    address: str = LOOPBACK
    topic: str = "orders"
    group: str = "producers"

    def connect(self, gateway: Gateway, running: ExitStack) -> Send:
        talk = running.enter_context(Talk(gateway, self.address))

        def produce() -> bool:
            return talk.ask(send(self.topic, group=self.group)) == 0

        assert produce(), "a connection is listed once it has said something"
        return produce


class Talk:
    """A remoting connection: a request, its answer's code."""

    def __init__(self, gateway: Gateway, address: str = LOOPBACK) -> None:
        self._socket = socket.create_connection((LOOPBACK, gateway.port("rocket")), PATIENCE_S, (address, 0))

    def ask(self, request: bytes) -> object:
        self.say(request)
        return self.hear()

    def say(self, request: bytes) -> None:
        self._socket.sendall(request)

    def hear(self) -> object:
        return read_response(receive_frame(self._socket))["code"]

    def heard(self) -> bool:
        """Whether anything has come that was not read yet."""
        with suppress(BlockingIOError):
            return bool(self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        return False

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def quietly(close: Callable[[], object]) -> None:
    with suppress(pika.exceptions.AMQPError):
        close()


@contextmanager
def senders(gateway: Gateway, who: Amqp | RocketMQ) -> Iterator[list[Send]]:
    """Connections of the same sender: one on each worker, and as many more as that takes."""
    with ExitStack() as running:
        found: list[Send] = []
        before = connections(gateway)
        workers = {each["worker"] for each in gateway.get("/v1/status").get("workers") or [{"worker": None}]}

        def new() -> dict[int, int | None]:
            return {number: its for number, its in connections(gateway).items() if number not in before}

        while not found or set(new().values()) < workers:
            assert len(found) < MAX_CONNECTIONS, "all connections go to one worker"
            found.append(who.connect(gateway, running))
            wait_until(lambda: len(new()) == len(found), within=PATIENCE_S, what="the connection is listed")
        yield found


def connections(gateway: Gateway) -> dict[int, int | None]:
    """Numbers of connections, and the worker of each; None where there is one process."""
    return {each["id"]: each.get("worker") for each in gateway.get("/v1/connections?limit=500")["items"]}


def passed(each: list[Send]) -> list[bool]:
    """A message of each, and whether it was taken."""
    return [one() for one in each]


def all_pass(each: list[Send]) -> bool:
    return all(passed(each))


# ---- what is published -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A key, who is meant by it, and who is not."""

    words: tuple[str, ...]
    meant: Amqp | RocketMQ
    other: Amqp | RocketMQ


KINDS = [
    Kind(("client", "127.0.0.2"), RocketMQ("127.0.0.2"), RocketMQ("127.0.0.3")),
    Kind(("user", "shop"), Amqp(user="shop"), Amqp(user="guest")),
    Kind(("group", "billing", "--operation", "produce"), RocketMQ(group="billing"), RocketMQ(group="producers")),
    Kind(("listener", "other-rabbit"), Amqp(listener="other-rabbit"), Amqp()),
    Kind(("vhost", "shop"), Amqp(vhost="shop"), Amqp()),
    Kind(("exchange", "/", "mails"), Amqp(exchange="mails"), Amqp()),
    Kind(("namespace", "team-a"), RocketMQ(topic="team-a%orders"), RocketMQ(topic="team-b%orders")),
    Kind(("rocketmq", "mails"), RocketMQ(topic="mails"), RocketMQ()),
    Kind(("amqp", "/", "bills", "created"), Amqp(exchange="bills"), Amqp()),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.words[0])
def test_the_one_that_is_meant_is_refused_and_no_other(gateway: Gateway, kind: Kind) -> None:
    with senders(gateway, kind.meant) as meant, senders(gateway, kind.other) as others:
        assert all_pass(meant)
        assert all_pass(others)
        gateway.cli("limits", "set", *kind.words, "--messages", "0/s", "--reason", "incident 12")
        try:
            assert not any(passed(meant))
            assert all_pass(others)
        finally:
            gateway.cli("limits", "unset", *kind.words)
        wait_until(lambda: all_pass(meant), within=PATIENCE_S, what=f"{kind.words} may send again")
        assert all_pass(others)


# ---- what consumers get ------------------------------------------------------------------------------------------------


class Consumer:
    """A consumer of one queue, which acknowledges what it gets."""

    def __init__(self, gateway: Gateway, queue: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(f"{gateway.amqp_url()}?heartbeat=0"))
        self.got = 0

        def take(channel: pika.adapters.blocking_connection.BlockingChannel, method: pika.spec.Basic.Deliver, *_: object) -> None:
            self.got += 1
            if self.got <= 3:  # the stand-in sends another one after each
                channel.basic_ack(method.delivery_tag)

        self._connection.channel().basic_consume(queue, take)

    def gets(self, number: int) -> bool:
        self._connection.process_data_events(0)
        return self.got >= number

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        quietly(self._connection.close)


def held(gateway: Gateway, thing: str) -> bool:
    """Whether the limit of a consumer's key has something to wait for it."""
    shown = json.dumps(gateway.get(f"/v1/limits?q={thing}&limit=500")["items"])
    levels = [item["level"] for item in json.loads(shown) if item.get("operation") == "consume" and item["level"]["origin"] == "override"]
    return any((level.get("usage") or {}).get("held") or (level.get("usage") or {}).get("refused") for level in levels)


def any_waits(gateway: Gateway) -> bool:
    """Whether a connection waits for a limit."""
    return any(each["bottleneck"] == "limit" for each in gateway.get("/v1/connections?limit=500")["items"])


def test_the_queue_that_is_meant_is_held_and_no_other(gateway: Gateway) -> None:
    gateway.cli("limits", "set", "queue", "/", "jobs", "--operation", "consume", "--messages", "0/s")
    with ExitStack() as running:
        running.callback(gateway.cli, "limits", "unset", "queue", "/", "jobs", check=False)
        meant, other = running.enter_context(Consumer(gateway, "jobs")), running.enter_context(Consumer(gateway, "mails"))
        wait_until(lambda: any_waits(gateway), within=PATIENCE_S, what="the consumer is not at the broker")
        wait_until(lambda: other.gets(3), within=PATIENCE_S, what="the other queue's consumer gets its messages")
        assert not meant.gets(1)
        gateway.cli("limits", "unset", "queue", "/", "jobs")
        wait_until(lambda: meant.gets(3), within=PATIENCE_S, what="the consumer gets what was held, and more")


def test_the_consumer_group_that_is_meant_is_held_and_no_other(gateway: Gateway) -> None:
    gateway.cli("limits", "set", "group", "readers-a", "--messages", "0/s")
    with Talk(gateway) as meant, Talk(gateway) as other, ExitStack() as running:
        running.callback(gateway.cli, "limits", "unset", "group", "readers-a", check=False)
        meant.say(pull(group="readers-a"))
        wait_until(lambda: held(gateway, "readers-a"), within=PATIENCE_S, what="a pull waits for the limit")
        assert [other.ask(pull(group="readers-b")) for _ in range(5)] == [0] * 5
        assert not meant.heard() or meant.hear() != 0
        gateway.cli("limits", "unset", "group", "readers-a")
        wait_until(lambda: meant.ask(pull(group="readers-a")) == 0, within=PATIENCE_S, what="the group gets messages again")
