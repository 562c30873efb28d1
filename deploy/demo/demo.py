"""The whole story on real parts: `make demo`.

A private RabbitMQ, the gateway in front of it, three publishers (one a flood) and a consumer with an ordinary client library. A table
each second; a limit changed live; a minute's burst of another publisher waits on disk; then the gateway's own log goes through Spark and
its quotas are put in force. Everything that was started is stopped; exit code 0, or 1 and what failed.

Each promise it checks holds on any machine, however slow or busy (judging.py). It waits without a time-out as long as something moves.

    demo.py [--make MAKE --spark TARGET]

With `--make` it does not wait for the compiler: what is not installed yet is installed beside the story, by `MAKE TARGET install`, and pure
Python plays meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from story import ROOT, SLUICE, Gateway, expect, json_lines, perform, say, stays, sum_up, wait_while_it_moves  # isort: skip  -- sets the path to the tests' support
from installing import Installing
from judging import Limit, Message, Window, must_pass, window

from support.brokers.rabbitmq import RabbitMQ, RabbitMQMissingError
from support.processes import LOOPBACK, Process, is_free

RATE: Final = 300  # messages a second: the rule for every topic, and what no learned quota may exceed
RULE: Final = [Limit(RATE, RATE)]  # a rule that names no burst has a second's worth
LOWERED: Final = 100  # messages a second: what the flood is limited to live
SIZE: Final = 200  # bytes of a message, as traffic.py has it
FLOOD: Final = "retry.payment"
TOPICS: Final = {"order.created": (40.0, 20), "audit.entry": (20.0, 20), FLOOD: (5.0 * RATE, 500)}  # messages a second, and unanswered
EXCHANGE: Final = "shop"
SHOWN_S: Final = 6  # of each limit

LIMIT = {"messages": f"{RATE}/s"}
BATCHES = "batches"  # the exchange whose messages wait on disk
BATCH = "batch.nightly"
BACKLOG: Final = 60 * RATE  # messages, at once: a minute's worth of its limit
RULES: list[dict[str, object]] = [
    {
        "name": "topics",
        "match": {"protocol": "amqp", "exchange": EXCHANGE},
        "per": "topic",
        "limit": LIMIT,
        "breaker": {"open_for": "0s"},
    },
    {"name": "batches", "match": {"protocol": "amqp", "exchange": BATCHES}, "per": "topic", "limit": LIMIT, "action": "spool"},
]

REPORT = ROOT / "build" / "demo-quotas.html"
DASHBOARD_PORT: Final = 9180  # the default of admin.bind


class Program:
    """A neighbour of this file that prints JSON lines."""

    def __init__(self, log: Path, name: str, *words: object) -> None:
        self.process = Process([sys.executable, Path(__file__).with_name(name), *map(str, words)], log=log)

    def lines(self) -> list[Any]:
        output = self.process.output()
        if self.process.popen.poll() not in {None, 0}:
            raise RuntimeError(f"{self.process.argv[-1]}: {output[-2000:]}")
        return json_lines(output)

    def finish(self, what: str) -> list[Any]:
        """A publisher's lines, after SIGTERM has ended it and the last answer has come."""
        self.process.popen.terminate()
        wait_while_it_moves(
            lambda: not self.process.alive(), lambda: sum(line.get("passed", 0) + line.get("refused", 0) for line in self.lines()), what
        )
        return self.lines()


