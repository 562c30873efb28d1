"""A publisher with confirms on pika's SelectConnection (its streaming adapter). Same output as the Go one, one line of JSON.

pika_publish.py URL EXCHANGE KEY RUN COUNT SIZE WINDOW
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import Any

import pika
import pika.exceptions

PATIENCE_S = 240.0  # for all of it: how long a busy machine takes is not what is tested


class Publisher:
    """One connection, one channel; at most `window` unconfirmed messages at a time."""

    def __init__(self, url: str, exchange: str, key: str, run: str, count: int, size: int, window: int) -> None:
        self.exchange, self.key, self.run, self.count, self.window = exchange, key, run, count, window
        self.padding = b"." * size
        self.outcomes = bytearray(b"?" * count)
        self.sent = 0
        self.lowest = 0  # the first tag without an answer is lowest + 1
        self.outstanding = 0
        self.multiple = 0
        self.closed = ""
        self.channel: Any = None
        self.connection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=self.opened,
            on_close_callback=self.ended,
            on_open_error_callback=self.ended,
        )

    def opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self.channel_opened)
        connection.ioloop.call_later(PATIENCE_S, partial(self.finish, connection))

    def channel_opened(self, channel: Any) -> None:
        self.channel = channel
        channel.confirm_delivery(self.confirmed, callback=lambda _: self.publish())

    def publish(self) -> None:
        while self.sent < self.count and self.outstanding < self.window:
            identity = f"{self.run}-0-{self.sent}"
            body = (identity.encode() + self.padding)[: max(len(self.padding), len(identity))]
            self.channel.basic_publish(self.exchange, self.key, body, pika.BasicProperties(message_id=identity))
            self.sent += 1
            self.outstanding += 1

    def confirmed(self, frame: Any) -> None:
        answer = frame.method
        letter = ord("A") if answer.NAME == "Basic.Ack" else ord("N")
        self.multiple += bool(answer.multiple)
        for tag in range(self.lowest + 1 if answer.multiple else answer.delivery_tag, answer.delivery_tag + 1):
            if self.outcomes[tag - 1] == ord("?"):
                self.outcomes[tag - 1] = letter
                self.outstanding -= 1
        while self.lowest < self.count and self.outcomes[self.lowest] != ord("?"):
            self.lowest += 1
        if self.lowest == self.count:
            self.finish(self.connection)
        else:
            self.publish()

    @staticmethod
    def finish(connection: Any) -> None:
        if connection.is_open:
            connection.close()

    def ended(self, connection: Any, reason: BaseException) -> None:
        if not isinstance(reason, pika.exceptions.ConnectionClosedByClient):
            self.closed = repr(reason)
        connection.ioloop.stop()


def main() -> None:
    url, exchange, key, run, count, size, window = sys.argv[1:]
    started = time.time()
    publisher = Publisher(url, exchange, key, run, int(count), int(size), int(window))
    publisher.connection.ioloop.start()
    print(
        json.dumps(
            {
                "sent": publisher.sent,
                "outcomes": [publisher.outcomes.decode()],
                "multiple": publisher.multiple,
                "closed": [publisher.closed],
                "elapsed_s": time.time() - started,
            }
        )
    )


if __name__ == "__main__":
    main()
