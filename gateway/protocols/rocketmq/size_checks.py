"""Size checks: what a frame announces of its own size, checked before anything is waited for or kept on its account."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from common.octets import u32
from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.headers import BINARY
from gateway.protocols.rocketmq.protocol_detection import looks_like_kafka, too_large

PREFIX: Final = 8  # bytes before the header
MAX_HEADER_BYTES: Final = 1 << 18  # properties are at most 32,767, six times that if each were escaped: a guess with room


def check_length(data: bytes, at: i64, max_frame: i64) -> i64:
    """The length announced at `data[at]`; raises ProtocolError where there cannot be such a frame."""
    length: i64 = u32(data, at)
    if length > max_frame - 4:
        raise too_large(data[at : at + 4], length, max_frame)
    if length < 4:
        raise ProtocolError(f"a frame announces {length} bytes, less than its own header length takes", cause="bad_length")
    return length


def check_header(kind: i64, size: i64, length: i64) -> bool:
    """Whether a header of `size` bytes is taken; raises ProtocolError where none of this serialize type can be in a frame that announces
    `length`."""
    if kind <= BINARY and size <= length - 4:
        return size <= MAX_HEADER_BYTES
    if kind > BINARY:
        raise ProtocolError(f"serialize type {kind} is neither JSON (0) nor ROCKETMQ (1)", cause="bad_header")
    if looks_like_kafka(kind << 24 | size):
        raise ProtocolError("not a RocketMQ frame: this may be a Kafka client on the RocketMQ port", cause="wrong_protocol")
    raise ProtocolError(f"a header of {size} bytes in a frame of {length + 4}", cause="bad_header")


def header_too_long(size: int) -> ProtocolError:
    return ProtocolError(f"a header of {size} bytes; more than {MAX_HEADER_BYTES} are not taken", cause="frame_too_large")
