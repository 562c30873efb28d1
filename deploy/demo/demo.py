"""The whole story on real parts, in three minutes: `make demo`.

A private RabbitMQ, the gateway in front of it, three publishers (one a flood) and a consumer with an ordinary client library. A table
each second; a limit changed live; then the gateway's own log goes through Spark and the quotas that come out are put in force. A minute's
burst of another publisher waits on disk. Where Java and Maven are there, RocketMQ follows in the same way. Everything that was started is
stopped; exit code 0, or 1 and what failed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from story import ROOT, Gateway, expect, perform, say, stay, stays  # isort: skip  -- sets the path to the tests' support
from support.brokers.rabbitmq import RabbitMQ, RabbitMQMissingError
from support.processes import Process

TOPICS = {"order.created": 40.0, "audit.entry": 20.0, "retry.payment": 0.0}  # messages a second; 0: as fast as the answers come
FLOOD = "retry.payment"
EXCHANGE = "shop"

RATE = 300  # messages a second: the rule for every topic, and what no learned quota may exceed
LIMIT = {"messages": f"{RATE}/s"}
RULE = {"per": "topic", "limit": LIMIT, "breaker": {"open_for": "0s"}}
BATCHES = "batches"  # the exchange whose messages wait on disk
BATCH = "batch.nightly"
BURST = 60 * RATE  # messages, at once: a minute's worth of its limit
RULES: list[dict[str, object]] = [
    {"name": "amqp-topics", "match": {"protocol": "amqp", "exchange": EXCHANGE}, **RULE},
    {"name": "amqp-batches", "match": {"protocol": "amqp", "exchange": BATCHES}, "per": "topic", "limit": LIMIT, "action": "spool"},
    {"name": "rocketmq-topics", "match": {"protocol": "rocketmq"}, **RULE},
]

REPORT = ROOT / "build" / "demo-quotas.html"


class Publisher:
    """One traffic.py; its last second is kept by a thread that reads its output."""

    def __init__(self, url: str, topic: str, rate: float, seconds: float) -> None:
        program = Path(__file__).with_name("traffic.py")
        command = [sys.executable, str(program), url, EXCHANGE, topic, str(rate), str(seconds)]
        self.seconds: list[dict[str, float]] = []
        self._popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            self.seconds.append(json.loads(line))

    def finish(self) -> None:
        code = self._popen.wait(30)
        self._reader.join(5)
        if code != 0:
            raise RuntimeError(f"a publisher ended with {code}")

    def total(self, field: str) -> float:
        return sum(second[field] for second in self.seconds)


class Round:
    """All publishers at once for some seconds, with a table line each second."""

    def __init__(self, url: str, seconds: int, after: dict[int, Any] | None = None) -> None:
        self.publishers = {topic: Publisher(url, topic, rate, seconds) for topic, rate in TOPICS.items()}
        after = after or {}
        self._head()
        for second in range(seconds):
            self._wait_for(second)
            self._row(second)
            if second in after:
                after[second]()
                self._head()
        for publisher in self.publishers.values():
            publisher.finish()

    def _wait_for(self, second: int) -> None:
        give_up = time.monotonic() + 20
        while any(len(publisher.seconds) <= second for publisher in self.publishers.values()):
            if time.monotonic() > give_up:
                raise RuntimeError(f"no traffic in second {second}: is the gateway up?")
            time.sleep(0.05)

    def _head(self) -> None:
        say()
        say("  second │" + "│".join(f" {topic:^33} " for topic in TOPICS) + "│")
        say("         │" + "│".join(f" {'offered':>8} {'passed':>7} {'refused':>8} {'p99 ms':>7} " for _ in TOPICS) + "│")

    def _row(self, second: int) -> None:
        cells = []
        for publisher in self.publishers.values():
            now = publisher.seconds[second]
            cells.append(f" {now['offered']:>8.0f} {now['passed']:>7.0f} {now['refused']:>8.0f} {now['p99_ms']:>7.1f} ")
        say(f"  {second + 1:>6} │" + "│".join(cells) + "│")

    def passed_per_second(self, topic: str, seconds: slice) -> float:
        chosen = self.publishers[topic].seconds[seconds]
        return sum(second["passed"] for second in chosen) / max(1, len(chosen))


def declare(url: str) -> None:
    """The topology: one topic exchange, a queue for each topic."""
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.exchange_declare(EXCHANGE, "topic")
    for topic in TOPICS:
        channel.queue_declare(topic)
        channel.queue_bind(topic, EXCHANGE, topic)
    connection.close()


def rabbitmq_story(scratch: Path, summary: list[str]) -> None:
    say("Starting a private RabbitMQ and the gateway in front of it ...")
    with RabbitMQ(scratch / "rabbitmq") as broker:
        gateway = Gateway(
            scratch, [{"name": "rabbit", "protocol": "amqp", "bind": "127.0.0.1:0", "upstream": f"127.0.0.1:{broker.port}"}], RULES
        )
        try:
            _rabbitmq_rounds(gateway, scratch, summary)
            _absorb(gateway, summary)
            if stays():
                _stay(gateway, scratch)
        finally:
            gateway.stop()
    summary.append("the gateway finished what was in flight and ended with 0")


def _stay(gateway: Gateway, scratch: Path) -> None:
    """Traffic and a consumer until a person ends it. They have a group of their own, so Ctrl+C is for the demo alone."""
    url = f"amqp://guest:guest@{gateway.address}/"
    programs: list[list[str | Path]] = [[Path(__file__).with_name("consumer.py"), url, *TOPICS]]
    programs += [[Path(__file__).with_name("traffic.py"), url, EXCHANGE, topic, str(rate), "1e9"] for topic, rate in TOPICS.items()]
    started = [Process([sys.executable, *words], log=scratch / f"stay-{at}.log") for at, words in enumerate(programs)]
    try:
        stay(gateway, scratch / "state" / "admin.token")
    finally:
        for each in started:
            each.stop()


def _rabbitmq_rounds(gateway: Gateway, scratch: Path, summary: list[str]) -> None:
    url = f"amqp://guest:guest@{gateway.address}/"
    declare(url)
    consumer = Process([sys.executable, Path(__file__).with_name("consumer.py"), url, *TOPICS], log=scratch / "consumer.log")
    try:
        say(f"RabbitMQ is behind {gateway.address}. The rule: 300 messages/s for each topic. {FLOOD} floods.")
        change = ("limits", "set", "amqp", "/", EXCHANGE, FLOOD, "--messages", "100/s", "--reason", "demo: this topic floods")
        flood = Round(url, 12, {5: lambda: gateway.sluice(*change)})
        before = flood.passed_per_second(FLOOD, slice(2, 6))
        after = flood.passed_per_second(FLOOD, slice(8, 12))
        calm = flood.publishers["order.created"]
        expect(f"about 300/s of {FLOOD} pass before the change, not {before:.0f}", held=200 <= before <= 360)
        expect(f"about 100/s of {FLOOD} pass after the change, not {after:.0f}", held=70 <= after <= 130)
        expect("no message of a calm topic is refused", held=calm.total("refused") == 0)
        summary.append(
            f"{FLOOD} was limited to {before:.0f}/s, after `sluice limits set ... 100/s` to {after:.0f}/s; calm topics lost nothing"
        )
        gateway.sluice("limits", "list")
        gateway.sluice("limits", "unset", "amqp", "/", EXCHANGE, FLOOD, "--reason", "demo: Spark takes over")
        _learn(gateway, scratch, summary)
        learned = Round(url, 10)
        gateway.sluice("limits", "list")
        passed = learned.passed_per_second(FLOOD, slice(8, 10))
        summary.append(
            f"with the published quotas in force {passed:.0f}/s of {FLOOD} pass in the last two seconds, when its learned burst is spent"
        )
        expect(
            "the calm topics keep their rate under the published quotas", held=learned.passed_per_second("order.created", slice(1, 6)) > 30
        )
    finally:
        consumer.stop()
    delivered = json.loads(consumer.output().splitlines()[-1])
    total = sum(round(stage.publishers[topic].total("passed")) for stage in (flood, learned) for topic in TOPICS)
    expect(f"every confirmed message reaches the consumer ({total} confirmed, {delivered})", held=sum(delivered.values()) == total)
    summary.append(f"every one of the {total} confirmed messages reached the consumer, none that was refused did")


def _absorb(gateway: Gateway, summary: list[str]) -> None:
    """A minute's burst at once, without confirms: it waits on disk, and passes at its limit, which is then raised."""
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{gateway.address}/"))
    sending, looking = connection.channel(), connection.channel()
    looking.exchange_declare(BATCHES, "topic")
    looking.queue_declare(BATCH)
    looking.queue_bind(BATCH, BATCHES, BATCH)
    say(f"\nA publisher of {BATCH} sends {BURST} messages of 1 KiB at once. The rule of the exchange {BATCHES}: {RATE}/s, action: spool.")
    began = time.monotonic()
    for number in range(BURST):
        sending.basic_publish(BATCHES, BATCH, b"%08d" % number + b"x" * 1016)
    taken = time.monotonic() - began
    say(f"The gateway took them in {taken:.1f} s. What is over the limit waits:")
    say("\n  second │ in the queue │ waits in the spool │  on disk")
    arrived: list[int] = []
    most = 0  # bytes on disk
    while not arrived or arrived[-1] < BURST:
        if time.monotonic() - began > 60:
            raise RuntimeError(f"{BURST - arrived[-1]} messages of the burst have not come after a minute")
        connection.sleep(1)
        arrived.append(looking.queue_declare(BATCH, passive=True).method.message_count)
        spool = gateway.get("/v1/spool")
        waiting = sum(topic["messages"] for topic in spool["items"])
        most = max(most, spool["spool"]["used_bytes"])
        say(f"  {len(arrived):>6} │ {arrived[-1]:>12} │ {waiting:>18} │ {spool['spool']['used_bytes'] / (1 << 20):>5.1f} MiB")
        if len(arrived) == 5:
            gateway.sluice("spool", "list")
            gateway.sluice("limits", "set", "amqp", "/", BATCHES, BATCH, "--messages", "3000/s", "--reason", "demo: the night is short")
            say()
    expect("what is over the limit waits on disk", held=most > 0)
    passed = (arrived[4] - arrived[0]) / 4
    expect(f"about {RATE}/s of the burst pass before the change, not {passed:.0f}", held=RATE * 0.6 <= passed <= RATE * 1.4)
    numbers = []
    for _, _, body in looking.consume(BATCH, auto_ack=True, inactivity_timeout=5):
        numbers.append(int(body[:8]) if body else -1)
        if len(numbers) == BURST or not body:
            break
    expect("the whole burst reaches its queue, in order", held=numbers == list(range(BURST)))
    connection.close()
    summary.append(f"a burst of {BURST} messages waited on disk: taken in {taken:.1f} s, passed at {passed:.0f}/s, then faster, none lost")


