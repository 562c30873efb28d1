"""Bad bytes of a RocketMQ client: the cause they are counted under, and words that the log line must contain (F08 to F10)."""

from __future__ import annotations

import struct

from support.rocketmq.frames import frame, json_header
from support.wires.conversations import MAX_FRAME

MIB = 1 << 20
KAFKA_CLIENT = struct.pack(">hhih", 18, 3, 1, 7) + b"rdkafka" + b"\x00\x0alibrdkafka\x062.3.0\x00"


def packet(kind: int, payload: bytes) -> bytes:
    """An MQTT packet."""
    size = len(payload)
    length = bytes([size]) if size < 128 else bytes([size % 128 | 128, size // 128])
    return bytes([kind]) + length + payload


# ---- other protocols: known by their first bytes -------------------------------------------------------------------------

OTHER_PROTOCOLS: dict[str, tuple[bytes, str, str]] = {
    "HTTP GET": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "wrong_protocol", "HTTP request"),
    "HTTP POST": (b"POST /v1 HTTP/1.1\r\n\r\n", "wrong_protocol", "HTTP request"),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "wrong_protocol", "gRPC client on the remoting port"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "wrong_protocol", "TLS on a plain port"),
    "PROXY v1": (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", "wrong_protocol", "PROXY protocol"),
    "PROXY v2": (b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c", "wrong_protocol", "PROXY protocol"),
    "AMQP 0-9-1": (b"AMQP\x00\x00\x09\x01", "wrong_protocol", "AMQP client"),
    "AMQP 1.0": (b"AMQP\x03\x01\x00\x00", "wrong_protocol", "AMQP client"),
    "MQTT": (packet(0x10, b"\x00\x04MQTT\x04\x02\x00\x3c"), "wrong_protocol", "MQTT"),
    "MQTT with a long password": (packet(0x10, b"\x00\x04MQTT\x04\xc2\x00\x3c" + b"p" * 400), "wrong_protocol", "MQTT"),
    "SSH": (b"SSH-2.0-OpenSSH_9.2\r\n", "wrong_protocol", "SSH"),
    "Redis": (b"*1\r\n$4\r\nPING\r\n", "wrong_protocol", "Redis"),
    "Redis HELLO": (b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", "wrong_protocol", "Redis"),
}

MAX_HEADER = 1 << 18  # longer ones are not taken

OF_SENDS = {"binary remark of 4 GiB", "binary value of 4 GiB", "topic 1.5"}  # where sends mean nothing these are nothing special

# ---- known by more than that ---------------------------------------------------------------------------------------------

BAD: dict[str, tuple[bytes, str, str]] = OTHER_PROTOCOLS | {
    "Kafka": (struct.pack(">I", len(KAFKA_CLIENT)) + KAFKA_CLIENT, "wrong_protocol", "Kafka"),
    "Kafka, metadata first": (struct.pack(">IhhihI", 17, 3, 0, 1, 3, 0), "wrong_protocol", "Kafka"),
    "PostgreSQL": (struct.pack(">II", 8, 80_877_103), "bad_header", "serialize type 4"),
    "4 GiB": (b"\xff\xff\xff\xff\x00\x00\x00\x00", "frame_too_large", "max_frame"),
    "2 GiB": (b"\x7f\xff\xff\xff\x00\x00\x00\x02{}", "frame_too_large", "max_frame"),
    "a byte too large": (struct.pack(">II", MAX_FRAME - 3, 8), "frame_too_large", "max_frame"),
    "length 0": (bytes(8), "bad_length", "0 bytes"),
    "length 3": (struct.pack(">II", 3, 0), "bad_length", "3 bytes"),
    "header longer than the frame": (struct.pack(">II", 10, 7) + bytes(6), "bad_header", "header of 7 bytes"),
    "header of 16 MiB": (struct.pack(">II", 10, 0xFFFFFF) + bytes(6), "bad_header", "header of 16777215 bytes"),
    "header larger than is taken, of something else": (struct.pack(">II", 15 * MIB, 14 * MIB) + b"[", "frame_too_large", "header of"),
    "type 2": (frame(b"{}", kind=2), "bad_header", "serialize type 2"),
    "type 255": (frame(b"{}", kind=255), "bad_header", "serialize type 255"),
    "no header": (frame(b""), "bad_header", "unreadable"),
    "half a JSON header": (frame(b"{", b"body"), "bad_header", "unreadable"),
    "not UTF-8": (frame(b"\x80" * 30), "bad_header", "unreadable"),
    "a byte order mark": (frame(b"\xef\xbb\xbf" + json_header(310, {"b": "orders"})), "bad_header", "unreadable"),
    "NUL behind the header": (frame(json_header(310, {"b": "orders"}) + b"\0"), "bad_header", "unreadable"),
    "UTF-16": (frame('{"code":310}'.encode("utf-16")), "bad_header", "unreadable"),
    "depth 10,000": (frame(b"[" * 10_000), "bad_header", "unreadable"),
    "depth 10,000, closed": (frame(b"[" * 10_000 + b"]" * 10_000), "bad_header", "unreadable"),
    "depth 10,000, inside": (frame(b'{"code":310,"extFields":{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}}"), "bad_header", "unreadable"),
    "1e400": (frame(b'{"code":1e400}'), "bad_header", "unreadable"),
    "an opaque of 5,000 digits": (frame(b'{"code":310,"opaque":' + b"9" * 5000 + b"}"), "bad_header", "unreadable"),
    "no opaque": (frame(b'{"code":11,"extFields":{"topic":"orders","consumerGroup":"g"},"flag":0}'), "bad_header", "no opaque"),
    "null for an opaque": (frame(b'{"code":310,"extFields":{"b":"orders"},"opaque":null}'), "bad_header", "no opaque"),
    "code said twice": (frame(json_header(310, {"b": "orders"})[:-1] + b',"code":34}'), "bad_header", "'code' is said twice"),
    "a name that hashes alike": (frame(b'{"code\\u0000":310,"extFields":{"b":"orders"}}'), "bad_header", "almost one of the protocol's"),
    "binary header too short": (frame(bytes(20), kind=1), "bad_header", "fixed part"),
    "binary remark of 4 GiB": (frame(b"\x01\x36" + bytes(11) + b"\xff\xff\xff\xff" + bytes(4), kind=1), "bad_header", "remark"),
    "binary value of 4 GiB": (
        frame(b"\x01\x36" + bytes(15) + b"\x00\x00\x00\x08\x00\x01b\xff\xff\xff\xfft", kind=1), "bad_header", "longer than extFields"
    ),
    "topic 1.5": (frame(json_header(310, {"b": 1.5}, opaque=1)), "bad_header", "topic"),  # type: ignore[dict-item]
}  # fmt: skip
