"""A gateway with something to look at: both protocols, stand-ins for the brokers, and floods that its limits refuse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from support.brokers.stand_ins import rabbitmq, rocketmq
from support.floods import AMQPFlood, RocketMQFlood
from support.gateways import Gateway, amqp_listener
from support.processes import LOOPBACK, wait_until

RULES: list[dict[str, object]] = [
    {"name": "orders", "match": {"protocol": "amqp", "exchange": "orders"}, "per": "topic", "limit": {"messages": "20/s"}},
    {"name": "users", "match": {"protocol": "amqp"}, "per": "user", "limit": {"messages": "1000/s"}},
    {"name": "rocketmq-topics", "match": {"protocol": "rocketmq"}, "per": "topic", "limit": {"messages": "30/s"}},
]
VIEWER = "viewers-token-of-the-tests-0123456789"


class BusyGateway(Gateway):
    """With a second token, of the role viewer, in `viewer_file`."""

    def __init__(self, directory: Path, rabbit: str, rocket: str, rules: list[dict[str, object]]) -> None:
        listeners: list[dict[str, object]] = [
            amqp_listener(rabbit),
            {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": rocket},
        ]
        super().__init__(directory, listeners, rules)
        self.viewer_file = directory / "viewer.token"
        self.viewer_file.write_text(VIEWER)
        self.viewer_file.chmod(0o600)
        configuration = yaml.safe_load(self.config.read_text())
        configuration["admin"]["tokens"] = [{"name": "shop-team", "role": "viewer", "file": "viewer.token"}]
        self.config.write_text(yaml.safe_dump(configuration, sort_keys=False))

    def refuses(self, protocol: str, topic: str) -> bool:
        """Whether the gateway has said that this topic is over its limit."""
        answer = self.get("/v1/events?kind=limit_reached&limit=500")
        return any(event.get("topic") == topic and event.get("protocol") == protocol for event in answer["items"])


@contextmanager
def busy_gateway(directory: Path, rules: list[dict[str, object]] | None = None) -> Iterator[BusyGateway]:
    """Started, with amqp / orders order.created and rocketmq orders over their limits."""
    with ExitStack() as running:
        rabbit, rocket = running.enter_context(rabbitmq()), running.enter_context(rocketmq())
        gateway = BusyGateway(directory, rabbit.address, rocket.address, rules or RULES)
        running.enter_context(gateway)
        running.enter_context(AMQPFlood(gateway.port("rabbit")))
        running.enter_context(RocketMQFlood(gateway.port("rocket")))
        wait_until(lambda: gateway.refuses("amqp", "%2F/orders/order.created"), within=30, what="the AMQP topic is over its limit")
        wait_until(lambda: gateway.refuses("rocketmq", "orders"), within=30, what="the RocketMQ topic is over its limit")
        yield gateway
