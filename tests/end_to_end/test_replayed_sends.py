"""The replay of RocketMQ's durable sends, to a broker that hangs or refuses them for a while (`docs/spooling.md`)."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from support.brokers.stand_ins import StandIn
from support.gateways import Gateway
from support.processes import LOOPBACK, wait_until
from support.rocketmq.frames import response, send, split_frames

HEART_BEAT = 34
SEND = 310
COUNT = 12
SILENCE = "has not answered for 10 s"
RULE: dict[str, object] = {
    "name": "durable",
    "match": {"protocol": "rocketmq", "topic": "orders"},
    "limit": {"messages": "1/s", "burst": {"messages": 1}},
    "action": "spool",
    "answer": "accepted_by_gateway",
    "durable": True,
    "breaker": {"open_for": "0s"},
}


class Broker:
    """Takes every request. `code`: what it answers to sends; None: it answers none, and no heartbeats. The gateway's own question whether
    it is ready is answered all the time, or the gateway would open no connection."""

    def __init__(self) -> None:
        self.code: int | None = 0
        self.stored: list[tuple[int, bool]] = []  # number in the body, and whether it is marked as a repetition
        self.refused = 0
        self.unanswered: list[int] = []  # codes of requests that it has left unanswered
        self.stand_in = StandIn(self._serve)

    def _serve(self, client: socket.socket) -> None:
        data = b""
        while more := client.recv(1 << 16):
            data += more
            while len(data) >= 4 and len(data) >= (size := 4 + int.from_bytes(data[:4])):
                self._take(client, data[:size])
                data = data[size:]

    def _take(self, client: socket.socket, one: bytes) -> None:
        body_at = 8 + (int.from_bytes(one[4:8]) & 0xFFFFFF)
        header = json.loads(one[8:body_at])
        is_send = header["code"] == SEND
        code = self.code
        if code is None and header["code"] in (SEND, HEART_BEAT):
            self.unanswered.append(header["code"])
            return
        if is_send and code:
            self.refused += 1
        elif is_send:
            self.stored.append((int(one[body_at:].partition(b".")[0]), "x-sluice-replayed" in header["extFields"]["i"]))
        client.sendall(response(header["opaque"], code, remark="not now") if is_send and code else response(header["opaque"]))

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stand_in.__exit__()


def gateway_before(broker: Broker, directory: Path, **settings: object) -> Gateway:
    listener = {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:0", "upstream": broker.stand_in.address}
    return Gateway(directory, [listener], [RULE], {"memory": {"target": "1MiB"}, **settings})


def accept_and_kill(gateway: Gateway) -> None:
    """The gateway has answered COUNT sends, of which the broker has few, and is killed."""
    with socket.create_connection((LOOPBACK, gateway.port("rocket")), timeout=30) as producer:
        producer.sendall(b"".join(send("orders", b"%d.%s" % (number, b"x" * 100), opaque=number) for number in range(COUNT)))
        answers = b""
        while answers.count(b'"code":0') < COUNT:
            answers += producer.recv(1 << 16)
        assert len(split_frames(answers)) == COUNT
        gateway.kill()


def waits(gateway: Gateway) -> str:
    return str(gateway.get("/v1/spool")["spool"]["replay_trouble"] or "")


def waiting_replays(gateway: Gateway) -> float:
    (found,) = [sample.value for sample in gateway.samples() if sample.name == "sluice_spool_waiting_replays"]
    return found


def wait_until_replayed(gateway: Gateway) -> None:
    def done() -> bool:
        return not list(gateway.directory.glob("state/spool/*/*.durable")) and gateway.get("/v1/spool")["spool"]["replaying_bytes"] == 0

    wait_until(done, within=120, what="all is replayed")


@pytest.mark.long
def test_a_broker_that_hangs_is_told_and_asked_again_and_one_message_may_come_twice(tmp_path: Path) -> None:
    with Broker() as broker, gateway_before(broker, tmp_path) as gateway:
        accept_and_kill(gateway)
        broker.code = None
        gateway.start()
        wait_until(lambda: SILENCE in waits(gateway), within=60, what="the operator is told")
        assert '"replay_waits"' in gateway.log()
        assert any(SILENCE in warning for warning in gateway.get("/v1/status")["warnings"])
        assert SILENCE in gateway.cli("spool", "list").stderr
        assert waiting_replays(gateway) == 1
        wait_until(lambda: broker.unanswered.count(HEART_BEAT) >= 2, within=120, what="it is asked again")
        assert SEND not in broker.unanswered, "it gets no message before it answers"
        broker.code = 0
        before = len(broker.stored)
        wait_until(lambda: len(broker.stored) >= before + 3, within=60, what="the replay goes on")
        assert waits(gateway) == ""
        broker.unanswered.clear()
        broker.code = None
        wait_until(lambda: broker.unanswered.count(HEART_BEAT) >= 1, within=120, what="it is asked again")
        assert broker.unanswered.count(SEND) == 1, "the one that was under way"
        assert SILENCE in waits(gateway)
        broker.code = 0
        wait_until_replayed(gateway)
        assert (waits(gateway), waiting_replays(gateway)) == ("", 0)
        assert gateway.get("/v1/spool")["spool"]["set_aside_messages"] == 0
        again = [number for number, marked in broker.stored if marked]
        assert again == list(range(again[0], COUNT)), "in order"
        assert {number for number, _ in broker.stored} == set(range(COUNT))


def test_what_a_broker_refuses_for_a_while_is_sent_once_it_takes_it_and_not_set_aside(tmp_path: Path) -> None:
    """NO_PERMISSION is what a broker answers that is read-only while it is maintained."""
    with Broker() as broker, gateway_before(broker, tmp_path) as gateway:
        accept_and_kill(gateway)
        broker.code = 16
        gateway.start()
        wait_until(lambda: broker.refused >= 2, within=60, what="it is tried again")
        assert waits(gateway) == "rocket orders: 16 not now"
        broker.code = 0
        wait_until_replayed(gateway)
        assert gateway.get("/v1/spool")["spool"]["set_aside_messages"] == 0
        again = [number for number, marked in broker.stored if marked]
        assert again == list(range(again[0], COUNT)), "in order, each once"
        assert {number for number, _ in broker.stored} == set(range(COUNT))
