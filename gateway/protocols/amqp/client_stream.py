"""The client's bytes, cut into parts.

Frames are looked at where they lie, one by one, and nothing is copied; publishes have a faster way of their own (`publishes.py`).
Frames of one kind that follow one another on one channel make one part.

A publish is offered to the judge as soon as its header is there, because then its cost is known; a small body is waited for, so that a
stream of small messages does not fall into halves at the end of each read. A method whose header does not follow at once (frames of
other channels come in between) is kept at its channel and joined with the header later. Body frames pass whole up to WHOLE_FRAME bytes,
so that the upstream stands at a frame boundary (heartbeats!) even when the client is not read; larger ones flow through as they come.

Holds at most one incomplete frame (in the caller's hands) and one publish method per channel. An announced size is only ever compared.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from gateway.conversation import Circumstances
from gateway.messages import BODY, PLAIN, Part
from gateway.protocols.amqp.amqp_channel import AWAITS_BODY, AWAITS_HEADER, AWAITS_METHOD, AmqpChannel
from gateway.protocols.amqp.consumers import ASKS
from gateway.protocols.amqp.deliveries import Deliveries
from gateway.protocols.amqp.frames import (
    BASIC_PUBLISH,
    BODY_FRAME,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    COMMAND_INVALID,
    CONFIRM_SELECT,
    CONNECTION_CLOSE,
    CONNECTION_CLOSE_OK,
    CONNECTION_OPEN,
    CONNECTION_START_OK,
    CONNECTION_TUNE_OK,
    END,
    FRAME_ERROR,
    HEADER,
    HEARTBEAT,
    METHOD,
    NOT_ALLOWED,
    OVERHEAD,
    SMALLEST,
    SYNTAX_ERROR,
    TX_SELECT,
    UNEXPECTED_FRAME,
    client_error,
)
from gateway.protocols.amqp.handshake import Handshake, greeting, other_version
from gateway.protocols.amqp.publishes import Publishes, too_large
from gateway.protocols.octets import u16, u32

WHOLE_FRAME: Final = 262144  # payload bytes; body frames up to this size are forwarded whole
SMALL_BODY: Final = 4096  # bytes; a publish with a body up to this size waits for it (a guess: a few dozen messages per read)
FRAMES_PER_CALL: Final = 8192  # fairness: a read full of 8-byte frames is not decoded in one go (interpreted, about 8 ms)
WATCHED: Final = frozenset(
    {CHANNEL_OPEN, CHANNEL_CLOSE, CHANNEL_CLOSE_OK, CONFIRM_SELECT, TX_SELECT, CONNECTION_CLOSE, CONNECTION_CLOSE_OK}
)  # change how later parts are settled: each is a part of its own, so that settling finds it at a part's beginning


class ClientStream:
    """Where the client's stream stands. See `Conversation.decode` for the contract; `size` of a BODY part is what its frame still lacks."""

    def __init__(
        self, circumstances: Circumstances, channels: dict[int, AmqpChannel], handshake: Handshake, deliveries: Deliveries
    ) -> None:
        self.circumstances = circumstances
        self.channels = channels
        self.handshake = handshake
        self.deliveries = deliveries  # wants to know what the client consumes
        self.publishes = Publishes(circumstances, handshake)
        self.need = 1
        self.greeted = False
        self.opaque = False  # another version of AMQP, which passes as it is
        self.closing = False  # connection.close was said by either side: nothing is judged any more
        self.frame_left: i64 = 0  # bytes of the frame that is flowing through, its end octet included
        self.frame_lane = 0
        self.frame_ends_content = False

    def decode(self, data: bytes, start: int, room: int, parts: list[Part]) -> int:
        pos: i64 = start
        end: i64 = len(data)
        if self.opaque:
            parts.append(Part(PLAIN, 0, data, start, len(data)))
            return len(data)
        if not self.greeted:
            if self.circumstances.others_pass and other_version(data[start : start + 8]):
                self.opaque = True
                return self.decode(data, start, room, parts)
            if not greeting(data[start : start + 8]):
                self.need = 8
                return start
            self.greeted = True
            parts.append(Part(PLAIN, 0, data, start, start + 8))
            pos += 8
        if self.frame_left > 0:
            pos = self._flow(data, pos, end, parts)
        publishes = self.publishes
        publishes.room = room
        handshake = self.handshake
        last: Part | None = None  # grows while frames of its kind and channel follow one another
        channel: AmqpChannel | None = None
        channel_number: i64 = -1
        frames: i64 = FRAMES_PER_CALL
        self.need = 1
        while pos < end and publishes.room > 0 and frames > 0:
            if end - pos < 7:
                self.need = SMALLEST
                break
            frames -= 1
            kind: i64 = data[pos]
            lane: i64 = u16(data, pos + 1)
            size: i64 = u32(data, pos + 3)
            limit: i64 = handshake.limit
            if size > limit:
                raise too_large(size, lane, limit)
            stop: i64 = pos + size + OVERHEAD
            if stop > end and (kind != BODY_FRAME or size <= WHOLE_FRAME):
                self._check_kind(kind, lane, size)
                self.need = stop - pos
                break
            if stop <= end and data[stop - 1] != END:
                self._check_kind(kind, lane, size)
                raise client_error(FRAME_ERROR, f"a frame on channel {lane} does not end with 0xCE")
            if lane != channel_number:
                channel_number = lane
                channel = self.channels.get(lane)
            if self.closing:
                lane = 0  # behind the connection.close, wherever that is
            if self.closing or channel is None or not channel.opened or (channel.ignored and channel.awaits == AWAITS_METHOD):
                if kind == METHOD and not self.closing:
                    method = self._method(data, pos, size)
                    self._unjudged(method, lane, channel, data[pos + 11 : stop - 1])
                    channel_number = -1
                    if method in WATCHED:
                        parts.append(Part(PLAIN, lane, data, pos, stop))
                        last = None
                        pos = stop
                        continue
                elif kind != METHOD:
                    self._check_kind(kind, lane, size)
                    if stop > end:
                        pos = self._begin_flow(data, pos, stop, lane, parts, ends_content=False)
                        break
            elif kind == METHOD:
                method = self._method(data, pos, size)
                if channel.awaits != AWAITS_METHOD:
                    raise client_error(UNEXPECTED_FRAME, f"a method on channel {lane} within a message")
                if method == BASIC_PUBLISH:
                    last = None
                    before: i64 = pos
                    pos = publishes.run(data, pos, end, channel, parts)
                    if pos == before:
                        pos = publishes.one(data, pos, stop, end, channel, parts)
                        if pos == before:
                            self.need = publishes.need
                            break
                    continue
                if method in ASKS:
                    self.deliveries.overhear(method, channel, data[pos + 11 : stop - 1])
                if method in WATCHED:
                    if method == CHANNEL_CLOSE:
                        channel.opened = False
                    parts.append(Part(PLAIN, lane, data, pos, stop))
                    last = None
                    pos = stop
                    continue
            elif kind == HEADER:
                if channel.awaits != AWAITS_HEADER:
                    raise client_error(UNEXPECTED_FRAME, f"a content header on channel {lane} without a publish")
                last = None
                publishes.join_header(data, pos, stop, channel, parts)
                pos = stop
                continue
            elif kind == BODY_FRAME:
                left: i64 = channel.left
                if channel.awaits != AWAITS_BODY or size > left:
                    raise client_error(UNEXPECTED_FRAME, f"a body frame of {size} bytes on channel {lane} where {left} are missing")
                left -= size
                channel.left = left
                if left == 0:
                    channel.awaits = AWAITS_METHOD
                if stop > end:
                    pos = self._begin_flow(data, pos, stop, lane, parts, ends_content=left == 0)
                    break
                if last is not None and last.kind == BODY and last.lane == lane and last.end == pos:
                    last.end = stop
                    last.complete = left == 0
                else:
                    last = Part(BODY, lane, data, pos, stop, None, 0, 0, 0, left == 0)
                    parts.append(last)
                if left == 0:
                    last = None
                pos = stop
                continue
            else:
                self._check_kind(kind, lane, size)
            if last is not None and last.kind == PLAIN and last.lane == lane and last.end == pos:
                last.end = stop
            else:
                last = Part(PLAIN, lane, data, pos, stop)
                parts.append(last)
            pos = stop
        return pos

    # ---- everything else -------------------------------------------------------------------------------------------

    def _method(self, data: bytes, pos: i64, size: i64) -> int:
        if size < 4:
            raise client_error(SYNTAX_ERROR, f"a method of {size} bytes")
        return u32(data, pos + 7)

    def _check_kind(self, kind: i64, lane: i64, size: i64) -> None:
        """Raise for frames that are wrong wherever they stand."""
        if kind == HEARTBEAT:
            if lane != 0:
                raise client_error(UNEXPECTED_FRAME, f"a heartbeat on channel {lane}")
            if size != 0:
                raise client_error(FRAME_ERROR, "a heartbeat with a payload")
        elif kind in (HEADER, BODY_FRAME):
            if lane == 0 and not self.closing:
                raise client_error(UNEXPECTED_FRAME, "content on channel 0")
        elif kind != METHOD:
            raise client_error(FRAME_ERROR, f"a frame of unknown type {kind} on channel {lane}")

    def _unjudged(self, method: int, lane: int, channel: AmqpChannel | None, arguments: bytes) -> None:
        """A method on channel 0, or on a channel that is not open: overhear what it changes. The broker answers what is wrong with it."""
        if lane == 0:
            if method == CONNECTION_START_OK:
                self.handshake.start_ok(arguments)
            elif method == CONNECTION_TUNE_OK:
                self.handshake.tune_ok(arguments)
            elif method == CONNECTION_OPEN:
                self._open(arguments)
            elif method in (CONNECTION_CLOSE, CONNECTION_CLOSE_OK):
                self.closing = True
            elif method == BASIC_PUBLISH:
                raise client_error(COMMAND_INVALID, "basic.publish on channel 0")
            return
        if method == CHANNEL_OPEN:
            if self.publishes.origin is None:
                raise client_error(COMMAND_INVALID, "channel.open before connection.open")
            if channel is None:
                most = self.handshake.most_channels()
                if len(self.channels) > most:  # like RabbitMQ, which refuses the first one too many itself, by number of channels
                    raise client_error(NOT_ALLOWED, f"more channels opened than the {most} that were agreed on")
                channel = self.channels[lane] = AmqpChannel(lane)
            if not channel.ignored:
                channel.open()
        elif method == CHANNEL_CLOSE_OK and channel is not None and channel.ignored:
            channel.ignored = False
            channel.opened = False

    def _open(self, arguments: bytes) -> None:
        vhost = self.handshake.open(arguments)
        if self.publishes.origin is None:
            told = self.circumstances
            self.publishes.origin = told.judge.origin("amqp", told.listener, told.client, self.handshake.user, vhost, told.connection)
            self.deliveries.consumers.origin = self.publishes.origin

    # ---- frames too large to wait for ------------------------------------------------------------------------------

    def _begin_flow(self, data: bytes, pos: i64, stop: i64, lane: int, parts: list[Part], *, ends_content: bool) -> i64:
        """The body frame from `pos` to `stop`, beyond the end of `data`, begins to flow through."""
        end: i64 = len(data)
        self.frame_left = stop - end
        self.frame_lane = lane
        self.frame_ends_content = ends_content
        parts.append(Part(BODY, lane, data, pos, end, None, 0, 0, self.frame_left, False))
        return end

    def _flow(self, data: bytes, pos: i64, end: i64, parts: list[Part]) -> i64:
        """More of the frame that is flowing through."""
        stop: i64 = min(pos + self.frame_left, end)
        if stop == pos:
            return pos
        self.frame_left -= stop - pos
        over = self.frame_left == 0
        if over and data[stop - 1] != END:
            raise client_error(FRAME_ERROR, f"a frame on channel {self.frame_lane} does not end with 0xCE")
        parts.append(Part(BODY, self.frame_lane, data, pos, stop, None, 0, 0, self.frame_left, over and self.frame_ends_content))
        return stop

    def __repr__(self) -> str:
        state = "closing" if self.closing else "open" if self.publishes.origin is not None else "greeted" if self.greeted else "new"
        return f"<ClientStream {state} channels={len(self.channels)} frame_left={self.frame_left}>"