class Round:
    """All publishers at once, with a table line each second. A context manager."""

    def __init__(self, url: str, scratch: Path) -> None:
        scratch.mkdir()
        self.publishers = {
            topic: Program(scratch / f"{topic}.log", "traffic.py", url, EXCHANGE, topic, rate, unanswered, "each")
            for topic, (rate, unanswered) in TOPICS.items()
        }
        self.began: dict[str, float] = {}
        self.messages: dict[str, list[Message]] = {}
        self.seconds = 0.0  # that it lasted
        self._started = time.monotonic()
        self._rows = 0

    def __enter__(self) -> Round:
        return self

    def __exit__(self, *_: object) -> None:
        for publisher in self.publishers.values():
            publisher.process.stop()

    def show(self, *, until: float) -> None:
        """Lines of the table until the first of a moment from `until` on."""
        say()
        say("  second │" + "│".join(f" {topic:^33} " for topic in TOPICS) + "│")
        say("         │" + "│".join(f" {'offered':>8} {'passed':>7} {'refused':>8} {'p99 ms':>7} " for _ in TOPICS) + "│")
        while self._show_row() < until:
            pass

    def show_before(self, moment: float) -> None:
        """The lines of seconds that have ended by then, for the table shown last."""
        while max(now["at"] for now in self._next_row()) < moment:
            self._show_row()

    def _show_row(self) -> float:
        """The next line, and when the first of its seconds ended."""
        row = self._next_row()
        self._rows += 1
        at = min(now["at"] for now in row)
        say(f"  {at - self._started:>6.0f} │" + "│".join(_cell(now) for now in row) + "│")
        return at

    def _next_row(self) -> list[dict[str, float]]:
        def lengths() -> list[int]:
            return [len(publisher.lines()) for publisher in self.publishers.values()]

        wait_while_it_moves(lambda: min(lengths()) > self._rows, lengths, "the traffic")
        return [publisher.lines()[self._rows] for publisher in self.publishers.values()]

    def finish(self) -> None:
        """End the traffic, with an answer to each message."""
        for topic, publisher in self.publishers.items():
            told = publisher.finish(f"answers to the publisher of {topic}")[-1]
            self.began[topic] = told["began"]
            self.messages[topic] = [Message(*message) for message in told["messages"]]
        self.seconds = time.monotonic() - self._started

    def confirmed(self, topic: str) -> int:
        return sum(message.passed for message in self.messages[topic])


def _cell(now: dict[str, Any]) -> str:
    p99 = "" if now["p99_ms"] is None else f"{now['p99_ms']:.1f}"
    return f" {now['offered']:>8} {now['passed']:>7} {now['refused']:>8} {p99:>7} "


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


def tell(scratch: Path, summary: list[str], make: str | None, spark: str) -> None:
    installing = Installing(make, spark) if make else None
    command = installing.command if installing else SLUICE
    try:
        version = json.loads(subprocess.run([*command, "version", "-o", "json"], capture_output=True, text=True, check=True).stdout)
        how = (
            ", from the source tree; the build for .venv is made meanwhile (build/demo-install.log)"
            if installing and installing.running
            else ""
        )
        say(f"This is sluice {version['sluice']}, build: {version['build']}{how}.")
        say("Starting a private RabbitMQ and the gateway in front of it ...")
        with RabbitMQ(scratch / "rabbitmq") as broker:
            listener: dict[str, object] = {
                "name": "rabbit",
                "protocol": "amqp",
                "bind": "127.0.0.1:0",
                "upstream": f"127.0.0.1:{broker.port}",
            }
            port = DASHBOARD_PORT if make and is_free(LOOPBACK, DASHBOARD_PORT) else 0
            gateway = Gateway(scratch, [listener], RULES, command=command, admin=f"{LOOPBACK}:{port}")
            try:
                say(f"The dashboard, as long as this runs: http://{gateway.admin}/ (sign in with the token {gateway.token})")
                story(gateway, scratch, summary, installing)
                if stays():
                    sum_up(summary)
                    stay(gateway, scratch, installing)
                    return
            finally:
                gateway.stop()
        summary.append("the gateway finished what was in flight and ended with 0")
        sum_up(summary)
        if installing:
            installing.finish()
        say_what_next()
    finally:
        if installing:
            installing.stop()


