"""`action: spool` with RocketMQ's own broker and Java client: one-way sends wait on disk, all others are refused in words.

The promises of `docs/spooling.md` that need a broker or a process; age, live changes and what may not wait are asked of sessions
(tests/gateway/session/test_spooled_sends.py, test_spool_live_limits.py).
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from support.brokers.rocketmq import RocketMQ
from support.clients.programs import RocketMQClient
from support.gateways import Gateway, limit_path
from support.processes import HANG_S, wait_until
from support.rocketmq.frames import send

pytestmark = pytest.mark.rocketmq

KILLS = int(os.environ.get("SLUICE_KILLS", "50"))  # of the long one
RATE = 20  # so low that most of COUNT waits however long a busy machine takes to send it: minutes of the limit
COUNT = 4000
RULE: dict[str, object] = {
    "name": "bursts",
    "match": {"protocol": "rocketmq", "topic": "burst-*"},
    "per": "topic",
    "limit": {"messages": f"{RATE}/s"},
    "action": "spool",
    "breaker": {"open_for": "0s"},
}


# Nothing of its client is left of a message that waits: both versions show that theirs do, and pass; what comes after, the newer one alone.
one_client = pytest.mark.parametrize("rocketmq_client", ["5"], indirect=True, scope="session")


@pytest.fixture(scope="module")
def gateway(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for all tests of this file: it stands at the broker's advertised address, and there is only one."""
    settings = {"memory": {"target": "1MiB"}, "drain": {"timeout": "5s"}}
    with Gateway(tmp_path_factory.mktemp("gateway"), rocketmq.listeners, [RULE], settings) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def topics(rocketmq: RocketMQ) -> None:
    rocketmq.create_topics(*(f"burst-{use}-{version}:1" for use in ("alone", "mixed", "stop", "random", "often") for version in ("5", "4")))


def waiting(gateway: Gateway, topic: str) -> int:
    return sum(int(each["messages"]) for each in gateway.get("/v1/spool")["items"] if each["topic"] == topic)


def lift(gateway: Gateway, topic: str) -> None:
    """Take the limit off, live; returns when nothing waits any more."""
    assert gateway.put(limit_path("rocketmq", topic), {"mode": "off"}).status == 200
    wait_until(lambda: waiting(gateway, topic) == 0, within=60, what="all is through")


def stored_in_the_end(rocketmq: RocketMQ, topic: str, least: float) -> int:
    """How many the broker has, once all that a killed gateway had written is stored: `least` and more, the same twice."""
    seen: list[int] = []

    def steady() -> bool:
        seen.append(rocketmq.stored(topic)[topic])
        return seen[-1] >= least and seen[-2:] == [seen[-1]] * 2

    wait_until(steady, within=60, what=f"{least:g} messages at least", every=1)
    return seen[-1]


def name(use: str, client: RocketMQClient) -> str:
    return f"burst-{use}-{client.version}"


def test_one_way_sends_wait_and_pass_at_the_limit_when_their_client_is_gone(
    rocketmq: RocketMQ, rocketmq_client: RocketMQClient, gateway: Gateway
) -> None:
    """Minutes of the limit in three seconds. The client, which drops what it has not written when it ends, has ended long before. Then the
    limit is taken off, live."""
    topic = name("alone", rocketmq_client)
    (line,) = rocketmq_client.produce("run", {"topic": topic, "mode": "oneway", "count": COUNT, "rate": 1500}).result()
    assert (line["ok"], line["codes"]) == (COUNT, {})
    wait_until(lambda: gateway.messages_by_fate("rocketmq", topic)["received"] == COUNT, within=30, what="all has come")
    assert gateway.messages_by_fate("rocketmq", topic)["waiting"] > COUNT / 4
    assert waiting(gateway, topic) > 0
    assert any((gateway.directory / "state" / "spool").rglob("[0-9]*")), "on disk, as it is more than `memory.target`"
    lift(gateway, topic)
    wait_until(lambda: rocketmq.stored(topic) == {topic: COUNT}, within=60, what="all is stored")
    (read,) = rocketmq_client.consume(f"readers-{topic}", topic, expected=COUNT, orderly=True).result()
    # Sorted: the broker's threads swap one-way sends that come close together, directly, too (`test_spooled_sends.py` has their order).
    assert sorted(read["consumed"]) == sorted(f"run-{topic}-0-{sequence}" for sequence in range(COUNT))
    assert gateway.messages_by_fate("rocketmq", topic)["refused"] == 0


