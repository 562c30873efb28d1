"""A gateway that is restarted, by a supervisor that keeps its listening sockets: what clients see of that."""

from __future__ import annotations

import http.client
import json
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.brokers.rocketmq import RocketMQ
from support.brokers.stand_ins import rocketmq as rocketmq_stand_in
from support.clients.programs import Job, RocketMQClient
from support.gateways import Gateway
from support.processes import HANG_S, LOOPBACK, wait_until
from support.rocketmq.frames import heartbeat, response
from support.supervision import Supervisor

RESTARTS = [("behind held sockets", 3), pytest.param("taken over", 20, marks=pytest.mark.long)]
SYNC, ASYNC = 16, 4  # threads on one connection
RATE = 40  # sends a second of each
CLIENTS_OWN = {"-1", "-2", "10001", "10002"}  # no code, no call-back; its own ClientErrorCode: not connected, no answer in time
TIMEOUT_MS = 60_000  # of a send: drain and start are over within the usual 3 s, but not on a machine that does ten other things


def test_a_client_that_connects_between_two_gateways_waits_for_the_next_one(tmp_path: Path) -> None:
    """No connection is refused, of clients and operators; the supervisor hears when each is up and when it goes."""
    with (
        rocketmq_stand_in() as broker,
        Supervisor({"rocket": (LOOPBACK, 0), "admin": (LOOPBACK, 0)}, tmp_path / "notices") as held,
    ):
        ports = (held.address("rocket")[1], broker.port, held.address("admin")[1])
        bind, upstream, admin = (f"{LOOPBACK}:{port}" for port in ports)
        listener: dict[str, object] = {"name": "rocket", "protocol": "rocketmq", "bind": bind, "upstream": upstream}
        gateway = Gateway(tmp_path / "gateway", [listener], [], {"admin": {"bind": admin}}, supervisor=held)
        gateway.admin_port = ports[2]
        gateway.start()
        told: list[str] = []

        def hear() -> list[str]:
            told.extend(held.told())
            return told

        wait_until(lambda: bool(hear()), within=30, what="the notice that it is up, which comes after it is")
        assert told == ["READY=1"]
        wait_until(lambda: events(gateway, "listening") != [], within=30, what="the line about it")
        assert [line["inherited"] for line in events(gateway, "listening")] == [True]
        gateway.process.popen.send_signal(signal.SIGHUP)
        told.clear()
        wait_until(lambda: len(hear()) == 2, within=30, what="two notices of a reload")
        assert told[0].startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert told[1] == "READY=1"
        assert gateway.stop() == 0
        assert held.told() == ["STOPPING=1"]
        operator = http.client.HTTPConnection(LOOPBACK, gateway.admin_port, timeout=HANG_S)
        operator.request("GET", "/livez")
        with socket.create_connection(held.address("rocket"), timeout=HANG_S) as client:
            client.sendall(heartbeat())
            gateway.start()
            assert client.recv(4096) == response(1)
            answer = operator.getresponse()
            assert (answer.status, json.loads(answer.read())["status"]) == (200, "alive")
            operator.close()
        assert gateway.stop() == 0


@pytest.mark.rocketmq
@pytest.mark.parametrize(("how", "restarts"), RESTARTS)
def test_producers_and_consumers_under_load_lose_nothing(
    rocketmq: RocketMQ, rocketmq_client: RocketMQClient, tmp_path: Path, how: str, restarts: int
) -> None:
    """5.3.3 hears GO_AWAY, and its application nothing.

    4.9.8 sees connections that end when all is answered. It does not notice the end under a request: what it asks in that moment times
    out, so an application may see an error, but nothing it was told of is missing.
    """
    version = rocketmq_client.version + how[:5].strip()
    sync, asynchronous, one_way = topics = [f"rolling-{kind}-{version}" for kind in ("sync", "async", "one-way")]
    rocketmq.create_topics(*topics, f"%RETRY%rolling-{version}:1")
    enough, expected = tmp_path / "enough", tmp_path / "expected"
    each: dict[str, object] = {"rate": RATE, "until": enough}
    jobs = [
        {"topic": sync, "mode": "sync", "threads": SYNC, **each},
        {"topic": asynchronous, "mode": "async", "threads": ASYNC, **each},
        {"topic": one_way, "mode": "oneway", **each},
    ]
    with ExitStack() as stack:
        held = stack.enter_context(supervised(rocketmq)) if how == "behind held sockets" else None
        settings = {} if held is not None else {"gateway": {"name": "end-to-end", "state_directory": "state", "takeover": "takeover.sock"}}
        gateway = stack.enter_context(Gateway(tmp_path / "gateway", rocketmq.listeners, [], settings, supervisor=held))
        consumer = rocketmq_client.consume(f"rolling-{version}", f"{sync},{asynchronous}", expected=expected, within=900)
        producer = rocketmq_client.produce("run", *jobs, timeout_ms=TIMEOUT_MS if rocketmq_client.version == "5" else 3000)
        for _ in range(restarts):
            wait_for_sends(gateway, producer, 400)
            ended = gateway.replace() if held is None else restarted(gateway)
            assert "drain_deadline" not in ended
            assert ended.count('"event": "stopped"') == 1
        wait_for_sends(gateway, producer, 400)
        enough.touch()
        lines = {line["topic"]: line for line in producer.result(600)}
        number = tmp_path / "number"
        number.write_text(str(sum(lines[topic]["ok"] for topic in (sync, asynchronous))))
        number.rename(expected)  # whole from the beginning
        (read,) = consumer.result(300)
        stored = rocketmq.stored(*topics)
    assert 0 < stored[one_way] <= lines[one_way]["sent"]  # what its client writes into a connection that is closing is lost in the client
    for topic in (sync, asynchronous):
        line = lines[topic]
        assert stored[topic] >= line["ok"] > 0
        assert set(line["codes"]) <= CLIENTS_OWN, "no answer of the gateway's own reaches an application"
        if rocketmq_client.version == "5":
            assert (line["ok"], line["codes"], line["errors"]) == (line["sent"], {}, [])
            assert stored[topic] == line["sent"], "what is told to go elsewhere is not done here as well"
            assert acknowledged(topic, line) <= set(read["consumed"])


def restarted(gateway: Gateway) -> str:
    """Stop it, and start it anew; the log of the process that ended."""
    assert gateway.stop() == 0
    ended = gateway.log()
    gateway.start()
    return ended


def supervised(rocketmq: RocketMQ) -> Supervisor:
    """The sockets of both listeners."""
    binds = {str(listener["name"]): str(listener["bind"]).rpartition(":") for listener in rocketmq.listeners}
    return Supervisor({name: (host, int(port)) for name, (host, _, port) in binds.items()})


def events(gateway: Gateway, name: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, gateway.log().splitlines()) if line["event"] == name]


def acknowledged(topic: str, line: dict[str, Any]) -> set[str]:
    """The ids of what the application was told is stored."""
    return {
        f"run-{topic}-{thread}-{sequence}"
        for thread, letters in enumerate(line["outcomes"])
        for sequence, letter in enumerate(letters)
        if letter == "A"
    }


def wait_for_sends(gateway: Gateway, producer: Job, count: int) -> None:
    """Until this gateway has forwarded so many of the producer's, which goes on."""

    def enough() -> bool:
        assert not producer.ended(), producer.result()
        return sum(each.value for each in gateway.samples() if each.name == "sluice_messages_forwarded_total") >= count

    gateway.process.wait_until(enough, within=120, what=f"{count} forwarded messages")
