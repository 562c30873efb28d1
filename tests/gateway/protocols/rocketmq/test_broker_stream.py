"""The broker's stream: what is learned of answers as they pass, whole or in pieces."""

from __future__ import annotations

import json

import pytest

from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.broker_stream import BrokerStream
from gateway.protocols.rocketmq.outstanding import MAX_POLLS_TRACKED, AnswerWatcher, Outstanding
from support.rocketmq.frames import encode_request, frame, response

BUSY = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 231ms, size of queue: 17"


class Seen(AnswerWatcher):
    """Writes down what it is shown."""

    def __init__(self) -> None:
        self.code = -1
        self.data = b""
        self.ended = False

    def begin(self, code: int, size: int, data: bytes, start: int, end: int) -> bool:
        self.code = code
        self.ended = size == 0
        return size > 0

    def body(self, data: bytes, start: int, end: int, last: bool) -> None:
        self.data += data[start:end]
        self.ended = last


def pass_through(stream: BrokerStream, data: bytes, pieces: int) -> bytes:
    out: list[bytes] = []
    for start in range(0, len(data), pieces):
        stream.relay(data[start : start + pieces], out)
    return b"".join(out)


def binary_response(opaque: int, code: int = 0, body: bytes = b"", remark: bytes = b"") -> bytes:
    header = code.to_bytes(2, "big") + b"\0\1\xdf" + (opaque & 0xFFFFFFFF).to_bytes(4, "big") + (1).to_bytes(4, "big")
    return frame(header + len(remark).to_bytes(4, "big") + remark + bytes(4), body, 1)


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 8, 9, 64, 1 << 20])
def test_every_answer_counts_once_however_it_is_cut_and_passes_as_it_came(pieces: int) -> None:
    outstanding = Outstanding()
    stream = BrokerStream(outstanding)
    outstanding.count_requests(5)
    data = b"".join(
        [
            response(1),
            encode_request(40, {"consumerGroup": "g"}, opaque=2, flag=2),  # the broker's own, to the client
            response(3, 215, remark="no"),
            binary_response(4),
            frame(json.dumps({"flag": 1, "opaque": 5, "code": 0}).encode()),  # fields in another order
            encode_request(39, {"code": "0"}, b"x" * 300, opaque=6),
            response(-7, body=b"y" * 5000),
        ]
    )
    assert pass_through(stream, data, pieces) == data
    assert outstanding.settled()
    assert outstanding.unanswered == 0
    assert stream.at_boundary()


@pytest.mark.parametrize("pieces", [1, 5, 8, 13, 4096])
@pytest.mark.parametrize("answer", [response, binary_response])
def test_a_poll_is_answered_by_its_opaque_and_its_body_is_shown(pieces: int, answer: object) -> None:
    assert callable(answer)
    outstanding = Outstanding()
    stream = BrokerStream(outstanding)
    polls = {opaque: Seen() for opaque in (7, -3, 70)}
    for opaque, who in polls.items():
        outstanding.track_poll(opaque, who)
    outstanding.count_requests(2)
    body = bytes(range(256)) * 9
    data = answer(-3, body=body) + answer(8) + answer(7, 19) + answer(9, body=b"not for it") + answer(70)
    assert pass_through(stream, data, pieces) == data
    assert [(who.code, who.data, who.ended) for who in polls.values()] == [(19, b"", True), (0, body, True), (0, b"", True)]
    assert (dict(outstanding.polls), outstanding.unanswered) == ({}, 0)


def test_polls_with_the_same_opaque_or_beyond_the_bound_are_counted() -> None:
    """Else their answers would be taken for those of other requests, and a client told to go before it has got them."""
    outstanding = Outstanding()
    stream = BrokerStream(outstanding)
    for opaque in range(MAX_POLLS_TRACKED):
        assert outstanding.track_poll(opaque, None)
    assert not outstanding.track_poll(MAX_POLLS_TRACKED, Seen())
    assert not outstanding.track_poll(7, Seen()), "an opaque that is under way"
    assert outstanding.unanswered == 2
    pass_through(stream, response(MAX_POLLS_TRACKED) + response(7) + response(7), 4096)
    assert (len(outstanding.polls), outstanding.unanswered) == (MAX_POLLS_TRACKED - 1, 0)


def test_replies_stand_between_frames_also_where_a_head_comes_in_pieces() -> None:
    stream = BrokerStream(Outstanding())
    one, other, own = response(1, body=b"a" * 50), response(2), response(99, 215)
    out: list[bytes] = []
    for octet in one[:-1]:
        stream.relay(bytes([octet]), out)
    stream.add(own)
    assert stream.take() == b""
    stream.relay(one[-1:] + other[:3], out)
    assert b"".join(out) == one + own + other[:3]
    stream.relay(other[3:], out)
    assert b"".join(out) == one + own + other


@pytest.mark.parametrize("answer", [response(1, 2, remark=BUSY), binary_response(1, 2, remark=BUSY.encode())])
def test_a_busy_answer_is_told_with_its_reason_and_the_time_it_names(answer: bytes) -> None:
    outstanding = Outstanding()
    pass_through(BrokerStream(outstanding), answer, 4096)
    assert [(signal.reason, signal.period_ms, signal.queued) for signal in outstanding.busy] == [("timeout_clean_queue", 231, 17)]


def test_other_words_of_an_overloaded_broker_and_what_is_none() -> None:
    outstanding = Outstanding()
    stream = BrokerStream(outstanding)
    words = [
        (2, "[REJECTREQUEST]system busy, start flow control for a while"),
        (2, "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 5ms, size of queue: 4"),
        (2, "This consumer group is reading cold data. It has been flow control"),
        (2, "[RateLimit] for orders need wait:7microsecs"),
        (14, "service not available now. It may be caused by one of the following reasons: the broker's disk is full [CL:  0.91]"),
        (1, "create mapped file failed"),
        (17, "topic not exist"),
    ]
    pass_through(stream, b"".join(response(number, code, remark=remark) for number, (code, remark) in enumerate(words)), 4096)
    assert [signal.reason for signal in outstanding.busy] == [
        "rejectrequest", "pcbusy_clean_queue", "cold_data", "system_busy", "service_not_available",
    ]  # fmt: skip


@pytest.mark.parametrize("data", [b"\0\0\0\3\0\0\0\0", b"\xff\0\0\0", b"\0\0\0\x10\0\0\0\x20" + bytes(40)])
@pytest.mark.parametrize("pieces", [1, 64])
def test_bytes_that_cannot_be_a_frame_are_the_brokers_fault(data: bytes, pieces: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        pass_through(BrokerStream(Outstanding()), data, pieces)
    assert (caught.value.whose, caught.value.cause) == ("broker", "broker_protocol_error")


def test_a_header_that_never_ends_is_not_kept() -> None:
    stream = BrokerStream(Outstanding())
    header = (3 << 20).to_bytes(4, "big")
    out: list[bytes] = []
    stream.relay((4 << 20).to_bytes(4, "big") + header, out)
    for _ in range(48):
        stream.relay(b"x" * 65536, out)
    assert len(stream.head) == 0
    assert sum(map(len, out)) == 8 + 48 * 65536
