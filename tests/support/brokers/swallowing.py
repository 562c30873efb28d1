"""Brokers that take every message and keep none, and producers at a steady rate: real traffic without a real broker."""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Thread

import pika
import pika.exceptions
from pamqp import commands, frame, header
from pamqp.common import FieldTable

from support.processes import LOOPBACK
from support.rocketmq.frames import response, send

TURN_S = 0.02  # seconds; between two writes of a producer


class SwallowingBroker:
    """One protocol's broker on a port of its own; a context manager."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._listening = socket.create_server((LOOPBACK, 0), backlog=64)
        self.address = f"{LOOPBACK}:{self._listening.getsockname()[1]}"
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, EOFError):
            self._serve(connection)

    def __enter__(self) -> SwallowingBroker:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # which wakes the thread that waits in accept
        self._listening.close()


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def rocketmq(connection: socket.socket) -> None:
    """Answers each request with success."""
    while True:
        length, word = struct.unpack(">II", _exactly(connection, 8))
        rest = _exactly(connection, length - 4)
        head = rest[: word & 0xFFFFFF]
        if word >> 24:
            (opaque,) = struct.unpack_from(">i", head, 5)
        else:
            opaque = int(head.partition(b'"opaque":')[2].partition(b",")[0])
        connection.sendall(response(opaque))


def amqp(connection: socket.socket) -> None:
    """Confirms each message of a channel in confirm mode."""
    if _exactly(connection, 8) != b"AMQP\0\0\x09\x01":
        return
    capabilities: FieldTable = {"publisher_confirms": True, "basic.nack": True}
    _tell(connection, 0, commands.Connection.Start(0, 9, {"product": "swallowing", "capabilities": capabilities}, "PLAIN", "en_US"))
    confirming, published = False, 0
    while True:
        start = _exactly(connection, 7)
        data = start + _exactly(connection, int.from_bytes(start[3:7], "big") + 1)
        _, channel, method = frame.unmarshal(data)
        name = getattr(method, "name", "")
        if isinstance(method, header.ContentHeader) and confirming:
            published += 1
            _tell(connection, channel, commands.Basic.Ack(published))
        elif name == "Connection.StartOk":
            _tell(connection, 0, commands.Connection.Tune(100, 131072, 0))
        elif name == "Connection.Close":
            _tell(connection, 0, commands.Connection.CloseOk())
            return
        elif name in ANSWERS:
            confirming = confirming or name == "Confirm.Select"
            _tell(connection, channel, ANSWERS[name]())


ANSWERS = {
    "Connection.Open": commands.Connection.OpenOk,
    "Channel.Open": commands.Channel.OpenOk,
    "Channel.Close": commands.Channel.CloseOk,
    "Confirm.Select": commands.Confirm.SelectOk,
}


def _tell(connection: socket.socket, channel: int, method: frame.FrameTypes) -> None:
    connection.sendall(frame.marshal(method, channel))


class Producer:
    """A thread that sends at a steady rate until the end. A context manager."""

    def __init__(self, work: Callable[[Event], None]) -> None:
        self._over = Event()
        self._thread = Thread(target=work, args=(self._over,), daemon=True)

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(20)


def rocketmq_producer(port: int, topics: Sequence[tuple[str, float]], size: int = 200) -> Producer:
    """Sends to each topic so many messages a second, by the clock: a stall is made up for. One-way answers are read and thrown away."""

    def work(over: Event) -> None:
        with socket.create_connection((LOOPBACK, port)) as connection:
            Thread(target=_drain, args=(connection,), daemon=True).start()
            began, sent, opaque = time.monotonic(), [0] * len(topics), 0
            while not over.wait(TURN_S):
                elapsed = time.monotonic() - began
                for at, (topic, rate) in enumerate(topics):
                    due = int(elapsed * rate) - sent[at]
                    data = b"".join(send(topic, b"x" * size, opaque=opaque + number) for number in range(due))
                    opaque, sent[at] = opaque + due, sent[at] + due
                    connection.sendall(data)

    return Producer(work)


def _drain(connection: socket.socket) -> None:
    with suppress(OSError):
        while connection.recv(1 << 16):
            pass


def amqp_producer(url: str, names: Sequence[tuple[str, str]], rate: float, connection_name: str = "checkout-7") -> Producer:
    """Publishes to each exchange and routing key in turn, with confirms, at most `rate` messages a second in all."""

    def work(over: Event) -> None:
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # it writes a line per refused message
        parameters = pika.URLParameters(url)
        parameters.client_properties = {"connection_name": connection_name}
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        channel.confirm_delivery()
        number = 0
        while not over.wait(1 / rate):
            exchange, key = names[number % len(names)]
            number += 1
            with suppress(pika.exceptions.NackError):
                channel.basic_publish(exchange, key, b"x" * 100)
        connection.close()

    return Producer(work)
