"""A broker that hangs (SIGSTOP): it takes connections, says nothing, and must not count as ready (docs/design/reliability.md F21)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pika
import pytest

from support.brokers.name_servers import port_range
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.rocketmq import RocketMQ
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import LOOPBACK, wait_until


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "PROXY"])
def hanging(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with RabbitMQ(tmp_path_factory.mktemp("hanging"), proxy_protocol=request.param) as broker:
        yield broker


@pytest.fixture
def gateway(hanging: RabbitMQ, start_gateway: StartGateway) -> Gateway:
    sends = {"send_proxy_protocol": "v2"} if hanging.proxy_protocol else {}
    return start_gateway([amqp_listener(f"{LOOPBACK}:{hanging.port}", **sends)], [])


def reasons(gateway: Gateway) -> list[str]:
    found: list[str] = gateway.request("GET", "/readyz").json.get("reasons", [])
    return found


def changes(gateway: Gateway) -> list[str]:
    """The changes of the broker's state that the log has."""
    return [word for line in gateway.log().splitlines() for word in ("upstream_unreachable", "upstream_reachable") if f'"{word}"' in line]


@pytest.mark.rabbitmq
def test_a_broker_that_hangs_is_not_ready_within_ten_seconds_and_ready_again_by_itself(hanging: RabbitMQ, gateway: Gateway) -> None:
    """Also while a client is connected, and without flapping meanwhile."""
    with contextlib.closing(pika.BlockingConnection(pika.URLParameters(gateway.amqp_url() + "?heartbeat=60"))) as client:
        channel = client.channel()
        channel.queue_declare("readiness", exclusive=True)
        hanging.pause()
        try:
            paused = time.monotonic()
            wait_until(lambda: not gateway.answers("/readyz"), within=30, what="not ready")
            assert time.monotonic() - paused < 10.0
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
        resumed = time.monotonic()
        wait_until(lambda: gateway.answers("/readyz"), within=30, what="ready again")
        assert time.monotonic() - resumed < 10.0
        channel.basic_publish("", "readiness", b"x")
        wait_until(lambda: channel.basic_get("readiness", auto_ack=True)[0] is not None, within=30, what="the client has lost nothing")
        assert changes(gateway) == ["upstream_unreachable", "upstream_reachable"]


@pytest.mark.rabbitmq
def test_rabbitmq_logs_no_error_of_probes_and_none_is_made_while_it_answers_clients(hanging: RabbitMQ, gateway: Gateway) -> None:
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


@pytest.mark.rocketmq
@pytest.mark.parametrize("sends", ["none", "v2"])
def test_a_rocketmq_broker_and_a_name_server_that_hang_are_not_ready_and_ready_again(
    rocketmq: RocketMQ, start_gateway: StartGateway, sends: str
) -> None:
    gateway: Gateway = start_gateway(
        [
            {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": f"{LOOPBACK}:{rocketmq.port}",
             "send_proxy_protocol": sends},
            {"name": "names", "protocol": "rocketmq-nameserver", "bind": f"{LOOPBACK}:0", "upstream": rocketmq.name_server,
             "send_proxy_protocol": sends, "broker_ports": "{}-{}".format(*port_range(4))},
        ],
        [],
    )  # fmt: skip
    rocketmq.pause()
    try:
        paused = time.monotonic()
        wait_until(lambda: len(reasons(gateway)) == 2, within=30, what="neither is ready")
        assert time.monotonic() - paused < 10.0
        assert all("it takes connections and did not answer a route that nobody has within 3.5 s" in reason for reason in reasons(gateway))
    finally:
        rocketmq.resume()
    wait_until(lambda: gateway.answers("/readyz"), within=30, what="both are ready again")
    assert sorted(changes(gateway)) == ["upstream_reachable"] * 2 + ["upstream_unreachable"] * 2
