"""How a gateway is stopped: at once or after its clients, and what each signal does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pika
import pika.exceptions
import pytest

from gateway.lifecycle.signals import SAME_S
from support.brokers import stand_ins
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, StartGateway, amqp_listener
from support.processes import HANG_S, LOOPBACK, Process, tree, wait_until


def events(gateway: Gateway, name: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in gateway.log().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


@pytest.mark.rabbitmq
@pytest.mark.parametrize("workers", [1, 2])
def test_a_consumer_works_off_its_last_batch_and_the_gateway_ends_after_it(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, workers: int
) -> None:
    gateway: Gateway = start_gateway(
        [amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], [], drain={"timeout": "1h", "hold": "until_clients_leave"},
        gateway={"name": "end-to-end", "state_directory": "state", "workers": workers},
    )  # fmt: skip
    with Queue(rabbitmq.url, "last-batch") as queue, Queue(rabbitmq.url, "results") as results:
        url = gateway.amqp_url()
        consumer = pika.BlockingConnection(pika.URLParameters(url))
        channel = consumer.channel()
        for number in range(5):
            channel.basic_publish("", queue.name, str(number).encode(), pika.BasicProperties(message_id=str(number)))
        wait_until(lambda: queue.depth() == 5, within=30, what="the messages")
        got, _, _ = channel.basic_get(queue.name)
        gateway.process.popen.send_signal(signal.SIGTERM)
        wait_until(lambda: bool(events(gateway, "drain_held")), within=30, what="the gateway stops")
        wait_until(lambda: not gateway.answers("/readyz"), within=30, what="not ready")
        with contextlib.closing(pika.BlockingConnection(pika.URLParameters(url))) as late:  # for the results
            late.channel().basic_publish("", results.name, b"done", pika.BasicProperties(message_id="done"))
        channel.basic_ack(got.delivery_tag)
        assert channel.queue_declare(queue.name, passive=True).method.message_count == 4, "it still has its broker"
        assert gateway.alive()
        consumer.close()
        assert gateway.process.popen.wait(HANG_S) == 0
        assert sorted(queue.drain()) == ["1", "2", "3", "4"]
        assert results.drain() == ["done"]


@pytest.mark.rabbitmq
def test_a_client_that_does_not_leave_is_told_before_the_time_is_over(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway: Gateway = start_gateway(
        [amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], [], drain={"timeout": "4s", "hold": "until_clients_leave"}
    )
    connection = pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))
    started = time.monotonic()
    assert gateway.cli("drain", "--yes").returncode == 0
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        connection.process_data_events(time_limit=HANG_S)
    assert caught.value.reply_code == 320
    assert time.monotonic() - started > 1.5, "it was left alone for half of the time"
    assert gateway.process.popen.wait(HANG_S) == 0


def greeted(port: int) -> bool:
    """Whether a newcomer is led to the broker, whose first word it gets."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=HANG_S) as newcomer:
            newcomer.sendall(b"AMQP\0\0\x09\x01")
            return newcomer.recv(11)[7:] == b"\0\x0a\0\x0a"  # connection.start
    except ConnectionError:
        return False


@pytest.mark.rabbitmq
@pytest.mark.parametrize("workers", [1, 2])
def test_nobody_is_refused_while_a_service_leads_newcomers_here(rabbitmq: RabbitMQ, start_gateway: StartGateway, workers: int) -> None:
    """As kubelet ends a pod: SIGTERM at once, while each node changes the Service's rules in its own time."""
    delay_s = 2
    gateway: Gateway = start_gateway(
        [amqp_listener(f"{LOOPBACK}:{rabbitmq.port}")], [], drain={"timeout": "30s", "delay": f"{delay_s}s"},
        gateway={"name": "end-to-end", "state_directory": "state", "workers": workers},
    )  # fmt: skip
    port = gateway.port("rabbit")
    client = pika.BlockingConnection(pika.URLParameters(gateway.amqp_url()))
    asked = time.monotonic()
    gateway.process.popen.send_signal(signal.SIGTERM)
    wait_until(lambda: bool(events(gateway, "drain_held")), within=30, what="the stop is delayed")
    wait_until(lambda: not gateway.answers("/readyz"), within=30, what="not ready")
    served = 0
    while greeted(port):
        served += 1
        time.sleep(0.01)
    assert time.monotonic() - asked >= delay_s, f"refused after {served} newcomers"
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        client.process_data_events(time_limit=HANG_S)
    assert caught.value.reply_code == 320
    assert gateway.process.popen.wait(HANG_S) == 0


# ---- signals ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[1, 2], ids=["alone", "two workers"])
def lone(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Gateway]:
    """A gateway that leaves clients for long; its tests end it."""
    settings = {
        "gateway": {"name": "end-to-end", "state_directory": "state", "workers": request.param},
        "drain": {"timeout": "10min", "hold": "until_clients_leave"},
        "log": {"format": "json"},
    }
    with stand_ins.rabbitmq() as broker:
        gateway = Gateway(tmp_path / "lone", [amqp_listener(broker.address)], [], settings)
        gateway.start()
        try:
            yield gateway
        finally:
            if gateway.alive():
                gateway.kill()


