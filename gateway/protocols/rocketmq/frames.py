"""Frames: the client's bytes, cut into parts.

One frame is ``4 length | 1 serialize type | 3 header length | header | body``. Everything announced is checked before it is waited for,
and nothing is ever kept for an announcement: bytes are asked for (`need`), never reserved.

* Up to `whole_frame` a frame is decoded when it is complete.
* A larger one is decoded when its header is there; its body follows as BODY parts (`streaming`). It cannot be held.
* A batch must be complete, whatever its size, because its messages have to be counted. Bound: `max_frame`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from gateway.conversation import Circumstances
from gateway.messages import BODY, PLAIN, Part, ProtocolError
from gateway.protocols.octets import u32
from gateway.protocols.rocketmq.batches import count_batch
from gateway.protocols.rocketmq.headers import BINARY, JSON, ONE_WAY, Header, read_binary, read_fields, read_json
from gateway.protocols.rocketmq.likeness import Likenesses
from gateway.protocols.rocketmq.requests import Sends
from gateway.protocols.rocketmq.strangers import too_large
from limiter.keys import Key, Origin, rocketmq_topic

PREFIX: Final = 8  # bytes before the header
WHOLE_FRAME: Final = 1 << 20  # bytes; a guess: above it a frame is not worth keeping. The broker's own limit of a message is 4 MiB
LONGEST_HEADER: Final = 1 << 20  # bytes; properties are at most 32,767, six times that if each were escaped: a guess with room
SEPARATOR: Final = b"\xff"  # between topic and group in a raw key: no byte of UTF-8

LANGUAGES: Final = ("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS")


class Frames:
    """Where one client's stream of frames stands, and what was learned from it."""

    def __init__(self, circumstances: Circumstances, origin: Origin) -> None:
        self.circumstances = circumstances
        self.origin = origin
        self.need = 4  # bytes that must be there from the first undecoded one to get further
        self.at: i64 = 0  # index of the frame being decoded
        self.streaming: i64 = 0  # bytes still to come of the body of a frame that was decoded before it was complete
        self.language = ""  # of the client, as its first request says
        self.version = -1
        self.max_length: i64 = circumstances.max_frame - 4
        self.whole_frame: i64 = min(circumstances.hold_bytes, WHOLE_FRAME)
        self.likenesses = Likenesses()
        self.last_header: Header | None = None  # that `last_key` was found for
        self.last_key: Key | None = None

    def decode(self, data: bytes, start: int, room: int, parts: list[Part]) -> int:
        """Append the parts in `data[start:]`, about `room` requests; the index of the first byte not decoded. Raises ProtocolError."""
        size: i64 = len(data)
        at: i64 = start
        left: i64 = room
        if self.streaming > 0:
            at = self._continue_body(data, at, size, parts)
            if self.streaming > 0:
                self.need = 1
                return at
        run: Sends | None = None
        plain: Part | None = None
        whole: i64 = self.whole_frame
        while True:
            self.at = at
            there: i64 = size - at
            if there < PREFIX:
                if there >= 4:
                    self._check_length(data, at)
                    self.need = PREFIX
                else:
                    self.need = 4
                return at
            if left <= 0:
                self.need = 1
                return at
            length: i64 = self._check_length(data, at)
            word: i64 = u32(data, at + 4)
            kind: i64 = word >> 24
            header_at: i64 = at + PREFIX
            header_end: i64 = header_at + (word & 0xFFFFFF)
            end: i64 = at + 4 + length
            if kind > BINARY or header_end > end or header_end - header_at > LONGEST_HEADER:
                raise self._bad_header(kind, header_end - header_at, length)
            large = end - at > whole
            if end > size:
                if not large:
                    self.need = end - at
                    return at
                if header_end > size:
                    self.need = header_end - at
                    return at
            if kind == JSON:
                known = self.likenesses.recognise(data, header_at, header_end)
                if known is not None:
                    header = known
                    opaque = self.likenesses.opaque
                else:
                    text = data[header_at:header_end]
                    header = read_json(text)
                    opaque = header.opaque
                    self._meet(text, header)
            else:
                header = read_binary(data, header_at, header_end)
                opaque = header.opaque
                if self.version < 0:
                    self._meet_binary(data, header_at)
            left -= 1
            if not header.topic:
                run = None
                if plain is not None:
                    plain.end = min(end, size)
                else:
                    plain = Part(PLAIN, 0, data, at, min(end, size))
                    parts.append(plain)
                if end > size:
                    plain.complete = False
                    self.streaming = end - size
                    self.need = 1
                    return size
                at = end
                continue
            messages = 1
            if header.batch:
                if end > size:
                    self.need = end - at
                    return at
                messages = count_batch(data, header_end, end)
                large = False
            key = self._key(header)
            cost: int = end - header_end
            one_way = header.flag & ONE_WAY != 0
            plain = None
            if large:
                run = None
                complete = end <= size
                parts.append(Sends(data, at, min(end, size), key, messages, cost, [opaque], one_way, True, complete))
                if not complete:
                    self.streaming = end - size
                    self.need = 1
                    return size
            elif run is not None and run.key is key and run.size == cost and run.messages == messages and run.one_way == one_way:
                run.count += 1
                run.end = end
                run.opaques.append(opaque)
            else:
                run = Sends(data, at, end, key, messages, cost, [opaque], one_way, False, True)
                parts.append(run)
            at = end

    def _continue_body(self, data: bytes, at: i64, size: i64, parts: list[Part]) -> i64:
        """What is there of a body whose beginning was judged."""
        end: i64 = at + self.streaming
        end = min(end, size)
        self.streaming -= end - at
        if end > at:
            parts.append(Part(BODY, 0, data, at, end, complete=self.streaming == 0))
        return end

    def _check_length(self, data: bytes, at: i64) -> i64:
        length: i64 = u32(data, at)
        if length > self.max_length:
            raise too_large(data[at : at + 4], length, self.circumstances.max_frame)
        if length < 4:
            raise ProtocolError(f"a frame announces {length} bytes, less than its own header length takes", cause="bad_length")
        return length

    def _bad_header(self, kind: i64, size: i64, length: i64) -> ProtocolError:
        if kind > BINARY:
            return ProtocolError(f"serialize type {kind} is neither JSON (0) nor ROCKETMQ (1)", cause="bad_header")
        if size > length - 4:
            return ProtocolError(f"a header of {size} bytes in a frame of {length + 4}", cause="bad_header")
        return ProtocolError(f"a header of {size} bytes; more than {LONGEST_HEADER} are not taken", cause="frame_too_large")

    def _meet(self, text: bytes, header: Header) -> None:
        """A header that had to be parsed: remember its shape; the first one says who the client is."""
        if header.topic:
            self.likenesses.learn(text, header)
        if self.version < 0:
            fields = read_fields(text)
            self.language = str(fields.language or "")[:16]
            self.version = fields.version if isinstance(fields.version, int) and fields.version >= 0 else 0

    def _meet_binary(self, data: bytes, at: i64) -> None:
        language: i64 = data[at + 2]
        self.language = LANGUAGES[language] if language < len(LANGUAGES) else str(language)
        self.version = u32(data, at + 1) & 0xFFFF

    def ask_as(self, origin: Origin) -> None:
        """From now on keys are those of `origin`."""
        self.origin = origin
        self.last_key = None

    def _key(self, header: Header) -> Key:
        if header is self.last_header and self.last_key is not None:
            return self.last_key
        raw = header.topic + SEPARATOR + header.group
        key = self.origin.keys.get(raw)
        if key is None:
            key = self._new_key(header)
        self.last_header = header
        self.last_key = key
        return key

    def _new_key(self, header: Header) -> Key:
        """Ask the judge. Names that are not UTF-8 (binary headers only) become what Java makes of them, so a raw key stays unambiguous."""
        topic = header.topic.decode(errors="replace").encode()
        group = header.group.decode(errors="replace").encode()
        raw = topic + SEPARATOR + group
        return self.circumstances.judge.key(self.origin, raw, rocketmq_topic(topic), group or None, "produce")

    def __repr__(self) -> str:
        return f"<Frames need={self.need} streaming={self.streaming} client={self.language or '?'} {self.version}>"
