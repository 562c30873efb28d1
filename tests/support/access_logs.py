"""Synthetic access logs (`docs/design/contract.md` 6) for tests: seeded, small, with every kind of damage a real one can have.

log = SyntheticLog(directory, "2026-11-20")
log.run({"orders": steady(100), "audit": bursts(5, 400, every=60)}, seconds=range(0, 7200), seed=1)
log.write()
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Load = Callable[[random.Random, int], int]  # (source of chance, second of the day) -> messages asked for


def day_start(date: str) -> int:
    return int(datetime.strptime(date, "%Y-%m-%d").replace(tzinfo=UTC).timestamp())


def steady(mean: int) -> Load:
    """About `mean` messages every second."""
    return lambda chance, _: max(0, round(chance.gauss(mean, mean**0.5)))


def bursts(base: int, peak: int, every: int) -> Load:
    """`base`, and `peak` in one second of `every`."""
    return lambda _, second: peak if second % every == 0 else base


def sparse(messages: int, every: int) -> Load:
    """`messages` in one second of `every`, nothing else."""
    return lambda _, second: messages if second % every == 0 else 0


def usage_line(gateway: str, boot: str, seq: int, ts: int, topic: str, **fields: Any) -> dict[str, Any]:
    """One line of produced messages; any field may be named."""
    line = {
        "v": 1, "ts": ts, "gateway": gateway, "boot": boot, "seq": seq, "protocol": "rocketmq", "topic": topic, "client": "10.0.0.7",
        "user": None, "group": "p1", "operation": "produce", "messages": 1, "bytes": 100, "refused_messages": 0, "refused_bytes": 0,
        "delayed_messages": 0, "dropped_messages": 0, "bypassed_messages": 0, "shadow_refused_messages": 0,
        "max_100ms_messages": 1, "revision": 1,
    }  # fmt: skip
    return line | fields


def heartbeat_line(gateway: str, boot: str, seq: int, ts: int) -> dict[str, Any]:
    return {"v": 1, "ts": ts, "gateway": gateway, "boot": boot, "seq": seq, "heartbeat": True, "revision": 1}


class SyntheticLog:
    """Lines of one gateway's run on one day, and the files they go into."""

    def __init__(self, directory: Path, date: str, gateway: str = "g1", boot: str = "b1") -> None:
        self.directory = directory
        self.date = date
        self.gateway = gateway
        self.boot = boot
        self.seq = 0
        self.start = day_start(date)
        self.texts: list[tuple[int, str]] = []  # (second of the day, line without newline)

    def usage(self, second: int, topic: str, **fields: Any) -> dict[str, Any]:
        """Add a line of `topic` in second `second` of the day."""
        line = usage_line(self.gateway, self.boot, self.seq, self.start + second, topic, **fields)
        return self._add(second, line)

    def heartbeat(self, second: int) -> dict[str, Any]:
        return self._add(second, heartbeat_line(self.gateway, self.boot, self.seq, self.start + second))

    def raw(self, second: int, text: str) -> None:
        """Add a line as it is, corrupt ones for instance."""
        self.texts.append((second, text))

    def lose(self, lines: int) -> None:
        """Leave a gap in the sequence numbers."""
        self.seq += lines

    def run(self, topics: Mapping[str, Load], seconds: Iterable[int], seed: int, limit: int | None = None, size: int = 100) -> None:
        """What a gateway would have logged; above `limit` messages a second are refused, and messages are of `size` bytes."""
        chance = random.Random(seed)
        for second in seconds:
            for topic, load in topics.items():
                asked = load(chance, second)
                if asked:
                    passed = asked if limit is None else min(asked, limit)
                    self.usage(
                        second, topic, protocol="amqp" if topic.count("/") == 2 else "rocketmq", messages=passed, bytes=passed * size,
                        refused_messages=asked - passed, refused_bytes=(asked - passed) * size, max_100ms_messages=-(-asked // 10),
                    )  # fmt: skip
            self.heartbeat(second)

    def write(self, suffix: str = ".jsonl", *, torn: str = "") -> list[Path]:
        """Write the lines into one file per hour; `torn` is put at the end of the last one, without a newline."""
        hours: dict[int, list[str]] = {}
        for second, text in self.texts:
            hours.setdefault(second // 3600, []).append(text)
        paths = []
        for number, (hour, lines) in enumerate(sorted(hours.items())):
            folder = self.directory / f"dt={self.date}" / f"hr={hour:02}"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{self.gateway}-{self.boot}-{number:06}{suffix}"
            path.write_text("\n".join(lines) + "\n")
            paths.append(path)
        if torn:
            with paths[-1].open("a") as file:
                file.write(torn)
        return paths

    def _add(self, second: int, line: dict[str, Any]) -> dict[str, Any]:
        self.seq += 1
        self.texts.append((second, json.dumps(line, separators=(",", ":"))))
        return line
