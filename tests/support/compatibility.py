"""The tables of docs/compatibility.md, of what green runs have started: `make compatibility`, after a green `make test`.

It adds what runs here have kept (support/ran.py) to KEPT, takes out of it what nothing fetches any more, and writes the tables. A test
holds the page to KEPT, and KEPT to what is fetched: whoever raises a library runs a test with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support import ran
from support.pins import numbers, pins

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "tests" / "ran.json"
PAGE: Final = ROOT / "docs" / "compatibility.md"
TABLE: Final = re.compile(r"(<!-- ran: (\w+) -->\n).*?(?=<!-- /ran -->)", re.DOTALL)

Runs = Mapping[str, Mapping[str, str]]  # name -> version -> the day of its last green run


@dataclass(frozen=True)
class Row:
    """`names` are as registries have them; of their versions those that begin with `of`."""

    label: str
    names: tuple[str, ...]
    tested: str = "every run"
    remarks: str = ""
    of: str = ""

    def cells(self, runs: Runs) -> tuple[str, ...]:
        by_day: dict[str, list[str]] = {}  # in the order of the names
        for name in self.names:
            for version in sorted(runs.get(name, ()), key=numbers, reverse=True):
                if version.startswith(self.of):
                    by_day.setdefault(runs[name][version], []).append(version)
        found = "; ".join(f"{', '.join(versions)} ({day})" for day, versions in by_day.items())
        return (self.label, found, self.tested, self.remarks)


BROKERS: Final = (
    Row(
        "RabbitMQ", ("RabbitMQ",), "every run (Debian 13's); 4.3 of Debian's unstable suite: `make test-rabbitmq4 SUITE=sid`",
        "AMQP 0-9-1 only; AMQP 1.0, which is native in 4, is refused in words or passed without a limit (`other_protocols`)", "4.",
    ),
    Row("RabbitMQ", ("RabbitMQ",), "`make test-long` (Debian 12's); `make demo`; `make bench`", of="3."),
    Row(
        "RocketMQ", ("org.apache.rocketmq:rocketmq-broker",), "every run; `make demo-incident`",
        "remoting protocol. `POP_LITE_MESSAGE` is limited like a pop, tested by frames as 5.5 has them, not with a client", "5.5",
    ),
    Row("RocketMQ", ("org.apache.rocketmq:rocketmq-broker",), "`make test-long`", of="5.3"),
    Row("Redis (one limit over many gateways)", ("Redis",), remarks="Redis 5 or later, or Valkey, by the commands it uses"),
    Row("Prometheus (scrapes, alerts, queries of the Grafana dashboard)", ("Prometheus",), remarks="Grafana itself is not tested"),
)  # fmt: skip
CLIENTS: Final = (
    Row("pika", ("pika",)),
    Row("aio-pika, aiormq", ("aio-pika", "aiormq")),
    Row("AMQPStorm", ("AMQPStorm",)),
    Row("py-amqp, kombu, Celery", ("amqp", "kombu", "celery")),
    Row("amqplib (Node)", ("amqplib",)),
    Row("Bunny (Ruby)", ("bunny",), remarks="Debian 12's; RubyGems has newer ones"),
    Row("Java amqp-client", ("com.rabbitmq:amqp-client",)),
    Row("Spring AMQP", ("org.springframework.amqp:spring-rabbit",), remarks="correlated confirms and returns, listener containers"),
    Row("amqp091-go", ("github.com/rabbitmq/amqp091-go",), remarks="before 1.8.0 its confirms are wrong"),
    Row("librabbitmq (C)", ("librabbitmq",), remarks="Debian 12's; upstream has newer ones"),
    Row("RocketMQ Java", ("org.apache.rocketmq:rocketmq-client",), "every run with 5.5.0 and 4.9.8; `make test-long` with 5.3.3 and 4.9.8"),
    Row("RocketMQ C++ core (PyPI `rocketmq`)", ("rocketmq",)),
    Row("rocketmq-client-go", ("github.com/apache/rocketmq-client-go/v2",)),
    Row("ali-ons (Node)", ("ali-ons",)),
    Row(
        "RocketMQ gRPC client for Java, behind the RocketMQ Proxy",
        ("org.apache.rocketmq:rocketmq-client-java", "org.apache.rocketmq:rocketmq-proxy"),
        "`make test-long`", "set `reply: system_busy`",
    ),
)  # fmt: skip
TABLES: Final = {"brokers": ("broker", BROKERS), "clients": ("library", CLIENTS)}


def names() -> set[str]:
    """All that has a row."""
    return {name for _, rows in TABLES.values() for row in rows for name in row.names}


def without_the_old(runs: Runs, fetched: Iterable[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """What has a row, and is still fetched; of what Debian brings the newest of each major version."""
    fetched = set(fetched)
    ours = {name for name, _ in fetched}
    found: dict[str, dict[str, str]] = {}
    for name in sorted(names() & set(runs)):
        of_debian = {numbers(version)[:1]: version for version in sorted(runs[name], key=numbers)} if name not in ours else {}
        kept = [version for version in runs[name] if (name, version) in fetched or version in of_debian.values()]
        found[name] = {version: runs[name][version] for version in sorted(kept, key=numbers)}
    return found


def fetched() -> set[tuple[str, str]]:
    return {(pin.name, pin.version) for pin in pins() if pin.name in names()}


def table(which: str, runs: Runs) -> str:
    what, rows = TABLES[which]
    lines = [(what, "version (last green run)", "tested", "remarks"), ("---",) * 4, *(row.cells(runs) for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in lines)


def written(page: str, runs: Runs) -> str:
    return TABLE.sub(lambda found: found[1] + table(found[2], runs), page)


def main() -> None:
    runs = ran.read(KEPT)
    for name, versions in ran.read(ran.LATEST).items():
        known = runs.setdefault(name, {})
        known |= {version: max(day, known.get(version, "")) for version, day in versions.items()}
    kept = without_the_old(runs, fetched())
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(written(PAGE.read_text(), kept))


if __name__ == "__main__":
    main()
