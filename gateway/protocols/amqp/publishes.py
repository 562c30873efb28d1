"""Publishes: from frames to requests the judge can weigh.

Two speeds. `run` is the tight loop for a stream of publishes on one channel, each whole in the buffer: one part grows while key and
size stay the same. A publish that is the same as the one before it, up to its body, needs no other look than that: all that was found
about the former holds for it. Where only the content header differs, its names need none. Else it costs two dozen reads of octets, and its
key is looked for among those that were met lately (`limiter.recent_keys`).
Anything unusual ends the run, and `one` looks at that publish with all care: a body in many frames or still on its way, a header that is
not there yet, names that do not fit, copies in its headers (`copies.py`).
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i64_be, read_i64_le
from librt.vecs import vec
from mypy_extensions import i64

from common.octets import count_equal, hash_octets, u16, u32, u64
from gateway.build import COMPILED
from gateway.pipeline.context import ConversationContext
from gateway.pipeline.errors import ProtocolError
from gateway.pipeline.mixing import MIN_MIXED_AHEAD, Mixing
from gateway.pipeline.parts import PLAIN, REQUEST, Part
from gateway.protocols.amqp.channel import AWAITS_BODY, AWAITS_HEADER, AWAITS_METHOD, AmqpChannel
from gateway.protocols.amqp.channel_states import CLIENT_IGNORED
from gateway.protocols.amqp.copies import HEADERS_OCTET, MARK, copies_named, may_name_copies
from gateway.protocols.amqp.delayed_keys import destination
from gateway.protocols.amqp.frames import (
    BASIC_PUBLISH,
    BODY_FRAME,
    COMMAND_INVALID,
    CONTENT_OF_BASIC,
    END,
    FRAME_ERROR,
    HEADER,
    METHOD,
    MIN_FRAME_BYTES,
    OVERHEAD,
    SYNTAX_ERROR,
    UNEXPECTED_FRAME,
    client_error,
    over_frame_limit,
)
from gateway.protocols.amqp.handshake import Handshake
from gateway.protocols.amqp.mixed_publishes import MixedPublishes
from limiter.columns import Columns
from limiter.keys import Key, Origin
from limiter.recent_keys import WAYS, RecentKeys, find_place
from limiter.scanned_columns import MESSAGES, SCANNED, note_message
from limiter.topics import amqp_topic

SMALL_BODY_BYTES: Final = 4096  # a publish with a body up to this size waits for it: a guess, a few dozen messages per read

MAX_COPY_KEYS: Final = 256  # names of a publish that are told apart; 13,000 in one frame took the event loop for 0.4 s and more (2026-11)

LEAST_BYTES: Final = 39  # 17 for the shortest publish, 22 for the shortest header
LEAST_HEADER_BYTES: Final = 22

WHOLE: Final = 0x7FFF_FFFF  # of what `measure_publish` finds: bytes of all frames
HEADER_SHIFT: Final = 31  # above them, those of the content header's frame
HEADER_BYTES: Final = 0x3F_FFFF
METHOD_SHIFT: Final = 53  # and of the method's

MAX_STOPS: Final = 4  # scans of a run that may end where they begin; a client that meets new names all the time gains nothing by them

MAX_BODY_BYTES: Final = 1 << 62  # what adds up without overflow when compiled; no broker takes more than 512 MiB


def too_large(size: int, channel_id: int, limit: int) -> ProtocolError:
    return client_error(FRAME_ERROR, f"channel {channel_id}: {over_frame_limit(size, limit)}", "frame_too_large")


class Publishes:
    """Cuts the publishes of a connection. `room` counts down with each; `need` says what `one` waits for."""

    def __init__(self, context: ConversationContext, handshake: Handshake) -> None:
        self.context = context
        self.handshake = handshake
        self.origin: Origin | None = None  # known from connection.open on
        self.room: i64 = 0
        self.need = 0
        self.mixing = Mixing(mixes=context.mixes_requests)

    def run(self, data: bytes, pos: i64, end: i64, channel: AmqpChannel, parts: list[Part]) -> i64:
        """As many publishes of `channel` as lie whole, one behind the other, from `pos` on; returns where that ends (or `pos`)."""
        origin = self.origin
        if origin is None:
            raise client_error(COMMAND_INVALID, "basic.publish before connection.open")
        channel_id: i64 = channel.number
        limit: i64 = self.handshake.limit
        room: i64 = self.room
        mixes = self.mixing.mixes
        apart: i64 = self.mixing.apart
        first: i64 = len(parts)
        columns: Columns | None = None  # of what is from `start` to `begin`
        mixed_room: i64 = 0  # `room` at `start`
        begin: i64 = pos  # of publishes alike
        start: i64 = pos
        key: Key | None = None
        size: i64 = -1
        count: i64 = 0
        recent: RecentKeys | None = None
        scans: i64 = 0  # of what is in `columns`, by the keys in `recent`, that may still be tried
        before: i64 = pos  # where the publish before begins
        method: i64 = 0  # bytes of its method frame; 0: there is none before
        ahead: i64 = 0  # bytes of it before its body
        whole: i64 = 0  # all bytes of it
        while room > 0 and pos + LEAST_BYTES <= end:
            if scans > 0 and columns is not None and recent is not None:
                if key is not None:
                    columns.add(key, count, size)
                    key = None
                    count = 0
                    method = 0
                sums = SCANNED.begin(columns)
                met: i64 = scan_publishes(
                    data, pos, end, room, channel_id, limit, recent.hashes, recent.names, recent.numbers, SCANNED.turn, sums, SCANNED.rows
                )
                if met > pos:
                    room -= SCANNED.end(columns, recent)
                    pos = met
                    continue
                scans -= 1
            known: i64 = 0  # bytes that are the same as in the publish before
            if method > 0 and pos + whole <= end:
                known = ahead
                if read_i64_le(data, before + ahead - 8) != read_i64_le(data, pos + ahead - 8):  # the sizes of bodies differ, mostly
                    known = method
                known = count_equal(data, before, pos, known)
                if known == ahead and data[pos + whole - 1] == END:
                    count += 1
                    room -= 1
                    before = pos
                    pos += whole
                    continue
            same: i64 = 0  # bytes of the method's frame, where it is the same
            if known >= method:
                same = method
            found: i64 = measure_publish(data, pos, end, same, channel_id, limit)
            if found < 0:
                break
            header: i64 = pos + (found >> METHOD_SHIFT)
            body: i64 = header + (found >> HEADER_SHIFT & HEADER_BYTES)
            if data[header + 19] & HEADERS_OCTET != 0 and data.find(MARK, header + 21, body) >= 0:
                break  # as `may_name_copies`
            stop: i64 = pos + (found & WHOLE)
            body_size: i64 = stop - body
            if body_size:
                body_size -= OVERHEAD
            other = key if same > 0 else self._key(origin, data, pos + 13, header - 2)
            if other is not key or size != body_size:
                if key is not None:
                    if columns is None and mixes and len(parts) - first >= apart:
                        mixes = end - pos >= MIN_MIXED_AHEAD * whole and self.mixing.begin_run()
                        if mixes:
                            columns = Columns()
                            recent = origin.recent
                            scans = MAX_STOPS
                            start = begin
                            mixed_room = room + count
                    if columns is not None:
                        columns.add(key, count, size)
                    else:
                        self._add_part(channel, data, begin, pos, key, count, size, parts)
                key = other
                size = body_size
                begin = pos
                count = 0
            count += 1
            room -= 1
            before = pos
            method = header - pos
            ahead = body - pos
            whole = stop - pos
            if body_size:
                ahead += 7  # where the body's frame says how long it is
            pos = stop
        if columns is not None or key is not None:
            if columns is not None:
                if key is not None:
                    columns.add(key, count, size)
                SCANNED.close(columns)
                columns.close()
                mixed = MixedPublishes(channel.number, data, start, pos, columns, mixed_room - room, self.mixing)
                mixed.unanswered = channel.confirms is None
                first -= len(columns.rows) - 1
                parts.append(mixed)
            elif key is not None:
                self._add_part(channel, data, begin, pos, key, count, size, parts)
            self.mixing.apart = 0 if len(parts) - first > MIN_MIXED_AHEAD else MIN_MIXED_AHEAD - 1
        self.room = room
        return pos

    def _add_part(
        self, channel: AmqpChannel, data: bytes, begin: i64, end: i64, key: Key, count: i64, size: i64, parts: list[Part]
    ) -> None:
        part = Part(REQUEST, channel.number, data, begin, end, key, count, 1, size)
        part.unanswered = channel.confirms is None
        parts.append(part)

    def one(self, data: bytes, pos: i64, stop: i64, end: i64, channel: AmqpChannel, parts: list[Part]) -> i64:
        """The publish at `pos`, its method frame whole (up to `stop`), the rest perhaps not. Returns `pos` when it must wait (`need`)."""
        self._names(data, pos, stop)  # raises where they do not fit
        if end - stop < 7:
            self.need = stop - pos + MIN_FRAME_BYTES
            return pos
        if data[stop] != HEADER or u16(data, stop + 1) != channel.number:
            channel.method = data[pos:stop]
            channel.awaits = AWAITS_HEADER
            return stop
        size: i64 = u32(data, stop + 3)
        limit: i64 = self.handshake.limit
        if size > limit:
            raise too_large(size, channel.number, limit)
        header: i64 = stop
        stop += size + OVERHEAD
        if stop > end:
            self.need = stop - pos
            return pos
        if data[stop - 1] != END:
            raise client_error(FRAME_ERROR, f"a frame on channel {channel.number} does not end with 0xCE")
        body_size = self._body_size(data, header, size, channel)
        if 0 < body_size <= SMALL_BODY_BYTES:
            if end - stop < 7:
                self.need = stop - pos + MIN_FRAME_BYTES
                return pos
            if data[stop] == BODY_FRAME and u16(data, stop + 1) == channel.number and u32(data, stop + 3) == body_size:
                whole: i64 = stop + body_size + OVERHEAD
                if whole > end:
                    self.need = whole - pos
                    return pos
        self._begin_content(data, pos, stop, body_size, data[pos + 13 : header - 2], channel, parts)
        return stop

    def join_header(self, data: bytes, pos: i64, stop: i64, channel: AmqpChannel, parts: list[Part]) -> None:
        """The content header of a publish that had to wait for it."""
        body_size = self._body_size(data, pos, stop - pos - OVERHEAD, channel)
        method = channel.method
        channel.method = b""
        joined = method + data[pos:stop]
        if (
            channel.client_state == CLIENT_IGNORED
        ):  # the broker has closed the channel meanwhile and throws the message away: nobody is charged for it
            channel.awaits = AWAITS_METHOD
            parts.append(Part(PLAIN, channel.number, joined, 0, len(joined)))
            return
        self._begin_content(joined, 0, len(joined), body_size, method[13:-2], channel, parts)

    def _begin_content(self, data: bytes, pos: i64, stop: i64, body_size: i64, raw: bytes, channel: AmqpChannel, parts: list[Part]) -> None:
        """Offer the publish whose method and header are `data[pos:stop]`; its body, if any, follows as BODY parts."""
        origin = self.origin
        if origin is None:
            raise client_error(COMMAND_INVALID, "basic.publish before connection.open")
        key = origin.keys.get(raw)
        if key is None:
            key = self._new_key(origin, raw)
        part = Part(REQUEST, channel.number, data, pos, stop, key, 1, 1, body_size, body_size == 0)
        part.unanswered = channel.confirms is None
        header: i64 = pos + u32(data, pos + 3) + OVERHEAD
        if may_name_copies(data, header, stop):
            part.copies = self._copies(origin, data, header, raw, key)
            if part.copies is not None:
                self.room -= min(len(part.copies), MAX_COPY_KEYS)
        parts.append(part)
        channel.content_left = body_size
        channel.awaits = AWAITS_BODY if body_size else AWAITS_METHOD
        self.room -= 1

    def _key(self, origin: Origin, data: bytes, start: i64, end: i64) -> Key:
        """The key for exlen|exchange|rklen|routing key, which is `data[start:end]`."""
        recent = origin.recent
        if recent is not None:
            met = recent.find(data, start, end)
            if met is not None:
                return met
        raw = data[start:end]
        key = origin.keys.get(raw)
        if key is None:
            key = self._new_key(origin, raw)
            if key.unnamed:
                return key
        if recent is not None:
            recent.note(raw, key)
        elif COMPILED and len(origin.keys) > 1:  # else the dictionary of all keys is quicker than a hash of one's own
            origin.recent = RecentKeys()
        return key

    def find_copies(self, part: Part) -> None:
        """Find again what `part` names, a publish that was cut before."""
        origin = self.origin
        data = part.data
        header: i64 = u32(data, 3) + OVERHEAD
        if origin is not None and may_name_copies(data, header, part.end):
            raw = data[13 : header - 2]
            part.copies = self._copies(origin, data, header, raw, origin.keys.get(raw) or self._new_key(origin, raw))

    def _copies(self, origin: Origin, data: bytes, header: i64, raw: bytes, own_key: Key) -> list[Key] | None:
        """The keys of the copies that the header at `header` names, beside the publish's own, whose raw key is `raw`; None: none.

        Of those beyond MAX_COPY_KEYS the new ones count for the publish's own topic.
        """
        exchange = raw[: 1 + raw[0]]
        own = raw[len(exchange) + 1 :]
        keys: list[Key] = []
        for name in copies_named(data, header, header + 7 + u32(data, header + 3)):
            if name == own:
                continue
            of_copy = exchange + bytes((len(name),)) + name
            key = origin.keys.get(of_copy)
            if key is None:
                key = self._new_key(origin, of_copy) if len(keys) < MAX_COPY_KEYS else own_key
            keys.append(key)
        return keys or None

    def key_of(self, publish: bytes) -> Key | None:
        """The key of a publish that was cut before, by its bytes; None before the client is let in."""
        origin = self.origin
        if origin is None:
            return None
        names: i64 = 14 + publish[13]
        return self._key(origin, publish, 13, names + publish[names] + 1)

    def _new_key(self, origin: Origin, raw: bytes) -> Key:
        """The key for exlen|exchange|rklen|routing key, which this origin has not met (or has forgotten)."""
        middle = 1 + raw[0]
        assert origin.vhost is not None
        exchange, routing_key = destination(raw[1:middle], raw[middle + 1 :])
        name = amqp_topic(origin.vhost, exchange, routing_key)
        beyond = self.context.judge.origins.beyond(origin, name.exchange, routing_key, b"")
        return beyond if beyond is not None else self.context.judge.key(origin, raw, name)

    def _names(self, data: bytes, pos: i64, stop: i64) -> None:
        """Check that exchange and routing key fill the publish at `pos` exactly."""
        names: i64 = pos + 14
        if names < stop:
            names += data[names - 1]
        if names < stop:
            names += data[names] + 1
        if names + 2 != stop:
            raise client_error(FRAME_ERROR, "the names in basic.publish do not fit its frame")  # RabbitMQ: 501, cannot decode

    def _body_size(self, data: bytes, pos: i64, size: i64, channel: AmqpChannel) -> i64:
        """The body size announced by the header frame at `pos` with `size` bytes of payload."""
        if size < 14:
            raise client_error(SYNTAX_ERROR, f"a content header of {size} bytes on channel {channel.number}")
        if u32(data, pos + 7) != CONTENT_OF_BASIC:
            raise client_error(UNEXPECTED_FRAME, f"a content header on channel {channel.number} that is not of class 60, weight 0")
        body_size = u64(data, pos + 11)
        if body_size < 0 or body_size > MAX_BODY_BYTES:
            raise client_error(SYNTAX_ERROR, f"a body of more than 2**62 bytes on channel {channel.number}")
        return body_size

    def __repr__(self) -> str:
        return f"<Publishes origin={self.origin}>"


# ---- also in C (`publishes.c`) --------------------------------------------------------------------------------------


def measure_publish(data: bytes, pos: i64, end: i64, method: i64, channel: i64, limit: i64) -> i64:
    """Bytes of the frames of a publish on `channel` that lies whole in `data[pos:end]` (METHOD_SHIFT, HEADER_SHIFT, WHOLE); else -1.

    `method`: bytes of its method's frame, where that is known to be one; 0: look at it. `limit`: bytes of a frame's payload, at most. A
    body of several frames is not whole here. Nor is what is larger than the numbers have room for.
    """
    if pos < 0 or end > len(data) or end - pos < LEAST_BYTES:
        return -1
    header: i64 = pos + method
    if method == 0:
        if data[pos] != METHOD or u16(data, pos + 1) != channel or u32(data, pos + 7) != BASIC_PUBLISH:
            return -1
        header = pos + u32(data, pos + 3) + OVERHEAD
        names: i64 = pos + 14 + data[pos + 13]  # where the routing key's length is
        if names >= end:
            return -1
        names += data[names] + 1  # where the bits are
        if names + 2 != header:
            return -1
    if header + LEAST_HEADER_BYTES > end or data[header - 1] != END:
        return -1
    # A header is 02, channel, size, 00 3C 00 00, the body's size and more; a body 03, channel, size, at least one octet.
    head: i64 = read_i64_be(data, header)
    if head >> 40 != (HEADER << 16 | channel) or u32(data, header + 7) != CONTENT_OF_BASIC:
        return -1
    size: i64 = (head >> 8 & 0xFFFF_FFFF) + OVERHEAD
    body: i64 = header + size
    if body > end or size < LEAST_HEADER_BYTES or size > HEADER_BYTES or size - OVERHEAD > limit or data[body - 1] != END:
        return -1
    body_size: i64 = read_i64_be(data, header + 11)
    stop: i64 = body
    if body_size != 0:
        if body_size < 0 or body_size > limit or body_size > end - body - OVERHEAD:
            return -1
        stop += body_size + OVERHEAD
        if read_i64_be(data, body) >> 8 != ((BODY_FRAME << 16 | channel) << 32 | body_size) or data[stop - 1] != END:
            return -1
    if stop - pos > WHOLE:
        return -1
    return header - pos << METHOD_SHIFT | size << HEADER_SHIFT | stop - pos


def scan_publishes(
    data: bytes, pos: i64, end: i64, room: i64, channel: i64, limit: i64,
    hashes: vec[i64], names: list[bytes], numbers: vec[i64], turn: i64, sums: vec[i64], rows: vec[i64],
) -> i64:  # fmt: skip
    """Along whole publishes on `channel`, `room` at most, in `data[pos:end]`; returns where the first begins that is not found.

    What is found is noted (`limiter.scanned_columns`). `hashes`, `names` and `numbers` are the recent keys'.
    """
    while sums[MESSAGES] < room:
        found: i64 = measure_publish(data, pos, end, 0, channel, limit)
        if found < 0:
            break
        header: i64 = pos + (found >> METHOD_SHIFT)
        body: i64 = header + (found >> HEADER_SHIFT & HEADER_BYTES)
        if data[header + 19] & HEADERS_OCTET != 0 and data.find(MARK, header + 21, body) >= 0:
            break
        wanted: i64 = hash_octets(data, pos + 13, header - 2)
        place: i64 = find_place(hashes, names, wanted, wanted & len(hashes) - WAYS, data, pos + 13, header - 2)
        if place < 0:
            break
        stop: i64 = pos + (found & WHOLE)
        size: i64 = stop - body
        if size:
            size -= OVERHEAD
        if not note_message(sums, rows, numbers, turn, place, size):
            break
        pos = stop
    return pos
