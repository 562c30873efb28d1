"""How a refused publish is answered: `basic.nack`, and before it `basic.return` where the client asked to be told (mandatory).

Clients take a return for "this message, by its properties, was not delivered" and find theirs by message id or by a header of their own,
so it carries the properties and the body exactly as published; only the body's frames are cut anew, to the client's frame_max. The reply
code is 312 (NO_ROUTE), the one code clients know for it; the text says what really happened.

While a refused content is still coming in, nothing is answered: the client is within a message. `Unanswered` keeps what the answer needs
until the last byte is there. A body too large for the connection's budget is not kept: that publish gets its
nack without a return.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from common.octets import u32, u64
from gateway.pipeline.parts import EXPIRED, Part
from gateway.protocols.amqp.frames import (
    BASIC_RETURN,
    BODY_FRAME,
    HEADER,
    NO_ROUTE,
    OVERHEAD,
    frame,
    method_frame,
    short_string,
    write_nacks,
)
from limiter.decisions.caps import is_cap
from limiter.limits import NEVER
from limiter.operations import CONNECT
from limiter.rules.rule import FIT, HAS_COPIES
from limiter.units import format_duration, format_limit

RATE_LIMITED: Final = "RATE_LIMITED - "
MAX_TEXT_BYTES: Final = 255 - len("RESOURCE_ERROR - ")  # of a reply text, which is a short string
MAX_NAME_BYTES: Final = 64  # of a rule's name in a reply text; longer ones leave no room for the key: a guess
FRAMING_BYTES: Final = 4096  # around a body that is kept, beside an eighth of it; enough for frames of 64 bytes and more: a guess


def publish_end(data: bytes, at: i64, end: i64) -> i64:
    """Where the whole publish at `at` (method, header and body frames, one behind the other) ends; at most `end`."""
    at += u32(data, at + 3) + OVERHEAD
    left: i64 = u64(data, at + 11)
    at += u32(data, at + 3) + OVERHEAD
    while left > 0 and at < end:
        size = u32(data, at + 3)
        left -= size
        at += size + OVERHEAD
    return at


def is_mandatory(data: bytes, at: i64) -> bool:
    """Whether the publish whose method frame is at `at` has its `mandatory` bit set: the first of the last argument octet."""
    last: i64 = at + 7 + u32(data, at + 3) - 1
    bits: i64 = data[last]
    return (bits & 1) != 0


def body_of(frames: bytes, at: i64, end: i64) -> bytes:
    """The body: the payloads of the body frames in `frames[at:end]`, joined."""
    pieces: list[bytes] = []
    while at < end:
        size = u32(frames, at + 3)
        pieces.append(frames[at + 7 : at + 7 + size])
        at += size + OVERHEAD
    return b"".join(pieces)


def build_return(channel: int, data: bytes, at: i64, body: bytes, text: str, body_frame: int) -> bytes:
    """basic.return of the publish at `at`, content and all: the header in one frame as it came, as brokers return it."""
    header = at + u32(data, at + 3) + OVERHEAD
    header_size = u32(data, header + 3)
    arguments = at + 13  # behind class, method and the reserved ticket: exchange, routing key, bits
    names = data[arguments : header - 2]
    pieces = [
        method_frame(channel, BASIC_RETURN, NO_ROUTE.to_bytes(2, "big") + short_string(text.encode()) + names),
        frame(HEADER, channel, data[header + 7 : header + 7 + header_size]),
    ]
    pieces.extend(frame(BODY_FRAME, channel, body[cut : cut + body_frame]) for cut in range(0, len(body), body_frame))
    return b"".join(pieces)


def over_limit(part: Part) -> str:
    """The text of a refusal: whose limit, which one, for which key, and when it would pass; with RESOURCE_ERROR before it at most 255
    bytes.

    Long names are cut, the wait never is.
    """
    key = part.key
    rule = part.rule
    bucket = part.bucket
    topic = "" if key is None else "connections" if key.operation == CONNECT else key.text
    if part.unjudged == EXPIRED:
        age = None if rule is None else rule.max_age_ns
        waited = " has waited for longer than it is of use"
        if rule is not None and age is not None:
            waited = f" has waited for longer than max_age, {format_duration(age)}, of rule {cut(rule.name, MAX_NAME_BYTES)}"
        return f"{RATE_LIMITED}{cut(topic, MAX_TEXT_BYTES - len(RATE_LIMITED) - len(waited.encode()))}{waited}"
    if part.unfit != FIT:
        return f"{explain_unfit(part)}: {cut(topic, MAX_NAME_BYTES)}"
    over = " is over a limit"
    if rule is not None:
        of_rule = f" of rule {cut(rule.name, MAX_NAME_BYTES)}"
        if bucket is not None and bucket.effective.per == "rule":  # then the rule is named already
            of_rule = ""
        what = "limit" if bucket is None or not is_cap(bucket) else "share of the cap"
        over = f" is over its {what} of {format_limit(rule.limit, ' and ')}{of_rule}"
    wait = f", wait {-(-part.wait_ns // 1_000_000)} ms" if part.wait_ns < NEVER else ", nothing passes"
    room = MAX_TEXT_BYTES - len(RATE_LIMITED) - len(over.encode()) - len(wait)
    if bucket is None or bucket.owner_text() == topic or is_cap(bucket):
        return f"{RATE_LIMITED}{cut(topic, room)}{over}{wait}"
    whose = cut(bucket.owner_text(), MAX_NAME_BYTES)
    return f"{RATE_LIMITED}{whose}{over} ({cut(topic, room - len(whose.encode()) - 3)}){wait}"


def explain_unfit(part: Part) -> str:
    """Why `part` never passes; of its size in RabbitMQ's words."""
    rule = part.rule
    assert rule is not None
    if part.unfit == HAS_COPIES:
        return f"copies (CC, BCC) are refused by rule {cut(rule.name, MAX_NAME_BYTES)}"
    return f"message size {part.size} is larger than configured max size {rule.max_message_size} of rule {cut(rule.name, MAX_NAME_BYTES)}"


