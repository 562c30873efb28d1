"""Frames that RocketMQ's own RemotingCommand wrote, of 4.9.8, 5.3.3 and 5.5.0 (`vectors/remoting`, `support/rocketmq/remoting.py`), through
ours."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

import pytest

from gateway.protocols.rocketmq.batches import count_batch
from gateway.protocols.rocketmq.headers import Header, read_binary, read_json
from support.rocketmq.frames import read_response, split_frames
from support.rocketmq.remoting import JARS, frames_file
from support.rocketmq.slow_headers import read_frame
from support.wires.conversations import Talk, bytewise, randomly, rule

Vector = dict[str, Any]
SHORT = (310, 320, 325)
LONG = (10, 324, 370)


@cache
def load(version: str, speaker: str) -> list[Vector]:
    found = [json.loads(line) for line in gzip.decompress(frames_file(version).read_bytes()).decode().splitlines()]
    for vector in found:
        vector["frame"] = bytes.fromhex(vector["frame"])
        if vector["type"] == "ROCKETMQ":  # the encoding has 16 bits for it
            vector["code"] = (vector["code"] + 0x8000) % 0x10000 - 0x8000
    return [vector for vector in found if vector["from"] == speaker]


def title(vector: Vector) -> str:
    return f"{vector['name']} {vector['code']} {vector['type']} {vector['opaque']}"


def limited(vector: Vector) -> tuple[str, str | None, int, int] | None:
    """Topic, group, messages and bytes of what is limited; None where nothing is."""
    ext = vector["ext"]
    if vector["flag"] & 1:
        return None
    if vector["code"] == 36:
        return f"%RETRY%{ext['group']}", ext["group"], 1, 0
    if vector["code"] not in (*SHORT, *LONG) or not ext:
        return None
    topic, group = (ext["b"], ext.get("a")) if vector["code"] in SHORT else (ext["topic"], ext.get("producerGroup"))
    if topic.startswith("%RETRY%"):
        group = topic.removeprefix("%RETRY%")
    return topic, group, max(vector["messages"], 1), vector["body"]


def our_reading(frame: bytes) -> Header:
    end = 8 + int.from_bytes(frame[5:8], "big")
    return read_json(frame[8:end]) if frame[4] == 0 else read_binary(frame, 8, end)


@pytest.mark.parametrize("speaker", ["client", "broker"])
@pytest.mark.parametrize("version", JARS)
def test_the_vectors_say_what_is_in_their_frames(version: str, speaker: str) -> None:
    """Read by `support.rocketmq.slow_headers`, which is written from the protocol's description alone: the other tests rest on this."""
    languages = {"JAVA": 0, "CPP": 1, "OTHER": 7, "GO": 9}
    for vector in load(version, speaker):
        read = read_frame(vector["frame"])
        binary = vector["type"] == "ROCKETMQ"
        assert (read.kind, read.code, read.opaque, read.flag) == (binary, vector["code"], vector["opaque"], vector["flag"]), title(vector)
        assert (read.language, read.version) == (languages[vector["language"]] if binary else vector["language"], vector["version"])
        assert (read.remark, len(read.body)) == (vector["remark"], vector["body"]), title(vector)
        given = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in vector["ext"].items()}
        assert {name: read.ext.get(name, "") for name in given} == given, title(vector)


@pytest.mark.parametrize("speaker", ["client", "broker"])
@pytest.mark.parametrize("version", JARS)
def test_our_decoders_read_what_was_written(version: str, speaker: str) -> None:
    for vector in load(version, speaker):
        header = our_reading(vector["frame"])
        assert (header.code, header.opaque, header.flag) == (vector["code"] % 0x10000 if vector["code"] < 0 else vector["code"],
                                                             vector["opaque"], vector["flag"]), title(vector)  # fmt: skip
        expected = limited(vector)
        assert header.topic.decode() == (expected[0] if expected else ""), title(vector)
        if expected:
            assert header.group.decode() == (expected[1] or ""), title(vector)
        assert header.batch == (expected is not None and str(vector["ext"].get("m", vector["ext"].get("batch"))).lower() == "true")


@pytest.mark.parametrize("version", JARS)
def test_batches_hold_what_was_put_in(version: str) -> None:
    batches = [vector for vector in load(version, "client") if vector["name"].startswith("batch of")]
    assert len(batches) == 24
    for vector in batches:
        frame = vector["frame"]
        assert count_batch(frame, len(frame) - vector["body"], len(frame)) == vector["messages"]


@pytest.mark.parametrize("cut", ["whole", "bytewise", "randomly"])
@pytest.mark.parametrize("version", JARS)
def test_everything_passes_byte_for_byte_and_is_charged_for_what_it_is(version: str, cut: str) -> None:
    vectors = [vector for vector in load(version, "client") if cut != "bytewise" or vector["body"] < 1000]
    stream = b"".join(vector["frame"] for vector in vectors)
    talk = Talk("rocketmq", rule(messages=10_000_000))
    talk.client(b"", {"whole": [stream], "bytewise": bytewise(stream), "randomly": randomly(stream, 5)}[cut])
    assert talk.to_broker == stream
    assert talk.to_client == b""
    assert talk.requests == [found for vector in vectors if (found := limited(vector))]


@pytest.mark.parametrize("version", JARS)
def test_every_refusal_has_its_requests_opaque_and_nothing_else_is_answered(version: str) -> None:
    for vector in load(version, "client"):
        expected = limited(vector)
        if expected and set("*{}[]") & set(expected[0]):
            continue  # cannot be named in a rule, and broad rules leave system topics alone
        talk = Talk("rocketmq", rule(messages=0, protocol="rocketmq", topic=expected[0] if expected else None))
        talk.client(vector["frame"])
        answered = [read_response(frame)["opaque"] for frame in split_frames(talk.to_client)]
        deaf = vector["code"] == 36 and (vector["language"] == "GO" or (vector["language"] == "CPP" and vector["version"] < 333))
        wants = not vector["flag"] & 2 and not deaf  # what becomes of these: test_send_backs.py
        assert answered == ([vector["opaque"]] if expected and wants else []), title(vector)
        assert (talk.to_broker == b"") == bool(expected), title(vector)


def test_the_client_is_known_by_its_first_request() -> None:
    for vector in load("5.3.3", "client"):
        talk = Talk("rocketmq")
        talk.client(vector["frame"])
        about = talk.conversation.describe()
        assert (about["language"], about["version"]) == (vector["language"], vector["version"]), title(vector)
