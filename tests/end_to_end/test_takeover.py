"""A new process takes over from a running one (`gateway.takeover`): nobody is refused, nothing is lost, limits and live changes go on."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest
import yaml

from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.brokers.stand_ins import rocketmq as rocketmq_stand_in
from support.builds import SOURCES
from support.clients.lockstep import Flood
from support.clients.newcomers import NEWCOMERS, Newcomers
from support.gateways import Gateway, StartGateway, amqp_listener, limit_path
from support.models.rates import bounds
from support.processes import HANG_S, LOOPBACK, Process, free_ports, tree, wait_until
from support.threads import working

UPGRADES = [2, pytest.param(20, marks=pytest.mark.long)]
TAKEOVER = {"name": "end-to-end", "state_directory": "state", "takeover": "run/takeover.sock"}


@pytest.mark.rabbitmq
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 3])
@pytest.mark.parametrize("upgrades", UPGRADES)
def test_upgrades_under_load_refuse_nobody_and_lose_nothing(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, upgrades: int, workers: int, record_property: Callable[[str, object], None]
) -> None:
    (port,) = free_ports(1)
    listener = amqp_listener(f"{LOOPBACK}:{rabbitmq.port}", bind=f"{LOOPBACK}:{port}")
    gateway = start_gateway([listener], [], gateway={**TAKEOVER, "workers": workers})
    newcomers = Newcomers(port, "upgraded")
    with Queue(rabbitmq.url, "upgraded") as queue:
        with newcomers.coming():
            for _ in range(upgrades):
                before = len(newcomers.confirmed)
                gateway.replace()
                gateway.process.wait_until(partial(newcomers.have_confirmed, before + 20), within=60, what="confirms to go on")
        stored = queue.drain()
    record_property(
        "remark", f"{len(newcomers.confirmed)} confirmed, {newcomers.told} told to reconnect, {newcomers.longest_s:.2f} s to log in"
    )
    assert newcomers.faults == []
    assert set(newcomers.confirmed) <= set(stored)
    assert len(stored) == len(set(stored))
    assert newcomers.told <= upgrades * NEWCOMERS


@pytest.mark.rabbitmq
def test_newcomers_do_not_wait_for_what_the_process_before_still_holds(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, record_property: Callable[[str, object], None]
) -> None:
    """At 585f47f a newcomer waited 27.1 s for a process that held 400 messages, of which 120 then passed without their limit."""
    held, rate = 300, 20  # 14 s: more than the next process needs to start beside ten busy ones
    (port,) = free_ports(1)
    gateway = start_gateway(
        [amqp_listener(f"{LOOPBACK}:{rabbitmq.port}", bind=f"{LOOPBACK}:{port}")],
        [
            {
                "name": "slow",
                "match": {"protocol": "amqp", "routing_key": "held"},
                "per": "topic",
                "limit": {"messages": f"{rate}/s", "burst": {"messages": rate}},
            }
        ],
        gateway=TAKEOVER,
        drain={"timeout": "60s"},
    )
    newcomers = Newcomers(port, "upgraded")
    with Queue(rabbitmq.url, "held") as slow, Queue(rabbitmq.url, "upgraded") as queue:
        publisher = pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))  # without confirms its messages wait their turn
        channel = publisher.channel()
        for number in range(held):
            channel.basic_publish("", slow.name, b"x", pika.BasicProperties(message_id=str(number)))
        wait_until(
            lambda: sum(gateway.messages_by_fate("amqp", "%2F/amq.default/held").values()) >= 2 * held, within=30, what="all to be received"
        )
        with newcomers.coming():
            ended = gateway.replace()
        with suppress(pika.exceptions.AMQPError):
            publisher.close()
        (stopped,) = [line for line in map(json.loads, ended.splitlines()) if line["event"] == "stopped"]
        assert sorted(slow.drain(), key=int) == [str(number) for number in range(held)]
        assert set(newcomers.confirmed) <= set(queue.drain())
    drained_s = stopped["after_ms"] / 1000
    record_property("remark", f"{newcomers.longest_s:.2f} s to log in, while the process before took {drained_s:.1f} s to end")
    assert newcomers.faults == []
    assert drained_s > 3, "it held next to nothing: clients have 2 s to close"
    assert newcomers.longest_s < drained_s - 1, f"{newcomers.longest_s:.2f} s"


def test_a_process_that_does_not_start_leaves_the_running_one_serving_and_says_why(start_gateway: StartGateway) -> None:
    with rocketmq_stand_in() as broker, socket.create_server((LOOPBACK, 0)) as taken:
        (port,) = free_ports(1)
        listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:{port}", "upstream": f"{LOOPBACK}:{broker.port}"}
        gateway = start_gateway([listener], [], gateway=TAKEOVER)
        good = gateway.config.read_text()
        changed: dict[str, Any] = yaml.safe_load(good)
        changed["listeners"].append({**listener, "name": "more", "bind": f"{LOOPBACK}:{taken.getsockname()[1]}"})
        gateway.config.write_text(yaml.safe_dump(changed))
        code, said = gateway.try_to_replace()
        assert (code, "cannot_start" in said) == (1, True), said
        gateway.process.wait_until(lambda: "takeover_failed" in gateway.log(), within=30, what="the line about it")
        changed = yaml.safe_load(good)
        changed["admin"]["bind"] = f"{LOOPBACK}:{taken.getsockname()[1]}"
        gateway.config.write_text(yaml.safe_dump(changed))
        code, said = gateway.try_to_replace()
        assert (code, "change admin.bind" in said) == (1, True), said
        gateway.process.wait_until(lambda: gateway.log().count("takeover_failed") == 2, within=30, what="the line about it")
        for other, why in (
            ("elsewhere", "has another gateway.state_directory"),
            ("state\n  workers: 2", "gateway.workers is 1 in the running gateway and 2 in this one"),
        ):
            gateway.config.write_text(good.replace("state_directory: state", f"state_directory: {other}"))
            code, said = gateway.try_to_replace()
            assert (code, why in said) == (1, True), said
        assert gateway.get("/v1/status")["taken_over_at"] is None
        path = limit_path("rocketmq", "orders")
        gateway.put(path, {"messages": "7/s", "reason": "after the failed one"})
        gateway.config.write_text(good)
        assert '"event": "taken_over"' in gateway.replace()
        assert gateway.get("/v1/status")["taken_over_at"]
        assert gateway.get(path)["override"]["messages"] == "7/s"
        gateway.put(path, {"messages": "8/s", "reason": "by the next one"})
        assert [item["reason"] for item in gateway.get("/v1/history")["items"][:2]] == ["by the next one", "after the failed one"]
        assert gateway.get("/v1/audit:verify")["ok"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_of_the_next_process_that_is_killed_leaves_nobody_without_a_gateway(start_gateway: StartGateway, when: str) -> None:
    """Before the takeover the running one goes on; after it another worker takes its place."""
    with rocketmq_stand_in() as broker:
        (port,) = free_ports(1)
        listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:{port}", "upstream": f"{LOOPBACK}:{broker.port}"}
        gateway = start_gateway([listener], [], gateway={**TAKEOVER, "workers": 2})
        first = gateway.process
        following = gateway.begin_next()
        try:
            if when == "before":
                following.wait_until(lambda: len(workers_of(following.pid)) == 2, within=60, what="its workers")
                os.kill(workers_of(following.pid)[0], signal.SIGKILL)
                ended = "the next process ends, or takes over where that was late"
                wait_until(lambda: not following.alive() or '"taken_over"' in first.output(), within=60, what=ended)
                if '"taken_over"' not in first.output():  # it was early enough
                    assert following.popen.wait(HANG_S) == 1, following.output()
                    assert "has ended before it could serve" in following.output()
                    assert gateway.answers("/readyz")
                    return
            else:
                wait_until(lambda: '"taken_over"' in first.output(), within=60, what="the takeover")  # the first may have ended by then
                os.kill(workers_of(following.pid)[0], signal.SIGKILL)
            following.wait_until(lambda: "worker_ended" in following.output(), within=60, what="the line about it")
            wait_until(lambda: gateway.answers("/readyz"), within=60, what="the next process serves")
            assert first.popen.wait(HANG_S) == 0
        finally:
            following.stop()


# The next process, killed when it is told to go, or when it serves and is about to say so.
DIES = """\
import os, signal, socket, sys

