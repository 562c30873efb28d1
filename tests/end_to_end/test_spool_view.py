"""What an operator sees of messages that a rule spools: command line, API and metrics, with one process and with two."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.tables import cell_width
from support.amqp.frames import greeting, publish
from support.brokers import stand_ins
from support.gateways import Gateway, amqp_listener, command
from support.processes import LOOPBACK, wait_until
from support.terminals import Terminal

MESSAGES = 4000
KIB = 1024
RULES: list[dict[str, object]] = [
    {"name": "jobs", "match": {"protocol": "amqp"}, "per": "topic", "limit": {"messages": "1/s"}, "action": "spool"}
]
JOBS = ("amqp", "/", "orders", "order.created")
ANSI = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")


@contextmanager
def flooded(directory: Path, workers: int) -> Iterator[Gateway]:
    """A gateway that has got 4 MiB of messages at once, of which its rule lets one a second pass."""
    settings = {
        "gateway": {"name": "end-to-end", "state_directory": "state", "workers": workers},
        "memory": {"target": "1MiB"},
        "spool": {"max_size": "64MiB"},
        "drain": {"timeout": "2s"},
    }
    with stand_ins.rabbitmq() as rabbit:
        made = Gateway(directory, [amqp_listener(rabbit.address)], RULES, settings)
        made.start()
        try:
            with socket.create_connection((LOOPBACK, made.port("rabbit"))) as client:
                client.sendall(greeting(channels=(1,), heartbeat=0) + publish(1, "order.created", b"x" * KIB, exchange="orders") * MESSAGES)
                yield made
        finally:
            made.stop()


@pytest.fixture(params=[1, 2], ids=["one process", "two workers"])
def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gateway]:
    """One whose spool has most of 4 MiB on disk."""
    with flooded(tmp_path / "gateway", request.param) as made:
        wait_until(lambda: spooled(made), within=60, what="all has come, and most of it is on disk")
        yield made


def spooled(gateway: Gateway) -> bool:
    found = whole(gateway)
    return bool(found["messages"] > 3000 and found["written_bytes"] > 3000 * KIB)  # the others are about to leave, in memory


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
    for columns in (80, 200):
        head, line, note = shown(gateway, columns, "spool", "list")[:3]
        assert {"topic", "messages", "bytes", "for"} <= {*head.split()}
        assert line.startswith("/ orders order.created  ")
        assert re.fullmatch(r"spool: (?:4|3\.\d+)k messages wait, 3(?:\.\d+)?k of them on disk; [0-9.]+ MiB of 64 MiB used", note), note
        text = "\n".join(shown(gateway, columns, "spool", "show", *JOBS))
        assert re.search(r"limit +1/s\n", text), text
        assert re.search(r"gone in +(1h )?\d+min", text), text
        assert any("spooled" in each for each in shown(gateway, columns, "connections", "list")[:1])
        assert any(each.startswith("spool") for each in shown(gateway, columns, "status"))
    assert "spool: publishers go on sending" in " ".join(" ".join(shown(gateway, 80, "why", *JOBS)).split())
    (topic,) = gateway.get("/v1/topics")["items"]
    assert 3000 < topic["spooled"] <= topic["waiting"]
    metrics = gateway.request("GET", "/metrics").text
    assert re.search(r'^sluice_topic_spooled_messages\{protocol="amqp",topic="%2F/orders/order\.created",operation="produce"\} 3\d\d\d$',
                     metrics, re.MULTILINE)  # fmt: skip
    assert re.search(r"^sluice_spool_size_bytes 67108864$", metrics, re.MULTILINE)


def troubles(gateway: Gateway) -> list[dict[str, Any]]:
    return [event for event in gateway.get("/v1/events?limit=500")["items"] if event["event"] == "spool_trouble"]


def test_a_spool_that_cannot_be_written_says_so_until_it_can(tmp_path: Path) -> None:
    """A file is where the spool's directory should be."""
    in_the_way = tmp_path / "gateway" / "state" / "spool"
    in_the_way.parent.mkdir(parents=True, mode=0o700)
    in_the_way.write_text("")
    with flooded(tmp_path / "gateway", 1) as gateway:
        wait_until(lambda: bool(troubles(gateway)), within=60, what="the log has the trouble")
        assert (troubles(gateway)[0]["level"], str(in_the_way) in troubles(gateway)[0]["err"]) == ("error", True)
        assert whole(gateway)["trouble"] == troubles(gateway)[0]["err"]
        (warning,) = [each for each in gateway.get("/v1/status")["warnings"] if each.startswith("spool: ")]
        assert "cannot be written" in warning
        assert re.search(r"^sluice_spool_blocked 1$", gateway.request("GET", "/metrics").text, re.MULTILINE)
        assert any("it cannot be written" in line for line in shown(gateway, 200, "spool", "list"))
        in_the_way.unlink()
        wait_until(lambda: len(troubles(gateway)) == 2, within=60, what="the log has the end of the trouble")
        assert troubles(gateway)[1]["level"] == "info"
        wait_until(lambda: spooled(gateway), within=60, what="what the client could not send before is spooled")
        assert (whole(gateway)["trouble"], gateway.get("/v1/status")["warnings"]) == (None, [])
        assert len(troubles(gateway)) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_files_of_a_build_that_was_never_released_are_named_once_at_the_start(tmp_path: Path, workers: int) -> None:
    """And what a killed process has left is deleted, beside them."""
    spool = tmp_path / "gateway" / "state" / "spool"
    for own, file in (("12-0123abcd", "1.durable"), ("13-0123abcd", "1")):
        (spool / own).mkdir(parents=True, mode=0o700)
        (spool / own / file).write_bytes(b"12345")
    settings = {"gateway": {"name": "end-to-end", "state_directory": "state", "workers": workers}}
    with stand_ins.rabbitmq() as rabbit, Gateway(tmp_path / "gateway", [amqp_listener(rabbit.address)], RULES, settings) as gateway:
        wait_until(lambda: not (spool / "13-0123abcd").exists(), within=60, what="the folder is looked at")
        wait_until(lambda: '"spool_not_ours"' in gateway.log(), within=60, what="the log has it")
        assert [each.name for each in (spool / "12-0123abcd").iterdir() if each.name != "lock"] == ["1.durable"]
    assert gateway.log().count('"spool_not_ours"') == 1
    assert gateway.log().count(str(spool / "12-0123abcd")) == 1
