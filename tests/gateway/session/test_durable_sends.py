"""Durable sends of RocketMQ: written at once, accepted once they are on the disk, and left behind for the replay."""

from __future__ import annotations

import json
import shutil
import socket
import struct
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from gateway.lifecycle import spool_operations
from gateway.protocols.rocketmq.conversation import RocketmqConversation
from gateway.protocols.rocketmq.sends_again import SendsAgain
from gateway.spool.disk import WRITE, SpoolDisk
from gateway.spool.left_behind import streams_of
from limiter.limits import Limit, Rate
from limiter.rules.rule import Match, Rule
from support.rocketmq.frames import batch_body, read_response, response, send, split_frames
from support.wires.spooling import elapse, spooling, work
from support.wires.wires import Wires

SECOND = 1_000_000_000


def durable(per_second: int = 5, *, topic: str = "orders", burst: int = 10, accepts: bool = False, **more: Any) -> Rule:
    limit = Limit(messages=Rate(per_second), messages_burst=burst)
    answer = "accepted_by_gateway" if accepts else "broker"
    match = Match(protocol="rocketmq", topic=topic)
    return Rule(topic, match, limit=limit, open_for_ns=0, action="spool", answer=answer, durable=True, **more)


def numbered(number: int, topic: str = "orders", *, one_way: bool = True) -> bytes:
    return send(topic, struct.pack(">Q", number) + bytes(192), opaque=number, one_way=one_way)


def body_number(frame: bytes) -> int:
    return int(struct.unpack_from(">Q", frame, 8 + (int.from_bytes(frame[4:8]) & 0xFFFFFF))[0])


def bodies(frames: bytes) -> list[int]:
    return list(map(body_number, split_frames(frames)))


def say(wires: Wires, client: socket.socket, numbers: range, *, one_way: bool = True) -> None:
    for first in range(numbers.start, numbers.stop, 10):
        client.sendall(b"".join(numbered(number, one_way=one_way) for number in range(first, min(first + 10, numbers.stop))))
        wires.run()


def streams(own: Path) -> dict[str, list[int]]:
    """What a process that finds `own` would send again, by the first file of each stream."""
    found: dict[str, list[int]] = {}
    names = sorted((file.name for file in own.glob("*.durable")), key=lambda name: int(name.partition(".")[0]))
    for stream in streams_of(own, names) if names else []:
        assert stream.origin["protocol"] == "rocketmq"
        stream.rewind()
        again = SendsAgain()
        numbers: list[int] = []
        while (batch := stream.read()) is not None:
            assert batch[1] == [], "nothing is damaged"
            for record in batch[0]:
                if record.replays:
                    numbers += [body_number(each.body) for each in again.add(record.data, "", record.at)]
        found[names[0] if len(found) == 0 else stream.names[0]] = numbers
    return found


def left(disk: SpoolDisk) -> list[int]:
    own = disk.own()
    return [] if own is None else [number for numbers in streams(own).values() for number in numbers]


def end(wires: Wires) -> None:
    session = wires.session()
    session.abort("admin", "closed")
    wires.sweeper.end(session)


def test_one_way_sends_are_written_at_once_and_left_behind_in_order(tmp_path: Path) -> None:
    with spooling(tmp_path, durable()) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, client, range(60))
        assert disk.uncommitted > 0
        work(disk)
        wires.run()
        work(disk)
        wires.run()
        assert disk.uncommitted == 0
        passed = bodies(wires.received(broker))
        found = left(disk)
        assert found[-1] == 59
        assert found == list(range(found[0], 60))
        assert found[0] <= len(passed), "each is with the broker, or left behind"
        end(wires)
        work(disk)
        wires.run()
        assert len(disk.orphans) == 1
        assert left(disk) == found


def test_a_send_is_accepted_once_it_is_on_the_disk(tmp_path: Path) -> None:
    with spooling(tmp_path, durable(accepts=True)) as (wires, disk):
        client, _ = wires.connect("rocketmq")
        say(wires, client, range(40), one_way=False)
        assert wires.received(client) == b"", "the disk has done nothing yet"
        assert not wires.session().conversation.settled()
        answered: list[int] = []
        while disk.work(WRITE):
            wires.run()
            answered += [int(str(read_response(each)["opaque"])) for each in split_frames(wires.received(client))]
            assert set(answered) <= set(left(disk))
        assert answered == list(range(answered[0], 40))
        assert len(answered) == wires.shared.spool_control.accepted >= 25