def story(gateway: Gateway, scratch: Path, summary: list[str], installing: Installing | None) -> None:
    url = gateway.url
    declare(url)
    consumer = Program(scratch / "consumer.log", "consumer.py", url, *TOPICS)
    day = f"{datetime.now(UTC):%Y-%m-%d}"  # of the flood's log, also where Spark is there after midnight
    try:
        rounds = [limit_the_flood(gateway, url, scratch / "flood", summary)]
        let_wait_on_disk(gateway, summary)
        learn(gateway, scratch, summary, installing, day)
        rounds.append(limit_by_quotas(gateway, url, scratch / "learned", summary))
        confirmed = {topic: sum(each.confirmed(topic) for each in rounds) for topic in TOPICS}

        def delivered() -> dict[str, int]:
            told = consumer.lines()[-1:]
            return told[0] if told else dict.fromkeys(TOPICS, 0)

        wait_while_it_moves(lambda: all(delivered()[topic] >= confirmed[topic] for topic in TOPICS), delivered, "the consumer")
        expect(f"the consumer gets the confirmed messages and no others: {confirmed}, not {delivered()}", held=delivered() == confirmed)
        summary.append(f"every one of the {sum(confirmed.values())} confirmed messages reached the consumer, none that was refused did")
    finally:
        consumer.process.stop()


def limit_the_flood(gateway: Gateway, url: str, scratch: Path, summary: list[str]) -> Round:
    """A limit by a rule, then another one live."""
    say(f"RabbitMQ is behind {gateway.address}. The rule: {RATE} messages/s for each topic. {FLOOD} floods with {TOPICS[FLOOD][0]:.0f}/s.")
    with Round(url, scratch) as flood:
        flood.show(until=time.monotonic() + SHOWN_S)
        changed = 0.0

        def show_what_was_before() -> None:  # the command takes seconds on a slow machine, and the traffic goes on
            nonlocal changed
            changed = time.monotonic()
            flood.show_before(changed)

        gateway.sluice(
            "limits", "set", "amqp", "/", EXCHANGE, FLOOD, "--messages", f"{LOWERED}/s", "--reason", "demo: this topic floods",
            before_shown=show_what_was_before,
        )  # fmt: skip
        say(f"\nFrom here on {FLOOD} may send {LOWERED}/s; the first line has a part of the second before.")
        flood.show(until=changed + SHOWN_S)
        flood.finish()
    messages = flood.messages[FLOOD]
    before = window(messages, flood.began[FLOOD], changed)
    expect(f"the first {RATE} messages of a topic pass, and not only {before.passed}", held=before.keeps_burst(RULE))
    judge("under its rule", before, RULE, summary)
    judge("from the answer of `sluice limits set` on", window(messages, changed), [Limit(LOWERED, LOWERED)], summary)
    judge_calm(flood, dict.fromkeys(TOPICS, RULE), summary)
    gateway.sluice("limits", "list")
    gateway.sluice("limits", "unset", "amqp", "/", EXCHANGE, FLOOD, "--reason", "demo: back to the rule")
    return flood


def judge(when: str, seen: Window, limits: list[Limit], summary: list[str]) -> None:
    """The flood under some limits."""
    limit = seen.tightest(limits)
    most = f"at most {limit.most(seen.seconds):.0f} ({limit}, for {seen.seconds:.1f} s)"
    expect(f"of {FLOOD} {most} pass {when}, not {seen.passed}", held=seen.within(limits))
    told = (
        f"{seen.refused} were refused" if seen.refused else "this machine, slow or busy, sends less than the limit, so nothing is refused"
    )
    summary.append(f"{FLOOD} {when}: {seen.passed} of {seen.offered} messages passed, of {most}; {told}")


