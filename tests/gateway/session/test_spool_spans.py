"""Spans of messages that wait in the spool: made when they leave, as long as they waited, from memory and from files alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pamqp import commands, header

from gateway.pipeline.conversation import REFUSED
from gateway.pipeline.message_spans import ABANDONED, FORWARDED, SpanRecord, SpanRecorder
from gateway.telemetry.span_export import attributes, name_of
from gateway.waiting.disk.waiting_disk import WaitingDisk
from limiter.limits import Limit, Rate
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.rules.rule_set import RuleSet
from support.amqp import frames as amqp
from support.amqp.link import Link
from support.rocketmq import frames as rocketmq
from support.wires.spooling import elapse, spooling, work
from support.wires.wires import Wires

SECOND = 1_000_000_000
COUNT = 60
PER_SECOND = 10
BURST = 5


def spooled(**more: Any) -> Rule:
    match = Match(protocol="amqp", routing_key="limited") if more.pop("amqp", True) else Match(protocol="rocketmq", topic="limited")
    return Rule("bursts", match, limit=Limit(messages=Rate(PER_SECOND), messages_burst=BURST), open_for_ns=0, action="spool", **more)


def traceparent(number: int) -> str:
    return f"00-{number + 1:032x}-b7ad6b7169203331-01"


def publish(number: int, topic: str = "limited") -> bytes:
    properties = commands.Basic.Properties(headers={"traceparent": traceparent(number)})
    content = amqp.method(1, header.ContentHeader(0, 100, properties)) + amqp.raw_frame(3, 1, bytes(100))
    return amqp.method(1, commands.Basic.Publish(routing_key=topic)) + content


def send(number: int, *, one_way: bool = True) -> bytes:
    extra: dict[str, rocketmq.Value] = {"a": "producers", "b": "limited", "i": f"traceparent\x01{traceparent(number)}\x02"}
    return rocketmq.encode_request(310, extra, bytes(100), opaque=number, flag=2 if one_way else 0)


def number_of(record: SpanRecord) -> int:
    return int(record.traceparent[3:35], 16) - 1


def seconds(record: SpanRecord) -> float:
    return (record.ended_at - record.started_at) / SECOND


def traced(wires: Wires, per_second: int = 10_000) -> SpanRecorder:
    wires.shared.spans = recorder = SpanRecorder(1000, per_second)
    return recorder


def on_disk(wires: Wires, disk: WaitingDisk) -> bool:
    wires.run()
    work(disk)
    wires.run()
    return disk.written > 0


@pytest.mark.parametrize("confirms", [(1,), ()], ids=["confirms", "plain"])
def test_a_spooled_message_has_a_span_as_long_as_it_waited(tmp_path: Path, confirms: tuple[int, ...]) -> None:
    with spooling(tmp_path, spooled()) as (wires, disk):
        recorder = traced(wires)
        link = Link(wires, confirms=confirms)
        for number in range(COUNT):
            link.say(publish(number))
        assert on_disk(wires, disk)
        assert len(recorder.records) < COUNT / 2, "of what has left by now"
        assert recorder.waiting == 0, "what waits in files takes no memory for its span"
        elapse(wires, disk, COUNT / PER_SECOND + 2)
        records = recorder.take()
        assert [number_of(record) for record in records] == list(range(BURST, COUNT)), "the first ones passed at once"
        assert {record.outcome for record in records} == {FORWARDED}
        for record in records:
            assert seconds(record) == pytest.approx((number_of(record) - BURST) / PER_SECOND, abs=1)
            assert (name_of(record), record.key.text) == ("spooled", "%2F/amq.default/limited")
            found = attributes(record, "here")
            assert (found["sluice.rule"], found["sluice.limit"], found["sluice.action"]) == ("bursts", "10/s", "spool")
            assert (found["sluice.outcome"], found["messaging.message.body.size"]) == ("forwarded", 100)
        assert recorder.not_looked_at == 0


def test_what_waits_behind_another_topic_has_a_span_without_a_rule(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled()) as (wires, disk):
        recorder = traced(wires)
        link = Link(wires)
        for number in range(COUNT):
            link.say(publish(number, "other" if number == COUNT - 1 else "limited"))
        assert on_disk(wires, disk)
        elapse(wires, disk, COUNT / PER_SECOND + 2)
        (last,) = [record for record in recorder.take() if record.rule is None]
        assert (number_of(last), last.key.text, last.outcome) == (COUNT - 1, "%2F/amq.default/other", FORWARDED)
        assert seconds(last) > (COUNT - BURST) / PER_SECOND - 1
        assert "sluice.rule" not in attributes(last, "here")


def test_what_was_given_up_in_the_end_has_a_span_as_long_as_it_waited(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(max_age_ns=2 * SECOND)) as (wires, disk):
        recorder = traced(wires)
        link = Link(wires, confirms=(1,))
        for number in range(COUNT):
            link.say(publish(number))
        assert on_disk(wires, disk)
        elapse(wires, disk, 8)
        records = recorder.take()
        given_up = [record for record in records if record.outcome == REFUSED]
        assert len(given_up) == wires.totals("amqp", "%2F/amq.default/limited")["refused"] > 10
        assert sorted(number_of(record) for record in records) == list(range(BURST, COUNT))
        assert all(seconds(record) >= 1.5 for record in given_up)
        assert {name_of(record) for record in given_up} == {"refused"}


def test_a_client_that_is_gone_leaves_spans_of_what_was_still_in_memory(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled()) as (wires, disk):
        recorder = traced(wires)
        link = Link(wires)
        for number in range(COUNT):
            link.say(publish(number))
        assert on_disk(wires, disk)
        link.broker.close()
        link.client.close()
        wires.until(lambda: len(wires.ended) == 1)
        records = recorder.take()
        assert records
        assert {(record.outcome, name_of(record)) for record in records} <= {(ABANDONED, "spooled"), (FORWARDED, "spooled")}
        lost = [record for record in records if record.outcome == ABANDONED]
        assert lost
        assert attributes(lost[0], "here")["error.type"] == "abandoned"
        assert len(lost) + recorder.not_looked_at == wires.totals("amqp", "%2F/amq.default/limited")["abandoned"]


def test_a_second_has_its_budget(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled()) as (wires, disk):
        recorder = traced(wires, per_second=3)
        link = Link(wires)
        for number in range(COUNT):
            link.say(publish(number))
        assert on_disk(wires, disk)
        wires.enforce(RuleSet(()))
        elapse(wires, disk, 8)
        assert len(recorder.take()) == 3
        assert recorder.not_looked_at == COUNT - BURST - 3
        link.say(publish(COUNT) * 2)
        assert recorder.take() == [], "without a rule nothing waits"


def test_one_way_sends_have_spans_and_so_have_those_that_cannot_wait(tmp_path: Path) -> None:
    with spooling(tmp_path, spooled(amqp=False)) as (wires, disk):
        recorder = traced(wires)
        client, broker = wires.connect("rocketmq")
        for number in range(COUNT):
            client.sendall(send(number))
            wires.run(0.001)
        assert on_disk(wires, disk)
        client.sendall(send(COUNT, one_way=False))
        wires.run()
        records = recorder.take()
        (refused,) = [record for record in records if record.outcome != FORWARDED]
        assert (number_of(refused), refused.outcome, name_of(refused), seconds(refused)) == (COUNT, REFUSED, "refused", 0)
        elapse(wires, disk, COUNT / PER_SECOND + 2)
        wires.received(broker)
        records = [record for record in records if record is not refused] + recorder.take()
        assert [number_of(record) for record in records] == list(range(BURST, COUNT))
        assert {(record.outcome, name_of(record)) for record in records} == {(FORWARDED, "spooled")}
        assert seconds(records[-1]) == pytest.approx((COUNT - BURST) / PER_SECOND, abs=1)