def test_a_connection_that_ends_leaves_what_was_accepted_and_nothing_is_lost(tmp_path: Path) -> None:
    with spooling(tmp_path, durable(accepts=True)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, client, range(40), one_way=False)
        work(disk)
        wires.run()
        work(disk)
        wires.run()
        broker.close()
        client.close()
        elapse(wires, disk, 1)
        assert len(wires.ended) == 1
        assert wires.shared.spool_control.accepted_lost == 0, "it is sent again"
        found = left(disk)
        assert found == list(range(found[0], 40))
        assert len(found) >= wires.shared.spool_control.accepted


def test_nothing_is_left_where_the_broker_has_all(tmp_path: Path) -> None:
    with spooling(tmp_path, durable(50)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        for first in (0, 60):  # the second burst comes before the first is marked off
            say(wires, client, range(first, first + 60))
            elapse(wires, disk, 3)
        assert bodies(wires.received(broker)) == list(range(120))
        elapse(wires, disk, 12)
        assert left(disk) == []
        assert (disk.used, disk.uncommitted, disk.topics) == (0, 0, {})
        assert wires.session().conversation.needs_ticks() is False


async def test_what_an_operator_gave_up_is_not_left_behind(tmp_path: Path) -> None:
    with spooling(tmp_path, durable()) as (wires, disk):
        settings = SimpleNamespace(gateway=SimpleNamespace(state_directory=tmp_path))
        gateway = cast(
            Any,
            SimpleNamespace(
                shared=wires.shared, sweeper=wires.sweeper, event_loop=SimpleNamespace(wake=lambda: None), spool=disk, settings=settings,
                rule_source=SimpleNamespace(revision=1),
            ),
        )  # fmt: skip
        client, broker = wires.connect("rocketmq")
        say(wires, client, range(60))
        work(disk)
        wires.run()
        work(disk)
        wires.run()
        passed = bodies(wires.received(broker))

        done: list[dict[str, object]] = []

        async def discard() -> None:
            done.append(await spool_operations.discard(gateway, ("rocketmq", "orders"), dry_run=False))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(discard)
            while not done:
                work(disk)
                wires.run()
                await trio.sleep(0.001)
        assert (done[0]["messages"], done[0]["faults"]) == (60 - len(passed), [])
        assert [number for number in left(disk) if number >= len(passed)] == []
        elapse(wires, disk, 5)
        assert bodies(wires.received(broker)) == []


def test_what_was_too_old_is_not_left_behind(tmp_path: Path) -> None:
    with spooling(tmp_path, durable(10, max_age_ns=SECOND)) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        say(wires, client, range(60))
        elapse(wires, disk, 4)
        passed = bodies(wires.received(broker))
        assert wires.totals("rocketmq", "orders")["dropped"] == 60 - len(passed) > 0
        assert set(left(disk)) <= set(passed)


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 40))])
def test_killed_at_any_moment_what_was_committed_is_with_the_broker_or_left_behind_in_order(tmp_path: Path, seed: int) -> None:
    """A copy of the disk is what the next process finds. One-way and accepted sends, pauses between bursts, a slow or a quick disk."""
    random = Random(seed)
    with spooling(tmp_path, durable(random.choice([20, 200]), accepts=True), durable(50, topic="other")) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        at_broker: list[int] = []
        answered: set[int] = set()
        silent: list[int] = []
        committed: set[int] = set()
        number = 0

        def look() -> None:
            for each in split_frames(wires.received(broker)):
                at_broker.append(body_number(each))
                if not each[8:].split(b'"flag":', 1)[1].startswith(b"2"):
                    opaque = int(each[8:].split(b'"opaque":', 1)[1].split(b",", 1)[0].rstrip(b"}"))
                    broker.sendall(response(opaque))
            for each in split_frames(wires.received(client)):
                answer = read_response(each)
                if answer["code"] == 0:
                    answered.add(int(str(answer["opaque"])))

        for turn in range(40):
            words = b""
            for _ in range(random.choice([0, 1, 10])):
                quiet = random.random() < 0.5
                words += numbered(number, random.choice(["orders", "other"]) if quiet else "orders", one_way=quiet)
                if quiet:
                    silent.append(number)
                number += 1
            client.sendall(words)
            wires.run()
            look()
            for _ in range(random.randrange(4)):
                disk.work(WRITE)
            if random.random() < 0.3:
                elapse(wires, disk, random.random() * 4)
            wires.run()
            look()
            if disk.uncommitted == 0 and wires.session().budget.held_messages >= 0:
                committed.update(silent)
            if random.random() < 0.3:  # killed now
                own = disk.own()
                copy = tmp_path / f"killed-{turn}"
                if own is not None and own.exists():
                    shutil.copytree(own, copy)
                found = streams(copy) if copy.exists() else {}
                for numbers in found.values():
                    assert numbers == sorted(numbers)
                again = {each for numbers in found.values() for each in numbers}
                missing = (answered | committed) - again - set(at_broker)
                assert not missing, f"{sorted(missing)} were committed, and are nowhere"
        for _ in range(100):
            elapse(wires, disk, 1)
            look()
        assert set(at_broker) >= answered | set(silent)
        assert left(disk) == []


