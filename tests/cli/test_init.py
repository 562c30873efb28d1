"""`sluice init`: what it finds on this host, what it proposes, asks and writes."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli import init as init_module
from cli.broker_search import Broker, brokers, listening_sockets
from config import lint, load
from support.brokers.stand_ins import StandIn, rabbitmq, rocketmq
from support.gateways import command
from support.pages import ROOT, blocks
from support.processes import LOOPBACK, free_ports
from support.terminals import Terminal

pytestmark = pytest.mark.slow  # a terminal and a process for each


@pytest.fixture
def rabbit() -> Iterator[StandIn]:
    with rabbitmq() as broker:
        yield broker


def good(directory: Path) -> Any:
    """What was written, which `check --strict` has nothing to say about; a machine's few open files are not the file's fault."""
    settings = load(directory / "sluice.yaml")
    assert [str(each) for each in lint(settings) if "open files" not in each.message] == []
    return settings


def test_what_listens_is_read_from_the_kernels_tables(tmp_path: Path) -> None:
    table = tmp_path / "tcp"
    table.write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:1628 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n"
        "   1: 00000000:2AA7 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n"
        "   2: 0100007F:D431 0100007F:1628 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n"
    )
    six = tmp_path / "tcp6"
    six.write_text("sl\n   0: 00000000000000000000000001000000:1629 0:0 0A\n")
    assert listening_sockets((table, six, tmp_path / "none")) == [("127.0.0.1", 5672), ("::1", 5673), ("0.0.0.0", 10919)]


def test_the_sockets_of_this_host_are_found() -> None:
    with socket.create_server((LOOPBACK, 0)) as listening:
        assert (LOOPBACK, listening.getsockname()[1]) in listening_sockets()


def test_brokers_are_known_by_their_answers(rabbit: StandIn) -> None:
    with rocketmq() as rocket, socket.create_server((LOOPBACK, 0)) as mute:
        ports = [mute.getsockname()[1], rocket.port, rabbit.port]
        found = brokers([("0.0.0.0", ports[0]), (LOOPBACK, ports[1]), ("0.0.0.0", ports[2]), (LOOPBACK, 22)])
    assert [(each.protocol, each.port, each.everywhere) for each in found] == [
        ("amqp", rabbit.port, True), ("rocketmq-nameserver", rocket.port, False)
    ]  # fmt: skip
    assert found[0].product == "RabbitMQ"


def test_several_addresses_are_written_as_a_list(sluice: Any, tmp_path: Path) -> None:
    words = ["--yes", "--protocol", "rocketmq", "--bind", "10.0.0.5:10911", "--upstream", "10.0.0.1:10911,[::1]:10911"]
    ran = sluice("init", *words, "--directory", tmp_path)
    assert ran.code == 0, ran.err
    assert [[str(each) for each in listener.upstreams] for listener in good(tmp_path).listeners] == [
        ["10.0.0.1:10911", "[::1]:10911"], ["10.0.0.1:10909", "[::1]:10909"],
    ]  # fmt: skip


def test_by_flags_alone_two_good_files_are_written(sluice: Any, tmp_path: Path) -> None:
    words = ["--yes", "--protocol", "amqp", "--bind", ":5672", "--upstream", "127.0.0.1:5673", "--limit", "500/s,5MiB/s"]
    ran = sluice("init", *words, "--directory", tmp_path / "new")
    assert ran.code == 0, ran.err
    settings = good(tmp_path / "new")
    (listener,), (rule,) = settings.listeners, settings.rules
    assert (str(listener.bind), str(listener.upstreams[0])) == ("0.0.0.0:5672", "127.0.0.1:5673")
    assert (rule.per, rule.limit.messages.per_second, rule.limit.bytes.per_second) == ("topic", 500, 5 << 20)
    comments = [
        line for name in ("sluice.yaml", "limits.yaml") for line in (tmp_path / "new" / name).read_text().splitlines() if "#" in line
    ]
    assert len(comments) > 15
    assert max(map(len, comments)) <= 140
    assert f"  cd {tmp_path / 'new'}\n  sluice run\n" in ran.out.replace(str(command()[0]), "sluice")


@pytest.mark.parametrize(
    ("protocol", "names"), [("amqp", ["rabbit"]), ("rocketmq", ["rocket", "rocket-vip"]), ("rocketmq-nameserver", ["names"])]
)
def test_every_protocol_gives_a_good_configuration(sluice: Any, tmp_path: Path, protocol: str, names: list[str]) -> None:
    ran = sluice(
        "init", "--yes", "--protocol", protocol, "--bind", "127.0.0.2:10911", "--upstream", "127.0.0.1:10911", "--directory", tmp_path
    )
    assert ran.code == 0, ran.err
    assert [each.name for each in good(tmp_path).listeners] == names


def test_nothing_is_written_over_without_force(sluice: Any, tmp_path: Path) -> None:
    (tmp_path / "limits.yaml").write_text("mine")
    words = ["init", "--protocol", "amqp", "--bind", ":1", "--upstream", "h:2", "--directory", tmp_path]
    ran = sluice(*words)
    assert (ran.code, (tmp_path / "limits.yaml").read_text(), (tmp_path / "sluice.yaml").exists()) == (2, "mine", False)
    assert "limits.yaml are there already; nothing was written" in ran.err
    assert sluice(*words, "--force").code == 0
    good(tmp_path)


@pytest.mark.parametrize(("option", "value"), [("--limit", "500"), ("--bind", "nowhere"), ("--upstream", "h:0")])
def test_what_would_be_faulty_is_refused_and_leaves_nothing(sluice: Any, tmp_path: Path, option: str, value: str) -> None:
    given = {"--protocol": "amqp", "--bind": ":1", "--upstream": "h:2", option: value}
    (tmp_path / "sluice.yaml").write_text("mine")
    ran = sluice("init", "--force", *(word for pair in given.items() for word in pair), "--directory", tmp_path)
    assert ran.code == 3
    assert option.lstrip("-").replace("limit", "messages") in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["sluice.yaml"]
    assert (tmp_path / "sluice.yaml").read_text() == "mine"


def test_without_a_terminal_and_without_yes_it_does_not_guess(sluice: Any, tmp_path: Path) -> None:
    ran = sluice("init", "--directory", tmp_path)
    assert (ran.code, list(tmp_path.iterdir())) == (2, [])
    assert "add --yes" in ran.err


def test_no_broker_found_is_said(sluice: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init_module, "listening_sockets", list)
    ran = sluice("init", "--yes", "--directory", tmp_path)
    assert ran.code == 7
    assert "no broker is found on this host" in ran.err


def test_with_yes_it_listens_on_the_next_free_port_beside_the_broker(
    sluice: Any, rabbit: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = [(LOOPBACK, rabbit.port), (LOOPBACK, rabbit.port + 1), (LOOPBACK, 5672)]
    monkeypatch.setattr(init_module, "listening_sockets", lambda: taken)
    ran = sluice("init", "--yes", "--directory", tmp_path)
    assert ran.code == 0, ran.err
    (listener,) = good(tmp_path).listeners
    assert (listener.bind.host, str(listener.upstreams[0])) == (LOOPBACK, f"{LOOPBACK}:{rabbit.port}")
    assert listener.bind.port >= rabbit.port + 2, "the next one is taken; so may be those after it"
    assert f"1. RabbitMQ at {LOOPBACK}:{rabbit.port}" in ran.err


def test_where_the_broker_has_moved_it_listens_on_the_usual_port(
    sluice: Any, rabbit: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/in-front-of-rabbitmq.md has it: RabbitMQ on loopback, applications keep their port."""
    page = blocks(ROOT / "docs/in-front-of-rabbitmq.md", "yaml")
    (written,) = yaml.safe_load(page[0].text)["listeners"]
    monkeypatch.setattr(init_module, "listening_sockets", lambda: [(LOOPBACK, rabbit.port)])
    monkeypatch.setattr(init_module, "can_be_bound", lambda _: True)
    ran = sluice("init", "--yes", "--directory", tmp_path)
    assert ran.code == 0, ran.err
    (listener,) = good(tmp_path).listeners
    assert str(listener.bind) == written["bind"]
    assert (listener.upstreams[0].host, listener.upstreams[0].port) == (written["upstream"].partition(":")[0], rabbit.port)
    assert f"from this one alone: --bind {LOOPBACK}:5672" in ran.err


