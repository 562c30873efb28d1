"""A request whose requester would have given up by then does not wait for its limit."""

from __future__ import annotations

import pytest

from limiter.limits import SECOND
from support.rocketmq.frames import encode_request, read_response, send, split_frames
from support.wires.conversations import Talk, rule


def request(opaque: int, ttl_ms: int, *, binary: bool = False, code: int = 310, last: bool = False) -> bytes:
    """A send of DefaultMQProducer.request."""
    properties = {"KEYS": "TTL", "REPLY_TO_CLIENT": "10.0.0.7@1", "CORRELATION_ID": "c", "WAIT": "true"}
    properties = {**properties, "TTL": str(ttl_ms)} if last else {"TTL": str(ttl_ms), **properties}
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    names = ("a", "b", "i") if code == 310 else ("producerGroup", "topic", "properties")
    return encode_request(code, dict(zip(names, ("producers", "orders", text), strict=True)), b"body", opaque=opaque, binary=binary)


def refused(talk: Talk) -> list[object]:
    return [read_response(frame)["opaque"] for frame in split_frames(talk.to_client)]


@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
@pytest.mark.parametrize("code", [310, 10])
@pytest.mark.parametrize("last", [False, True])
def test_it_is_refused_at_once_where_it_would_wait_past_its_ttl(binary: bool, code: int, last: bool) -> None:
    talk = Talk("rocketmq", rule("delay", messages=1, burst=1, max_delay_ns=2 * SECOND))
    passes = request(1, 500, binary=binary, code=code, last=last)
    talk.client(passes + request(2, 500, binary=binary, code=code, last=last))
    assert (talk.to_broker, refused(talk)) == (passes, [2])
    patient = request(3, 1500, binary=binary, code=code, last=last)
    talk.client(patient)
    talk.wait(SECOND)
    assert (talk.to_broker, refused(talk)) == (passes + patient, [2])


def test_it_is_refused_when_its_time_is_over_while_it_waits() -> None:
    """Others come first: what it was told at the beginning was too short."""
    talk = Talk("rocketmq", rule("delay", messages=1, burst=1, max_delay_ns=5 * SECOND // 2))
    first = [send(opaque=number) for number in (1, 2)]
    talk.client(first[0])
    talk.client(first[1])
    talk.client(request(3, 1200))
    talk.wait(2 * SECOND)
    assert talk.to_broker == b"".join(first)
    assert refused(talk) == [3]


def test_ordinary_sends_wait_whatever_their_bodies_say() -> None:
    talk = Talk("rocketmq", rule("delay", messages=1, burst=1))
    sends = [send(opaque=number, body=request(9, 5)) for number in (1, 2)]
    talk.client(b"".join(sends))
    talk.wait(SECOND)
    assert (talk.to_broker, talk.to_client) == (b"".join(sends), b"")
