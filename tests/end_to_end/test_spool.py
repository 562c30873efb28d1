"""`action: spool` with a real RabbitMQ: what is over the limit waits on disk, comes in order at the limit, and is answered by the broker.

The promises of `docs/spooling.md` that need a broker or a process; order, changes of limits and sizes are asked of sessions and queues
(tests/gateway/session/test_spool*.py, tests/gateway/waiting).
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pika
import pytest
from pamqp import commands

from support.amqp import frames as amqp
from support.amqp.numbered_consumer import take_all
from support.amqp.numbered_publisher import NumberedPublisher
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.clients.raw_amqp import RawClient, opening
from support.gateways import Gateway, StartGateway, amqp_listener, limit_path
from support.processes import HANG_S, LOOPBACK, wait_until

pytestmark = pytest.mark.rabbitmq

RATE = 500
KIB = 1024
MIB = 1 << 20
COMMIT_OK = b"\x00\x5a\x00\x15"


def spooled(rate: int = RATE, **more: object) -> dict[str, object]:
    return {
        "name": "bursts",
        "match": {"protocol": "amqp", "routing_key": "burst*"},
        "limit": {"messages": f"{rate}/s"},
        "action": "spool",
        **more,
    }


def connections(gateway: Gateway) -> list[dict[str, Any]]:
    return [each for each in gateway.get("/v1/connections")["items"] if each["messages_forwarded"] or each["held_messages"]]


def held(gateway: Gateway) -> int:
    return sum(int(each["held_messages"]) for each in connections(gateway))


def taken(gateway: Gateway) -> int:
    """Messages that were read, whether they wait or have gone on."""
    return sum(int(each["held_messages"]) + int(each["messages_forwarded"]) for each in connections(gateway))


def lift(gateway: Gateway, queue: Queue) -> None:
    """Take the limit off, live."""
    assert gateway.put(limit_path("amqp", "/", "amq.default", queue.name), {"mode": "off"}).status == 200


def numbers(queue: Queue, expected: int | None = None) -> list[int]:
    """Of all messages in the queue, taken out. As soon as those that are `expected` have come, and nothing more."""
    return [message.number for message in take_all(queue, expected)]


def files(gateway: Gateway) -> list[Path]:
    return [path for path in (gateway.directory / "state" / "spool").rglob("*") if path.is_file() and path.name != "lock"]


@pytest.fixture(scope="module")
def shared_gateway(rabbitmq: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("gateway"), [amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [spooled()]) as made:
        yield made


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    """For tests with queues of their own that stop, kill or configure none: as one of its own, with nothing left of the test before."""
    wait_until(lambda: not shared_gateway.get("/v1/connections")["items"], within=30, what="the clients of the test before are gone")
    assert files(shared_gateway) == []
    return shared_gateway


def test_a_burst_waits_on_disk_comes_in_order_at_the_limit_and_leaves_nothing(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    """30,000 messages of 1 KiB: a minute of the limit, in a few MiB of memory."""
    count = 30_000
    with Queue(rabbitmq.url, "burst-plain") as queue, NumberedPublisher(gateway.port("rabbit")) as publisher:
        before = gateway.resident_bytes()
        publisher.begin(count, [queue.name])
        publisher.wait_until_sent(count)
        wait_until(lambda: bool(files(gateway)), within=30, what="something is on disk")
        began = time.monotonic()
        [connection] = connections(gateway)
        assert connection["spooled_bytes"] > 0.5 * count * KIB
        assert connection["held_bytes"] < 2 * MIB
        assert gateway.resident_bytes() - before < 16 * MIB
        forwarded = connection["messages_forwarded"]
        wait_until(
            lambda: connections(gateway)[0]["messages_forwarded"] > forwarded + 4 * RATE, within=60, what="four seconds' worth is through"
        )
        elapsed = time.monotonic() - began
        assert RATE * (elapsed + 1) + 1 >= 4 * RATE, "faster than the limit: a burst and its rate"
        lift(gateway, queue)
        wait_until(lambda: held(gateway) == 0, within=60, what="the rest is through")
        assert numbers(queue, count) == list(range(count))
        wait_until(lambda: files(gateway) == [], within=30, what="the files are deleted")


def test_a_confirm_is_the_brokers_own_and_comes_when_the_message_was_forwarded(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    count = 7 * RATE
    with Queue(rabbitmq.url, "burst-confirms") as queue, NumberedPublisher(gateway.port("rabbit"), confirms=True) as publisher:
        began = time.monotonic()
        publisher.begin(count, [queue.name])
        publisher.wait_until_sent(count)
        wait_until(lambda: len(publisher.acked) == count, within=60, what="all are acked")
        assert publisher.nacked == set()
        for after in (1, 3, 5):
            acked = sum(at - began <= after for at in publisher.acked.values())
            assert acked <= RATE * (1 + after) + 1, "more acks than messages can have been forwarded"
        assert max(publisher.acked.values()) - began > 5
        assert numbers(queue, count) == list(range(count))


def test_large_messages_are_spooled_too(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    """Of 700 KiB each: in frames of 128 KiB, which come in pieces."""
    with Queue(rabbitmq.url, "burst-large") as queue, NumberedPublisher(gateway.port("rabbit")) as publisher:
        assert gateway.put(limit_path("amqp", "/", "amq.default", queue.name), {"messages": "1/s"}).status == 200
        publisher.begin(100, [queue.name], 700 * KIB)
        publisher.wait_until_sent(100)
        wait_until(lambda: sum(path.stat().st_size for path in files(gateway)) > 50 * MIB, within=30, what="they are on disk")
        lift(gateway, queue)
        wait_until(lambda: held(gateway) == 0, within=60, what="all are through")
        found = take_all(queue, 100)
        assert [message.number for message in found] == list(range(100))
        assert {message.size for message in found} == {700 * KIB}


def test_a_close_is_answered_when_all_before_it_is_through(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    count = 5 * RATE
    with Queue(rabbitmq.url, "burst-close") as queue, NumberedPublisher(gateway.port("rabbit")) as publisher:
        assert gateway.put(limit_path("amqp", "/", "amq.default", queue.name), {"messages": "1/s"}).status == 200
        publisher.begin(count, [queue.name])
        publisher.wait_until_sent(count)
        publisher.close()
        assert not publisher.over.wait(1.0)
        lift(gateway, queue)
        assert publisher.over.wait(HANG_S)
        assert publisher.close_answered
        wait_until(lambda: queue.depth() == count, within=30, what="the broker's queue has what its channel was sent")


def test_a_broker_that_goes_away_is_told_and_nothing_was_acked_that_it_did_not_have(tmp_path: Path, start_gateway: StartGateway) -> None:
    with RabbitMQ(tmp_path / "broker") as broker:
        gateway = start_gateway([amqp_listener(f"127.0.0.1:{broker.port}")], [spooled()])
        with NumberedPublisher(gateway.port("rabbit"), confirms=True) as publisher:
            publisher.begin(25_000, ["burst-lost"])
            publisher.wait_until_sent(25_000)
            wait_until(lambda: len(publisher.acked) > RATE, within=30, what="some are acked")
            broker.kill()
            assert publisher.over.wait(HANG_S), "the client is not told"
            assert "CONNECTION_FORCED" in publisher.closed or "broker" in publisher.closed
            assert len(publisher.acked) < 15_000
        wait_until(lambda: files(gateway) == [], within=30, what="the files of what was given up are deleted")
        fates = gateway.messages_by_fate("amqp", "%2F/amq.default/burst-lost")
        assert fates["abandoned"] > 8_000


def told_of_returns(port: int, queue: str, count: int) -> set[str]:
    """The reply texts of what is returned of so many mandatory publishes at once."""
    client = RawClient(port)
    client.say(opening(1) + amqp.method(1, commands.Confirm.Select()) + amqp.publish(1, queue, mandatory=True) * count)
    while sum(1 for frame in client.told if isinstance(frame.value, commands.Basic.Nack)) == 0:
        assert client.read()
    client.reset()
    return {frame.value.reply_text for frame in client.told if isinstance(frame.value, commands.Basic.Return)}


def test_what_is_too_old_is_nacked_or_dropped_and_counted(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    """2,000 messages at 100/s, none older than 2 s: some three hundred pass on each connection."""
    listeners = [amqp_listener(f"127.0.0.1:{rabbitmq.port}")]
    gateway = start_gateway(listeners, [spooled(100, per="connection", max_age="2s")])
    count = 2_000
    with Queue(rabbitmq.url, "burst-old") as queue:
        began = time.monotonic()
        with NumberedPublisher(gateway.port("rabbit"), confirms=True) as publisher:
            publisher.begin(count, [queue.name])
            wait_until(lambda: len(publisher.acked) + len(publisher.nacked) == count, within=60, what="all are answered")
            assert sorted(publisher.acked) == numbers(queue, len(publisher.acked))
            assert 200 <= len(publisher.acked) <= 101 + 100 * (time.monotonic() - began)
        assert told_of_returns(gateway.port("rabbit"), queue.name, 500) == {
            "RATE_LIMITED - %2F/amq.default/burst-old has waited for longer than max_age, 2s, of rule bursts"
        }
        list(queue.messages())
        began = time.monotonic()
        with NumberedPublisher(gateway.port("rabbit")) as publisher:
            publisher.begin(count, [queue.name])
            publisher.wait_until_sent(count)
            wait_until(lambda: held(gateway) == 0, within=60, what="nothing waits any more")
            passed = numbers(queue, taken(gateway))
            assert passed == sorted(set(passed))
            assert 200 <= len(passed) <= 101 + 100 * (time.monotonic() - began)
        topic = "%2F/amq.default/burst-old"
        wait_until(
            lambda: gateway.messages_by_fate("amqp", topic)["dropped"] == count - len(passed), within=30, what="what was dropped is counted"
        )
        assert gateway.messages_by_fate("amqp", topic)["refused"] > 1_000


def test_a_message_waits_no_longer_than_its_expiration_says(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    """Every other message of 2,000 is of use for 2 s; they wait at 1/s until that is over, and the rest passes at 400/s."""
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [spooled(400, drop_expired=True)])
    count = 2_000
    with Queue(rabbitmq.url, "burst-expiring") as queue, NumberedPublisher(gateway.port("rabbit"), confirms=True) as publisher:
        path = limit_path("amqp", "/", "amq.default", queue.name)
        assert gateway.put(path, {"messages": "1/s"}).status == 200
        publisher.begin(count, [queue.name], expirations=("2000", None))
        wait_until(lambda: taken(gateway) + len(publisher.nacked) == count, within=60, what="all are read")
        time.sleep(2.1)
        assert gateway.request("DELETE", f"{path}?force=1").status < 300
        wait_until(lambda: len(publisher.acked) + len(publisher.nacked) == count, within=60, what="all are answered")
        assert {number % 2 for number in publisher.nacked} == {0}, "only what has an expiration"
        assert len(publisher.nacked) > 900, "all but what had passed by then"
        arrived = [number for number in numbers(queue) if number % 2]  # of the others the broker may have dropped some by now
        assert arrived == list(range(1, count, 2))
        topic = "%2F/amq.default/burst-expiring"
        assert gateway.messages_by_fate("amqp", topic)["refused"] == len(publisher.nacked)
        assert gateway.get("/v1/spool")["spool"]["expired"] == len(publisher.nacked)
        assert f"{len(publisher.nacked):,} messages were given up for their age" in gateway.cli("spool", "list").stderr.replace(
            "\u202f", ","
        )


def waits(gateway: Gateway, queue: Queue) -> dict[str, int]:
    """What `GET /v1/spool` tells of it."""
    items = [each for each in gateway.get("/v1/spool")["items"] if each["topic"] == f"%2F/amq.default/{queue.name}"]
    return {name: int(items[0][name]) if items else 0 for name in ("messages", "disk_messages")}


def limit(gateway: Gateway, queue: Queue, *words: str) -> None:
    """As an operator changes it."""
    gateway.cli("limits", "set", "amqp", "/", "amq.default", queue.name, *words, "--reason", "a test")


def test_a_limit_of_nothing_pauses_and_a_live_drop_gives_up_what_waits(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    """Of a client without confirms it is dropped, of one with confirms nacked; what comes when the limit is back goes its way.

    Messages in memory, other topics of a channel, and `reject`: tests/gateway/session/test_spool_live_limits.py.
    """
    count = 10_000
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [spooled(10)], memory={"target": "1MiB"})
    port = gateway.port("rabbit")
    with (
        Queue(rabbitmq.url, "burst-paused") as queue,
        Queue(rabbitmq.url, "free") as free,
        NumberedPublisher(port) as plain,
        NumberedPublisher(port, confirms=True) as asking,
        NumberedPublisher(port, confirms=True) as other,
    ):
        for publisher in (plain, asking):
            publisher.begin(count, [queue.name])
        wait_until(lambda: taken(gateway) == 2 * count, within=60, what="all is taken")
        limit(gateway, queue, "--messages", "0/s")
        wait_until(lambda: waits(gateway, queue)["messages"] == 2 * count - queue.depth(), within=30, what="all that waits is told")
        assert waits(gateway, queue)["disk_messages"] > 0
        stored = queue.depth()
        other.begin(2_000, [free.name])
        wait_until(lambda: len(other.acked) == 2_000, within=60, what="others go on")
        assert (queue.depth(), waits(gateway, queue)["messages"]) == (stored, 2 * count - stored)
        limit(gateway, queue, "--messages", "0/s", "--action", "drop")
        wait_until(lambda: waits(gateway, queue)["messages"] == held(gateway) == 0, within=60, what="what waits is given up")
        wait_until(lambda: len(asking.acked) + len(asking.nacked) == count, within=30, what="all is answered")
        assert (queue.depth(), files(gateway)) == (stored, [])
        fates = gateway.messages_by_fate("amqp", f"%2F/amq.default/{queue.name}")
        assert (fates["refused"], fates["dropped"]) == (len(asking.nacked), 2 * count - stored - len(asking.nacked))
        gateway.cli("limits", "unset", "amqp", "/", "amq.default", queue.name, "--reason", "a test")
        plain.begin(3, [queue.name])
        wait_until(lambda: queue.depth() == stored + 3, within=30, what="what comes later is stored")


def test_a_transaction_is_committed_when_all_of_it_was_forwarded_and_rolled_back_whole(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    """Three seconds of the limit in each."""
    with Queue(rabbitmq.url, "burst-tx") as queue, pika.BlockingConnection(pika.URLParameters(gateway.amqp_url())) as client:
        channel = client.channel()
        channel.tx_select()
        path = limit_path("amqp", "/", "amq.default", queue.name)
        assert gateway.put(path, {"messages": "1/s"}).status == 200  # or a slow machine would publish no faster than they go on
        for number in range(4 * RATE):
            channel.basic_publish("", queue.name, struct.pack(">Q", number) + bytes(KIB))
        wait_until(lambda: held(gateway) > 3 * RATE, within=30, what="they wait")
        assert queue.depth() == 0
        began = time.monotonic()
        assert gateway.request("DELETE", f"{path}?force=1").status < 300
        channel.tx_commit()
        assert time.monotonic() - began > 1.9, "before its messages can have gone on"
        assert numbers(queue, 4 * RATE) == list(range(4 * RATE))
        for number in range(3 * RATE):
            channel.basic_publish("", queue.name, struct.pack(">Q", number))
        channel.tx_rollback()
        assert held(gateway) == 0
        assert queue.depth() == 0


def test_a_mandatory_message_is_returned_by_the_broker_when_it_was_forwarded(gateway: Gateway) -> None:
    """Nobody has the queue: three seconds of the limit come back, each before its ack."""
    count = 4 * RATE
    with pika.BlockingConnection(pika.URLParameters(gateway.amqp_url())) as client:
        said: list[tuple[str, int]] = []
        channel = client.channel()
        channel.add_on_return_callback(lambda _, method, properties, body: said.append((method.reply_text, int(properties.message_id))))
        path = limit_path("amqp", "/", "amq.default", "burst-nobody")
        assert gateway.put(path, {"messages": "1/s"}).status == 200  # or a slow machine would publish no faster than they go on
        for number in range(count):
            channel.basic_publish("", "burst-nobody", bytes(KIB), pika.BasicProperties(message_id=str(number)), mandatory=True)

        def returned() -> bool:
            client.process_data_events()
            return len(said) == count

        client.process_data_events()
        assert len(said) < count
        assert gateway.request("DELETE", f"{path}?force=1").status < 300
        wait_until(returned, within=60, what="all are returned")
        assert said == [("NO_ROUTE", number) for number in range(count)]


def kill_at_random(gateway: Gateway, random: Random, queues: dict[str, Queue], rounds: int) -> None:
    """Publish in each way, kill at any moment, start again: what was answered is there; of each channel the broker has what was sent first,
    each message once; of transactions all or nothing."""
    of_one = 10  # messages of a transaction
    for _ in range(rounds):
        count = random.randrange(500, 4_000)
        size = random.choice((64, KIB, 4 * KIB))
        with (
            NumberedPublisher(gateway.port("rabbit"), confirms=True) as confirmed,
            NumberedPublisher(gateway.port("rabbit")) as plain,
            socket.create_connection((LOOPBACK, gateway.port("rabbit")), timeout=HANG_S) as client,
        ):
            confirmed.begin(count, [queues["confirmed"].name], size)
            plain.begin(count, [queues["plain"].name], size)
            words = [amqp.greeting(channels=(1,), password="guest", heartbeat=0), amqp.method(1, commands.Tx.Select())]
            for number in range(count):
                words.append(amqp.publish(1, queues["tx"].name, struct.pack(">Q", number) + bytes(size)))
                if number % of_one == of_one - 1:
                    words.append(amqp.method(1, commands.Tx.Commit()))
            client.sendall(b"".join(words))
            wait_until(lambda: len(confirmed.acked) > 0 and queues["plain"].depth() > 0, within=60, what="some have gone on")
            time.sleep(random.random())  # any moment will do: nothing is waited for
            gateway.kill()
            left = bool(files(gateway))
            assert confirmed.over.wait(60)
            said = b""
            with suppress(ConnectionError):
                while data := client.recv(1 << 16):
                    said += data
            acked = set(confirmed.acked)
        gateway.start()
        with ThreadPoolExecutor() as pool:
            found = dict(zip(queues, pool.map(numbers, queues.values()), strict=True))
        assert all(each == list(range(len(each))) for each in found.values()), "one is lost in between, comes twice or out of order"
        assert acked <= set(found["confirmed"]), "acked, and not there"
        assert len(found["tx"]) % of_one == 0, "a transaction is torn"
        assert len(found["tx"]) >= of_one * said.count(COMMIT_OK), "committed, and not there"
        assert files(gateway) == []
        if left:
            wait_until(lambda: '"event": "spool_left_behind"' in gateway.log(), within=30, what="it says what it found")


@pytest.mark.parametrize("rounds", [3, pytest.param(100, marks=pytest.mark.long)])
def test_a_gateway_that_is_killed_at_any_moment_has_answered_only_what_the_broker_has(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, rounds: int
) -> None:
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [spooled(1_000)])
    with (
        Queue(rabbitmq.url, "burst-random-confirmed") as confirmed,
        Queue(rabbitmq.url, "burst-random-plain") as plain,
        Queue(rabbitmq.url, "burst-random-tx") as transactions,
    ):
        kill_at_random(gateway, Random(rounds), {"confirmed": confirmed, "plain": plain, "tx": transactions}, rounds)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(f"this test mounts a tmpfs: run it as root ({done.stderr.strip()})")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_stops_the_sender_and_nobody_else(rabbitmq: RabbitMQ, start_gateway: StartGateway, small_disk: Path) -> None:
    listeners = [amqp_listener(f"127.0.0.1:{rabbitmq.port}")]
    gateway = start_gateway(listeners, [spooled()], spool={"directory": str(small_disk / "spool")})
    count = 20_000
    with Queue(rabbitmq.url, "burst-full") as queue, Queue(rabbitmq.url, "free-full") as free:
        before = gateway.resident_bytes()
        with NumberedPublisher(gateway.port("rabbit")) as publisher, NumberedPublisher(gateway.port("rabbit"), confirms=True) as other:
            publisher.begin(count, [queue.name])
            wait_until(lambda: any(each["bottleneck"] == "spool" for each in connections(gateway)), within=30, what="the spool is full")
            other.begin(2_000, [free.name])
            wait_until(lambda: len(other.acked) == 2_000, within=30, what="another client's messages pass")
            assert gateway.resident_bytes() - before < 16 * MIB
            lift(gateway, queue)
            publisher.wait_until_sent(count)
            wait_until(lambda: queue.depth() == count, within=60, what="all is through")
        assert numbers(queue, count) == list(range(count))


def test_a_disk_that_becomes_read_only_stops_the_sender_until_it_is_not(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, small_disk: Path
) -> None:
    """As a kernel makes a file system read-only that has failed: here a mount over it is. What waits goes on meanwhile: it can be read."""
    gateway = start_gateway(
        [amqp_listener(f"127.0.0.1:{rabbitmq.port}")],
        [spooled()],
        spool={"directory": str(small_disk / "spool")},
        memory={"target": "1MiB"},
    )

    def mount(*words: str) -> None:
        subprocess.run(["mount", *words, str(small_disk)], check=True)

    count = 20_000
    with Queue(rabbitmq.url, "burst-read-only") as queue, NumberedPublisher(gateway.port("rabbit")) as publisher:
        publisher.begin(3_000, [queue.name])
        publisher.wait_until_sent(3_000)
        wait_until(lambda: taken(gateway) == 3_000 and any(small_disk.rglob("[0-9]*")), within=30, what="something is on disk")
        mount("--bind", str(small_disk))
        mount("-o", "remount,bind,ro")
        try:
            publisher.begin(count - 3_000, [queue.name])
            wait_until(lambda: connections(gateway)[0]["bottleneck"] == "spool", within=30, what="the client is not read")
            assert "Read-only file system" in gateway.get("/v1/spool")["spool"]["trouble"]
            wait_until(lambda: queue.depth() > 3_000, within=60, what="what was on disk, and more, has gone on")
        finally:
            subprocess.run(["umount", "--lazy", str(small_disk)], check=True)
        lift(gateway, queue)
        publisher.wait_until_sent(count)
        wait_until(lambda: queue.depth() == count, within=60, what="all is through")
        assert numbers(queue, count) == list(range(count))
        assert gateway.get("/v1/spool")["spool"]["trouble"] is None


def test_a_stop_in_good_order_forwards_what_waits_or_says_how_much_is_lost(rabbitmq: RabbitMQ, start_gateway: StartGateway) -> None:
    gateway = start_gateway([amqp_listener(f"127.0.0.1:{rabbitmq.port}")], [spooled()], drain={"timeout": "5s"})
    with Queue(rabbitmq.url, "burst-stop") as queue:
        with NumberedPublisher(gateway.port("rabbit")) as publisher:
            publisher.begin(8_000, [queue.name])
            publisher.wait_until_sent(8_000)
            wait_until(lambda: taken(gateway) == 8_000, within=30, what="all is taken: what is not is the client's when it is told")
            os.kill(gateway.process.pid, signal.SIGTERM)
            assert publisher.over.wait(HANG_S)
        wait_until(lambda: queue.depth() == 8_000, within=30, what="near its end the stop lets pass what waits")
        assert numbers(queue, 8_000) == list(range(8_000))
        assert files(gateway) == []
