"""The client's bytes, cut into parts.

Frames are looked at where they lie, one by one, and nothing is copied; publishes have a faster way of their own (`publishes.py`).
Frames of one kind that follow one another on one channel make one part.

A publish is offered to the judge as soon as its header is there, because then its cost is known; a small body is waited for, so that a
stream of small messages does not fall into halves at the end of each read. A method whose header does not follow at once (frames of
other channels come in between) is kept at its channel and joined with the header later. Body frames pass whole up to WHOLE_FRAME_BYTES
bytes, so that the upstream stands at a frame boundary (heartbeats!) even when the client is not read; larger ones flow through as they
come.

Holds at most one incomplete frame (in the caller's hands) and one publish method per channel. An announced size is only ever compared.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from common.octets import u16, u32
from gateway.pipeline.context import ConversationContext
from gateway.pipeline.parts import BODY, PLAIN, Part
from gateway.protocols.amqp.channel import AWAITS_BODY, AWAITS_HEADER, AWAITS_METHOD, AmqpChannel
from gateway.protocols.amqp.channel_states import CLIENT_OPEN
from gateway.protocols.amqp.client_methods import ClientMethods
from gateway.protocols.amqp.costly_methods import OPERATION_OF
from gateway.protocols.amqp.deliveries.consumers import ASKS
from gateway.protocols.amqp.deliveries.deliveries import SETTLES, Deliveries
from gateway.protocols.amqp.frames import (
    BASIC_ACK,
    BASIC_CANCEL,
    BASIC_GET,
    BASIC_PUBLISH,
    BODY_FRAME,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    CONFIRM_SELECT,
    CONNECTION_CLOSE,
    CONNECTION_CLOSE_OK,
    CONNECTION_OPEN,
    END,
    FRAME_ERROR,
    HEADER,
    HEARTBEAT,
    METHOD,
    MIN_FRAME_BYTES,
    OVERHEAD,
    QUEUE_DECLARE,
    RECOVERS,
    SYNTAX_ERROR,
    TX_COMMIT,
    TX_SELECT,
    UNEXPECTED_FRAME,
    client_error,
)
from gateway.protocols.amqp.handshake import Handshake, greeting, other_version
from gateway.protocols.amqp.publishes import Publishes, too_large

WHOLE_FRAME_BYTES: Final = 262144  # of payload; body frames up to this size are forwarded whole: a guess
MAX_FRAMES_PER_CALL: Final = 8192  # for fairness; interpreted, a read full of 8-byte frames would take about 8 ms
WATCHED: Final = frozenset(
    {
        CHANNEL_OPEN,
        CHANNEL_CLOSE,
        CHANNEL_CLOSE_OK,
        CONFIRM_SELECT,
        TX_SELECT,
        TX_COMMIT,
        BASIC_CANCEL,
        CONNECTION_CLOSE,
        CONNECTION_CLOSE_OK,
    }
)  # settling looks at them; each is a part of its own, so that it is found at a part's beginning
OPENS: Final = (CHANNEL_OPEN, CONNECTION_OPEN)
LOOKED_AT: Final = ASKS | WATCHED  # most methods are in neither, and one look tells


class ClientStream:
    """Where the client's stream stands. See `Conversation.decode` for the contract; `size` of a BODY part is what its frame still lacks."""

    def __init__(
        self, context: ConversationContext, channels: dict[int, AmqpChannel], handshake: Handshake, deliveries: Deliveries
    ) -> None:
        self.context = context
        self.channels = channels
        self.handshake = handshake
        self.deliveries = deliveries  # wants to know what the client consumes
        self.publishes = Publishes(context, handshake)
        self.methods = ClientMethods(context, channels, handshake, deliveries, self.publishes)
        self.need = 1
        self.greeted = False
        self.opaque = False  # another version of AMQP, which passes as it is
        self.waits_for_open = False  # frames on channels have come before the broker's connection.open-ok
        self.waits_for_tune = False  # connection.open has come before the broker has authenticated the client, and may be limited
        self.closing = False  # either side has sent connection.close: nothing is judged any more
        self.frame_left: i64 = 0  # bytes of the frame that is flowing through, its end octet included
        self.frame_channel_id = 0
        self.frame_ends_content = False

    def decode(self, data: bytes, start: int, room: int, parts: list[Part]) -> int:
        """Look at the frames from `data[start]` on, and append parts; returns where the first one begins that must wait."""
        pos: i64 = start
        end: i64 = len(data)
        if not self.greeted:
            pos = self._greet(data, start, parts)
            if not self.greeted:
                return pos
        if self.opaque:
            parts.append(Part(PLAIN, 0, data, pos, end))
            return end
        if self.frame_left > 0:
            pos = self._flow(data, pos, end, parts)
        publishes = self.publishes
        publishes.room = room
        handshake = self.handshake
        last: Part | None = None  # grows while frames of its kind and channel follow one another
        channel: AmqpChannel | None = None
        channel_number: i64 = -1
        frames: i64 = MAX_FRAMES_PER_CALL
        self.need = 1
        while pos < end and publishes.room > 0 and frames > 0:
            if end - pos < 7:
                self.need = MIN_FRAME_BYTES
                break
            frames -= 1
            kind: i64 = data[pos]
            channel_id: i64 = u16(data, pos + 1)
            if self.closing:
                channel_id = 0  # behind the connection.close, wherever that is
            size: i64 = u32(data, pos + 3)
            limit: i64 = handshake.limit
            if size > limit:
                raise too_large(size, channel_id, limit)
            stop: i64 = pos + size + OVERHEAD
            if stop > end and (kind != BODY_FRAME or size <= WHOLE_FRAME_BYTES):
                self._check_kind(kind, channel_id, size)
                self.need = stop - pos
                break
            if stop <= end and data[stop - 1] != END:
                self._check_kind(kind, channel_id, size)
                raise client_error(FRAME_ERROR, f"a frame on channel {channel_id} does not end with 0xCE")
            if channel_id != channel_number:
                channel_number = channel_id
                channel = self.channels.get(channel_id)
            if channel_id != 0 and not handshake.opened and handshake.vhost is not None:
                self.waits_for_open = True
                break
            alone = False  # whether the frame is to be a part of its own
            costly: i64 = 0  # the method, if it may be limited itself
            if self.closing or channel is None or (channel.client_state != CLIENT_OPEN and channel.awaits == AWAITS_METHOD):
                if kind == METHOD and not self.closing:
                    method = self._method(data, pos, size)
                    if method == CONNECTION_OPEN and not handshake.authenticated and channel_id == 0 and self.methods.limits_opens():
                        self.waits_for_tune = True
                        break
                    self._unjudged(method, channel_id, channel, data[pos + 11 : stop - 1])
                    channel_number = -1
                    alone = method in WATCHED
                    costly = method if method in OPENS else 0
                elif kind != METHOD:
                    self._check_kind(kind, channel_id, size)
                    if stop > end:
                        pos = self._begin_flow(data, pos, stop, channel_id, parts, ends_content=False)
                        break
            elif kind == METHOD:
                method = self._method(data, pos, size)
                if channel.awaits != AWAITS_METHOD:
                    raise client_error(UNEXPECTED_FRAME, f"a method on channel {channel_id} within a message")
                if method == BASIC_PUBLISH:
                    last = None
                    before: i64 = pos
                    pos = self._publish(data, pos, stop, end, channel, parts)
                    if pos == before:
                        break
                    continue
                if method in LOOKED_AT:
                    if method in ASKS:
                        instead = self.deliveries.overhear(method, channel, data[pos + 11 : stop - 1])
                        if instead is not None:
                            last = None
                            if method == BASIC_GET:  # which `instead` brings
                                self._ask_get(channel_id, data, pos, parts)
                            parts.append(instead)
                            pos = stop
                            continue
                    if method == CHANNEL_CLOSE:
                        channel.close_by_client()
                    elif method == TX_SELECT:
                        self.deliveries.select(channel)
                    alone = method in WATCHED
                    costly = method if method in (QUEUE_DECLARE, BASIC_GET) else 0
                elif method in SETTLES:
                    settlements = channel.settlements
                    asks = settlements is not None and (method != BASIC_ACK or len(settlements.pending) > 0)
                    if asks and self.deliveries.requeues.answer(method, channel, data, pos, stop, parts):
                        publishes.room -= self.deliveries.requeues.take_asked()
                        last = None
                        pos = stop
                        continue
                    changed = None if settlements is None else self.deliveries.settle(method, channel, data[pos:stop])
                    if changed is not None:
                        last = None
                        if changed:
                            parts.append(Part(PLAIN, channel_id, changed, 0, len(changed)))
                        pos = stop
                        continue
                    alone = method in RECOVERS  # `Settling` looks at it
                elif method in OPERATION_OF:
                    costly = method
            elif kind == HEADER:
                if channel.awaits != AWAITS_HEADER:
                    raise client_error(UNEXPECTED_FRAME, f"a content header on channel {channel_id} without a publish")
                last = None
                publishes.join_header(data, pos, stop, channel, parts)
                pos = stop
                continue
            elif kind == BODY_FRAME:
                complete = self._count_body(channel, channel_id, size)
                if stop > end:
                    pos = self._begin_flow(data, pos, stop, channel_id, parts, ends_content=complete)
                    break
                if last is not None and last.kind == BODY and last.ordering_key == channel_id and last.end == pos:
                    last.end = stop
                    last.complete = complete
                else:
                    last = Part(BODY, channel_id, data, pos, stop, None, 0, 0, 0, complete)
                    parts.append(last)
                if complete:
                    last = None
                pos = stop
                continue
            else:
                self._check_kind(kind, channel_id, size)
            if costly != 0:
                origin = self.methods.connecting if costly == CONNECTION_OPEN else publishes.origin
                judged = self.deliveries.costly_methods.ask(costly, channel_id, origin, data, pos, stop)
                if judged is not None:
                    publishes.room -= 1
                    last = None
                    parts.append(judged)
                    pos = stop
                    continue
            if alone:
                parts.append(Part(PLAIN, channel_id, data, pos, stop))
                last = None
            elif last is not None and last.kind == PLAIN and last.ordering_key == channel_id and last.end == pos:
                last.end = stop
            else:
                last = Part(PLAIN, channel_id, data, pos, stop)
                parts.append(last)
            pos = stop
        return pos

    # ---- everything else -------------------------------------------------------------------------------------------

    def _greet(self, data: bytes, start: int, parts: list[Part]) -> int:
        """The protocol header at `start`: returns what follows it, or `start`, where it is not there yet or another version's."""
        header = data[start : start + 8]
        if self.context.others_pass and other_version(header):
            self.opaque = self.greeted = True
            return start
        if not greeting(header):
            self.need = 8
            return start
        self.greeted = True
        if not self.context.broker_greeted:
            parts.append(Part(PLAIN, 0, data, start, start + 8))
        return start + 8

    def _publish(self, data: bytes, pos: i64, stop: i64, end: i64, channel: AmqpChannel, parts: list[Part]) -> i64:
        """The publish whose method frame is `data[pos:stop]`, with those like it that follow; returns `pos` when it must wait (`need`)."""
        publishes = self.publishes
        found: i64 = publishes.run(data, pos, end, channel, parts)
        if found == pos:
            found = publishes.one(data, pos, stop, end, channel, parts)
            if found == pos:
                self.need = publishes.need
        return found

    def _count_body(self, channel: AmqpChannel, channel_id: i64, size: i64) -> bool:
        """A body frame of `size` bytes: whether the content ends with it."""
        left: i64 = channel.content_left
        if channel.awaits != AWAITS_BODY or size > left:
            raise client_error(UNEXPECTED_FRAME, f"a body frame of {size} bytes on channel {channel_id} where {left} are missing")
        channel.content_left = left - size
        if left == size:
            channel.awaits = AWAITS_METHOD
        return left == size

    def _ask_get(self, channel_id: i64, data: bytes, pos: i64, parts: list[Part]) -> None:
        """A basic.get that the limit on its queue holds may be under one on those of empty queues, too."""
        judged = self.deliveries.costly_methods.ask(BASIC_GET, channel_id, self.publishes.origin, data, pos, pos)
        if judged is not None:
            self.publishes.room -= 1
            parts.append(judged)

    def _method(self, data: bytes, pos: i64, size: i64) -> int:
        if size < 4:
            raise client_error(SYNTAX_ERROR, f"a method of {size} bytes")
        return u32(data, pos + 7)

    def _check_kind(self, kind: i64, channel_id: i64, size: i64) -> None:
        """Raise for frames that are wrong wherever they stand."""
        if kind == HEARTBEAT:
            if channel_id != 0:
                raise client_error(UNEXPECTED_FRAME, f"a heartbeat on channel {channel_id}")
            if size != 0:
                raise client_error(FRAME_ERROR, "a heartbeat with a payload")
        elif kind in (HEADER, BODY_FRAME):
            if channel_id == 0 and not self.closing:
                raise client_error(UNEXPECTED_FRAME, "content on channel 0")
        elif kind != METHOD:
            raise client_error(FRAME_ERROR, f"a frame of unknown type {kind} on channel {channel_id}")

    def _unjudged(self, method: int, channel_id: int, channel: AmqpChannel | None, arguments: bytes) -> None:
        """A method on channel 0, or on a channel that is not open."""
        if channel_id != 0:
            self.methods.on_closed_channel(method, channel_id, channel)
        elif method in (CONNECTION_CLOSE, CONNECTION_CLOSE_OK):
            self.closing = True
        else:
            self.methods.on_connection(method, arguments)

    # ---- frames too large to wait for ------------------------------------------------------------------------------

    def _begin_flow(self, data: bytes, pos: i64, stop: i64, channel_id: int, parts: list[Part], *, ends_content: bool) -> i64:
        """The body frame from `pos` to `stop`, beyond the end of `data`, begins to flow through."""
        end: i64 = len(data)
        self.frame_left = stop - end
        self.frame_channel_id = channel_id
        self.frame_ends_content = ends_content
        parts.append(Part(BODY, channel_id, data, pos, end, None, 0, 0, self.frame_left, False))
        return end

    def _flow(self, data: bytes, pos: i64, end: i64, parts: list[Part]) -> i64:
        """More of the frame that is flowing through."""
        stop: i64 = min(pos + self.frame_left, end)
        if stop == pos:
            return pos
        self.frame_left -= stop - pos
        over = self.frame_left == 0
        if over and data[stop - 1] != END:
            raise client_error(FRAME_ERROR, f"a frame on channel {self.frame_channel_id} does not end with 0xCE")
        parts.append(Part(BODY, self.frame_channel_id, data, pos, stop, None, 0, 0, self.frame_left, over and self.frame_ends_content))
        return stop

    def __repr__(self) -> str:
        state = "closing" if self.closing else "open" if self.publishes.origin is not None else "greeted" if self.greeted else "new"
        return f"<ClientStream {state} channels={len(self.channels)} frame_left={self.frame_left}>"
