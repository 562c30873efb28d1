"""Where a backlog is asked for: on a connection of the gateway's own to a broker, opened at the first question and after each failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from gateway.listeners.unreachable import UnreachableError
from gateway.transport.channel_io import read_some, write_all

if TYPE_CHECKING:
    from gateway.listeners.upstreams import Upstreams
    from gateway.transport.channel import Channel
    from limiter.limits import Lag

MAX_ANSWER_BYTES: Final = 4 << 20  # bytes; read for one question: RocketMQ says 200 bytes a queue, so 20,000 queues; a guess
MAX_FRAMES: Final = 100  # looked at for one answer: others, such as heartbeats, may come first, and each costs the loop 5 µs; a guess
ANSWER_S: Final = 3.0  # seconds; for a broker's answer; clients wait as long (`docs/design/rocketmq.md` 3)


class BacklogError(Exception):
    """The backlog is not known now. The text says why, in the broker's words where there are any."""


class Source:
    """One broker. Subclassed once per protocol."""

    def __init__(self, upstreams: Upstreams) -> None:
        self.upstreams = upstreams
        self.channel: Channel | None = None
        self._addresses: list[tuple[str, int]] = []  # of the brokers, when the connection was opened
        self._left = 0  # bytes that may still be read for the question under way
        self._one_at_a_time = trio.Lock()

    async def backlog(self, topic: str, lag: Lag) -> int:
        """How many messages wait, for a limit on `topic` that follows them. Raises BacklogError."""
        async with self._one_at_a_time:
            self._left = MAX_ANSWER_BYTES
            addresses = [upstream.address for upstream in self.upstreams.members]
            if addresses != self._addresses:
                self.close()  # a reload has moved the brokers
            try:
                with trio.fail_after(ANSWER_S):
                    if self.channel is None:
                        self._addresses = addresses
                        self.channel = await self.upstreams.dial(None)
                        await self.greet()
                    return await self.ask(topic, lag)
            except trio.TooSlowError:
                self.close()
                raise BacklogError(f"no answer within {ANSWER_S:.0f} s") from None
            except (OSError, UnreachableError) as error:
                self.close()
                raise BacklogError(str(error)) from error
            except BaseException:
                self.close()
                raise

    async def greet(self) -> None:
        """What the protocol begins with. Raises BacklogError."""

    async def ask(self, topic: str, lag: Lag) -> int:
        """Ask on the open connection. Raises BacklogError, and then the connection is closed."""
        raise NotImplementedError

    async def write(self, data: bytes) -> None:
        assert self.channel is not None
        await write_all(self.channel, data)

    async def read(self) -> bytes:
        """The next bytes; never none."""
        assert self.channel is not None
        data = await read_some(self.channel)
        if not data:
            raise BacklogError("the broker has closed the connection")
        self._left -= len(data)
        if self._left < 0:
            raise BacklogError(f"the broker says more than {MAX_ANSWER_BYTES >> 20} MiB")
        return data

    def close(self) -> None:
        """Give the connection back."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'open' if self.channel is not None else 'closed'} {self.upstreams.text}>"
