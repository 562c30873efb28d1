"""Limits on what RocketMQ consumers get, with the real broker and Java's consumers: pushed, pulled and popped, current and old."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.brokers.name_servers import read_frame
from support.brokers.rocketmq import RocketMQ
from support.clients.programs import RocketMQClient
from support.gateways import Gateway
from support.processes import HANG_S, LOOPBACK, wait_until
from support.rocketmq.frames import encode_request, read_response, send
from support.rocketmq.stored_messages import pop, pull

pytestmark = pytest.mark.rocketmq

QUEUES = 4
RATE = 50  # messages per second
FEW = 3  # messages per second
BATCH = 32  # that one pull brings
COUNT = 400
SHUT_S = 12.0  # more than the 9 s for which a pull of Java's is kept
BUSY = 20  # requests per second and queue: fewer than these, or it is a hot loop
SET_MESSAGE_REQUEST_MODE = 401
WAYS = {"5": ("push", "lite", "pop"), "4": ("push", "lite")}
RULES: list[dict[str, object]] = [
    {
        "name": "consumers",
        "match": {"protocol": "rocketmq", "operation": "consume", "topic": "slow-*"},
        "limit": {"messages": f"{RATE}/s"},
    },
    {"name": "few", "match": {"protocol": "rocketmq", "operation": "consume", "topic": "few"}, "limit": {"messages": f"{FEW}/s"}},
    {"name": "nothing", "match": {"protocol": "rocketmq", "operation": "consume", "topic": "shut-*"}, "limit": {"messages": "0/s"}},
]


@pytest.fixture(scope="module")
def gateway(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for all tests of this file: it stands at the broker's advertised address, and there is only one."""
    with Gateway(tmp_path_factory.mktemp("gateway"), rocketmq.listeners, RULES) as running:
        yield running


def let_pop(rocketmq: RocketMQ, group: str, topic: str) -> None:
    """Tell the broker that consumers of `group` pop, as `mqadmin setConsumeMode` does."""
    body = f'{{"consumerGroup":"{group}","mode":"POP","popShareQueueNum":8,"topic":"{topic}"}}'.encode()
    with socket.create_connection((LOOPBACK, rocketmq.port), timeout=HANG_S) as connection:
        connection.sendall(encode_request(SET_MESSAGE_REQUEST_MODE, None, body))
        answer = read_frame(connection)
    assert read_response(answer)["code"] == 0


def backlog(rocketmq: RocketMQ, client: RocketMQClient, *uses: str) -> dict[tuple[str, str], str]:
    """Topics by use and way of consuming, each with COUNT messages that nobody has consumed."""
    names = {(use, way): f"{use}-{way}-{client.version}" for way in WAYS[client.version] for use in uses}
    rocketmq.create_topics(*(f"{name}:{QUEUES}" for name in names.values()))
    jobs: list[dict[str, object]] = [{"topic": name, "mode": "async", "count": COUNT} for name in names.values()]
    assert [line["ok"] for line in client.produce("run", *jobs).result()] == [COUNT] * len(names)
    for (_, way), name in names.items():
        if way == "pop":
            let_pop(rocketmq, f"readers-{name}", name)
    return names


def readers(names: dict[tuple[str, str], str], expected: int) -> list[tuple[str, str, str, int]]:
    return [(way, f"readers-{name}", name, expected) for (_, way), name in names.items()]


def seconds_of(gateway: Gateway, topics: set[str]) -> dict[str, float]:
    """How long the gateway took to pass on COUNT messages of each topic, at most: from before the first to behind the last."""
    begun = dict.fromkeys(topics, time.monotonic())
    over: dict[str, float] = {}

    def all_are_over() -> bool:
        asked = time.monotonic()
        passed = dict.fromkeys(topics, 0.0)
        for sample in gateway.samples():
            if (
                sample.name == "sluice_messages_forwarded_total"
                and sample.labels["operation"] == "consume"
                and sample.labels["topic"] in topics
            ):
                passed[sample.labels["topic"]] += sample.value
        for topic, count in passed.items():
            if count == 0:
                begun[topic] = asked
            elif count >= COUNT:
                over.setdefault(topic, time.monotonic())
        return len(over) == len(topics)

    wait_until(all_are_over, within=60, what="all to be passed on")
    return {topic: end - begun[topic] for topic, end in over.items()}


