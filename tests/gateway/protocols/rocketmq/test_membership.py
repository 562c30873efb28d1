"""How the broker is told that a client leaves its groups."""

from __future__ import annotations

import json

import pytest

from gateway.protocols.rocketmq.membership import leave_groups
from support.rocketmq.frames import encode_request, frame, read_response, split_frames
from support.wires.conversations import Talk


def heartbeat(consumers: list[str], producers: list[str]) -> bytes:
    """As rocketmq-client 5 sends it, with fields that are not looked at."""
    groups = {"consumerDataSet": consumers, "producerDataSet": producers}
    return json.dumps(
        {"clientID": "c@1", "fingerprint": 7} | {name: [{"groupName": each, "x": 1} for each in of] for name, of in groups.items()}
    ).encode()


def told(data: bytes) -> list[dict[str, object]]:
    """The headers of `data`, whole frames without a body."""
    found = []
    while data:
        size, header = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
        assert size == header + 4
        found.append(json.loads(data[8 : 4 + size]))
        assert data.startswith(frame(data[8 : 4 + size]))
        data = data[4 + size :]
    return found


def test_each_group_is_left_once_by_a_request_that_wants_no_answer() -> None:
    found = told(leave_groups(heartbeat(["a", "b"], ["p", "q", "r"]), "GO", 500))
    assert [each.pop("extFields") for each in found] == [
        {"clientID": "c@1", "consumerGroup": "a", "producerGroup": "p"},
        {"clientID": "c@1", "consumerGroup": "b", "producerGroup": "q"},
        {"clientID": "c@1", "producerGroup": "r"},
    ]
    unregister = {"code": 35, "flag": 2, "language": "GO", "opaque": 0, "serializeTypeCurrentRPC": "JSON", "version": 500}
    assert found == [unregister] * 3


def test_a_client_that_did_not_say_what_it_is_counts_as_one_of_java() -> None:
    (found,) = told(leave_groups(heartbeat(["a"], [""]), "", -1))
    assert (found["language"], found["version"]) == ("JAVA", 0)
    assert found["extFields"] == {"clientID": "c@1", "consumerGroup": "a"}


@pytest.mark.parametrize("flag", [0, 2])
def test_a_client_that_is_gone_joins_no_more_whether_it_wants_an_answer_or_not(flag: int) -> None:
    """RocketMQ's Proxy wants none to its heartbeats."""
    talk = Talk("rocketmq")
    talk.client(encode_request(34, {}, heartbeat(["a"], ["p"]), flag=flag) + encode_request(41, {}, b"{}", flag=flag))
    assert [read_response(each)["code"] for each in split_frames(talk.to_broker)] == [34, 41]
    talk.to_broker = b""
    talk.conversation.leave()
    (left,) = told(talk.conversation.take_farewells(quiet=True))
    assert left["extFields"] == {"clientID": "c@1", "consumerGroup": "a", "producerGroup": "p"}
    lock, other = encode_request(41, {}, b"{}", opaque=3, flag=flag), encode_request(15, {}, opaque=4, flag=2)
    talk.client(lock + encode_request(34, {}, heartbeat(["a"], []), opaque=2, flag=flag) + other)
    assert talk.to_broker == other


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b'{"clientID": 7}', b"[" * 100_000, heartbeat([], [])])
def test_of_a_client_in_no_group_or_one_that_cannot_be_read_nothing_is_said(body: bytes) -> None:
    assert leave_groups(body, "JAVA", 1) == b""