def judge_calm(traffic: Round, limits: dict[str, list[Limit]], summary: list[str]) -> None:
    """The other topics, as far as they stay within their limits however the machine stalls."""
    safe = [topic for topic in TOPICS if topic != FLOOD and must_pass(*TOPICS[topic], traffic.seconds, limits[topic])]
    for topic in safe:
        refused = len(traffic.messages[topic]) - traffic.confirmed(topic)
        expect(f"no message of {topic} is refused beside the flood, not {refused}", held=refused == 0)
    if safe:
        total = sum(traffic.confirmed(topic) for topic in safe)
        summary.append(f"beside it {' and '.join(safe)} lost nothing: all {total} messages passed")


def let_wait_on_disk(gateway: Gateway, summary: list[str]) -> None:
    """A minute's burst at once, without confirms: it waits on disk, and passes at its limit, which is then raised."""
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(gateway.url))
    sending, looking = connection.channel(), connection.channel()
    looking.exchange_declare(BATCHES, "topic")
    looking.queue_declare(BATCH)
    looking.queue_bind(BATCH, BATCHES, BATCH)
    say(f"\nA publisher of {BATCH} sends {BACKLOG} messages of 1 KiB at once. The rule of the exchange {BATCHES}: {RATE}/s, action: spool.")
    began = time.monotonic()
    for number in range(BACKLOG):
        sending.basic_publish(BATCHES, BATCH, b"%08d" % number + b"x" * 1016)
    taken = time.monotonic() - began
    say(f"The gateway took them in {taken:.1f} s. What is over the limit waits:")
    say("\n  second │ in the queue │ waits in the spool │  on disk")
    arrived = 0
    most = 0  # bytes on disk

    def look() -> None:
        nonlocal arrived, most
        connection.sleep(1)
        arrived = looking.queue_declare(BATCH, passive=True).method.message_count
        elapsed = time.monotonic() - began
        spool = gateway.get("/v1/spool")
        waiting = sum(topic["messages"] for topic in spool["items"])
        most = max(most, spool["spool"]["used_bytes"])
        say(f"  {elapsed:>6.0f} │ {arrived:>12} │ {waiting:>18} │ {spool['spool']['used_bytes'] / (1 << 20):>5.1f} MiB")

    for _ in range(5):
        look()
        allowed = RULE[0].most(time.monotonic() - began)
        expect(f"no more than {allowed:.0f} of the burst pass before the change, not {arrived}", held=arrived <= allowed)
    gateway.sluice("spool", "list")
    gateway.sluice("limits", "set", "amqp", "/", BATCHES, BATCH, "--messages", "3000/s", "--reason", "demo: the night is short")
    say()

    def has_come() -> bool:
        look()
        return arrived == BACKLOG

    wait_while_it_moves(has_come, lambda: arrived, "the burst")
    numbers = []
    for _, _, body in looking.consume(BATCH, auto_ack=True):
        numbers.append(int(body[:8]))
        if len(numbers) == BACKLOG:
            break
    expect("the whole burst reaches its queue, in order", held=numbers == list(range(BACKLOG)))
    connection.close()
    if most == 0 and 2 * RULE[0].most(taken) > BACKLOG:
        summary.append(f"a burst of {BACKLOG} messages took this machine {taken:.0f} s to send, so it did not have to wait")
        return
    expect("what is over the limit waits on disk", held=most > 0)
    summary.append(
        f"a burst of {BACKLOG} messages was taken in {taken:.1f} s, waited on disk ({most / (1 << 20):.0f} MiB), and came whole "
        f"and in order, at {RATE}/s and then at a raised limit"
    )


