"""Gateways and brokers that are killed while requeues and send-backs wait: nothing is lost, and no delivery is answered twice."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, Final

import pika
import pika.exceptions
import pytest

from support.brokers.name_servers import read_frame
from support.brokers.queues import connect
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.rocketmq import RocketMQ
from support.clients.storm import original
from support.gateways import Gateway, amqp_listener
from support.processes import HANG_S, LOOPBACK, wait_until
from support.rocketmq.frames import encode_request, read_response
from support.rocketmq.stored_messages import pull

KILLS: Final = 30
OF_BROKERS: Final = 3  # each of so many kills is one of the broker, the others are of the gateway
CONSUMERS: Final = 3
PREFETCH: Final = 20
RATE: Final = 50  # requeues a second, of all consumers
EACH: Final = 60  # messages that are published before a kill
LEAST: Final = 40  # requeues before a kill: more than the burst, so that some wait
QUEUE: Final = "loop.killed"


class Consumer(threading.Thread):
    """Gives back most of what it gets, by itself or together, and acknowledges some; connects again when its gateway or broker is gone."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.url = url  # of the gateway that there is
        self.dice = random.Random(seed)
        self.acked: set[int] = set()
        self.requeued = 0
        self.reconnected = 0
        self.faults: list[str] = []  # what the broker has said of an answer
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._consume()
            except pika.exceptions.ChannelClosedByBroker as error:
                self.faults.append(repr(error))
            except (pika.exceptions.AMQPError, OSError, AssertionError):  # pika asserts in places where its connection is gone
                self.reconnected += 1
                self.stopping.wait(0.1)

    def _consume(self) -> None:
        with connect(self.url) as connection:
            channel: Any = connection.channel()
            channel.basic_qos(prefetch_count=PREFETCH)
            unanswered: dict[int, int] = {}  # messages, by tag
            channel.basic_consume(QUEUE, lambda _channel, method, _properties, body: self._take(channel, method, body, unanswered))
            while not self.stopping.is_set():
                connection.process_data_events(0.05)

    def _take(self, channel: Any, method: Any, body: bytes, unanswered: dict[int, int]) -> None:
        unanswered[method.delivery_tag] = int(body)
        fate = self.dice.random()
        if fate < 0.15:
            return  # answered by the next that is for several
        tag = self.dice.choice(list(unanswered))
        several = fate > 0.8
        answered = [each for each in unanswered if each <= tag] if several else [tag]
        if fate < 0.7 or fate > 0.9:
            channel.basic_nack(tag, multiple=several, requeue=True)
            self.requeued += len(answered)
        else:
            channel.basic_ack(tag, multiple=several)
            self.acked.update(unanswered[each] for each in answered)
        for each in answered:
            del unanswered[each]


@pytest.fixture
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as broker:
        yield broker


def publish(broker: RabbitMQ, numbers: range) -> None:
    """Past the gateway, until the broker has them."""
    with connect(broker.url) as connection:
        channel: Any = connection.channel()
        channel.confirm_delivery()
        for number in numbers:
            channel.basic_publish("", QUEUE, b"%d" % number, pika.BasicProperties(delivery_mode=2), mandatory=True)


@pytest.mark.long
@pytest.mark.rabbitmq
def test_nothing_is_lost_or_answered_twice_however_often_a_gateway_or_a_broker_is_killed(
    mortal: RabbitMQ, tmp_path_factory: pytest.TempPathFactory, record_property: Callable[[str, object], None]
) -> None:
    dice = random.Random(44)
    rule = {"name": "loops", "match": {"operation": "requeue"}, "limit": {"messages": f"{RATE}/s", "burst": "200ms"}, "action": "delay"}
    with connect(mortal.url) as direct:
        direct.channel().queue_declare(QUEUE, durable=True)
    mortal.control("eval", "mnesia:sync_log().")  # else the queue itself may be what a killed broker has forgotten
    with ExitStack() as stack:
        gateway = stack.enter_context(Gateway(tmp_path_factory.mktemp("gateway"), [amqp_listener(f"{LOOPBACK}:{mortal.port}")], [rule]))
        consumers = [Consumer(gateway.amqp_url(), seed) for seed in range(CONSUMERS)]
        for consumer in consumers:
            consumer.start()
        published = held = 0
        for kill in range(KILLS):
            publish(mortal, range(published, published + EACH))
            published += EACH
            before = sum(consumer.requeued for consumer in consumers)
            enough = before + LEAST
            wait_until(lambda enough=enough: sum(c.requeued for c in consumers) >= enough, within=60, what="requeues are said")  # type: ignore[misc]
            time.sleep(dice.uniform(0, 0.5))
            held += sum(item["held_messages"] > 0 or item["bottleneck"] == "limit" for item in gateway.get("/v1/connections")["items"])
            if kill % OF_BROKERS == 0:
                mortal.kill()
                mortal.start_node()
            else:
                gateway.kill()
                gateway.start()
                for consumer in consumers:
                    consumer.url = gateway.amqp_url()
        for consumer in consumers:
            consumer.stopping.set()
        for consumer in consumers:
            consumer.join(HANG_S)
    acked = set().union(*(consumer.acked for consumer in consumers))
    left = set()
    with connect(mortal.url) as direct:
        channel: Any = direct.channel()
        for method, _, body in channel.consume(QUEUE, auto_ack=True, inactivity_timeout=2):
            if method is None:
                break
            left.add(int(body))
    lost = set(range(published)) - acked - left
    requeued = sum(consumer.requeued for consumer in consumers)
    reconnected = sum(consumer.reconnected for consumer in consumers)
    counts = f"{published} messages, {requeued} requeues, {len(acked)} acknowledged, {len(left)} left, {reconnected} reconnections"
    told = f"{KILLS} kills: {counts}"
    record_property("remark", told)
    assert held > 0, "no requeue waited when anything was killed"
    assert [fault for consumer in consumers for fault in consumer.faults] == [], told
    assert not lost, f"{sorted(lost)[:20]} are lost; {told}"