def _learn(gateway: Gateway, scratch: Path, summary: list[str]) -> None:
    """One night: of today, and from one day, where a real one has three before a topic gets its first quota."""
    say("\nThe gateway's own log goes through Spark (up to a minute on a small machine); no quota may have a higher rate than the rule ...")
    REPORT.parent.mkdir(exist_ok=True)
    gateway.sluice(
        "quotas", "nightly", "--date", f"{datetime.now(UTC):%Y-%m-%d}", "--log", str(gateway.log), "--state", str(scratch / "quota-state"),
        "--report", str(REPORT), "--master", "local[2]", "--set", f"ceiling_messages={RATE}", "--set", "min_active_days=1",
    )  # fmt: skip
    quotas = gateway.get("/v1/quotas")["quotas"]
    expect(f"each of the {len(TOPICS)} topics has a quota, not {len(quotas)}", held=len(quotas) == len(TOPICS))
    expect(f"the report has all topics: {REPORT}", held=all(topic in REPORT.read_text() for topic in TOPICS))
    gateway.sluice("quotas", "show", f"%2F/{EXCHANGE}/{FLOOD}")
    summary.append(f"Spark learned {len(quotas)} quotas from the gateway's log; `sluice quotas nightly` published them in one swap")
    summary.append(f"its report, for a browser: {REPORT}")


