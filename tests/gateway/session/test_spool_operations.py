"""What an operator does with messages in the spool, over real sessions: a topic is paused and goes on, and what waits of it is given up."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
import trio
from pamqp import commands, header

from gateway.lifecycle import spool_operations
from gateway.pipeline.conversation import REFUSED
from gateway.pipeline.message_spans import FORWARDED, SpanRecorder
from gateway.pipeline.spool_orders import CALLED_OFF
from gateway.protocols.amqp import spool_copy
from gateway.protocols.amqp.publishes_again import Messages
from gateway.session import description
from gateway.spool.disk import SpoolDisk
from gateway.spool.left_behind import streams_of
from gateway.spool.removals import HEAD, RANGE
from limiter.executor import NEVER
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules.rule import Match, Rule
from support.amqp import frames as amqp
from support.amqp.link import Link
from support.wires.wires import Decide, Wires

LIMITED = "%2F/amq.default/limited"
OTHER = "%2F/amq.default/other"
SECOND = 1_000_000_000
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
T = TypeVar("T")


def spooled(topic: str = "limited", rate: Rate = Rate(5), **more: Any) -> Rule:  # noqa: B008  -- immutable
    match = Match(protocol="amqp", routing_key=topic)
    return Rule(topic, match, limit=Limit(messages=rate, messages_burst=1), open_for_ns=0, action="spool", **more)


@contextmanager
def spooling(directory: Path, *rules: Rule, memory: int = 1 << 20, **more: Any) -> Iterator[tuple[Wires, Any]]:
    """Sessions, and the gateway around them, as far as operators touch it."""
    with Wires(*rules, **more) as wires:
        disk = SpoolDisk(directory / "spool", 1 << 30, memory)
        wires.shared.spool = disk
        wires.sweeper.take_spool(disk)
        woken = SimpleNamespace(wake=lambda: None)
        settings = SimpleNamespace(gateway=SimpleNamespace(state_directory=directory))
        gateway = SimpleNamespace(
            shared=wires.shared,
            sweeper=wires.sweeper,
            event_loop=woken,
            spool=disk,
            settings=settings,
            rule_source=SimpleNamespace(revision=1),
        )
        yield wires, cast(Any, gateway)
        disk.close(5)


def published(data: bytes) -> list[str]:
    return [each.value.routing_key for each in amqp.read(data) if isinstance(each.value, commands.Basic.Publish)]


def pause(gateway: Any, topic: str = LIMITED, until: float | None = None) -> None:
    spool_operations.pause(gateway, ("amqp", topic), until, "later" if until else "", "the consumer is down", "alice")


def test_nothing_of_a_paused_topic_passes_until_it_is_resumed(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled()) as (wires, gateway):
        link = Link(wires, confirms=(1,))
        link.say(amqp.publish(1, "limited") * 6)
        wires.run()
        assert published(link.at_broker()) == ["limited"], "the burst"
        pause(gateway)
        link.say(amqp.publish(1, "limited") * 2)
        wires.elapse(60)
        assert published(link.at_broker()) == []
        assert description.bottleneck(link.session, wires.now()) == "paused"
        assert wires.totals("amqp", LIMITED)["waiting"] == 7
        assert spool_operations.resume(gateway, ("amqp", LIMITED))
        wires.run()
        assert published(link.at_broker()) == ["limited"], "at the limit again"
        assert description.bottleneck(link.session, wires.now()) == "limit"
        wires.elapse(3)
        assert len(published(link.at_broker())) == 6
        assert not spool_operations.resume(gateway, ("amqp", LIMITED)), "it is not paused any more"


FEW = Rule("few", per="rule", limit=Limit(concurrent=3), algorithm="concurrency")


def in_flight(wires: Wires) -> list[int]:
    return [state.in_flight for state in wires.judge.states(wires.now()) if state.in_flight is not None]


def test_what_is_below_its_limits_and_paused_holds_no_slot(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(rate=Rate(1000)), FEW) as (wires, gateway):
        link = Link(wires, confirms=(1,))
        pause(gateway)
        link.say(amqp.publish(1, "limited") * 2)
        wires.elapse(2)
        assert (published(link.at_broker()), in_flight(wires)) == ([], [0])
        spool_operations.resume(gateway, ("amqp", LIMITED))
        wires.run()
        assert (published(link.at_broker()), in_flight(wires)) == (["limited"] * 2, [2])


def test_what_is_paused_while_it_is_with_the_judge_holds_no_slot(tmp_path: Path) -> None:
    stops, passed, goes_on = threading.Event(), threading.Event(), threading.Event()

    def slow(decide: Decide) -> Decide:
        def judged(requests: list[Request], now: int) -> None:
            decide(requests, now)
            if stops.is_set() and any(request.passed for request in requests):
                passed.set()
                assert goes_on.wait(10)

        return judged

    with spooling(tmp_path, spooled(rate=Rate(1)), FEW, threads=1, wrap=slow, inline=NEVER) as (wires, gateway):
        link = Link(wires, confirms=(1,))
        link.say(amqp.publish(1, "limited") * 2)
        wires.until(lambda: wires.totals("amqp", LIMITED)["waiting"] == 1)
        link.answer(amqp.ack(1, 1))
        wires.until(lambda: in_flight(wires) == [0])
        assert published(link.at_broker()) == ["limited"]
        stops.set()
        wires.until(passed.is_set, within=60)
        stops.clear()
        pause(gateway)
        goes_on.set()
        wires.until(lambda: in_flight(wires) == [0])
        wires.elapse(2)
        assert published(link.at_broker()) == []
        spool_operations.resume(gateway, ("amqp", LIMITED))
        wires.until(lambda: in_flight(wires) == [1], within=60)
        assert published(link.at_broker()) == ["limited"]


def test_a_pause_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with spooling(tmp_path, spooled()) as (wires, gateway):
        monkeypatch.setattr(spool_operations, "now_ns", wires.now)
        monkeypatch.setattr("gateway.lifecycle.spool_operations.time.time", lambda: 1000.0)
        link = Link(wires, confirms=(1,))
        link.say(amqp.publish(1, "limited") * 3)
        wires.run()
        link.at_broker()
        pause(gateway, until=1020.0)
        wires.elapse(19)
        assert published(link.at_broker()) == []
        wires.elapse(3)
        assert published(link.at_broker()) == ["limited"] * 2
        assert wires.shared.spool_control.paused == {}


def test_while_the_gateway_stops_nothing_can_be_paused(tmp_path: Path) -> None:
    """It waits for what is held to pass."""
    with spooling(tmp_path, spooled()) as (wires, gateway):
        link = Link(wires, confirms=(1,))
        link.say(amqp.publish(1, "limited") * 3)
        wires.run()
        pause(gateway)
        spool_operations.resume_all(gateway)
        pause(gateway)
        wires.elapse(2)
        assert published(link.at_broker()) == ["limited"] * 3


def test_a_topic_that_is_below_its_limit_is_held_as_well(tmp_path: Path) -> None:
    """Nothing waits when the pause begins."""
    with spooling(tmp_path, spooled()) as (wires, gateway):
        link = Link(wires, confirms=(1,))
        pause(gateway)
        link.say(amqp.publish(1, "limited"))
        link.say(amqp.publish(1, "other"))
        link.say(amqp.publish(2, "other"))
        wires.elapse(5)
        assert published(link.at_broker()) == ["other"], "on another channel; on the same channel order holds"
        spool_operations.resume(gateway, ("amqp", LIMITED))
        wires.elapse(1)
        assert published(link.at_broker()) == ["limited", "other"]


def test_a_pause_holds_no_message_that_no_rule_spools(tmp_path: Path) -> None:
    reject = Rule("reject", Match(protocol="amqp", routing_key="free"), limit=Limit(messages=Rate(1000)), action="reject")
    with spooling(tmp_path, spooled(), reject) as (wires, gateway):
        link = Link(wires)
        pause(gateway, "%2F/amq.default/free")
        link.say(amqp.publish(1, "free") * 3)
        wires.run()
        assert published(link.at_broker()) == ["free"] * 3


def test_a_paused_message_is_not_given_up_for_its_age(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(max_age_ns=5 * SECOND)) as (wires, gateway):
        link = Link(wires, confirms=(1,))
        link.say(amqp.publish(1, "limited") * 3)
        wires.run()
        pause(gateway)
        wires.elapse(30)
        assert amqp.confirms(link.at_client()) == []
        spool_operations.resume(gateway, ("amqp", LIMITED))
        wires.elapse(1)
        assert [(each.acked, each.tag) for each in amqp.confirms(link.at_client())] == [(False, 2), (False, 3)]


async def test_what_is_discarded_is_answered_and_what_comes_later_goes_on(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(), memory=1) as (wires, gateway):
        confirmed = Link(wires, confirms=(1,))
        plain = Link(wires)
        confirmed.say(b"".join(amqp.publish(1, "limited", b"x" * (100 + number)) for number in range(100)))  # a part for each
        plain.say(b"".join(amqp.publish(1, "limited", b"x" * (100 + number)) for number in range(50)))
        wires.until(lambda: gateway.spool.written > 0)
        before = {link: len(published(link.at_broker())) for link in (confirmed, plain)}
        preview = await spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=True)
        assert await spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=True) == preview, "a dry run changes nothing"
        assert preview["messages"] == 150 - sum(before.values())
        assert preview["connection_ids"] == [confirmed.session.number, plain.session.number]
        assert await spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=False) == preview
        confirmed.say(amqp.publish(1, "limited"))
        wires.until(lambda: wires.shared.spool_control.given_up == preview["messages"])
        nacks = [each for each in amqp.confirms(confirmed.at_client()) if not each.acked]
        assert nacks[-1].tag == 100
        totals = wires.totals("amqp", LIMITED)
        assert (totals["refused"], totals["dropped"]) == (100 - before[confirmed], 50 - before[plain])
        wires.elapse(3)
        assert published(confirmed.at_broker()) == ["limited"], "the one that came after"
        assert published(plain.at_broker()) == []
        assert (gateway.spool.messages, gateway.spool.topics) == (0, {})


async def test_other_topics_of_a_channel_are_not_discarded_and_keep_their_order(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(), spooled("other"), memory=1) as (wires, gateway):
        link = Link(wires, confirms=(1,))
        link.say((amqp.publish(1, "limited", b"x" * 100) + amqp.publish(1, "other", b"x" * 100)) * 100)
        wires.until(lambda: gateway.spool.written > 0)
        link.at_broker()
        waiting = gateway.spool.topics["amqp", OTHER].messages
        found = await spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=False)
        passed: list[str] = []

        def through() -> bool:
            wires.elapse(1)
            passed.extend(published(link.at_broker()))
            return len(gateway.spool.topics) == 0

        wires.until(through, within=30)
        wires.elapse(10)
        passed += published(link.at_broker())
        assert set(passed) == {"other"}
        assert len(passed) >= waiting
        assert wires.shared.spool_control.given_up == found["messages"]
        tags = [each.tag for each in amqp.confirms(link.at_client()) if not each.acked]
        assert tags == sorted(tags)


async def test_what_is_paused_can_be_discarded(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled()) as (wires, gateway):
        link = Link(wires, confirms=(1,))
        link.say(amqp.publish(1, "limited") * 5)
        wires.run()
        pause(gateway)
        wires.elapse(1)
        assert (await spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=False))["messages"] == 4
        wires.run()
        assert [each.tag for each in amqp.confirms(link.at_client())] == [2, 3, 4, 5]
        link.say(amqp.publish(1, "limited"))
        wires.elapse(2)
        assert published(link.at_broker()) == ["limited"], "the burst; what comes after the discard is paused"


@pytest.mark.parametrize("durable", [False, True])
async def test_a_message_that_has_passed_and_waits_behind_another_is_held_and_given_up_as_well(tmp_path: Path, *, durable: bool) -> None:
    """It came in the same read as the one that is over its limit, so the judge has let it pass already."""
    with spooling(tmp_path, spooled(durable=durable), spooled("other", Rate(1000))) as (wires, gateway):
        link = Link(wires)
        link.say(amqp.publish(1, "limited") * 2 + amqp.publish(1, "other") * 3)
        wires.run()
        credit = link.session.decode.credit
        handled = credit._handled
        pause(gateway, OTHER)
        wires.until(lambda: gateway.spool.uncommitted == 0)
        for _ in range(5):
            wires.elapse(1)
            wires.run()
        assert published(link.at_broker()) == ["limited"] * 2
        assert (await while_it_runs(wires, spool_operations.discard(gateway, ("amqp", OTHER), dry_run=False)))["messages"] == 3
        wires.until(lambda: wires.shared.spool_control.given_up == 3)
        wires.elapse(5)
        assert published(link.at_broker()) == []
        assert wires.totals("amqp", OTHER)["dropped"] == 3
        assert credit._handled == handled == 5, "each message is handled once"
        assert link.session.budget.held_messages == 0


async def test_a_message_that_has_passed_and_waits_behind_another_is_in_the_file_or_forwarded(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(), spooled("other", Rate(1000))) as (wires, gateway):
        link = Link(wires)
        link.say(amqp.publish(1, "limited") * 2 + amqp.publish(1, "other") * 3)
        wires.run()
        assert (await spool_operations.drain(gateway, ("amqp", OTHER), "out.jsonl"))["messages"] == len(lines(tmp_path)) == 3
        wires.elapse(5)
        assert published(link.at_broker()) == ["limited"] * 2


async def while_it_runs(wires: Wires, doing: Awaitable[T]) -> T:
    """What comes of `doing`, which waits for the loop."""
    found: list[T] = []

    async def do() -> None:
        found.append(await doing)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(do)
        while not found:
            wires.run()
            await trio.sleep(0.001)
    return found[0]


def what_would_be_replayed(gateway: Any) -> list[str]:
    """The beginnings of the bodies of what is left of connections that are over, as a process that is killed now would leave it."""
    messages = Messages()
    found: list[bytes] = []
    for orphan in gateway.spool.orphans:
        (stream,) = streams_of(gateway.spool.own(), orphan.names)
        stream.position = orphan.position
        stream.rewind()
        while (batch := stream.read()) is not None:
            for record in batch[0]:
                found += [each.body for each in messages.add(record.data, "", record.at)]
    return [body.split()[0].decode() for body in found]


def end(wires: Wires, link: Link) -> None:
    link.session.abort("admin", "closed")
    wires.sweeper.end(link.session)
    disk = wires.shared.spool
    assert disk is not None
    wires.until(lambda: bool(disk.orphans))


@pytest.mark.parametrize("turns", [False, True], ids=["before their turn", "when their turn has come"])
@pytest.mark.parametrize("drained", [False, True], ids=["discarded", "drained"])
async def test_durable_messages_that_an_operator_gave_up_never_come_back(tmp_path: Path, *, drained: bool, turns: bool) -> None:
    """The connection ends as soon as the operator has the answer, or when all have been given up."""
    with spooling(tmp_path, spooled(durable=True), spooled("other", durable=True), memory=1) as (wires, gateway):
        link = Link(wires)
        link.say(b"".join(numbered(number, "other" if number % 3 == 0 else "limited") for number in range(100)))
        wires.until(lambda: gateway.spool.written > 0 and gateway.spool.uncommitted == 0)
        passed = published(link.at_broker()).count("limited")
        doing = (
            spool_operations.drain(gateway, ("amqp", LIMITED), "out.jsonl")
            if drained
            else spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=False)
        )
        done = await while_it_runs(wires, doing)
        assert done["faults"] == []
        assert done["messages"] == 66 - passed == (len(lines(tmp_path)) if drained else 66 - passed)

        def through() -> bool:
            wires.elapse(1)
            return wires.shared.spool_control.given_up == done["messages"]

        if turns:
            wires.until(through, within=30)
        end(wires, link)
        again = list(map(int, what_would_be_replayed(gateway)))
        assert [number for number in again if number % 3][passed:] == [], "what was forwarded may come twice, and no other"
        assert again == sorted(again)
        assert [number for number in again if number % 3 == 0][-1] == 99, "the other topic's are replayed"


async def test_a_connection_that_ends_while_its_messages_are_looked_for_keeps_them_gone(tmp_path: Path) -> None:
    """What is written down then is what is left of it."""
    with spooling(tmp_path, spooled(durable=True), memory=1) as (wires, gateway):
        link = Link(wires)
        link.say(b"".join(map(numbered, range(100))))
        wires.until(lambda: gateway.spool.written > 0 and gateway.spool.uncommitted == 0)
        (copy,) = link.session.conversation.copy_spooled(LIMITED, only_durable=True)
        link.session.abort("admin", "closed")
        wires.sweeper.end(link.session)
        wires.run()
        assert list(gateway.spool.orphans) == [], "it is not replayed before that is over"
        await trio.to_thread.run_sync(copy.scan, trio.from_thread.run_sync)
        synced: list[bool] = []
        assert not copy.remove(1_000, lambda: synced.append(True)), "all of it"
        copy.release()
        wires.until(lambda: bool(synced and gateway.spool.orphans))
        assert copy.messages >= 90
        assert [number for number in map(int, what_would_be_replayed(gateway)) if number >= 100 - copy.messages] == []


async def test_a_disk_that_does_not_take_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_operations, "REMOVE_S", 0.05)
    with spooling(tmp_path, spooled(durable=True), memory=1) as (wires, gateway):
        link = Link(wires)
        link.say(b"".join(map(numbered, range(50))))
        wires.until(lambda: gateway.spool.written > 0 and gateway.spool.uncommitted == 0)
        fsync = os.fsync
        monkeypatch.setattr("gateway.spool.disk.os.fsync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        done = await while_it_runs(wires, spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=False))
        assert "the disk does not take it" in str(done["faults"])
        monkeypatch.setattr("gateway.spool.disk.os.fsync", fsync)
        wires.until(lambda: wires.shared.spool_control.given_up == done["messages"], within=30)
        end(wires, link)
        again = map(int, what_would_be_replayed(gateway))
        assert [number for number in again if number >= 50 - int(str(done["messages"]))] == [], "once it can be written it is"


@pytest.mark.parametrize("memory", [1 << 20, 1], ids=["memory", "disk"])
def test_what_is_given_up_has_a_span_and_is_what_the_connection_waited_for(tmp_path: Path, memory: int) -> None:
    properties = commands.Basic.Properties(headers={"traceparent": TRACEPARENT})
    with spooling(tmp_path, spooled(max_age_ns=5 * SECOND), memory=memory) as (wires, _):
        wires.shared.spans = recorder = SpanRecorder(1000, 10_000)
        link = Link(wires, confirms=(1,))
        count = 80
        for number in range(count):
            body = bytes(100 + number)
            content = amqp.method(1, header.ContentHeader(0, len(body), properties)) + amqp.raw_frame(3, 1, body)
            link.say(amqp.method(1, commands.Basic.Publish(routing_key="limited")) + content)

        def through() -> bool:
            wires.elapse(1)
            return wires.totals("amqp", LIMITED)["waiting"] == 0

        wires.until(through, within=30)
        given_up = wires.totals("amqp", LIMITED)["refused"]
        assert given_up > 20
        records = [each for each in recorder.take() if each.outcome != FORWARDED]
        assert [(each.outcome, each.key.text) for each in records] == [(REFUSED, LIMITED)] * given_up
        assert {None if each.rule is None else each.rule.name for each in records} == {"limited"}
        link.at_client()
        assert description.bottleneck(link.session, wires.now()) == "limit"
        described = description.describe(link.session, wires.now())
        assert described["refused_by"] == {"rule": "limited", "topic": LIMITED, "operation": "produce"}
        assert described["messages_refused"] == given_up, "as the topic counts them"
        assert cast(float, described["refused_per_second"]) > 0


async def test_durable_messages_that_are_too_old_do_not_come_back(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(durable=True, max_age_ns=5 * SECOND), memory=1) as (wires, gateway):
        link = Link(wires)
        link.say(b"".join(map(numbered, range(80))))
        wires.until(lambda: gateway.spool.written > 0 and gateway.spool.uncommitted == 0)

        def through() -> bool:
            wires.elapse(1)
            return wires.totals("amqp", LIMITED)["waiting"] == 0

        wires.until(through, within=30)
        dropped = wires.totals("amqp", LIMITED)["dropped"]
        assert dropped > 30
        end(wires, link)
        assert len(what_would_be_replayed(gateway)) <= 80 - dropped


@pytest.mark.parametrize("memory", [1 << 20, 1], ids=["memory", "disk"])
@pytest.mark.parametrize("confirms", [True, False], ids=["confirms", "none"])
def test_a_message_waits_no_longer_than_it_is_of_use(tmp_path: Path, memory: int, *, confirms: bool) -> None:
    """All of one read, alike but for that: five a second pass."""
    with spooling(tmp_path, spooled(drop_expired=True), memory=memory) as (wires, gateway):
        link = Link(wires, confirms=(1,) if confirms else ())
        lives = [("3000", None, "900000", "3000")[number % 4] for number in range(80)]
        link.say(b"".join(amqp.publish(1, "limited", b"x" * 40, expiration=each) for each in lives))
        wires.run()
        passed: list[str | None] = []

        def through() -> bool:
            wires.elapse(1)
            passed.extend(
                each.value.properties.expiration for each in amqp.read(link.at_broker()) if isinstance(each.value, header.ContentHeader)
            )
            return wires.totals("amqp", LIMITED)["waiting"] == 0

        wires.until(through, within=30)
        assert [each for each in passed if each != "3000"] == [each for each in lives if each != "3000"], "all others, in order"
        late = 40 - passed.count("3000")
        assert 20 <= late < 40
        totals = wires.totals("amqp", LIMITED)
        assert (totals["refused"], totals["dropped"]) == ((late, 0) if confirms else (0, late))
        assert wires.shared.spool_control.expired == late
        nacked = [each.tag - 1 for each in amqp.confirms(link.at_client()) if not each.acked]
        assert {lives[number] for number in nacked} == ({"3000"} if confirms else set())
        assert len(nacked) == (late if confirms else 0)
        assert (gateway.spool.messages, gateway.spool.topics) == (0, {})


def test_without_the_rules_word_expiration_is_the_brokers(tmp_path: Path) -> None:
    """It may be a delay: a queue without consumers that dead-letters what expires."""
    with spooling(tmp_path, spooled()) as (wires, _):
        link = Link(wires, confirms=(1,))
        link.say(amqp.publish(1, "limited", expiration="1") * 10)
        wires.elapse(5)
        assert len(published(link.at_broker())) == 10


async def test_max_age_holds_for_what_is_of_use_for_longer(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(drop_expired=True, max_age_ns=2 * SECOND)) as (wires, _):
        link = Link(wires, confirms=(1,))
        link.say(amqp.publish(1, "limited", expiration="900000") * 30)
        wires.elapse(8)
        assert 8 <= len(published(link.at_broker())) <= 14
        assert wires.shared.spool_control.expired == wires.totals("amqp", LIMITED)["refused"] >= 16


async def test_a_mandatory_message_is_returned_with_the_reason(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled()) as (wires, gateway):
        link = Link(wires, confirms=(1,))
        link.say(amqp.publish(1, "limited", mandatory=True) * 2)
        wires.run()
        await spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=False)
        wires.run()
        (back,) = [each.value for each in amqp.read(link.at_client()) if isinstance(each.value, commands.Basic.Return)]
        assert back.reply_text == f"RATE_LIMITED - {LIMITED} was given up by an operator"


async def test_a_transaction_is_not_discarded(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled()) as (wires, gateway):
        link = Link(wires)
        link.say(amqp.method(1, commands.Tx.Select()))
        link.say(amqp.publish(1, "limited") * 4)
        wires.run()
        assert (await spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=False))["messages"] == 0
        wires.elapse(2)
        assert published(link.at_broker()) == ["limited"] * 4


async def test_a_transaction_that_waits_in_the_spool_itself_is_not_torn(tmp_path: Path) -> None:
    """Its tx.select has not been forwarded when the discard comes."""
    with spooling(tmp_path, spooled()) as (wires, gateway):
        link = Link(wires)
        link.say(amqp.publish(1, "limited") * 3 + amqp.method(1, commands.Tx.Select()) + amqp.publish(1, "limited") * 2)
        wires.run()
        link.at_broker()
        await spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=False)
        wires.elapse(2)
        methods = [name for name in amqp.names(link.at_broker()) if not name.startswith("Content")]
        assert methods == ["Tx.Select", "Basic.Publish", "Basic.Publish"]
        assert wires.shared.spool_control.given_up == 2


# ---- drain ----------------------------------------------------------------------------------------------------------------


def lines(directory: Path, file: str = "out.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "drained" / file).read_text().splitlines()]


def numbered(number: int, topic: str = "limited") -> bytes:
    """Each of another size, so that it is a part of its own."""
    return amqp.publish(1, topic, f"{number} ".encode() + b"x" * number, message_id=str(number))


async def test_what_is_drained_is_in_the_file_and_given_up_and_nothing_else(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(), spooled("other"), memory=1) as (wires, gateway):
        link = Link(wires, confirms=(1,))
        link.say(b"".join(numbered(number, "other" if number % 3 == 0 else "limited") for number in range(300)))
        wires.until(lambda: gateway.spool.written > 10_000)
        passed = published(link.at_broker())
        assert await spool_operations.drain(gateway, ("amqp", LIMITED), "dry.jsonl", dry_run=True) == {
            **await spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=True), "files": [],
        }  # fmt: skip
        done = await spool_operations.drain(gateway, ("amqp", LIMITED), "out.jsonl")
        assert (done["files"], done["faults"]) == ([str(tmp_path / "drained" / "out.jsonl")], [])
        found = lines(tmp_path)
        wanted = [number for number in range(300) if number % 3][passed.count("limited") :]
        assert [int(line["body"].split()[0]) for line in found] == wanted
        assert done["messages"] == len(wanted)
        assert found[0] == {
            "exchange": "", "routing_key": "limited", "mandatory": False, "properties": {"delivery_mode": 1, "message_id": str(wanted[0])},
            "body": f"{wanted[0]} " + "x" * wanted[0],
        }  # fmt: skip
        assert (tmp_path / "drained" / "out.jsonl").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "drained").stat().st_mode & 0o777 == 0o700

        def through() -> bool:
            wires.elapse(2)
            passed.extend(published(link.at_broker()))
            return wires.shared.spool_control.given_up == len(wanted) and passed.count("other") == 100

        wires.until(through, within=30)
        assert passed.count("limited") + len(wanted) == 200
        nacked = [each.tag - 1 for each in amqp.confirms(link.at_client()) if not each.acked]
        assert nacked == wanted
        wires.until(lambda: bool(gateway.spool.used == 0), within=30)


@pytest.mark.parametrize("fault", ["there", "damaged", "rules"])
async def test_nothing_is_given_up_that_is_not_in_the_file(tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with spooling(tmp_path, spooled(), memory=1) as (wires, gateway):
        link = Link(wires, confirms=(1,))
        link.say(b"".join(map(numbered, range(200))))
        wires.until(lambda: gateway.spool.written > 10_000)
        before = len(published(link.at_broker()))
        (tmp_path / "drained").mkdir()
        if fault == "there":
            (tmp_path / "drained" / "out.jsonl").write_text("mine")
        elif fault == "damaged":
            for file in (tmp_path / "spool").glob("*/[0-9]*"):
                with file.open("r+b") as opened:
                    opened.seek(8_000)
                    opened.write(b"damage")
        else:
            monkeypatch.setattr(spool_operations, "sync_folder", lambda _: setattr(gateway.rule_source, "revision", 2))
        if fault == "there":
            for dry_run in (True, False):
                with pytest.raises(FileExistsError, match=r"out\.jsonl is there already.*drain to another name"):
                    await spool_operations.drain(gateway, ("amqp", LIMITED), "out.jsonl", dry_run=dry_run)
        else:
            done = await spool_operations.drain(gateway, ("amqp", LIMITED), "out.jsonl")
            assert (done["messages"], done["files"]) == (0, [])
            assert {"damaged": "checksum", "rules": "the rules were changed"}[fault] in str(done["faults"])
        files = {file.name: file.read_text() for file in (tmp_path / "drained").iterdir()}
        assert files == ({"out.jsonl": "mine"} if fault == "there" else {})
        if fault == "damaged":
            return  # what is behind it is lost to its client, too, who is told when its turn comes
        passed = before

        def through() -> bool:
            nonlocal passed
            wires.elapse(2)
            passed += len(published(link.at_broker()))
            return passed == 200

        wires.until(through, within=30)
        assert wires.shared.spool_control.given_up == 0


@pytest.mark.parametrize("action", ["discard", "drain"])
async def test_a_fault_of_our_own_gives_up_nothing_and_is_answered(
    tmp_path: Path, action: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended the worker, with all its connections."""

    def fails(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(spool_operations, "_scan", fails)
    monkeypatch.setattr(spool_operations, "_write", fails)
    with spooling(tmp_path, spooled(durable=True), memory=1) as (wires, gateway):
        link = Link(wires)
        link.say(b"".join(map(numbered, range(50))))
        wires.until(lambda: gateway.spool.written > 0 and gateway.spool.uncommitted == 0)
        arguments: dict[str, Any] = {"file": "out.jsonl"} if action == "drain" else {"dry_run": False}
        done = await while_it_runs(wires, spool_operations.give_up(gateway, action, ("amqp", LIMITED), arguments))
        assert (done["messages"], done["connections"]) == (0, 0)
        assert "RuntimeError: a fault of ours; nothing is given up" in str(done["faults"])
        assert [record.getMessage() for record in caplog.records] == ["spool_operation_failed"]
        passed: list[str] = []

        def through() -> bool:
            wires.elapse(1)
            passed.extend(published(link.at_broker()))
            return len(passed) == 50

        wires.until(through, within=30)


@pytest.mark.parametrize("action", ["discard", "drain"])
async def test_a_fault_before_anything_is_looked_at_is_answered(
    tmp_path: Path, action: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(spool_operations, "_spooling", fails)
    with spooling(tmp_path, spooled()) as (_, gateway):
        arguments: dict[str, Any] = {"file": "out.jsonl"} if action == "drain" else {"dry_run": False}
        done = await spool_operations.give_up(gateway, action, ("amqp", LIMITED), arguments)
        assert done == {
            "messages": 0, "bytes": 0, "connections": 0, "connection_ids": [], "files": [],
            "faults": ["RuntimeError: a fault of ours; whether anything is given up is not known: look at what waits"],
        }  # fmt: skip
        assert [record.getMessage() for record in caplog.records] == ["spool_operation_failed"]


@pytest.mark.parametrize("durable", [False, True], ids=["lost with the gateway", "durable"])
async def test_two_discards_at_once_tell_each_message_once(tmp_path: Path, *, durable: bool) -> None:
    with spooling(tmp_path, spooled(durable=durable), memory=1) as (wires, gateway):
        link = Link(wires)
        link.say(b"".join(map(numbered, range(200))))
        wires.until(lambda: gateway.spool.written > 10_000 and gateway.spool.uncommitted == 0)
        passed = len(published(link.at_broker()))
        told: list[int] = []

        async def give_up() -> None:
            done = await spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=False)
            assert done["faults"] == []
            told.append(int(str(done["messages"])))

        async def both() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(give_up)
                nursery.start_soon(give_up)

        await while_it_runs(wires, both())
        assert sorted(told) == [0, 200 - passed]
        preview = await spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=True)
        assert preview["messages"] == 0, "what is given up already is not told again"

        def through() -> bool:
            wires.elapse(1)
            return bool(gateway.spool.messages == 0 and link.session.budget.held_messages == 0)

        wires.until(through, within=30)
        assert wires.shared.spool_control.given_up == 200 - passed


