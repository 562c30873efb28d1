"""docs/compatibility.md names what is tested: the versions that the tests fetch, and each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.pins import pins, versions_of

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "compatibility.md").read_text()

# Rows of the page, by the beginning of their first cell: the names of what they are about, as the registries have them.
ROWS = {
    "pika": ("pika",),
    "aio-pika, aiormq": ("aio-pika", "aiormq"),
    "AMQPStorm": ("AMQPStorm",),
    "py-amqp, kombu, Celery": ("amqp", "kombu", "celery"),
    "amqplib (Node)": ("amqplib",),
    "Java amqp-client": ("com.rabbitmq:amqp-client",),
    "Spring AMQP": ("org.springframework.amqp:spring-rabbit",),
    "amqp091-go": ("github.com/rabbitmq/amqp091-go",),
    "RocketMQ Java": ("org.apache.rocketmq:rocketmq-client",),
    "RocketMQ C++ core": ("rocketmq",),
    "rocketmq-client-go": ("github.com/apache/rocketmq-client-go/v2",),
    "ali-ons": ("ali-ons",),
    "RocketMQ gRPC": ("org.apache.rocketmq:rocketmq-client-java", "org.apache.rocketmq:rocketmq-proxy"),
    "RocketMQ |": ("org.apache.rocketmq:rocketmq-broker",),
}
# Of these nothing is promised: parts of the above, and what the limiter is measured beside.
PARTS = ("pamqp", "vine", "com.google.guava:guava", *(f"org.apache.rocketmq:rocketmq-{part}" for part in ("namesrv", "tools", "acl")))
VECTORS_ALONE = {"org.apache.rocketmq:rocketmq-client": {"5.4.0"}}  # its decoder, not its client


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_every_version_that_is_tested_and_no_other(row: str) -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith(f"| {row}")]
    assert lines, f"no row begins with {row}"
    wanted = [version for name in ROWS[row] for version in versions_of(name) if version not in VECTORS_ALONE.get(name, ())]
    for version in wanted:
        assert any(re.search(rf"(?<![\d.]){re.escape(version)}(?![\d.]\d)", line) for line in lines), f"{row}: {version} is tested: {lines}"
    told = {version for line in lines for version in re.findall(r"(?<![\d.])\d+\.\d+\.\d+", line.split("|")[2].partition(";")[0])}
    assert told <= set(wanted), f"{row}: nothing fetches {sorted(told - set(wanted))}"


def test_all_that_is_fetched_has_a_row() -> None:
    assert {pin.name for pin in pins()} - set(PARTS) == {name for names in ROWS.values() for name in names}


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
