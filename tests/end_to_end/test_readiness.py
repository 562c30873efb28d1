"""A broker that hangs (SIGSTOP): it takes connections, says nothing, and must not count as ready (docs/design/reliability.md F21)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pika
import pytest

from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import LOOPBACK, seconds_until, wait_until
from support.readiness import changes, reasons

pytestmark = pytest.mark.rabbitmq


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RabbitMQ]]:
    """Two brokers: a plain one, and one that expects a PROXY header."""
    brokers = [RabbitMQ(tmp_path_factory.mktemp("hanging"), proxy_protocol=proxy) for proxy in (False, True)]
    with contextlib.ExitStack() as running:
        # Its threads are there until the end: a program that a test starts is ended with the thread that started it.
        pool = running.enter_context(ThreadPoolExecutor(len(brokers)))
        for broker in brokers:
            running.callback(broker.stop)
        list(pool.map(RabbitMQ.start, brokers))
        yield brokers


@pytest.fixture
def pairs(hanging: list[RabbitMQ], start_gateway: StartGateway) -> list[tuple[RabbitMQ, Gateway]]:
    """Each broker with its gateway."""

    def in_front_of(broker: RabbitMQ) -> Gateway:
        sends = {"send_proxy_protocol": "v2"} if broker.proxy_protocol else {}
        gateway: Gateway = start_gateway([amqp_listener(f"{LOOPBACK}:{broker.port}", **sends)], [])
        return gateway

    return [(broker, in_front_of(broker)) for broker in hanging]


def side_by_side(check: Callable[[RabbitMQ, Gateway], None], pairs: list[tuple[RabbitMQ, Gateway]]) -> None:
    """The check with each broker at the same time, since it waits for most of its time. Raises what the first that fails raises."""
    with ThreadPoolExecutor(len(pairs)) as pool:
        for done in [pool.submit(check, *pair) for pair in pairs]:
            done.result()


def test_a_broker_that_hangs_is_not_ready_within_ten_seconds_and_ready_again_by_itself(pairs: list[tuple[RabbitMQ, Gateway]]) -> None:
    """Also while a client is connected, and without flapping meanwhile; a plain broker, and one that expects a PROXY header."""
    side_by_side(hang_and_go_on, pairs)


def hang_and_go_on(hanging: RabbitMQ, gateway: Gateway) -> None:
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(gateway.amqp_url() + "?heartbeat=60"))) as client:
        channel = client.channel()
        channel.queue_declare("readiness", exclusive=True)
        hanging.pause()
        try:
            assert seconds_until(lambda: not gateway.answers("/readyz"), what="not ready") < 10.0
            address = f"{LOOPBACK}:{hanging.port}"
            why = "it takes connections and did not answer AMQP's header within 3.5 s"
            assert reasons(gateway) == [f"listener rabbit: broker {address} is unreachable: {why}"]
            samples = gateway.samples()
            assert [sample.value for sample in samples if sample.name == "sluice_upstream_reachable"] == [0]
            away = [sample.labels for sample in samples if sample.name == "sluice_upstream_unreachable" and sample.value]
            assert away == [{"listener": "rabbit", "upstream": address, "reason": "no_answer"}]
            failed = gateway.get("/v1/listeners")["items"][0]
            assert (failed["upstream_error"], failed["upstream_reason"]) == (why, "no_answer")

            def asked_again() -> bool:
                assert not gateway.answers("/readyz"), "it flaps"
                return sum(s.value for s in gateway.samples() if s.labels.get("result") == "failed") >= 4

            wait_until(asked_again, within=60, what="three more probes, and none of them believes the kernel")
        finally:
            hanging.resume()
        assert seconds_until(lambda: gateway.answers("/readyz"), what="ready again") < 10.0
        channel.basic_publish("", "readiness", b"x")
        wait_until(lambda: channel.basic_get("readiness", auto_ack=True)[0] is not None, within=30, what="the client has lost nothing")
        assert changes(gateway, at_least=2) == ["upstream_unreachable", "upstream_reachable"]


def test_rabbitmq_logs_no_error_of_probes_and_none_is_made_while_it_answers_clients(pairs: list[tuple[RabbitMQ, Gateway]]) -> None:
    """A plain broker, and one that expects a PROXY header."""
    side_by_side(answer_clients, pairs)


def answer_clients(hanging: RabbitMQ, gateway: Gateway) -> None:
    log = hanging.directory / "log" / "rabbit.log"

    def since(start: int) -> list[str]:
        return log.read_text()[start:].splitlines()

    start = len(log.read_text())
    wait_until(lambda: any("unexpectedly closed" in line for line in since(start)), within=30, what="a probe of an idle broker")
    assert [line for line in since(start) if "[error]" in line] == []
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))) as client:
        channel = client.channel()
        channel.queue_declare("readiness", exclusive=True)

        def answers_for(seconds: float) -> None:
            begun = time.monotonic()
            while time.monotonic() - begun < seconds:
                channel.queue_declare("readiness", passive=True)

        answers_for(2.0)  # a probe that was under way is over, and in the broker's log
        start = len(log.read_text())
        answers_for(12.0)  # two would be due
        assert [line for line in since(start) if "accepting" in line] == []
