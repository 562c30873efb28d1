"""Senders that go on until they are told to stop, so that a gateway has something to limit while one looks at it."""

from __future__ import annotations

import socket
import threading
import time
from abc import ABC, abstractmethod
from contextlib import closing, suppress
from typing import Final, NamedTuple

import pika
import pika.exceptions

from support.processes import LOOPBACK
from support.rocketmq.frames import send

PAUSE_S: Final = 0.05  # seconds; between two bursts


class Flood(ABC):
    """Sends a burst every PAUSE_S seconds, on a thread, until the end of the `with`."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @abstractmethod
    def connect(self) -> None: ...

    @abstractmethod
    def burst(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def _run(self) -> None:
        self.connect()
        with suppress(OSError, pika.exceptions.AMQPError):  # the gateway may end first
            while not self._stop.wait(PAUSE_S):
                self.burst()
        with suppress(OSError, pika.exceptions.AMQPError):
            self.close()

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)


class AMQPFlood(Flood):
    """Publishes `messages` at once, which is 80 a second; what is refused is not repeated.

    With confirms each message is a round trip of pika's, so more would take the processor from what is looked at.
    """

    def __init__(
        self,
        port: int,
        exchange: str = "orders",
        key: str = "order.created",
        messages: int = 4,
        properties: pika.BasicProperties | None = None,
        *,
        user: str = "shop",
        confirms: bool = True,
    ) -> None:
        super().__init__()
        self._confirms = confirms
        self._target = exchange, key, b"x" * 200, properties
        self._messages = messages
        self._parameters = pika.URLParameters(f"amqp://{user}:secret@{LOOPBACK}:{port}/%2F")
        self._parameters.client_properties = {"connection_name": "checkout"}

    def connect(self) -> None:
        self._connection = pika.BlockingConnection(self._parameters)
        self._channel = self._connection.channel()
        if self._confirms:
            self._channel.confirm_delivery()

    def burst(self) -> None:
        for _ in range(self._messages):
            with suppress(pika.exceptions.NackError):
                self._channel.basic_publish(*self._target)

    def close(self) -> None:
        self._connection.close()


class RocketMQFlood(Flood):
    """Sends `messages` at once; the answers are read and not looked at."""

    def __init__(self, port: int, topic: str = "orders", messages: int = 10) -> None:
        super().__init__()
        self._port = port
        self._sends = b"".join(send(topic, opaque=number + 1) for number in range(messages))

    def connect(self) -> None:
        self._client = socket.create_connection((LOOPBACK, self._port))
        self._reader = threading.Thread(target=_drain, args=(self._client,), daemon=True)
        self._reader.start()

    def burst(self) -> None:
        self._client.sendall(self._sends)

    def close(self) -> None:
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
        self._reader.join(10)
        self._client.close()


def _drain(client: socket.socket) -> None:
    with suppress(OSError):
        while client.recv(65536):
            pass


class Counted(NamedTuple):
    """What became of a flood: messages confirmed and nacked, and the seconds from before its first message until after its last."""

    confirmed: int
    refused: int
    seconds: float


def flood_until_refused(url: str, exchange: str, key: str, *, refused: int = 100, most: int = 20_000) -> Counted:
    """Publish with confirms, one message after the other, until so many were nacked, or `most` were published."""
    passed = nacked = 0
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        begun = time.monotonic()
        while nacked < refused and passed < most:
            try:
                channel.basic_publish(exchange, key, b"x" * 200)
                passed += 1
            except pika.exceptions.NackError:
                nacked += 1
        return Counted(passed, nacked, time.monotonic() - begun)