moment = sys.argv.pop(1)
receive, send = socket.recv_fds, socket.socket.sendall

def recv_fds(*words):
    found = receive(*words)
    if moment == "go" and b'"go"' in found[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return found

def sendall(self, data, *words):
    if moment == "serving" and bytes(data[:10]) == b'{"serving"':
        os.kill(os.getpid(), signal.SIGKILL)
    return send(self, data, *words)

socket.recv_fds, socket.socket.sendall = recv_fds, sendall
from cli.main import main
sys.exit(main())
"""


@pytest.mark.rabbitmq
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_the_next_process_dies_before_it_serves_and_the_one_before_serves_on(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, workers: int
) -> None:
    """Newcomers, a client that was there before, and an operator who changes a limit all the time: nothing of theirs is lost or doubled."""
    (port,) = free_ports(1)
    listener = amqp_listener(f"{LOOPBACK}:{rabbitmq.port}", bind=f"{LOOPBACK}:{port}")
    gateway = start_gateway([listener], [], gateway={**TAKEOVER, "workers": workers})
    newcomers, operator = Newcomers(port, "upgraded"), Operator(gateway)
    names: list[str] = []
    with Queue(rabbitmq.url, "upgraded") as queue:
        publisher = pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))
        channel = publisher.channel()
        channel.confirm_delivery()

        def publish() -> None:
            names.append(f"publisher-{len(names)}")
            channel.basic_publish("", queue.name, b"x", pika.BasicProperties(message_id=names[-1]))

        publish()
        with newcomers.coming(), operator.changing():
            for times, moment in enumerate(("go", "serving"), 1):
                argv = ["env", f"PYTHONPATH={SOURCES}", sys.executable, "-c", DIES, moment, "run", "-c", str(gateway.config)]
                with Process(argv, log=gateway.directory / f"{moment}.log", cwd=gateway.directory) as following:
                    assert following.popen.wait(HANG_S) == -signal.SIGKILL, following.output()
                gateway.process.wait_until(partial(has_taken_back, gateway, times), within=60, what="the line about it")
                if moment == "go":
                    assert newcomers.faults == []
                publish()
                before, changed = len(newcomers.confirmed), len(operator.acknowledged)
                gateway.process.wait_until(partial(newcomers.have_confirmed, before + 20), within=60, what="confirms to go on")
                gateway.process.wait_until(partial(operator.has_changed, changed + 2), within=60, what="changes to go on")
            (taken_back,) = [each.value for each in gateway.samples() if each.name == "sluice_takeovers_taken_back_total"]
            gateway.replace()
        with suppress(pika.exceptions.AMQPError):
            publisher.close()
        stored = queue.drain()
    assert taken_back == 2
    assert set(newcomers.confirmed) | set(names) <= set(stored)
    assert len(stored) == len(set(stored))
    assert len(newcomers.faults) <= NEWCOMERS, "whoever the killed one had just accepted, once each"
    assert operator.acknowledged <= operator.history()
    assert gateway.get("/v1/audit:verify")["ok"]


def has_taken_back(gateway: Gateway, times: int) -> bool:
    return len(events(gateway, "taken_back")) == times


class Operator:
    """Changes a limit again and again."""

    _path = limit_path("amqp", "/", "amq.default", "changed")

    def __init__(self, gateway: Gateway) -> None:
        self.acknowledged: set[str] = set()
        self._gateway = gateway
        self._stopping = threading.Event()

    def has_changed(self, count: int) -> bool:
        return len(self.acknowledged) >= count

    def changing(self) -> AbstractContextManager[None]:
        return working(self._change, self._stopping)

    def _change(self) -> None:
        for number in range(1 << 30):
            if self._stopping.wait(0.1):
                return
            # Refused, or cut off: an operator looks whether it holds, and says it again.
            with suppress(OSError, http.client.HTTPException, AssertionError):
                self._gateway.put(
                    limit_path("amqp", "/", "amq.default", "changed"), {"messages": f"{100 + number % 7}/s", "reason": f"change {number}"}
                )
                self.acknowledged.add(f"change {number}")

    def history(self) -> set[str]:
        found: set[str] = set()
        cursor = ""
        while True:
            page = self._gateway.get(f"/v1/history?limit=500{cursor}")
            found |= {item["reason"] for item in page["items"]}
            if not page.get("next"):
                return found
            cursor = f"&cursor={page['next']}"


def workers_of(parent: int) -> list[int]:
    return [pid for pid in tree(parent) if pid != parent]


def has_ended(pid: int) -> bool:
    """Also of a process whose parent, the first of all, does not look after it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def processes_of(gateway: Gateway) -> list[int]:
    """Processes that run, or start, with this gateway's configuration, also those that belong to nobody here."""
    named = str(gateway.config).encode()
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    return [pid for pid in pids if named in command_line(pid) and not has_ended(pid)]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def events(gateway: Gateway, name: str) -> list[dict[str, Any]]:
    """Lines of the log, which the processes that take over share."""
    lines = (json.loads(line) for line in gateway.process.output().splitlines() if line.startswith("{"))
    return [line for line in lines if line["event"] == name]


def test_at_sigusr2_one_process_is_started_at_a_time_and_a_signal_meanwhile_is_kept(start_gateway: StartGateway) -> None:
    """The third process, of the second signal, is started by the second one. They belong to nobody here, so the test ends the last.

    That it serves at once, and is systemd's main process: test_systemd.py.
    """
    with rocketmq_stand_in() as broker:
        (port,) = free_ports(1)
        listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:{port}", "upstream": f"{LOOPBACK}:{broker.port}"}
        gateway = start_gateway([listener], [], gateway=TAKEOVER)
        first = gateway.process
        first.popen.send_signal(signal.SIGUSR2)
        first.wait_until(lambda: bool(events(gateway, "next_process_started")), within=30, what="the first signal")
        first.popen.send_signal(signal.SIGUSR2)
        wait_until(lambda: len(events(gateway, "taken_over")) == 2, within=90, what="the third process takes over")
        assert first.popen.wait(HANG_S) == 0
        second, third = [line["pid"] for line in events(gateway, "taken_over")]
        assert [line["pid"] for line in events(gateway, "next_process_asked_again")] == [second]
        assert len(events(gateway, "next_process_started")) == 2
        wait_until(lambda: has_ended(second), within=60, what="the second process ends")
        wait_until(lambda: gateway.answers("/readyz"), within=30, what="the third process serves")
        assert processes_of(gateway) == [third]
        os.kill(third, signal.SIGSTOP)  # so that both signals are there at once, however busy the machine is
        os.kill(third, signal.SIGUSR2)
        os.kill(third, signal.SIGTERM)
        os.kill(third, signal.SIGCONT)
        wait_until(lambda: not processes_of(gateway), within=60, what="the third process ends, and the fourth if it was started")
        assert not gateway.answers("/livez")


def test_a_limit_is_one_over_all_processes(start_gateway: StartGateway) -> None:
    """A flood through three upgrades: a bucket that is empty stays so, and none is filled anew."""
    rate, upgrades = 40, 3
    rules: list[dict[str, object]] = [
        {"name": "all", "per": "topic", "limit": {"messages": f"{rate}/s", "burst": {"messages": rate}}, "breaker": {"open_for": "0s"}}
    ]
    with rocketmq_stand_in() as broker:
        (port,) = free_ports(1)
        listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:{port}", "upstream": f"{LOOPBACK}:{broker.port}"}
        gateway = start_gateway([listener], rules, gateway=TAKEOVER)
        flood = Flood(port)
        began = time.monotonic()
        with flood.sending():
            for _ in range(upgrades):
                gateway.process.wait_until(partial(flood.have_passed, flood.passed + rate), within=60, what="messages to pass")
                gateway.replace()
            gateway.process.wait_until(partial(flood.have_passed, flood.passed + rate), within=60, what="messages to pass")
        elapsed_s = time.monotonic() - began
        _, at_most = bounds(rate, elapsed_s, rate)
        assert flood.refused > flood.passed
        assert flood.passed <= at_most + upgrades, (flood, elapsed_s)
        assert flood.faults == []
