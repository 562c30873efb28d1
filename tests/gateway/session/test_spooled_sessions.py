"""Sessions whose messages are spooled: clients that end before their messages have gone on, slow limits, and other rules behind."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pamqp import commands

from gateway.protocols.amqp.frames import HEARTBEAT_FRAME
from gateway.spool.disk import SpoolDisk
from limiter.limits import Limit, Rate
from limiter.rules.rule import Match, Rule
from support.amqp import frames as amqp
from support.amqp.link import Link, over_tcp
from support.wires.wires import Wires

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
LIMITED = "%2F/amq.default/limited"


def spooled(rate: Rate, *, durable: bool = False) -> Rule:
    match = Match(protocol="amqp", routing_key="limited")
    return Rule("limited", match, limit=Limit(messages=rate, messages_burst=1), open_for_ns=0, action="spool", durable=durable)


@contextmanager
def spooling(directory: Path, *rules: Rule) -> Iterator[Wires]:
    with Wires(*rules) as wires:
        disk = SpoolDisk(directory / "spool", 1 << 30, 1 << 20)
        wires.shared.spool = disk
        wires.sweeper.take_spool(disk)
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
        assert published(link.at_broker()) == 30
        wires.elapse(3)
        assert link.broker.recv(1) == b"", "then the broker is told that nothing more comes"
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


def asked(link: Link, wires: Wires) -> list[int]:
    """Channels on which the broker has been asked since the last look, whether it has read all."""
    wires.elapse(1)
    wires.run()
    return [each.channel for each in amqp.read(link.at_broker()) if isinstance(each.value, commands.Channel.Flow)]


def test_what_the_broker_has_read_is_marked_off_when_it_says_so(tmp_path: Path) -> None:
    """Not when its machine has it: in an alarm a RabbitMQ reads nothing for hours."""
    with spooling(tmp_path, spooled(Rate(1000), durable=True)) as wires:
        disk = wires.shared.spool
        assert disk is not None
        link = over_tcp(wires)
        link.say(amqp.publish(1, "limited") * 20 + amqp.publish(2, "limited") * 20)
        wires.until(lambda: wires.totals("amqp", LIMITED)["waiting"] == 0 and disk.uncommitted == 0)
        assert sorted(asked(link, wires)) == [1, 2]
        wires.elapse(60)
        assert asked(link, wires) == [], "it is asked once"
        assert disk.used > 0
        assert link.session.conversation.needs_ticks()
        link.answer(amqp.method(1, commands.Channel.FlowOk(True)) + amqp.method(2, commands.Channel.FlowOk(True)))
        wires.run()
        asked(link, wires)
        wires.until(lambda: bool(disk.used == 0))
        assert link.at_client() == b"", "the client has not asked"


def test_an_answer_to_the_clients_own_question_is_its_own(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(Rate(1000), durable=True)) as wires:
        link = over_tcp(wires)
        link.say(amqp.method(1, commands.Channel.Flow(True)))
        link.say(amqp.publish(1, "limited") * 20)
        wires.until(lambda: wires.totals("amqp", LIMITED)["waiting"] == 0)
        link.at_broker()
        assert asked(link, wires) == [1]
        link.say(amqp.method(1, commands.Channel.Flow(True)))
        for passes in (True, False, True):
            link.answer(amqp.method(1, commands.Channel.FlowOk(True)))
            wires.run()
            assert amqp.names(link.at_client()) == (["Channel.FlowOk"] if passes else [])


def forwarded(wires: Wires) -> Link:
    """A connection of which all that was spooled has been forwarded."""
    link = over_tcp(wires)
    link.say(amqp.publish(1, "limited") * 20)
    wires.until(lambda: wires.totals("amqp", LIMITED)["waiting"] == 0)
    link.at_broker()
    return link


def test_a_message_that_is_on_its_way_is_not_torn_by_a_question(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(Rate(1000), durable=True)) as wires:
        link = forwarded(wires)
        large = amqp.publish(1, "elsewhere", b"y" * 60_000, cut=20_000)
        link.say(large[:50_000])
        took = link.at_broker()
        wires.elapse(1)
        link.say(large[50_000:])
        took += link.at_broker()
        wires.elapse(1)
        took += link.at_broker()
        assert amqp.names(took) == ["Basic.Publish", "ContentHeader", *["ContentBody"] * 3, "Channel.Flow"]


def test_a_channel_that_its_client_closes_is_not_asked_and_its_close_ok_tells_as_much(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(Rate(1000), durable=True)) as wires:
        link = forwarded(wires)
        link.say(amqp.method(1, commands.Channel.Close(200, "", 0, 0)))
        assert asked(link, wires) == []
        link.answer(amqp.method(1, commands.Channel.CloseOk()))
        assert asked(link, wires) == []
        disk = wires.shared.spool
        assert disk is not None
        wires.until(lambda: bool(disk.used == 0))


def test_another_broker_than_rabbitmq_is_not_asked_and_given_some_seconds(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(Rate(1000), durable=True)) as wires:
        link = forwarded(wires)
        link.session.conversation.handshake.rabbitmq = False  # type: ignore[attr-defined]
        disk = wires.shared.spool
        assert disk is not None
        assert asked(link, wires) == []
        assert disk.used > 0
        wires.elapse(7)
        wires.until(lambda: bool(disk.used == 0))
