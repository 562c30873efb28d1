"""What the gateway itself sends to the client: replies on a channel, the close of a channel, and whether the client is blocked.

A reply answers for a publish that went no further (basic.nack, basic.return). It must not fall into the middle of anything. Frames are
the caller's affair (`BrokerStream`). Messages on the same channel are looked at here: a client that reads a nack between a delivery's
method and its header closes the connection with 505. Such replies wait until that message is complete; other channels' messages do not
matter. Nor may a reply overtake the broker's answer to the client's own channel.open or confirm.select, when all was sent in one write: a
client that reads a nack on a channel it has not seen open closes the connection.

The gateway's channel.close goes behind all other replies of its channel (`AmqpChannel.close_frames`); after it nothing more is sent there.
"""

from __future__ import annotations

from librt.strings import BytesWriter

from gateway.pipeline.empties import NO_ENTRIES, put
from gateway.pipeline.parts import Part
from gateway.protocols.amqp.blocked_notices import BlockedNotices
from gateway.protocols.amqp.channel import AmqpChannel
from gateway.protocols.amqp.channel_states import CLOSE_WAITS
from gateway.protocols.amqp.confirms import Confirms
from gateway.protocols.amqp.mixed_publishes import MixedPublishes
from gateway.protocols.amqp.refusals import write_answer


class GatewayReplies:
    """Replies that wait, of one connection."""

    def __init__(self, notices: BlockedNotices) -> None:
        self.notices = notices
        self.channels: dict[int, AmqpChannel] = NO_ENTRIES  # those with replies that wait
        self.reply_bytes = 0  # of all of them

    def reply(self, channel: AmqpChannel, data: bytes) -> None:
        """Send `data` on `channel`."""
        self._replies(channel).write(data)
        self.reply_bytes += len(data)

    def refuse(self, channel: AmqpChannel, part: Part, first_tag: int, count: int, body_frame: int) -> None:
        """Answer on `channel` that the first `count` publishes of `part` are refused."""
        replies = self._replies(channel)
        before = len(replies)
        write_answer(replies, part, first_tag, count, body_frame)
        self.reply_bytes += len(replies) - before

    def settle(self, channel: AmqpChannel, confirms: Confirms, part: MixedPublishes, body_frame: int, outbox: list[Part]) -> None:
        """Put the publishes of `part` into `outbox`, but those that are refused, which are answered on `channel`."""
        replies = self._replies(channel)
        before = len(replies)
        part.settle(confirms, replies, body_frame, outbox)
        self.reply_bytes += len(replies) - before

    def _replies(self, channel: AmqpChannel) -> BytesWriter:
        replies = channel.replies
        if replies is None:
            replies = channel.replies = BytesWriter()
            self.channels = put(self.channels, channel.number, channel)
        return replies

    def close(self, channel: AmqpChannel, data: bytes) -> None:
        """Send `data`, which ends with channel.close, behind everything else on `channel`."""
        channel.tell_close(data)
        self.reply_bytes += len(data)
        self.channels = put(self.channels, channel.number, channel)

    def reply_behind_close(self, channel: AmqpChannel, data: bytes) -> None:
        """Send `data` on a channel the gateway has closed."""
        if channel.gateway_close == CLOSE_WAITS:
            channel.close_frames += data
            self.reply_bytes += len(data)
        else:
            self.reply(channel, data)

    def take_close(self, channel: AmqpChannel) -> bytes:
        """What `channel` was to get with the gateway's close, now: the broker has answered that close, and says nothing more there."""
        before = b"" if channel.replies is None else channel.replies.getvalue()
        frames = before + channel.close_frames
        self.discard(channel)
        return frames

    def discard(self, channel: AmqpChannel) -> None:
        """Somebody else has closed `channel`: nothing more may be sent on it."""
        self._forget(channel)
        self.channels.pop(channel.number, None)

    def write_to(self, out: list[bytes]) -> None:
        """Append what may be sent; called where the client's stream stands between frames."""
        if self.notices.pending:
            notice = self.notices.take()
            if notice:
                out.append(notice)
        for channel in list(self.channels.values()):
            if channel.takes_replies():
                if channel.replies is not None:
                    out.append(channel.replies.getvalue())
                if channel.gateway_close == CLOSE_WAITS:
                    out.append(channel.close_frames)
                self._forget(channel)
                del self.channels[channel.number]

    def _forget(self, channel: AmqpChannel) -> None:
        if channel.replies is not None:
            self.reply_bytes -= len(channel.replies)
            channel.replies = None
        self.reply_bytes -= len(channel.close_frames)
        channel.close_told()

    def __repr__(self) -> str:
        return f"<GatewayReplies channels={list(self.channels)} bytes={self.reply_bytes}>"
