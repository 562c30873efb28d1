"""Frames encoded by RocketMQ 5.3.3's own RemotingCommand (`vectors/Vectors.java`), through the conversation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.conversations import Talk, rule
from support.rocketmq import read_response, split_frames

VECTORS = json.loads((Path(__file__).parent / "vectors" / "java-5.3.3.json").read_text(encoding="utf-8"))
NAMES = [vector["name"] for vector in VECTORS]


@pytest.mark.parametrize("vector", VECTORS, ids=NAMES)
def test_topic_group_messages_and_size_are_found_and_the_bytes_pass(vector: dict[str, object]) -> None:
    frame = bytes.fromhex(str(vector["frame"]))
    talk = Talk("rocketmq", rule(messages=1000))
    talk.client(frame)
    expected = [(vector["topic"], vector["group"], vector["messages"], vector["size"])] if vector["topic"] else []
    assert talk.requests == expected
    assert (talk.to_broker, talk.to_client) == (frame, b"")


@pytest.mark.parametrize("vector", VECTORS, ids=NAMES)
def test_a_refusal_has_the_requests_opaque(vector: dict[str, object]) -> None:
    topic = vector["topic"]  # named exactly, because broad rules leave system topics alone
    talk = Talk("rocketmq", rule(messages=0, protocol="rocketmq", topic=None if topic is None else str(topic)))
    talk.client(bytes.fromhex(str(vector["frame"])))
    answered = [read_response(frame)["opaque"] for frame in split_frames(talk.to_client)]
    assert answered == ([vector["opaque"]] if topic and not vector["one_way"] else [])
    assert (talk.to_broker == b"") == bool(topic)


def test_all_in_one_stream_pass_unchanged() -> None:
    stream = b"".join(bytes.fromhex(vector["frame"]) for vector in VECTORS)
    talk = Talk("rocketmq")
    talk.client(stream)
    assert talk.to_broker == stream
    assert len(talk.requests) == sum(1 for vector in VECTORS if vector["topic"])


def test_the_client_is_known_by_its_first_request() -> None:
    for kind in ("JSON", "ROCKETMQ"):
        talk = Talk("rocketmq")
        talk.client(bytes.fromhex(next(vector["frame"] for vector in VECTORS if vector["name"] == f"heartbeat {kind}")))
        assert talk.conversation.describe() == {"language": "JAVA", "version": 0, "held": 0}
