"""`durable: true` with RocketMQ's own broker: what was accepted, or committed, survives a SIGKILL of the gateway.

The promises of `docs/spooling.md` that need a broker.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.brokers.rocketmq import RocketMQ
from support.gateways import Gateway, StartGateway
from support.processes import LOOPBACK, free_ports, wait_until
from support.rocketmq.frames import encode_request, send

pytestmark = pytest.mark.rocketmq

RULE: dict[str, object] = {
    "name": "durable",
    "match": {"protocol": "rocketmq", "topic": "durable-*"},
    "per": "topic",
    "limit": {"messages": "200/s"},
    "action": "spool",
    "answer": "accepted_by_gateway",
    "durable": True,
    "breaker": {"open_for": "0s"},
}
BODY_AT = 88  # of a stored message (MessageDecoder.decode): all before it has a fixed length


@pytest.fixture(scope="module")
def gateway(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    rocketmq.create_topics(*(f"durable-{use}:1" for use in ("killed", "random", "often", "stopped", "workers", "taken")))
    settings = {"memory": {"target": "1MiB"}, "drain": {"timeout": "2s"}}
    with Gateway(tmp_path_factory.mktemp("gateway"), rocketmq.listeners, [RULE], settings) as running:
        yield running


def figures(gateway: Gateway) -> dict[str, Any]:
    shown: dict[str, Any] = gateway.get("/v1/spool")["spool"]
    return shown


def files(gateway: Gateway) -> list[Path]:
    return list((gateway.directory / "state" / "spool").glob("*/*.durable"))


def wait_until_replayed(gateway: Gateway) -> None:
    def done() -> bool:
        return not files(gateway) and figures(gateway)["replaying_bytes"] == 0 and figures(gateway)["messages"] == 0

    wait_until(done, within=120, what="all is replayed")


def connect(rocketmq: RocketMQ) -> socket.socket:
    return socket.create_connection((rocketmq.advertised, rocketmq.port), timeout=60)


def stored(rocketmq: RocketMQ, topic: str) -> list[tuple[str, bool]]:
    """The body of each message of the only queue, up to its first full stop, and whether it is marked as a repetition."""
    (count,) = rocketmq.stored(topic).values()
    found: list[tuple[str, bool]] = []
    with socket.create_connection((LOOPBACK, rocketmq.port), timeout=60) as broker:
        while len(found) < count:
            fields = {"consumerGroup": "lookers", "topic": topic, "queueId": "0", "queueOffset": str(len(found)), "maxMsgNums": "32"}
            fields |= {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "1"}
            fields |= {"expressionType": "TAG"}
            broker.sendall(encode_request(11, fields, opaque=len(found)))
            frame = exactly(broker, int.from_bytes(exactly(broker, 4)))
            body_at = 4 + (int.from_bytes(frame[:4]) & 0xFFFFFF)
            head = json.loads(frame[4:body_at])
            assert head["code"] == 0, head
            at = body_at
            while at < len(frame):
                (size,) = struct.unpack_from(">I", frame, at)
                (length,) = struct.unpack_from(">I", frame, at + BODY_AT - 4)
                body = frame[at + BODY_AT : at + BODY_AT + length]
                found.append((body.decode().partition(".")[0], b"x-sluice-replayed\x01true" in frame[at : at + size]))
                at += size
    return found


def exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        assert more, "the connection has ended"
        data += more
    return data


def answers(data: bytes) -> list[int]:
    """The opaques of the successes in what came, whole frames only."""
    found = []
    while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4]):
        size = 4 + int.from_bytes(data[:4])
        head = json.loads(data[8 : 8 + (int.from_bytes(data[4:8]) & 0xFFFFFF)])
        if head["code"] == 0:
            found.append(int(head["opaque"]))
        data = data[size:]
    return found


def received(producer: socket.socket) -> bytes:
    """What has come, until there is no more, or the other end is gone."""
    producer.setblocking(False)
    found = b""
    try:
        while more := producer.recv(1 << 20):
            found += more
    except (BlockingIOError, ConnectionError):
        pass
    return found


def frames(topic: str, run: str, kinds: list[bool], size: int) -> bytes:
    """Sends whose body is their number; `kinds`: whether each is one-way. An opaque of fours: all go to queue 0."""
    bodies = [f"{run}-{number}.{'x' * size}".encode() for number in range(len(kinds))]
    return b"".join(send(topic, body, opaque=4 * at, one_way=kinds[at]) for at, body in enumerate(bodies))


def by_run(found: list[tuple[str, bool]], *, marked: bool) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for name, again in found:
        if again == marked:
            run, _, number = name.rpartition("-")
            numbers.setdefault(run, []).append(int(number))
    return numbers


def check(found: list[tuple[str, bool]], answered: dict[str, set[int]], *, killed: int = 1) -> None:
    """All that was answered has come, and of each connection what was sent first; what came again says so; in order."""
    plain, marked = by_run(found, marked=False), by_run(found, marked=True)
    for run in plain.keys() | marked.keys() | answered.keys():
        once, again = plain.get(run, []), marked.get(run, [])
        assert len(set(once)) == len(once), "what is not marked comes once"
        assert len(again) <= killed * len(set(again))
        numbers = set(once) | set(again)
        assert answered.get(run, set()) <= numbers, f"{run}: accepted, and lost: {sorted(answered[run] - numbers)[:10]}"
        assert numbers == set(range(len(numbers))), f"{run}: one is lost in between"
        first = list(dict.fromkeys(again))
        assert first == sorted(first), f"{run}: the replay is out of order"


def test_what_was_accepted_when_the_gateway_was_killed_is_replayed_in_order_and_marked(rocketmq: RocketMQ, gateway: Gateway) -> None:
    topic, count = "durable-killed", 1500
    with connect(rocketmq) as producer:
        producer.sendall(frames(topic, "run", [number % 3 == 0 for number in range(count)], 1000))
        wait_until(lambda: gateway.messages_by_fate("rocketmq", topic)["received"] == count, within=30, what="all has come")
        wait_until(lambda: figures(gateway)["uncommitted_bytes"] == 0, within=30, what="all is committed")
        gateway.kill()
        found = answers(received(producer))
        assert len(found) == count - count // 3, "all but the one-way sends are answered"
    gateway.start()
    assert '"recovered_files"' in gateway.log()
    wait_until_replayed(gateway)
    messages = stored(rocketmq, topic)
    assert {name for name, _ in messages} == {f"run-{number}" for number in range(count)}, "one-way sends, too"
    check(messages, {"run": {opaque // 4 for opaque in found}})
    assert sum(again for _, again in messages) > count / 3
    shown = figures(gateway)
    assert (shown["set_aside_messages"], shown["accepted_lost"]) == (0, 0)
    assert shown["replayed_messages"] == sum(again for _, again in messages)


def kill_at_random(rocketmq: RocketMQ, gateway: Gateway, topic: str, random: Random, rounds: int) -> None:
    answered: dict[str, set[int]] = {}
    for turn in range(rounds):
        with connect(rocketmq) as producer:
            kinds = [random.random() < 0.3 for _ in range(random.randrange(50, 400))]
            producer.sendall(frames(topic, f"r{turn}", kinds, random.choice((10, 1_000, 4_000))))
            time.sleep(random.random())  # any moment will do: nothing is waited for
            gateway.kill()
            answered[f"r{turn}"] = {opaque // 4 for opaque in answers(received(producer))}
        gateway.start()
    wait_until_replayed(gateway)
    assert sum(map(len, answered.values())) > 0
    check(stored(rocketmq, topic), answered, killed=rounds)
    assert figures(gateway)["set_aside_messages"] == 0


def test_a_gateway_that_is_killed_at_any_moment_loses_nothing_that_was_accepted(rocketmq: RocketMQ, gateway: Gateway) -> None:
    kill_at_random(rocketmq, gateway, "durable-random", Random(5), 3)


@pytest.mark.long
def test_a_gateway_that_is_killed_at_a_hundred_moments_loses_nothing_that_was_accepted(rocketmq: RocketMQ, gateway: Gateway) -> None:
    kill_at_random(rocketmq, gateway, "durable-often", Random(6), 100)


def test_what_the_broker_does_not_take_is_set_aside_and_what_is_behind_it_goes_on(rocketmq: RocketMQ, gateway: Gateway) -> None:
    """A topic that the broker does not have; another topic of the same connection is stored."""
    topic, count = "durable-stopped", 600
    with connect(rocketmq) as producer:
        missing = frames("durable-missing", "run", [True] * count, 100).replace(b"TBW102", b"NOBODY")
        producer.sendall(missing + frames(topic, "run", [True] * count, 100))
        wait_until(
            lambda: sum(gateway.messages_by_fate("rocketmq", each)["received"] for each in (topic, "durable-missing")) == 2 * count,
            within=30,
            what="all has come",
        )
        wait_until(lambda: figures(gateway)["uncommitted_bytes"] == 0, within=30, what="all is committed")
        gateway.kill()
    gateway.start()
    wait_until_replayed(gateway)
    messages = stored(rocketmq, topic)
    assert {name for name, _ in messages} == {f"run-{number}" for number in range(count)}
    aside = figures(gateway)["set_aside_messages"]
    assert count / 4 < aside <= count
    (file,) = (gateway.directory / "state" / "spool" / "set-aside").glob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == aside
    assert {(line["listener"], line["topic"]) for line in lines} == {("rocket", "durable-missing")}
    assert all(line["reason"].startswith("17 ") for line in lines), lines[0]["reason"]
    assert [line["body"].partition(".")[0] for line in lines] == [f"run-{number}" for number in range(count - aside, count)]
    assert '"replay_set_aside"' in gateway.log()


def listener(rocketmq: RocketMQ) -> dict[str, object]:
    """One more gateway before the same broker."""
    (port,) = free_ports(1)
    return {"name": "rocket", "protocol": "rocketmq", "bind": f"{LOOPBACK}:{port}", "upstream": f"{LOOPBACK}:{rocketmq.port}"}


def test_several_workers_replay_each_send_once(rocketmq: RocketMQ, gateway: Gateway, start_gateway: StartGateway) -> None:
    topic, count, runs = "durable-workers", 200, 8
    several = start_gateway([listener(rocketmq)], [RULE], gateway={"name": "several", "state_directory": "state", "workers": 2})
    producers = [socket.create_connection((LOOPBACK, several.port("rocket")), timeout=60) for _ in range(runs)]
    for run, producer in enumerate(producers):
        producer.sendall(frames(topic, f"w{run}", [number % 3 == 0 for number in range(count)], 1000))
    wait_until(lambda: several.messages_by_fate("rocketmq", topic)["received"] == runs * count, within=30, what="all has come")
    wait_until(lambda: figures(several)["uncommitted_bytes"] == 0, within=30, what="all is committed")
    behind = {worker.parent.name for worker in files(several)}
    several.kill()
    wait_until(lambda: not several.alive(), within=30, what="it is gone")
    answered = {f"w{run}": {opaque // 4 for opaque in answers(received(producer))} for run, producer in enumerate(producers)}
    for producer in producers:
        producer.close()
    several.start()
    wait_until_replayed(several)
    found = stored(rocketmq, topic)
    assert len(behind) == 2, "both workers have left something"
    assert {name for name, _ in found} == {f"w{run}-{number}" for run in range(runs) for number in range(count)}
    check(found, answered)
    assert figures(several)["set_aside_messages"] == 0


def test_what_the_old_process_leaves_at_a_takeover_is_replayed_by_the_new_one(
    rocketmq: RocketMQ, gateway: Gateway, start_gateway: StartGateway
) -> None:
    topic, count = "durable-taken", 8_000
    takeover = {"name": "end-to-end", "state_directory": "state", "takeover": "run/takeover.sock"}
    slow = {**RULE, "limit": {"messages": "50/s"}}
    old = start_gateway([listener(rocketmq)], [slow], gateway=takeover, drain={"timeout": "1s"})
    with socket.create_connection((LOOPBACK, old.port("rocket")), timeout=60) as producer:
        producer.sendall(frames(topic, "run", [True] * count, 400))
        wait_until(lambda: old.messages_by_fate("rocketmq", topic)["received"] == count, within=60, what="all has come")
        wait_until(lambda: figures(old)["uncommitted_bytes"] == 0, within=60, what="all is committed")
        old.write_rules([{**RULE, "limit": {"messages": "20000/s"}}])
        old.replace()
        wait_until_replayed(old)
    assert figures(old)["replayed_messages"] > 0, "all went through: the test needs more messages"
    found = stored(rocketmq, topic)
    assert {name for name, _ in found} == {f"run-{number}" for number in range(count)}
    check(found, {"run": set(range(count))})
