"""Frames: the client's bytes, cut into parts.

One frame is ``4 length | 1 serialize type | 3 header length | header | body``. Everything announced is checked before it is waited for,
and nothing is ever kept for an announcement: bytes are asked for (`need`), never reserved.

* Up to `whole_frame` a frame is decoded when it is complete.
* A larger one is decoded when its header is there; its body follows as BODY parts (`streaming`). It cannot be held.
* A batch must be complete, whatever its size, because its messages have to be counted, unless a rule takes no message so large; a poll,
  and a limited request of another operation, because it may have to be held. Bound: `max_frame`.

The `count` of a plain part is the number of its requests that the broker answers.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64

from common.octets import u32
from gateway.build import COMPILED
from gateway.pipeline.context import ConversationContext
from gateway.pipeline.mixing import MIN_MIXED_AHEAD, Mixing
from gateway.pipeline.parts import BODY, PLAIN, REQUEST, Part
from gateway.protocols.rocketmq.batches import count_batch
from gateway.protocols.rocketmq.costly_requests import OPERATION_OF
from gateway.protocols.rocketmq.headers import (
    CONSUMES,
    JSON,
    ONE_WAY,
    POLLS,
    RESPONSE,
    RETRY,
    SEND_BACK,
    Header,
    read_binary,
    read_fields,
    read_json,
    refuse_without_opaque,
)
from gateway.protocols.rocketmq.long_headers import BRACE, HEAD_BYTES, LongHeader, begins_as_other
from gateway.protocols.rocketmq.membership import HEART_BEAT, LOCK_BATCH_MQ, MAX_HEARTBEAT_BYTES
from gateway.protocols.rocketmq.mixed_sends import MixedSends
from gateway.protocols.rocketmq.operation_keys import SEPARATOR, find_operation_key
from gateway.protocols.rocketmq.origins import Origins, binary_client, user_text
from gateway.protocols.rocketmq.polls.fewer import rewrite_for_fewer
from gateway.protocols.rocketmq.polls.polls import Polls
from gateway.protocols.rocketmq.polls.terms import read_terms
from gateway.protocols.rocketmq.requests import GatewayRequest, Poll, RejectedRequest, Sends
from gateway.protocols.rocketmq.size_checks import MAX_HEADER_BYTES, PREFIX, check_header, check_length
from gateway.protocols.rocketmq.template_cache import TemplateCache
from limiter.keys import Key, Origin
from limiter.operations import REQUEUE
from limiter.topics import rocketmq_topic

WHOLE_FRAME_BYTES: Final = 1 << 20  # larger frames are not kept whole; the broker's own limit of a message is 4 MiB: a guess
PERCENT: Final = 37


class Frames:
    """Where one client's stream of frames stands, and what was learned from it."""

    def __init__(self, context: ConversationContext, polls: Polls) -> None:
        self.context = context
        self.polls = polls
        self.origins = Origins(context)
        self.origin: Origin = self.origins.of(b"")  # of requests that claim the access key `claimed`
        self.claimed = b""
        self.user: str | None = None  # the last access key that a request has claimed
        self.need = 4  # bytes that must be there from the first undecoded one to get further
        self.at: i64 = 0  # index of the frame being decoded
        self.header_end: i64 = 0  # where its header ends
        self.streaming: i64 = 0  # bytes still to come of the body of a frame that was decoded before it was complete
        self.long_header: LongHeader | None = None  # a frame that is thrown away as it comes
        self.language = ""  # of the client, as its first request says
        self.version = -1
        self.max_frame: i64 = context.max_frame
        self.whole_frame: i64 = min(context.hold_bytes, WHOLE_FRAME_BYTES)
        self.templates = TemplateCache()
        self.own_codes = context.own_codes  # requests the gateway answers itself
        self.rejects_requests = False  # the gateway answers all that want an answer
        self.heartbeat = b""  # the body of the client's last: its groups (`membership.py`)
        self.left = False  # the broker was told that the client has left: what would make it a member again is not passed on
        self.last_header: Header | None = None  # that `last_key` was found for
        self.last_key: Key | None = None
        self.last_poll: Header | None = None  # that `last_source` was found for
        self.last_source: Key | None = None
        self.mixing = Mixing(mixes=context.mixes_requests)
        self.mixed: MixedSends | None = None  # what `decode` was about; its columns are still to be closed

    def decode(self, data: bytes, start: int, room: int, parts: list[Part]) -> int:
        """Append the parts in `data[start:]`, about `room` messages; the index of the first byte not decoded. Raises ProtocolError."""
        size: i64 = len(data)
        at: i64 = start
        left: i64 = room
        if self.streaming > 0:
            at = self._continue_body(data, at, size, parts)
            if self.streaming > 0:
                self.need = 1
                return at
        elif self.long_header is not None:
            at = self._skip_long_header(data, at, parts)
            if self._skips():
                return at
        run: Sends | None = None  # grows while sends alike follow one another
        plain: Part | None = None  # the same of what passes unjudged
        mixed: MixedSends | None = None  # the same of sends to topics whose keys are known
        while True:
            self.at = at
            if left <= 0 and size - at >= PREFIX:
                self.need = 1
                return at
            end: i64 = self._head(data, at, size)
            if end == 0:
                if self.long_header is None:
                    return at
                at = self._skip_long_header(data, at + PREFIX, parts)
                if self._skips():
                    return at
                run = None
                plain = None
                mixed = None
                left -= 1
                continue
            header_end: i64 = self.header_end
            kind: i64 = data[at + 4]
            known = self.templates.match(data, at + PREFIX, header_end, self.origin) if kind == JSON else None
            key: Key | None = None
            if known is not None:
                header = known
                opaque = self.templates.opaque
                matched = self.templates.matched
                if matched is not None:
                    key = matched.key
                    if key is None and header.topic and header.topic[0] != PERCENT:
                        key = self._key(header)
            else:
                header = self._parse(data, at + PREFIX, header_end, kind)
                opaque = header.opaque
            left -= 1
            whole = end <= size and end - at <= self.whole_frame
            if key is not None and not key.unnamed and whole and not header.batch and not self.rejects_requests:
                one_way = header.flag & ONE_WAY != 0
                if run is not None and (run.key is not key or run.size != end - header_end) and size - at >= MIN_MIXED_AHEAD * (end - at):
                    mixed = self._mix(run, one_way, parts)
                if mixed is not None and mixed.unanswered == one_way:
                    mixed.add(key, end - header_end, opaque, end)
                    run = None
                    before: i64 = mixed.count
                    at = self._extend_mixed(mixed, data, end, size, left)
                    left -= mixed.count - before
                    continue
            mixed = None
            if (self.rejects_requests or not header.topic) and self._is_own(header):
                run = None
                plain = None
                if not self._gateway_request(data, at, end, size, header, opaque, parts):
                    return at
            elif header.topic:
                plain = None
                run = self._sends(data, at, end, size, header, opaque, key, run, parts)
                if run is None:
                    return at
                if run.messages > 1:
                    left -= run.messages - 1
            else:
                run = None
                plain = self._decode_unlimited(data, at, end, size, header, opaque, plain, parts)
                if plain is None:
                    return at
            if self.streaming > 0:
                self.need = 1
                return size
            at = end

    def _head(self, data: bytes, at: i64, size: i64) -> i64:
        """Where the frame at `at` ends, as it announces itself (`header_end`); 0, with `need` set, where more of it must be there first,
        or where its header is too long and may be a send's (`long_header`)."""
        there: i64 = size - at
        if there < PREFIX:
            if there >= 4:
                check_length(data, at, self.max_frame)
                self.need = PREFIX
            else:
                self.need = 4
            return 0
        length: i64 = check_length(data, at, self.max_frame)
        word: i64 = u32(data, at + 4)
        header: i64 = word & 0xFFFFFF
        if not check_header(word >> 24, header, length):
            if there < PREFIX + HEAD_BYTES and (there == PREFIX or word >> 24 != JSON or data[at + PREFIX] == BRACE):
                self.need = PREFIX + (1 if there == PREFIX else HEAD_BYTES)  # the first byte may already say that it is something else
                return 0
            if not begins_as_other(data, at + PREFIX, word >> 24):
                self.long_header = LongHeader(word >> 24, header, length - 4 - header)
                return 0
        self.header_end = at + PREFIX + header
        end: i64 = at + 4 + length
        if end > size:
            if end - at <= self.whole_frame:
                self.need = end - at
                return 0
            if self.header_end > size:
                self.need = PREFIX + header
                return 0
        return end

    def _skips(self) -> bool:
        """Whether a frame is thrown away. A call, because mypyc believes what it knew of an attribute before another call."""
        return self.long_header is not None

    def _skip_long_header(self, data: bytes, at: i64, parts: list[Part]) -> i64:
        """Throw away what is there of the frame with the long header; at its end append the reply. Where in `data` it goes on."""
        long_header = self.long_header
        assert long_header is not None
        self.need = 1
        at = long_header.skip(data, at)
        if long_header.is_over():
            parts.append(RejectedRequest(long_header.reply()))
            self.long_header = None
        return at

    def _waits(self, at: i64, end: i64, size: i64) -> bool:
        """Whether the frame from `at` to `end`, whose rest is needed, is not all there."""
        if end > size:
            self.need = end - at
            return True
        return False

    def _parse(self, data: bytes, at: i64, header_end: i64, kind: i64) -> Header:
        """The header `data[at:header_end]`, which no template matches."""
        if kind == JSON:
            text = data[at:header_end]
            header = read_json(text)
            refuse_without_opaque(header.opaque)
            self._learn(text, header)
            return header
        header = read_binary(data, at, header_end)
        if self.version < 0:
            self.language, self.version = binary_client(data, at)
            self.origins.introduce(self.language, self.version)
        return header

    def _is_own(self, header: Header) -> bool:
        """Whether the gateway answers this request itself."""
        if self.rejects_requests and header.flag & (ONE_WAY | RESPONSE) == 0:
            return True
        return len(self.own_codes) > 0 and not header.topic and header.code in self.own_codes and not header.flag & RESPONSE

    def _gateway_request(self, data: bytes, at: i64, end: i64, size: i64, header: Header, opaque: int, parts: list[Part]) -> bool:
        """Append a request to the gateway itself; False where its rest must be there first."""
        if self._waits(at, end, size):
            return False
        one_way = header.flag & ONE_WAY != 0
        parts.append(GatewayRequest(data, at, end, at + PREFIX, self.header_end, header.code, opaque, one_way))
        return True

    def _decode_unlimited(
        self, data: bytes, at: i64, end: i64, size: i64, header: Header, opaque: int, plain: Part | None, parts: list[Part]
    ) -> Part | None:
        """A poll, one of OPERATION_OF, or what passes unjudged, which joins `plain`: returns its part; None where its rest must be there
        first."""
        wants_answer = header.flag & (ONE_WAY | RESPONSE) == 0
        if header.code in OPERATION_OF and not header.flag & RESPONSE:
            key = self._operation_key(header, OPERATION_OF[header.code])
            if key is not None:
                if self._waits(at, end, size):
                    return None
                costly = Sends(data, at, end, key, 1, 0, [opaque], not wants_answer, False, True)
                parts.append(costly)
                return costly
        if header.code in POLLS and not header.flag & RESPONSE:
            if self._waits(at, end, size):
                return None
            poll = self._poll(data, at, end, header, opaque)
            if wants_answer or poll.kind == REQUEST:  # brokers answer some that are one-way: those are limited all the same
                parts.append(poll)
                return poll
        joins = header.code == HEART_BEAT or (self.left and header.code == LOCK_BATCH_MQ)
        if joins and not header.flag & RESPONSE and end <= size:  # one-way ones, too: the Proxy's heartbeats are
            if self.left:
                rejected = RejectedRequest(b"")
                parts.append(rejected)
                return rejected
            self.heartbeat = data[self.header_end : end] if end - self.header_end <= MAX_HEARTBEAT_BYTES else b""
        if plain is not None and type(plain) is Part:
            plain.end = min(end, size)
            if wants_answer:
                plain.count += 1
        else:
            plain = Part(PLAIN, 0, data, at, min(end, size), None, 1 if wants_answer else 0)
            parts.append(plain)
        if end > size:
            plain.complete = False
            self.streaming = end - size
        return plain

    def _sends(
        self,
        data: bytes,
        at: i64,
        end: i64,
        size: i64,
        header: Header,
        opaque: int,
        known: Key | None,
        run: Sends | None,
        parts: list[Part],
    ) -> Sends | None:
        """A send, which joins `run` where it is like those: returns its part; None where its rest must be there first."""
        header_end: i64 = self.header_end
        large = end - at > self.whole_frame
        messages = 1
        key = self._key(header) if known is None else known
        to_percent = known is None and header.topic[0] == PERCENT
        cost: int = end - header_end
        if header.batch and (not large or cost <= key.max_size or end <= size):
            if self._waits(at, end, size):
                return None
            messages = count_batch(data, header_end, end)
            large = False
        one_way = header.flag & ONE_WAY != 0
        if large:
            complete = end <= size
            streamed = Sends(data, at, min(end, size), key, messages, cost, [opaque], one_way, True, complete)
            if to_percent:
                streamed.copies = self._find_requeue_keys(header)
            parts.append(streamed)
            if not complete:
                self.streaming = end - size
            return streamed
        if (
            run is not None
            and run.key is key
            and run.size == cost
            and run.messages == messages
            and run.one_way == one_way
            and not run.streamed
        ):
            run.count += 1
            run.end = end
            run.opaques.append(opaque)
            return run
        run = Sends(data, at, end, key, messages, cost, [opaque], one_way, False, True)
        run.send_backs = header.code == SEND_BACK
        if to_percent:
            run.copies = self._find_requeue_keys(header)
        parts.append(run)
        return run

    def _mix(self, run: Sends, one_way: bool, parts: list[Part]) -> MixedSends | None:  # noqa: FBT001
        """`run`, the last of `parts`, as a part that others may join, which are not like it; None where it cannot be."""
        if run.messages != 1 or run.streamed or run.send_backs or run.copies is not None or run.one_way != one_way:
            return None
        if not self.mixing.mixes or not self.mixing.begin_run():
            return None
        self.end_mixed()
        self.mixed = parts[-1] = mixed = MixedSends(run, self.mixing)
        return mixed

    def _extend_mixed(self, mixed: MixedSends, data: bytes, at: i64, size: i64, room: i64) -> i64:
        """Add to `mixed` the frames from `at` on, `room` at most, that fit the template of its last. Returns where the first other begins.

        All that `decode` looks at is either the same by the template, or a number that is looked at here.
        """
        template = self.templates.matched
        assert template is not None
        origin = self.origin
        most: i64 = min(self.whole_frame, self.max_frame)
        left: i64 = room
        while left > 0 and size - at >= PREFIX:
            recent = template.recent_keys(origin) if COMPILED else None
            if recent is not None:
                found: i64 = mixed.scan(data, at, size, left, most, template.layout, recent)
                if found > 0:
                    at = mixed.end
                    left -= found
                    continue
                if found == 0:
                    break
            lengths: i64 = read_i64_be(data, at)
            header: i64 = lengths & 0xFFFF_FFFF
            header_end: i64 = at + PREFIX + header
            end: i64 = at + 4 + (lengths >> 32)
            if header > MAX_HEADER_BYTES or header_end > end or end > size or end - at > most:  # another serialize type is beyond that, too
                break
            opaque: i64 = template.match(data, at + PREFIX, header_end, origin)
            if opaque < 0:
                break
            key = template.key
            if key is None:
                break  # `decode` finds it
            mixed.add(key, end - header_end, opaque, end)
            at = end
            left -= 1
        return at

    def end_mixed(self) -> None:
        """What was decoded is all there is of this read."""
        mixed = self.mixed
        if mixed is not None and mixed.columns is not None:
            mixed.close()
        self.mixed = None

    def _find_requeue_keys(self, header: Header) -> list[Key] | None:
        """By what key the send counts as given back: it is sent back, or goes to the retry topic because a send-back was refused."""
        if not header.topic.startswith(RETRY):
            return None
        key = self._operation_key(header, REQUEUE)
        return None if key is None else [key]

    def _continue_body(self, data: bytes, at: i64, size: i64, parts: list[Part]) -> i64:
        """What is there of a body whose beginning was judged."""
        end: i64 = at + self.streaming
        end = min(end, size)
        self.streaming -= end - at
        if end > at:
            parts.append(Part(BODY, 0, data, at, end, complete=self.streaming == 0))
        return end

    def _learn(self, text: bytes, header: Header) -> None:
        """A header that had to be parsed: remember its template; the first one says who the client is."""
        if header.topic or (header.source and header.code in CONSUMES):
            self.templates.learn(text, header)
        if header.user and header.user != self.claimed:
            self.user = user_text(header.user)
        if self.version < 0:
            fields = read_fields(text)
            self.language = str(fields.language or "")[:16]
            version = fields.version
            self.version = version if type(version) is int and 0 <= version < 1 << 31 else 0  # Java's int; JSON has any number, and true
            self.origins.introduce(self.language, self.version)

    def renew_keys(self) -> None:
        """From now on keys are those of other origins, if the rules say so."""
        self.origins.renew()
        self.origin = self.origins.of(self.claimed)
        self.last_key = None
        self.last_source = None
        self.templates.forget_keys()

    def _key(self, header: Header) -> Key:
        matched = self.templates.matched
        fits = matched is not None and matched.header is header and header.topic[0] != PERCENT
        if header is self.last_header and self.last_key is not None and not fits:
            return self.last_key
        self._claim(header.user)
        raw = header.topic + SEPARATOR + header.group
        key = self.origin.keys.get(raw)
        if key is None or key.operation != "produce":
            key = self._new_key(header)
        self.last_header = header
        self.last_key = None if key.unnamed else key
        # Else it is counted as nobody's, or no group's, for now.
        if fits and matched is not None and self.claimed == header.user and self.origin.keys.get(raw) is key:
            matched.note(key)
        return key

    def _claim(self, user: bytes) -> None:
        """The request at hand claims the access key `user`."""
        if user != self.claimed:
            self.origin = self.origins.of(user)
            self.claimed = user if self.origin.user is not None else b""  # counted as nobody's for now: asked again
            self.user = user_text(user) or self.user

    def _poll(self, data: bytes, at: i64, end: i64, header: Header, opaque: int) -> Poll:
        """The poll `data[at:end]`, with what it asks for where a rule looks at it."""
        if not header.source:
            return Poll(data, at, end, header.code, opaque, None, limited=False)
        key = self.last_source
        if key is None or header is not self.last_poll:
            key = self._source_key(header)
            self.last_poll = header
            self.last_source = None if key.unnamed else key
        limited = self.context.judge.is_limited(key)
        poll = Poll(data, at, end, header.code, opaque, key, limited=limited)
        if limited:
            poll.unanswered = header.flag & ONE_WAY != 0
            word: i64 = u32(data, at + 4)
            terms = read_terms(data, at + PREFIX, at + PREFIX + (word & 0xFFFFFF), word >> 24, header.code)
            most = key.in_a_second
            if 0 < most < terms.max_messages:
                fewer = rewrite_for_fewer(data, at, end, header.code, most)
                if fewer:
                    poll.data, poll.start, poll.end = fewer, 0, len(fewer)
                    terms.max_messages = most
            self.polls.prepare(poll, terms)
        return poll

    def _source_key(self, header: Header) -> Key:
        self._claim(header.user)
        raw = header.source + SEPARATOR + header.group + SEPARATOR
        key = self.origin.keys.get(raw)
        if key is not None and key.operation == "consume":
            return key
        topic = header.source.decode(errors="replace").encode()
        group = header.group.decode(errors="replace").encode()
        raw = topic + SEPARATOR + group + SEPARATOR
        return self.context.judge.key(self.origin, raw, rocketmq_topic(topic), group or None, "consume")

    def _operation_key(self, header: Header, operation: str) -> Key | None:
        """The key of a request of OPERATION_OF; None: nothing limits it."""
        judge = self.context.judge
        if not judge.rules.may_limit(operation):
            return None
        self._claim(header.user)
        return find_operation_key(judge, self.origin, header, operation)

    def _new_key(self, header: Header) -> Key:
        """Ask the judge. Names that are not UTF-8 (binary headers only) become what Java makes of them, so a raw key stays unambiguous."""
        topic = header.topic.decode(errors="replace").encode()
        group = header.group.decode(errors="replace").encode()
        beyond = self.context.judge.origins.beyond(self.origin, b"", topic, group)
        if beyond is not None:
            return beyond
        raw = topic + SEPARATOR + group
        return self.context.judge.key(self.origin, raw, rocketmq_topic(topic), group or None, "produce")

    def __repr__(self) -> str:
        return f"<Frames need={self.need} streaming={self.streaming} client={self.language or '?'} {self.version}>"
