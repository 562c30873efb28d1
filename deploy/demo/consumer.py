"""The demo's consumer: `consumer.py URL QUEUE...` reads the queues until SIGTERM, and prints twice a second how many messages have come."""

from __future__ import annotations

import json
import signal
import sys
import time
from types import FrameType
from typing import Any

import pika


def consume(url: str, queues: list[str]) -> None:
    counts = dict.fromkeys(queues, 0)
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    stopping = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    def take(queue: str) -> Any:
        def on_message(_channel: Any, _method: Any, _properties: Any, _body: bytes) -> None:
            counts[queue] += 1

        return on_message

    signal.signal(signal.SIGTERM, stop)
    for queue in queues:
        channel.basic_consume(queue, take(queue), auto_ack=True)
    told = time.monotonic()
    while not stopping:
        connection.process_data_events(time_limit=0.5)
        if time.monotonic() - told >= 0.5:
            told = time.monotonic()
            print(json.dumps(counts), flush=True)
    connection.close()


if __name__ == "__main__":
    consume(sys.argv[1], sys.argv[2:])
