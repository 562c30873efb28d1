"""RocketMQ sessions whose one-way sends are spooled: order, what others see meanwhile, the disk, and every kind of end."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest
from pamqp import base, commands

from gateway.lifecycle.drain import begin_drain, close_when_drained, is_close_sent
from gateway.session.ending import close_gracefully, send_close
from gateway.session.graceful_close import MAX_MOVED_NS
from gateway.session.graceful_close_state import DONE
from gateway.transport.channel_states import FIN_SENT
from gateway.waiting.disk.waiting_disk import WaitingDisk
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from support.amqp import frames as amqp
from support.amqp.link import Link
from support.rocketmq.frames import encode_request, heartbeat, read_response, response, send, split_frames
from support.wires.spooling import elapse, spooling, work
from support.wires.wires import Decide, Wires

SECOND = 1_000_000_000
LARGE = 1_100_000  # bytes: more than the gateway keeps whole


def spooled(per_second: int, *, burst: int = 10, max_age_ns: int | None = None, topic: str = "orders") -> Rule:
    limit = Limit(messages=Rate(per_second), messages_burst=burst)
    match = Match(protocol="rocketmq", topic=topic)
    return Rule(topic, match, limit=limit, open_for_ns=0, action="spool", max_age_ns=max_age_ns)


def one_way(number: int, topic: str = "orders", size: int = 200) -> bytes:
    return send(topic, struct.pack(">Q", number) + bytes(size - 8), opaque=number, one_way=True)


def say(wires: Wires, disk: WaitingDisk, client: socket.socket, count: int) -> None:
    """So many one-way sends, in reads of ten: those of one read are one part."""
    for first in range(0, count, 10):
        client.sendall(b"".join(map(one_way, range(first, min(first + 10, count)))))
        wires.run()
        work(disk)
    wires.run()


def numbers(frames: bytes) -> list[int]:
    """Of the sends, by the body's first bytes."""
    found = []
    for each in split_frames(frames):
        header = int.from_bytes(each[4:8]) & 0xFFFFFF
        found.append(struct.unpack_from(">Q", each, 8 + header)[0])
    return found


def read_json(frame: bytes) -> dict[str, object]:
    return dict(json.loads(frame[8 : 8 + (int.from_bytes(frame[4:8]) & 0xFFFFFF)]))


def test_one_way_sends_wait_on_disk_and_pass_at_the_limit_in_order(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(5)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 100)
        assert disk.written > 10_000
        assert wires.session().budget.paged_bytes > 10_000
        passed = numbers(wires.received(broker))
        elapse(wires, disk, 2)
        passed += numbers(wires.received(broker))
        assert 15 <= len(passed) < 100, "a burst of 10, 5/s, and the time that the machine took"
        elapse(wires, disk, 20)
        assert passed + numbers(wires.received(broker)) == list(range(100))
        assert wires.received(client) == b""
        budget = wires.session().budget
        assert (budget.held_bytes, budget.paged_bytes, budget.held_messages, budget.paged_queues) == (0, 0, 0, 0)
        assert disk.waiting.topics == {}
        assert 80 <= wires.totals("rocketmq", "orders")["delayed"] <= 90, "each that waited once, also those behind others"
        work(disk)
        wires.run()
        assert disk.used == 0


def test_other_topics_and_requests_pass_meanwhile(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(1)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 30)
        wires.run()
        wires.received(broker)
        client.sendall(one_way(77, "free") + heartbeat(opaque=9))
        wires.run()
        assert wires.received(broker) == one_way(77, "free") + heartbeat(opaque=9)


@pytest.mark.parametrize("waiting", [20, 60], ids=["in memory", "on disk"])
def test_a_send_that_wants_an_answer_does_not_overtake_and_is_refused_at_once(tmp_path: Path, waiting: int) -> None:
    with spooling(tmp_path, spooled(5)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, waiting)
        wires.run()
        passed = numbers(wires.received(broker))
        client.sendall(send(opaque=1000))
        wires.run()
        (refusal,) = split_frames(wires.received(client))
        assert (read_response(refusal)["code"], read_response(refusal)["opaque"]) == (215, 1000)
        assert wires.totals("rocketmq", "orders")["refused"] == 1
        elapse(wires, disk, waiting / 5 + 1)
        assert passed + numbers(wires.received(broker)) == list(range(waiting))
        client.sendall(send(opaque=1001))
        wires.run()
        assert wires.received(broker) == send(opaque=1001), "nothing waits any more"


