"""Conversations between a RocketMQ client and its broker, made up at random: all that either may say, limited or not, known or not.

`said_by_client` and `said_by_broker` write whole frames; `check_broker` and `check_client` hold what arrived against what was said.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from support.rocketmq.frames import (
    Value,
    batch_body,
    binary_header,
    encode_request,
    frame,
    heartbeat,
    json_header,
    read_response,
    response,
    send,
    send_back,
    split_frames,
)

LIMITED = {"reject": "r", "delay": "d", "drop": "x"}  # action: the topic that a rule with it is for
TOPICS = (*LIMITED.values(), "free")
CALLBACKS = (39, 40, 220, 221, 307, 309, 326)  # what a broker asks of its clients
NOT_LIMITED = (12, 14, 15, 33, 34, 35, 37, 38, 41, 42, 105, 318, 400, 200_051, 200_053, 200_071, 200_072, 200_079, 9_999, 29_999)
POLLS = (11, 361, 200_050, 200_052, 200_054, 200_070)


@dataclass(frozen=True)
class Said:
    """One frame of the client's."""

    frame: bytes
    topic: str | None  # that it is limited by
    opaque: int
    one_way: bool = False


def said_by_client(random: Random, count: int) -> list[Said]:
    """`count` frames, each with an opaque of its own."""
    return [_client_frame(random, opaque) for opaque in range(1, count + 1)]


def _client_frame(random: Random, opaque: int) -> Said:
    what = random.randrange(12)
    binary = random.random() < 0.3
    topic = random.choice(TOPICS)
    one_way = random.random() < 0.2
    if what < 5:
        body = random.randbytes(random.choice((0, 3, 200, 200, 200, 4000)))
        code = random.choice((10, 310, 310, 324, 325))
        return Said(send(topic, body, opaque=opaque, code=code, one_way=one_way, binary=binary), topic, opaque, one_way)
    if what == 5:
        body = batch_body(*(random.randbytes(random.randrange(30)) for _ in range(random.randrange(1, 4))))
        return Said(send(topic, body, opaque=opaque, code=320, batch=True, binary=binary), topic, opaque)
    if what == 6:
        return Said(send_back(topic, opaque=opaque, binary=binary), f"%RETRY%{topic}", opaque)
    if what == 7:
        return Said(heartbeat(opaque=opaque), None, opaque)
    extra: dict[str, Value] = {"topic": topic, "b": topic, "consumerGroup": "g", "queueId": 0, "flag": True, "nothing": None}
    if what == 8:
        return Said(encode_request(random.choice(POLLS), extra, opaque=opaque), None, opaque)
    if what == 9:  # an answer to the broker, which has opaques of its own
        body = random.randbytes(random.randrange(300))
        return Said(encode_request(random.choice((0, 1, 310)), extra, body, opaque=opaque, flag=1, binary=binary), None, opaque)
    body = random.randbytes(random.choice((0, 50, 3000)))
    return Said(
        encode_request(random.choice(NOT_LIMITED), extra, body, opaque=opaque, flag=random.choice((0, 2)), binary=binary), None, opaque
    )


def said_by_broker(random: Random, count: int) -> list[bytes]:
    """`count` frames; answers and requests with opaques out of the client's range, asked for or not."""
    return [_broker_frame(random, random.randrange(1, count + 1)) for _ in range(count)]


def _broker_frame(random: Random, opaque: int) -> bytes:
    what = random.randrange(8)
    body = random.randbytes(random.choice((0, 0, 10, 500, 5000)))
    if what < 3:
        return response(
            opaque, random.choice((0, 0, 0, 1, 2, 17, 19, 21, 215)), body, random.choice((None, "[REJECTREQUEST]system busy", "x" * 99))
        )
    if what < 5:
        return encode_request(random.choice(CALLBACKS), {"topic": "free", "clientId": "c"}, body, opaque=opaque, flag=random.choice((0, 2)))
    if what == 5:
        return encode_request(
            random.choice((0, 19, *CALLBACKS)), {"minOffset": 0}, body, opaque=opaque, flag=random.choice((0, 1)), binary=True
        )
    if what == 6:
        return frame(random.choice((b"", b"{}", b"[]", b"{", b"\xff", json_header(31_000, None, flag=5))), body)
    return frame(binary_header(-1, {"x": "y"}, opaque=opaque, flag=random.choice((0, 1))), body, random.choice((1, 2, 255)))


def check_broker(said: list[Said], arrived: bytes, answered: set[int], *, silent: set[str], whole_frame: int = 1 << 20) -> None:
    """Everything that nobody limits has arrived, in its order; a limited request has arrived, been answered or been dropped (`silent`).

    Frames above `whole_frame` bytes cannot be held, so they may overtake those that are (`frames.py`).
    """
    place = {one.frame: at for at, one in enumerate(said)}
    assert len(place) == len(said), "frames that cannot be told apart"
    found = [place[whole] for whole in split_frames(arrived)]  # KeyError: something arrived that was not said
    assert len(set(found)) == len(found), "something arrived twice"
    for key in {one.topic for one in said}:
        of_key = [at for at in found if said[at].topic == key and (key is None or len(said[at].frame) <= whole_frame)]
        assert of_key == sorted(of_key), f"{key}: out of order"
    reached = set(found)
    for at, one in enumerate(said):
        fates = (at in reached) + (one.opaque in answered)
        if one.topic is None:
            assert fates == 1, f"not limited, and yet: {one}"
            assert one.opaque not in answered
        elif not one.one_way and one.topic not in silent:
            assert fates == 1, f"neither passed nor answered, or both: {one}"
        else:
            assert fates <= 1


def check_client(said: list[bytes], arrived: bytes) -> set[int]:
    """The broker's frames have arrived, all and unchanged; between them whole replies of the gateway's, whose opaques are returned."""
    rest = iter(said)
    due = next(rest, None)
    answered: set[int] = set()
    for whole in split_frames(arrived):
        if whole == due:
            due = next(rest, None)
            continue
        reply = read_response(whole)
        assert str(reply["remark"]).startswith("[RateLimit] for "), f"neither the broker's nor ours: {whole!r}"
        opaque = reply["opaque"]
        assert isinstance(opaque, int)
        assert opaque not in answered, "answered twice"
        answered.add(opaque)
    assert due is None, f"did not arrive: {due!r}"
    return answered