def test_on_the_brokers_own_port_it_says_how_the_broker_makes_room(
    sluice: Any, rabbit: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init_module, "listening_sockets", lambda: [("0.0.0.0", rabbit.port)])
    ran = sluice("init", "--yes", "--bind", f":{rabbit.port}", "--directory", tmp_path)
    assert ran.code == 0, ran.err
    (listener,) = good(tmp_path).listeners
    assert (str(listener.bind), listener.upstreams[0].host) == (f"0.0.0.0:{rabbit.port}", LOOPBACK)
    assert listener.upstreams[0].port > rabbit.port
    assert f"    listeners.tcp.1 = {listener.upstreams[0]}\n" in ran.out
    assert ran.out.index("listeners.tcp.1") < ran.out.index("sluice run" if "sluice run" in ran.out else " run\n")


def test_a_rocketmq_broker_makes_room_at_its_own_address(sluice: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init_module, "listening_sockets", lambda: [("0.0.0.0", 10911)])
    monkeypatch.setattr(init_module, "brokers", lambda _: [Broker("rocketmq", LOOPBACK, 10911, everywhere=True)])
    monkeypatch.setattr(init_module, "own_address", lambda: "10.0.0.5")
    ran = sluice("init", "--yes", "--directory", tmp_path)
    assert ran.code == 0, ran.err
    assert [(str(each.bind), str(each.upstreams[0])) for each in good(tmp_path).listeners] == [
        ("10.0.0.5:10911", "127.0.0.1:10911"), ("10.0.0.5:10909", "127.0.0.1:10909")
    ]  # fmt: skip
    assert "    brokerIP1=10.0.0.5\n      bindAddress=127.0.0.1\n" in ran.out


