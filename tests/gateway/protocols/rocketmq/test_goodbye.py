"""GO_AWAY: to whom it is said, and how it looks to them."""

from __future__ import annotations

import pytest

from gateway.protocols.rocketmq.goodbye import build_go_away, understands
from support.rocketmq.frames import encode_request, read_response, send, split_frames
from support.wires.conversations import Talk, rule


@pytest.mark.parametrize(
    ("language", "version", "expected"),
    [("JAVA", 476, True), ("JAVA", 493, True), ("JAVA", 475, False), ("JAVA", -1, False), ("GO", 493, False), ("", 479, False)],
)
def test_only_java_above_5_3_1_understands(language: str, version: int, *, expected: bool) -> None:
    assert understands(language, version) is expected


def test_each_request_gets_an_answer_of_its_own() -> None:
    headers = [read_response(one) for one in split_frames(build_go_away([1, -7, 2**31 - 1]))]
    assert [(header["code"], header["opaque"], header["flag"]) for header in headers] == [(1500, 1, 1), (1500, -7, 1), (1500, 2**31 - 1, 1)]
    assert headers[0]["remark"] == "this gateway is closing the connection; repeat the request on another"


@pytest.mark.parametrize("binary", [False, True])
def test_a_send_that_is_turned_away_was_never_judged_nor_received(binary: bool) -> None:
    """It is the same message that comes again elsewhere: it must not be counted twice, nor cost its limit twice."""
    talk = Talk("rocketmq", rule("reject", messages=1))
    talk.client(encode_request(34, None, opaque=1, binary=binary))
    talk.conversation.begin_graceful_close()
    assert talk.conversation.rejects_requests
    for opaque in range(2, 6):
        talk.client(send(opaque=opaque, binary=binary))
    assert [read_response(one)["code"] for one in split_frames(talk.to_client)] == [1500] * 4
    assert talk.conversation.rejected_after_drain == 4
    assert talk.requests == []
    assert len(talk.to_broker) == len(encode_request(34, None, opaque=1, binary=binary))