def rocketmq_story(scratch: Path, summary: list[str]) -> None:
    """The same with RocketMQ's own broker and Java client, where Java and Maven (and Maven Central) are there."""
    if not (shutil.which("java") and shutil.which("mvn")):
        summary.append("RocketMQ's part was left out: it needs Java 17 and Maven (apt-get install openjdk-17-jdk-headless maven)")
        return
    from support.brokers.rocketmq import RocketMQ
    from support.clients.programs import RocketMQClient
    from support.java import MavenUnreachableError

    say("\nStarting RocketMQ's own name server and broker, and a gateway at the broker's advertised address ...")
    scratch.mkdir()
    try:
        broker = RocketMQ(scratch / "broker")
    except MavenUnreachableError as error:
        summary.append(f"RocketMQ's part was left out: {error}")
        return
    gateway = Gateway(scratch, broker.listeners, RULES)
    try:
        with broker:
            broker.create_topics("orders", "retries")
            (scratch / "client").mkdir()
            client = RocketMQClient("5.3.3", scratch / "client", broker.name_server)
            say("The rule: 300 messages/s for each topic. `retries` floods, `orders` sends 40/s, on the same connection.")
            for limit in ("", "100/s"):
                if limit:
                    gateway.sluice("limits", "set", "rocketmq", "retries", "--messages", limit, "--reason", "demo: this topic floods")
                jobs = (
                    {"topic": "retries", "mode": "sync", "seconds": 6, "threads": 8},
                    {"topic": "orders", "mode": "sync", "seconds": 6, "rate": 40},
                )
                flood, calm = client.produce(f"demo{limit[:3]}", *jobs).result(60)
                say(f"  retries: {flood['sent']} offered, {flood['ok']} passed, refused by code {flood['codes']}")
                say(f"  orders:  {calm['sent']} offered, {calm['ok']} passed")
                expect("no message of the calm topic is refused", held=calm["ok"] == calm["sent"])
                expect("the flood is refused with code 215 only", held=set(flood["codes"]) == {"215"})
                rate = 100 if limit else 300
                expect(f"about {rate}/s of the flood pass", held=flood["ok"] <= rate * 8)
                summary.append(f"RocketMQ: with a limit of {rate}/s, {flood['ok']} of {flood['sent']} passed in 6 s, the rest saw code 215")
            gateway.sluice("limits", "list")
    finally:
        gateway.stop()


def tell(scratch: Path, summary: list[str]) -> None:
    rabbitmq_story(scratch, summary)
    if stays():
        return
    rocketmq_story(scratch / "rocketmq-story", summary)


if __name__ == "__main__":
    sys.exit(perform("demo", tell, (RabbitMQMissingError,)))
