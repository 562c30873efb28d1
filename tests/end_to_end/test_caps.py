"""A listener's cap in front of a real RabbitMQ, flooded at 20 times what it lets through: what really arrives in each topic's queue."""

from __future__ import annotations

import json
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise

import pika
import pytest
from pamqp import commands

from support.amqp import frames as amqp
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.raw_amqp import RawClient, opening
from support.gateways import Gateway, amqp_listener
from support.processes import wait_until

pytestmark = pytest.mark.rabbitmq

CAP = 200  # messages per second
RATES = {"cap-mine": 60, "cap-heavy": 10 * CAP, "cap-light": 10 * CAP}
RULES: list[dict[str, object]] = [
    {"name": "broker", "match": {"protocol": "amqp"}, "per": "listener", "limit": {"messages": f"{CAP}/s"}},
    {"name": "mine", "match": {"protocol": "amqp", "queue": "cap-mine"}, "protected": True},
    {"name": "heavy", "match": {"protocol": "amqp", "queue": "cap-heavy"}, "weight": 3},
]
SETTLED_S = 1.5  # the burst is used up by then
MADE_UP_S = 0.1  # so much of a standstill a sender makes up for
SLICES, SLICE_S = 5, 2.0  # what is measured; a busy machine may keep one of two floods waiting in one of them


class Sender:
    """Publishes to one queue evenly, with confirms, which it takes and forgets; on two threads of its own until the end."""

    def __init__(self, port: int, queue: str, rate: int) -> None:
        self.rate = rate
        self.sent = 0
        self.made_up = 0  # messages sent at once after a standstill: more than the topic's demand
        self._message = amqp.publish(1, queue, b"x" * 20)
        self._client = RawClient(port)
        self._client.say(opening(1) + amqp.method(1, commands.Confirm.Select()))
        self._client.wait_for("Confirm.SelectOk")
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._publish, self._forget)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _publish(self) -> None:
        began = time.monotonic()
        while not self._over.wait(0.02):
            due = int((time.monotonic() - began) * self.rate) - self.sent
            if due > self.rate * MADE_UP_S:  # the machine stood still: a second's worth at once would be another demand than this one's
                began += due / self.rate - MADE_UP_S
                due = int(self.rate * MADE_UP_S)
                self.made_up += due
            self._client.say(self._message * due)
            self.sent += due

    def _forget(self) -> None:
        with suppress(OSError):
            while self._client.socket.recv(1 << 16):
                pass

    def finish(self) -> None:
        """Publish no more; what was published may still be on its way."""
        self._over.set()
        self._threads[0].join()

    def stop(self) -> None:
        self.finish()
        with suppress(OSError):
            self._client.socket.shutdown(socket.SHUT_RDWR)
        self._threads[1].join()
        self._client.socket.close()


@contextmanager
def senders(port: int) -> Iterator[dict[str, Sender]]:
    made = {queue: Sender(port, queue, rate) for queue, rate in RATES.items()}
    for sender in made.values():
        sender.start()
    try:
        yield made
    finally:
        for sender in made.values():
            sender.stop()


def test_a_protected_topic_gets_its_demand_and_floods_share_the_rest_by_weight(
    rabbitmq: RabbitMQ, start_gateway: Callable[..., Gateway]
) -> None:
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], RULES)
    with ExitStack() as stack:
        queues = {name: stack.enter_context(Queue(rabbitmq.url, name)) for name in RATES}
        asked = time.monotonic()
        with senders(gateway.port("rabbit")) as running:
            time.sleep(SETTLED_S)
            depths = [{name: queue.depth() for name, queue in queues.items()}]
            began = looked = time.monotonic()
            lasted = []
            for number in range(1, SLICES + 1):
                time.sleep(max(0.0, began + number * SLICE_S - time.monotonic()))
                lasted.append(time.monotonic() - looked)
                depths.append({name: queue.depth() for name, queue in queues.items()})
                looked = time.monotonic()
            at_most_s = time.monotonic() - asked
            mine = running["cap-mine"]
            mine.finish()
            wait_until(
                lambda: queues["cap-mine"].depth() >= 0.99 * mine.sent - mine.made_up,
                within=30,
                what=f"all of its {mine.sent} messages, from the first moment on, but for {mine.made_up} after standstills",
            )
    arrived = [{name: after[name] - before[name] for name in after} for before, after in pairwise(depths)]
    assert running["cap-heavy"].sent + running["cap-light"].sent >= 5 * CAP * (SETTLED_S + SLICES * SLICE_S)
    per_slice = [sum(each.values()) for each in arrived]
    assert max(count / seconds for count, seconds in zip(per_slice, lasted, strict=True)) >= 0.97 * CAP - 5
    assert sum(depths[-1].values()) <= CAP + CAP * at_most_s + 1  # its burst, and its rate
    light = statistics.median(each["cap-light"] / (each["cap-heavy"] + each["cap-light"]) for each in arrived)
    assert abs(light - 0.25) <= 0.1 * 0.25
    reasons = {
        sample.labels["reason"]: sample.value
        for sample in gateway.samples()
        if sample.name == "sluice_messages_refused_total" and sample.labels["topic"].endswith("cap-light")
    }
    assert reasons["limit"] == 0
    assert reasons["share"] > 5 * CAP
    (listener,) = gateway.get("/v1/listeners")["items"]
    (cap,) = listener["caps"]
    assert (cap["rule"], cap["now"], cap["reason"], cap["topics"]) == ("broker", f"{CAP}/s", None, 3)


def test_an_alarm_of_the_broker_tightens_the_cap_until_it_is_over(rabbitmq: RabbitMQ, start_gateway: Callable[..., Gateway]) -> None:
    adapt = {"floor": "50%", "tighten": "80%", "every": "100ms", "recover": "100%"}
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [{**RULES[0], "adapt": adapt}])

    def shown() -> tuple[str, str | None]:
        (cap,) = gateway.get("/v1/listeners")["items"][0]["caps"]
        return cap["now"], cap["reason"]

    def published_into_the_alarm() -> bool:
        channel.basic_publish("", "nobody-listens", b"x")  # the broker tells its alarm to those who publish
        connection.process_data_events(time_limit=0)
        return shown() == (f"{CAP // 2}/s", "blocked")

    connection = pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))
    channel = connection.channel()
    channel.basic_publish("", "nobody-listens", b"x")
    wait_until(lambda: gateway.get("/v1/listeners")["items"][0]["caps"] != [], within=30, what="the cap is in use")
    assert shown() == (f"{CAP}/s", None)
    rabbitmq.control("set_vm_memory_high_watermark", "0.00001")
    try:
        wait_until(published_into_the_alarm, within=15, every=0.2, what="the cap is tightened to its floor")
        assert f"{CAP // 2}/s of {CAP}/s (blocked)" in gateway.cli("listeners").stdout
    finally:
        rabbitmq.control("set_vm_memory_high_watermark", "0.4")
    wait_until(lambda: shown() == (f"{CAP}/s", None), within=30, what="the cap is whole again")
    connection.close()
    rates = [(sample.name, sample.value) for sample in gateway.samples() if sample.name.startswith("sluice_cap") and sample.value]
    assert ("sluice_cap_rate", CAP) in rates
    assert [name for name, _ in rates] == ["sluice_cap_rate", "sluice_cap_tightened_total"]
    events = [line["event"] for line in map(json.loads, gateway.log().splitlines()) if line["event"].startswith("cap_")]
    assert events == ["cap_tightening", "cap_recovered"]
