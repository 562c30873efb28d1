"""The first limit of each installation page: its command as written, over the rules that are installed with it, and a flood.

A real RabbitMQ gets what passes, and no more than the limit lets pass. How each page installs sluice: tests/deploy (`make test-packages`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from support.brokers.rabbitmq import RabbitMQ
from support.first_limits import assert_limited, command_of, first_queue
from support.floods import flood_until_refused
from support.gateways import Gateway, amqp_listener
from support.pages import ROOT

pytestmark = pytest.mark.rabbitmq
Rules = Sequence[Mapping[str, object]]


def installed(file: str) -> Rules:
    found: Rules = yaml.safe_load((ROOT / file).read_text())["rules"]
    return found


EACH_TOPIC: Rules = [{"name": "every-topic", "match": {}, "per": "topic", "limit": {"messages": "500/s"}}]  # `run --limit 500/s`, `init`
PAGES: dict[str, Rules] = {
    "container": installed("deploy/container/limits.yaml"),
    "debian": installed("deploy/debian/limits.yaml"),
    "pip": EACH_TOPIC,
    "systemd": EACH_TOPIC,
}


@contextmanager
def gateway_over(rules: Rules, rabbitmq: RabbitMQ, folder: Path, workers: int = 1) -> Iterator[Gateway]:
    settings = {"gateway": {"name": "first", "state_directory": "state", "workers": workers}}
    with Gateway(folder, [amqp_listener(f"127.0.0.1:{rabbitmq.port}")], rules, settings) as gateway:
        yield gateway


@pytest.mark.parametrize(("page", "workers"), [*((page, 1) for page in PAGES), ("container", 2)])
def test_the_pages_first_limit_limits(rabbitmq: RabbitMQ, tmp_path: Path, page: str, workers: int) -> None:
    with gateway_over(PAGES[page], rabbitmq, tmp_path, workers) as gateway, first_queue(rabbitmq) as queue:
        said = gateway.cli(*command_of(page))
        assert "not enforced" not in said.stdout + said.stderr
        assert_limited(gateway.amqp_url(), queue)


def test_a_limit_that_is_only_counted_says_so_everywhere(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    """And never that it refuses: in its own answer, dry run or not, the lists, `why`, and the metrics."""
    key = ("amqp", "/", "orders", "order.created")
    with gateway_over(PAGES["container"], rabbitmq, tmp_path) as gateway, first_queue(rabbitmq) as queue:
        for more in (["--dry-run"], []):
            said = gateway.cli("limits", "set", *key, "--messages", "1/h", "--mode", "shadow", "--reason", "try", *more).stderr
            assert "(1/h) is not enforced (mode: shadow)" in " ".join(said.split())
        counted = flood_until_refused(gateway.amqp_url(), "orders", "order.created", most=50)
        assert (counted.confirmed, counted.refused) == (50, 0)
        assert len(queue.contents()) == 50
        gateway.cli("rules", "set", "each-topic", "--messages", "3/s", "--reason", "try")
        for verb in (("topics",), ("limits", "list"), ("rules", "list")):
            (row,) = csv.DictReader(gateway.cli(*verb, "-o", "csv").stdout.splitlines())
            assert (row["mode"], row.get("refused", "0"), int(row["would_refuse"]) >= 49) == ("shadow", "0", True), row
        why = " ".join(gateway.cli("why", *key).stdout.split())
        assert "over a limit that is not enforced: nothing is refused, and nothing waits" in why
        assert "of them would have been refused" in why
        for untrue in ("Slow down", "limited now", "Ask for more", "is held"):
            assert untrue not in why
        assert "sluice limits set amqp / orders order.created --messages 1/h --reason '...'" in why
        samples = {(each.name, *each.labels.values()): each.value for each in gateway.samples() if each.name == "sluice_limit_rate"}
        assert samples == {("sluice_limit_rate", "each-topic", "messages", "shadow"): 3}