async def test_what_comes_between_two_discards_is_told_by_the_second(tmp_path: Path) -> None:
    """Both are at work when the first messages' turn comes."""
    with spooling(tmp_path, spooled(), spooled("other"), memory=1) as (wires, gateway):
        link = Link(wires)
        link.say(b"".join(numbered(number, "other" if number % 3 == 0 else "limited") for number in range(150)))
        wires.until(lambda: gateway.spool.written > 0)
        first = await spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=False)
        link.say(b"".join(map(numbered, range(150, 200))))
        wires.run()
        waiting = gateway.spool.topics["amqp", LIMITED].messages
        second = await spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=False)
        assert int(str(first["messages"])) + int(str(second["messages"])) >= waiting
        assert second["messages"] == 50

        def through() -> bool:
            wires.elapse(1)
            return bool(gateway.spool.messages == 0)

        wires.until(through, within=60)
        assert wires.shared.spool_control.given_up == int(str(first["messages"])) + 50


@pytest.mark.parametrize("second", ["drain", "discard"])
async def test_what_a_failed_drain_left_is_given_up_by_the_next_order_at_once(tmp_path: Path, second: str) -> None:
    """What it had marked was left out until its turn had come."""
    with spooling(tmp_path, spooled(), memory=1) as (wires, gateway):
        link = Link(wires, confirms=(1,))
        link.say(b"".join(map(numbered, range(200))))
        wires.until(lambda: gateway.spool.written > 10_000)
        passed = len(published(link.at_broker()))
        (copy,) = link.session.conversation.copy_spooled(LIMITED)
        copy.order.state = CALLED_OFF
        copy.release()
        doing = (
            spool_operations.drain(gateway, ("amqp", LIMITED), "out.jsonl")
            if second == "drain"
            else spool_operations.discard(gateway, ("amqp", LIMITED), dry_run=False)
        )
        done = await while_it_runs(wires, doing)
        assert (done["messages"], done["faults"]) == (200 - passed, [])
        wires.until(lambda: wires.shared.spool_control.given_up == 200 - passed, within=30)


