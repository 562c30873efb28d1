"""Sessions whose messages are spooled: clients that end before their messages have gone on, slow limits, and other rules behind."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from common.views.connections import SpoolStageView
from gateway.clock import now_ns
from gateway.protocols.amqp.frames import HEARTBEAT_FRAME
from gateway.session import description
from gateway.waiting.disk.waiting_disk import READ, WRITE, WaitingDisk
from limiter.limits import Limit, Rate
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from support.amqp import frames as amqp
from support.amqp.link import Link, over_tcp
from support.wires.wires import Wires

SECOND = 1_000_000_000
MINUTE = 60 * SECOND


def spooled(rate: Rate) -> Rule:
    match = Match(protocol="amqp", routing_key="limited")
    return Rule("limited", match, limit=Limit(messages=rate, messages_burst=1), open_for_ns=0, action="spool")


@contextmanager
def spooling(directory: Path, *rules: Rule) -> Iterator[Wires]:
    with Wires(*rules) as wires:
        disk = WaitingDisk(directory / "spool", 1 << 30, 1 << 20)
        wires.shared.disk = disk
        wires.sweeper.take_disk(disk)
        yield wires
        disk.close(5)


def published(data: bytes) -> int:
    return amqp.names(data).count("Basic.Publish")


def test_a_slow_limit_is_waited_for_after_the_client_has_hung_up(tmp_path: Path) -> None:
    """A message in twelve seconds: longer than a side that has ended is waited for else."""
    with spooling(tmp_path, spooled(Rate(5, MINUTE))) as wires:
        link = Link(wires)
        link.say(amqp.publish(1, "limited") * 4)
        wires.run()
        link.client.shutdown(socket.SHUT_WR)
        wires.elapse(14)
        assert not wires.ended
        wires.elapse(40)
        assert published(link.at_broker()) == 4


@pytest.mark.parametrize("word", ["heartbeat", "ack"])
def test_messages_go_on_when_the_client_is_gone_and_answers_with_a_reset(tmp_path: Path, word: str) -> None:
    with spooling(tmp_path, spooled(Rate(5))) as wires:
        link = over_tcp(wires, confirms=(1,) if word == "ack" else ())
        link.say(amqp.publish(1, "limited") * 30)
        wires.run()
        link.client.close()
        wires.elapse(2)
        for number in range(2):  # the second meets the reset that the first one drew
            link.answer(HEARTBEAT_FRAME if word == "heartbeat" else amqp.ack(1, number + 1))
            wires.run()
            wires.elapse(1)
        assert not wires.ended
        wires.elapse(6)
        wires.elapse(3)
        assert published(link.end_in_words()) == 30
        link.broker.close()
        wires.elapse(1)
        assert wires.ended


def test_a_delay_behind_spooled_messages_ends_in_its_time(tmp_path: Path) -> None:
    match = Match(protocol="amqp", routing_key="other")
    wait = Rule("wait", match, limit=Limit(messages=Rate(0)), open_for_ns=0, action="delay", max_delay_ns=SECOND)
    with spooling(tmp_path, spooled(Rate(5)), wait) as wires:
        link = over_tcp(wires, confirms=(1,))
        link.say(amqp.publish(1, "limited") * 6)
        wires.run()
        link.say(amqp.publish(1, "other"))
        wires.run()
        wires.elapse(5)
        assert amqp.confirms(link.at_client()) == [amqp.Confirm(1, False, 7, False)]


@pytest.mark.parametrize(("action", "per"), [("spool", "topic"), ("spool", "rule"), ("block", "topic")])
def test_clients_and_topics_that_wait_for_one_limit_take_turns(tmp_path: Path, action: str, per: str) -> None:
    """Two clients of one topic, or of two topics under one limit. One has sent before the other."""
    limit = Limit(messages=Rate(40), messages_burst=10)
    rule = Rule("shared", Match(protocol="amqp", exchange=""), per=per, limit=limit, open_for_ns=0, action=action)
    with spooling(tmp_path, rule) as wires:
        links = Link(wires), Link(wires)
        for link, topic in zip(links, ("one", "one" if per == "topic" else "two"), strict=True):
            link.client.sendall(amqp.publish(1, topic) * 1_200)
            wires.run()
        for link in links:
            link.at_broker()
        passed = [0, 0]
        for _ in range(25):
            wires.elapse(1)
            now = [published(link.at_broker()) for link in links]
            assert 30 <= sum(now) <= 50, "the limit holds for both together, and no token is lost"
            passed = [before + more for before, more in zip(passed, now, strict=True)]
        assert 0.25 < passed[0] / sum(passed) < 0.75, "in a hundred turns"


def test_while_the_spool_has_too_much_in_memory_a_sender_whose_messages_are_being_written_is_not_read(tmp_path: Path) -> None:
    """A disk that takes nothing for a while. `memory.per_connection` would let the sender go on."""
    memory, size = 64 << 10, 4_000
    with Wires(spooled(Rate(1)), hold_bytes=16 << 20) as wires:
        disk = WaitingDisk(tmp_path / "spool", 1 << 30, memory, threads=False)
        wires.shared.disk = disk
        wires.sweeper.take_disk(disk)
        link = Link(wires)
        message = amqp.publish(1, "limited", bytes(size))
        link.client.setblocking(False)
        left = memoryview(message * 1_000)
        for _ in range(50):
            with suppress(BlockingIOError):
                left = left[link.client.send(left) :]
            wires.run()
        assert disk.paging.over()
        assert disk.paging.total() < memory + (512 << 10), "and what one read brings"
        assert description.bottleneck(link.session, wires.now()) == "spool"
        while left:
            while disk.work(WRITE):
                pass
            wires.run()
            with suppress(BlockingIOError):
                left = left[link.client.send(left) :]
        while link.session.budget.held_messages + link.session.forward.messages < 1_000:
            while disk.work(WRITE):
                pass
            wires.run()
        while disk.work(WRITE):
            pass
        wires.run()
        assert not disk.paging.over()
        assert description.bottleneck(link.session, wires.now()) != "spool"
        disk.close(0)


def stage(link: Link) -> object:
    credit: Any = description.describe(link.session, now_ns()).credit
    return credit.spool


def test_the_stage_of_the_spool_is_told_beside_credit(tmp_path: Path) -> None:
    """In memory, on its way to the disk, on disk, full, and gone again."""
    with Wires(spooled(Rate(1)), hold_bytes=1 << 20) as wires:
        disk = WaitingDisk(tmp_path / "spool", 64 << 10, 64 << 10, threads=False)
        wires.shared.disk = disk
        wires.sweeper.take_disk(disk)
        link = Link(wires)
        assert stage(link) is None
        budget = link.session.budget
        link.say(amqp.publish(1, "limited") * 10)
        wires.run()
        assert budget.paged_queues == 0, "a burst that the spool's queue has not even begun with"
        assert stage(link) == SpoolStageView(stage="memory", memory_bytes=budget.held_bytes, disk_bytes=0)
        for _ in range(2):
            link.say(amqp.publish(1, "limited", bytes(1_000)) * 25)
            wires.run()
        assert budget.paging_bytes > 0
        assert stage(link) == SpoolStageView(stage="disk", memory_bytes=budget.held_bytes, disk_bytes=0)
        while disk.work(WRITE):
            pass
        wires.run()
        assert budget.paged_bytes > 5_000
        assert stage(link) == SpoolStageView(stage="disk", memory_bytes=budget.held_bytes, disk_bytes=budget.paged_bytes)
        with suppress(TimeoutError):
            link.say(amqp.publish(1, "limited", bytes(1_000)) * 5_000)
        assert stage(link) == SpoolStageView(stage="full", memory_bytes=budget.held_bytes, disk_bytes=budget.paged_bytes)
        wires.judge.replace(RuleSet(()))
        for _ in range(100_000):
            wires.elapse(0.25)
            while disk.work(WRITE) or disk.work(READ):
                pass
            link.at_broker()
            if stage(link) is None:
                break
        assert stage(link) is None
        assert (budget.held_bytes, budget.paged_bytes, disk.paging.total()) == (0, 0, 0)
        disk.close(0)
