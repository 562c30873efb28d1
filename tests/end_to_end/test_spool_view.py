"""What an operator sees of messages that a rule spools: command line, API and metrics, with one process and with two."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.tables import cell_width
from support.amqp.frames import greeting, publish
from support.brokers import stand_ins
from support.gateways import Gateway, amqp_listener, command
from support.processes import LOOPBACK, wait_until
from support.terminals import Terminal

MESSAGES = 4000
KIB = 1024
RULES: list[dict[str, object]] = [
    {"name": "jobs", "match": {"protocol": "amqp"}, "per": "topic", "limit": {"messages": "5/s"}, "action": "spool"}
]
JOBS = ("amqp", "/", "orders", "order.created")
ANSI = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")


@pytest.fixture(params=[1, 2], ids=["one process", "two workers"])
def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gateway]:
    """One whose spool has most of 4 MiB on disk."""
    settings = {
        "gateway": {"name": "end-to-end", "state_directory": "state", "workers": request.param},
        "spool": {"memory": "1MiB", "size": "64MiB"},
        "drain": {"timeout": "2s"},
    }
    with stand_ins.rabbitmq() as rabbit:
        made = Gateway(tmp_path / "gateway", [amqp_listener(rabbit.address)], RULES, settings)
        made.start(within=120)
        try:
            with socket.create_connection((LOOPBACK, made.port("rabbit"))) as client:
                client.sendall(greeting(channels=(1,), heartbeat=0) + publish(1, "order.created", b"x" * KIB, exchange="orders") * MESSAGES)
                wait_until(lambda: spooled(made), within=60, what="all has come, and most of it is on disk")
                yield made
        finally:
            made.stop(within=60)


def spooled(gateway: Gateway) -> bool:
    found = whole(gateway)
    return found["messages"] > 3000 and found["written_bytes"] > 3000 * KIB  # the others are about to leave, in memory


def whole(gateway: Gateway) -> dict[str, Any]:
    found: dict[str, Any] = gateway.get("/v1/spool")["spool"]
    return found


def shown(gateway: Gateway, columns: int, *words: str) -> list[str]:
    environment = {
        "SLUICE_ADMIN": gateway.admin, "SLUICE_TOKEN_FILE": str(gateway.directory / "state" / "admin.token"), "NO_COLOR": "1",
    }  # fmt: skip
    with Terminal([*command(), *words], cwd=gateway.directory, env=environment, columns=columns) as terminal:
        assert terminal.end() == 0, terminal.text
    lines = ANSI.sub("", terminal.text).splitlines()
    texts = [line for line in lines if not line.strip().startswith("sluice ")]  # a command stays whole, to be copied
    assert [line for line in texts if cell_width(line) > columns and " " in line.strip()] == []
    return lines


def test_what_waits_is_seen_everywhere(gateway: Gateway) -> None:
    (item,) = gateway.get("/v1/spool")["items"]
    assert (item["protocol"], item["topic"]) == ("amqp", "%2F/orders/order.created")
    assert 3000 < item["messages"] <= MESSAGES
    assert item["bytes"] > 3000 * KIB
    assert whole(gateway)["size_bytes"] == 64 << 20, "workers have parts of it, which are summed"
    for columns in (80, 120, 200):
        head, line, note = shown(gateway, columns, "spool", "list")[:3]
        assert {"topic", "messages", "bytes", "for"} <= {*head.split()}
        assert line.startswith("/ orders order.created  ")
        assert re.fullmatch(r"spool: 3\.\d+k messages wait; [0-9.]+ MiB of 64 MiB on disk", note), note
        text = "\n".join(shown(gateway, columns, "spool", "show", *JOBS))
        assert re.search(r"limit +5/s\n", text), text
        assert re.search(r"gone in +\d+min", text), text
        assert any("spooled" in each for each in shown(gateway, columns, "connections", "list")[:1])
        assert any(each.startswith("spool") for each in shown(gateway, columns, "status"))
    assert "spool: publishers go on sending" in " ".join(" ".join(shown(gateway, 80, "why", *JOBS)).split())
    (topic,) = gateway.get("/v1/topics")["items"]
    assert 3000 < topic["spooled"] <= topic["waiting"]
    metrics = gateway.request("GET", "/metrics").text
    assert re.search(r'^sluice_topic_spooled_messages\{protocol="amqp",topic="%2F/orders/order\.created",operation="produce"\} 3\d\d\d$',
                     metrics, re.MULTILINE)  # fmt: skip
    assert re.search(r"^sluice_spool_size_bytes 67108864$", metrics, re.MULTILINE)