async def test_many_durable_messages_are_removed_in_slices(tmp_path: Path) -> None:
    """All places were packed in one turn of the event loop."""
    with spooling(tmp_path, spooled(durable=True), spooled("other", durable=True), memory=1) as (wires, gateway):
        link = Link(wires)
        count = 10 * spool_operations.REMOVE_SLICE
        link.say(b"".join(amqp.publish(1, ("limited", "other")[number % 2], b"x") for number in range(2 * count)))
        wires.until(lambda: gateway.spool.written > 0 and gateway.spool.uncommitted == 0)
        passed = published(link.at_broker()).count("limited")
        (copy,) = link.session.conversation.copy_spooled(LIMITED, only_durable=True)
        await trio.to_thread.run_sync(copy.scan, trio.from_thread.run_sync)
        assert copy.messages == count - passed
        segments = cast(Any, link.session.conversation).channels[1].spool.files.removals.segments
        steps: list[int] = []
        faults: list[str] = []

        def size() -> int:
            return sum(file.stat().st_size for file in (tmp_path / "spool").glob("*/*.removed"))

        async def count_turns() -> None:
            while True:
                steps.append(sum(segment.removed for segment in segments.values()))
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count_turns)
            await while_it_runs(wires, spool_operations._remove([copy], faults))
            nursery.cancel_scope.cancel()
        assert faults == []
        assert steps[-1] == size() >= copy.messages * RANGE.size
        most = 2 * (HEAD.size + RANGE.size * spool_operations.REMOVE_SLICE)  # trio runs the tasks of a round in any order
        assert max(after - before for before, after in pairwise(steps)) <= most
        copy.order.state = CALLED_OFF
        copy.release()


