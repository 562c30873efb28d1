"""What a limited poll asks for: queue, offset, how many messages, and how long its client can be kept waiting.

Read only where a rule looks at the topic; an unlimited poll is known by its topic and group alone. A field that cannot be read has its
default: the broker will say what is wrong with it. The offset has none (NO_OFFSET): a client goes on, and may commit, where an empty answer
tells it to.

How long a pull may be kept (`docs/design/rocketmq.md` 3.3). Its client waits for 30 s. Of these the broker may need the suspend time the
pull allows it and up to 5 s more (PullRequestHoldService looks every 5 s), and a second is left for the way: 9 s with 15 s (Java push, C++,
ali-ons), 4 s with 20 s (Go, Java lite pull). A pull that may not be suspended has a client that waits 10 s: it is kept for half of that. A
pop must be with the broker within `pollTime` of its birth, or it is answered empty-handed (`PopMessageRequestHeader.isTimeoutTooMuch`); its
client waits 10 s longer. Nothing is answered sooner than MIN_HOLD_NS, whatever the request says: most clients ask again at once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec
from mypy_extensions import i64

from common.octets import u16, u32
from gateway.protocols.rocketmq.headers import JSON
from gateway.protocols.rocketmq.loose_texts import is_utf8, tighten

POP_MESSAGE: Final = 200_050
NOTIFICATION: Final = 200_054
POP_LITE_MESSAGE: Final = 200_070  # of light topics, 5.5: asks for `maxMsgNum`, of any queue
POPS: Final = frozenset((POP_MESSAGE, NOTIFICATION, POP_LITE_MESSAGE))
SUSPEND: Final = 2  # bit of a pull's sysFlag: the broker may keep it until there is a message (PullSysFlag)

MS: Final = 1_000_000  # ns
CLIENT_WAITS_NS: Final = 30_000 * MS  # consumerTimeoutMillisWhenSuspend of Java, Go, C++ and ali-ons
BROKER_LOOKS_NS: Final = 5_000 * MS
WAY_NS: Final = 1_000 * MS
NOT_SUSPENDED_NS: Final = 5_000 * MS  # of the 10 s of consumerPullTimeoutMillis
MAX_POP_HOLD_NS: Final = 14_000 * MS  # with Java's 15 s of pollTime
MAX_PULL_HOLD_NS: Final = 9_000 * MS  # a client that allows the broker less than 15 s may wait for less than 30 s
MIN_HOLD_NS: Final = 1_000 * MS  # most clients ask again at once: a guess
NO_OFFSET: Final = -(1 << 63)
MAX_MESSAGES_ASKED: Final = 1024  # at once; the broker gives less (maxTransferCountOnMessageInMemory: 32): a guess

NAMES: Final = ("queueId", "queueOffset", "maxMsgNums", "sysFlag", "suspendTimeoutMillis", "pollTime", "maxMsgNum")
PollFields: Final[Any] = msgspec.defstruct("PollFields", [(name, Any, None) for name in NAMES], gc=False)
PollHeader: Final[Any] = msgspec.defstruct("PollHeader", [("extFields", PollFields, None)], gc=False)
decode_poll: Final = msgspec.json.Decoder(PollHeader).decode


class PollTerms:
    """What one poll asks for."""

    __slots__ = ("max_messages", "offset", "patience_ns", "queue")

    def __init__(self, queue: int, offset: int, max_messages: int, patience_ns: int) -> None:
        self.queue = queue  # -1: any
        self.offset = offset  # NO_OFFSET: it cannot be read
        self.max_messages = max_messages  # messages
        self.patience_ns = patience_ns  # how long the gateway may keep it

    def __repr__(self) -> str:
        return f"<PollTerms queue={self.queue} offset={self.offset} max_messages={self.max_messages} patience={self.patience_ns // MS}ms>"


def read_terms(data: bytes, start: i64, end: i64, kind: int, code: int) -> PollTerms:
    """The terms in the header `data[start:end]` of serialize type `kind`, which has been read before."""
    values = json_values(data[start:end]) if kind == JSON else binary_values(data, start, end)
    max_messages = number(values[6] if code == POP_LITE_MESSAGE else values[2], 32)
    most = min(max(max_messages, 1), MAX_MESSAGES_ASKED)
    return PollTerms(number(values[0], -1), number(values[1], NO_OFFSET), most, patience(code, values))


def patience(code: int, values: list[object]) -> int:
    if code in POPS:
        kept = number(values[5], 0) * MS - WAY_NS
        return min(max(kept, MIN_HOLD_NS), MAX_POP_HOLD_NS)
    if not number(values[3], 0) & SUSPEND:
        return NOT_SUSPENDED_NS
    kept = CLIENT_WAITS_NS - number(values[4], 0) * MS - BROKER_LOOKS_NS - WAY_NS
    return min(max(kept, MIN_HOLD_NS), MAX_PULL_HOLD_NS)


def json_values(text: bytes) -> list[object]:
    """The values of NAMES; None where there is none."""
    fields = read_fields(text) if is_utf8(text) else None
    if fields is None:
        with suppress(UnicodeDecodeError):
            fields = read_fields(tighten(text))  # as the header was read before
    if fields is None:
        return [None] * len(NAMES)
    return [
        fields.queueId, fields.queueOffset, fields.maxMsgNums, fields.sysFlag, fields.suspendTimeoutMillis, fields.pollTime,
        fields.maxMsgNum,
    ]  # fmt: skip


def read_fields(text: bytes) -> Any:
    """The extFields of the header `text`; None where it cannot be read."""
    try:
        return decode_poll(text).extFields
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def binary_values(data: bytes, start: i64, end: i64) -> list[object]:
    found: list[object] = [None] * len(NAMES)
    at: i64 = start + 17 + u32(data, start + 13) + 4
    while at + 6 <= end:
        name: i64 = u16(data, at)
        value: i64 = at + 2 + name + 4
        size: i64 = u32(data, value - 4)
        word = data[at + 2 : at + 2 + name].decode(errors="replace")
        if word in NAMES:
            found[NAMES.index(word)] = data[value : value + size].decode(errors="replace")
        at = value + size
    return found


def number(value: object, default: int) -> int:
    """A value of extFields as the broker reads it into an int or long."""
    if isinstance(value, str):
        if len(value) > 20 or not value.isascii() or not value.removeprefix("-").isdigit():
            return default
        value = int(value)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return int(value)
    return default
