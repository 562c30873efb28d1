"""Messages as a RocketMQ broker stores them and answers pulls with, written from `docs/design/rocketmq.md` 4.5, independently of the
gateway's code."""

from __future__ import annotations

import json
import struct

from support.rocketmq.frames import Value, binary_header, encode_request, frame

SUSPEND = 2


def stored(
    body: bytes = b"x" * 100, *, topic: str = "orders", properties: str = "KEYS\x01k\x02TAGS\x01t\x02", born_v6: bool = False,
    store_v6: bool = False, inner: int = 0, long_topic: bool = False, reconsumed: int = 0,
) -> bytes:  # fmt: skip
    """One entry; an inner batch of `inner` messages where that is not 0."""
    flags = (0x10 if born_v6 else 0) | (0x20 if store_v6 else 0) | (0x80 if inner else 0)
    text = properties.encode() + (f"INNER_NUM\x01{inner}\x02".encode() if inner else b"")
    name = topic.encode()
    rest = struct.pack(">IIIIQQI", 0xDAA320A7, 0, 3, 0, 17, 4711, flags)
    rest += struct.pack(">Q", 1_795_247_411_000) + bytes(16 if born_v6 else 4) + struct.pack(">I", 40_000)
    rest += struct.pack(">Q", 1_795_247_411_001) + bytes(16 if store_v6 else 4) + struct.pack(">I", 10_911)
    rest += struct.pack(">IQ", reconsumed, 0) + struct.pack(">I", len(body)) + body
    rest += struct.pack(">H" if long_topic else ">B", len(name)) + name + struct.pack(">H", len(text)) + text
    return struct.pack(">I", len(rest) + 4) + rest


def pull(
    topic: str = "orders", *, queue: int = 0, offset: int = 0, opaque: int = 1, group: str = "readers", most: int = 32, code: int = 11,
    suspend_ms: int = 15_000, sys_flag: int = 2 | 4, binary: bool = False, signed: bool = False,
) -> bytes:  # fmt: skip
    """PULL_MESSAGE (or LITE_PULL_MESSAGE, 361) as the Java client writes it. One that is signed is never changed by a gateway."""
    extra: dict[str, Value] = {
        "commitOffset": "0", "consumerGroup": group, "expressionType": "TAG", "maxMsgNums": str(most), "queueId": str(queue),
        "queueOffset": str(offset), "subVersion": "1795247411000", "subscription": "*", "suspendTimeoutMillis": str(suspend_ms),
        "sysFlag": str(sys_flag), "topic": topic,
    }  # fmt: skip
    return encode_request(code, extra | ({"Signature": "c2lnbmVk"} if signed else {}), opaque=opaque, binary=binary)


def pop(topic: str = "orders", *, queue: int = -1, opaque: int = 1, group: str = "readers", most: int = 32, poll_ms: int = 15_000) -> bytes:
    """POP_MESSAGE as the Java client writes it."""
    extra: dict[str, Value] = {
        "bornTime": "1795247411000", "consumerGroup": group, "exp": "*", "expType": "TAG", "initMode": "0", "invisibleTime": "60000",
        "maxMsgNums": str(most), "order": "false", "pollTime": str(poll_ms), "queueId": str(queue), "topic": topic,
    }  # fmt: skip
    return encode_request(200_050, extra, opaque=opaque)


def pop_lite(
    topic: str = "orders", *, opaque: int = 1, group: str = "readers", most: int = 32, poll_ms: int = 15_000, signed: bool = False
) -> bytes:
    """POP_LITE_MESSAGE as RocketMQ 5.5's PopLiteMessageRequestHeader has it."""
    extra: dict[str, Value] = {
        "attemptId": "a-1", "bornTime": "1795247411000", "clientId": "10.0.0.7@1", "consumerGroup": group, "invisibleTime": "60000",
        "maxMsgNum": str(most), "pollTime": str(poll_ms), "topic": topic,
    }  # fmt: skip
    return encode_request(200_070, extra | ({"Signature": "c2lnbmVk"} if signed else {}), opaque=opaque)


def notification(topic: str = "orders", *, opaque: int = 1, group: str = "readers", poll_ms: int = 15_000) -> bytes:
    extra: dict[str, Value] = {
        "bornTime": "1795247411000",
        "consumerGroup": group,
        "pollTime": str(poll_ms),
        "queueId": "-1",
        "topic": topic,
    }
    return encode_request(200_054, extra, opaque=opaque)


def found(
    opaque: int, *entries: bytes, next_offset: int = 0, minimum: int = 0, maximum: int = 0, broker: int = 0, binary: bool = False
) -> bytes:
    """The broker's answer to a pull, with these entries."""
    return pull_answer(opaque, 0, b"".join(entries), next_offset, minimum, maximum, broker, binary=binary)


def nothing_found(opaque: int, *, next_offset: int = 0, minimum: int = 0, maximum: int = 0, broker: int = 0, binary: bool = False) -> bytes:
    return pull_answer(opaque, 19, b"", next_offset, minimum, maximum, broker, binary=binary)


def pull_answer(
    opaque: int, code: int, body: bytes, next_offset: int, minimum: int, maximum: int, broker: int, *, binary: bool = False
) -> bytes:
    fields: dict[str, Value] = {
        "maxOffset": str(maximum),
        "minOffset": str(minimum),
        "nextBeginOffset": str(next_offset),
        "suggestWhichBrokerId": str(broker),
    }
    if binary:
        return frame(binary_header(code, fields, opaque=opaque, flag=1), body, 1)
    header = {
        "code": code, "extFields": fields, "flag": 1, "language": "JAVA", "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON", "version": 479,
    }  # fmt: skip
    return frame(json.dumps(header, separators=(",", ":")).encode(), body)