def test_a_large_one_way_send_does_not_overtake_either(tmp_path: Path) -> None:
    """It is passed on as it comes, so it cannot wait: it is dropped and counted, as with `reject`."""
    with spooling(tmp_path, spooled(5)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 30)
        wires.run()
        data = one_way(30, size=LARGE) + one_way(31)
        for at in range(0, len(data), 10_000):
            client.sendall(data[at : at + 10_000])
            wires.sweep()
        elapse(wires, disk, 8)
        assert numbers(wires.received(broker)) == [*range(30), 31]
        assert wires.totals("rocketmq", "orders")["dropped"] == 1


def test_what_a_one_way_client_has_sent_before_bad_bytes_goes_on(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(20)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 60)
        client.sendall(one_way(60, "free") + b"\xff" * 20 + one_way(61, "free"))
        wires.run()
        assert client.recv(1) == b"", "let go"
        passed = numbers(wires.received(broker))
        assert 60 in passed
        elapse(wires, disk, 4)
        assert sorted(passed + numbers(wires.received(broker))) == list(range(61))
        assert broker.recv(1) == b""
        broker.close()
        wires.run()
        ((session, error),) = wires.ended
        assert (session.cause, error) == ("frame_too_large", None)
        assert wires.totals("rocketmq", "orders")["abandoned"] == 0


def test_what_a_one_way_client_has_sent_goes_on_when_it_hangs_up(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(20)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 60)
        wires.run()
        client.shutdown(socket.SHUT_WR)
        elapse(wires, disk, 5)
        assert numbers(wires.received(broker)) == list(range(60))
        assert broker.recv(1) == b"", "then the broker is told that nothing more comes"


def test_one_way_sends_that_are_too_old_are_dropped_and_counted(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(10, max_age_ns=SECOND)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 60)
        elapse(wires, disk, 3)
        passed = numbers(wires.received(broker))
        assert 12 <= len(passed) <= 30
        assert passed == list(range(len(passed)))
        assert wires.totals("rocketmq", "orders")["dropped"] == 60 - len(passed)
        assert disk.expired == 60 - len(passed)
        assert wires.session().budget.held_messages == 0


def test_a_broker_that_goes_away_gives_up_what_waits(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(1)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 60)
        wires.run()
        passed = len(numbers(wires.received(broker)))
        broker.close()
        client.close()
        elapse(wires, disk, 1)
        assert len(wires.ended) == 1
        assert wires.totals("rocketmq", "orders")["abandoned"] == 60 - passed
        assert disk.waiting.topics == {}


def test_a_full_disk_stops_the_sender_of_one_way_sends(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(20), size=60_000) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        wires.shared.hold_bytes = 40_000
        data = b"".join(map(one_way, range(2000)))
        client.setblocking(False)
        sent = 0
        found: list[int] = []
        while not wires.session().disk_full():  # long before the last: at a limit of 20/s
            sent += client.send(data[sent : sent + 40_000])
            wires.run()
            work(disk)
        assert disk.used > 20_000
        while len(found) < 2000:
            with suppress(BlockingIOError):
                sent += client.send(data[sent : sent + 40_000])
            before = len(found)
            elapse(wires, disk, 5)
            found += numbers(wires.received(broker))
            assert len(found) > before
            assert disk.used <= 60_000
        assert found == list(range(2000))


def test_a_damaged_file_ends_a_rocketmq_connection_with_a_reason(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(5)) as (wires, disk):
        client, _ = wires.connect("rocketmq")
        say(wires, disk, client, 200)
        assert disk.written > 30_000
        (own,) = disk.directory.iterdir()
        for file in own.glob("[0-9]*"):
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
        elapse(wires, disk, 40)
        ((session, _),) = wires.ended
        assert session.cause == "spool_damaged"
        assert "orders" in session.detail