# ---- RocketMQ ------------------------------------------------------------------------------------------------------------

GROUP: Final = "killed"
TOPIC: Final = "given-back"
LATER: Final = "SCHEDULE_TOPIC_XXXX"  # where a broker stores what it delivers again; queue 0: after a second
SENT_BACK: Final = 30  # messages before a kill
SEND_BACK: Final = 36
ONE_SECOND: Final = "1"  # delay level


def sends_back(port: int, offsets: dict[int, int], said: Counter[int], answers: Counter[int], stored: set[int]) -> None:
    """A consumer gives those messages back at once, by the size of each, and reads answers until all are there or its connection ends."""
    with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=HANG_S) as connection:
        fields = {"group": GROUP, "originTopic": TOPIC, "delayLevel": ONE_SECOND, "maxReconsumeTimes": "16", "unitMode": "false"}
        for size, offset in offsets.items():
            said[size] += 1
            connection.sendall(encode_request(SEND_BACK, fields | {"offset": str(offset)}, opaque=size))
        while not all(answers[size] for size in offsets) and (answer := read_frame(connection)):
            header = read_response(answer)
            size = int(str(header["opaque"]))
            answers[size] += 1
            if header["code"] == 0:
                stored.add(size)


def given_back(port: int) -> Counter[int]:
    """How often the broker has stored that it is to deliver each message again, by its size."""
    found: Counter[int] = Counter()
    offset = 0
    with socket.create_connection((LOOPBACK, port), timeout=HANG_S) as connection:
        while True:
            connection.sendall(pull(LATER, offset=offset, suspend_ms=0, sys_flag=4, group=GROUP))
            answer = read_frame(connection)
            header = read_response(answer)
            fields = header["extFields"]
            if header["code"] != 0 or not isinstance(fields, dict):
                return found
            offset = int(fields["nextBeginOffset"])
            at = 8 + (struct.unpack_from(">I", answer, 4)[0] & 0xFFFFFF)
            while at < len(answer):
                found[struct.unpack_from(">I", answer, at + 84)[0]] += 1
                at += struct.unpack_from(">I", answer, at)[0]


@pytest.mark.long
@pytest.mark.rocketmq
def test_nothing_that_a_group_gives_back_is_lost_or_answered_twice(
    tmp_path_factory: pytest.TempPathFactory, record_property: Callable[[str, object], None]
) -> None:
    """What is not answered with success is given back again, as RocketMQ's clients do."""
    dice = random.Random(44)
    rule = {
        "name": "loops",
        "match": {"operation": "requeue"},
        "limit": {"messages": f"{RATE}/s", "burst": {"messages": 1}},
        "action": "delay",
    }
    said: Counter[int] = Counter()
    stored: set[int] = set()
    twice = held = 0
    with RocketMQ(tmp_path_factory.mktemp("rocketmq")) as broker:
        broker.create_topics(TOPIC)
        listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": f"{LOOPBACK}:{broker.port}"}
        with Gateway(tmp_path_factory.mktemp("gateway"), [listener], [rule]) as gateway:
            for kill in range(KILLS):
                sizes = range(1 + kill * SENT_BACK, 1 + (kill + 1) * SENT_BACK)
                offsets = {size: original((LOOPBACK, broker.port), TOPIC, size) for size in sizes}
                killed = False
                while left := {size: offset for size, offset in offsets.items() if size not in stored}:
                    answers: Counter[int] = Counter()
                    wait_until(lambda: gateway.answers("/readyz"), within=60, what="the gateway to be ready")
                    sending = threading.Thread(target=sends_back, args=(gateway.port("rocket"), left, said, answers, stored))
                    sending.start()
                    if not killed:
                        wait_until(lambda answers=answers: bool(answers), within=60, what="an answer")  # type: ignore[misc]
                        time.sleep(dice.uniform(0, 0.5 * SENT_BACK / RATE))
                        held += len(answers) < SENT_BACK
                        if kill % OF_BROKERS == 0:
                            broker.kill()
                            broker.start_broker()
                        else:
                            gateway.kill()
                            gateway.start()
                        killed = True
                    sending.join(HANG_S)
                    assert not sending.is_alive()
                    twice += sum(count > 1 for count in answers.values())
        everything = set(range(1, 1 + KILLS * SENT_BACK))
        wait_until(lambda: everything <= set(given_back(broker.port)), within=60, what="all is there to be delivered again")
        found = given_back(broker.port)
    told = f"{KILLS} kills, {held} of them while some waited: {len(everything)} messages, {said.total()} send-backs, {found.total()} stored"
    record_property("remark", told)
    assert held > KILLS / 2, told
    assert twice == 0, told
    assert [size for size in found if found[size] > said[size]] == [], told
