"""The broker's bytes, on their way to the client.

They pass as they come, whole reads as one slice where nothing has to change. Methods and content headers are looked at whole (an
incomplete one is kept, at most `limit` bytes); bodies flow through. Changed are only confirms on channels where a publish was refused;
added is only what the gateway itself has to say, and that must not fall into the middle of anything:

* never within a frame, that is while a body frame flows through;
* never within a message on the same channel: a delivery is method, header and body frames, and a client that reads a nack between them
  closes the connection with 505. Such replies wait until that message is complete. Other channels' messages do not matter.

What a broker may do wrong is only policed where it would confuse the gateway or cost it memory: frames, and confirms for what never was.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from gateway.messages import ProtocolError
from gateway.protocols.amqp.amqp_channel import AmqpChannel
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
    CONNECTION_START,
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
from gateway.protocols.octets import u16, u32, u64

MULTIPLE: Final = b"\x01\xce"  # the end of a confirm frame
SINGLE: Final = b"\x00\xce"
MANY_PIECES: Final = 16  # more pieces than this of one read are joined: a copy costs less than so many buffers (a guess)


class BrokerStream:
    """Where the broker's stream stands."""

    def __init__(self, channels: dict[int, AmqpChannel], handshake: Handshake) -> None:
        self.channels = channels
        self.handshake = handshake
        self.speaking: dict[int, AmqpChannel] = {}  # channels with replies of the gateway's own
        self.reply_bytes = 0  # in all channels' replies
        self.closed: list[AmqpChannel] = []  # channels the broker has closed since the conversation last looked
        self.connection_closed = False  # the broker has said connection.close
        self.blocked = False  # it has said connection.blocked
        self.opaque = False  # it does not speak 0-9-1 frames: its protocol header, and whatever follows, passes
        self.rest: list[bytes] = []  # an incomplete frame that must be seen whole, in pieces
        self.rest_size = 0
        self.rest_need = 0
        self.frame_left: i64 = 0  # bytes of the body frame that flows through, its end octet included

    def reply(self, channel: AmqpChannel, data: bytes) -> None:
        """Queue the gateway's own words on `channel`."""
        channel.replies.append(data)
        self.reply_bytes += len(data)
        self.speaking[channel.number] = channel

    def take_replies(self) -> bytes:
        """What may be said now; b"" within a frame."""
        if not self.speaking or self.frame_left > 0:
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
        wrong = ""
        if self.frame_left > 0:
            pos = min(self.frame_left, end)
            self.frame_left -= pos
            if self.frame_left == 0 and data[pos - 1] != END:
                self.frame_left = 1  # the client is left within a frame
                out.append(data[: pos - 1])
                raise broker_error("a body frame that does not end with 0xCE")
        while self.frame_left == 0:
            if self.speaking:
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
            if lane != number:
                number = lane
                channel = self.channels.get(lane)
            if kind == BODY_FRAME:
                if channel is not None and channel.down_left > 0:
                    channel.down_left = max(channel.down_left - size, 0)
                if stop > end:
                    self.frame_left = stop - end
                    pos = end
                    break
            elif kind == METHOD:
                if size < 4:
                    wrong = f"a method of {size} bytes"
                    break
                method: i64 = u32(data, pos + 7)
                if channel is None:
                    self._on_connection(method, lane)
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
                elif method in (BASIC_DELIVER, BASIC_RETURN, BASIC_GET_OK):
                    channel.down_left = -1
                else:
                    channel.down_left = 0
                    if method in (CHANNEL_CLOSE, CHANNEL_CLOSE_OK):
                        self._on_close(method, channel)
                        number = -1
            elif kind == HEADER and channel is not None:
                if size < 12:
                    wrong = f"a content header of {size} bytes"
                    break
                channel.down_left = max(u64(data, pos + 11), 0)
            pos = stop
        if run < pos:
            out.append(data if run == 0 and pos == end else data[run:pos])
        if wrong:
            raise broker_error(wrong)
        return pos

    def _on_connection(self, method: int, lane: int) -> None:
        """A method on channel 0, or on a channel we do not know."""
        if lane != 0:
            return
        if method == CONNECTION_START:
            self.handshake.started = True
        elif method == CONNECTION_CLOSE:
            self.connection_closed = True
            for channel in self.channels.values():
                self._on_close(CHANNEL_CLOSE, channel)
        elif method == CONNECTION_BLOCKED:
            self.blocked = True
        elif method == CONNECTION_UNBLOCKED:
            self.blocked = False

    def _on_close(self, method: int, channel: AmqpChannel) -> None:
        """The broker closes a channel, or agrees to the client's closing it: nothing more may be said on it."""
        for reply in channel.replies:
            self.reply_bytes -= len(reply)
        channel.replies.clear()
        self.speaking.pop(channel.number, None)
        if method == CHANNEL_CLOSE:
            if not channel.broker_closed:
                channel.broker_closed = True
                channel.ignored = channel.opened
                self.closed.append(channel)
        elif not channel.opened and not channel.parked and channel.taken == 0:
            del self.channels[channel.number]

    def _speak(self, out: list[bytes]) -> None:
        """Say the replies of all channels that are not within a message. Called at frame boundaries only."""
        for channel in list(self.speaking.values()):
            if channel.down_left == 0:
                out.extend(channel.replies)
                for reply in channel.replies:
                    self.reply_bytes -= len(reply)
                channel.replies.clear()
                del self.speaking[channel.number]

    def __repr__(self) -> str:
        place = "within a frame" if self.frame_left else "at a boundary"
        return f"<BrokerStream {place} rest={self.rest_size} speaking={len(self.speaking)}>"
