"""What tells after a fault that it is over: a client that was not there before is served (docs/reliability.md, I8)."""

from __future__ import annotations

import contextlib

import pika

from support.gateways import Gateway
from support.processes import wait_until

PROBE = "probe"  # the message's id


def expect_confirm(gateway: Gateway, queue: str, *, within: float = 20.0) -> None:
    """A fresh client publishes to the queue and gets its confirm."""

    def confirmed() -> bool:
        with contextlib.suppress(pika.exceptions.AMQPError, OSError):
            with contextlib.closing(pika.BlockingConnection(pika.URLParameters(gateway.amqp_url() + "?socket_timeout=5"))) as fresh:
                channel = fresh.channel()
                channel.confirm_delivery()
                channel.basic_publish("", queue, b"x", pika.BasicProperties(message_id=PROBE))
            return True
        return False

    wait_until(confirmed, within=within, what="a fresh client's confirm after the fault")
