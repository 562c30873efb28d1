"""Clients that end while their publishes wait for a limit, before a real RabbitMQ: they stop consuming at once, and what waits goes on.

One broker and one gateway for all. Nothing of what waits passes before a test raises the limit: whatever is free by then was free at once.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing

import pika
import pika.exceptions
import pytest
from pamqp import commands

from support.amqp import frames as amqp
from support.brokers.queues import connect
from support.brokers.rabbitmq import RabbitMQ
from support.clients.raw_amqp import CLOSE, RawClient, opening
from support.gateways import Gateway, amqp_listener, limit_path
from support.processes import HANG_S, LOOPBACK

pytestmark = pytest.mark.rabbitmq

MANY = 60  # messages
ACTIONS = ("spool", "delay", "block", "reject")
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def gateway(rabbitmq: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    rules: list[dict[str, object]] = [
        {
            "name": action,
            "match": {"protocol": "amqp", "routing_key": f"{action}.*"},
            "limit": {"messages": "0/s"},
            "action": action,
        }
        for action in ACTIONS
    ]
    directory = tmp_path_factory.mktemp("gone")
    settings = {"drain": {"timeout": "3s"}}
    with Gateway(directory, [amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], rules, settings) as running:
        yield running


@pytest.fixture(scope="module")
def direct(rabbitmq: RabbitMQ) -> Iterator[pika.BlockingConnection]:
    with closing(connect(rabbitmq.url)) as connection:
        yield connection


class Names:
    """The queues of one test: `jobs` to consume from, `results` that a rule limits. Deleted at its end."""

    def __init__(self, direct: pika.BlockingConnection, action: str, jobs: dict[str, object] | None = None) -> None:
        number = next(NUMBERS)
        self.direct = direct
        self.jobs, self.results = f"jobs-{number}", f"{action}.{number}"
        self.channel = direct.channel()
        self.channel.queue_declare(self.jobs, durable=True, arguments=jobs)
        self.channel.queue_declare(self.results, durable=True)

    def put(self, count: int) -> None:
        for number in range(count):
            self.channel.basic_publish("", self.jobs, b"job", pika.BasicProperties(message_id=str(number)))

    def ready(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)

    def release(self, gateway: Gateway) -> None:
        """Let the results pass."""
        gateway.put(limit_path("amqp", "/", "amq.default", self.results), {"messages": "10000/s", "reason": "test"})

    def take(self, queue: str) -> list[str]:
        """The ids of all that is ready in `queue`, taken out."""
        found = []
        while (got := self.channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(str(got[1].message_id))
        return found

    def close(self) -> None:
        self.channel.queue_delete(self.jobs)
        self.channel.queue_delete(self.results)
        self.channel.close()


@pytest.fixture
def names(direct: pika.BlockingConnection) -> Iterator[Callable[..., Names]]:
    made: list[Names] = []

    def make(action: str, jobs: dict[str, object] | None = None) -> Names:
        made.append(Names(direct, action, jobs))
        return made[-1]

    yield make
    for one in made:
        one.close()


MakeNames = Callable[..., Names]


class Worker(RawClient):
    """A service with one connection: it consumes jobs and publishes results."""

    def __init__(self, gateway: Gateway, *channels: int, response: str = "\0guest\0guest") -> None:
        super().__init__(gateway.port("rabbit"))
        self.port = self.socket.getsockname()[1]
        self.say(opening(*(channels or (1,)), response=response))
        self.wait_for("Channel.OpenOk", len(channels or (1,)))

    def call(self, command: object, answer: str, channel: int = 1) -> None:
        before = self.count(answer)
        self.say(amqp.method(channel, command))  # type: ignore[arg-type]
        self.wait_for(answer, before + 1)

    def consume(self, queue: str, *, channel: int = 1, no_ack: bool = True, exclusive: bool = False, prefetch: int = 0) -> None:
        if prefetch:
            self.call(commands.Basic.Qos(prefetch_count=prefetch), "Basic.QosOk", channel)
        self.call(commands.Basic.Consume(queue=queue, no_ack=no_ack, exclusive=exclusive), "Basic.ConsumeOk", channel)

    def publish(self, key: str, count: int, channel: int = 1) -> None:
        self.say(b"".join(amqp.publish(channel, key, b"result", message_id=str(number)) for number in range(count)))

    def tags(self) -> list[int]:
        return [int(frame.value.delivery_tag) for frame in self.told if frame.name == "Basic.Deliver"]

    def acknowledge(self, *tags: int, channel: int = 1) -> None:
        self.say(b"".join(amqp.method(channel, commands.Basic.Ack(tag)) for tag in tags))


def die(client: RawClient) -> None:
    """As a killed process: FIN, or RST where something was not read."""
    client.socket.close()


def reset(client: RawClient) -> None:
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()


def half_close(client: RawClient) -> None:
    client.socket.shutdown(socket.SHUT_WR)


def say_close(client: RawClient) -> None:
    client.say(CLOSE)


def say_both_closes(client: RawClient) -> None:
    """As pika's connection.close() does: first its channel, then itself."""
    client.socket.sendall(amqp.method(1, commands.Channel.Close(200, "", 0, 0)))
    say_close(client)


