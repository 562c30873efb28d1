"""What operators see and do by the command line, on a running gateway: who is held by what, listeners, a reload tried out, the audit."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from typing import Any

import pika
import pytest

from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import wait_until

pytestmark = pytest.mark.rabbitmq


def rule(rate: str) -> dict[str, object]:
    limit = {"messages": rate, "burst": "1s"}
    return {"name": "slow", "match": {"protocol": "amqp", "queue": "slow.jobs"}, "per": "topic", "limit": limit, "max_delay": "8s"}


def asked(gateway: Gateway, *words: str) -> Any:
    return json.loads(gateway.cli("-o", "json", *words).stdout)


def test_a_held_connection_is_found_by_its_name_and_shown_with_the_rule_that_holds_it(
    rabbitmq: RabbitMQ, start_gateway: StartGateway
) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}", max_connections_per_address=7)], [rule("1/s")])
    wait_until(lambda: '"listening"' in gateway.log(), within=30, what="the line about it, which comes after it is ready")
    (listening,) = [line for line in map(json.loads, gateway.log().splitlines()) if line.get("event") == "listening"]
    assert (listening["tls"], listening["send_proxy_protocol"], listening["max_connections_per_address"]) == (False, "none", 7)
    parameters = pika.URLParameters(gateway.amqp_url())
    parameters.client_properties = {"connection_name": "checkout-7"}
    with closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        for _ in range(5):
            channel.basic_publish("", "slow.jobs", b"x")
        connection.process_data_events(0)
        wait_until(lambda: gateway.get("/v1/connections")["items"][0]["held_by"], within=30, what="something is held")
        table = gateway.cli("connections", "list", "-q", "checkout").stdout.splitlines()[1]
        assert all(word in table.split() for word in ("checkout-7", "limit", "slow", "%2F/amq.default/slow.jobs"))
        assert asked(gateway, "connections", "list", "-q", "nobody") == []
        (listener,) = asked(gateway, "listeners")
        assert (listener["seats"]["taken"], listener["upstream_reachable"], listener["max_connections_per_address"]) == (1, True, 7)
        assert listener["seats"]["most"] > 100, "the descriptors' limit, where max_connections is not set"


def test_a_reload_tried_out_changes_nothing_and_what_was_done_is_in_the_audit(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [rule("1/s")])

    def in_force() -> str:
        (found,) = asked(gateway, "rules", "list")["items"]
        return str(found["limit"]["messages"])

    gateway.write_rules([rule("9/s")])
    tried = gateway.cli("reload", "--dry-run")
    assert tried.stdout == "would be in force: rule slow: limit.messages: 1/s -> 9/s\n"
    assert in_force() == "1/s"
    gateway.write_rules([rule("9 bananas")])
    assert gateway.cli("reload", "--dry-run", check=False).returncode == 3
    assert "sluice_config_last_reload_successful 1" in gateway.request("GET", "/metrics").text, "a trial is no reload"
    gateway.write_rules([rule("9/s")])
    gateway.cli("reload", "--reason", "more bananas")
    assert in_force() == "9/s"
    entries = [(entry["action"], entry["outcome"], entry.get("reason")) for entry in asked(gateway, "audit")]
    assert entries == [("POST /v1/config:reload", "done", "more bananas"), ("POST /v1/config:reload", "refused", None)]


@pytest.mark.parametrize("workers", [1, 2])
def test_who_it_is_is_told_over_all_topics_and_still_when_the_client_has_gone(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, workers: int
) -> None:
    """One application floods two queues with confirms, another one a third without; a viewer asks without naming a topic."""
    limited = {
        "name": "few",
        "match": {"protocol": "amqp", "routing_key": "who.#"},
        "per": "topic",
        "limit": {"messages": "1/s", "burst": "2s"},
    }
    gateway: Gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [limited], gateway={"workers": workers})
    viewer = gateway.cli("token", "new", "colleague", "--role", "viewer").stdout.strip().splitlines()[-1].split()[-1]

    def ranking() -> dict[str, dict[str, Any]]:
        items = gateway.request("GET", "/v1/clients", authorised=False, Authorization=f"Bearer {viewer}").json["items"]
        return {name: item for item in items for name in item["names"]}

    parameters = pika.URLParameters(gateway.amqp_url())
    parameters.client_properties = {"connection_name": "checkout-7"}
    with closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(80):
            with suppress(pika.exceptions.NackError):
                channel.basic_publish("", "who.orders" if number % 4 else "who.bills", b"x")
        wait_until(lambda: ranking().get("checkout-7", {}).get("refused", 0) > 60, within=30, what="all is counted")
        (item,) = [each for each in asked(gateway, "clients") if "checkout-7" in each["names"]]
        assert (item["client"], item["user"], item["listener"], item["protocol"]) == ("127.0.0.1", "guest", "rabbit", "amqp")
        assert (item["topic"], item["operation"]) == ("%2F/amq.default/who.orders", "produce")
        assert 60 < item["refused"] < 80
    wait_until(lambda: gateway.get("/v1/connections")["total"] == 0, within=30, what="the client has gone")
    (library,) = ranking()["checkout-7"]["libraries"]
    assert (library["product"], library["version"]) == ("Pika Python Client Library", pika.__version__)
    line = next(line for line in gateway.cli("clients").stdout.splitlines() if "checkout-7" in line)
    assert f"pika {pika.__version__}" in line
