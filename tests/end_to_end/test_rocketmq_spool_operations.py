"""What an operator does with RocketMQ's messages in the spool, with RocketMQ's own broker and Java client.

The promises of `docs/spooling.md` that need a broker.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support.brokers.rocketmq import RocketMQ
from support.clients.programs import RocketMQClient
from support.gateways import Gateway
from support.pages import shown
from support.processes import LOOPBACK, wait_until
from support.rocketmq.frames import send

pytestmark = pytest.mark.rocketmq

RULE: dict[str, object] = {
    "name": "operated",
    "match": {"protocol": "rocketmq", "topic": "operated-*"},
    "limit": {"messages": "40/s"},
    "action": "spool",
    "answer": "accepted_by_gateway",
    "breaker": {"open_for": "0s"},
}


@pytest.fixture(scope="module")
def gateway(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """At the broker's advertised address."""
    rocketmq.create_topics("operated-5:1", "operated-4:1")
    with Gateway(tmp_path_factory.mktemp("gateway"), rocketmq.listeners, [RULE], {"memory": {"target": "1MiB"}}) as running:
        yield running


def fates(gateway: Gateway, topic: str) -> dict[str, float]:
    return gateway.messages_by_fate("rocketmq", topic)


def exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        assert more, "the connection has ended"
        data += more
    return data


def test_operators_pause_discard_and_drain_what_waits_before_a_real_broker(
    rocketmq: RocketMQ, rocketmq_client: RocketMQClient, gateway: Gateway
) -> None:
    """What was drained is sent again by the page's own script, to the broker itself."""
    topic = f"operated-{rocketmq_client.version}"
    before = gateway.get("/v1/spool")["spool"]
    words = ("rocketmq", topic, "--reason", "a test")
    gateway.cli("spool", "pause", *words)
    sent = 0
    producer = socket.create_connection((rocketmq.advertised, rocketmq.port), timeout=60)  # which stays: a reset would give up what waits

    def produce(run: str, count: int, silent: int = 0) -> None:
        names = [(f"{run}-{number}", False) for number in range(count)] + [(f"{run}-silent-{number}", True) for number in range(silent)]
        producer.sendall(b"".join(send(topic, body.encode(), opaque=4 * at, one_way=quiet) for at, (body, quiet) in enumerate(names)))
        for _ in range(count):
            answer = exactly(producer, int.from_bytes(exactly(producer, 4)))
            assert json.loads(answer[4:])["code"] == 0, "stored, or accepted"

    for run, count in (("first", 100), ("second", 50)):
        produce(run, count, 20)
        wait_until(lambda: fates(gateway, topic)["received"] == sent + count + 20, within=30, what="all has come")  # noqa: B023
        sent += count + 20
        assert fates(gateway, topic)["waiting"] == count + 20, fates(gateway, topic)
        assert sum(rocketmq.stored(topic).values()) == 0
        if run == "first":
            told = json.loads(gateway.cli("spool", "drain", *words, "--to", f"{topic}.jsonl", "--yes", "-o", "json").stdout)
        else:
            told = json.loads(gateway.cli("spool", "discard", *words, "--yes", "-o", "json").stdout)
        assert (told["protocol"], told["topic"], told["messages"], told["faults"]) == ("rocketmq", topic, count + 20, [])
        wait_until(lambda: fates(gateway, topic)["waiting"] == 0, within=30, what="they are given up")
    gateway.cli("spool", "resume", *words)
    produce("third", 10)
    wait_until(lambda: sum(rocketmq.stored(topic).values()) == 10, within=60, what="what comes later goes on", every=1)
    after = gateway.get("/v1/spool")["spool"]
    assert [after[each] - before[each] for each in ("given_up", "accepted_given_up", "accepted_lost")] == [190, 150, 0]
    assert fates(gateway, topic)["dropped"] == 190
    file = gateway.directory / "state" / "drained" / f"{topic}.jsonl"
    drained = [json.loads(each) for each in file.read_text().splitlines()]
    assert sorted(each["accepted"] for each in drained) == [False] * 20 + [True] * 100
    script = shown("docs/spooling.md", "import base64, json, socket").text
    script = script.replace("127.0.0.1 10911", f"{LOOPBACK} {rocketmq.port}").replace("orders.jsonl", str(file))
    ran = subprocess.run(
        ["bash", "-c", script.replace("python3 ", f"{sys.executable} ", 1)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    wait_until(lambda: sum(rocketmq.stored(topic).values()) == 130, within=60, what="what was drained is stored", every=1)
    (read,) = rocketmq_client.consume(f"readers-{topic}", topic, expected=130, orderly=True).result()
    runs = [("first", 100), ("first-silent", 20), ("third", 10)]
    assert sorted(read["consumed"]) == sorted(f"{run}-{number}" for run, count in runs for number in range(count))
    audited = [each for each in gateway.get("/v1/audit")["items"] if f"/v1/spool/rocketmq/{topic}:" in each["action"]]
    assert [each["action"].rpartition(":")[2] for each in audited] == ["resume", "discard", "drain", "pause"]
    assert {each["reason"] for each in audited} == {"a test"}
    producer.close()
