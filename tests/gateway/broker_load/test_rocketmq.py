"""What a RocketMQ broker says of a group's offsets, as it says it: tables whose keys are objects."""

from __future__ import annotations

import json

import pytest

from gateway.broker_load.rocketmq import read_answer, request
from gateway.broker_load.source import BacklogError

BODY = (
    b'{"consumeTps":12.5,"offsetTable":{{"brokerName":"a","queueId":0,"topic":"orders"}:'
    b'{"brokerOffset":120,"consumerOffset":100,"lastTimestamp":7,"pullOffset":110},'
    b'{"brokerName":"a","queueId":1,"topic":"orders"}:{"brokerOffset":40,"consumerOffset":-1,"lastTimestamp":0,"pullOffset":0}}}'
)


def frame(body: bytes = b"", **header: object) -> bytes:
    encoded = json.dumps({"code": 0, "flag": 1, "opaque": 7} | header).encode()
    return len(encoded).to_bytes(4, "big") + encoded + body


def test_the_request_names_group_and_topic() -> None:
    asked = request(7, "orders", "billing")
    assert int.from_bytes(asked[:4], "big") == len(asked) - 4
    header = json.loads(asked[8 : 8 + int.from_bytes(asked[4:8], "big")])
    assert (header["code"], header["opaque"], header["extFields"]) == (208, 7, {"consumerGroup": "billing", "topic": "orders"})


def test_waiting_messages_are_summed_over_the_queues_and_a_queue_never_read_has_taken_nothing() -> None:
    assert read_answer(frame(BODY), 7) == 60


def test_offsets_ahead_of_the_queue_are_no_negative_backlog() -> None:
    assert read_answer(frame(b'{"brokerOffset":5,"consumerOffset":9}'), 7) == 0


@pytest.mark.parametrize("header", [{"opaque": 8}, {"flag": 0}])
def test_an_answer_to_another_request_is_passed_over(header: dict[str, object]) -> None:
    assert read_answer(frame(BODY, **header), 7) is None


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (frame(code=17, remark="topic[orders] not exist"), r"code 17: topic\[orders\] not exist"),
        (frame(b'{"offsetTable":{}}'), "no offsets in this topic yet"),
        (frame(b'{"brokerOffset":5}'), "no offsets in this topic yet"),
        ((5).to_bytes(4, "big") + b"{nope", "not understood"),
    ],
)
def test_a_backlog_that_cannot_be_told_has_a_reason(answer: bytes, words: str) -> None:
    with pytest.raises(BacklogError, match=words):
        read_answer(answer, 7)
