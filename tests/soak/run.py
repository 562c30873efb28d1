"""A gateway in front of a real RabbitMQ and a real RocketMQ for hours, with all that a bad week brings: `make soak HOURS=2`.

It has all features on that change what a process does all day: the access log, a spool, a fleet (a second, idle gateway is its other
member) and tracing.

One round takes about a minute: a calm stretch of messages on each protocol, whose answers are timed; then, on one protocol after the
other, one of the disturbances of `support/clients/disturber.py`; a burst that is spooled and must arrive whole and in order; refused
messages that have spans; a live change and its undo, a reload, names that nobody has used before. Every few rounds (`Every`) a peer is
killed and comes back: RabbitMQ, RocketMQ, and amid a disturbance the fleet's Redis and the tracing collector; or RocketMQ hangs for some
seconds. Twice an hour quotas are computed from the log and published. After each round: resident memory, descriptors, threads, and the
medians of the calm stretch.

**Takeovers.** In the first half of the run (TAKING_OVER) the next process takes over after each two circles of disturbances, while clients
come, whose confirmed messages must be there. A process with a leak would be young again each time, and hide it. So there are two trends.
The *last* process serves for the second half of the run alone, and nothing of it may grow, from the first third to the last after its
warm-up, nor by the hour. And a leak that is handed on, in the state or in what a takeover leaves open, makes each process begin with more:
all are compared at one age, in their second circle. Samples are always of the process that serves; the one before must have ended with 0.

**Full tables.** Before a process's first round so many names are used once that its tables have no place left: else they fill for an
hour and a half at 300 names a round, and pass for a leak, or hide one. The limiter's has 100,000 places, of 0.9 kB each. A full table
that goes on taking new names for old ones is made anew once more, at twice the size, when 174,762 have been in it: 7 MiB at once, and
never again. So that many come before, too. A client has a thousand new names a second (`limiter/new_names.py`), and of more none that is
told apart. So they come from many addresses, and the run does not begin before `/v1/status` says that the limiter has as many as it may
have at hand.

What is asserted at the end is in LIMITS. build/soak.json has every sample. Exits 1 where something grew, or the gateway did not end in
order. `--rehearse` shows each disturbance once in some minutes, and judges nothing.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pika

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from limiter.buckets.ledger import at_hand  # noqa: E402
from soak.trends import Trend, trend  # noqa: E402
from support.amqp import frames as amqp  # noqa: E402
from support.amqp.numbered_consumer import take_all  # noqa: E402
from support.amqp.numbered_publisher import NumberedPublisher  # noqa: E402
from support.brokers.queues import Queue  # noqa: E402
from support.brokers.rabbitmq import RabbitMQ  # noqa: E402
from support.brokers.redis_server import RedisServer  # noqa: E402
from support.brokers.rocketmq import RocketMQ  # noqa: E402
from support.clients.disturber import KINDS, PROTOCOLS, Disturber, Wire  # noqa: E402
from support.clients.newcomers import Newcomers  # noqa: E402
from support.clients.raw_amqp import opening  # noqa: E402
from support.gateways import Gateway, amqp_listener, command, limit_path, open_things  # noqa: E402
from support.log_calls import faults_of_lines  # noqa: E402
from support.otlp import Collector  # noqa: E402
from support.processes import HANG_S, LOOPBACK, Process, free_ports, wait_until  # noqa: E402

MIB = 1 << 20
QUIET, NOISY = "quiet", "noisy"
SENDS = 200  # timed, of each protocol and round
RATE = 100  # messages a second
DISTURBED_S = 12.0
STORED = 1500  # messages that a consumer could read
NEW_NAMES = 300  # topics that nobody has used before, each round
FILLING = 200_000  # such names before the first round of a process; more than 2/3 of 2^18 (see above)
FILLING_RATE = 2000  # a second: all at once would leave a large heap in which a leak finds room
OF_ONE_CLIENT = 5000  # of them; fewer than a client may use at once
BURST = 100  # of them at once
HANGS_S = 4.0
NIGHT_EVERY_S = 1800.0
NIGHT_S = 3600.0  # for a night, which takes 100 s alone, and 600 beside other work
LAST_WORDS = 5000  # characters of the gateway's log, where a round has failed
OUTAGE = '"event": "upstream_unreachable"'
INTERRUPTED = "interrupted"  # rounds
MOST_INTERRUPTED = 0.1  # of all
SHORTEST_H = 1.0  # hours; half of it is the last process's, some forty rounds
TAKING_OVER = 0.5  # of the run; in it takeovers come
CIRCLE = len(KINDS)  # rounds; in so many each disturbance comes once
SPOOLED, REFUSED, UPGRADED = "spooled", "refused", "upgraded"  # queues
SPOOLED_RATE, SPOOLED_COUNT = 500, 1500  # messages
SPANS = 10  # of each round
RULES: list[dict[str, object]] = [
    {"name": "all", "per": "topic", "limit": {"messages": "200/s", "bytes": "8MiB/s"}},
    {"name": "bursts", "match": {"queue": SPOOLED}, "per": "topic", "limit": {"messages": f"{SPOOLED_RATE}/s"}, "action": "spool"},
    {"name": "refused", "match": {"queue": REFUSED}, "per": "topic", "limit": {"messages": "0/s"}},
    {"name": "upgrades", "match": {"queue": UPGRADED}, "per": "topic", "limit": {"messages": "5000/s"}},
]


@dataclass(frozen=True)
class Every:
    """Rounds from one to the next."""

    rabbitmq_killed: int = 8
    rocketmq_killed: int = 24
    rocketmq_hangs: int = 5
    redis_killed: int = 3
    collector_killed: int = 4
    taken_over: int = 2 * CIRCLE


REHEARSED = Every(rabbitmq_killed=2, rocketmq_killed=3, rocketmq_hangs=3, redis_killed=2, collector_killed=2, taken_over=2)

# What may be more at the end than at the beginning, an hour later, and in the last process than in the first; latency may be half as much
# again, and a millisecond.
LIMITS = {"resident_mib": 8.0, "files": 4.0, "sockets": 8.0, "threads": 4.0}
SLOWER = (1.5, 1.0)


@dataclass
class Sample:
    """After one round. Latencies in ms."""

    at_s: float
    life: int = 0  # takeovers before it
    resident_mib: float = 0.0
    files: int = 0
    sockets: int = 0
    threads: int = 0
    amqp_p50_ms: float = 0.0
    rocketmq_p50_ms: float = 0.0
    done: dict[str, int] = field(default_factory=dict)


class Soak:
    """The gateway, its peers, and what is done to them."""

    def __init__(
        self,
        gateway: Gateway,
        neighbour: Gateway,
        rabbitmq: RabbitMQ,
        rocketmq: RocketMQ,
        redis: RedisServer,
        collector_port: int,
        every: Every,
    ) -> None:
        self.gateway = gateway
        self.neighbour = neighbour  # of its fleet
        self.rabbitmq = rabbitmq
        self.rocketmq = rocketmq
        self.redis = redis
        self.collector_port = collector_port
        self.collector: Collector | None = None
        self.every = every
        self.ports = {"amqp": gateway.port("rabbit"), "rocketmq": gateway.port("rocket")}
        self.number = 0
        self.names = 0
        self.life = 0
        self.did: Counter[str] = Counter()

    def due(self, what: str) -> bool:
        """Whether it is this round's turn; counts it."""
        if self.number % getattr(self.every, what):
            return False
        self.did[what] += 1
        return True

    def has_done(self, sample: Sample) -> bool:
        """A round; False where it was interrupted because a broker hung by itself, as RocketMQ does on a machine with too much to do."""
        outages = self.gateway.log().count(OUTAGE)
        try:
            self.round(sample)
        except (OSError, pika.exceptions.AMQPError):
            if self.gateway.log().count(OUTAGE) == outages:
                raise
            self.did[INTERRUPTED] += 1
            if self.collector is None:
                self.begin_collector()
            self.settle()
            return False
        return True

    def round(self, sample: Sample) -> None:
        kind = list(KINDS)[self.number % len(KINDS)]
        self.number += 1
        sample.life = self.life
        sample.amqp_p50_ms = self.calm("amqp")
        sample.rocketmq_p50_ms = self.calm("rocketmq")
        for protocol in PROTOCOLS:
            sample.done[f"{protocol} {kind}"] = self.disturb(protocol, kind)
        self.spool()
        self.refuse()
        self.change()
        self.invent()
        if self.due("rabbitmq_killed"):
            self.rabbitmq.kill()
            self.rabbitmq.start_node()
        if self.due("rocketmq_killed"):
            self.rocketmq.kill()
            self.rocketmq.start_broker()
        if self.due("rocketmq_hangs"):
            self.rocketmq.pause()
            time.sleep(HANGS_S)
            self.rocketmq.resume()
        self.settle()
        things = open_things(self.gateway.process.pid)
        sample.resident_mib = self.gateway.resident_bytes() / MIB
        sample.files, sample.sockets, sample.threads = things

    def disturb(self, protocol: str, kind: str) -> int:
        """One stretch, amid which Redis or the collector may be away; how much the disturber did."""
        with ExitStack() as stack:
            if protocol == "amqp":
                stack.enter_context(Queue(self.rabbitmq.url, NOISY)).fill(STORED, b"x" * 1000)
            port = self.gateway.admin_port if kind == "admin reads" else self.ports[protocol]
            disturber = stack.enter_context(Disturber(protocol, kind, port, NOISY, self.gateway.token))
            redis_goes = protocol == "amqp" and self.due("redis_killed")
            collector_goes = protocol == "rocketmq" and self.due("collector_killed")
            with disturber.disturbing() as done:
                time.sleep(DISTURBED_S / 3)
                if redis_goes:
                    self.redis.kill()
                if collector_goes:
                    self.end_collector()
                    self.refuse()
                time.sleep(DISTURBED_S / 3)
                if redis_goes:
                    self.redis.start()
                if collector_goes:
                    self.begin_collector()
                time.sleep(DISTURBED_S / 3)
        if not done["done"]:
            raise AssertionError(f"{protocol}, {kind}: nothing was done")
        return done["done"]

    def settle(self) -> None:
        """Until all clients have gone, and all peers are there again."""
        wait_until(lambda: self.gateway.answers("/readyz"), within=60, what="the gateway to be ready again")
        wait_until(lambda: self.gateway.get("/v1/status")["connections"] == 0, within=60, what="all clients to have gone")
        for member in (self.gateway, self.neighbour):
            wait_until(lambda: self.in_fleet(member), within=60, what="two gateways in the fleet")  # noqa: B023  -- called at once

    @staticmethod
    def in_fleet(member: Gateway) -> bool:
        fleet = member.get("/v1/status")["fleet"]
        return bool(fleet["reachable"]) and fleet["gateways"] == 2

    # ---- its peers -------------------------------------------------------------------------------------------------

    def begin_collector(self) -> None:
        self.collector = Collector(port=self.collector_port).__enter__()

    def end_collector(self) -> None:
        if self.collector is not None:
            self.collector.__exit__()
            self.collector = None

    def take_over(self) -> None:
        """While clients come; what was confirmed must be there, once, and the process before must have ended in order."""
        newcomers = Newcomers(self.ports["amqp"], UPGRADED)
        with Queue(self.rabbitmq.url, UPGRADED) as queue:
            with newcomers.coming():
                wait_until(lambda: newcomers.have_confirmed(20), within=60, what="confirms before the takeover")
                said = self.gateway.replace()
                confirmed = len(newcomers.confirmed)
                wait_until(lambda: newcomers.have_confirmed(confirmed + 20), within=60, what="confirms after it")
            stored = queue.drain()
        lost = set(newcomers.confirmed) - set(stored)
        if newcomers.faults or lost or len(stored) != len(set(stored)) or faults_of_lines(said):
            raise AssertionError(f"takeover: {newcomers.faults}, {len(lost)} lost, {len(stored)} stored\n{said[-LAST_WORDS:]}")
        self.life += 1
        self.settle()
        self.fill_tables()

    # ---- messages --------------------------------------------------------------------------------------------------

    def spool(self) -> None:
        """A burst of which most waits on disk or in memory; all of it must arrive, in order, and have its own confirm."""
        with Queue(self.rabbitmq.url, SPOOLED) as queue, NumberedPublisher(self.ports["amqp"], confirms=True) as publisher:
            publisher.begin(SPOOLED_COUNT, [SPOOLED])
            wait_until(
                lambda: len(publisher.acked) == SPOOLED_COUNT or publisher.over.is_set(), within=60, what="all of it to be confirmed"
            )
            stored = [message.number for message in take_all(queue, SPOOLED_COUNT)]
            if stored != list(range(SPOOLED_COUNT)) or len(publisher.acked) != SPOOLED_COUNT:
                raise AssertionError(f"spool: {len(publisher.acked)} confirmed, {len(publisher.nacked)} refused, {len(stored)} stored")

    def refuse(self) -> None:
        """Refused messages with a trace: their spans come, if the collector is there."""
        before = 0 if self.collector is None else len(self.collector.spans)
        with closing(pika.BlockingConnection(pika.URLParameters(self.gateway.amqp_url()))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number in range(SPANS):
                headers = {"traceparent": f"00-{self.number * SPANS + number + 1:032x}-b7ad6b7169203331-01"}
                with suppress(pika.exceptions.NackError):
                    channel.basic_publish("", REFUSED, b"hello", pika.BasicProperties(headers=headers))
                    raise AssertionError("a message passed that is refused")
        if self.collector is not None:
            self.collector.wait_for(before + SPANS)
            self.collector.spans.clear()
            self.collector.headers.clear()

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
        rate = {"messages": f"{200 + self.number % 2}/s", "bytes": "8MiB/s"}
        self.gateway.write_rules([{**RULES[0], "limit": rate}, *RULES[1:]])
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
        began = time.monotonic()
        for first in range(0, FILLING, OF_ONE_CLIENT):
            address = f"127.0.1.{1 + first // OF_ONE_CLIENT}"
            with socket.create_connection((LOOPBACK, self.ports["amqp"]), timeout=HANG_S, source_address=(address, 0)) as client:
                client.sendall(opening(1))
                for at in range(first, first + OF_ONE_CLIENT, BURST):
                    time.sleep(max(0.0, began + at / FILLING_RATE - time.monotonic()))
                    client.sendall(b"".join(amqp.publish(1, f"amq.gen-filling-{number:012}") for number in range(at, at + BURST)))
                wait_until(lambda: self.forwarded(address) == OF_ONE_CLIENT, within=120, what="all of them to be forwarded")  # noqa: B023
        used = self.gateway.get("/v1/status")["limits"]
        if used["levels"] < at_hand(used["max_keys"]):
            raise AssertionError(f"the limiter's table is not full: {used}")

    def forwarded(self, address: str) -> int:
        """Of the client there."""
        found: list[dict[str, Any]] = self.gateway.get("/v1/connections")["items"]
        return sum(each["messages_forwarded"] for each in found if each["client"].startswith(f"{address}:"))

    def night(self) -> None:
        """Quotas of today until now, from the log; published."""
        day = datetime.now(UTC).date().isoformat()
        words = ["quotas", "compute", "--log", "access-log", "--date", day, "--state", "quota-state", "-o", "quotas.json"]
        folder = self.gateway.directory
        with Process([*command(), *words], log=folder / "night.log", cwd=folder) as job:
            code = job.popen.wait(NIGHT_S)
            if code:
                raise AssertionError(f"quotas compute ended with {code}\n{job.output()[-3000:]}")
        self.gateway.cli("quotas", "apply", "quotas.json", "--yes")
        self.did["night"] += 1


def lives_of(samples: list[Sample]) -> list[list[Sample]]:
    """The samples of each process, in order."""
    return [[each for each in samples if each.life == life] for life in sorted({each.life for each in samples})]


def at_one_age(samples: list[Sample], name: str) -> list[float]:
    """Of each process that lived as long: the median in its second circle of disturbances."""
    lives = [life[CIRCLE : 2 * CIRCLE] for life in lives_of(samples) if len(life) >= 2 * CIRCLE]
    return [statistics.median(getattr(each, name) for each in life) for life in lives]


def grown(samples: list[Sample]) -> tuple[dict[str, Trend], list[str]]:
    """Trends of the last process by name, and what grew too much in it or from process to process, in words."""
    trends, faults = {}, []
    last = lives_of(samples)[-1]
    for name, most in LIMITS.items():
        found = trends[name] = trend([(each.at_s, getattr(each, name)) for each in last])
        if max(found.grown, found.per_hour) > most:
            grew = f"{found.begin:.1f} at the beginning, {found.end:.1f} at the end, {found.per_hour:+.1f} an hour"
            faults.append(f"{name}: {grew}; {most:g} more are allowed")
        ages = at_one_age(samples, name)
        if len(ages) > 1 and ages[-1] - ages[0] > most:
            faults.append(
                f"{name}, from process to process: {ages[0]:.1f} in the first, {ages[-1]:.1f} in the last; {most:g} more are allowed"
            )
    for name in ("amqp_p50_ms", "rocketmq_p50_ms"):
        found = trends[name] = trend([(each.at_s, getattr(each, name)) for each in last])
        if found.end > SLOWER[0] * found.begin + SLOWER[1]:
            faults.append(f"{name}: {found.begin:.2f} at the beginning, {found.end:.2f} at the end")
    return trends, faults


def soak(hours: float, every: Every, samples: list[Sample], say: Callable[[str], None]) -> Counter[str]:
    """Run, and add every round's sample; what else was done how often."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-soak-")))
        rabbitmq = stack.enter_context(RabbitMQ(folder / "rabbitmq"))
        # New names are no topics of the broker: it would have as many files open for each, and not start again after an hour.
        rocketmq = stack.enter_context(RocketMQ(folder / "rocketmq", {"autoCreateTopicEnable": "false"}, advertised=LOOPBACK))
        redis = stack.enter_context(RedisServer(folder / "redis"))
        rocketmq.create_topics(QUIET, NOISY)
        (collector_port,) = free_ports(1)
        settings: dict[str, object] = {
            "gateway": {"name": "soak", "state_directory": "state", "takeover": "run/takeover.sock"},
            "fleet": {"redis": {"url": redis.url, "name": "soak", "timeout": "200ms"}},
            "tracing": {"endpoint": f"http://{LOOPBACK}:{collector_port}/v1/traces", "timeout": "1s"},
        }
        gateway, neighbour = (
            stack.enter_context(Gateway(folder / name, listeners_of(rabbitmq, rocketmq), RULES, settings))
            for name in ("gateway", "neighbour")
        )
        stack.push(lambda kind, *_: say(gateway.log()[-LAST_WORDS:]) if kind is not None else None)  # else it goes with its folder
        run = Soak(gateway, neighbour, rabbitmq, rocketmq, redis, collector_port, every)
        run.begin_collector()
        stack.callback(run.end_collector)
        run.fill_tables()
        began = time.monotonic()
        night_at = began + NIGHT_EVERY_S / 2
        while time.monotonic() - began < hours * 3600:
            sample = Sample(round(time.monotonic() - began, 1))
            if not run.has_done(sample):
                continue
            samples.append(sample)
            say(json.dumps(asdict(sample)))
            if time.monotonic() > night_at:
                night_at += NIGHT_EVERY_S
                run.night()
            age = sum(each.life == run.life for each in samples)  # rounds that were interrupted do not count
            if age % every.taken_over == 0 and time.monotonic() - began < TAKING_OVER * hours * 3600:
                run.take_over()
        if run.did[INTERRUPTED] > MOST_INTERRUPTED * run.number:
            raise AssertionError(f"{run.did[INTERRUPTED]} of {run.number} rounds were interrupted")
    return run.did


def listeners_of(rabbitmq: RabbitMQ, rocketmq: RocketMQ) -> list[dict[str, object]]:
    ports = free_ports(2)  # a bind with port 0 gets another at a takeover
    return [
        amqp_listener(f"{LOOPBACK}:{rabbitmq.port}") | {"bind": f"{LOOPBACK}:{ports[0]}"},
        {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:{ports[1]}", "upstream": f"{LOOPBACK}:{rocketmq.port}"},
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--report", type=Path, default=ROOT / "build" / "soak.json")
    parser.add_argument("--rehearse", action="store_true", help="show each disturbance once; judge nothing")
    arguments = parser.parse_args()
    if arguments.hours < SHORTEST_H and not arguments.rehearse:
        parser.error(f"--hours {arguments.hours:g} is too short to see a trend: at least {SHORTEST_H:g}")
    every = REHEARSED if arguments.rehearse else Every()
    samples: list[Sample] = []
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    try:
        did = soak(arguments.hours, every, samples, lambda line: print(line, file=sys.stderr, flush=True))
    except BaseException:
        arguments.report.write_text(json.dumps({"samples": [asdict(each) for each in samples]}, indent=1) + "\n")
        raise
    if arguments.rehearse:
        print(f"{len(samples)} rounds, {samples[-1].life} takeovers, {dict(did)}")
        return 0
    arguments.report.write_text(json.dumps({"samples": [asdict(each) for each in samples]}, indent=1) + "\n")  # for what fails now
    trends, faults = grown(samples)
    ages = {name: at_one_age(samples, name) for name in LIMITS}
    if len(ages["resident_mib"]) < 2:
        faults.append("no two processes lived for two circles of disturbances: run longer")
    found = {
        "hours": arguments.hours,
        "rounds": len(samples),
        "takeovers": samples[-1].life,
        "done": did,
        "faults": faults,
        "at_one_age": ages,
    }
    found |= {"trends": {name: asdict(each) for name, each in trends.items()}, "samples": [asdict(each) for each in samples]}
    arguments.report.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(samples)} rounds in {arguments.hours:g} h, {samples[-1].life} takeovers, {dict(did)}")
    for name, each in trends.items():
        print(f"{name:16} {each.begin:9.2f} -> {each.end:9.2f}   {each.per_hour:+.3f} an hour, in the last process")
    for name, values in ages.items():
        print(f"{name:16} {' '.join(f'{value:9.2f}' for value in values)}   of each process at one age")
    for fault in faults:
        print(f"grown: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
