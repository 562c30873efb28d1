"""An AMQP queue's backlog: `queue.declare` with `passive`, which changes nothing and is answered with the number of ready messages.

It uses a connection and a channel of the gateway's own, without heartbeats, because it is used every second. A queue that does not exist,
or that may not be looked at, costs the channel (404, 403), so the connection is closed, and opened again for the next look.

The broker does not say how many messages consumers have taken. `lag_watch.py` works it out from what was let through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio
from pamqp import commands, frame

from gateway.broker_load.source import MAX_FRAMES, BacklogError, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.listeners.upstreams import Upstreams
    from limiter.limits import Lag

BEGIN: Final = b"AMQP\x00\x00\x09\x01"
CHANNEL: Final = 1
HEAD: Final = 7  # bytes; type, channel, size
MAX_FRAME_BYTES: Final = 1 << 17  # bytes; a method frame; RabbitMQ's own frame_max
METHOD: Final = 1


class AmqpSource(Source):
    """One AMQP broker and virtual host. `login` returns user and password; it raises OSError where the file is gone."""

    def __init__(self, upstreams: Upstreams, vhost: str, login: Callable[[], tuple[str, str]]) -> None:
        super().__init__(upstreams)
        self.vhost = vhost
        self.login = login
        self._data = b""
        self._thread = trio.CapacityLimiter(1)  # for the file of the login, whose disk may hang

    async def greet(self) -> None:
        self._data = b""
        user, password = await trio.to_thread.run_sync(self.login, abandon_on_cancel=True, limiter=self._thread)
        await self.write(BEGIN)
        await self._expect(commands.Connection.Start)
        words = f"\0{user}\0{password}"
        await self._send(0, commands.Connection.StartOk({"product": "sluice"}, "PLAIN", words, "en_US"))
        tune = await self._expect(commands.Connection.Tune)
        await self._send(0, commands.Connection.TuneOk(1, tune.frame_max, 0))
        await self._send(0, commands.Connection.Open(self.vhost))
        await self._expect(commands.Connection.OpenOk)
        await self._send(CHANNEL, commands.Channel.Open())
        await self._expect(commands.Channel.OpenOk)

    async def ask(self, topic: str, lag: Lag) -> int:
        await self._send(CHANNEL, commands.Queue.Declare(queue=lag.queue, passive=True))
        answer = await self._expect(commands.Queue.DeclareOk)
        return int(answer.message_count)

    async def _send(self, channel: int, method: Any) -> None:
        await self.write(frame.marshal(method, channel))

    async def _expect(self, kind: type) -> Any:
        """The next method, which is of this kind. Raises BacklogError with the broker's own words where it is a close."""
        for _ in range(MAX_FRAMES):
            while len(self._data) < HEAD or len(self._data) < HEAD + self._size() + 1:
                if len(self._data) >= HEAD and self._size() > MAX_FRAME_BYTES:
                    raise BacklogError(f"the broker has announced a frame of {self._size()} bytes")
                self._data += await self.read()
            whole = HEAD + self._size() + 1
            one, self._data = self._data[:whole], self._data[whole:]
            if one[0] != METHOD:
                continue  # a heartbeat
            try:
                method = frame.unmarshal(one)[2]
            except Exception as error:  # pamqp raises many kinds of exceptions
                raise BacklogError(f"the broker's answer is not understood: {error}") from error
            if isinstance(method, kind):
                return method
            if isinstance(method, commands.Connection.Close | commands.Channel.Close):
                raise BacklogError(f"{method.reply_code} {method.reply_text}")
            if not isinstance(method, commands.Connection.Blocked | commands.Connection.Unblocked):
                raise BacklogError(f"the broker has said {method.name} where {kind.__name__} was expected")
        raise BacklogError(f"the broker has said {MAX_FRAMES} things and no {kind.__name__}")

    def _size(self) -> int:
        return int.from_bytes(self._data[3:HEAD], "big")
