"""The AMQP 0-9-1 conversation: settles parts, channel by channel.

What comes from the client is cut into parts by `ClientStream`, what comes from the broker passes through `BrokerStream`; both know the
channels (`AmqpChannel`), and here it is decided what becomes of a part:

    admit   ─►  its channel's line is empty ─►  onward (publishes counted for the confirms)
            ─►  somebody waits before it    ─►  into the line; a publish with its verdict, paid
    refuse  ─►  channel with confirms       ─►  basic.nack with the client's own tag (basic.return before it if mandatory)
            ─►  any other channel           ─►  UNABLE: a publish nobody confirms would be lost without a word, and one taken out of
                                                a transaction would break it. It is held instead, and its channel with it
    hold    ─►  into the line

Other channels, and channel 0, go on while one is held. `connection.close` does not: it waits, with all that follows it, until every
line is empty (`lines.py`). A held publish that its broker never gets, because the broker closed the channel, is on `abandoned`.

Rules that keep both streams whole: parts of one frame that flows through are never separated by anything (while the upstream stands
within a frame, nothing held is let go); the gateway's own words go out at frame boundaries only; once the broker has
closed a channel, what the client still sends on it is passed on unjudged (the broker discards it) or, where held parts before it were
abandoned, discarded here.
"""

from __future__ import annotations

from gateway.conversation import DROPPED, REFUSED, UNABLE, Circumstances, Conversation
from gateway.messages import BODY, PLAIN, REQUEST, Part, ProtocolError
from gateway.protocols.amqp.amqp_channel import AWAITS_BODY, AmqpChannel
from gateway.protocols.amqp.broker_stream import BrokerStream
from gateway.protocols.amqp.client_stream import ClientStream
from gateway.protocols.amqp.confirms import Confirms
from gateway.protocols.amqp.frames import (
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    CONFIRM_SELECT,
    CONNECTION_CLOSE,
    CONNECTION_FORCED,
    HEARTBEAT_FRAME,
    METHOD,
    REPLY_SUCCESS,
    TX_SELECT,
    connection_close,
)
from gateway.protocols.amqp.handshake import Handshake
from gateway.protocols.amqp.lines import Lines
from gateway.protocols.amqp.refusal import Unanswered, answer, publish_end
from gateway.protocols.octets import u32


