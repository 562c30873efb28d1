"""What an operator does with RocketMQ's messages in the spool, over real sessions: one-way sends, and sends that the gateway accepts."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.lifecycle import spool_operations
from gateway.protocols.rocketmq import spool_copy
from gateway.session import description
from gateway.spool.disk import SpoolDisk
from limiter.limits import Limit, Rate
from limiter.rules.rule import Match, Rule
from support.rocketmq.frames import batch_body, encode_request, pull, read_response, response, send, send_back, split_frames
from support.wires.spooling import elapse, spooling, work
from support.wires.wires import Wires

ORDERS = ("rocketmq", "orders")
SECOND = 1_000_000_000


def spooled(per_second: int = 5, *, topic: str = "orders", burst: int = 10, accepts: bool = False, **more: Any) -> Rule:
    limit = Limit(messages=Rate(per_second), messages_burst=burst)
    answer = "accepted_by_gateway" if accepts else "broker"
    match = Match(protocol="rocketmq", topic=topic)
    return Rule(topic, match, limit=limit, open_for_ns=0, action="spool", answer=answer, **more)


@contextmanager
def operating(directory: Path, *rules: Rule) -> Iterator[tuple[Wires, SpoolDisk, Any]]:
    """Sessions, their spool, and the gateway around them, as far as operators touch it."""
    with spooling(directory, *rules) as (wires, disk):
        gateway = SimpleNamespace(
            shared=wires.shared,
            sweeper=wires.sweeper,
            event_loop=SimpleNamespace(wake=lambda: None),
            spool=disk,
            settings=SimpleNamespace(gateway=SimpleNamespace(state_directory=directory)),
            rule_source=SimpleNamespace(revision=1),
        )
        yield wires, disk, cast(Any, gateway)


def numbered(number: int, topic: str = "orders", *, one_way: bool = True, **more: Any) -> bytes:
    return send(topic, struct.pack(">Q", number) + bytes(192), opaque=number, one_way=one_way, **more)


def say(wires: Wires, disk: SpoolDisk, client: socket.socket, numbers: range, **more: Any) -> None:
    """In reads of ten: those of one read are one part."""
    for first in range(numbers.start, numbers.stop, 10):
        client.sendall(b"".join(numbered(number, **more) for number in range(first, min(first + 10, numbers.stop))))
        wires.run()
        work(disk)
    wires.run()


def bodies(frames: bytes) -> list[int]:
    """The numbers of the sends that reach the broker."""
    return [struct.unpack_from(">Q", each, 8 + (int.from_bytes(each[4:8]) & 0xFFFFFF))[0] for each in split_frames(frames)]


def pause(gateway: Any, topic: tuple[str, str] = ORDERS) -> None:
    spool_operations.pause(gateway, topic, None, "", "the consumer is down", "alice")


def lines(directory: Path, file: str = "out.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "drained" / file).read_text().splitlines()]


def number_of(line: dict[str, Any]) -> int:
    body = base64.b64decode(line["body_base64"]) if "body_base64" in line else line["body"].encode()
    return int(struct.unpack_from(">Q", body)[0])


@pytest.mark.parametrize("count", [18, 100], ids=["in memory", "on disk"])
def test_a_paused_topic_waits_and_goes_on_in_order(tmp_path: Path, count: int) -> None:
    with operating(tmp_path, spooled(20)) as (wires, disk, gateway):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, range(count))
        passed = bodies(wires.received(broker))
        pause(gateway, ("amqp", "orders"))
        pause(gateway)
        wires.run()
        passed += bodies(wires.received(broker))
        say(wires, disk, client, range(count, count + 10))
        client.sendall(numbered(7, "free") + pull(opaque=70))
        elapse(wires, disk, 60)
        assert wires.received(broker) == numbered(7, "free") + pull(opaque=70), "other topics, and polls of this one, pass"
        assert description.bottleneck(wires.session(), wires.now()) == "paused"
        assert wires.session().budget.held_messages == count + 10 - len(passed)
        assert spool_operations.resume(gateway, ORDERS)
        elapse(wires, disk, count / 20 + 2)
        assert passed + bodies(wires.received(broker)) == list(range(count + 10))
        assert wires.session().budget.held_messages == 0
        assert not spool_operations.resume(gateway, ORDERS), "it is not paused any more"


def test_what_is_below_its_limit_waits_as_well_and_what_cannot_wait_is_refused(tmp_path: Path) -> None:
    with operating(tmp_path, spooled(1000, burst=1000)) as (wires, disk, gateway):
        client, broker = wires.connect("rocketmq")
        client.sendall(numbered(0))
        wires.run()
        assert bodies(wires.received(broker)) == [0]
        spool_operations.pause(gateway, ORDERS, None, "", "repairs", "alice")
        client.sendall(numbered(1, one_way=False, group="others"))
        say(wires, disk, client, range(2, 12))
        client.sendall(numbered(12, one_way=False) + numbered(13, "free", one_way=False))
        elapse(wires, disk, 1)
        refused = [read_response(each) for each in split_frames(wires.received(client))]
        assert [(each["opaque"], each["code"]) for each in refused] == [(1, 215), (12, 215)]
        assert bodies(wires.received(broker)) == [13]
        spool_operations.resume(gateway, ORDERS)
        elapse(wires, disk, 1)
        client.sendall(numbered(14, one_way=False))
        elapse(wires, disk, 1)
        assert bodies(wires.received(broker)) == [*range(2, 12), 14]


def test_a_pause_holds_no_message_that_no_rule_spools(tmp_path: Path) -> None:
    reject = Rule("reject", Match(protocol="rocketmq", topic="free"), limit=Limit(messages=Rate(1000)), action="reject")
    with operating(tmp_path, spooled(), reject) as (wires, _, gateway):
        client, broker = wires.connect("rocketmq")
        pause(gateway, ("rocketmq", "free"))
        client.sendall(numbered(1, "free") + numbered(2, "free", one_way=False))
        wires.run()
        assert bodies(wires.received(broker)) == [1, 2]


def test_polls_and_send_backs_of_a_paused_topic_pass(tmp_path: Path) -> None:
    """They are no messages that could wait in the spool, though a rule for all says so."""
    everything = Rule("all", Match(protocol="rocketmq"), limit=Limit(messages=Rate(1000)), action="spool")
    with operating(tmp_path, everything) as (wires, disk, gateway):
        client, broker = wires.connect("rocketmq")
        pause(gateway)
        client.sendall(pull(opaque=1) + send_back(opaque=2) + numbered(3))
        elapse(wires, disk, 5)
        assert wires.received(broker) == pull(opaque=1) + send_back(opaque=2)


def test_while_a_topic_is_paused_its_sends_are_accepted_and_go_on_later(tmp_path: Path) -> None:
    with operating(tmp_path, spooled(20, accepts=True)) as (wires, disk, gateway):
        client, broker = wires.connect("rocketmq")
        pause(gateway)
        say(wires, disk, client, range(30), one_way=False)
        answers = [read_response(each) for each in split_frames(wires.received(client))]
        assert [(each["opaque"], each["code"]) for each in answers] == [(number, 0) for number in range(30)]
        assert wires.received(broker) == b""
        assert wires.shared.spool_control.accepted == 30
        spool_operations.resume(gateway, ORDERS)
        elapse(wires, disk, 4)
        assert bodies(wires.received(broker)) == list(range(30))


def test_what_a_client_that_is_gone_has_sent_goes_on_when_its_topic_is_resumed(tmp_path: Path) -> None:
    with operating(tmp_path, spooled(20)) as (wires, disk, gateway):
        client, broker = wires.connect("rocketmq")
        pause(gateway)
        say(wires, disk, client, range(30))
        client.shutdown(socket.SHUT_WR)
        elapse(wires, disk, 30)
        assert wires.received(broker) == b""
        assert wires.ended == []
        spool_operations.resume(gateway, ORDERS)
        elapse(wires, disk, 4)
        assert bodies(wires.received(broker)) == list(range(30))
        assert broker.recv(1) == b""


def test_a_paused_message_is_not_given_up_for_its_age(tmp_path: Path) -> None:
    with operating(tmp_path, spooled(max_age_ns=5 * SECOND)) as (wires, disk, gateway):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, range(40))
        passed = len(bodies(wires.received(broker)))
        pause(gateway)
        elapse(wires, disk, 60)
        assert wires.totals("rocketmq", "orders")["dropped"] == 0
        spool_operations.resume(gateway, ORDERS)
        elapse(wires, disk, 1)
        assert wires.totals("rocketmq", "orders")["dropped"] == 40 - passed - len(bodies(wires.received(broker)))
        assert wires.session().budget.held_messages == 0


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("count", [18, 100], ids=["in memory", "on disk"])
async def test_what_is_discarded_is_dropped_and_what_comes_later_goes_on(tmp_path: Path, count: int, *, paused: bool) -> None:
    with operating(tmp_path, spooled(2, accepts=True), spooled(20, topic="other")) as (wires, disk, gateway):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, range(count), one_way=False)
        say(wires, disk, client, range(10), topic="other")
        if paused:
            pause(gateway)
            wires.run()
        preview = await spool_operations.discard(gateway, ORDERS, dry_run=True)
        assert await spool_operations.discard(gateway, ORDERS, dry_run=True) == preview, "a dry run changes nothing"
        assert 0 < cast(int, preview["messages"]) <= wires.shared.spool_control.accepted
        assert preview["connection_ids"] == [wires.session().number]
        assert cast(int, preview["bytes"]) > cast(int, preview["messages"]) * 200
        done = await spool_operations.discard(gateway, ORDERS, dry_run=False)
        assert done == preview
        say(wires, disk, client, range(1000, 1003))
        control = wires.shared.spool_control
        spool_operations.resume(gateway, ORDERS)
        elapse(wires, disk, 3)
        assert (control.given_up, control.accepted_given_up, control.accepted_lost) == (done["messages"], done["messages"], 0)
        passed = bodies(wires.received(broker))
        assert [number for number in passed if number >= 1000] == [1000, 1001, 1002]
        assert len(passed) == count - cast(int, done["messages"]) + 10 + 3
        totals = wires.totals("rocketmq", "orders")
        assert (totals["dropped"], totals["refused"]) == (done["messages"], 0)
        assert (disk.messages, disk.topics, wires.session().budget.held_messages) == (0, {}, 0)


async def test_what_is_drained_is_in_the_file_in_order_and_given_up_and_nothing_else(tmp_path: Path) -> None:
    """Two connections, two groups, one-way and accepted sends, in memory and on disk."""
    with operating(tmp_path, spooled(5, accepts=True), spooled(5, topic="other")) as (wires, disk, gateway):
        first, first_broker = wires.connect("rocketmq")
        second, second_broker = wires.connect("rocketmq")
        pause(gateway)
        say(wires, disk, first, range(60))
        say(wires, disk, first, range(100, 140), one_way=False, binary=True, group="others")
        say(wires, disk, first, range(10), topic="other")
        say(wires, disk, second, range(200, 203), one_way=False)
        done = await spool_operations.drain(gateway, ORDERS, "out.jsonl")
        assert (done["messages"], done["connections"], done["faults"]) == (103, 2, [])
        assert done["files"] == [str(tmp_path / "drained" / "out.jsonl")]
        told = lines(tmp_path)
        assert [number_of(line) for line in told] == [*range(60), *range(100, 140), *range(200, 203)]
        assert [line["accepted"] for line in told] == [False] * 60 + [True] * 43
        assert {(line["topic"], line["group"]) for line in told} == {("orders", "producers"), ("orders", "others")}
        assert told[61]["queue"] == 101 % 4
        assert told[61]["properties"] == {"UNIQ_KEY": "7F00000112342A139A5534EF00000065", "WAIT": "true"}
        assert told[61]["born"] == 1795247411000
        say(wires, disk, first, range(60, 63))
        spool_operations.resume(gateway, ORDERS)
        elapse(wires, disk, 5)
        passed = bodies(wires.received(first_broker))
        assert sorted(passed) == sorted([*range(10), 60, 61, 62])
        assert bodies(wires.received(second_broker)) == []
        control = wires.shared.spool_control
        assert (control.given_up, control.accepted_given_up, control.accepted_lost) == (103, 43, 0)
        assert (disk.messages, disk.topics) == (0, {})


async def test_nothing_is_given_up_that_is_not_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int) -> None:
        raise OSError(28, "No space left on device")

    with operating(tmp_path, spooled(20)) as (wires, disk, gateway):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, range(60))
        passed = bodies(wires.received(broker))
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", fails)
            done = await spool_operations.drain(gateway, ORDERS, "out.jsonl")
        assert (done["messages"], done["files"]) == (0, [])
        assert "No space left on device; nothing is given up" in str(done["faults"])
        assert list((tmp_path / "drained").iterdir()) == []
        elapse(wires, disk, 5)
        assert passed + bodies(wires.received(broker)) == list(range(60))
        assert wires.shared.spool_control.given_up == 0


async def test_what_comes_while_it_is_drained_waits_and_is_not_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with operating(tmp_path, spooled(50)) as (wires, disk, gateway):
        client, broker = wires.connect("rocketmq")
        say(wires, disk, client, range(60))
        passed = bodies(wires.received(broker))
        write = spool_operations._write

        def meanwhile(path: Path, copies: Any) -> None:  # on a thread, while the event loop waits for it
            client.sendall(b"".join(map(numbered, range(60, 65))))
            elapse(wires, disk, 5)
            assert wires.received(broker) == b"", "nothing of it goes on"
            write(path, copies)

        monkeypatch.setattr(spool_operations, "_write", meanwhile)
        done = await spool_operations.drain(gateway, ORDERS, "out.jsonl")
        assert [number_of(line) for line in lines(tmp_path)] == list(range(len(passed), 60))
        assert done["messages"] == 60 - len(passed)
        elapse(wires, disk, 3)
        assert bodies(wires.received(broker)) == list(range(60, 65))


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("code", [10, 310])
def test_a_line_has_all_that_a_send_says(code: int, *, binary: bool) -> None:
    data = send("orders", b"text", opaque=6, code=code, binary=binary)
    (told,) = spool_copy.messages_of(data, 0, len(data))
    properties = {"UNIQ_KEY": "7F00000112342A139A5534EF00000006", "WAIT": "true"}
    born = 1795247411000 if code == 310 else 0
    expected = {"topic": "orders", "group": "producers", "queue": 2, "flag": 0, "sys_flag": 0, "born": born, "properties": properties}
    assert told == {**expected, "body": "text"}


def test_a_batch_is_told_as_its_messages() -> None:
    data = send("orders", batch_body(b"one", b"two", properties=b"KEYS\x01k\x02"), code=320, batch=True)
    told = spool_copy.messages_of(data, 0, len(data))
    assert [(line["body"], line["properties"]) for line in told] == [("one", {"KEYS": "k"}), ("two", {"KEYS": "k"})]
    for broken in (batch_body(b"one", b"two")[:-1], b""):
        data = send("orders", broken, code=320, batch=True)
        (line,) = spool_copy.messages_of(data, 0, len(data))
        assert (line["code"], line["fields"]["b"], line["body"].encode()) == (320, "orders", broken), "as it came"


@pytest.mark.parametrize(
    ("sys_flag", "body", "told"),
    [
        (1, zlib.compress(b"a long text"), (0, "a long text")),
        (0x301, zlib.compress(b"a long text"), (0, "a long text")),
        (0x101, b"an LZ4 frame", (0x101, "an LZ4 frame")),
        (1, b"no zlib", (1, "no zlib")),
        (1, zlib.compress(bytes(spool_copy.MAX_BODY_BYTES + 1)), (1, None)),
    ],
    ids=["zlib", "zlib, said so", "another", "none", "a bomb"],
)
def test_a_compressed_body_is_told_as_it_was(sys_flag: int, body: bytes, told: tuple[int, str | None]) -> None:
    data = encode_request(310, {"a": "producers", "b": "orders", "e": "0", "f": str(sys_flag), "i": ""}, body)
    (line,) = spool_copy.messages_of(data, 0, len(data))
    assert (line["sys_flag"], line.get("body")) == told
    if told[1] is None:
        assert base64.b64decode(line["body_base64"]) == body


def test_what_is_no_ordinary_send_is_told_as_it_is() -> None:
    data = send_back(opaque=4)
    (line,) = spool_copy.messages_of(data, 0, len(data))
    assert (line["code"], line["fields"]["originTopic"], line["body"]) == (36, "orders", "")


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_operators_do_each_message_has_one_end_and_order_holds(tmp_path: Path, seed: int) -> None:
    """Pauses, discards and drains of two topics while one-way and accepted sends come; the broker answers, the disk is quick or slow."""
    random = Random(seed)
    rules = spooled(random.choice([20, 200]), accepts=random.random() < 0.5), spooled(50, topic="other")
    with operating(tmp_path, *rules) as (wires, disk, gateway):
        client, broker = wires.connect("rocketmq")
        passed: dict[str, list[int]] = {"orders": [], "other": []}
        said: dict[str, list[int]] = {"orders": [], "other": []}
        given_up: dict[str, int] = {"orders": 0, "other": 0}
        drained: list[int] = []
        refused: set[int] = set()

        def look() -> None:
            for each in split_frames(wires.received(broker)):
                header = json.loads(each[8 : 8 + (int.from_bytes(each[4:8]) & 0xFFFFFF)])
                passed[header["extFields"]["b"]] += bodies(each)
                if not header["flag"] & 2:
                    broker.sendall(response(header["opaque"]))
            for each in split_frames(wires.received(client)):
                answer = read_response(each)
                if answer["code"] == 215:
                    refused.add(int(str(answer["opaque"])))

        number = 0
        for turn in range(50):
            words = b""
            for _ in range(random.choice([1, 5, 20])):
                topic = random.choice(["orders", "other"])
                words += numbered(number, topic, one_way=random.random() < 0.7)
                said[topic].append(number)
                number += 1
            client.sendall(words)
            wires.run()
            if random.random() < 0.5:
                elapse(wires, disk, random.random())
            topic = random.choice(["orders", "other"])
            match random.choice(["pause", "resume", "discard", "drain", "", ""]):
                case "pause":
                    pause(gateway, ("rocketmq", topic))
                case "resume":
                    spool_operations.resume(gateway, ("rocketmq", topic))
                case "discard":
                    given_up[topic] += cast(int, (await spool_operations.discard(gateway, ("rocketmq", topic), dry_run=False))["messages"])
                case "drain":
                    done = await spool_operations.drain(gateway, ("rocketmq", topic), f"{turn}.jsonl")
                    assert done["faults"] == []
                    found = [number_of(line) for line in lines(tmp_path, f"{turn}.jsonl")] if done["files"] else []
                    assert len(found) == done["messages"]
                    given_up[topic] += len(found)
                    drained += found
            look()
        spool_operations.resume_all(gateway)
        for _ in range(200):
            elapse(wires, disk, 1)
            look()
            if wires.session().budget.held_messages == 0:
                break
        assert wires.shared.spool_control.given_up == sum(given_up.values())
        for topic, sent in said.items():
            assert passed[topic] == sorted(passed[topic])
            assert len(set(passed[topic])) == len(passed[topic])
            assert set(passed[topic]).isdisjoint(drained)
            left = set(sent) - set(passed[topic]) - refused
            assert len(left) == given_up[topic]
            assert left >= set(drained) & set(sent)
        assert (disk.messages, disk.topics) == (0, {})


def test_a_batch_of_small_bodies_that_are_long_before_compression_does_not_fill_memory() -> None:
    part = spool_copy.MAX_BODY_BYTES // 2 - 1000
    bomb = zlib.compress(bytes(part))
    fields = {"a": "producers", "b": "orders", "e": "0", "f": "1", "i": "", "m": "true"}
    data = encode_request(320, fields, batch_body(*[bomb] * 12), opaque=1)
    told = spool_copy.messages_of(data, 0, len(data))
    assert [each["sys_flag"] for each in told] == [0, 0, *[1] * 10]
    assert sum(len(each.get("body", "")) for each in told) == 2 * part
    assert {base64.b64decode(each["body_base64"]) for each in told[2:]} == {bomb}, "what has no room stands as it came"
