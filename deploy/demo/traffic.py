"""One publisher of the demo, with an ordinary client library (pika): `traffic.py URL EXCHANGE ROUTING_KEY RATE UNANSWERED [each]`.

It publishes RATE messages a second by the clock and awaits the confirms beside that, UNANSWERED of them at most. A JSON line a second
tells what was offered, passed and refused since the line before, and the 99th percentile of the time to an answer in milliseconds. SIGTERM
ends it: nothing more is sent and all answers are awaited; with `each` the last line has each message.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from itertools import takewhile
from types import FrameType
from typing import Any

import pika

BODY = b"x" * 200
TICK_S = 0.01  # between two looks at the clock, where the machine allows it


class Publisher:
    """Times are those of `time.monotonic`, which all processes of a machine share."""

    def __init__(self, url: str, exchange: str, routing_key: str, rate: float, unanswered: int, *, each: bool) -> None:
        self._where = exchange, routing_key
        self._rate = rate
        self._most = unanswered
        self._due = 0.0  # messages that the clock allows now
        self._began = self._ticked = self._told = 0.0
        self._sent = 0  # the last delivery tag
        self._unanswered: dict[int, float] = {}  # delivery tag: when it was sent; in order
        self._answered: list[tuple[float, float, bool]] = []  # since the last line: when it was sent and answered, and whether it passed
        self._offered = 0  # messages of former lines
        self._each = each
        self._all: list[tuple[float, float, bool]] = []
        self._stopping = False
        signal.signal(signal.SIGTERM, self._stop)
        self._connection = pika.SelectConnection(pika.URLParameters(url), self._open_channel, self._failed, self._closed)

    def run(self) -> None:
        self._connection.ioloop.start()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _failed(self, _connection: Any, error: Exception) -> None:
        raise error

    def _closed(self, connection: Any, error: Exception) -> None:
        connection.ioloop.stop()
        if not self._stopping:
            raise error

    def _open_channel(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._ask_for_confirms)

    def _ask_for_confirms(self, channel: Any) -> None:
        self._channel = channel
        self._began = time.monotonic()  # before the first message can meet the limit
        channel.confirm_delivery(self._take_answer, lambda _: self._begin())

    def _begin(self) -> None:
        self._ticked = self._told = time.monotonic()
        self._tick()

    def _take_answer(self, frame: Any) -> None:
        now = time.monotonic()
        tag = frame.method.delivery_tag
        passed = isinstance(frame.method, pika.spec.Basic.Ack)
        tags = list(takewhile(lambda each: each <= tag, self._unanswered)) if frame.method.multiple else [tag]
        self._answered += [(self._unanswered.pop(each), now, passed) for each in tags]

    def _tick(self) -> None:
        now = time.monotonic()
        room = self._most - len(self._unanswered)
        self._due = min(self._due + (now - self._ticked) * self._rate, room)  # what the machine had no time for is not sent later
        self._ticked = now
        while self._due >= 1 and not self._stopping:
            self._due -= 1
            self._sent += 1
            self._unanswered[self._sent] = time.monotonic()
            self._channel.basic_publish(*self._where, BODY)
        if now - self._told >= 1:
            self._tell(now)
        if self._stopping and not self._unanswered:
            self._tell(now)
            if self._each:
                print(json.dumps({"began": self._began, "messages": self._all}), flush=True)
            self._connection.close()
        else:
            self._connection.ioloop.call_later(TICK_S, self._tick)

    def _tell(self, now: float) -> None:
        passed = sum(passed for _, _, passed in self._answered)
        times = sorted(answered - sent for sent, answered, _ in self._answered)
        line = {
            "at": now,
            "offered": self._sent - self._offered,
            "passed": passed,
            "refused": len(times) - passed,
            "p99_ms": round(times[len(times) * 99 // 100] * 1e3, 2) if times else None,
        }
        print(json.dumps(line), flush=True)
        self._told = now
        self._offered = self._sent
        if self._each:
            self._all += self._answered
        self._answered = []


if __name__ == "__main__":
    Publisher(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5]), each=sys.argv[6:] == ["each"]).run()