@pytest.mark.parametrize("action", ["spool", "delay", "reject", "drop"])
def test_a_replay_is_answered_by_the_broker_or_told_to_wait_and_never_by_the_spool(tmp_path: Path, action: str) -> None:
    """What would be accepted, or dropped without a word, of any other client."""
    more: dict[str, Any] = {"durable": True, "answer": "accepted_by_gateway"} if action == "spool" else {}
    limit = Limit(messages=Rate(2), messages_burst=1)
    rule = Rule("all", Match(protocol="rocketmq"), limit=limit, open_for_ns=0, action=action, **more)
    with spooling(tmp_path, rule) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        wires.session().conversation.be_patient()
        client.sendall(b"".join(numbered(number, one_way=False) for number in range(3)))
        wires.run()
        told = [read_response(each) for each in split_frames(wires.received(client))]
        held = action in ("spool", "delay")
        assert [(each["opaque"], each["code"]) for each in told] == ([] if held else [(1, 215), (2, 215)])
        elapse(wires, disk, 3)
        assert bodies(wires.received(broker)) == ([0, 1, 2] if held else [0])
        assert (disk.used, wires.shared.spool_control.accepted) == (0, 0)


def test_a_pause_holds_a_replay_until_it_is_over(tmp_path: Path) -> None:
    with spooling(tmp_path, durable(1000, accepts=True)) as (wires, disk):
        gateway = cast(Any, SimpleNamespace(shared=wires.shared, sweeper=wires.sweeper, event_loop=SimpleNamespace(wake=lambda: None)))
        client, broker = wires.connect("rocketmq")
        wires.session().conversation.be_patient()
        spool_operations.pause(gateway, ("rocketmq", "orders"), None, "", "repairs", "alice")
        client.sendall(numbered(1, one_way=False))
        elapse(wires, disk, 30)
        assert (wires.received(broker), wires.received(client)) == (b"", b"")
        assert spool_operations.resume(gateway, ("rocketmq", "orders"))
        elapse(wires, disk, 1)
        assert bodies(wires.received(broker)) == [1]


