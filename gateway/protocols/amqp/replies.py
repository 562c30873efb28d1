"""The gateway's own words to the client: replies on a channel, the close of a channel, and whether the client is blocked.

A reply answers for a publish that went no further (basic.nack, basic.return). It must not fall into the middle of anything: not into a
frame (the caller's affair, `BrokerStream`), and not into a message on the same channel, because a client that reads a nack between a
delivery's method and its header closes the connection with 505. Such replies wait until that message is complete; other channels'
messages do not matter.

A channel is **speaking** while words for it wait here. Its **last words** are the gateway's channel.close and what must be said before it;
once they are said the channel is muted (`AmqpChannel.muted`).
"""

from __future__ import annotations

from librt.strings import BytesWriter

from gateway.pipeline.parts import Part
from gateway.protocols.amqp.blocked_notices import BlockedNotices
from gateway.protocols.amqp.channel import AmqpChannel
from gateway.protocols.amqp.channel_states import CLOSE_WAITS
from gateway.protocols.amqp.refusal import write_answer


class GatewayReplies:
    """What waits to be said to one client."""

    def __init__(self, notices: BlockedNotices) -> None:
        self.notices = notices
        self.speaking: dict[int, AmqpChannel] = {}  # channels with something to say
        self.reply_bytes = 0  # of all of it

    def reply(self, channel: AmqpChannel, data: bytes) -> None:
        """Say `data` on `channel`."""
        self._replies(channel).write(data)
        self.reply_bytes += len(data)

    def refuse(self, channel: AmqpChannel, part: Part, first_tag: int, count: int, body_frame: int) -> None:
        """Say on `channel` that the first `count` publishes of `part` are refused."""
        replies = self._replies(channel)
        before = len(replies)
        write_answer(replies, part, first_tag, count, body_frame)
        self.reply_bytes += len(replies) - before

    def _replies(self, channel: AmqpChannel) -> BytesWriter:
        replies = channel.replies
        if replies is None:
            replies = channel.replies = BytesWriter()
            self.speaking[channel.number] = channel
        return replies

    def close(self, channel: AmqpChannel, data: bytes) -> None:
        """Say `data`, which ends with channel.close, behind everything else on `channel`."""
        channel.tell_close(data)
        self.reply_bytes += len(data)
        self.speaking[channel.number] = channel

    def say_behind_close(self, channel: AmqpChannel, data: bytes) -> None:
        """Say `data` on a channel the gateway has closed."""
        if channel.gateway_close == CLOSE_WAITS:
            channel.close_frames += data
            self.reply_bytes += len(data)
        else:
            self.reply(channel, data)

    def take_back(self, channel: AmqpChannel) -> None:
        """`channel` is closed by somebody else: nothing more may be said on it."""
        self._forget(channel)
        self.speaking.pop(channel.number, None)

    def may_speak(self) -> bool:
        """Whether anything waits to be said."""
        return len(self.speaking) > 0 or self.notices.news

    def speak(self, out: list[bytes]) -> None:
        """Append what may be said; called where the client's stream stands between frames."""
        if self.notices.news:
            notice = self.notices.take()
            if notice:
                out.append(notice)
        for channel in list(self.speaking.values()):
            if not channel.within_message():
                if channel.replies is not None:
                    out.append(channel.replies.getvalue())
                if channel.gateway_close == CLOSE_WAITS:
                    out.append(channel.close_frames)
                self._forget(channel)
                del self.speaking[channel.number]

    def _forget(self, channel: AmqpChannel) -> None:
        if channel.replies is not None:
            self.reply_bytes -= len(channel.replies)
            channel.replies = None
        self.reply_bytes -= len(channel.close_frames)
        channel.close_told()

    def __repr__(self) -> str:
        return f"<GatewayReplies speaking={list(self.speaking)} bytes={self.reply_bytes}>"