async def test_a_message_that_is_still_coming_in_is_neither_copied_nor_given_up(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(), memory=1) as (wires, gateway):
        link = Link(wires, confirms=(1,))
        large = amqp.publish(1, "limited", b"y" * 100_000, cut=20_000)
        link.say(b"".join(map(numbered, range(50))) + large[:70_000])
        wires.run()
        gone = len(published(link.at_broker()))
        done = await spool_operations.drain(gateway, ("amqp", LIMITED), "out.jsonl")
        assert done["messages"] == 50 - gone == len(lines(tmp_path))
        link.say(large[70_000:])
        for _ in range(20):
            wires.elapse(1)
            wires.run()
        assert b"y" * 20_000 in link.at_broker()
        assert wires.shared.spool_control.given_up == 50 - gone


async def test_what_is_being_copied_waits_and_goes_on_when_that_is_called_off(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(), memory=1) as (wires, _):
        link = Link(wires, confirms=(1,))
        link.say(b"".join(map(numbered, range(100))))
        wires.run()
        link.at_broker()
        (copy,) = link.session.conversation.copy_spooled(LIMITED)
        wires.elapse(20)
        assert published(link.at_broker()) == []
        assert description.bottleneck(link.session, wires.now()) == "paused"
        copy.order.state = CALLED_OFF
        copy.release()
        link.session.conversation.wake_spooled(LIMITED)
        wires.sweeper.wake(link.session)
        passed: list[str] = []

        def go_on() -> bool:
            wires.elapse(1)
            passed.extend(published(link.at_broker()))
            return len(passed) > 10

        wires.until(go_on, within=30)