def learn(gateway: Gateway, scratch: Path, summary: list[str], installing: Installing | None, day: str) -> None:
    """One night: of `day`, and from one day, where a real one has three before a topic gets its first quota. Spark is asked for more than
    its cores (--driver-memory): else so small a log is read without it."""
    if installing:
        installing.wait_for_spark()
    say("\nThe gateway's own log goes through Spark (a minute on a small machine); no quota may have a higher rate than the rule ...")
    REPORT.parent.mkdir(exist_ok=True)
    gateway.sluice(
        "quotas", "nightly", "--date", day, "--log", str(gateway.log), "--state", str(scratch / "quota-state"),
        "--report", str(REPORT), "--master", "local[2]", "--driver-memory", "1g",
        "--set", f"ceiling_messages={RATE}", "--set", "min_active_days=1",
    )  # fmt: skip
    learned = {quota["topic"] for quota in gateway.get("/v1/quotas")["quotas"]}
    missing = {f"%2F/{EXCHANGE}/{topic}" for topic in TOPICS} - learned
    expect(f"each topic has a quota, but {missing} has none", held=not missing)
    expect(f"the report has all topics: {REPORT}", held=all(topic in REPORT.read_text() for topic in TOPICS))
    gateway.sluice("quotas", "show", f"%2F/{EXCHANGE}/{FLOOD}")
    summary.append(f"Spark learned {len(learned)} quotas from the gateway's log; `sluice quotas nightly` published them in one swap")
    summary.append(f"its report, for a browser: {REPORT}")


def limit_by_quotas(gateway: Gateway, url: str, scratch: Path, summary: list[str]) -> Round:
    say("\nThe same traffic, under the quotas that were learned:")
    with Round(url, scratch) as traffic:
        traffic.show(until=time.monotonic() + SHOWN_S)
        traffic.finish()
    gateway.sluice("limits", "list")
    quotas = gateway.get("/v1/quotas")["quotas"]
    limits = {topic: limits_of(quota) for quota in quotas for topic in TOPICS if quota["topic"] == f"%2F/{EXCHANGE}/{topic}"}
    judge("under its quota", window(traffic.messages[FLOOD], traffic.began[FLOOD]), limits[FLOOD], summary)
    judge_calm(traffic, limits, summary)
    return traffic


def limits_of(quota: dict[str, Any]) -> list[Limit]:
    """A published quota of messages and bytes, both in messages of this demo."""
    messages, octets = quota["messages"], quota["bytes"]
    return [Limit(messages["rate"], messages["burst"]), Limit(octets["rate"] / SIZE, octets["burst"] / SIZE)]


def stay(gateway: Gateway, scratch: Path, installing: Installing | None) -> None:
    """Traffic and a consumer until a person ends it. They have a group of their own, so Ctrl+C is for the demo alone."""
    url = gateway.url
    (scratch / "stay").mkdir()
    started = [Program(scratch / "stay" / "consumer.log", "consumer.py", url, *TOPICS)]
    started += [
        Program(scratch / "stay" / f"{topic}.log", "traffic.py", url, EXCHANGE, topic, rate, unanswered)
        for topic, (rate, unanswered) in TOPICS.items()
    ]
    try:
        if installing:
            installing.finish()
        say_what_next(gateway)
        say("\nTraffic goes on, with a flood. Ctrl+C ends the demo.")
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        say("\nIt ends.")
    finally:
        for each in started:
            each.process.stop()


def say_what_next(gateway: Gateway | None = None) -> None:
    """Three things to do next; `gateway`: the one that still runs."""
    say("\nWhat to do next:")
    if gateway:
        say(f"  1. Look at the dashboard: http://{gateway.admin}/ (sign in with the token {gateway.token})")
    else:
        say(f"  1. Look at the dashboard: make demo STAY=1 stays up with it, on port {DASHBOARD_PORT}, and tells the token")
    say("  2. Limit the topics of a RabbitMQ of your own, here at port 5673:")
    say("     .venv/bin/sluice run --protocol amqp --bind 127.0.0.1:5672 --upstream 127.0.0.1:5673 --limit 500/s   (docs/tutorial.md)")
    say("  3. See a retry storm on a real RocketMQ, without and with a limit: make demo-incident")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--make", metavar="MAKE")
    options.add_argument("--spark", metavar="TARGET", default="install", help="what installs Spark's packages")
    given = options.parse_args()
    sys.exit(perform(lambda scratch, summary: tell(scratch, summary, given.make, given.spark), (RabbitMQMissingError,)))