def test_other_sends_of_the_topic_are_refused_in_words_and_none_is_lost(
    rocketmq: RocketMQ, rocketmq_client: RocketMQClient, gateway: Gateway
) -> None:
    topic = name("mixed", rocketmq_client)
    silent, asking = rocketmq_client.produce(
        "run",
        {"topic": topic, "mode": "oneway", "count": COUNT // 4, "rate": 1000},
        {"topic": topic, "mode": "sync", "seconds": 2, "rate": 100},
    ).result()
    assert silent["ok"] == COUNT // 4
    assert set(asking["codes"]) <= {"215"}
    lift(gateway, topic)
    passed = COUNT // 4 + asking["ok"]
    wait_until(lambda: rocketmq.stored(topic) == {topic: passed}, within=60, what="all that was not refused is stored")


def kill_at_random(rocketmq: RocketMQ, client: RocketMQClient, gateway: Gateway, use: str, random: Random, rounds: int) -> None:
    """Send, kill at any moment, start again: of each connection the broker has what was sent first, and each message of it once."""
    topic = name(use, client)
    forwarded = 0.0

    def come() -> float:
        return gateway.messages_by_fate("rocketmq", topic)["forwarded"]

    for turn in range(rounds):
        with socket.create_connection((rocketmq.advertised, rocketmq.port), timeout=HANG_S) as producer:
            bodies = [
                f"kill-{topic}-{turn}-{number}.{'x' * random.choice((0, 1_000, 4_000))}" for number in range(random.randrange(50, 500))
            ]
            frames = [send(topic, body.encode(), opaque=4 * at, one_way=True) for at, body in enumerate(bodies)]
            producer.sendall(b"".join(frames))  # an `opaque` of fours: all go to queue 0
            wait_until(lambda: come() > 0, within=30, what="some have gone on")
            time.sleep(random.random())  # any moment will do: nothing is waited for
            forwarded += come()
            gateway.kill()
            left = any(path.is_file() and path.name != "lock" for path in (gateway.directory / "state" / "spool").rglob("*"))
        gateway.start()
        if left:
            wait_until(lambda: '"event": "spool_left_behind"' in gateway.log(), within=30, what="it says what it found")
        assert (waiting(gateway, topic), gateway.get("/v1/spool")["spool"]["used_bytes"]) == (0, 0)
    stored = stored_in_the_end(rocketmq, topic, forwarded)
    (read,) = client.consume(f"readers-{topic}", topic, expected=stored, orderly=True).result()
    assert len(read["consumed"]) == len(set(read["consumed"])) == stored
    turns: dict[str, set[int]] = {}
    for each in read["consumed"]:
        turn_of, _, number = each.rpartition("-")
        turns.setdefault(turn_of, set()).add(int(number))
    assert all(numbers == set(range(len(numbers))) for numbers in turns.values()), "one is lost in between"
    assert len(turns) == rounds, "each time some had gone on"


@one_client
def test_a_gateway_that_is_killed_at_any_moment_has_forwarded_what_was_sent_first_and_each_once(
    rocketmq: RocketMQ, rocketmq_client: RocketMQClient, gateway: Gateway
) -> None:
    kill_at_random(rocketmq, rocketmq_client, gateway, "random", Random(3), 3)


@one_client
@pytest.mark.long
def test_a_gateway_that_is_killed_at_many_moments_has_forwarded_what_was_sent_first_and_each_once(
    rocketmq: RocketMQ, rocketmq_client: RocketMQClient, gateway: Gateway
) -> None:
    kill_at_random(rocketmq, rocketmq_client, gateway, "often", Random(4), KILLS)


def test_a_rule_that_names_rocketmq_is_told_what_waits(gateway: Gateway, tmp_path: Path) -> None:
    done = gateway.cli("check", "-c", str(gateway.config))
    assert "of RocketMQ only one-way sends are spooled" in done.stdout + done.stderr


@one_client
def test_a_stop_in_good_order_lets_pass_what_waits(rocketmq: RocketMQ, rocketmq_client: RocketMQClient, gateway: Gateway) -> None:
    topic = name("stop", rocketmq_client)
    rocketmq_client.produce("run", {"topic": topic, "mode": "oneway", "count": COUNT, "rate": 1500}).result()
    wait_until(lambda: gateway.messages_by_fate("rocketmq", topic)["received"] == COUNT, within=30, what="all has come")
    assert waiting(gateway, topic) > 0
    assert gateway.stop() == 0
    wait_until(lambda: rocketmq.stored(topic) == {topic: COUNT}, within=60, what="all is stored")
    gateway.start()
