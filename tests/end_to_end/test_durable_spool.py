"""`durable: true` with a real RabbitMQ: what waited when the gateway, the broker or the connection ended is replayed, in order and marked.

The promises of `docs/spooling.md`.
"""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pamqp import commands, header

from support.amqp import frames as amqp
from support.amqp.numbered_consumer import take_all
from support.amqp.numbered_publisher import NumberedPublisher
from support.brokers.queues import Queue
from support.brokers.rabbitmq import RabbitMQ
from support.gateways import Gateway, StartGateway, amqp_listener, limit_path
from support.processes import LOOPBACK, free_ports, wait_until

pytestmark = pytest.mark.rabbitmq

RATE = 500


def durable(rate: int = RATE, **more: object) -> dict[str, object]:
    return {
        "name": "bursts",
        "match": {"protocol": "amqp", "routing_key": "burst*"},
        "limit": {"messages": f"{rate}/s"},
        "action": "spool",
        "durable": True,
        **more,
    }


def listener(port: int, folder: Path) -> dict[str, object]:
    password = folder / "password"
    password.write_text("guest\n")
    return amqp_listener(f"{LOOPBACK}:{port}") | {"own_login": {"user": "guest", "password_file": str(password)}}


@pytest.fixture
def gateway(rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path) -> Gateway:
    return start_gateway([listener(rabbitmq.port, tmp_path)], [durable()])


def files(gateway: Gateway) -> list[Path]:
    """Of durable messages."""
    return [path for path in (gateway.directory / "state" / "spool").rglob("*.durable") if path.is_file()]


def committed(gateway: Gateway) -> int:
    """Bytes of them."""
    return sum(path.stat().st_size for path in files(gateway))


def held(gateway: Gateway) -> int:
    return sum(int(each["held_messages"]) for each in gateway.get("/v1/connections")["items"])


def lift(gateway: Gateway, queue: Queue) -> None:
    """Take the limit off, live. It stays off after a restart."""
    assert gateway.put(limit_path("amqp", "/", "amq.default", queue.name), {"mode": "off"}).status == 200


def arrived(queue: Queue, expected: int | None = None) -> list[tuple[int, bool]]:
    """Number, and whether it is marked as a repetition, of each message, as soon as those `expected` have come and nothing more."""
    return [(message.number, message.replayed) for message in take_all(queue, expected)]


def check(found: list[tuple[int, bool]], count: int) -> None:
    """All have come; in order; and what came again says so."""
    marked = [number for number, again in found if again]
    plain = [number for number, again in found if not again]
    assert plain == sorted(set(plain)), "the first deliveries are out of order, or come twice"
    assert marked == sorted(set(marked)), "the replay is out of order, or came twice"
    assert set(plain) | set(marked) == set(range(count)), f"lost: {sorted(set(range(count)) - set(plain) - set(marked))[:10]}"
    assert marked, "nothing was replayed"


def figures(gateway: Gateway) -> dict[str, Any]:
    shown: dict[str, Any] = gateway.get("/v1/spool")["spool"]
    return shown


def wait_until_committed(gateway: Gateway, count: int) -> None:
    """Until a crash loses none of `count` messages."""

    def done() -> bool:
        items = gateway.get("/v1/connections")["items"]
        taken = sum(int(each["held_messages"]) + int(each["messages_forwarded"]) for each in items)
        return taken >= count and figures(gateway)["uncommitted_bytes"] == 0

    wait_until(done, within=60, what="all is committed")


def wait_until_replayed(gateway: Gateway) -> None:
    wait_until(lambda: files(gateway) == [] and figures(gateway)["replaying_bytes"] == 0, within=240, what="all is replayed")