def close_and_die(client: RawClient) -> None:
    client.say(CLOSE)
    client.socket.close()


End = Callable[[RawClient], None]
ENDS: tuple[End, ...] = (die, reset, half_close, say_close, say_both_closes, close_and_die)


Condition = Callable[[], bool]
Scenario = Generator[Condition, None, None]


def together(scenarios: Mapping[str, Scenario]) -> None:
    """Run all at once: each yields what it waits for. All that fails is told by name."""
    waiting = {name: (scenario, next(scenario), 1) for name, scenario in scenarios.items()}
    failed: list[str] = []
    deadline = time.monotonic() + HANG_S
    while waiting:
        for name, (scenario, condition, step) in list(waiting.items()):
            try:
                if condition():
                    waiting[name] = (scenario, next(scenario), step + 1)
                elif time.monotonic() > deadline:
                    raise TimeoutError(f"wait {step}")
            except StopIteration:
                del waiting[name]
            except Exception as error:
                failed.append(f"{name}: {type(error).__name__} {error}")
                del waiting[name]
        time.sleep(0.02)
    assert not failed, "\n".join(failed)


def waits(gateway: Gateway, worker: Worker, count: int = MANY) -> Condition:
    """So much of what the client has sent waits in the gateway."""

    def held() -> bool:
        address = f"{LOOPBACK}:{worker.port}"
        return any(
            each["client"] == address and each["held_messages"] >= count for each in gateway.get("/v1/connections?limit=200")["items"]
        )

    return held


