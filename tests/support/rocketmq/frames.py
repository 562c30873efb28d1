"""RocketMQ frames for tests and tools: written from `docs/design/rocketmq.md` 1, independently of the gateway's own code."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

Value = str | int | bool | None

SHORT = {"topic": "b", "group": "a", "batch": "m"}  # SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), SEND_REPLY_MESSAGE_V2 (325)
LONG = {"topic": "topic", "group": "producerGroup", "batch": "batch"}  # SEND_MESSAGE (10), SEND_REPLY_MESSAGE (324)


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def json_header(
    code: int, extra: Mapping[str, Value] | None, *, opaque: int = 1, flag: int = 0, language: str = "JAVA", version: int = 479
) -> bytes:
    """As fastjson writes it in the Java client: keys sorted, no blanks."""
    fields: dict[str, object] = {"code": code}
    if extra is not None:
        fields["extFields"] = dict(extra)
    fields |= {"flag": flag, "language": language, "opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": version}
    return json.dumps(fields, separators=(",", ":")).encode()


def binary_header(
    code: int, extra: Mapping[str, Value] | None, *, opaque: int = 1, flag: int = 0, language: int = 0, version: int = 479
) -> bytes:
    entries = b""
    for name, value in (extra or {}).items():
        if value is None:
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        entries += struct.pack(">H", len(name.encode())) + name.encode() + struct.pack(">I", len(text.encode())) + text.encode()
    fixed = struct.pack(">HBHiiI", code & 0xFFFF, language, version, opaque, flag, 0)
    return fixed + struct.pack(">I", len(entries)) + entries


def encode_request(
    code: int, extra: Mapping[str, Value] | None, body: bytes = b"", *, opaque: int = 1, flag: int = 0, binary: bool = False
) -> bytes:
    """One request frame."""
    header = (binary_header if binary else json_header)(code, extra, opaque=opaque, flag=flag)
    return frame(header, body, 1 if binary else 0)


def send(
    topic: str = "orders",
    body: bytes = b"x" * 200,
    *,
    opaque: int = 1,
    code: int = 310,
    group: str = "producers",
    one_way: bool = False,
    batch: Value = False,
    binary: bool = False,
    born: int = 1795247411000,
) -> bytes:
    """A send as a producer's client writes it, `extFields` complete."""
    properties = f"UNIQ_KEY\x017F00000112342A139A5534EF{opaque & 0xFFFFFFFF:08X}\x02WAIT\x01true\x02"
    names = LONG if code in (10, 324) else SHORT
    extra: dict[str, Value] = {names["group"]: group, names["topic"]: topic}
    if names is SHORT:
        extra |= {
            "c": "TBW102",
            "d": "4",
            "e": str(opaque % 4),
            "f": "0",
            "g": str(born),
            "h": "0",
            "i": properties,
            "j": "0",
            "k": "false",
        }
        extra |= {"m": as_text(batch), "n": "broker-a"}
    else:
        extra |= {"defaultTopic": "TBW102", "queueId": opaque % 4, "properties": properties, "batch": as_text(batch)}
    return encode_request(code, extra, body, opaque=opaque, flag=2 if one_way else 0, binary=binary)


def as_text(value: Value) -> Value:
    """Booleans as Java and Go write them; other spellings (C++: "0") as given."""
    return str(value).lower() if isinstance(value, bool) else value


def send_back(group: str = "workers", *, opaque: int = 1, binary: bool = False) -> bytes:
    """CONSUMER_SEND_MSG_BACK: has no body."""
    extra: dict[str, Value] = {"group": group, "offset": "12345", "delayLevel": "0", "originTopic": "orders", "maxReconsumeTimes": "16"}
    return encode_request(36, extra, opaque=opaque, binary=binary)


def pull(
    queue: int = 0, topic: str = "orders", group: str = "workers", *, opaque: int = 1, offset: int = 0, code: int = 11, binary: bool = False
) -> bytes:
    """PULL_MESSAGE of a push consumer: the broker may keep it for 15 s (suspend, bit 1 of sysFlag)."""
    extra: dict[str, Value] = {"consumerGroup": group, "topic": topic, "queueId": str(queue), "queueOffset": str(offset)}
    extra |= {"maxMsgNums": "32", "sysFlag": "3", "commitOffset": str(offset), "suspendTimeoutMillis": "15000", "subVersion": "1"}
    return encode_request(code, extra, opaque=opaque, binary=binary)


def heartbeat(*, opaque: int = 1) -> bytes:
    return encode_request(34, None, b'{"clientID":"10.0.0.7@1","consumerDataSet":[],"producerDataSet":[]}', opaque=opaque)


def batch_body(*bodies: bytes, properties: bytes = b"WAIT\x01true\x02") -> bytes:
    """MessageDecoder.encodeMessages of the Java client."""
    entries = []
    for body in bodies:
        size = 22 + len(body) + len(properties)
        entries.append(struct.pack(">IIIII", size, 0, 0, 0, len(body)) + body + struct.pack(">H", len(properties)) + properties)
    return b"".join(entries)


def response(opaque: int, code: int = 0, body: bytes = b"", remark: str | None = None) -> bytes:
    """What the broker answers."""
    header = {"code": code, "flag": 1, "language": "JAVA", "opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": 479}
    if remark is not None:
        header["remark"] = remark
    return frame(json.dumps(header, separators=(",", ":")).encode(), body)


def split_frames(stream: bytes) -> list[bytes]:
    """Whole frames; asserts that nothing is left over."""
    frames = []
    while stream:
        (length,) = struct.unpack_from(">I", stream)
        assert len(stream) >= 4 + length, "the stream ends within a frame"
        frames.append(stream[: 4 + length])
        stream = stream[4 + length :]
    return frames


def read_response(data: bytes) -> dict[str, object]:
    """The JSON header of one frame."""
    length, word = struct.unpack_from(">II", data)
    assert word >> 24 == 0
    assert len(data) == 4 + length
    fields = json.loads(data[8 : 8 + (word & 0xFFFFFF)])
    assert isinstance(fields, dict)
    return fields