def test_what_waited_when_the_gateway_was_killed_is_replayed_in_order_and_marked(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    count = 20_000
    with Queue(rabbitmq.url, "burst-killed") as queue:
        with NumberedPublisher(gateway.port("rabbit")) as publisher:
            publisher.begin(count, [queue.name])
            publisher.wait_until_sent(count)
            wait_until_committed(gateway, count)
            gateway.kill()
        assert committed(gateway) > 15_000 * 1024
        gateway.start()
        assert '"recovered_files"' in gateway.log()
        lift(gateway, queue)
        wait_until_replayed(gateway)
        found = arrived(queue, count)
        check(found, count)
        again = len([1 for _, mark in found if mark]) + len([1 for _, mark in found if not mark]) - count
        assert again < 12 * RATE, "more is repeated than was forwarded in the last moments"
        assert figures(gateway)["set_aside_messages"] == 0


def replayed(gateway: Gateway) -> int:
    return int(figures(gateway)["replayed_messages"])


@pytest.mark.parametrize("rate", [20, 5_000])
def test_a_gateway_that_starts_with_another_limit_in_its_file_drains_what_waited_at_that_one(
    rabbitmq: RabbitMQ, gateway: Gateway, rate: int
) -> None:
    """The old limit is 500/s: below that by far, or above it by far."""
    count = 10_000
    with Queue(rabbitmq.url, f"burst-other-limit-{rate}") as queue:
        with NumberedPublisher(gateway.port("rabbit")) as publisher:
            publisher.begin(count, [queue.name])
            publisher.wait_until_sent(count)
            wait_until_committed(gateway, count)
            gateway.kill()
        gateway.write_rules([durable(rate)])
        began = time.monotonic()
        gateway.start()
        wait_until(lambda: replayed(gateway) >= min(3 * rate, 8_000), within=60, what="its burst is over, and some more are through")
        passed = replayed(gateway)
        took = time.monotonic() - began
        assert passed <= rate * (took + 1.2), "not more than its burst, a second's, and its rate since the start"
        assert rate < RATE or passed > 2 * RATE * (took - 1), "at the old limit it would take three times as long"
        lift(gateway, queue)
        wait_until_replayed(gateway)
        check(arrived(queue, count), count)


def test_what_is_of_no_use_any_more_after_a_crash_is_not_replayed(rabbitmq: RabbitMQ, tmp_path: Path, start_gateway: StartGateway) -> None:
    """Every other message is of use for 2 s, and nothing starts again within that time."""
    gateway = start_gateway([listener(rabbitmq.port, tmp_path)], [durable(200, drop_expired=True)])
    count = 1_000
    with Queue(rabbitmq.url, "burst-expired") as queue:
        with NumberedPublisher(gateway.port("rabbit")) as publisher:
            publisher.begin(count, [queue.name], expirations=("2000", None))
            publisher.wait_until_sent(count)
            wait_until_committed(gateway, count)
            sent = time.monotonic()
            gateway.kill()
        wait_until(lambda: time.monotonic() - sent > 2.5, within=10, what="half of them are too old")
        gateway.start()
        wait_until_replayed(gateway)
        found = arrived(queue)
        assert {number for number, _ in found if number % 2} == set(range(1, count, 2))
        assert [number for number, again in found if again and number % 2 == 0] == []
        assert figures(gateway)["expired"] > count // 4


def test_what_waited_when_the_broker_went_away_is_replayed_once_it_is_back(tmp_path: Path, start_gateway: StartGateway) -> None:
    count = 5_000
    with RabbitMQ(tmp_path / "broker") as broker:
        gateway = start_gateway([listener(broker.port, tmp_path)], [durable(100)])
        with NumberedPublisher(gateway.port("rabbit")) as publisher:
            publisher.begin(count, ["burst-broker"])
            publisher.wait_until_sent(count)
            wait_until_committed(gateway, count)
            broker.kill()
            assert publisher.over.wait(60), "the client is not told"
        wait_until(lambda: bool(figures(gateway)["replay_trouble"]), within=30, what="the replay waits for the broker")
        assert any("cannot be replayed" in each for each in gateway.get("/v1/status")["warnings"])
        broker.start_node()
        with Queue(broker.url, "burst-broker") as queue:
            assert figures(gateway)["set_aside_messages"] == 0
            lift(gateway, queue)
            wait_until_replayed(gateway)
            found = arrived(queue)
            assert all(again for _, again in found)
            numbers = [number for number, _ in found]
            assert numbers == list(range(count - len(numbers), count)), "lost, or out of order"
            assert len(numbers) > count - 4 * 100 * 10


def test_what_waits_on_a_connection_that_is_closed_is_replayed(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    count = 10_000
    with Queue(rabbitmq.url, "burst-closed") as queue:
        with NumberedPublisher(gateway.port("rabbit")) as publisher:
            publisher.begin(count, [queue.name])
            publisher.wait_until_sent(count)
            wait_until_committed(gateway, count)
            [connection] = gateway.get("/v1/connections")["items"]
            gateway.cli("connections", "close", str(connection["id"]), "--yes")
        lift(gateway, queue)
        wait_until_replayed(gateway)
        check(arrived(queue, count), count)


def test_a_channel_with_confirms_is_not_replayed(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    with Queue(rabbitmq.url, "burst-confirmed") as queue:
        with NumberedPublisher(gateway.port("rabbit"), confirms=True) as publisher:
            publisher.begin(10_000, [queue.name])
            wait_until(lambda: held(gateway) > 5_000, within=30, what="much waits")
            assert files(gateway) == []
            gateway.kill()
        gateway.start()
        assert figures(gateway)["replaying_bytes"] == 0
        assert not any(again for _, again in arrived(queue))


def test_nothing_is_repeated_and_no_file_stays_where_all_has_gone_its_way(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    count = 3 * RATE
    with Queue(rabbitmq.url, "burst-calm") as queue:
        with NumberedPublisher(gateway.port("rabbit")) as publisher:
            publisher.begin(count, [queue.name])
            publisher.wait_until_sent(count)
            publisher.close()
            assert publisher.over.wait(60)
            assert publisher.close_answered
        wait_until(lambda: files(gateway) == [], within=20, what="the files are deleted")
        assert arrived(queue, count) == [(number, False) for number in range(count)]
        shown = figures(gateway)
        assert (shown["replayed_messages"], shown["used_bytes"], shown["uncommitted_bytes"]) == (0, 0, 0)
        assert shown["commits"] > 0


def test_what_the_broker_does_not_take_is_set_aside_and_what_is_behind_it_goes_on(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    """An exchange that is not there, and a mandatory message without a queue."""
    with Queue(rabbitmq.url, "burst-aside") as queue:
        with NumberedPublisher(gateway.port("rabbit")) as publisher:
            publisher.begin(20 * RATE, [queue.name])
            publisher.wait_until_sent(20 * RATE)
            publisher.say(amqp.publish(1, "burst-nowhere", b"without an exchange", exchange="gone"))
            publisher.say(amqp.publish(1, "burst-unroutable", b"without a queue", mandatory=True))
            publisher.begin(RATE, [queue.name])
            publisher.wait_until_sent(21 * RATE)
            wait_until_committed(gateway, 21 * RATE + 2)
            gateway.kill()
        gateway.start()
        lift(gateway, queue)
        wait_until_replayed(gateway)
        shown = figures(gateway)
        assert {number for number, _ in arrived(queue, 21 * RATE)} == set(range(21 * RATE))
        folder = gateway.directory / "state" / "spool" / "set-aside"
        lines = [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
        assert [line["reason"][:13] for line in lines] == ["404 NOT_FOUND", "returned: 312"], lines
        assert shown["set_aside_messages"] == 2
        assert "set aside" in gateway.cli("spool", "list").stderr


def test_a_message_in_another_users_name_is_set_aside_and_others_go_on(rabbitmq: RabbitMQ, gateway: Gateway) -> None:
    """RabbitMQ takes the property user-id from that user alone: the replay, which is another one, gets 406, and its channel is closed."""
    rabbitmq.control("add_user", "alice", "alice")
    rabbitmq.control("set_permissions", "alice", ".*", ".*", ".*")
    named = header.ContentHeader(0, 8, commands.Basic.Properties(user_id="alice"))
    with Queue(rabbitmq.url, "burst-user") as queue:
        with NumberedPublisher(gateway.port("rabbit"), user="alice") as publisher:
            publisher.begin(10 * RATE, [queue.name])
            publisher.wait_until_sent(10 * RATE)
            publish = amqp.method(1, commands.Basic.Publish(routing_key=queue.name)) + amqp.method(1, named)
            publisher.say(publish + amqp.raw_frame(3, 1, struct.pack(">Q", 1 << 40)))
            publisher.begin(RATE, [queue.name])
            publisher.wait_until_sent(11 * RATE)
            wait_until_committed(gateway, 11 * RATE + 1)
            gateway.kill()
        gateway.start()
        lift(gateway, queue)
        wait_until_replayed(gateway)
        assert {number for number, _ in arrived(queue, 11 * RATE)} == set(range(11 * RATE))
        (file,) = (gateway.directory / "state" / "spool" / "set-aside").iterdir()
        (line,) = [json.loads(each) for each in file.read_text().splitlines()]
        assert line["reason"].startswith("406 PRECONDITION_FAILED")
        assert "user" in line["reason"]


def test_what_the_old_process_leaves_at_a_takeover_is_replayed_by_the_new_one(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    takeover = {"name": "end-to-end", "state_directory": "state", "takeover": "run/takeover.sock"}
    gateway = start_gateway(
        [{**listener(rabbitmq.port, tmp_path), "bind": f"{LOOPBACK}:{port}"}], [durable(50)], gateway=takeover, drain={"timeout": "1s"}
    )
    count = 200_000
    with Queue(rabbitmq.url, "burst-takeover") as queue:
        with NumberedPublisher(port) as publisher:
            publisher.begin(count, [queue.name], 64)
            publisher.wait_until_sent(count)
            wait_until_committed(gateway, count)
            gateway.replace()
        lift(gateway, queue)
        wait_until(lambda: figures(gateway)["replayed_messages"] > 0, within=60, what="the new process replays")
        wait_until_replayed(gateway)
        check(arrived(queue, count), count)


def test_a_stop_in_good_order_leaves_to_the_next_start_what_did_not_get_through(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway = start_gateway(
        [listener(rabbitmq.port, tmp_path)],
        [durable(50)],
        drain={"timeout": "1s"},  # and what is left then goes at once, as fast as the broker takes it
    )
    count = 200_000
    with Queue(rabbitmq.url, "burst-stop") as queue:
        with NumberedPublisher(gateway.port("rabbit")) as publisher:
            publisher.begin(count, [queue.name], 64)
            publisher.wait_until_sent(count)
            wait_until_committed(gateway, count)
            gateway.stop()
        assert files(gateway), "all went through: the test needs more messages"
        gateway.start()
        lift(gateway, queue)
        wait_until_replayed(gateway)
        check(arrived(queue, count), count)


def test_several_workers_replay_each_message_once(rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path) -> None:
    gateway = start_gateway(
        [listener(rabbitmq.port, tmp_path)], [durable()], gateway={"name": "several", "state_directory": "state", "workers": 2}
    )
    count = 10_000
    with Queue(rabbitmq.url, "burst-workers") as queue:
        with NumberedPublisher(gateway.port("rabbit")) as publisher:
            publisher.begin(count, [queue.name])
            publisher.wait_until_sent(count)
            wait_until_committed(gateway, count)
            gateway.kill()
        wait_until(lambda: not gateway.alive(), within=30, what="it is gone")
        gateway.start()
        lift(gateway, queue)
        wait_until_replayed(gateway)
        check(arrived(queue, count), count)


def kill_at_random(gateway: Gateway, queue: Queue, random: Random, rounds: int) -> None:
    """Publish, kill at any moment, start again: all that was committed comes, in order and once without a mark."""
    for _ in range(rounds):
        count = random.randrange(500, 5_000)
        with NumberedPublisher(gateway.port("rabbit")) as publisher:
            publisher.begin(count, [queue.name], random.choice((64, 1_000, 20_000)))
            publisher.wait_until_sent(count)
            wait_until_committed(gateway, count)
            time.sleep(random.random() * 0.5)  # any moment will do: nothing is waited for
            gateway.kill()
        gateway.start()
        while random.random() < 0.5:  # also while it is replayed
            time.sleep(random.random())
            gateway.kill()
            gateway.start()
        wait_until_replayed(gateway)
        found = arrived(queue)
        plain = [number for number, again in found if not again]
        assert plain == sorted(set(plain))
        assert {number for number, _ in found} == set(range(count)), "something is lost"
        first: list[int] = []
        seen: set[int] = set()
        for number, _ in found:
            if number not in seen:
                seen.add(number)
                first.append(number)
        assert first == sorted(first), "out of order"


def test_a_gateway_that_is_killed_at_any_moment_loses_nothing_that_was_committed(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway = start_gateway([listener(rabbitmq.port, tmp_path)], [durable(2_000)])
    with Queue(rabbitmq.url, "burst-random") as queue:
        kill_at_random(gateway, queue, Random(1), 3)


@pytest.mark.long
def test_a_gateway_that_is_killed_at_a_hundred_moments_loses_nothing_that_was_committed(
    rabbitmq: RabbitMQ, start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway = start_gateway([listener(rabbitmq.port, tmp_path)], [durable(2_000)])
    with Queue(rabbitmq.url, "burst-hundred") as queue:
        kill_at_random(gateway, queue, Random(2), 100)