@pytest.mark.parametrize("seed", range(20))
def test_any_mixture_keeps_the_order_and_answers_what_wants_an_answer(tmp_path: Path, seed: int) -> None:
    """One-way and other sends of two topics and two groups, batches, changes of speed; the disk is quick or slow."""
    random = Random(seed)
    with spooling(tmp_path, spooled(random.choice([20, 100])), spooled(50, topic="retries")) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        waits: dict[tuple[str, str], list[int]] = {}
        passed: dict[tuple[str, str], list[int]] = {}
        asked: set[int] = set()
        answered: set[int] = set()

        def look() -> None:
            for each in split_frames(wires.received(broker)):
                header = read_json(each)
                fields = header["extFields"]
                assert isinstance(fields, dict)
                number = header["opaque"]
                assert isinstance(number, int)
                passed.setdefault((fields["b"], fields["a"]), []).append(number)
                if not int(str(header["flag"])) & 2:
                    broker.sendall(response(number))
            for each in split_frames(wires.received(client)):
                number = read_response(each)["opaque"]
                assert isinstance(number, int)
                assert number in asked - answered
                answered.add(number)

        number = 0
        for _ in range(60):
            words = b""
            for _ in range(random.choice([1, 3, 20])):
                topic, group = random.choice(["orders", "retries", "free"]), random.choice(["a", "b"])
                silent = random.random() < 0.8
                words += send(topic, bytes(random.choice([50, 400])), opaque=number, one_way=silent, group=group)
                (waits.setdefault((topic, group), []).append if silent else asked.add)(number)
                number += 1
            client.sendall(words)
            wires.run()
            if random.random() < 0.5:
                elapse(wires, disk, random.random())
            look()
        for _ in range(200):
            elapse(wires, disk, 1)
            look()
            if wires.session().budget.held_messages == 0:
                break
        look()
        assert answered == asked
        for line, found in passed.items():
            assert found == sorted(found), line
            assert [each for each in found if each not in asked] == waits.get(line, []), f"none of {line} is lost"


@pytest.mark.parametrize("alive", [True, False])
def test_a_connection_whose_client_is_gone_is_kept_alive_while_sends_wait(tmp_path: Path, alive: bool) -> None:
    """RocketMQ closes one on which nothing is said for 120 s; a broker that does not answer is not waited for."""
    with spooling(tmp_path, spooled(0)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 20)
        elapse(wires, disk, 100)
        client.close()
        asked = 0
        for _ in range(8):
            elapse(wires, disk, 31)
            questions = split_frames(wires.received(broker)) if wires.sweeper.sessions else []
            asked += len(questions)
            for _ in questions if alive else ():
                broker.sendall(response(1, code=3))
        if alive:
            assert asked >= 7
            assert wires.session().budget.held_messages == 20
        else:
            assert [session.cause for session, _ in wires.ended] == ["broker_heartbeat"]


def test_what_a_client_that_is_gone_has_sent_goes_on_for_as_long_as_it_takes(tmp_path: Path) -> None:
    """One-way sends are not answered: the broker is asked whether it lives, however often something is sent to it."""
    with spooling(tmp_path, spooled(1)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 150)
        client.close()
        passed, questions = [], 0
        for _ in range(36):
            elapse(wires, disk, 5)
            for each in split_frames(wires.received(broker)):
                if read_json(each)["code"] == 105:
                    questions += 1
                    broker.sendall(response(1, code=3))
                else:
                    passed += numbers(each)
        assert passed == list(range(150))
        assert 3 <= questions <= 7, "each 30 s"


def test_a_broker_that_takes_slowly_what_a_gone_client_has_sent_lives(tmp_path: Path) -> None:
    """The limit is lifted, and what waits goes as fast as the broker takes it: more slowly than the gateway would give it."""
    with spooling(tmp_path, spooled(1), least=20_000) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        broker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wires.session().upstream.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        for first in range(0, 2000, 10):
            client.sendall(b"".join(one_way(number, size=3000) for number in range(first, first + 10)))
            wires.run(0.002)
            work(disk)
        client.close()
        elapse(wires, disk, 1)
        wires.enforce(RuleSet(()))
        broker.setblocking(False)
        taken = b""
        for _ in range(4 * 200):
            with suppress(BlockingIOError):
                taken += broker.recv(12_000)
            elapse(wires, disk, 0.25)
        assert not wires.ended
        assert 120 * 4 < len(taken) // 3300 < 2000, "more than two minutes of it, and not all"