def takes_over(names: Names) -> Condition:
    """A successor gets the exclusive consumer."""

    def consumes() -> bool:
        channel = names.direct.channel()
        try:
            channel.basic_consume(names.jobs, lambda *_: None, exclusive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        channel.close()
        return True

    return consumes


def stored(names: Names, count: int = MANY) -> Condition:
    return lambda: names.ready(names.results) >= count


def ends_with_a_consumer(gateway: Gateway, names: Names, end: End) -> Scenario:
    worker = Worker(gateway)
    worker.consume(names.jobs, exclusive=True)
    worker.publish(names.results, MANY)
    yield waits(gateway, worker, 1)
    end(worker)
    yield takes_over(names)
    assert names.ready(names.results) == 0, "the results still wait"
    names.put(20)
    names.release(gateway)
    yield stored(names)
    assert names.take(names.jobs) == [str(number) for number in range(20)], "none went to the dead client"
    worker.socket.close()


def test_a_client_that_ends_consumes_no_more_and_its_publishes_go_on(gateway: Gateway, names: MakeNames) -> None:
    cases = [(action, end) for action in ACTIONS for end in ENDS]
    for end in (say_close, say_both_closes):
        cases.remove(("block", end))  # what it says is not read while it is blocked
    together({f"{action}, {end.__name__}": ends_with_a_consumer(gateway, names(action), end) for action, end in cases})


def ends_with_unacknowledged(gateway: Gateway, names: Names, end: End) -> Scenario:
    """Jobs 0 and 1 are acknowledged before the results, 3 behind them, where the acknowledgement waits with them; the others are not."""
    names.put(8)
    worker = Worker(gateway)
    worker.consume(names.jobs, no_ack=False, prefetch=6)
    worker.wait_for("Basic.Deliver", 6)
    worker.acknowledge(1, 2)
    worker.publish(names.results, MANY)
    worker.acknowledge(4)
    worker.publish(names.results, 1)
    yield waits(gateway, worker, MANY + 1)
    end(worker)
    found: list[str] = []

    def given_back() -> bool:
        found.extend(names.take(names.jobs))
        return len(found) >= 5

    yield given_back
    assert names.ready(names.results) == 0, "the results still wait"
    assert found == ["2", "4", "5", "6", "7"]
    names.release(gateway)
    yield stored(names, MANY + 1)
    assert names.take(names.jobs) == [], "the one that was acknowledged behind the results is done"
    worker.socket.close()


def test_what_a_client_has_not_acknowledged_is_given_back_in_order(gateway: Gateway, names: MakeNames) -> None:
    together({end.__name__: ends_with_unacknowledged(gateway, names("delay"), end) for end in ENDS})


def declared(names: Names, queue: str) -> bool:
    channel = names.direct.channel()
    try:
        channel.queue_declare(queue, passive=True)
    except pika.exceptions.ChannelClosedByBroker as error:
        return bool(error.reply_code != 404)
    channel.close()
    return True


def redeclared(names: Names, queue: str) -> bool:
    """Whether another may declare it now: one that deletes itself is declared once more by the gateway, to see whose it is."""
    channel = names.direct.channel()
    try:
        channel.queue_declare(queue)
    except pika.exceptions.ChannelClosedByBroker as error:
        if error.reply_code != 405:
            raise
        return False
    channel.close()
    return True


def has_exclusive_queues(gateway: Gateway, names: Names, end: End) -> Scenario:
    """One of its own name, one named by the broker, one that it has deleted and that is another's now. Results wait for the first, too."""
    worker = Worker(gateway, 1, 2)
    own, foreign = f"own-{names.results}", f"foreign-{names.results}"
    worker.call(commands.Queue.Declare(queue=own, exclusive=True, auto_delete=True, arguments={"x-max-length": 5}), "Queue.DeclareOk", 2)
    worker.consume(own, channel=2)
    worker.call(commands.Queue.Declare(queue="", exclusive=True), "Queue.DeclareOk", 2)
    generated = str([frame.value.queue for frame in worker.told if frame.name == "Queue.DeclareOk"][-1])
    worker.call(commands.Queue.Declare(queue=foreign, exclusive=True), "Queue.DeclareOk", 2)
    worker.call(commands.Queue.Delete(queue=foreign), "Queue.DeleteOk", 2)
    names.channel.queue_declare(foreign, durable=True)
    names.channel.basic_publish("", foreign, b"of another")
    worker.publish(names.results, MANY)
    worker.publish(own, 3)
    worker.say(amqp.method(1, commands.Queue.Bind(queue=own, exchange="amq.fanout")))  # which may not cost the channel
    worker.publish(names.results, 1)
    yield waits(gateway, worker, MANY + 4)
    end(worker)
    yield lambda: not declared(names, own) and not declared(names, generated)
    assert names.ready(names.results) == 0, "the results still wait"
    yield lambda: redeclared(names, own)  # by another, which must not get what waits for the one before
    names.release(gateway)
    yield stored(names, MANY + 1)
    assert names.ready(own) == 0
    assert names.ready(foreign) == 1, "nobody else's queue is deleted"
    for queue in (own, foreign):
        names.channel.queue_delete(queue)
    worker.socket.close()


def test_exclusive_queues_go_with_their_client(gateway: Gateway, names: MakeNames) -> None:
    together({end.__name__: has_exclusive_queues(gateway, names("spool"), end) for end in ENDS})


def in_a_transaction(gateway: Gateway, names: Names) -> Scenario:
    """What was committed goes on, and is done as one; what was not is rolled back."""
    names.put(4)
    worker = Worker(gateway)
    worker.call(commands.Tx.Select(), "Tx.SelectOk")
    worker.consume(names.jobs, no_ack=False, prefetch=3)
    worker.wait_for("Basic.Deliver", 3)
    for number, tag in enumerate(worker.tags()[:2]):
        worker.publish(names.results, MANY // 2)
        worker.acknowledge(tag)
        if number == 0:
            worker.say(amqp.method(1, commands.Tx.Commit()))
    yield waits(gateway, worker)
    die(worker)
    found: list[str] = []

    def given_back(count: int) -> Condition:
        def taken() -> bool:
            found.extend(names.take(names.jobs))
            return len(found) >= count

        return taken

    yield given_back(1)
    names.release(gateway)
    yield given_back(3)
    assert sorted(found) == ["1", "2", "3"], "the first is acknowledged"
    assert names.ready(names.results) == MANY // 2


def within_a_message(gateway: Gateway, names: Names) -> Scenario:
    worker = Worker(gateway)
    worker.consume(names.jobs, exclusive=True)
    worker.publish(names.results, MANY)
    worker.say(amqp.publish(1, names.results, b"x" * 20_000)[:-5_000])
    yield waits(gateway, worker)
    die(worker)
    yield takes_over(names)
    assert names.ready(names.results) == 0, "the results still wait"
    names.release(gateway)
    yield stored(names)
    assert names.ready(names.results) == MANY, "and nothing of the half one"


def with_many_unacknowledged(gateway: Gateway, names: Names) -> Scenario:
    names.put(10_000)
    worker = Worker(gateway, 1, 2)
    worker.consume(names.jobs, no_ack=False, channel=2)
    worker.wait_for("Basic.Deliver", 10_000)
    worker.acknowledge(*range(1, 101), channel=2)
    worker.publish(names.results, MANY)
    yield waits(gateway, worker)
    die(worker)
    yield lambda: names.ready(names.jobs) == 9_900
    assert names.ready(names.results) == 0, "the results still wait"
    assert [names.channel.basic_get(names.jobs, auto_ack=True)[1].message_id for _ in range(3)] == ["100", "101", "102"]
    names.release(gateway)
    yield stored(names)


def with_deliveries_on_their_way(gateway: Gateway, names: Names) -> Scenario:
    """It has said that it closes, and reads nothing any more, while the broker still sends."""
    names.put(2_000)
    worker = Worker(gateway)
    worker.say(amqp.method(1, commands.Basic.Consume(queue=names.jobs, nowait=True)))
    worker.publish(names.results, MANY)
    yield waits(gateway, worker)
    close_and_die(worker)
    yield lambda: names.ready(names.jobs) == 2_000
    assert names.ready(names.results) == 0, "the results still wait"
    assert [names.channel.basic_get(names.jobs, auto_ack=True)[1].message_id for _ in range(3)] == ["0", "1", "2"]
    names.release(gateway)
    yield stored(names)


def single_active(gateway: Gateway, names: Names) -> Scenario:
    worker = Worker(gateway)
    worker.consume(names.jobs, no_ack=False)
    worker.publish(names.results, MANY)
    yield waits(gateway, worker)
    channel = names.direct.channel()
    got: list[str] = []
    channel.basic_consume(names.jobs, lambda _channel, _method, properties, _body: got.append(properties.message_id), auto_ack=True)
    names.put(1)
    worker.wait_for("Basic.Deliver")
    reset(worker)

    def delivered() -> bool:
        names.direct.process_data_events(0)
        return got == ["0"]

    yield delivered
    assert names.ready(names.results) == 0, "the results still wait"
    channel.close()
    names.release(gateway)
    yield stored(names)


def closes_its_channel(gateway: Gateway, names: Names) -> Scenario:
    """The client lives, and its other channels go on."""
    names.put(3)
    worker = Worker(gateway, 1, 2)
    worker.consume(names.jobs, no_ack=False, exclusive=True)
    worker.wait_for("Basic.Deliver", 3)
    worker.publish(names.results, MANY)
    worker.say(amqp.method(1, commands.Channel.Close(200, "bye", 0, 0)))
    yield waits(gateway, worker)
    yield takes_over(names)
    assert names.ready(names.results) == 0, "the results still wait"
    assert names.take(names.jobs) == ["0", "1", "2"]
    names.put(1)
    worker.consume(names.jobs, channel=2)
    worker.wait_for("Basic.Deliver", 4)
    names.release(gateway)
    yield stored(names)
    worker.wait_for("Channel.CloseOk")
    worker.finish()


def reads_a_stream(gateway: Gateway, names: Names, end: End, *, others: bool = False) -> Scenario:
    """A stream's messages cannot be given back: RabbitMQ would end the connection, with all that waits there. Another queue's are."""
    names.put(20)
    worker = Worker(gateway)
    worker.call(commands.Basic.Qos(prefetch_count=8), "Basic.QosOk")
    worker.call(commands.Basic.Consume(queue=names.jobs, arguments={"x-stream-offset": "first"}), "Basic.ConsumeOk")
    worker.wait_for("Basic.Deliver", 8)
    worker.acknowledge(1, 2)
    if others:
        names.channel.queue_declare(other := f"other-{names.results}")
        for number in range(4):
            names.channel.basic_publish("", other, b"job", pika.BasicProperties(message_id=str(number)))
        worker.consume(other, no_ack=False)
        worker.wait_for("Basic.Deliver", 14)
    worker.publish(names.results, MANY)
    worker.acknowledge(4)
    worker.publish(names.results, 1)
    yield waits(gateway, worker, MANY + 1)
    end(worker)
    if others:
        yield lambda: names.ready(other) == 4
    assert names.ready(names.results) == 0, "the results still wait"
    names.put(20)  # which the dead client must not get
    names.release(gateway)
    yield stored(names, MANY + 1)
    if others:
        assert names.take(other) == ["0", "1", "2", "3"]
        names.channel.queue_delete(other)
    worker.socket.close()


def test_readers_of_a_stream_go_likewise(gateway: Gateway, names: MakeNames) -> None:
    stream = {"x-queue-type": "stream"}
    scenarios = {end.__name__: reads_a_stream(gateway, names("delay", stream), end) for end in ENDS}
    scenarios["beside another queue"] = reads_a_stream(gateway, names("delay", stream), die, others=True)
    together(scenarios)


def test_whatever_a_client_was_doing_when_it_went(gateway: Gateway, names: MakeNames) -> None:
    scenarios: dict[str, Scenario] = {
        f"{action}: {kind.__name__}": kind(gateway, names(action))
        for action in ("spool", "delay")
        for kind in (within_a_message, with_many_unacknowledged, with_deliveries_on_their_way, closes_its_channel)
    }
    scenarios["in a transaction"] = in_a_transaction(gateway, names("delay"))
    scenarios["single active"] = single_active(gateway, names("delay", {"x-single-active-consumer": True}))
    scenarios["quorum, single active"] = single_active(
        gateway, names("delay", {"x-queue-type": "quorum", "x-single-active-consumer": True})
    )
    scenarios["quorum"] = ends_with_unacknowledged(gateway, names("delay", {"x-queue-type": "quorum"}), die)
    together(scenarios)


def capped(gateway: Gateway, names: Names, user: str) -> Scenario:
    """A user with one connection: what waits of the one that is gone is given up, and said so, and the next attempt succeeds."""
    login = f"\0{user}\0{user}"
    worker = Worker(gateway, response=login)
    worker.publish(names.results, MANY)
    yield waits(gateway, worker)
    die(worker)

    def connects() -> bool:
        client = RawClient(gateway.port("rabbit"))
        client.say(opening(1, response=login))
        while not (client.count("Channel.OpenOk") or client.count("Connection.Close")) and client.read():
            pass
        came_in = client.count("Channel.OpenOk") == 1
        client.finish()
        return came_in

    yield connects
    key = f"%2F/amq.default/{names.results}"
    yield lambda: gateway.messages_by_fate("amqp", key)["abandoned"] == MANY
    assert "a limit on connections: 60 messages are given up" in gateway.log()


def test_a_limit_on_connections_is_for_those_that_are_there(rabbitmq: RabbitMQ, gateway: Gateway, names: MakeNames) -> None:
    rabbitmq.control("add_user", "capped", "capped")
    rabbitmq.control("set_permissions", "capped", ".*", ".*", ".*")
    rabbitmq.control("set_user_limits", "capped", '{"max-connections": 1}')
    together({"user": capped(gateway, names("spool"), "capped")})
    rabbitmq.control("delete_user", "capped")
