"""An AMQP client of the gateway's own, which publishes with confirms: one connection, one channel.

Its socket is one end of a socket pair; the listener has the other, as that of any client. So what it publishes is limited, counted and
shown as all else is, and needs neither a port nor TLS towards the gateway itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio
from pamqp import commands, frame

from gateway.protocols.amqp.frames import METHOD
from gateway.replay.frame_stream import FrameStream, ReplayError

if TYPE_CHECKING:
    from gateway.protocols.amqp.publishes_again import AgainMessage

BEGIN: Final = b"AMQP\x00\x00\x09\x01"
CHANNEL: Final = 1
HEAD_BYTES: Final = 7
ANSWER_S: Final = 30.0  # seconds; for an answer to anything but a publish (a guess); a publish waits as long as its limit says
PROPERTIES: Final = {"product": "sluice", "connection_name": "sluice replay"}


class ChannelClosedError(Exception):
    """The broker, or a rule, has closed the channel. `code` and `text` are its words."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


class ReplaySession:
    """One connection. Deliveries are tagged from 1 on, on each channel anew."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.frame_max = 0
        self.published = 0  # on this channel: the tag of the last
        self._frames = FrameStream(stream, HEAD_BYTES, size_of)

    async def begin(self, user: str, password: str, vhost: str) -> None:
        """Log in and open a channel with confirms. Raises ReplayError."""
        with trio.move_on_after(ANSWER_S):
            await self.stream.send_all(BEGIN)
            await self._expect(commands.Connection.Start)
            words = f"\0{user}\0{password}"
            await self._send(0, commands.Connection.StartOk(dict(PROPERTIES), "PLAIN", words, "en_US"))
            tune = await self._expect(commands.Connection.Tune)
            self.frame_max = tune.frame_max
            await self._send(0, commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0))
            await self._send(0, commands.Connection.Open(vhost))
            await self._expect(commands.Connection.OpenOk)
            await self._open()
            return
        raise ReplayError(f"no answer within {ANSWER_S:g} s")

    async def reopen(self) -> None:
        """A channel again, after ChannelClosedError. Raises ReplayError."""
        with trio.move_on_after(ANSWER_S):
            await self._send(CHANNEL, commands.Channel.CloseOk())
            await self._open()
            return
        raise ReplayError(f"no answer within {ANSWER_S:g} s")

    async def _open(self) -> None:
        self.published = 0
        await self._send(CHANNEL, commands.Channel.Open())
        await self._expect(commands.Channel.OpenOk)
        await self._send(CHANNEL, commands.Confirm.Select())
        await self._expect(commands.Confirm.SelectOk)

    async def publish(self, messages: list[AgainMessage]) -> None:
        await self.stream.send_all(b"".join([message.frames(CHANNEL, self.frame_max) for message in messages]))
        self.published += len(messages)

    async def next_answer(self) -> Any:
        """The next basic.ack, basic.nack or basic.return. Raises ChannelClosedError, ReplayError."""
        while True:
            payload = await self._frames.next()
            if payload[0] != METHOD:  # what was returned, which is known here
                continue
            method = parsed(payload)
            if isinstance(method, commands.Basic.Ack | commands.Basic.Nack | commands.Basic.Return):
                return method
            if isinstance(method, commands.Channel.Close):
                raise ChannelClosedError(int(method.reply_code or 0), str(method.reply_text))
            self._fail_on_close(method)

    async def close(self) -> None:
        """Say goodbye, and wait for the answer a moment."""
        with trio.move_on_after(1):
            await self._send(0, commands.Connection.Close(200, "", 0, 0))
            await self._expect(commands.Connection.CloseOk)

    async def _send(self, channel: int, method: Any) -> None:
        await self.stream.send_all(frame.marshal(method, channel))

    async def _expect(self, wanted: type) -> Any:
        while True:
            payload = await self._frames.next()
            if payload[0] != METHOD:
                continue
            method = parsed(payload)
            if isinstance(method, wanted):
                return method
            if isinstance(method, commands.Channel.Close):
                raise ReplayError(f"{method.reply_code} {method.reply_text}")
            self._fail_on_close(method)

    def _fail_on_close(self, method: Any) -> None:
        if isinstance(method, commands.Connection.Close):
            raise ReplayError(f"{method.reply_code} {method.reply_text}", int(method.reply_code or 0))

    def __repr__(self) -> str:
        return f"<ReplaySession published={self.published}>"


def size_of(head: bytes) -> int:
    """Bytes of the frame that begins so."""
    return HEAD_BYTES + int.from_bytes(head[3:HEAD_BYTES], "big") + 1


def parsed(one: bytes) -> Any:
    """The method of a frame. Raises ReplayError."""
    try:
        return frame.unmarshal(one)[2]
    except Exception as error:  # pamqp raises many kinds of exceptions
        raise ReplayError(f"the broker's answer is not understood: {error}") from error
