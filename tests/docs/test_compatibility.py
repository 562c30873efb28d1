"""docs/compatibility.md names what ran: all that the tests fetch, in the versions that they fetch, and the days of its last green runs."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from support import ran
from support.compatibility import KEPT, PAGE, fetched, names, table, without_the_old, written
from support.pins import pins, versions_of

DOCS = Path(__file__).parents[2] / "docs"
RUNS = ran.read(KEPT)
# Of these nothing is promised: parts of others, and what the limiter is measured beside.
PARTS = {"pamqp", "vine", "com.google.guava:guava", *(f"org.apache.rocketmq:rocketmq-{part}" for part in ("namesrv", "tools", "acl"))}


def test_the_page_is_what_was_written_of_what_ran() -> None:
    assert written(PAGE.read_text(), RUNS) == PAGE.read_text(), "run `make compatibility`"
    assert PAGE.read_text().count("<!-- ran: ") == 2


def test_all_that_is_fetched_ran_and_nothing_that_is_not_is_told_of() -> None:
    told = {(name, version) for name, versions in RUNS.items() for version in versions}
    assert fetched() - told == set(), "run a test with each, then `make compatibility`"
    assert without_the_old(RUNS, fetched()) == RUNS, "run `make compatibility`"
    assert set(RUNS) == names()
    assert {pin.name for pin in pins()} - PARTS <= names()


def test_what_was_raised_is_missing_until_it_ran() -> None:
    runs = {
        "pika": {"1.4.3": "2026-11-01", "1.4.4": "2026-11-29"},
        "RabbitMQ": {"3.10.8": "2026-11-01", "4.0.5": "2026-11-02", "4.0.9": "2026-11-29"},
    }
    assert without_the_old(runs, {("pika", "1.4.4")}) == {
        "pika": {"1.4.4": "2026-11-29"},
        "RabbitMQ": {"3.10.8": "2026-11-01", "4.0.9": "2026-11-29"},
    }
    assert without_the_old(runs, {("pika", "1.4.5")})["pika"] == {}


def test_a_row_has_its_versions_and_days() -> None:
    rows = table("clients", {"aio-pika": {"10.2.1": "2026-11-29"}, "aiormq": {"7.2.4": "2026-11-28"}}).splitlines()
    assert "| aio-pika, aiormq | 10.2.1 (2026-11-29); 7.2.4 (2026-11-28) | every run | |" in rows


def test_a_run_keeps_what_it_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ran, "LATEST", tmp_path / "build" / "ran.json")
    ran.keep([("pika", "1.4.4"), ("RabbitMQ", "4.0.5")])
    ran.keep([("RabbitMQ", "3.10.8")])
    kept = ran.read(ran.LATEST)
    assert {name: set(versions) for name, versions in kept.items()} == {"pika": {"1.4.4"}, "RabbitMQ": {"4.0.5", "3.10.8"}}
    assert all(date.fromisoformat(day) for versions in kept.values() for day in versions.values())


@pytest.mark.parametrize(
    ("page", "names"),
    [
        (
            "rabbitmq.md",
            ("pika", "aio-pika", "aiormq", "amqp", "amqplib", "com.rabbitmq:amqp-client", "github.com/rabbitmq/amqp091-go"),
        ),
        ("rocketmq.md", ("rocketmq", "github.com/apache/rocketmq-client-go/v2", "ali-ons", "org.apache.rocketmq:rocketmq-broker")),
    ],
)
def test_pages_of_measurements_name_the_same_versions(page: str, names: tuple[str, ...]) -> None:
    """In the paragraph that says what was measured."""
    (paragraph,) = re.findall(r"^Everything in the tables was measured .*?(?=\n\n)", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    missing = {name: versions_of(name)[0] for name in names if versions_of(name)[0] not in paragraph}
    assert missing == {}
