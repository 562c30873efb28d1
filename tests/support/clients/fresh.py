"""A client that goes on through a fault, and one that comes after it and is served (docs/reliability.md, I8)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pika

from support.gateways import Gateway
from support.processes import wait_until

PROBE = "probe"  # the message's id


class Sender:
    """One connection that publishes again and again, each message after the confirm of the one before."""

    def __init__(self, gateway: Gateway, queue: str, *, heartbeat: int = 60) -> None:
        self.confirmed = 0
        self.longest_s = 0.0
        self.failed: Exception | None = None
        self._over = threading.Event()
        self._connection = pika.BlockingConnection(pika.URLParameters(f"{gateway.amqp_url()}?heartbeat={heartbeat}"))
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._queue = queue
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                began = time.monotonic()
                self._channel.basic_publish("", self._queue, b"x")
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                self.confirmed += 1
                time.sleep(0.005)
        except pika.exceptions.AMQPError as error:
            self.failed = error

    @contextlib.contextmanager
    def sending(self) -> Iterator[Sender]:
        self._thread.start()
        try:
            wait_until(lambda: self.confirmed > 10, within=20, what="messages to flow")
            yield self
        finally:
            self._over.set()
            self._thread.join(20)
            with contextlib.suppress(pika.exceptions.AMQPError):
                self._connection.close()
        assert self.failed is None, "its connection stays"


def expect_confirm(gateway: Gateway, queue: str, listener: str = "rabbit", *, within: float = 20.0) -> None:
    """A fresh client publishes to the queue and gets its confirm."""

    def confirmed() -> bool:
        with contextlib.suppress(pika.exceptions.AMQPError, OSError):
            with contextlib.closing(pika.BlockingConnection(pika.URLParameters(gateway.amqp_url(listener) + "?socket_timeout=5"))) as fresh:
                channel = fresh.channel()
                channel.confirm_delivery()
                channel.basic_publish("", queue, b"x", pika.BasicProperties(message_id=PROBE))
            return True
        return False

    wait_until(confirmed, within=within, what="a fresh client's confirm after the fault")