def test_asked_at_a_terminal(rabbit: StandIn, tmp_path: Path) -> None:
    with rabbitmq() as second, Terminal(
        [*command(), "init", "--directory", "asked", "--ports", f"{rabbit.port},{second.port}"], cwd=tmp_path, columns=120
    ) as terminal:  # fmt: skip
        shown = terminal.read_until("Which one")
        number = re.search(rf"(\d+)\. RabbitMQ at {LOOPBACK}:{rabbit.port}\b", shown)
        assert number is not None, shown
        terminal.answer("Which one", number[1])
        (port,) = free_ports(1)
        terminal.answer("1, 2, or another host:port", f"{LOOPBACK}:{port}")
        terminal.answer("Limit of each topic", "300/s")
        assert terminal.end() == 0, terminal.text
    settings = good(tmp_path / "asked")
    assert (str(settings.listeners[0].bind), str(settings.listeners[0].upstreams[0])) == (f"{LOOPBACK}:{port}", f"{LOOPBACK}:{rabbit.port}")
    assert yaml.safe_load((tmp_path / "asked" / "limits.yaml").read_text())["rules"][0]["limit"] == {"messages": "300/s"}


def test_asked_where_no_broker_answers(tmp_path: Path) -> None:
    """One is somewhere else: it is asked for."""
    with socket.create_server((LOOPBACK, 0)) as mute, Terminal(
        [*command(), "init", "--ports", str(mute.getsockname()[1])], cwd=tmp_path, columns=120
    ) as terminal:  # fmt: skip
        terminal.answer("What does your broker speak?", "rocketmq-nameserver")
        terminal.answer("Where is it (host:port)?", "10.0.0.1:9876")
        terminal.answer("Where shall clients connect (host:port)?", "0.0.0.0:9877")
        terminal.answer("Limit of each topic", "")
        assert terminal.end() == 0, terminal.text
    (listener,) = good(tmp_path).listeners
    assert (listener.protocol, str(listener.upstreams[0])) == ("rocketmq-nameserver", "10.0.0.1:9876")
    assert listener.advertise not in {None, "0.0.0.0"}
