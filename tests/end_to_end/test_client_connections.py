"""Nine client libraries turned away because there are too many connections: what the application sees, and that it gets in afterwards.

The refusal is `connection.close` in answer to `connection.open`, where RabbitMQ itself says that a user or a virtual host has too many.
Three libraries do not show the reply there: they are surprised by it, or guess another reason. It is the same directly at the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pika
import pytest

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.probes import LIBRARIES, Probe
from support.gateways import Gateway, amqp_listener
from support.processes import wait_until

pytestmark = pytest.mark.rabbitmq

REASONS = {
    "max_connections": (320, "CONNECTION_FORCED - max_connections of listener "),
    "max_connections_per_address": (320, "CONNECTION_FORCED - max_connections_per_address of listener "),
    "max_connections_per_user": (530, "NOT_ALLOWED - connection refused for user 'guest': max_connections_per_user of listener "),
}
SEEN = {  # 320, 530
    "pika": ("ProbableAccessDeniedError", "ProbableAccessDeniedError"),
    "aio-pika": ("InvalidFrameError", "InvalidFrameError"),
    "amqpstorm": ("AMQPConnectionError", "AMQPConnectionError"),
    "py-amqp": ("ConnectionForced", "NotAllowed"),
    "amqplib": ("Error", "Error"),
    "bunny": ("Bunny::ConnectionForced", "Bunny::NotAllowedError"),
    "java": ("IOException of ShutdownSignalException", "IOException of ShutdownSignalException"),
    "go": ("Dial", "Dial"),
    "librabbitmq": ("connection.close", "connection.close"),
}
OTHER_WORDS = {  # what those say that do not show the reply
    "aio-pika": "Expected one of ['Connection.OpenOk'], got <Connection.Close object",
    "amqplib": "Expected ConnectionOpenOk; got <ConnectionClose channel:0>",
}


@pytest.fixture(scope="module")
def gateway(rabbitmq: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A listener for each setting, with room for one connection."""
    upstream = f"127.0.0.1:{rabbitmq.port}"
    listeners = [amqp_listener(upstream, **{setting: 1}) | {"name": setting.replace("_", "-")} for setting in REASONS]
    with Gateway(tmp_path_factory.mktemp("connections"), listeners, []) as running:
        yield running


@pytest.mark.parametrize("setting", REASONS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_one_connection_too_many_is_refused_and_the_next_gets_in(
    setting: str, library: str, rabbitmq: RabbitMQ, gateway: Gateway, probe: Callable[[str], Probe]
) -> None:
    listener = setting.replace("_", "-")
    url = gateway.amqp_url(listener)
    code, reason = REASONS[setting]

    def nobody_is_connected() -> bool:
        return all(shown["connections_active"] == 0 for shown in gateway.get("/v1/listeners")["items"])

    def refused_here() -> int:
        (shown,) = [each for each in gateway.get("/v1/listeners")["items"] if each["name"] == listener]
        return int(shown["connections_refused"].get(setting, 0))

    before = refused_here()
    with ExitStack() as stack:
        free = stack.enter_context(Queue(rabbitmq.url, f"free.{library}"))
        queue = stack.enter_context(Queue(rabbitmq.url, f"queue.{library}"))
        with pika.BlockingConnection(pika.URLParameters(url)) as only:
            refused = probe(library).ask(url=url, key=queue.name, free=free.name, run="m").refused
            only.channel().close()
        assert refused is not None, "the connection was accepted"
        assert refused["class"] == SEEN[library][code == 530]
        assert OTHER_WORDS.get(library, reason) in refused["text"]
        wait_until(lambda: refused_here() == before + 1, within=30, what="the refusal is counted")
        wait_until(nobody_is_connected, within=30, what="the connections are gone")
        report = probe(library).ask(url=url, key=queue.name, free=free.name, run="m")
        assert (report.refused, report.seen, report.other) == (None, ["ack"], "ok")
        wait_until(nobody_is_connected, within=30, what="the connections are gone")
