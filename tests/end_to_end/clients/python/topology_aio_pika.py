"""A topology on aio-pika's robust connection, which restores it by itself. URL COUNT. Runs until it is killed."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from typing import Any

import aio_pika


class Errors(logging.Handler):
    """What the library says went wrong; that its broker is gone, and not there yet, is no fault of the topology."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


async def main() -> None:
    url, count = sys.argv[1], int(sys.argv[2])
    connection: Any = await aio_pika.connect_robust(url, reconnect_interval=0.5)
    channel = await connection.channel()
    for number in range(count):
        await channel.declare_queue(f"topology.{number}", exclusive=True)
    print(json.dumps({"declared": count}), flush=True)
    errors = Errors()
    began = recovered = 0.0
    restored = asyncio.Event()

    def note(*_: Any) -> None:
        nonlocal recovered
        recovered = time.monotonic()
        restored.set()

    def note_loss(*_: Any) -> None:
        nonlocal began
        began = time.monotonic()
        logging.getLogger("aio_pika.robust_channel").addHandler(errors)
        logging.getLogger("aio_pika.robust_queue").addHandler(errors)

    connection.close_callbacks.add(note_loss)
    connection.reconnect_callbacks.add(note)
    await restored.wait()
    print(json.dumps({"recovered": count, "seconds": recovered - began, "errors": errors.found}), flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
