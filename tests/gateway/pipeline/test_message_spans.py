"""Records of refused and delayed messages: one for each that carries a trace context, within the budget, and none for what passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pamqp import commands, header

from gateway.counting.accounts import Accounts
from gateway.pipeline.conversation import DROPPED, REFUSED
from gateway.pipeline.handlers.rate_limit import RateLimit
from gateway.pipeline.message_spans import ABANDONED, FORWARDED, LOOKS_PER_SPAN, MAX_RECORDS, MAX_WAITING, MessageSpans, SpanRecorder
from gateway.pipeline.pipeline import Batch
from gateway.waiting.stage import Wait
from limiter.credit import Credit
from support.amqp import frames as amqp
from support.rocketmq import frames as rocketmq
from support.wires.conversations import SECOND, Talk, rule

if TYPE_CHECKING:
    from gateway.pipeline.parts import Part
    from limiter.request import Request
    from limiter.rules.rule import Rule

PROTOCOLS = ("amqp", "rocketmq")


def traceparent(number: int, flags: str = "01") -> str:
    return f"00-{number + 1:032x}-b7ad6b7169203331-{flags}"


def message(protocol: str, value: str | None, *, topic: str = "orders", channel: int = 1, opaque: int = 1, one_way: bool = False) -> bytes:
    if protocol == "amqp":
        properties = commands.Basic.Properties(headers=None if value is None else {"traceparent": value})
        content = amqp.method(channel, header.ContentHeader(body_size=5, properties=properties)) + amqp.raw_frame(3, channel, b"hello")
        return amqp.method(channel, commands.Basic.Publish(routing_key=topic)) + content
    extra: dict[str, rocketmq.Value] = {"a": "producers", "b": topic, "i": "" if value is None else f"traceparent\x01{value}\x02"}
    return rocketmq.encode_request(310, extra, b"hello", opaque=opaque, flag=2 if one_way else 0)


class Traced(Talk):
    """A conversation with the handler that traces."""

    def __init__(self, protocol: str, *rules: Rule, sampling: int = 1000, per_second: int = 100) -> None:
        super().__init__(protocol, *rules)
        self.protocol = protocol
        self.recorder = SpanRecorder(sampling, per_second)
        self.spans = MessageSpans(self.recorder, self.conversation)
        self.handler = Wait(self.conversation, Credit(100_000, 1), Credit(100_000, 1), Accounts(), self.spans)
        if protocol == "amqp":
            self.client(amqp.greeting(channels=(1, 2), confirms=(1,)))
            self.broker(amqp.broker_opens())

    def settle(self, parts: list[Part]) -> None:
        batch = Batch(self, b"", self.now)
        batch.parts = parts
        RateLimit(self.conversation).carry(batch)
        requests: list[Request] = list(batch.requests)
        self.judge.decide(requests, self.now)
        self.handler.carry(batch)
        self.flush()

    def send(self, *numbers: int, flags: str = "01") -> None:
        self.client(b"".join(message(self.protocol, traceparent(number, flags), opaque=number) for number in numbers))

    def taken(self) -> list[tuple[int, int]]:
        """Which messages have records, and their outcomes."""
        return [(int(record.traceparent[3:35], 16) - 1, record.outcome) for record in self.recorder.take()]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_refused_message_has_a_record_and_none_that_passed(protocol: str) -> None:
    talk = Traced(protocol, rule(messages=2, name="two"))
    talk.send(0, 1, 2, 3, 4)
    assert talk.taken() == [(2, REFUSED), (3, REFUSED), (4, REFUSED)]
    assert talk.recorder.not_looked_at == 0
    assert talk.forwarded == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_record_says_by_which_limit_and_for_how_long(protocol: str) -> None:
    talk = Traced(protocol, rule(messages=2, name="two"))
    talk.send(0, 1, 2)
    (record,) = talk.recorder.take()
    assert record.rule is not None
    assert (record.rule.name, record.origin, record.size, record.messages) == ("two", "default", 5, 1)
    assert record.wait_ns == SECOND // 2
    assert record.key.text.endswith("orders")
    assert record.started_at == record.ended_at > 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_delayed_message_has_a_record_from_its_wait_to_its_forwarding(protocol: str) -> None:
    talk = Traced(protocol, rule("delay", messages=2, burst=1, max_delay_ns=2 * SECOND))
    talk.send(0, 1, 2)
    assert talk.taken() == []
    assert talk.recorder.waiting == 2
    talk.wait(2 * SECOND)
    records = talk.recorder.take()
    assert [(int(record.traceparent[3:35], 16) - 1, record.outcome) for record in records] == [(1, FORWARDED), (2, FORWARDED)]
    waits = [record.ended_at - record.started_at for record in records]
    assert SECOND // 2 <= waits[0] <= SECOND * 7 // 10
    assert SECOND <= waits[1] <= SECOND * 12 // 10
    assert (talk.recorder.waiting, talk.spans.waiting, talk.forwarded) == (0, {}, 3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_waited_in_vain_has_one_record_as_refused(protocol: str) -> None:
    talk = Traced(protocol, rule("delay", messages=1, burst=1, max_delay_ns=SECOND // 2))
    talk.send(0, 1)
    talk.wait(SECOND)
    (record,) = talk.recorder.take()
    assert record.outcome == REFUSED
    assert record.ended_at - record.started_at == SECOND // 2
    assert talk.recorder.waiting == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_waits_at_the_connection_s_end_is_given_up(protocol: str) -> None:
    talk = Traced(protocol, rule("delay", messages=1, burst=1, max_delay_ns=SECOND))
    talk.send(0, 1, 2)
    parts = talk.conversation.abandon()
    talk.spans.give_up(parts[0])
    talk.spans.close()
    assert [outcome for _, outcome in talk.taken()] == [ABANDONED, ABANDONED]
    assert (talk.recorder.waiting, talk.spans.waiting) == (0, {})


def test_a_message_without_an_answer_is_recorded_as_dropped() -> None:
    talk = Traced("rocketmq", rule(messages=1, burst=1))
    talk.client(message("rocketmq", traceparent(0), one_way=True) + message("rocketmq", traceparent(1), one_way=True))
    assert talk.taken() == [(1, DROPPED)]


def test_a_channel_without_confirms_waits_and_is_recorded_once() -> None:
    talk = Traced("amqp", rule(messages=1, burst=1))
    talk.client(message("amqp", traceparent(0), channel=2) + message("amqp", traceparent(1), channel=2))
    talk.wait(2 * SECOND)
    assert talk.taken() == [(1, FORWARDED)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_recorded_without_a_sampled_trace_context(protocol: str) -> None:
    talk = Traced(protocol, rule(messages=1, burst=1))
    talk.send(0, 1, flags="00")
    talk.client(message(protocol, None) + message(protocol, "traceparent") + message(protocol, traceparent(3).upper()))
    assert talk.taken() == []
    assert talk.recorder.not_looked_at == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_ratio_takes_traces_by_their_ids(protocol: str) -> None:
    talk = Traced(protocol, rule(messages=1, burst=1), sampling=500)
    talk.send(0)
    low, high = "00000000000000017fffffffffffffff", "00000000000000018000000000000000"
    talk.client(b"".join(message(protocol, f"00-{trace_id}-b7ad6b7169203331-01") for trace_id in (low, high)))
    assert [record.traceparent[3:35].decode() for record in talk.recorder.take()] == [low]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_beyond_the_second_s_budget_nothing_is_looked_at(protocol: str) -> None:
    talk = Traced(protocol, rule(messages=1, burst=1), per_second=3)
    talk.send(*range(6))
    talk.send(6, 7)
    assert [number for number, _ in talk.taken()] == [1, 2, 3]
    assert talk.recorder.not_looked_at == 4
    talk.send(8)
    assert [number for number, _ in talk.taken()] == [8], "the next second has a budget of its own"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_messages_without_a_trace_context_cannot_use_up_more_than_the_looks(protocol: str) -> None:
    talk = Traced(protocol, rule(messages=1, burst=1), per_second=2)
    for _ in range(2 * LOOKS_PER_SPAN + 1):
        talk.client(message(protocol, None))
    talk.send(1)
    assert talk.taken() == []
    assert talk.recorder.not_looked_at == 1


def test_records_that_wait_are_bounded() -> None:
    recorder = SpanRecorder(1000, 10_000)
    talk = Traced("rocketmq", rule(messages=1, burst=1))
    talk.recorder = talk.spans.recorder = recorder
    for first in range(0, MAX_RECORDS + 100, 100):
        talk.send(*range(first, first + 100))
    assert len(recorder.records) == MAX_RECORDS
    assert recorder.overflowed > 0
    recorder.take()
    held = Traced("rocketmq", rule("delay", messages=1, burst=1, max_delay_ns=2 * SECOND))
    held.recorder = held.spans.recorder = recorder
    for first in range(0, MAX_WAITING + 100, 100):
        held.send(*range(first, first + 100))
    assert recorder.waiting == MAX_WAITING
    held.spans.close()
    assert recorder.waiting == 0


def test_requests_for_messages_and_send_backs_are_not_looked_at() -> None:
    talk = Traced("rocketmq", rule("reject", messages=1, burst=1))
    talk.client(rocketmq.send_back(opaque=1) + rocketmq.send_back(opaque=2) + rocketmq.send_back(opaque=3))
    assert talk.taken() == []
