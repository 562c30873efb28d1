"""Takes numbered messages out of a queue at the broker itself, several times as fast as a library does: tests drain thousands."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from pamqp import commands

from support.amqp import frames as amqp
from support.amqp.numbered_publisher import CLOSES, number_of

if TYPE_CHECKING:
    from support.brokers.queues import Queue

CALM_S: Final = 0.5  # seconds; in which nothing more came once all that is expected has
PATIENCE_S: Final = 20.0  # seconds; without a message while some that are expected have not come
UNKNOWN_S: Final = 2.0  # seconds; without a message where their number is not known: what a killed gateway sent may still be on its way
METHOD, HEADER, BODY = 1, 2, 3


class Arrived(NamedTuple):
    number: int
    size: int  # bytes of the body


def take_all(queue: Queue, expected: int | None = None) -> list[Arrived]:
    """Everything in the queue, in order; taken out.

    Until so many have come as are `expected`, and nothing more came in CALM_S; fewer than that are returned after PATIENCE_S. Where it is
    not known how many are expected (None): until nothing came in UNKNOWN_S. In each case the queue is empty then.
    """
    broker = urlsplit(queue.url)
    assert broker.hostname is not None
    with closing(socket.create_connection((broker.hostname, broker.port or 5672), timeout=PATIENCE_S)) as connection:
        words = amqp.greeting(user="guest", password="guest", heartbeat=0, channels=(1,))
        connection.sendall(words + amqp.method(1, commands.Basic.Consume(queue=queue.name, consumer_tag="c", no_ack=True)))
        found: list[Arrived] = []
        silent = 0.0
        incoming = _messages(connection)
        while True:
            message = next(incoming)
            if message is not None:
                found.append(message)
                silent = 0.0
                continue
            silent += CALM_S
            calm = UNKNOWN_S if expected is None else CALM_S if len(found) >= expected else PATIENCE_S
            if silent >= calm and queue.depth() == 0:
                return found


def _messages(connection: socket.socket) -> Iterator[Arrived | None]:
    """Each message, and None for each CALM_S without a byte. Raises ConnectionError where the broker ends the connection."""
    connection.settimeout(CALM_S)
    rest = b""
    missing = 0
    parts: list[bytes] = []
    while True:
        try:
            data = connection.recv(1 << 18)
        except TimeoutError:
            yield None
            continue
        if not data:
            raise ConnectionError(f"the broker has ended the connection, after {rest[-200:]!r}")
        rest += data
        at = 0
        while at + 8 <= len(rest) and at + (size := int.from_bytes(rest[at + 3 : at + 7], "big")) + 8 <= len(rest):
            kind, payload = rest[at], rest[at + 7 : at + 7 + size]
            at += size + 8
            if kind == METHOD and payload[:4] in CLOSES:
                raise ConnectionError(f"the broker has closed: {payload[7:]!r}")
            if kind == HEADER:
                parts, missing = [], int.from_bytes(payload[4:12], "big")
            elif kind == BODY:
                parts.append(payload)
                missing -= size
                if missing == 0:
                    body = b"".join(parts)
                    yield Arrived(number_of(body), len(body))
        rest = rest[at:]
