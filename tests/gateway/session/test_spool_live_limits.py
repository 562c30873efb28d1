"""Limits that are changed live while messages wait in the spool: 0/s keeps them, `drop` and `reject` give up what waits already."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from pamqp import commands

from gateway.waiting.disk.waiting_disk import WaitingDisk
from limiter.limits import Limit, Rate
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from support.amqp import frames as amqp
from support.amqp.link import Link
from support.rocketmq.frames import send, split_frames
from support.wires.spooling import elapse, spooling, work
from support.wires.wires import Wires

COUNT = 60
BURST = 5
ORDERS = Rule(
    "orders", Match(protocol="amqp", routing_key="orders"), limit=Limit(messages=Rate(10), messages_burst=BURST), open_for_ns=0,
    action="spool",
)  # fmt: skip
CLICKS = replace(ORDERS, name="clicks", match=Match(protocol="rocketmq", topic="clicks"))
NOTHING = Limit(messages=Rate(0))
WHERE = pytest.mark.parametrize("least", [2_000, 1 << 20], ids=["on disk", "in memory"])


def changed(rule: Rule, action: str = "spool") -> Rule:
    """`rule` as a live change of its limit makes it."""
    return replace(rule, limit=NOTHING, action=action)


def enforce(wires: Wires, disk: WaitingDisk, *rules: Rule) -> None:
    wires.enforce(RuleSet(rules))
    elapse(wires, disk, 1)


def published(data: bytes, topic: str = "orders") -> int:
    return sum(isinstance(each.value, commands.Basic.Publish) and each.value.routing_key == topic for each in amqp.read(data))


def amqp_client(wires: Wires, disk: WaitingDisk, *, confirms: bool = False) -> Link:
    """A client whose messages wait."""
    link = Link(wires, confirms=(1,) if confirms else ())
    for _ in range(COUNT // 10):
        link.say(amqp.publish(1, "orders", bytes(200)) * 10)
        work(disk)
    wires.run()
    return link


def waits(disk: WaitingDisk, topic: tuple[str, str]) -> int:
    waiting = disk.waiting.topics.get(topic)
    return 0 if waiting is None else waiting.messages


AMQP_ORDERS = ("amqp", "%2F/amq.default/orders")


@WHERE
def test_a_limit_of_nothing_keeps_what_waits_and_the_rule_lets_it_go_on(tmp_path: Path, least: int) -> None:
    with spooling(tmp_path, ORDERS, least=least) as (wires, disk):
        link = amqp_client(wires, disk)
        enforce(wires, disk, changed(ORDERS))
        gone = published(link.at_broker())
        assert 0 < gone < COUNT
        assert (disk.written > 0) is (least == 2_000)
        assert waits(disk, AMQP_ORDERS) == COUNT - gone, "all is told, also what is in memory"
        elapse(wires, disk, 30)
        link.say(amqp.publish(1, "orders", bytes(200)))
        elapse(wires, disk, 1)
        assert (published(link.at_broker()), waits(disk, AMQP_ORDERS)) == (0, COUNT - gone + 1)
        enforce(wires, disk, ORDERS)
        elapse(wires, disk, COUNT / 10 + 1)
        assert published(link.at_broker()) == COUNT - gone + 1
        assert disk.waiting.topics == {}


@WHERE
@pytest.mark.parametrize("action", ["drop", "reject"])
@pytest.mark.parametrize("confirms", [True, False], ids=["confirms", "plain"])
def test_a_live_drop_or_reject_gives_up_what_waits(tmp_path: Path, least: int, action: str, *, confirms: bool) -> None:
    """Without confirms nothing can be refused: there `reject` is its fallback, which waits on."""
    with spooling(tmp_path, ORDERS, least=least) as (wires, disk):
        link = amqp_client(wires, disk, confirms=confirms)
        enforce(wires, disk, changed(ORDERS))
        gone = published(link.at_broker())
        link.at_client()
        enforce(wires, disk, changed(ORDERS, action))
        elapse(wires, disk, 2)
        totals = wires.totals(*AMQP_ORDERS)
        if not confirms and action == "reject":
            assert (waits(disk, AMQP_ORDERS), totals["dropped"], totals["refused"]) == (COUNT - gone, 0, 0)
            return
        assert published(link.at_broker()) == 0
        assert (totals["refused"], totals["dropped"]) == ((COUNT - gone, 0) if confirms else (0, COUNT - gone))
        nacked = sum(not each.acked for each in amqp.confirms(link.at_client()))
        assert (nacked > 0) is confirms
        assert (disk.waiting.topics, wires.session().budget.held_messages) == ({}, 0)
        enforce(wires, disk, ORDERS)
        link.say(amqp.publish(1, "orders"))
        elapse(wires, disk, 1)
        assert published(link.at_broker()) == 1
        assert disk.used == 0


@WHERE
def test_what_passed_behind_a_spooled_topic_is_given_up_as_well(tmp_path: Path, least: int) -> None:
    """It had no limit when it came, and waits only because order holds on its channel."""
    with spooling(tmp_path, ORDERS, least=least) as (wires, disk):
        link = Link(wires)
        both = amqp.publish(1, "orders", bytes(200)) + amqp.publish(1, "others", bytes(200))
        link.say(both * COUNT)
        work(disk)
        wires.run()
        said = link.at_broker()
        others = replace(ORDERS, name="others", match=Match(protocol="amqp", routing_key="others"))
        enforce(wires, disk, changed(ORDERS), changed(others, "drop"))
        said += link.at_broker()
        gone = published(said, "others")
        assert gone < COUNT
        enforce(wires, disk, changed(others, "drop"))
        elapse(wires, disk, 10)
        said += link.at_broker()
        assert (published(said), published(said, "others")) == (COUNT, gone)
        assert wires.totals("amqp", "%2F/amq.default/others")["dropped"] == COUNT - gone
        assert disk.waiting.topics == {}


def test_a_live_drop_tears_no_transaction(tmp_path: Path) -> None:
    with spooling(tmp_path, ORDERS) as (wires, disk):
        link = Link(wires)
        link.say(
            amqp.method(1, commands.Tx.Select()) + amqp.publish(1, "orders", bytes(200)) * COUNT + amqp.method(1, commands.Tx.Commit())
        )
        work(disk)
        enforce(wires, disk, changed(ORDERS, "drop"))
        said = link.at_broker()
        assert waits(disk, AMQP_ORDERS) == COUNT - published(said) > 0
        enforce(wires, disk)
        elapse(wires, disk, 2)
        said += link.at_broker()
        assert published(said) == COUNT
        assert amqp.names(said)[-1] == "Tx.Commit"


def clicks(wires: Wires, disk: WaitingDisk, say: Callable[[bytes], None]) -> None:
    for first in range(0, COUNT, 10):
        say(
            b"".join(
                send("clicks", struct.pack(">Q", number) + bytes(192), opaque=number, one_way=True) for number in range(first, first + 10)
            )
        )
        wires.run(0.003)
        work(disk)
    wires.run()


@WHERE
@pytest.mark.parametrize("action", ["drop", "reject"])
def test_what_waits_of_rocketmq_is_kept_and_given_up_in_the_same_way(tmp_path: Path, least: int, action: str) -> None:
    with spooling(tmp_path, CLICKS, least=least) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        clicks(wires, disk, client.sendall)
        enforce(wires, disk, changed(CLICKS))
        gone = len(split_frames(wires.received(broker)))
        assert 0 < gone < COUNT
        assert (disk.written > 0) is (least == 2_000)
        elapse(wires, disk, 30)
        assert (wires.received(broker), waits(disk, ("rocketmq", "clicks"))) == (b"", COUNT - gone)
        enforce(wires, disk, changed(CLICKS, action))
        elapse(wires, disk, 2)
        assert (wires.received(broker), wires.totals("rocketmq", "clicks")["dropped"]) == (b"", COUNT - gone)
        assert (disk.waiting.topics, wires.session().budget.held_messages) == ({}, 0)
        enforce(wires, disk, CLICKS)
        client.sendall(send("clicks", b"x", opaque=77, one_way=True))
        elapse(wires, disk, 1)
        assert wires.received(broker) == send("clicks", b"x", opaque=77, one_way=True)


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_changed_live_each_send_is_forwarded_in_order_or_dropped(tmp_path: Path, seed: int) -> None:
    """Some want an answer; the disk is quick or slow, and the limit another one again and again."""
    random = Random(seed)
    with spooling(tmp_path, CLICKS, least=random.choice([500, 5_000])) as (wires, disk):
        client, broker = wires.connect("rocketmq")
        passed: list[int] = []
        refused: set[int] = set()
        number = 0
        for _ in range(40):
            words = b""
            for _ in range(random.choice([1, 3, 20])):
                words += send("clicks", bytes(random.choice([50, 400])), opaque=number, one_way=random.random() < 0.9)
                number += 1
            client.sendall(words)
            wires.run(0.003)
            work(disk)
            wires.run(0.003)
            if random.random() < 0.5:
                rate = random.choice([0, 5, 50])
                action = random.choice(["spool", "spool", "spool", "drop", "reject"])
                wires.enforce(RuleSet((replace(CLICKS, limit=Limit(messages=Rate(rate)), action=action),)))
            if random.random() < 0.5:
                elapse(wires, disk, random.random())
        enforce(wires, disk)
        for _ in range(100):
            elapse(wires, disk, 1)
            passed += [opaque_of(each) for each in split_frames(wires.received(broker))]
            refused |= {opaque_of(each) for each in split_frames(wires.received(client))}
            if wires.session().budget.held_messages == 0:
                break
        assert passed == sorted(set(passed))
        assert not refused & set(passed)
        totals = wires.totals("rocketmq", "clicks")
        assert (totals["dropped"] + len(refused) + len(passed), totals["refused"]) == (number, len(refused))
        assert (disk.waiting.topics, disk.waiting.messages, disk.waiting.disk_messages) == ({}, 0, 0)


def opaque_of(frame: bytes) -> int:
    found: int = json.loads(frame[8 : 8 + (int.from_bytes(frame[4:8]) & 0xFFFFFF)])["opaque"]
    return found
