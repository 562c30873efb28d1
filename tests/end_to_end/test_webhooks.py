"""Limits reached and recovered as receivers get to know of them: a whole gateway, a stand-in for its broker, a flood."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.alertmanager import Alertmanager
from support.brokers.stand_ins import rabbitmq
from support.floods import AMQPFlood
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import wait_until
from support.receivers import Receiver

logging.getLogger("pika").setLevel(logging.ERROR)  # it writes a line for every nack

RULES: list[dict[str, object]] = [
    {"name": "orders", "match": {"protocol": "amqp", "exchange": "orders"}, "per": "topic", "limit": {"messages": "20/s"}}
]
TOPIC = "%2F/orders/order.created"
SECRET = "token-of-the-receiver-0123456789"


@pytest.fixture
def broker() -> Iterator[str]:
    with rabbitmq() as running:
        yield running.address


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


def results(gateway: Gateway, webhook: str) -> dict[str, float]:
    """`sluice_webhook_requests_total`, by result."""
    return {
        sample.labels["result"]: sample.value
        for sample in gateway.samples()
        if sample.name == "sluice_webhook_requests_total" and sample.labels["webhook"] == webhook
    }


def events(gateway: Gateway) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gateway.log().splitlines() if line.startswith('{"ts": ')]


def test_a_limit_reached_and_recovered_is_told_though_the_receiver_is_away_at_first(
    start_gateway: StartGateway, broker: str, receiver: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(SECRET)
    receiver.statuses = [503, 503]
    webhook = {"url": receiver.url, "name": "ops", "token_file": str(tmp_path / "token")}
    gateway = start_gateway([amqp_listener(broker)], RULES, webhooks=[webhook])
    with AMQPFlood(gateway.port("rabbit")):
        receiver.wait_for(lambda: (TOPIC, "firing") in receiver.states(), "the limit is told as reached")
        assert [one.status for one in receiver.posted[:3]] == [503, 503, 200]
    receiver.wait_for(lambda: (TOPIC, "resolved") in receiver.states(), "the limit is told as recovered")
    first, last = receiver.taken()[0], receiver.taken()[-1]
    assert (first["status"], last["status"], last["receiver"]) == ("firing", "resolved", "ops")
    assert first["alerts"][0]["annotations"]["command"] == "sluice why amqp / orders order.created"
    assert first["alerts"][0]["fingerprint"] == last["alerts"][0]["fingerprint"]
    assert first["alerts"][0]["startsAt"] <= last["alerts"][0]["startsAt"] < last["alerts"][0]["endsAt"]
    assert receiver.posted[0].fields["authorization"] == f"Bearer {SECRET}"
    wait_until(lambda: results(gateway, "ops")["ok"] >= 2, within=30, what="the gateway has read the receiver's answers")
    counted = results(gateway, "ops")
    assert (counted["failed"], counted["rejected"]) == (2, 0)
    said = [event["event"] for event in events(gateway) if str(event["event"]).startswith("webhook")]
    assert said == ["webhook_failed", "webhook_recovered"]
    configuration = gateway.cli("config", "show", "-c", str(gateway.config)).stdout
    assert receiver.url.replace("/hook", "/…") in configuration
    assert SECRET not in configuration + gateway.log() + json.dumps(gateway.get("/v1/config"))


def test_a_reload_brings_a_receiver_and_closes_no_connection_and_a_stop_resolves_what_fires(
    start_gateway: StartGateway, broker: str, receiver: Receiver
) -> None:
    """A receiver that is mute holds up neither: tests/admin/alerting/test_webhooks.py, test_hostile_peers.py."""
    gateway = start_gateway([amqp_listener(broker)], RULES)
    with AMQPFlood(gateway.port("rabbit")):
        wait_until(lambda: bool(gateway.get("/v1/connections")["items"]), within=60, what="the flood is connected")
        before = gateway.get("/v1/connections")["items"]
        configuration = yaml.safe_load(gateway.config.read_text())
        configuration["webhooks"] = [{"url": receiver.url}]
        gateway.config.write_text(yaml.safe_dump(configuration))
        gateway.cli("reload")
        receiver.wait_for(lambda: (TOPIC, "firing") in receiver.states(), "the new receiver is told")
        assert [one["id"] for one in gateway.get("/v1/connections")["items"]] == [one["id"] for one in before]
        assert gateway.stop() == 0
    assert receiver.states()[-1] == (TOPIC, "resolved")
    assert "The gateway has stopped" in receiver.taken()[-1]["alerts"][0]["annotations"]["description"]


def test_workers_have_one_alert_for_a_limit_that_several_of_them_are_over(
    start_gateway: StartGateway, broker: str, receiver: Receiver
) -> None:
    gateway = start_gateway(
        [amqp_listener(broker)], RULES, webhooks=[{"url": receiver.url, "name": "ops"}],
        gateway={"name": "end-to-end", "state_directory": "state", "workers": 2},
    )  # fmt: skip

    def busy() -> set[int]:
        """The workers that have said that the limit is reached."""
        return {int(event["worker"]) for event in events(gateway) if event["event"] == "limit_reached"}

    with ExitStack() as floods:  # the kernel decides which worker a connection goes to
        for _ in range(20):
            floods.enter_context(AMQPFlood(gateway.port("rabbit")))
            if {int(one["worker"]) for one in gateway.get("/v1/connections")["items"]} == {1, 2}:
                break
        wait_until(lambda: busy() == {1, 2}, within=60, what="both workers are over the limit")
        receiver.wait_for(lambda: (TOPIC, "firing") in receiver.states(), "the limit is told as reached")
    receiver.wait_for(lambda: (TOPIC, "resolved") in receiver.states(), "the limit is told as recovered")
    assert {len(body["alerts"]) for body in receiver.taken()} == {1}
    told = [status for _, status in receiver.states()]
    assert told == ["firing", "resolved"] * (len(told) // 2)  # twice, where a busy machine kept all floods still for two seconds
    counted = {"ok": len(told), "failed": 0, "rejected": 0}
    wait_until(lambda: results(gateway, "ops") == counted, within=30, what="each answer of the receiver is counted")


def test_alertmanager_takes_alerts_and_their_end(start_gateway: StartGateway, broker: str, receiver: Receiver, tmp_path: Path) -> None:
    with Alertmanager(tmp_path / "alertmanager", receiver.url) as alertmanager:
        webhooks: list[dict[str, object]] = [{"url": alertmanager.url, "format": "alertmanager", "name": "am"}]
        with Receiver() as direct:
            gateway = start_gateway([amqp_listener(broker)], RULES, webhooks=[*webhooks, {"url": direct.url}])
            with AMQPFlood(gateway.port("rabbit")):
                wait_until(lambda: bool(alertmanager.alerts()), within=60, what="Alertmanager has the alert")
                direct.wait_for(lambda: bool(direct.taken()), "our own message")
                (alert,) = alertmanager.alerts()
                ours = direct.taken()[0]["alerts"][0]
                assert alert["labels"] == ours["labels"]
                assert alert["fingerprint"] == ours["fingerprint"]
                assert alert["annotations"]["command"] == "sluice why amqp / orders order.created"
                assert alert["status"]["state"] in {"active", "unprocessed"}
                receiver.wait_for(lambda: (TOPIC, "firing") in receiver.states(), "Alertmanager passes it on")
            receiver.wait_for(lambda: (TOPIC, "resolved") in receiver.states(), "Alertmanager passes its end on")
            direct.wait_for(lambda: (TOPIC, "resolved") in direct.states(), "our own message of the end")
            theirs, own = receiver.taken()[0], direct.taken()[0]
            assert results(gateway, "am")["rejected"] == 0
            # A message of Alertmanager's own has the same fields as ours, with values of the same types.
            assert shape(theirs) == shape(own)
            assert theirs["groupKey"] == own["groupKey"]


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value)
