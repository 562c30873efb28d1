"""One publisher of the demo, with an ordinary client library (pika): `traffic.py URL EXCHANGE ROUTING_KEY RATE SECONDS`.

Publishes with confirms, RATE messages a second (0: as fast as the answers come), and prints one JSON line a second: offered, passed and
refused messages, and the 99th percentile of the time to an answer in milliseconds.
"""

from __future__ import annotations

import json
import sys
import time

import pika
import pika.exceptions

BODY = b"x" * 200


class Second:
    """Counters of the running second."""

    def __init__(self) -> None:
        self.passed = 0
        self.refused = 0
        self.times: list[float] = []

    def report(self) -> None:
        times = sorted(self.times)
        p99 = times[min(len(times) - 1, len(times) * 99 // 100)] * 1e3 if times else 0.0
        line = {"offered": self.passed + self.refused, "passed": self.passed, "refused": self.refused, "p99_ms": round(p99, 2)}
        print(json.dumps(line), flush=True)


def publish(url: str, exchange: str, routing_key: str, rate: float, seconds: float) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    started = time.monotonic()
    second = Second()
    reported = 0
    sent = 0
    while (elapsed := time.monotonic() - started) < seconds:
        if int(elapsed) > reported:
            reported = int(elapsed)
            second.report()
            second = Second()
        if rate and sent > elapsed * rate:
            connection.sleep(min(sent / rate - elapsed, 0.05))
            continue
        asked = time.monotonic()
        try:
            channel.basic_publish(exchange, routing_key, BODY)
            second.passed += 1
        except pika.exceptions.NackError:
            second.refused += 1
        second.times.append(time.monotonic() - asked)
        sent += 1
    second.report()
    connection.close()


if __name__ == "__main__":
    publish(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))
