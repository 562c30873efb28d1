"""The intraday raise with a real RabbitMQ, in one process and with workers: raised at the full hour or by a surge, shown so, gone with the
demand."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pika
import pika.exceptions
import pytest

from support import clocked_gateway
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, StartGateway, amqp_listener, limit_path
from support.processes import wait_until

pytestmark = pytest.mark.rabbitmq

ROOT = Path(__file__).parents[2]
HOUR_S = 3600
RATE, BURST, HOURLY, SENT = 0.01, 100, 3.0, 30
RULES: list[dict[str, object]] = [{"name": "all", "match": {"protocol": "amqp"}, "limit": {"messages": "1000/s"}}]


def publish(url: str, queue: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    passed = 0
    while passed < SENT:  # a worker whose share of the burst is used up asks for more, and refuses until it has that
        with suppress(pika.exceptions.NackError):
            channel.basic_publish("", queue, b"x")
            passed += 1
    connection.close()


def quotas(topic: str, rate: float = RATE) -> dict[str, object]:
    quota = {"protocol": "amqp", "topic": topic, "messages": {"rate": rate, "burst": BURST, "hourly": HOURLY}}
    return {"version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "test", "quotas": [quota]}


def raised_quotas(gateway: Gateway) -> float:
    (sample,) = [each for each in gateway.samples() if each.name == "sluice_quotas_raised"]
    return sample.value


Clocked = Callable[..., tuple[Gateway, Callable[[float], None]]]


@pytest.fixture
def clocked(rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clocked:
    """Starts a gateway, and gives the function that says how many seconds have passed more."""
    passed = tmp_path / "passed"
    passed.write_text("0")
    monkeypatch.setenv("SLUICE_COMMAND", shlex.join([sys.executable, str(clocked_gateway.__file__), str(passed)]))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def start(workers: int, rules: list[dict[str, object]] = RULES, **quotas: object) -> tuple[Gateway, Callable[[float], None]]:
        listeners = [amqp_listener(f"127.0.0.1:{rabbitmq.port}")]
        own = {"name": "hours", "state_directory": "state", "workers": workers}
        return start_gateway(listeners, rules, gateway=own, quotas=quotas), lambda seconds: replace(passed, seconds)

    return start


def replace(file: Path, seconds: float) -> None:
    """At once: the gateway reads it all the time."""
    file.with_suffix(".new").write_text(str(round(seconds)))
    file.with_suffix(".new").rename(file)


def level_of(gateway: Gateway, queue: Queue) -> dict[str, object]:
    levels = gateway.get(limit_path("amqp", "/", "amq.default", queue.name))["levels"]
    (found,) = [each for each in levels if each["per"] == "topic"]
    return {"origin": found["origin"], "limit": found["limit"]["messages"], "burst": found["limit"]["messages_burst"]}


def test_a_surge_raises_its_quota_within_seconds_and_no_longer_than_it_lasts(rabbitmq: RabbitMQ, clocked: Clocked) -> None:
    cap: dict[str, object] = {"name": "broker", "per": "listener", "limit": {"messages": "1000/s"}}
    gateway, after = clocked(2, [*RULES, cap], surge_raise="on")
    with Queue(rabbitmq.url, "orders-of-a-surge") as queue:
        topic = f"%2F/amq.default/{queue.name}"
        assert gateway.put("/v1/quotas", quotas(topic, rate=1.0)).status == 200
        publish(gateway.amqp_url(), queue.name)
        wait_until(lambda: gateway.messages_by_fate("amqp", topic)["forwarded"] == SENT, within=30, what="all are counted")
        after(10)
        wait_until(lambda: level_of(gateway, queue)["origin"] == "quota+hour", within=30, what="the quota is raised")
        assert raised_quotas(gateway) == 1
        after(90)
        wait_until(lambda: level_of(gateway, queue)["origin"] == "quota", within=30, what="the surge is over")
        assert raised_quotas(gateway) == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_quota_is_raised_by_what_the_last_hour_asked_for(rabbitmq: RabbitMQ, clocked: Clocked, workers: int) -> None:
    gateway, after = clocked(workers, hourly_raise="on")
    with Queue(rabbitmq.url, "orders-of-an-hour") as queue:
        topic = f"%2F/amq.default/{queue.name}"
        assert gateway.put("/v1/quotas", quotas(topic)).status == 200

        def level() -> dict[str, object]:
            return level_of(gateway, queue)

        def hours(number: int) -> None:
            after(number * HOUR_S)

        assert level()["origin"] == "quota"
        publish(gateway.amqp_url(), queue.name)
        wait_until(lambda: gateway.messages_by_fate("amqp", topic)["forwarded"] == SENT, within=30, what="all are counted")
        hours(1)
        wait_until(lambda: level()["origin"] == "quota+hour", within=30, what="the quota is raised")
        raised = level()
        assert float(str(raised["limit"]).removesuffix("/s")) == pytest.approx(HOURLY * SENT / HOUR_S, rel=0.05)
        assert BURST * 2.3 < float(str(raised["burst"])) <= BURST * 2.5 + 1
        assert raised_quotas(gateway) == 1
        assert "quotas_raised" in gateway.log()
        published = gateway.get("/v1/quotas")["quotas"][0]["messages"]
        assert published == {"rate": RATE, "burst": BURST, "hourly": 3}, "what was published is not touched"
        hours(2)
        wait_until(lambda: level()["origin"] == "quota", within=30, what="the demand is gone, and the raise with it")
        assert raised_quotas(gateway) == 0
        hours(3)
        publish(gateway.amqp_url(), queue.name)
        wait_until(lambda: gateway.messages_by_fate("amqp", topic)["forwarded"] == 2 * SENT, within=30, what="all are counted")
        hours(4)
        wait_until(lambda: level()["origin"] == "quota+hour", within=30, what="the quota is raised again")
        gateway.stop()
        gateway.start()
        assert level()["origin"] == "quota", "a restart begins with the published quotas"