class AmqpConversation(Conversation):
    """One AMQP client and its broker."""

    def __init__(self, circumstances: Circumstances) -> None:
        super().__init__(circumstances)
        self.channels: dict[int, AmqpChannel] = {}
        self.handshake = Handshake(circumstances.max_frame)
        self.client_stream = ClientStream(circumstances, self.channels, self.handshake)
        self.broker_stream = BrokerStream(self.channels, self.handshake)
        self.lines = Lines(self)
        self._reserved = 0  # bytes of refused contents that may be kept for their return
        self._over = False

    # ---- client to broker ------------------------------------------------------------------------------------------

    def decode(self, data: bytes, start: int, room: int, parts: list[Part]) -> int:
        stream = self.client_stream
        try:
            position = stream.decode(data, start, room, parts)
        except ProtocolError as error:
            if self.broker_stream.frame_left > 0:
                error.farewell = b""
            elif error.farewell:
                error.farewell = self.broker_stream.take_replies() + error.farewell
            raise
        self.need = stream.need
        self.user = self.handshake.user
        return position

    def admit(self, part: Part) -> None:
        channel = self.channels.get(part.lane)
        if channel is None:
            self._admit_to_connection(part)
        elif channel.dead:
            self._bury(channel, part)
        elif channel.waits():
            part.paid = part.kind == REQUEST
            self._park(channel, part, 0)
        elif channel.taken:
            self.lines.unpark(part)
            self._pass(channel, part)
            self._settle(channel)
        else:
            self._pass(channel, part)

    def split(self, part: Part, count: int) -> Part:
        at = part.start
        end = part.end
        data = part.data
        for _ in range(count):
            at = publish_end(data, at, end)
        head = Part(REQUEST, part.lane, data, part.start, at, part.key, count, part.messages, part.size)
        head.passed = count
        head.rule = part.rule
        head.bypassed = part.bypassed
        head.deadline = part.deadline
        part.start = at
        part.count -= count
        part.passed = 0
        channel = self.channels.get(part.lane)
        if channel is not None and channel.taken:  # two parts will be settled where one was taken
            self.lines.count_split(channel)
        return head

    def refuse(self, part: Part, now: int) -> int:
        channel = self.channels.get(part.lane)
        if channel is None:
            return DROPPED
        if channel.broker_closed:
            self._swallow(channel, part)
            return DROPPED
        confirms = channel.confirms
        if confirms is None or channel.waits():
            return UNABLE
        first = confirms.refuse(part.count)
        complete = part.count if part.complete else part.count - 1
        if complete:
            self.broker_stream.reply(channel, answer(part, first, complete, self.handshake.body_frame()))
        if not part.complete:
            at = part.start
            for _ in range(complete):
                at = publish_end(part.data, at, part.end)
            room = self.circumstances.hold_bytes - self._reserved
            channel.unanswered = Unanswered(part, at, first + complete, room)
            self._reserved += channel.unanswered.reserved
        self._swallow(channel, part)
        return REFUSED

    def hold(self, part: Part, due: int) -> bool:
        channel = self.channels.get(part.lane)
        if channel is None or channel.broker_closed:
            return False
        self._park(channel, part, due)
        return True

    def drop(self, part: Part) -> bool:
        channel = self.channels.get(part.lane)
        if channel is None:
            return False
        if not channel.broker_closed and (channel.confirms is not None or channel.tx or channel.waits()):
            return False
        self._swallow(channel, part)
        return True

    def take_due(self, now: int, room: int) -> list[Part]:
        stream = self.client_stream
        return self.lines.take_due(now, room, stream.frame_lane if stream.frame_left > 0 else -1)

    def abandon(self) -> list[Part]:
        parts = self.abandoned
        self.abandoned = []
        parts.extend(self.lines.forget_all())
        return parts

    def heartbeat(self) -> bytes:
        if self.lines.frame_left or not self.handshake.tuned or self.draining:
            return b""
        return HEARTBEAT_FRAME

    def heartbeat_interval_ns(self) -> int:
        return self.handshake.heartbeat_interval_ns()

    # ---- one part --------------------------------------------------------------------------------------------------

    def _admit_to_connection(self, part: Part) -> None:
        """A part of channel 0, or of a channel that is not open."""
        lines = self.lines
        if lines.gate or (lines.held and part.kind == PLAIN and _method_of(part) == CONNECTION_CLOSE):
            lines.park_at_gate(part)
            return
        if part.kind == BODY:
            lines.stand(part.size)
        self.onward.append(part)

    def _pass(self, channel: AmqpChannel, part: Part) -> None:
        """`part` is the next of its channel and goes on, unless it continues what was refused."""
        if part.kind == REQUEST:
            confirms = channel.confirms
            if confirms is not None:
                confirms.forward(part.count)
            if not part.complete:
                channel.discarding = False
        elif part.kind == BODY:
            if channel.discarding:
                self._discard(channel, part)
                return
            self.lines.stand(part.size)
        elif part.data[part.start] == METHOD:
            self._notice(channel, _method_of(part))
        self.onward.append(part)

    def _notice(self, channel: AmqpChannel, method: int) -> None:
        """A method goes on to the broker: what it changes for the parts behind it."""
        if method == CONFIRM_SELECT:
            if channel.confirms is None and not channel.tx:
                channel.confirms = Confirms()
        elif method == TX_SELECT:
            channel.tx = channel.confirms is None
        elif method == CHANNEL_OPEN:
            if not channel.broker_closed:
                channel.begin()
        elif method == CHANNEL_CLOSE_OK and channel.broker_closed:
            channel.begin()
            if not channel.opened and channel.taken == 0:
                del self.channels[channel.number]

    def _park(self, channel: AmqpChannel, part: Part, due: int) -> None:
        for free in self.lines.park(channel, part, due):
            self._pass(channel, free)

    def _settle(self, channel: AmqpChannel) -> None:
        """A part taken from the line is settled: what it alone kept waiting goes on."""
        for free in self.lines.settle(channel):
            self._pass(channel, free)

    def _discard(self, channel: AmqpChannel, part: Part) -> None:
        """`part` continues a content that was refused or dropped."""
        unanswered = channel.unanswered
        if unanswered is not None and unanswered.reserved:
            unanswered.add(part)
        if not part.complete:
            return
        channel.discarding = False
        if unanswered is not None:
            channel.unanswered = None
            self._reserved -= unanswered.reserved
            self.broker_stream.reply(channel, unanswered.answer(self.handshake.body_frame()))

    def _swallow(self, channel: AmqpChannel, part: Part) -> None:
        """A request is settled without going on; so is what continues it."""
        if not part.complete:
            channel.discarding = True
        if channel.taken:
            self.lines.unpark(part)
            self._settle(channel)

    def _bury(self, channel: AmqpChannel, part: Part) -> None:
        """A part of a channel whose broker has closed it while parts were held: only close and close-ok go on."""
        method = _method_of(part) if part.kind == PLAIN else 0
        if method in (CHANNEL_CLOSE, CHANNEL_CLOSE_OK):
            self.onward.extend(self.lines.take_loose(channel.number))  # the client's own close, said before this
            self._notice(channel, method)
            self.onward.append(part)
        elif part.kind == REQUEST:
            self.abandoned.append(part)
            if channel.taken:
                self.lines.unpark(part)
                self._settle(channel)

    # ---- broker to client ------------------------------------------------------------------------------------------

    def relay(self, data: bytes, out: list[bytes]) -> None:
        if self.draining:
            return
        stream = self.broker_stream
        try:
            stream.relay(data, out)
        except ProtocolError as error:
            error.farewell = b"".join(out) + (error.farewell if stream.frame_left == 0 else b"")
            out.clear()
            raise
        if stream.closed:
            if stream.connection_closed:
                self.client_stream.closing = True
            for channel in stream.closed:
                self._lose(channel)
            stream.closed = []

    def take_replies(self) -> bytes:
        if self.draining:
            return b""
        taken = self.broker_stream.take_replies()
        self.reply_bytes = self.broker_stream.reply_bytes
        return taken

    def _lose(self, channel: AmqpChannel) -> None:
        """The broker has closed `channel`: what was held for it goes nowhere."""
        if channel.unanswered is not None:
            self._reserved -= channel.unanswered.reserved
            channel.unanswered = None
        if not channel.parked and channel.taken == 0:
            return
        channel.dead = True
        for part in self.lines.forget(channel):
            if part.kind == REQUEST:
                self.abandoned.append(part)
            elif part.kind == PLAIN and _method_of(part) == CHANNEL_CLOSE:
                self.lines.loosen(part)  # the client waits for its own close-ok, even when both sides close at once

    # ---- the end ---------------------------------------------------------------------------------------------------

    def knows_answers(self) -> bool:
        return True

    def settled(self) -> bool:
        if self.broker_stream.speaking or self.lines.waiting():
            return False
        for channel in self.channels.values():
            confirms = channel.confirms
            if confirms is None or channel.broker_closed:
                continue
            half_in = 1 if channel.awaits == AWAITS_BODY and not channel.discarding else 0  # nobody can confirm that one
            if confirms.outstanding() > half_in:
                return False
        return True

    def holds_close(self) -> bool:
        return self.lines.waiting()

    def farewell(self, reason: str) -> tuple[bytes, bytes]:
        stream = self.broker_stream
        to_client = b""
        if self.handshake.started and stream.frame_left == 0 and not stream.connection_closed:
            to_client = stream.take_replies() + connection_close(CONNECTION_FORCED, reason)
        to_broker = b""
        if self.handshake.tuned and self.lines.frame_left == 0 and not self.client_stream.closing:
            to_broker = connection_close(REPLY_SUCCESS, reason)
        self.draining = True
        return to_client, to_broker

    def rules_changed(self) -> None:
        publishes = self.client_stream.publishes
        if publishes.origin is not None:
            publishes.origin = self.circumstances.judge.own(publishes.origin, self.circumstances.connection)

    def ended(self) -> None:
        origin = self.client_stream.publishes.origin
        if origin is not None and not self._over:
            self.circumstances.judge.release(origin)
        self._over = True

    def describe(self) -> dict[str, object]:
        handshake = self.handshake
        opened = [channel for channel in self.channels.values() if channel.opened]
        return {
            "vhost": None if handshake.vhost is None else handshake.vhost.decode("utf-8", "backslashreplace"),
            "user": self.user,
            "client_properties": handshake.properties,
            "channels": len(opened),
            "confirm_channels": len([channel for channel in opened if channel.confirms is not None]),
            "held_channels": len(self.lines.held),
            "frame_max": handshake.frame_max,
            "heartbeat": handshake.heartbeat,
            "broker_blocked": self.broker_stream.blocked,
        }

    def __repr__(self) -> str:
        return f"<AmqpConversation {self.handshake.vhost!r} channels={len(self.channels)} held={self.held_messages} due={self.next_due}>"


def _method_of(part: Part) -> int:
    """The method a PLAIN part begins with; 0 where it begins with another frame."""
    return u32(part.data, part.start + 7) if part.data[part.start] == METHOD else 0
