"""What every probe in Python shares: the orders on stdin, the reports on stdout (`support/clients/probes.py` says what they mean)."""

from __future__ import annotations

import json
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 120.0  # how long a busy machine takes is not what is tested


@dataclass
class Order:
    """What to do; one line `name=value name=value ...`."""

    url: str
    mode: str = "confirm"
    key: str = ""
    run: str = ""
    count: int = 1
    mandatory: bool = False
    free: str = ""
    heartbeat: int = 60
    listen: str = ""
    back: bool = False
    linger: float = 0.0
    expect: int = 0
    pause: float = 0.0
    other_first: bool = False
    every: int = 0
    every_key: str = ""
    returns: str = "default"  # or `handled`: with what the library offers beyond its default for returned messages

    @classmethod
    def parse(cls, line: str) -> Order:
        order = cls(url="")
        for word in line.split():
            name, _, value = word.partition("=")
            kind = type(getattr(order, name))
            setattr(order, name, value == "1" if kind is bool else kind(value))
        return order

    def body(self, number: int) -> bytes:
        """The body, and the message id, of publish `number` of the limited channel."""
        return f"{self.run}-{number}".encode()

    def url_with_heartbeat(self) -> str:
        return f"{self.url}?heartbeat={self.heartbeat}"


@dataclass
class Report:
    """What the application saw."""

    seen: list[str] = field(default_factory=list)
    commit: str = ""
    returns: list[dict[str, Any]] = field(default_factory=list)
    channel: Any = "open"
    refused: Any = None
    blocked: list[str] = field(default_factory=list)
    unblocked: int = 0
    other: Any = ""
    heard: int = 0
    longest_gap_s: float = 0.0
    outcomes: str = ""

    def hear(self, now: float | None = None) -> None:
        """The listening consumer got a message."""
        now = time.monotonic() if now is None else now
        if self.heard:
            self.longest_gap_s = max(self.longest_gap_s, now - self._heard_at)  # type: ignore[has-type]  # no field: it is not reported
        self._heard_at = now
        self.heard += 1

    def close(self, words: dict[str, Any]) -> None:
        """The limited channel is closed; the first exception that says so is the one that counts."""
        if self.channel == "open":
            self.channel = words

    def has_seen(self, order: Order) -> bool:
        """There is nothing more to linger for."""
        return 0 < len(self.blocked) == self.unblocked or 0 < order.expect <= self.heard or self.channel != "open"

    def returned(self, code: int, text: str, key: str, body: bytes) -> None:
        self.returns.append({"code": code, "text": text, "key": key, "body": body.decode()})


def described(error: BaseException, code: int | None = None, text: str | None = None) -> dict[str, Any]:
    """An exception as the report has it."""
    return {"class": type(error).__name__, "code": code, "text": str(error) if text is None else text}


def serve(run: Callable[[Order, Report], None]) -> None:
    """Answer each order with a report; a fault of the probe itself is told as `broken`."""
    for line in sys.stdin:
        report = Report()
        try:
            run(Order.parse(line), report)
            answer = asdict(report)
        except Exception:
            answer = {"broken": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