async def test_a_client_that_goes_while_it_is_copied_ends_nothing(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(), memory=1) as (wires, gateway):
        link = Link(wires, confirms=(1,))
        link.say(b"".join(map(numbered, range(200))))
        wires.until(lambda: gateway.spool.written > 10_000)
        copies = link.session.conversation.copy_spooled(LIMITED)
        waiting = gateway.spool.messages
        link.session.abort("admin", "closed")
        wires.sweeper.end(link.session)
        wires.run()
        found = await trio.to_thread.run_sync(lambda: [line for copy in copies for line in copy.lines(trio.from_thread.run_sync)])
        assert len(found) >= waiting
        for copy in copies:
            copy.release()
        wires.until(lambda: bool(gateway.spool.used == 0), within=30)


async def test_a_message_is_told_with_all_that_it_has() -> None:
    properties = commands.Basic.Properties(
        content_type="text/plain", headers={"n": 1, "blob": bytearray(b"\xff"), "list": ["a"], "at": datetime(2026, 11, 26, tzinfo=UTC)},
        timestamp=datetime(2026, 11, 26, tzinfo=UTC), message_type="order", expiration="100", delivery_mode=2, priority=3,
    )  # fmt: skip
    content = amqp.method(1, header.ContentHeader(0, 3, properties)) + amqp.raw_frame(3, 1, b"\xff\x00") + amqp.raw_frame(3, 1, b"a")
    publish = amqp.method(1, commands.Basic.Publish(exchange="orders", routing_key="k", mandatory=True)) + content
    told = json.loads(json.dumps(spool_copy.message_of(publish), default=spool_copy.plain))
    assert told == {
        "exchange": "orders", "routing_key": "k", "mandatory": True, "body_base64": "/wBh",
        "properties": {
            "content_type": "text/plain", "timestamp": 1795651200, "type": "order", "expiration": "100", "delivery_mode": 2, "priority": 3,
            "headers": {"n": 1, "blob": {"base64": "/w=="}, "list": ["a"], "at": 1795651200},
        },
    }  # fmt: skip
