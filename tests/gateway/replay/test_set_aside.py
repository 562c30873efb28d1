"""What is set aside: a line for each message, whatever it is."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from gateway.protocols.rocketmq.sends_again import SendAgain
from gateway.replay.set_aside import SetAside
from support.rocketmq.frames import batch_body, binary_header, frame, send

ORIGIN = {"listener": "broker-a", "topic": "orders"}
UNREADABLE = {
    "no json": frame(b"no json"),
    "no code": frame(b'{"flag":0}'),
    "the code is no number": frame(b'{"code":"x","extFields":{}}'),
    "one byte": frame(b"\x01", kind=1),
    "it is cut": frame(binary_header(310, None, opaque=1, flag=0)[:-1], kind=1),
}


def lines(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for file in directory.glob("set-aside/*.jsonl") for line in file.read_text().splitlines()]


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=list(UNREADABLE))
def test_a_send_that_nobody_can_read_is_kept_as_it_came(tmp_path: Path, data: bytes) -> None:
    SetAside(tmp_path, "1").add_send(SendAgain(data, "1.durable", 9), ORIGIN, "it cannot be read")
    (told,) = lines(tmp_path)
    del told["at"]
    kept = base64.b64encode(data).decode()
    assert told == {"reason": "it cannot be read", "listener": "broker-a", "topic": "orders", "frame": kept}


def test_a_batch_is_kept_as_its_messages(tmp_path: Path) -> None:
    data = send("orders", batch_body(b"one", b"two"), code=320, batch=True)
    SetAside(tmp_path, "1").add_send(SendAgain(data, "1.durable", 9), ORIGIN, "13 no")
    assert [(each["body"], each["reason"]) for each in lines(tmp_path)] == [("one", "13 no"), ("two", "13 no")]