def test_consumers_of_every_kind_get_everything_at_the_limits_rate_and_others_are_not_slowed(
    rocketmq: RocketMQ, rocketmq_client: RocketMQClient, gateway: Gateway
) -> None:
    """All consumers are of one client, and so on one connection to the broker."""
    names = backlog(rocketmq, rocketmq_client, "slow", "free")
    program = rocketmq_client.consume_all(*readers(names, COUNT), within=240)
    lasted = seconds_of(gateway, set(names.values()))
    lines: dict[str, dict[str, Any]] = {line["topic"]: line for line in program.result()}
    for (use, way), name in names.items():
        line = lines[name]
        assert set(line["consumed"]) == {f"run-{name}-0-{sequence}" for sequence in range(COUNT)}, name
        fates = gateway.messages_by_fate("rocketmq", name, "consume")
        assert (fates["received"], fates["forwarded"], fates["waiting"]) == (len(line["consumed"]), len(line["consumed"]), 0), name
        if use == "slow":
            assert RATE + RATE * lasted[name] + BATCH >= COUNT, name
        else:
            assert lasted[name] < lasted[names["slow", way]], "a topic without limit is through before the limited one beside it"
    levels = gateway.get(f"/v1/limits/rocketmq/{names['slow', 'push']}")["levels"]
    (consumed,) = [level for level in levels if level["operation"] == "consume"]
    assert consumed["usage"]["admitted"] == COUNT
    assert "consume" in gateway.cli("limits", "get", "rocketmq", names["slow", "push"]).stdout


def test_a_limit_of_nothing_holds_every_kind_of_consumer_without_a_hot_loop(
    rocketmq: RocketMQ, rocketmq_client: RocketMQClient, gateway: Gateway
) -> None:
    names = backlog(rocketmq, rocketmq_client, "shut")
    program = rocketmq_client.consume_all(*readers(names, 0), within=2 * HANG_S)
    asked: dict[int, dict[str, Any]] = {}
    queues = QUEUES * len(names)

    def total(what: str) -> int:
        return sum(one[what] for one in asked.values())

    def kept_and_answered() -> bool:
        """Every queue is asked for, and some polls were kept for so long that they had to be answered."""
        assert not program.ended()
        asked.update({one["id"]: one for one in gateway.get("/v1/connections")["items"] if one.get("held_polls")})
        return total("limited_polls") >= queues and total("empty_polls") > 0

    began = time.monotonic()
    wait_until(lambda: kept_and_answered() and time.monotonic() - began > SHUT_S, within=60, what="polls that were kept")
    assert total("limited_polls") / (time.monotonic() - began) / queues < BUSY  # some of the time the consumers were at it
    assert {name: gateway.messages_by_fate("rocketmq", name, "consume")["forwarded"] for name in names.values()} == dict.fromkeys(
        names.values(), 0
    )
    program.kill()
    for one in asked.values():
        assert (one["state"], one["bottleneck"], one["held_messages"]) == ("throttled", "limit", 0)
        assert one["held_by"]["operation"] == "consume"


def test_one_answer_of_a_limited_topic_brings_what_passes_in_a_second(rocketmq: RocketMQ, gateway: Gateway) -> None:
    """The broker gives as many as it is asked for, and is asked for no more, in either encoding of the header."""
    rocketmq.create_topics("few:1")
    with socket.create_connection((rocketmq.advertised, rocketmq.port), timeout=HANG_S) as connection:
        for number in range(20):
            connection.sendall(send("few", b"%d" % number, opaque=4 * number))  # that opaque: to queue 0
            assert read_response(read_frame(connection))["code"] == 0
        asked = [
            pull("few", offset=0, group="few", most=BATCH),
            pull("few", offset=3, group="few", most=BATCH, binary=True),
            pop("few", queue=0, group="few", most=BATCH).replace(b"1795247411000", b"%d" % (time.time() * 1000)),  # when it was made
        ]
        for request in asked:
            connection.sendall(request)
            answer = read_frame(connection)
            assert read_response(answer)["code"] == 0
            assert messages_in(answer) == FEW


def messages_in(answer: bytes) -> int:
    """How many stored messages an answer brings."""
    at = 8 + int.from_bytes(answer[5:8], "big")
    count = 0
    while at < len(answer):
        at += int.from_bytes(answer[at : at + 4], "big")
        count += 1
    return count
