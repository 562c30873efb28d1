"""Limit requests: what a console asks of the gateway in RocketMQ's own frames, and the frames that answer it (`docs/design/rocketmq.md` 6).

MQCloud's patched broker has two requests of its own: view the limits (9002, or 329) and change one (9003, or 330). A console sends
the one or the other number depending on the broker's version. The older ones are taken only where the listener allows it, because RocketMQ
uses 329 itself.

Here a request is read: its sender, its topic and rate, and what is wrong with it. The original took any number above -1, did nothing for a
topic without traffic, and answered "done" all the same. Here a change that cannot be made is a `fault`, in words for the person at the
console.
"""

from __future__ import annotations

import math
import re
from typing import Final

import msgspec
from mypy_extensions import i64

from common.octets import u16, u32
from gateway.pipeline.errors import ProtocolError
from gateway.protocols.rocketmq.header_ambiguity import unreadable
from gateway.protocols.rocketmq.headers import BINARY, FIXED, decode_any
from gateway.protocols.rocketmq.refusals import VERSION
from gateway.protocols.rocketmq.requests import GatewayRequest
from limiter.rules.patterns import Addresses

VIEW: Final = 9002  # VIEW_SEND_MESSAGE_RATE_LIMIT_V2: no fields
CHANGE: Final = 9003  # UPDATE_SEND_MESSAGE_RATE_LIMIT_V2: topic, topicLimitQps
OLD_VIEW: Final = 329  # upstream DELETE_EXPIRED_COMMITLOG
OLD_CHANGE: Final = 330
CODES: Final = frozenset((VIEW, CHANGE))
OLD_CODES: Final = frozenset((OLD_VIEW, OLD_CHANGE))
CHANGES: Final = frozenset((CHANGE, OLD_CHANGE))

SUCCESS: Final = 0  # answers' codes
SYSTEM_ERROR: Final = 1
NO_PERMISSION: Final = 16

# A number as Double.parseDouble takes it and Double.toString writes it, but for the hexadecimal form, which no console sends
DOUBLE: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
MAX_TEXT_CHARACTERS: Final = 64  # of a number, of what a remark quotes, of an access key that is kept: a guess


class Permission:
    """Who may send limit requests to a listener: `remote_admin` of its settings."""

    __slots__ = ("_access_keys", "_addresses", "codes")

    def __init__(self, allow: tuple[str, ...], access_keys: tuple[str, ...], legacy_codes: bool) -> None:  # noqa: FBT001  -- as the settings
        self._addresses = [Addresses(text) for text in allow]
        self._access_keys = access_keys
        self.codes: frozenset[int] = CODES | OLD_CODES if legacy_codes else CODES

    def fault(self, client: str, access_key: str) -> str:
        """Why this client may not, or "". Its address must be allowed; where access keys are named, it must claim one of them, too."""
        if not any(addresses.matches(client) for addresses in self._addresses):
            return f"{client} is not in this listener's remote_admin.allow"
        if self._access_keys and access_key not in self._access_keys:
            return f"access key {access_key[:MAX_TEXT_CHARACTERS]!r} is not in this listener's remote_admin.access_keys"
        return ""