def test_what_gave_its_slot_back_and_finds_none_is_refused_and_all_else_is_marked_off(tmp_path: Path) -> None:
    """It had passed, but stood behind what is spooled. It is on no disk, so it is not accepted later, and nothing waits for it."""
    limit = Limit(messages=Rate(5), messages_burst=10, concurrent=1)
    more: dict[str, Any] = {"durable": True, "answer": "accepted_by_gateway", "algorithm": "concurrency"}
    rule = Rule("orders", Match(protocol="rocketmq"), limit=limit, open_for_ns=0, action="spool", **more)
    with spooling(tmp_path, rule) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        answers: dict[int, int] = {}

        def look() -> None:
            for each in split_frames(wires.received(client)):
                answer = read_response(each)
                answers[int(str(answer["opaque"]))] = int(str(answer["code"]))

        first = send("orders", batch_body(*[b"entry"] * 8), opaque=99, code=320, batch=True)
        large = send("orders", batch_body(*[b"entry"] * 6), opaque=100, code=320, batch=True)
        client.sendall(first)
        wires.run()
        (_,) = split_frames(wires.received(broker))
        broker.sendall(response(99))
        wires.run()
        client.sendall(large + numbered(101, one_way=False))
        wires.run()
        work(disk)
        wires.run()
        client.sendall(b"".join(numbered(number, one_way=False) for number in range(102, 106)))
        wires.run()
        elapse(wires, disk, 3)  # the broker does not answer the first, so the second finds no slot
        look()
        assert answers == {99: 0, 100: 0, 101: 215, 102: 0, 103: 0, 104: 0, 105: 0}
        for _ in range(12):
            for each in split_frames(wires.received(broker)):
                broker.sendall(response(json.loads(each[8 : 8 + (int.from_bytes(each[4:8]) & 0xFFFFFF)])["opaque"]))
            elapse(wires, disk, 2)
        assert (left(disk), disk.used) == ([], 0), "the broker has all, so nothing is sent again"


def test_what_gave_its_slot_back_keeps_its_place(tmp_path: Path) -> None:
    limit = Limit(messages=Rate(5), messages_burst=10, concurrent=50)
    more: dict[str, Any] = {"action": "spool", "answer": "accepted_by_gateway", "algorithm": "concurrency"}
    rule = Rule("orders", Match(protocol="rocketmq"), limit=limit, open_for_ns=0, **more)
    with spooling(tmp_path, rule) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        first, large = (send("orders", batch_body(*[b"entry"] * each), code=320, batch=True) for each in (8, 6))
        client.sendall(first)
        wires.run()
        client.sendall(large + numbered(1, one_way=False))
        wires.run()
        client.sendall(b"".join(numbered(number, one_way=False) for number in range(2, 6)))
        wires.run()
        elapse(wires, disk, 5)
        assert bodies(wires.received(broker))[2:] == [1, 2, 3, 4, 5]


def test_what_passes_behind_what_was_just_spooled_is_on_the_disk_like_all_else(tmp_path: Path) -> None:
    """It was judged with it, and there are tokens for it, but none for the larger one before it."""
    with spooling(tmp_path, durable()) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        first, large = (send("orders", batch_body(*[b"entry"] * each), code=320, batch=True, one_way=True) for each in (8, 6))
        client.sendall(first + large + numbered(1) + numbered(2))
        wires.run()
        say(wires, client, range(3, 6))
        assert split_frames(wires.received(broker)) == [first]
        work(disk)
        wires.run()
        work(disk)
        wires.run()
        assert left(disk)[1:] == [1, 2, 3, 4, 5], "all are on the disk, in order"
        elapse(wires, disk, 5)
        assert bodies(wires.received(broker))[1:] == [1, 2, 3, 4, 5]
        elapse(wires, disk, 8)
        assert (left(disk), disk.used) == ([], 0)


def test_only_what_passes_of_its_own_topic_and_group_has_had_the_turn_of_what_waits(tmp_path: Path) -> None:
    """All of RocketMQ has one ordering key, and its own line each topic and group. Another's send made this one wait for longer."""
    with spooling(tmp_path, durable(), durable(1, topic="slow", burst=1), durable(1, topic="other", burst=1)) as (wires, _):
        client, _ = wires.connect("rocketmq")
        client.sendall(numbered(1, "slow"))
        wires.run()
        client.sendall(numbered(2, "orders") + numbered(3, "slow") + numbered(4, "other") + numbered(5, "other"))
        wires.run()
        conversation = wires.session().conversation
        assert isinstance(conversation, RocketmqConversation)
        waiting = {key.text: line[0].had_turn for key, line in conversation.held_sends.lines.items()}
        assert waiting == {"slow": False, "other": True}
