"""A gateway in front of a real RabbitMQ and a real RocketMQ for hours, with all that a bad week brings: `make soak HOURS=2`.

One round takes about a minute: a calm stretch of messages on each protocol, whose answers are timed; then, on one protocol after the
other, one of the disturbances of `support/clients/disturber.py`; a live change and its undo, a reload, names that nobody has used before.
Every tenth round RabbitMQ is killed and comes back, every fifth RocketMQ hangs for some seconds. Twice an hour quotas are computed from
the log and published. After each round: resident memory, descriptors, threads, and the medians of the calm stretch.

Before the first round 150,000 names are used once, more than the tables of topics and limits have places for (10,000 and 50,000): at
300 names a round these fill for an hour and a half, and would pass for a leak, or hide one.

What is asserted at the end is in LIMITS: what may grow, from the first third to the last after the warm-up, however long the run is.
build/soak.json has every sample. Exits 1 where something grew, or the gateway did not end in order.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from soak.trends import Trend, trend  # noqa: E402
from support.amqp import frames as amqp  # noqa: E402
from support.brokers.queues import Queue  # noqa: E402
from support.brokers.rabbitmq import RabbitMQ  # noqa: E402
from support.brokers.rocketmq import RocketMQ  # noqa: E402
from support.clients.disturber import KINDS, PROTOCOLS, Disturber, Wire  # noqa: E402
from support.gateways import Gateway, amqp_listener, command, limit_path, open_things  # noqa: E402
from support.processes import LOOPBACK, Process, wait_until  # noqa: E402

MIB = 1 << 20
QUIET, NOISY = "quiet", "noisy"
SENDS = 200  # timed, of each protocol and round
RATE = 100  # messages a second
DISTURBED_S = 12.0
STORED = 1500  # messages that a consumer could read
NEW_NAMES = 300  # topics that nobody has used before, each round
FILLING = 150_000  # such names before the first round (as in tests/end_to_end/test_reply_queues.py)
FILLING_RATE = 2000  # a second: all at once would leave a large heap in which a leak finds room
BURST = 100  # of them at once
KILLED_EVERY = 10  # rounds
HANGS_EVERY = 5  # rounds
HANGS_S = 4.0
NIGHT_EVERY_S = 1800.0
LAST_WORDS = 5000  # characters of the gateway's log, where a round has failed
SHORTEST_H = 0.3  # hours; some twenty rounds
RULES: list[dict[str, object]] = [{"name": "all", "per": "topic", "limit": {"messages": "200/s", "bytes": "8MiB/s"}}]
# What may be more at the end than at the beginning; latency may be half as much again, and a millisecond.
LIMITS = {"resident_mib": 8.0, "files": 4.0, "sockets": 8.0, "threads": 4.0}
SLOWER = (1.5, 1.0)


@dataclass
class Sample:
    """After one round. Latencies in ms."""

    at_s: float
    resident_mib: float = 0.0
    files: int = 0
    sockets: int = 0
    threads: int = 0
    amqp_p50_ms: float = 0.0
    rocketmq_p50_ms: float = 0.0
    done: dict[str, int] = field(default_factory=dict)


class Soak:
    """The gateway, its brokers, and what is done to them."""

    def __init__(self, gateway: Gateway, rabbitmq: RabbitMQ, rocketmq: RocketMQ) -> None:
        self.gateway = gateway
        self.rabbitmq = rabbitmq
        self.rocketmq = rocketmq
        self.ports = {"amqp": gateway.port("rabbit"), "rocketmq": gateway.port("rocket")}
        self.number = 0
        self.names = 0
        self.nights = 0

    def round(self, sample: Sample) -> None:
        kind = list(KINDS)[self.number % len(KINDS)]
        sample.amqp_p50_ms = self.calm("amqp")
        sample.rocketmq_p50_ms = self.calm("rocketmq")
        for protocol in PROTOCOLS:
            with ExitStack() as stack:
                if protocol == "amqp":
                    stack.enter_context(Queue(self.rabbitmq.url, NOISY)).fill(STORED, b"x" * 1000)
                port = self.gateway.admin_port if kind == "admin reads" else self.ports[protocol]
                disturber = stack.enter_context(Disturber(protocol, kind, port, NOISY, self.gateway.token))
                done = stack.enter_context(disturber.disturbing())
                time.sleep(DISTURBED_S)
            sample.done[f"{protocol} {kind}"] = done["done"]
            if not done["done"]:
                raise AssertionError(f"{protocol}, {kind}: nothing was done")
        self.change()
        self.invent()
        self.number += 1
        if self.number % KILLED_EVERY == 0:
            self.rabbitmq.kill()
            self.rabbitmq.start_node()
        if self.number % HANGS_EVERY == 0:
            self.rocketmq.pause()
            time.sleep(HANGS_S)
            self.rocketmq.resume()
        wait_until(lambda: self.gateway.answers("/readyz"), within=60, what="the gateway to be ready again")
        wait_until(lambda: self.gateway.get("/v1/status")["connections"] == 0, within=60, what="all clients to have gone")
        things = open_things(self.gateway.process.pid)
        sample.resident_mib = self.gateway.resident_bytes() / MIB
        sample.files, sample.sockets, sample.threads = things

    def calm(self, protocol: str) -> float:
        """Send on a connection of its own; the median of the milliseconds from when each message was due until its answer."""
        wire: Wire = PROTOCOLS[protocol](QUIET)
        took = []
        with wire.connected(self.ports[protocol]) as client:
            client.sendall(wire.message(b"x" * 200, SENDS))  # first, untimed: RocketMQ 5.5 makes new topics for up to a minute
            wire.await_answer(client)
            began = time.monotonic()
            for number in range(SENDS):
                due = began + number / RATE
                time.sleep(max(0.0, due - time.monotonic()))
                client.sendall(wire.message(b"x" * 200, number))
                wire.await_answer(client)
                took.append(1000 * (time.monotonic() - due))
        return statistics.median(took)

    def change(self) -> None:
        path = limit_path("rocketmq", NOISY)
        self.gateway.put(path, {"messages": f"{150 + self.number % 50}/s", "reason": f"soak, round {self.number}"})
        self.gateway.request("DELETE", path + "?force=1")
        self.gateway.write_rules([{**RULES[0], "limit": {"messages": f"{200 + self.number % 2}/s", "bytes": "8MiB/s"}}])
        answer = self.gateway.request("POST", "/v1/config:reload")
        if answer.status != 200:
            raise AssertionError(f"reload: {answer}")

    def invent(self) -> None:
        """As RPC reply queues are: each name is used once."""
        wire = PROTOCOLS["amqp"](QUIET)
        with wire.connected(self.ports["amqp"]) as client:
            for _ in range(NEW_NAMES):
                self.names += 1
                client.sendall(PROTOCOLS["amqp"](f"amq.gen-{self.names:020}").message(b"x", self.names))
                wire.await_answer(client)

    def fill_tables(self) -> None:
        """Leave no table room, as weeks of reply queues do."""
        with PROTOCOLS["amqp"](QUIET).connected(self.ports["amqp"]) as client:
            began = time.monotonic()
            for first in range(0, FILLING, BURST):
                time.sleep(max(0.0, began + first / FILLING_RATE - time.monotonic()))
                client.settimeout(60)
                client.sendall(b"".join(amqp.publish(1, f"amq.gen-filling-{number:012}") for number in range(first, first + BURST)))
                client.setblocking(False)
                with suppress(BlockingIOError):
                    while client.recv(1 << 16):  # confirms
                        pass
            wait_until(lambda: self.forwarded() == [FILLING], within=120, what="all of them to be forwarded")

    def forwarded(self) -> list[int]:
        return [item["messages_forwarded"] for item in self.gateway.get("/v1/connections")["items"]]

    def night(self) -> None:
        """Quotas of today until now, from the log; published."""
        day = datetime.now(UTC).date().isoformat()
        words = ["quotas", "compute", "--log", "access-log", "--date", day, "--state", "quota-state", "-o", "quotas.json"]
        folder = self.gateway.directory
        with Process([*command(), *words], log=folder / "night.log", cwd=folder) as job:
            code = job.popen.wait(600)
            if code:
                raise AssertionError(f"quotas compute ended with {code}\n{job.output()[-3000:]}")
        self.gateway.cli("quotas", "apply", "quotas.json", "--yes")
        self.nights += 1


def grown(samples: list[Sample]) -> tuple[dict[str, Trend], list[str]]:
    """Trends by name, and what grew too much, in words."""
    trends, faults = {}, []
    for name, most in LIMITS.items():
        found = trends[name] = trend([(each.at_s, getattr(each, name)) for each in samples])
        if found.grown > most:
            faults.append(f"{name}: {found.begin:.1f} at the beginning, {found.end:.1f} at the end; {most:g} more are allowed")
    for name in ("amqp_p50_ms", "rocketmq_p50_ms"):
        found = trends[name] = trend([(each.at_s, getattr(each, name)) for each in samples])
        if found.end > SLOWER[0] * found.begin + SLOWER[1]:
            faults.append(f"{name}: {found.begin:.2f} at the beginning, {found.end:.2f} at the end")
    return trends, faults


def soak(hours: float, say: Callable[[str], None]) -> tuple[list[Sample], int]:
    """Run; every round's sample, and how many nights there were."""
    samples: list[Sample] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-soak-")))
        rabbitmq = stack.enter_context(RabbitMQ(folder / "rabbitmq"))
        rocketmq = stack.enter_context(RocketMQ(folder / "rocketmq", advertised=LOOPBACK))
        rocketmq.create_topics(QUIET, NOISY)
        listeners: list[dict[str, object]] = [
            amqp_listener(f"{LOOPBACK}:{rabbitmq.port}"),
            {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": f"{LOOPBACK}:{rocketmq.port}"},
        ]
        gateway = stack.enter_context(Gateway(folder / "gateway", listeners, RULES))
        stack.push(lambda kind, *_: say(gateway.log()[-LAST_WORDS:]) if kind is not None else None)  # else it goes with its folder
        run = Soak(gateway, rabbitmq, rocketmq)
        run.fill_tables()
        began = time.monotonic()
        night_at = began + NIGHT_EVERY_S / 2
        while time.monotonic() - began < hours * 3600:
            sample = Sample(round(time.monotonic() - began, 1))
            run.round(sample)
            samples.append(sample)
            say(json.dumps(asdict(sample)))
            if time.monotonic() > night_at:
                night_at += NIGHT_EVERY_S
                run.night()
        nights = run.nights
    return samples, nights


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--report", type=Path, default=ROOT / "build" / "soak.json")
    arguments = parser.parse_args()
    if arguments.hours < SHORTEST_H:
        parser.error(f"--hours {arguments.hours:g} is too short to see a trend: at least {SHORTEST_H:g}")
    samples, nights = soak(arguments.hours, lambda line: print(line, file=sys.stderr, flush=True))
    trends, faults = grown(samples)
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    found = {"hours": arguments.hours, "rounds": len(samples), "nights": nights, "faults": faults}
    found |= {"trends": {name: asdict(each) for name, each in trends.items()}, "samples": [asdict(each) for each in samples]}
    arguments.report.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(samples)} rounds in {arguments.hours:g} h, {nights} nights of quotas")
    for name, each in trends.items():
        print(f"{name:16} {each.begin:9.2f} -> {each.end:9.2f}   {each.per_hour:+.3f} an hour")
    for fault in faults:
        print(f"grown: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
