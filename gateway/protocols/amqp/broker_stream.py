"""The broker's bytes, on their way to the client.

They pass as they come, whole reads as one slice where nothing has to change. Methods and content headers are looked at whole (an
incomplete one is kept, at most `limit` bytes); bodies flow through. Changed are only confirms on channels where a publish was refused;
missing only what comes on a channel after the gateway has closed it (`closing.py`), and notices that are no news (`notices.py`); added
is only what the gateway itself has to say, and that must not fall into the middle of anything:

* never within a frame, that is while a body frame flows through;
* never within a message on the same channel: a delivery is method, header and body frames, and a client that reads a nack between them
  closes the connection with 505. Such replies wait until that message is complete. Other channels' messages do not matter.

Taken out of the stream are deliveries that a rule limits, and what must stay behind them (`deliveries.py`): they come back here, at a frame
boundary, when they may pass. `frame_left` is what the *client* still lacks of a frame; what is being collected counts at `deliveries`.

What a broker may do wrong is only policed where it would confuse the gateway or cost it memory: frames, and confirms for what never was.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from gateway.messages import ProtocolError
from gateway.protocols.amqp.amqp_channel import AmqpChannel
from gateway.protocols.amqp.consumers import ANSWERS
from gateway.protocols.amqp.deliveries import Deliveries
from gateway.protocols.amqp.frames import (
    BASIC_ACK,
    BASIC_DELIVER,
    BASIC_GET_OK,
    BASIC_NACK,
    BASIC_RETURN,
    BODY_FRAME,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CONNECTION_BLOCKED,
    CONNECTION_CLOSE,
    CONNECTION_OPEN_OK,
    CONNECTION_START,
    CONNECTION_TUNE,
    CONNECTION_UNBLOCKED,
    END,
    HEADER,
    HEARTBEAT,
    METHOD,
    OVERHEAD,
    SMALLEST,
    broker_error,
)
from gateway.protocols.amqp.handshake import Handshake
from gateway.protocols.amqp.notices import BlockedNotices
from gateway.protocols.amqp.parking import within_message
from gateway.protocols.octets import u16, u32, u64

MULTIPLE: Final = b"\x01\xce"  # the end of a confirm frame
SINGLE: Final = b"\x00\xce"
MANY_PIECES: Final = 16  # more pieces than this of one read are joined: a copy costs less than so many buffers (a guess)


class BrokerStream:
    """Where the broker's stream stands."""

    def __init__(self, channels: dict[int, AmqpChannel], handshake: Handshake, deliveries: Deliveries) -> None:
        self.channels = channels
        self.handshake = handshake
        self.deliveries = deliveries
        self.speaking: dict[int, AmqpChannel] = {}  # channels with replies of the gateway's own
        self.reply_bytes = 0  # in all channels' replies
        self.closed: list[AmqpChannel] = []  # channels the broker has closed since the conversation last looked
        self.crossed: list[AmqpChannel] = []  # the same where the gateway was closing it: not told to the client, to be answered
        self.finished: list[AmqpChannel] = []  # channels whose close by the gateway the broker has answered since then
        self.connection_closed = False  # the broker has said connection.close
        self.blocked = False  # it has said connection.blocked
        self.notices = BlockedNotices(handshake)  # what the client is told of that
        self.opaque = False  # it does not speak 0-9-1 frames: its protocol header, and whatever follows, passes
        self.rest: list[bytes] = []  # an incomplete frame that must be seen whole, in pieces
        self.rest_size = 0
        self.rest_need = 0
        self.frame_left: i64 = 0  # bytes of the body frame that flows through to the client, its end octet included
        self.frame_muted = False  # it is not for the client

    def reply(self, channel: AmqpChannel, data: bytes) -> None:
        """Queue the gateway's own words on `channel`."""
        channel.replies.append(data)
        self.reply_bytes += len(data)
        self.speaking[channel.number] = channel

    def close(self, channel: AmqpChannel, frame: bytes) -> None:
        """The gateway closes `channel`: `frame` is what the client is told, behind everything else, and the last it hears of it."""
        channel.closing = True
        channel.last_words = frame
        if channel.opened:  # else the client has said so itself
            self.deliveries.consumers.ask(CHANNEL_CLOSE, channel.number, b"")
        if channel.parking is not None:  # no half delivery: where one is being collected, none of them goes to the client
            channel.last_words = self.deliveries.lose(channel, by_client=channel.down_left != 0) + frame
        self.reply_bytes += len(channel.last_words)
        self.speaking[channel.number] = channel

    def say_behind_close(self, channel: AmqpChannel, data: bytes) -> None:
        """Queue words on a channel the gateway has closed."""
        if channel.last_words:
            channel.last_words += data
            self.reply_bytes += len(data)
        else:
            self.reply(channel, data)

    def take_replies(self) -> bytes:
        """What may be said now; b"" within a frame."""
        if self.frame_left > 0 or not self._may_speak():
            return b""
        pieces: list[bytes] = []
        self._speak(pieces)
        return b"".join(pieces)

    def relay(self, data: bytes, out: list[bytes]) -> None:
        """Append to `out` what goes to the client. When ProtocolError is raised, `out` holds everything before the wrong frame."""
        if self.rest_size:
            self.rest.append(data)
            self.rest_size += len(data)
            if self.rest_size < self.rest_need:
                return
            data = b"".join(self.rest)
            self.rest.clear()
            self.rest_size = 0
        if self.opaque:
            out.append(data)
            return
        before = len(out)
        self.deliveries.reads += 1
        try:
            run = self._walk(data, out)
        except ProtocolError:
            self.rest.clear()
            raise
        if len(out) - before > MANY_PIECES:
            out[before:] = [b"".join(out[before:])]
        if run < len(data):
            self.rest.append(data[run:])
            self.rest_size = len(data) - run

    def _walk(self, data: bytes, out: list[bytes]) -> int:
        """Look at all frames of `data`; returns where the incomplete one begins that must be kept (or the end)."""
        end: i64 = len(data)
        pos: i64 = 0
        run: i64 = 0  # data[run:pos] passes unchanged and is not in `out` yet
        number: i64 = -1
        channel: AmqpChannel | None = None
        limit: i64 = self.handshake.broker_limit
        deliveries = self.deliveries
        taken = False  # whether the frame was taken out of the stream
        wrong = ""
        if self.frame_left > 0:
            pos = min(self.frame_left, end)
            self.frame_left -= pos
            if self.frame_left == 0 and data[pos - 1] != END:
                if not self.frame_muted:
                    self.frame_left = 1  # the client is left within a frame
                    out.append(data[: pos - 1])
                raise broker_error("a body frame that does not end with 0xCE")
            if self.frame_muted:
                run = pos
                self.frame_muted = self.frame_left > 0
        elif deliveries.frame_left > 0:
            run = pos = self._collect(data, end)
        while self.frame_left == 0 and deliveries.frame_left == 0:
            if self._may_speak():
                if run < pos:
                    out.append(data[run:pos])
                    run = pos
                self._speak(out)
            if end - pos < 7:
                self.rest_need = SMALLEST
                break
            kind: i64 = data[pos]
            lane: i64 = u16(data, pos + 1)
            size: i64 = u32(data, pos + 3)
            if kind == 0x41 and not self.handshake.started and data.startswith(b"AMQP", pos):
                self.opaque = True
                pos = end
                break
            stop: i64 = pos + size + OVERHEAD
            if size > limit:
                wrong = f"a frame of {size} bytes, at most {limit} were agreed on"
                break
            if kind not in (METHOD, HEADER, BODY_FRAME, HEARTBEAT):
                wrong = f"a frame of unknown type {kind}"
                break
            if stop > end and kind != BODY_FRAME:
                self.rest_need = stop - pos
                break
            if stop <= end and data[stop - 1] != END:
                wrong = "a frame that does not end with 0xCE"
                break
            if kind == HEARTBEAT and (lane or size):
                wrong = f"a heartbeat on channel {lane}" if lane else "a heartbeat with a payload"
                break
            if lane != number:
                number = lane
                channel = self.channels.get(lane)
            if channel is not None and channel.closing and not channel.last_words:  # not for the client any more
                if run < pos:
                    out.append(data[run:pos])
                if stop > end:
                    self.frame_muted = True
                    self.frame_left = stop - end
                    stop = end
                elif kind == METHOD and size >= 4 and self._hear_muted(u32(data, pos + 7), channel):
                    number = -1
                run = pos = stop
                continue
            if kind == BODY_FRAME:
                if channel is not None:
                    if channel.down_left > 0:
                        channel.down_left = max(channel.down_left - size, 0)
                    if channel.parking is not None:
                        complete = stop <= end and channel.down_left == 0
                        taken = deliveries.body(channel, data, pos, min(stop, end), complete=complete)
                if stop > end:
                    if taken:
                        out.append(data[run:pos])
                        run = end
                        deliveries.frame_left = stop - end
                        deliveries.frame_lane = lane
                    else:
                        self.frame_left = stop - end
                    pos = end
                    break
            elif kind == METHOD:
                if size < 4:
                    wrong = f"a method of {size} bytes"
                    break
                method: i64 = u32(data, pos + 7)
                if channel is None:
                    if method == CONNECTION_CLOSE and lane == 0 and deliveries.parked:
                        out.append(data[run:pos])
                        run = pos
                        out.append(deliveries.lose_all(by_client=False))
                    if not self._on_connection(method, lane):
                        out.append(data[run:pos])
                        run = stop
                elif method in (BASIC_ACK, BASIC_NACK):
                    if channel.confirms is not None:
                        if size != 13:
                            wrong = f"a confirm of {size} bytes"
                            break
                        try:
                            instead = channel.confirms.confirm(u64(data, pos + 11), (data[pos + 19] & 1) != 0)
                        except ProtocolError:
                            out.append(data[run:pos])
                            raise
                        if instead is not None:
                            out.append(data[run:pos])
                            head = data[pos : pos + 11]
                            for tag, multiple in instead:
                                out.append(head + tag.to_bytes(8, "big") + (MULTIPLE if multiple else SINGLE))
                            run = stop
                elif method in (BASIC_DELIVER, BASIC_GET_OK):
                    taken = deliveries.begin(channel, method, data, pos, stop)
                elif method == BASIC_RETURN:
                    channel.down_left = -1
                    deliveries.overtake(channel)
                else:
                    channel.down_left = 0
                    if method in ANSWERS:
                        deliveries.consumers.answer(method, lane, data[pos + 11 : stop - 1])
                    if method in (CHANNEL_CLOSE, CHANNEL_CLOSE_OK):
                        if channel.parking is not None:
                            out.append(data[run:pos])
                            run = pos
                            out.append(deliveries.lose(channel, by_client=method == CHANNEL_CLOSE_OK))
                        self._on_close(method, channel)
                        number = -1
                    elif channel.parking is not None:
                        taken = deliveries.other(channel, data, pos, stop)
            elif kind == HEADER and channel is not None:
                if size < 12:
                    wrong = f"a content header of {size} bytes"
                    break
                channel.down_left = max(u64(data, pos + 11), 0)
                taken = deliveries.header(channel, data, pos, stop, channel.down_left)
            if taken:
                taken = False
                if run < pos:
                    out.append(data[run:pos])
                run = stop
            pos = stop
        if run < pos:
            out.append(data if run == 0 and pos == end else data[run:pos])
        if wrong:
            raise broker_error(wrong)
        return pos

    def _collect(self, data: bytes, end: i64) -> i64:
        """More of a body frame that was taken out of the stream; returns where it ends, or `end`."""
        deliveries = self.deliveries
        left: i64 = deliveries.frame_left
        stop: i64 = min(left, end)
        left -= stop
        deliveries.frame_left = left
        if left == 0 and data[stop - 1] != END:
            raise broker_error("a body frame that does not end with 0xCE")
        channel = self.channels.get(deliveries.frame_lane)
        if channel is not None:
            deliveries.body(channel, data, 0, stop, complete=left == 0 and channel.down_left == 0)
        return stop

    def _on_connection(self, method: int, lane: int) -> bool:
        """A method on channel 0, or on a channel we do not know: whether it goes to the client."""
        if lane != 0:
            return True
        if method == CONNECTION_START:
            self.handshake.started = True
        elif method == CONNECTION_TUNE:
            self.handshake.authenticated = True
        elif method == CONNECTION_OPEN_OK:
            self.handshake.opened = True
        elif method == CONNECTION_CLOSE:
            self.connection_closed = True
            for channel in self.channels.values():
                self._on_close(CHANNEL_CLOSE, channel)
        elif method in (CONNECTION_BLOCKED, CONNECTION_UNBLOCKED):
            self.blocked = method == CONNECTION_BLOCKED
            return self.notices.broker_says(blocked=self.blocked)
        return True

    def _hear_muted(self, method: int, channel: AmqpChannel) -> bool:
        """What the broker says on a channel the gateway closes; whether that is over."""
        if method == CHANNEL_CLOSE_OK:
            channel.closing = False
            channel.down_left = 0
            self.deliveries.lose(channel, by_client=True)
            self.deliveries.consumers.answer(CHANNEL_CLOSE_OK, channel.number, b"")
            self.finished.append(channel)
        elif method == CHANNEL_CLOSE:
            self.crossed.append(channel)
        return method == CHANNEL_CLOSE_OK

    def _on_close(self, method: int, channel: AmqpChannel) -> None:
        """The broker closes a channel, or agrees to the client's closing it: nothing more may be said on it."""
        for reply in channel.replies:
            self.reply_bytes -= len(reply)
        channel.replies.clear()
        self.reply_bytes -= len(channel.last_words)
        channel.last_words = b""
        self.speaking.pop(channel.number, None)
        if method == CHANNEL_CLOSE:
            if not channel.broker_closed:
                channel.broker_closed = True
                channel.ignored = channel.opened
                self.closed.append(channel)
        elif channel.over():
            del self.channels[channel.number]

    def _may_speak(self) -> bool:
        """Whether anything of the gateway's own, or any delivery, waits for a frame boundary."""
        return len(self.speaking) > 0 or self.notices.news or self.deliveries.may_speak()

    def _speak(self, out: list[bytes]) -> None:
        """Say what may be said: whether the client is blocked, replies and deliveries of all channels that are not within a message.

        Called at frame boundaries only.
        """
        if self.notices.news:
            notice = self.notices.take()
            if notice:
                out.append(notice)
        for channel in list(self.speaking.values()):
            if not within_message(channel):
                out.extend(channel.replies)
                for reply in channel.replies:
                    self.reply_bytes -= len(reply)
                channel.replies.clear()
                if channel.last_words:
                    out.append(channel.last_words)
                    self.reply_bytes -= len(channel.last_words)
                    channel.last_words = b""
                del self.speaking[channel.number]
        if self.deliveries.may_speak():
            self.frame_left = self.deliveries.speak(out)

    def __repr__(self) -> str:
        place = "within a frame" if self.frame_left else "at a boundary"
        return f"<BrokerStream {place} rest={self.rest_size} speaking={len(self.speaking)}>"