class LimitRequest:
    """One such request. `fault`, where there is one, says what is wrong with it; `topic` and `rate` are then of no meaning."""

    __slots__ = ("access_key", "code", "fault", "one_way", "opaque", "rate", "topic")

    def __init__(self, request: GatewayRequest) -> None:
        self.code = request.code
        self.opaque = request.opaque
        self.one_way = request.one_way  # the console does not wait for an answer
        self.access_key = ""
        self.topic = b""
        self.rate = 0.0  # messages a second
        self.fault = ""
        try:
            fields = read_fields(request)
        except ProtocolError as error:
            self.fault = str(error)
            return
        self.access_key = fields.get("AccessKey", "")[:MAX_TEXT_CHARACTERS]
        if self.changes():
            self.fault = self._read(fields)

    def changes(self) -> bool:
        return self.code in CHANGES

    def _read(self, fields: dict[str, str]) -> str:
        """Read what is to be changed. Returns what is wrong with that, or ""."""
        for name in ("disabled", "defaultLimitQps", "sendMsgBackLimitQps"):
            value = fields.get(name)
            if value is not None and number(value) != -1:
                return f"{name} is not changed by this request: change the rule instead (sluice rules set NAME)"
        topic = fields.get("topic", "")
        if not topic:
            return "topic is missing: say whose limit is to be changed"
        self.topic = topic.encode()
        text = fields.get("topicLimitQps")
        if text is None:
            return "topicLimitQps is missing: say how many messages a second, 0 to refuse all"
        rate = number(text)
        if rate is None:
            return f"topicLimitQps {text[:MAX_TEXT_CHARACTERS]!r} is no number: say how many messages a second, 0 to refuse all"
        if rate < 0:
            way_out = f"sluice limits unset rocketmq {topic[:MAX_TEXT_CHARACTERS]!r} returns to the rules"
            return f"topicLimitQps {text[:MAX_TEXT_CHARACTERS]} is negative: 0 refuses all; {way_out}"
        self.rate = rate
        return ""

    def __repr__(self) -> str:
        return f"<LimitRequest {self.code} {self.topic!r} {self.rate} {self.fault}>"


def number(text: str) -> float | None:
    """The finite number `text` is, as Java reads it; None where it is none."""
    text = text.strip()
    if len(text) > MAX_TEXT_CHARACTERS or DOUBLE.fullmatch(text) is None:
        return None
    value = float(text.rstrip("fFdD"))
    return value if math.isfinite(value) else None


def read_fields(request: GatewayRequest) -> dict[str, str]:
    """The request's extFields as text. Raises ProtocolError."""
    data = request.data
    if data[request.header_at - 4] == BINARY:
        return read_binary_fields(data, request.header_at, request.body_at)
    try:
        found = decode_any(data[request.header_at : request.body_at])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable(str(error)) from None
    extra: object = found.get("extFields") if isinstance(found, dict) else None
    if not isinstance(extra, dict):
        return {}
    return {str(name): as_text(value) for name, value in extra.items() if value is not None}


def as_text(value: object) -> str:
    """A value of extFields as the broker's map of strings holds it; what is neither text nor number reads as no number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def read_binary_fields(data: bytes, start: i64, end: i64) -> dict[str, str]:
    """The extFields of the binary header `data[start:end]`. Raises ProtocolError."""
    fields: dict[str, str] = {}
    if end - start < FIXED:
        raise unreadable(f"{end - start} bytes, the fixed part alone has {FIXED}")
    at: i64 = start + 17
    remark: i64 = u32(data, at - 4)
    if remark > end - at - 4:
        raise unreadable("the remark is longer than the header")
    at += remark
    if u32(data, at) != end - at - 4:
        raise unreadable("extFields do not fill the header")
    at += 4
    while at < end:
        if end - at < 6:
            raise unreadable("extFields end within an entry")
        name: i64 = u16(data, at)
        value: i64 = at + 2 + name + 4
        if value > end:
            raise unreadable("a name is longer than extFields")
        size: i64 = u32(data, value - 4)
        if size > end - value:
            raise unreadable("a value is longer than extFields")
        key = data[at + 2 : at + 2 + name].decode(errors="replace")
        fields[key] = data[value : value + size].decode(errors="replace")
        at = value + size
    return fields


def build_answer(opaque: int, code: int, remark: str = "", body: bytes = b"") -> bytes:
    """The frame that answers the request of this opaque; a JSON header, whatever the request's was."""
    fields: dict[str, object] = {"code": code, "flag": 1, "language": "JAVA", "opaque": opaque}
    if remark:
        fields["remark"] = remark
    fields |= {"serializeTypeCurrentRPC": "JSON", "version": VERSION}
    header = msgspec.json.encode(fields)
    return (4 + len(header) + len(body)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body
