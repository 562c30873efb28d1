"""What a broker is asked to see that it lives, and which answers are whole, half or none."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from gateway.protocols.amqp import question as amqp_question
from gateway.protocols.question import MAX_ANSWER_BYTES, WrongAnswerError
from gateway.protocols.rocketmq import question as rocketmq_question
from support.amqp import frames as amqp


def answer(said: Any, length: int | None = None) -> bytes:
    header = said if isinstance(said, bytes) else json.dumps(said).encode()
    return struct.pack("!II", 4 + len(header) if length is None else length, len(header)) + header


@pytest.mark.parametrize("data", [amqp.broker_start(), b"AMQP\x00\x00\x08\x00"])
def test_amqp_is_answered_by_connection_start_or_the_header_of_another_version(data: bytes) -> None:
    assert amqp_question.QUESTION.send == amqp.PROTOCOL_HEADER
    for cut in range(len(data)):
        assert not amqp_question.is_answer(data[:cut])
    assert amqp_question.is_answer(data)


@pytest.mark.parametrize("header", [b"AMQP\x00\x00\x09\x01", b"AMQP\x03\x01\x00\x00"])
def test_a_broker_that_answers_with_the_header_that_was_sent_has_heard_something_else(header: bytes) -> None:
    with pytest.raises(WrongAnswerError, match="takes what it was sent for another protocol") as raised:
        amqp_question.is_answer(header + b"more")
    assert raised.value.misheard


@pytest.mark.parametrize("data", [b"HTTP/1.1 400", b"\x01\x00\x01", b"\x02", amqp.opened(1), amqp.broker_start()[:7] + b"\x00\x0a\x00\x0b"])
def test_what_is_no_amqp_says_how_it_began(data: bytes) -> None:
    with pytest.raises(WrongAnswerError, match="does not speak AMQP") as raised:
        amqp_question.is_answer(data)
    assert not raised.value.misheard
    assert repr(data[:8]) in str(raised.value)


def test_rocketmq_is_asked_for_a_route_that_nobody_has() -> None:
    sent = rocketmq_question.QUESTION.send
    size, length = struct.unpack_from("!II", sent)
    asked = json.loads(sent[8:])
    assert (size, length) == (len(sent) - 4, len(sent) - 8)
    assert (asked["code"], asked["flag"], asked["opaque"], asked["extFields"]) == (105, 0, 1, {"topic": "sluice-looks-for-a-broker"})


def test_rocketmq_answers_with_any_code_and_in_any_pieces() -> None:
    for said in ({"code": 17, "flag": 1, "opaque": 1, "remark": "none"}, {"code": 0, "flag": 3, "opaque": 1}):
        data = answer(said)
        for cut in range(len(data)):
            assert not rocketmq_question.is_answer(data[:cut])
        assert rocketmq_question.is_answer(data)
        assert rocketmq_question.answer_code(data) == said["code"]


@pytest.mark.parametrize(
    "said",
    [
        {"code": 0, "flag": 0, "opaque": 1}, {"code": 0, "flag": 1, "opaque": 2}, {"flag": 1, "opaque": 1}, {"code": 0, "opaque": 1}, [1],
        {"code": "0", "flag": 1, "opaque": 1}, {"code": 0, "flag": "1", "opaque": 1}, b"{", b"\xff",
    ],
)  # fmt: skip
def test_what_is_no_answer_of_rocketmqs_is_none(said: Any) -> None:
    data = answer(said)
    assert rocketmq_question.answer_code(data) is None
    with pytest.raises(WrongAnswerError, match="does not speak RocketMQ's remoting protocol"):
        rocketmq_question.is_answer(data)


def test_an_answer_is_bounded_and_half_a_head_is_none() -> None:
    assert not rocketmq_question.is_answer(struct.pack("!I", MAX_ANSWER_BYTES - 4))
    with pytest.raises(WrongAnswerError, match="it began with"):
        rocketmq_question.is_answer(struct.pack("!I", MAX_ANSWER_BYTES - 3))
    assert rocketmq_question.answer_code(b"\0\0\0\1\0") is None
    binary = bytearray(answer({"code": 3, "flag": 1, "opaque": 1}))
    binary[4] = 1  # the kind of the header is not looked at
    assert rocketmq_question.answer_code(bytes(binary)) == 3
