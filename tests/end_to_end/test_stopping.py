"""How a gateway is stopped: at once or after its clients, and what each signal does."""

from __future__ import annotations

import contextlib
import json
import signal
import time

import pika
import pika.exceptions
import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import LOOPBACK, wait_until


def events(gateway: Gateway, name: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in gateway.log().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


@pytest.mark.rabbitmq
@pytest.mark.parametrize("workers", [1, 2])
def test_a_consumer_works_off_its_last_batch_and_the_gateway_ends_after_it(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, workers: int
) -> None:
    gateway: Gateway = start_gateway(
        [amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], [], drain={"timeout": "60s", "hold": "until_clients_leave"},
        gateway={"name": "end-to-end", "state_directory": "state", "workers": workers},
    )  # fmt: skip
    with Queue(rabbitmq.url, "last-batch") as queue, Queue(rabbitmq.url, "results") as results:
        url = gateway.amqp_url()
        consumer = pika.BlockingConnection(pika.URLParameters(url))
        channel = consumer.channel()
        for number in range(5):
            channel.basic_publish("", queue.name, str(number).encode(), pika.BasicProperties(message_id=str(number)))
        wait_until(lambda: queue.depth() == 5, within=10, what="the messages")
        got, _, _ = channel.basic_get(queue.name)
        gateway.process.popen.send_signal(signal.SIGTERM)
        wait_until(lambda: bool(events(gateway, "drain_held")), within=10, what="the gateway stops")
        wait_until(lambda: not gateway.answers("/readyz"), within=10, what="not ready")
        with contextlib.closing(pika.BlockingConnection(pika.URLParameters(url))) as late:  # for the results
            late.channel().basic_publish("", results.name, b"done", pika.BasicProperties(message_id="done"))
        channel.basic_ack(got.delivery_tag)
        assert channel.queue_declare(queue.name, passive=True).method.message_count == 4, "it still has its broker"
        assert gateway.alive()
        consumer.close()
        assert gateway.process.popen.wait(20) == 0
        assert sorted(queue.drain()) == ["1", "2", "3", "4"]
        assert results.drain() == ["done"]


@pytest.mark.rabbitmq
def test_a_client_that_does_not_leave_is_told_before_the_time_is_over(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway(
        [amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], [], drain={"timeout": "4s", "hold": "until_clients_leave"}
    )
    connection = pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))
    started = time.monotonic()
    assert gateway.cli("drain", "--yes").returncode == 0
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        connection.process_data_events(time_limit=30)
    assert caught.value.reply_code == 320
    assert time.monotonic() - started > 1.5, "it was left alone for half of the time"
    assert gateway.process.popen.wait(20) == 0
