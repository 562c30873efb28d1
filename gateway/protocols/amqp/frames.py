"""AMQP 0-9-1 frames: their numbers, and the few frames the gateway writes itself.

Theory. Everything after the 8-byte protocol header is frames::

    ┌──────┬─────────┬──────────┬─────────────────┬──────┐
    │ type │ channel │   size   │ payload         │ 0xCE │      type 1 method · 2 content header · 3 body · 8 heartbeat
    │  u8  │   u16   │   u32    │ `size` bytes    │  u8  │      channel 0 speaks about the connection itself
    └──────┴─────────┴──────────┴─────────────────┴──────┘

A method's payload begins with class and method, 16 bits each; they are compared here as one number (`basic.publish` is 0x003C0028).
A message is a method, one content header that announces `body_size`, and body frames until that many bytes have come (none for an empty
body). Frames of other channels may come in between; frames of the same channel may not. "frame_max" counts the whole frame, payload and
8 bytes around it; RabbitMQ tolerates 8 more (`rabbit_reader.erl`, FRAME_SIZE_FUDGE), and so does the gateway: a *payload* may be as
large as frame_max.

The general way to read a frame is pamqp's `unmarshal`, 10 µs a message; here frames are looked at where they lie.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from common.octets import u32
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.parts import PLAIN, Part

METHOD: Final = 1
HEADER: Final = 2
BODY_FRAME: Final = 3
HEARTBEAT: Final = 8
END: Final = 0xCE
OVERHEAD: Final = 8  # bytes of a frame around its payload
MIN_FRAME_BYTES: Final = 8  # a heartbeat
PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

CONNECTION_START: Final = 0x000A000A
CONNECTION_START_OK: Final = 0x000A000B
CONNECTION_TUNE: Final = 0x000A001E
CONNECTION_TUNE_OK: Final = 0x000A001F
CONNECTION_OPEN: Final = 0x000A0028
CONNECTION_OPEN_OK: Final = 0x000A0029
CONNECTION_CLOSE: Final = 0x000A0032
CONNECTION_CLOSE_OK: Final = 0x000A0033
CONNECTION_BLOCKED: Final = 0x000A003C
CONNECTION_UNBLOCKED: Final = 0x000A003D
CHANNEL_OPEN: Final = 0x0014000A
CHANNEL_OPEN_OK: Final = 0x0014000B
CHANNEL_CLOSE: Final = 0x00140028
CHANNEL_CLOSE_OK: Final = 0x00140029
CONFIRM_SELECT_OK: Final = 0x0055000B
EXCHANGE_DECLARE: Final = 0x0028000A
EXCHANGE_DELETE: Final = 0x00280014
EXCHANGE_BIND: Final = 0x0028001E
EXCHANGE_UNBIND: Final = 0x00280028
QUEUE_BIND: Final = 0x00320014
QUEUE_PURGE: Final = 0x0032001E
QUEUE_UNBIND: Final = 0x00320032
QUEUE_DECLARE: Final = 0x0032000A
QUEUE_DECLARE_OK: Final = 0x0032000B
BASIC_QOS: Final = 0x003C000A
BASIC_QOS_OK: Final = 0x003C000B
QUEUE_DELETE: Final = 0x00320028
QUEUE_DELETE_OK: Final = 0x00320029
BASIC_CONSUME: Final = 0x003C0014
BASIC_CONSUME_OK: Final = 0x003C0015
BASIC_CANCEL: Final = 0x003C001E
BASIC_CANCEL_OK: Final = 0x003C001F
BASIC_PUBLISH: Final = 0x003C0028
BASIC_RETURN: Final = 0x003C0032
BASIC_DELIVER: Final = 0x003C003C
BASIC_GET: Final = 0x003C0046
BASIC_GET_OK: Final = 0x003C0047
BASIC_GET_EMPTY: Final = 0x003C0048
BASIC_ACK: Final = 0x003C0050
BASIC_REJECT: Final = 0x003C005A
BASIC_RECOVER_ASYNC: Final = 0x003C0064
BASIC_RECOVER: Final = 0x003C006E
BASIC_RECOVER_OK: Final = 0x003C006F
RECOVERS: Final = (BASIC_RECOVER, BASIC_RECOVER_ASYNC)  # of the client
BASIC_NACK: Final = 0x003C0078
CONFIRM_SELECT: Final = 0x0055000A
TX_SELECT: Final = 0x005A000A
TX_COMMIT: Final = 0x005A0014
TX_COMMIT_OK: Final = 0x005A0015
CONTENT_OF_BASIC: Final = 0x003C0000  # the first four bytes of a content header: class 60, weight 0

# Reply codes (AMQP 0-9-1 specification 1.2, amqp0-9-1.xml constants).
NO_ROUTE: Final = 312
CONNECTION_FORCED: Final = 320
ACCESS_REFUSED: Final = 403
FRAME_ERROR: Final = 501
SYNTAX_ERROR: Final = 502
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
UNEXPECTED_FRAME: Final = 505
PRECONDITION_FAILED: Final = 406
NOT_ALLOWED: Final = 530
RESOURCE_ERROR: Final = 506
INTERNAL_ERROR: Final = 541

REPLY_SUCCESS: Final = 200
NAMES: Final = {
    CONNECTION_FORCED: "CONNECTION_FORCED",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    FRAME_ERROR: "FRAME_ERROR",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    COMMAND_INVALID: "COMMAND_INVALID",
    CHANNEL_ERROR: "CHANNEL_ERROR",
    UNEXPECTED_FRAME: "UNEXPECTED_FRAME",
    NOT_ALLOWED: "NOT_ALLOWED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    RESOURCE_ERROR: "RESOURCE_ERROR",
    INTERNAL_ERROR: "INTERNAL_ERROR",
}


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return b"%c%b%b%b\xce" % (kind, channel.to_bytes(2, "big"), len(payload).to_bytes(4, "big"), payload)


def method_frame(channel: int, method: int, arguments: bytes) -> bytes:
    return frame(METHOD, channel, method.to_bytes(4, "big") + arguments)


def short_string(text: bytes) -> bytes:
    """A length octet and at most 255 bytes; the rest of a longer text is cut off."""
    text = text[:255]
    return b"%c%b" % (len(text), text)


def read_short_string(data: bytes, at: int) -> tuple[bytes, int]:
    """The short string at `at`, cut off where `data` ends, and where the next argument begins; `at` where there is none."""
    if at >= len(data):
        return b"", at
    end = at + 1 + data[at]
    return data[at + 1 : end], end


def over_frame_limit(size: int, limit: int) -> str:
    """Words for a frame whose payload is larger than `limit`."""
    return f"a frame of {size} bytes, at most {limit} are taken (the frame_max agreed on, or the listener's max_frame)"


def method_of(part: Part) -> int:
    """The method a part begins with; 0 where it begins with another frame, or in the middle of one (no method lies there)."""
    if part.kind != PLAIN or part.end - part.start < OVERHEAD + 4 or part.data[part.start] != METHOD:
        return 0
    return u32(part.data, part.start + 7)


def closing_arguments(code: int, text: str, method: int) -> bytes:
    """Code, text and the method to blame (0: none), as RabbitMQ words it: `CODE_NAME - what happened`."""
    name = NAMES.get(code)
    words = text if name is None else f"{name} - {text}"
    cut = words.encode()[:255].decode("utf-8", "ignore").encode()  # clients decode it: no half character at its end
    return code.to_bytes(2, "big") + short_string(cut) + method.to_bytes(4, "big")


def connection_close(code: int, text: str) -> bytes:
    return method_frame(0, CONNECTION_CLOSE, closing_arguments(code, text, 0))


def channel_close(channel: int, code: int, text: str, method: int) -> bytes:
    return method_frame(channel, CHANNEL_CLOSE, closing_arguments(code, text, method))


def write_confirm(out: BytesWriter, channel: i64, method: i64, tag: i64, *, multiple: bool) -> None:
    """basic.ack or basic.nack, `method`, of `tag`, which is below 2**55: no count gets that far."""
    write_i32_be(out, i32(METHOD << 24 | channel << 8))  # and the first octet of the payload's size, 13
    write_i64_be(out, 13 << 40 | method << 8)  # and the first octet of the tag
    write_i64_be(out, tag << 8 | (1 if multiple else 0))
    out.append(END)


def write_nacks(out: BytesWriter, channel: i64, first: i64, count: i64) -> None:
    """basic.nack, each for one tag, for `count` tags from `first` on."""
    for tag in range(first, first + count):
        write_confirm(out, channel, BASIC_NACK, tag, multiple=False)


def client_error(code: int, text: str, cause: str = "protocol_error") -> ProtocolError:
    """The client's fault; the client gets a connection.close with `code`."""
    return ProtocolError(f"{NAMES[code]} - {text}", cause=cause, last_frames=connection_close(code, text))


def broker_error(text: str) -> ProtocolError:
    """The broker's fault; the client gets a connection.close 541."""
    words = f"the broker behind this gateway broke the protocol: {text}"
    return ProtocolError(text, whose="broker", cause="broker_protocol_error", last_frames=connection_close(INTERNAL_ERROR, words))
