"""The broker's bytes, on their way to the client: the loop over their frames.

They pass as they come, whole reads as one slice where nothing has to change. Methods and content headers are looked at whole (an
incomplete one is kept, at most `limit` bytes); bodies flow through. Not everything passes:

* Confirms are changed, on channels where a publish was refused (`confirms.py`).
* Deliveries that a rule limits are taken out, with what must stay behind them, and come back later: they are **parked** (`deliveries.py`).
* Frames on a channel are left out once the client was sent the gateway's own close of it (`channel_close.py`), and so are notices that tell
  the client nothing new (`blocked_notices.py`).
* The gateway's replies (`replies.py`) and parked deliveries whose turn has come are added, at a frame boundary of the client's stream only,
  and not within a message of the same channel.

So there are two streams, which need not stand at the same place: the broker's frame that is coming in, and the frame the *client* still
lacks bytes of (`frame_left`). They differ while a frame is taken out of the stream (`ParkingLot.frame_left`).

A broker's faults are looked for only where they would confuse the gateway or cost it memory: in frames, and in confirms for what never was.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from common.octets import u16, u32, u64
from gateway.pipeline.errors import ProtocolError
from gateway.protocols.amqp.blocked_notices import BlockedNotices
from gateway.protocols.amqp.broker_methods import BrokerMethods
from gateway.protocols.amqp.channel import AmqpChannel
from gateway.protocols.amqp.channel_states import CLIENT_CLOSED, CLOSE_SENT
from gateway.protocols.amqp.confirms import Confirms
from gateway.protocols.amqp.deliveries.deliveries import Deliveries
from gateway.protocols.amqp.frames import (
    BASIC_ACK,
    BASIC_DELIVER,
    BASIC_NACK,
    BODY_FRAME,
    CHANNEL_CLOSE,
    END,
    HEADER,
    HEARTBEAT,
    METHOD,
    MIN_FRAME_BYTES,
    OVERHEAD,
    broker_error,
    over_frame_limit,
)
from gateway.protocols.amqp.handshake import Handshake
from gateway.protocols.amqp.passthrough import PASSTHROUGH, Passthrough
from gateway.protocols.amqp.replies import GatewayReplies

CHANGED_CONFIRMS: Final = BytesWriter()  # in a client's own tags; one buffer for all connections, empty between two frames
JOIN_ABOVE_PIECES: Final = 16  # of one read; more are joined, because a copy costs less than so many buffers: a guess


class BrokerStream:
    """Where the broker's stream stands."""

    def __init__(self, channels: dict[int, AmqpChannel], handshake: Handshake, deliveries: Deliveries) -> None:
        self.channels = channels
        self.handshake = handshake
        self.deliveries = deliveries
        self.lot = deliveries.lot
        self.intake = deliveries.intake
        self.replies = GatewayReplies(BlockedNotices(handshake))
        self.methods = BrokerMethods(channels, handshake, deliveries, self.replies)
        self.opaque = False  # it does not speak 0-9-1 frames: its protocol header, and whatever follows, passes
        self.rest: list[bytes] = []  # an incomplete frame that must be seen whole, in pieces
        self.rest_size = 0
        self.rest_need = 0
        self.frame_left: i64 = 0  # bytes of the body frame that flows through to the client, its end octet included
        self.frame_discarded = False  # it is not for the client
        self.frame_size: i64 = 0  # payload bytes of the body frame of which more is to come, whether it flows or is collected
        self.frame_channel: AmqpChannel | None = None  # whose content it counts for

    # ---- the gateway's own frames ----------------------------------------------------------------------------------

    def close(self, channel: AmqpChannel, frame: bytes) -> None:
        """The gateway closes `channel`: the client is sent `frame`, behind everything else and as the last of that channel."""
        if channel.client_state != CLIENT_CLOSED:  # else the client has closed it itself
            self.deliveries.consumers.ask(CHANNEL_CLOSE, channel.number, b"")
        self.deliveries.requests.forget(channel.number)
        kept = self.deliveries.ends.lose(channel, by_client=False)
        self.replies.close(channel, kept + frame)

    def take_replies(self) -> bytes:
        """What may be sent now; b"" within a frame."""
        if self.frame_left > 0 or not self._any_waiting():
            return b""
        pieces: list[bytes] = []
        self._write_waiting(pieces)
        return b"".join(pieces)

    def _any_waiting(self) -> bool:
        """Whether a reply or a parked delivery waits for a frame boundary."""
        replies = self.replies
        lot = self.lot
        return len(replies.channels) > 0 or replies.notices.pending or len(lot.free) > 0 or len(lot.remainders) > 0

    def _write_waiting(self, out: list[bytes]) -> None:
        """Append what may be sent. Called at frame boundaries only; after a delivery that is not whole it is none any more."""
        self.replies.write_to(out)
        if self.lot.free or self.lot.remainders:
            self.frame_left = self.lot.release(out)

    # ---- the broker's bytes ----------------------------------------------------------------------------------------

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
        self.intake.reads += 1
        PASSTHROUGH.begin(data, out)
        looked_at = self._walk(PASSTHROUGH)
        PASSTHROUGH.end()
        if self.lot.fresh:
            self.lot.end_read()
        if len(out) - before > JOIN_ABOVE_PIECES:
            out[before:] = [b"".join(out[before:])]
        if looked_at < len(data):
            self.rest.append(data[looked_at:])
            self.rest_size = len(data) - looked_at

    def _walk(self, passthrough: Passthrough) -> i64:
        """Look at all frames of a read; returns where the incomplete one begins that must be kept (or the end)."""
        data = passthrough.data
        end: i64 = len(data)
        limit: i64 = self.handshake.broker_limit
        header_limit: i64 = self.handshake.header_limit
        lot = self.lot
        number: i64 = -1  # of `channel`; -1: to be looked up again
        channel: AmqpChannel | None = None
        may_wait = True  # whether anything may wait for this boundary
        pos: i64 = self._finish_frame(passthrough, end)
        while self.frame_left == 0 and lot.frame_left == 0:
            if may_wait:
                may_wait = self._any_waiting()
                if may_wait:
                    passthrough.pass_up_to(pos)
                    self._write_waiting(passthrough.out)
            if end - pos < 7:
                self.rest_need = MIN_FRAME_BYTES
                break
            kind: i64 = data[pos]
            channel_id: i64 = u16(data, pos + 1)
            size: i64 = u32(data, pos + 3)
            stop: i64 = pos + size + OVERHEAD
            if (size > limit and kind != HEADER) or size > header_limit or kind not in (METHOD, HEADER, BODY_FRAME, HEARTBEAT):
                self._check_head(passthrough, pos, size)
                pos = end
                break
            if stop > end and kind != BODY_FRAME:
                self.rest_need = stop - pos
                break
            if stop <= end and data[stop - 1] != END:
                raise passthrough.make_broker_error(pos, "a frame that does not end with 0xCE")
            if channel_id != number:
                number = channel_id
                channel = self.channels.get(channel_id)
            if kind == HEARTBEAT:
                if channel_id != 0 or size != 0:
                    raise passthrough.make_broker_error(
                        pos, f"a heartbeat on channel {channel_id}" if channel_id else "a heartbeat with a payload"
                    )
            elif channel is not None and channel.gateway_close == CLOSE_SENT:
                stop = self._skip_closed(passthrough, pos, stop, channel)
                number = -1
            elif kind == BODY_FRAME:
                stop = self._body(passthrough, pos, stop, channel_id, channel)
            elif kind == HEADER:
                if channel is not None:
                    if size < 12:
                        raise passthrough.make_broker_error(pos, f"a content header of {size} bytes")
                    channel.broker_left = max(u64(data, pos + 11), 0)
                    if self.intake.header(channel, data, pos, stop, channel.broker_left):
                        passthrough.take_out(pos, stop)
            else:
                if size < 4:
                    raise passthrough.make_broker_error(pos, f"a method of {size} bytes")
                method: i64 = u32(data, pos + 7)
                if channel is None:
                    if channel_id == 0:
                        self.methods.on_connection(method, passthrough, pos, stop)
                elif method in (BASIC_ACK, BASIC_NACK):
                    if channel.confirms is not None:
                        self._confirm(passthrough, pos, stop, channel.confirms)
                    pos = stop
                    continue  # nothing waited for this boundary
                elif method == BASIC_DELIVER:
                    stop = self._deliver(passthrough, pos, stop, limit, channel)
                else:
                    self.methods.on_channel(method, passthrough, pos, stop, channel)
                    number = -1
            pos = stop
            may_wait = True
        passthrough.pass_up_to(pos)
        return pos

    # ---- frame by frame --------------------------------------------------------------------------------------------

    def _finish_frame(self, passthrough: Passthrough, end: i64) -> i64:
        """More of the body frame in whose middle the read before ended, if any; returns where it ends, or `end`."""
        lot = self.lot
        left: i64 = self.frame_left
        collected = left == 0
        if collected:
            left = lot.frame_left
        if left == 0:
            return 0
        pos: i64 = min(left, end)
        left -= pos
        wrong = left == 0 and passthrough.data[pos - 1] != END
        if left == 0 and not wrong and self.frame_channel is not None:
            _count_body(self.frame_channel, self.frame_size)
            self.frame_channel = None
        if collected:
            lot.frame_left = left
            passthrough.take_out(0, pos)
            if not wrong:
                self.intake.collect(self.channels.get(lot.frame_channel_id), passthrough.data, pos)
        else:
            self.frame_left = left
            if wrong and not self.frame_discarded:
                self.frame_left = 1  # the client is left within a frame
                passthrough.pass_up_to(pos - 1)
            if self.frame_discarded:
                passthrough.take_out(0, pos)
                self.frame_discarded = left > 0
        if wrong:
            raise broker_error("a body frame that does not end with 0xCE")
        return pos

    def _check_head(self, passthrough: Passthrough, pos: i64, size: i64) -> None:
        """A frame begins at `pos` as none may: wrong, but for the protocol header of a broker that speaks another version."""
        if not self.handshake.started and passthrough.data.startswith(b"AMQP", pos):
            self.opaque = True
            return
        limit = self.handshake.header_limit if passthrough.data[pos] == HEADER else self.handshake.broker_limit
        if size > limit:
            raise passthrough.make_broker_error(pos, over_frame_limit(size, limit))
        raise passthrough.make_broker_error(pos, f"a frame of unknown type {passthrough.data[pos]}")

    def _skip_closed(self, passthrough: Passthrough, pos: i64, stop: i64, channel: AmqpChannel) -> i64:
        """A frame that is not for the client any more; returns where it ends, or the read."""
        data = passthrough.data
        end: i64 = len(data)
        if stop > end:
            self.frame_discarded = True
            self.frame_left = stop - end
            self.frame_channel = None
            stop = end
        elif data[pos] == METHOD and stop - pos >= OVERHEAD + 4:
            self.methods.on_closed_by_gateway(u32(data, pos + 7), channel)
        passthrough.take_out(pos, stop)
        return stop

    def _body(self, passthrough: Passthrough, pos: i64, stop: i64, channel_id: i64, channel: AmqpChannel | None) -> i64:
        """A body frame: passes, or is collected; what is not there yet of it flows. Returns where it ends, or the read."""
        end: i64 = len(passthrough.data)
        left: i64 = max(stop - end, 0)
        size: i64 = stop - pos - OVERHEAD
        stop -= left
        if left > 0:
            self.frame_channel = channel
            self.frame_size = size
        if channel is not None:
            if left == 0:
                _count_body(channel, size)
            if channel.parking is not None:
                complete = left == 0 and channel.broker_left == 0
                if self.intake.body(channel, passthrough.data, pos, stop, complete=complete):
                    passthrough.take_out(pos, stop)
                    self.lot.frame_left = left
                    self.lot.frame_channel_id = channel_id
                    return stop
        self.frame_left = left
        return stop

    def _deliver(self, passthrough: Passthrough, pos: i64, stop: i64, limit: i64, channel: AmqpChannel) -> i64:
        """A basic.deliver, and where they are whole, the deliveries like it that follow; returns where that ends."""
        found: i64 = self.intake.run(channel, passthrough.data, pos, stop, limit)
        if found > pos:
            if channel.parking is not None:
                passthrough.take_out(pos, found)
            return found
        if self.intake.begin(channel, BASIC_DELIVER, passthrough.data, pos, stop):
            passthrough.take_out(pos, stop)
        return stop

    def _confirm(self, passthrough: Passthrough, pos: i64, stop: i64, confirms: Confirms) -> None:
        """basic.ack or basic.nack of publishes: passes, or is written anew where the client's tags are other ones."""
        if stop - pos != OVERHEAD + 13:
            raise passthrough.make_broker_error(pos, f"a confirm of {stop - pos - OVERHEAD} bytes")
        data = passthrough.data
        method: i64 = u32(data, pos + 7)
        tag = u64(data, pos + 11)
        multiple = (data[pos + 19] & 1) != 0
        if confirms.slots is not None:
            confirms.slots.confirm(tag, confirms.forwarded, multiple=multiple, acked=method == BASIC_ACK)
        try:
            stands = confirms.confirm(tag, multiple, CHANGED_CONFIRMS, u16(data, pos + 1), method)
        except ProtocolError:
            passthrough.pass_up_to(pos)
            raise
        if not stands:
            passthrough.take_out(pos, stop)
            if len(CHANGED_CONFIRMS) > 0:
                passthrough.out.append(CHANGED_CONFIRMS.getvalue())
                CHANGED_CONFIRMS.truncate(0)

    def __repr__(self) -> str:
        place = "within a frame" if self.frame_left else "at a boundary"
        return f"<BrokerStream {place} rest={self.rest_size} {self.replies}>"


def _count_body(channel: AmqpChannel, size: i64) -> None:
    """A body frame of `size` bytes is whole. Not before: a content whose last frame is still coming in is not complete."""
    if channel.broker_left > 0:
        channel.broker_left = max(channel.broker_left - size, 0)
