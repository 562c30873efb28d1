"""What spooling costs: the same messages forwarded and spooled in turns, the memory and the draining, and the latency of a topic beside it.

PYTHONPATH=.:tests .venv/bin/python bench/spool.py --rounds 3 --messages 1000000

One gateway (the installed one, or SLUICE_COMMAND's) between publishers and `respond`, a broker that confirms and stores nothing. Messages
have 1 KiB. Each round: all messages forwarded without a limit; as many spooled (limit 1/s) and then drained as fast as the broker takes
them; as many spooled and drained at a limit, of which ten seconds are measured. A client beside it publishes to a topic without a limit,
one message in flight: its p99 when all is calm, and while the last of them is spooled. Medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keeping import BIN, ended, run
from kept import RESULTS, before, keep

from support.amqp.numbered_publisher import NumberedPublisher
from support.gateways import Gateway, amqp_listener, command, limit_path
from support.processes import free_ports, wait_until

SIZE = 1024
TOPIC = "bursts"
LIMIT = 5_000  # a second
DRAIN_S = 10
RULE = {"name": "bursts", "match": {"protocol": "amqp", "queue": TOPIC}, "limit": {"messages": "1/s"}, "action": "spool"}


def publisher_of(gateway: Gateway) -> dict[str, Any]:
    """The connection that has sent most."""
    return max(gateway.get("/v1/connections")["items"], key=lambda each: int(each["bytes_from_client"]))


def limit_to(gateway: Gateway, change: dict[str, object]) -> None:
    assert gateway.put(f"{limit_path('amqp', '/', 'amq.default', TOPIC)}", change).status == 200


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def neighbour(port: int, seconds: int) -> float:
    """p99 in milliseconds of one client with one message in flight, to a topic without a limit."""
    return run(["publish", str(port), "1", str(seconds), "200", "1", "free", "acked"], seconds)["p99"] / 1000


class Round:
    """One round's figures."""

    def __init__(self, gateway: Gateway, messages: int) -> None:
        self.gateway = gateway
        self.messages = messages
        self.found: dict[str, float] = {}

    def timed(self, name: str, done: Callable[[dict[str, Any]], bool], publisher: NumberedPublisher | None) -> None:
        """Messages a second, and microseconds of CPU for each, from now (all are sent) until `done`."""
        began, cpu = time.monotonic(), cpu_seconds(self.gateway.process.pid)
        if publisher is not None:
            publisher.begin(self.messages, [TOPIC], SIZE)
        wait_until(lambda: done(publisher_of(self.gateway)), within=300, what=name)
        elapsed = time.monotonic() - began
        self.found[f"{name} messages/s"] = self.messages / elapsed
        self.found[f"{name} CPU us"] = (cpu_seconds(self.gateway.process.pid) - cpu) / self.messages * 1e6

    def play(self) -> dict[str, float]:
        port = self.gateway.port("rabbit")
        self.found["neighbour p99 ms, calm"] = neighbour(port, 3)
        with NumberedPublisher(port) as publisher:
            limit_to(self.gateway, {"mode": "off"})
            self.timed("forwarded", lambda shown: int(shown["messages_forwarded"]) >= self.messages, publisher)
        with NumberedPublisher(port) as publisher:
            limit_to(self.gateway, {"mode": "enforce", "messages": "1/s"})
            before = self.gateway.resident_bytes()
            self.timed("spooled", lambda shown: int(shown["held_messages"]) >= self.messages - 100, publisher)
            self.found["memory above the base MiB"] = (self.gateway.resident_bytes() - before) / (1 << 20)
            self.found["on disk MiB"] = int(publisher_of(self.gateway)["spooled_bytes"]) / (1 << 20)
            limit_to(self.gateway, {"mode": "off"})
            self.timed("drained", lambda shown: int(shown["held_messages"]) == 0, None)
        with NumberedPublisher(port) as publisher:
            limit_to(self.gateway, {"mode": "enforce", "messages": f"{LIMIT}/s"})
            publisher.begin(self.messages, [TOPIC], SIZE)
            self.found["neighbour p99 ms, while spooling"] = neighbour(port, 3)
            publisher.wait_until_sent(self.messages, within=300)
            time.sleep(2)
            first, began = int(publisher_of(self.gateway)["messages_forwarded"]), time.monotonic()
            time.sleep(DRAIN_S)
            last, ended = int(publisher_of(self.gateway)["messages_forwarded"]), time.monotonic()
            self.found["drained / limit"] = (last - first) / (ended - began) / LIMIT
            limit_to(self.gateway, {"mode": "off"})
            wait_until(lambda: int(publisher_of(self.gateway)["held_messages"]) == 0, within=300, what="the rest is through")
        wait_until(lambda: not self.gateway.get("/v1/connections")["items"], within=60, what="the round's connections are closed")
        return self.found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args()
    (backend,) = free_ports(1)
    facts = before(command())
    rounds: list[dict[str, float]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        ended(subprocess.Popen([str(BIN / "respond"), str(backend), "amqp"])),
        Gateway(Path(folder) / "gateway", [amqp_listener(f"127.0.0.1:{backend}")], [RULE]) as gateway,
    ):
        for number in range(options.rounds):
            rounds.append(Round(gateway, options.messages).play())
            print(f"round {number + 1}: {json.dumps({name: round(value, 3) for name, value in rounds[-1].items()})}", flush=True)
    print("\nmedians")
    medians = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    for name, value in medians.items():
        print(f"  {name:34} {value:12,.3f}")
    print(f"  {'spooled / forwarded':34} {medians['spooled messages/s'] / medians['forwarded messages/s']:12,.3f}")
    keep(RESULTS / "spool.json", facts, {"messages": options.messages, "rounds": rounds})


if __name__ == "__main__":
    main()