def workers_of(gateway: Gateway) -> list[int]:
    return tree(gateway.process.pid)[1:]


def ended_by(process: Process, number: signal.Signals) -> int:
    """Send the signal again and again, each time later than what counts as the same one; the exit code."""

    def sent() -> bool:
        process.popen.send_signal(number)
        return not process.alive()

    wait_until(sent, within=20, what="it ends at once", every=3 * SAME_S)
    return process.popen.wait(0)


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_stop_signal_ends_at_once(lone: Gateway, number: signal.Signals, code: int) -> None:
    """A client that does not leave, and is left alone, holds the first one up."""
    workers = workers_of(lone)
    client = pika.BlockingConnection(pika.URLParameters(lone.amqp_url()))
    lone.process.popen.send_signal(number)
    wait_until(lambda: bool(events(lone, "drain_held")), within=20, what="the graceful stop begins")
    assert lone.alive()
    assert client.is_open
    assert ended_by(lone.process, number) == code
    (line,) = [each for each in events(lone, "stopped_at_once") if "worker" not in each]
    assert (line["signal"], line["again"]) == (number.name, True)
    wait_until(lambda: gone(workers), within=20, what="the workers are gone with their parent")
    with pytest.raises(pika.exceptions.AMQPError):
        client.process_data_events(time_limit=HANG_S)


def has_stacks(gateway: Gateway, count: int) -> bool:
    return len(events(gateway, "stacks")) == count


def is_ignored(gateway: Gateway, name: str) -> bool:
    return name in [line["signal"] for line in events(gateway, "signal_ignored")]


def test_sigusr1_shows_the_stacks_of_every_process_others_kill_nobody_and_sigquit_ends_at_once(lone: Gateway) -> None:
    workers = workers_of(lone)
    processes = 1 + len(workers)
    for number in (signal.SIGUSR2, signal.SIGALRM):
        lone.process.popen.send_signal(number)
        wait_until(partial(is_ignored, lone, number.name), within=20, what="a line in the log")
    for before in (0, processes):
        lone.process.popen.send_signal(signal.SIGUSR1)
        wait_until(partial(has_stacks, lone, before + processes), within=20, what="the stacks")
    for line in events(lone, "stacks"):
        text = str(line["stacks"])
        assert "thread MainThread, innermost frame last:\n  File " in text
        assert "thread log, innermost" in text
        assert "probe_broker" in text or "_every_second" in text, "the tasks"
    assert lone.answers("/livez")
    lone.process.popen.send_signal(signal.SIGQUIT)
    assert lone.process.popen.wait(HANG_S) == 131
    wait_until(lambda: gone(workers), within=20, what="the workers are gone with their parent")
    assert len(events(lone, "stacks")) == 3 * processes
    assert events(lone, "worker_ended") == [], "no worker is replaced meanwhile"


def test_a_loop_that_hangs_hears_the_second_signal_all_the_same(tmp_path: Path) -> None:
    """The first one waits for the loop, which sleeps for ever."""
    program = (
        "import signal, time, trio\n"
        "from common import log\n"
        "from gateway.lifecycle.signals import Signals, wait_for_stop\n"
        "async def main():\n"
        "    async with trio.open_nursery() as nursery:\n"
        "        nursery.start_soon(wait_for_stop)\n"
        "        await trio.sleep(0)\n"
        "        await trio.lowlevel.checkpoint()\n"
        "        log.event(30, 'hangs')\n"
        "        while True:\n"
        "            time.sleep(60)\n"
        "with Signals(log.start('info', 'json')):\n"
        "    trio.run(main)\n"
    )
    with Process([sys.executable, "-c", program], log=tmp_path / "log", env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as one:
        one.wait_until(lambda: '"hangs"' in one.output(), within=20, what="the loop hangs")
        assert ended_by(one, signal.SIGTERM) == 143
        assert '"stopped_at_once"' in one.output()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_gateway_that_was_stopped_longer_than_its_watchdogs_patience_goes_on(start_gateway: StartGateway, workers: int) -> None:
    settings = {"gateway": {"name": "end-to-end", "state_directory": "state", "workers": workers, "watchdog": "1s"}}
    with stand_ins.rabbitmq() as broker:
        gateway: Gateway = start_gateway([amqp_listener(broker.address)], [], **settings)
        processes = tree(gateway.process.pid)
        gateway.process.signal_tree(signal.SIGSTOP)
        time.sleep(3)
        gateway.process.signal_tree(signal.SIGCONT)
        resumed = time.monotonic()
        wait_until(lambda: time.monotonic() - resumed > 3 and gateway.answers("/readyz"), within=60, what="it serves three seconds later")
        assert tree(gateway.process.pid) == processes