def cut(text: str, size: int) -> str:
    """As much of `text` as fits into `size` bytes."""
    return text.encode()[: max(size, 0)].decode("utf-8", "ignore")


def write_answer(out: BytesWriter, part: Part, first_tag: int, count: int, body_frame: int) -> None:
    """Write the answers to the first `count` publishes of `part`, whose contents are complete: nacks, with returns before them."""
    data = part.data
    at: i64 = part.start
    end: i64 = part.end
    channel = part.ordering_key
    if count == 1 and not is_mandatory(data, at):
        write_nacks(out, channel, first_tag, 1)
        return
    plain = 0  # publishes that need a nack only, not written yet
    tag = first_tag
    for _ in range(count):
        stop = publish_end(data, at, end)
        if is_mandatory(data, at):
            write_nacks(out, channel, tag - plain, plain)
            plain = 0
            body_at = at + u32(data, at + 3) + OVERHEAD
            body_at += u32(data, body_at + 3) + OVERHEAD
            out.write(build_return(channel, data, at, body_of(data, body_at, stop), over_limit(part), body_frame))
            write_nacks(out, channel, tag, 1)
        else:
            plain += 1
        tag += 1
        at = stop
    write_nacks(out, channel, tag - plain, plain)


class Unanswered:
    """A refused publish whose content is still coming in. `reserved` bytes at most are kept of it."""

    __slots__ = ("channel", "content", "kept", "pieces", "reserved", "tag", "text")

    def __init__(self, part: Part, at: int, tag: int, room: int) -> None:
        """`at`: where in `part.data` its method frame begins; `room`: bytes of content that may be kept."""
        data = part.data
        self.channel = part.ordering_key
        self.tag = tag
        self.text = over_limit(part)
        self.pieces: list[bytes] = []
        self.reserved = 0  # 0: nothing is kept, there will be no return
        self.kept = part.end - at
        self.content = b""  # method, header, and the body frames there are
        if is_mandatory(data, at):
            size = u64(data, at + u32(data, at + 3) + OVERHEAD + 11)
            reserved = self.kept + size + size // 8 + FRAMING_BYTES
            if size >= 0 and reserved <= room:
                self.reserved = reserved
                self.content = data[at : part.end]

    def add(self, part: Part) -> None:
        """The content goes on with `part`."""
        self.kept += part.end - part.start
        if self.kept <= self.reserved:
            self.pieces.append(part.data[part.start : part.end])
        else:  # a body cut into absurdly many frames
            self.pieces.clear()
            self.content = b""

    def size(self) -> int:
        """Bytes kept."""
        return self.kept if self.content else 0

    def answer(self, body_frame: int) -> bytes:
        """What the client is told now that the content is complete."""
        out = BytesWriter()
        if self.content:
            content = b"".join([self.content, *self.pieces])
            at: i64 = u32(content, 3) + OVERHEAD
            at += u32(content, at + 3) + OVERHEAD
            out.write(build_return(self.channel, content, 0, body_of(content, at, len(content)), self.text, body_frame))
        write_nacks(out, self.channel, self.tag, 1)
        return out.getvalue()

    def __repr__(self) -> str:
        return f"<Unanswered tag={self.tag} channel={self.channel} kept={self.kept if self.content else 'nothing'}>"
