"""Spans from a gateway in a process of its own, in both protocols, at a collector that decodes OTLP."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest

from gateway.build import VERSION
from support.brokers import stand_ins
from support.gateways import Gateway, StartGateway, amqp_listener, command
from support.otlp import Collector
from support.processes import HANG_S, LOOPBACK, wait_until
from support.rocketmq import frames as rocketmq

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE = "0af7651916cd43dd8448eb211c80319{}"
PARENT = "b7ad6b7169203331"


def traceparent(number: int, flags: str = "01") -> str:
    return f"00-{TRACE.format(number)}-{PARENT}-{flags}"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


def limit(rate: str = "1/h", **more: Any) -> list[dict[str, object]]:
    """One message passes; the next one not before a test is over, however slow the machine is."""
    return [{"name": "slow", "limit": {"messages": rate, "burst": "1h" if rate == "1/h" else "1s"}, **more}]


def publish(gateway: Gateway, *values: str | None) -> list[bool]:
    """Publish one message for each value, one after the other; whether each was confirmed."""
    confirmed: list[bool] = []
    with closing(pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for value in values:
            headers = {} if value is None else {"tries": 1, "traceparent": value}
            try:
                channel.basic_publish("orders", "created", b"hello", pika.BasicProperties(headers=headers, content_type="text/plain"))
                confirmed.append(True)
            except pika.exceptions.NackError:
                confirmed.append(False)
    return confirmed


def test_a_refused_publish_has_a_span_in_its_client_s_trace(start_gateway: StartGateway, collector: Collector) -> None:
    with stand_ins.rabbitmq() as broker:
        gateway = start_gateway([amqp_listener(broker.address)], limit(), tracing={"endpoint": collector.endpoint})
        assert publish(gateway, traceparent(0), traceparent(1), None, traceparent(2, "00")) == [True, False, False, False]
        (span,) = collector.wait_for(1)
    assert (span.trace_id, span.parent_id) == (TRACE.format(1), PARENT)
    assert (span.name, span.status) == ("sluice refused %2F/orders/created", "STATUS_CODE_ERROR")
    attributes = {name: span.attributes[name] for name in ("messaging.system", "messaging.destination.name", "client.address")}
    assert attributes == {"messaging.system": "rabbitmq", "messaging.destination.name": "orders:created", "client.address": LOOPBACK}
    assert (span.attributes["sluice.rule"], span.attributes["sluice.limit"]) == ("slow", "1/h")
    assert (span.attributes["sluice.listener"], span.attributes["sluice.gateway"]) == ("rabbit", "end-to-end")
    assert 0 < float(span.attributes["sluice.retry_after_ms"]) <= 3_600_000
    assert (span.resource["service.name"], span.resource["service.version"]) == ("sluice", VERSION)


def test_a_delayed_publish_has_a_span_as_long_as_its_wait(start_gateway: StartGateway, collector: Collector) -> None:
    with stand_ins.rabbitmq() as broker:
        rules = limit("1/s", action="delay", max_delay="8s", match={"protocol": "amqp"})
        gateway = start_gateway([amqp_listener(broker.address)], rules, tracing={"endpoint": collector.endpoint})

        def one_is_delayed() -> bool:
            assert publish(gateway, traceparent(1), traceparent(1)) == [True, True]
            return len(collector.spans) > 0

        wait_until(one_is_delayed, within=60, what="a span: on a slow machine more than a second may be between two publishes")
        span = collector.spans[0]
    assert (span.trace_id, span.name, span.status) == (TRACE.format(1), "sluice delayed %2F/orders/created", "STATUS_CODE_UNSET")
    assert span.ended_at > span.started_at
    assert (span.attributes["sluice.action"], span.attributes["sluice.outcome"]) == ("delay", "forwarded")


def send(gateway: Gateway, *values: str) -> list[object]:
    """Send one message for each value; the codes of the answers, in the order of the sends."""
    codes: dict[object, object] = {}
    with socket.create_connection((LOOPBACK, gateway.port("rocket")), timeout=HANG_S) as client, client.makefile("rb") as answers:
        for number, value in enumerate(values):
            extra: dict[str, rocketmq.Value] = {"a": "producers", "b": "ORDERS", "i": f"KEYS\x01a\x02traceparent\x01{value}\x02"}
            client.sendall(rocketmq.encode_request(310, extra, b"hello", opaque=number))
        for _ in values:
            length = answers.read(4)
            answer = rocketmq.read_response(length + answers.read(int.from_bytes(length, "big")))
            codes[answer["opaque"]] = answer["code"]
    return [codes[number] for number in range(len(values))]


def test_a_refused_send_of_rocketmq_has_a_span_from_each_of_several_workers(start_gateway: StartGateway, collector: Collector) -> None:
    with stand_ins.rocketmq() as broker:
        listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": broker.address}
        settings = {
            "gateway": {"name": "end-to-end", "state_directory": "state", "workers": 2},
            "tracing": {"endpoint": collector.endpoint},
        }
        gateway = start_gateway([listener], [{"name": "none", "limit": {"messages": "0/s"}}], **settings)
        assert send(gateway, traceparent(1), traceparent(2)) == [215, 215]
        wait_until(lambda: not send(gateway, traceparent(3)) or both(collector), within=60, what="spans from both workers")
        spans = collector.spans
    assert {TRACE.format(1), TRACE.format(2)} <= {span.trace_id for span in spans}
    assert {span.parent_id for span in spans} == {PARENT}
    assert {span.name for span in spans} == {"sluice refused ORDERS"}
    assert {span.attributes["messaging.system"] for span in spans} == {"rocketmq"}
    assert {span.attributes["messaging.destination.name"] for span in spans} == {"ORDERS"}
    assert all("sluice.retry_after_ms" not in span.attributes for span in spans), "a limit of 0 names no wait"


def both(collector: Collector) -> bool:
    return len({span.resource["service.instance.id"] for span in collector.spans}) == 2


def test_a_mute_collector_keeps_no_message_and_no_stop(start_gateway: StartGateway) -> None:
    with Collector(mute=True) as collector, stand_ins.rabbitmq() as broker:
        settings = {"endpoint": collector.endpoint, "timeout": "1min"}
        gateway = start_gateway([amqp_listener(broker.address)], limit(), tracing=settings)
        assert publish(gateway, traceparent(0), traceparent(1))[1] is False
        wait_until(lambda: collector.requests > 0, within=60, what="the first request to the collector")
        answers = publish(gateway, *[traceparent(number % 10) for number in range(300)])
        assert len(answers) == 300
        assert answers.count(False) == 300
        assert gateway.stop() == 0


def test_without_tracing_a_gateway_has_nothing_of_opentelemetry(start_gateway: StartGateway) -> None:
    """By what its process has mapped: compiled parts of what the exporter imports."""
    with stand_ins.rabbitmq() as broker:
        gateway = start_gateway([amqp_listener(broker.address)], limit())
        assert publish(gateway, traceparent(0), traceparent(1)) == [True, False]
        maps = Path(f"/proc/{gateway.process.pid}/maps").read_text()
        names = {sample.name for sample in gateway.samples()}
    assert "google/_upb" not in maps
    assert not [name for name in names if name.startswith("sluice_spans")]


def test_without_the_package_the_gateway_does_not_start_and_says_how(tmp_path: Path) -> None:
    """`opentelemetry` is here a package of another kind, which has no SDK."""
    (tmp_path / "path" / "opentelemetry").mkdir(parents=True)
    (tmp_path / "path" / "opentelemetry" / "__init__.py").write_text("")
    config = tmp_path / "sluice.yaml"
    listener = f"{{name: rabbit, protocol: amqp, bind: '{LOOPBACK}:0', upstream: '{LOOPBACK}:1'}}"
    config.write_text(f"listeners: [{listener}]\ntracing: {{endpoint: 'http://{LOOPBACK}:1/v1/traces'}}\n")
    shadow = tmp_path / "path"
    argv = command()
    if argv[0] == "env":  # SLUICE_COMMAND of the source tree, which sets PYTHONPATH itself
        argv = [f"{word}:{shadow}" if word.startswith("PYTHONPATH=") else word for word in argv]
    environment = os.environ | {"PYTHONPATH": str(shadow)}
    done = subprocess.run([*argv, "run", "-c", str(config)], capture_output=True, text=True, check=False, timeout=HANG_S, env=environment)
    assert done.returncode == 3, done.stderr
    assert "tracing needs the Python package opentelemetry-sdk: pip install 'sluice-gateway[otel]'" in done.stderr