@pytest.mark.parametrize("rate", [10, 0])
@pytest.mark.parametrize("gone", [False, True])
def test_what_is_spooled_goes_on_through_a_drain_until_it_is_released(tmp_path: Path, rate: int, *, gone: bool) -> None:
    """RocketMQ's clients get their FIN after some seconds, and may not notice; what they have sent does not end with it."""
    with spooling(tmp_path, spooled(rate)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 400)
        if gone:
            client.close()
            elapse(wires, disk, 1)
        sessions = wires.sweeper.sessions
        for session in list(sessions.values()):
            wires.sweeper.attempt(session, partial(begin_drain, session, wires.now()))
        for _ in range(100):
            for session in list(sessions.values()):
                wires.sweeper.attempt(session, partial(close_when_drained, session, wires.now()))
                wires.sweeper.end(session)
            elapse(wires, disk, 0.25)
            assert not all(is_close_sent(session) for session in sessions.values()), "so the drain goes on"
        wires.enforce(RuleSet(()))  # as `release_held` does
        frames = wires.received(broker)
        for _ in range(15):
            elapse(wires, disk, 1)
            frames += wires.received(broker)
        sends = [each for each in split_frames(frames) if read_json(each)["code"] == 310]
        assert numbers(b"".join(sends)) == list(range(400))
        assert all(is_close_sent(session) for session in sessions.values())


def test_a_broker_hears_of_a_client_that_is_not_read_for_its_full_spool(tmp_path: Path) -> None:
    """RocketMQ closes a connection on which nothing is said for 120 s, and the client's heartbeats lie unread behind its sends."""
    with spooling(tmp_path, spooled(0), size=60_000) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        wires.shared.hold_bytes = 40_000
        sends = b"".join(map(one_way, range(4000)))
        client.setblocking(False)
        with suppress(BlockingIOError):
            while not wires.session().disk_full():
                sends = sends[client.send(sends[:5000]) :]
                wires.run(0.005)
                work(disk)
        assert wires.session().withheld()
        wires.received(broker)
        elapse(wires, disk, 130)
        said = [read_json(each) for each in split_frames(wires.received(broker))]
        assert [(each["code"], each["flag"]) for each in said] == [(105, 2)] * 4, "each 30 s, and none that is answered"


@pytest.mark.parametrize("other", ["words", "per connection"])
def test_what_comes_after_a_live_change_does_not_overtake_what_waits(tmp_path: Path, other: str) -> None:
    """Some changes give all topics other keys; the order within a topic stays."""
    rule = spooled(20)
    words = Rule("words", Match(protocol="amqp", routing_key="a.*"), limit=Limit(messages=Rate(5)), routing_key_words=1)
    of_connections = Rule("each", Match(protocol="amqp"), per="connection", limit=Limit(messages=Rate(1000)))
    before = [words] if other == "words" else []
    with spooling(tmp_path, rule, *before) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 60)
        passed = numbers(wires.received(broker))
        changed = replace(rule, limit=Limit(messages=Rate(21), messages_burst=10))
        wires.enforce(RuleSet((changed, words if other == "words" else of_connections)))
        elapse(wires, disk, 0.25)
        for first in range(60, 90, 10):
            client.sendall(b"".join(map(one_way, range(first, first + 10))))
            wires.run()
            work(disk)
        client.sendall(send(opaque=1000))
        wires.run()
        assert read_response(wires.received(client))["code"] == 215, "it cannot wait so long, and does not overtake either"
        assert len(wires.session().conversation.lines.by_name) == 1
        elapse(wires, disk, 8)
        assert passed + numbers(wires.received(broker)) == list(range(90))


def test_nothing_is_said_to_the_broker_behind_the_gateways_fin(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(1)) as (wires, _):
        client, broker = wires.connect("rocketmq")
        client.sendall(heartbeat(opaque=1))
        wires.run()
        broker.sendall(response(1))
        wires.run()
        wires.elapse(40)
        session = wires.session()
        wires.sweeper.attempt(session, partial(send_close, session, "idle", "idle", wires.now()))
        wires.sweeper.end(session)
        wires.run()
        wires.elapse(1)
        assert (session.upstream.write_state, session.upstream.write_error) == (FIN_SENT, None)


def test_what_waits_for_a_broker_that_has_moved_is_given_up_before_the_client_would_time_out(tmp_path: Path) -> None:
    """The client was not read for ten seconds more, and its sends timed out."""
    with spooling(tmp_path, spooled(0)) as (wires, disk):
        client, _ = wires.connect("rocketmq")
        say(wires, disk, client, 60)
        session = wires.session()
        wires.sweeper.attempt(session, partial(close_gracefully, session, "the broker has moved", "broker_moved", wires.now()))
        wires.sweeper.end(session)
        close = session.graceful_close
        assert close is not None
        elapse(wires, disk, MAX_MOVED_NS / SECOND - 0.5)
        assert close.phase != DONE
        elapse(wires, disk, 1)
        assert close.phase == DONE
        client.close()
        elapse(wires, disk, 25)
        assert wires.totals("rocketmq", "orders")["abandoned"] == 60


