"""The harness itself: the real brokers start, and each client library works when nothing stands between."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.rocketmq import RocketMQ
from support.brokers.splice import Splice
from support.clients.programs import RocketMQClient, go_publish, java_publish, pika_publish


@pytest.mark.rabbitmq
@pytest.mark.parametrize("library", ["pika", "go", "java"])
def test_a_direct_publisher_gets_an_ack_for_every_message(rabbitmq: RabbitMQ, library: str, tmp_path: Path) -> None:
    with Queue(rabbitmq.url, "direct") as queue:
        if library == "pika":
            publishing = pika_publish(rabbitmq.url, "", queue.name, "direct", count=500)
        elif library == "go":
            publishing = go_publish(rabbitmq.url, "", queue.name, "direct", count=500)
        else:
            publishing = java_publish(tmp_path, rabbitmq.url, "", queue.name, "direct", count=500)
        published = publishing.result()
        assert published.outcomes == ["A" * 500]
        assert queue.drain() == [f"direct-0-{sequence}" for sequence in range(500)]


@pytest.mark.rabbitmq
def test_a_paused_broker_answers_again_after_it_is_resumed(rabbitmq: RabbitMQ) -> None:
    with Queue(rabbitmq.url, "paused") as queue:
        rabbitmq.pause()
        try:
            publishing = go_publish(rabbitmq.url, "", queue.name, "paused", count=10)
            with pytest.raises(AssertionError, match="did not end"):
                publishing.result(within=1)
        finally:
            rabbitmq.resume()
        assert go_publish(rabbitmq.url, "", queue.name, "resumed", count=10).result().count("A") == 10


@pytest.mark.rocketmq
def test_rocketmq_clients_reach_the_broker_through_its_advertised_address_only(
    rocketmq: RocketMQ, rocketmq_client: RocketMQClient, tmp_path: Path
) -> None:
    """Mode A: nobody answers at the advertised address until something that forwards is put there."""
    topic = f"direct-{rocketmq_client.version}"
    rocketmq.create_topics(topic)
    with Splice.between(rocketmq.listeners):
        line = rocketmq_client.produce("direct", {"topic": topic, "count": 50}).result()[0]
        assert (line["sent"], line["ok"], line["codes"]) == (50, 50, {})
        consumed = rocketmq_client.consume(f"{topic}-readers", topic, expected=50).result()[0]["consumed"]
    assert sorted(consumed) == sorted(f"direct-{topic}-0-{sequence}" for sequence in range(50))
    assert rocketmq.stored(topic) == {topic: 50}
