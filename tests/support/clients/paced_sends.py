"""Sends to RocketMQ paced by the clock: each is due at its moment, whatever has been answered of those before it."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from dataclasses import dataclass, field

from support.rocketmq.frames import read_response, send


@dataclass
class Sends:
    """What became of the sends of one topic, by tenths of a second since the flood's start."""

    begun: Counter[int] = field(default_factory=Counter)
    passed: Counter[int] = field(default_factory=Counter)
    codes: Counter[object] = field(default_factory=Counter)


async def _send(host: str, port: int, topic: str, rate: float, start: float, seconds: float, found: Sends) -> None:
    """One connection's sends, `rate` a second."""
    clock = asyncio.get_running_loop().time
    reader, writer = await asyncio.open_connection(host, port)
    count = int(rate * seconds)

    async def read() -> None:
        for _ in range(count):
            size = await reader.readexactly(4)
            code = read_response(size + await reader.readexactly(*struct.unpack(">I", size)))["code"]
            found.codes[code] += 1
            if code == 0:
                found.passed[int(10 * (clock() - start))] += 1

    reading = asyncio.create_task(read())
    for number in range(count):
        await asyncio.sleep(start + number / rate - clock())
        found.begun[int(10 * (clock() - start))] += 1
        writer.write(send(topic, opaque=number))
    await reading
    writer.close()


async def _flood(ports: list[tuple[str, int]], topics: list[str], rate: float, seconds: float) -> dict[str, Sends]:
    found = {topic: Sends() for topic in topics}
    start = asyncio.get_running_loop().time() + 0.5
    async with asyncio.TaskGroup() as group:
        for topic, some in found.items():
            for host, port in ports:
                group.create_task(_send(host, port, topic, rate / len(ports), start, seconds, some))
    return found


def flood(ports: list[tuple[str, int]], topics: list[str], rate: float, seconds: float) -> dict[str, Sends]:
    """`rate` messages a second to each topic for `seconds`, evenly over connections to `ports`; waits until all are answered."""
    return asyncio.run(_flood(ports, topics, rate, seconds))
