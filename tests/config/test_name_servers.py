"""What a configuration may say of a name server's listener."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from config import diff, lint, load
from config.port_ranges import VIP, PortRange
from config.problems import ConfigProblem

Faults = Callable[..., list[ConfigProblem]]
RULES = "rules: [{name: a, match: {protocol: rocketmq}, limit: {messages: 1/s}}]\n"


def names(bind: str = "127.0.0.1:9877", ports: str = "20911-20950", more: str = "", upstream: str = "127.0.0.1:9876") -> str:
    given = f", broker_ports: {ports}" if ports else ""
    return f"  - {{name: names, protocol: rocketmq-nameserver, bind: {bind}, upstream: {upstream}{given}{more}}}\n"


def listeners(*entries: str) -> str:
    return RULES + "listeners:\n" + "".join(entries)


def test_a_range_and_the_host_to_be_told(write: Callable[..., Path]) -> None:
    (listener,) = load(write(listeners(names(ports="'20911 - 20950'", more=", advertise: gateway.example")))).listeners
    assert (listener.broker_ports, listener.advertise) == (PortRange(20911, 20950), "gateway.example")
    assert str(listener.broker_ports) == "20911-20950"


@pytest.mark.parametrize(("count", "room"), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 3), (40, 20)])
def test_the_vip_port_two_below_a_brokers_port_is_no_other_brokers_port(count: int, room: int) -> None:
    ports = PortRange(20911, 20910 + count).for_brokers()
    assert len(ports) == room
    assert ports[0] == 20911
    assert not {port - VIP for port in ports} & set(ports)


@pytest.mark.parametrize(
    ("text", "said", "remedy"),
    [
        ("20911", "is not a range of ports", "20911-20950"),
        ("20911-", "is not a range of ports", "20911-20950"),
        ("a-b", "is not a range of ports", "20911-20950"),
        ("0-5", "is not a range of ports", "1 to 65535"),
        ("65000-65536", "is not a range of ports", "1 to 65535"),
        ("20950-20911", "ends before it begins", "20911-20950"),
        ("[1, 2]", "expected a range of ports", "20911-20950"),
    ],
)
def test_an_invalid_range_of_broker_ports_is_refused_with_its_remedy(faults: Faults, text: str, said: str, remedy: str) -> None:
    (problem,) = faults(listeners(names(ports=text)))
    assert problem.path == "listeners[0].broker_ports"
    assert said in problem.message
    assert remedy in problem.remedy


OTHER = "  - {name: other, protocol: %s, bind: %s, upstream: %s%s}\n"


@pytest.mark.parametrize(
    ("entries", "path", "said"),
    [
        ([names(ports="")], "listeners[0].broker_ports", "is missing"),
        ([names("0.0.0.0:9877")], "listeners[0].advertise", "clients cannot dial 0.0.0.0"),
        ([names('"[::]:9877"')], "listeners[0].advertise", "clients cannot dial ::"),
        ([names(more=", advertise: 0.0.0.0")], "listeners[0].advertise", "clients cannot dial 0.0.0.0"),
        ([names("127.0.0.1:20911")], "listeners[0].broker_ports", "127.0.0.1:20911 is within it, and is listeners[0].bind"),
        ([names(upstream="127.0.0.1:20920")], "listeners[0].broker_ports", "127.0.0.1:20920 is within it, and is listeners[0].upstream"),
        (
            [names(), OTHER % ("rocketmq", "127.0.0.1:20950", "10.0.0.1:1", "")],
            "listeners[0].broker_ports",
            "127.0.0.1:20950 is within it, and is listeners[1].bind",
        ),
        (
            [names(), OTHER % ("rocketmq", "0.0.0.0:20950", "10.0.0.1:1", "")],
            "listeners[0].broker_ports",
            "0.0.0.0:20950 is within it, and is listeners[1].bind",
        ),
        (
            [names(), OTHER % ("rocketmq-nameserver", "127.0.0.1:9878", "127.0.0.1:9876", ", broker_ports: 20950-20960")],
            "listeners[1].broker_ports",
            "overlaps listeners[0].broker_ports: 20911-20950",
        ),
    ],
)
def test_ports_and_hosts_that_cannot_work(faults: Faults, entries: list[str], path: str, said: str) -> None:
    (problem,) = faults(listeners(*entries))
    assert problem.path == path
    assert said in problem.message
    assert problem.remedy


def test_the_admins_port_is_no_brokers(faults: Faults) -> None:
    (problem,) = faults(listeners(names()) + "admin: {bind: 127.0.0.1:20930}\n")
    assert "127.0.0.1:20930 is within it, and is admin.bind" in problem.message


@pytest.mark.parametrize(
    "other",
    [
        OTHER % ("rocketmq", "127.0.0.2:20950", "10.0.0.1:1", ""),
        OTHER % ("rocketmq", "127.0.0.1:20951", "10.0.0.1:20920", ""),
        OTHER % ("rocketmq-nameserver", "127.0.0.2:9877", "127.0.0.1:9876", ", broker_ports: 20911-20950"),
    ],
)
def test_other_hosts_and_other_ports_do_no_harm(write: Callable[..., Path], other: str) -> None:
    assert len(load(write(listeners(names(), other))).listeners) == 2


def warnings(write: Callable[..., Path], text: str) -> list[tuple[str, str]]:
    return [(problem.path, problem.message) for problem in lint(load(write(text))) if problem.path != "ulimit -n"]


def test_rules_for_brokers_listeners_are_heard(write: Callable[..., Path]) -> None:
    rules = "".join(
        f"  - {{name: r{number}, match: {{listener: '{wanted}'}}, limit: {{messages: 1/s}}}}\n"
        for number, wanted in enumerate(("names/broker-a/0", "names/*", "nam*"))
    )
    assert warnings(write, "rules:\n" + rules + "listeners:\n" + names()) == []


def test_a_rule_for_the_name_servers_listener_itself_is_not(write: Callable[..., Path]) -> None:
    rules = "rules: [{name: r, match: {protocol: rocketmq, listener: names}, limit: {messages: 1/s}}]\n"
    ((path, message),) = warnings(write, rules + "listeners:\n" + names())
    assert path == "rules[0].match.listener"
    assert "are not limited" in message


def test_name_server_settings_on_another_listener_have_no_effect_and_are_warned_about(write: Callable[..., Path]) -> None:
    text = listeners(OTHER % ("rocketmq", "127.0.0.1:1", "127.0.0.1:2", ", broker_ports: 5-6, advertise: a.example"))
    assert [path for path, _ in warnings(write, text)] == ["listeners[0].broker_ports", "listeners[0].advertise"]


def test_changes_of_advertise_and_broker_ports_need_a_restart(write: Callable[..., Path]) -> None:
    old = load(write(listeners(names())))
    new = load(write(listeners(names(ports="20911-20960", more=", advertise: a.example"))))
    difference = diff(old, new)
    assert difference["in_force"] == []
    assert sorted(difference["needs_restart"]) == [
        "listeners.names.advertise: (none) -> a.example",
        "listeners.names.broker_ports: 20911-20950 -> 20911-20960",
    ]