@pytest.mark.parametrize("gone", [False, True])
def test_a_connection_that_an_operator_closes_gives_up_what_waits(tmp_path: Path, *, gone: bool) -> None:
    with spooling(tmp_path, spooled(0)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 60)
        if gone:
            client.close()
            elapse(wires, disk, 1)
        session = wires.session()
        wires.sweeper.attempt(session, partial(close_gracefully, session, "closed by an operator", "admin", wires.now()))
        wires.sweeper.end(session)
        wires.run()
        elapse(wires, disk, 25)
        wires.received(broker)
        broker.setblocking(False)
        with suppress(ConnectionResetError):
            assert broker.recv(1) == b"", "its end"
        client.close()
        broker.close()
        elapse(wires, disk, 1)
        assert not wires.sweeper.sessions
        assert wires.totals("rocketmq", "orders")["abandoned"] == 60
        assert disk.used == 0


def test_a_gone_clients_heartbeat_that_is_with_the_judge_makes_it_no_member_again(tmp_path: Path) -> None:
    """Its unregistering comes after all that it said."""
    gate = threading.Event()
    gate.set()

    def slow(decide: Decide) -> Decide:
        def wait_and_decide(requests: list[Request], now: int) -> None:
            gate.wait(60)
            decide(requests, now)

        return wait_and_decide

    group = b'{"clientID":"c@1","consumerDataSet":[{"groupName":"g"}],"producerDataSet":[]}'
    with Wires(spooled(1), threads=1, inline="never", wrap=slow) as wires:
        disk = WaitingDisk(tmp_path / "spool", 1 << 30, 1, threads=False, least=2000, most=2000)
        wires.shared.disk = disk
        wires.sweeper.take_disk(disk)
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, 30)
        wires.received(broker)
        gate.clear()
        client.sendall(one_way(30, "other") + encode_request(34, None, group, opaque=7))
        wires.run(0.05)
        client.close()
        wires.run(0.05)
        gate.set()
        heard: list[object] = []
        until = time.monotonic() + 60
        while 35 not in heard and time.monotonic() < until:
            wires.run(0.01)
            heard += [read_json(each)["code"] for each in split_frames(wires.received(broker))]
        assert [code for code in heard if code != 310] == [34, 35]
        disk.close(5)


@pytest.mark.parametrize("said", ["queue.declare", "basic.qos", "basic.consume"])
def test_a_client_that_dies_within_a_message_on_a_channel_takes_others_along_only_if_it_consumes_there(tmp_path: Path, said: str) -> None:
    asks: dict[str, tuple[base.Frame, base.Frame]] = {
        "queue.declare": (commands.Queue.Declare(queue="q"), commands.Queue.DeclareOk("q", 0, 0)),
        "basic.qos": (commands.Basic.Qos(0, 10), commands.Basic.QosOk()),
        "basic.consume": (commands.Basic.Consume(queue="q", consumer_tag="c"), commands.Basic.ConsumeOk("c")),
    }
    rule = Rule("slow", Match(protocol="amqp", routing_key="orders"), limit=Limit(messages=Rate(5)), open_for_ns=0, action="spool")
    with spooling(tmp_path, rule) as (wires, disk):
        link = Link(wires)
        ask, answer = asks[said]
        link.say(amqp.method(2, ask))
        link.answer(amqp.method(2, answer))
        for _ in range(6):
            link.say(amqp.publish(1, "orders", bytes(200)) * 10)
            work(disk)
        link.say(amqp.publish(2, "free", bytes(300_000))[:280_000])
        link.at_broker()
        link.client.close()
        elapse(wires, disk, 3)
        names = amqp.names(link.at_broker())
        if said == "basic.consume":
            assert names[-1] == "Connection.Close", "nothing is said behind it, which the broker would not hear"
        else:
            assert "Connection.Close" not in names
            elapse(wires, disk, 20)
            names += amqp.names(link.at_broker())
        totals = wires.totals("amqp", "%2F/amq.default/orders")
        if said == "basic.consume":
            link.answer(amqp.method(0, commands.Connection.CloseOk()))
            link.broker.close()
            elapse(wires, disk, 5)
            totals = wires.totals("amqp", "%2F/amq.default/orders")
            assert totals["forwarded"] + totals["abandoned"] == 60
            assert totals["abandoned"] > 30
        else:
            assert totals["forwarded"] == 60
