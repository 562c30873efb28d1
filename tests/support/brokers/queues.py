"""A queue at the broker itself, never through the gateway: where tests look up what has really arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pika

from support.processes import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENTLY = f"heartbeat=0&socket_timeout={HANG_S}&stack_timeout={HANG_S}"


def connect(url: str) -> pika.BlockingConnection:
    """A connection that a broker does not end while a slow test leaves it alone."""
    return pika.BlockingConnection(pika.URLParameters(f"{url}?{PATIENTLY}"))


class Queue:
    """A fresh, unbound or bound queue; deleted at the end. The default exchange routes to it by its name."""

    def __init__(self, url: str, name: str, *, exchange: str | None = None, keys: tuple[str, ...] = ()) -> None:
        self.url = url
        self.name = name
        self.exchange = exchange
        self.keys = keys
        self._connection: Any = None
        self._channel: Any = None

    def __enter__(self) -> Queue:
        self._connection = connect(self.url)
        self._channel = self._connection.channel()
        self._channel.queue_declare(self.name, durable=False)
        self._channel.queue_purge(self.name)
        if self.exchange is not None:
            self._channel.exchange_declare(self.exchange, "topic", durable=False)
            for key in self.keys:
                self._channel.queue_bind(self.name, self.exchange, key)
        return self

    def fill(self, count: int, body: bytes) -> None:
        for _ in range(count):
            self._channel.basic_publish("", self.name, body)

    def depth(self) -> int:
        """Messages ready in the queue."""
        return int(self._channel.queue_declare(self.name, passive=True).method.message_count)

    def messages(self, *, idle_s: float = 0.5) -> Iterator[tuple[Any, bytes]]:
        """Take everything out: (properties, body) in order, until nothing has come for `idle_s` and the queue is empty."""
        for method, properties, body in self._channel.consume(self.name, auto_ack=True, inactivity_timeout=idle_s):
            if method is None:
                if self.depth() == 0:
                    break
                continue
            yield properties, body
        self._channel.cancel()

    def drain(self) -> list[str]:
        """The message ids of everything in the queue, in order; they are taken out."""
        return [str(properties.message_id) for properties, _ in self.messages()]

    def contents(self) -> list[str]:
        """The message ids of what is ready now, in order; taken out. For when nothing more can be on its way: it waits for nothing."""
        found: list[str] = []
        while True:
            method, properties, _ = self._channel.basic_get(self.name, auto_ack=True)
            if method is None:
                return found
            found.append(str(properties.message_id))

    def __exit__(self, *_: object) -> None:
        if self._connection.is_open:
            self._channel.queue_delete(self.name)
            if self.exchange is not None:
                self._channel.exchange_delete(self.exchange)
            self._connection.close()
