"""Reading and writing a channel from a task of its own, where nothing of the loop's hot path is wanted."""

from __future__ import annotations

from typing import Final

import trio

from gateway.clock import now_ns
from gateway.transport.channel import Channel
from gateway.transport.channel_states import READ_OPEN

READ_BYTES: Final = 16_384


async def read_some(channel: Channel) -> bytes:
    """The next bytes; b"" at the end, whichever it is.

    Others have a turn first, and a deadline holds, also while the peer sends faster than this reads.
    """
    await trio.lowlevel.checkpoint()
    buffer = memoryview(bytearray(READ_BYTES))
    while True:
        data = channel.read(READ_BYTES, buffer)
        if data or channel.read_state != READ_OPEN:
            return data
        await trio.lowlevel.wait_readable(channel.fd)


async def write_all(channel: Channel, data: bytes) -> None:
    """Until the socket has taken all of `data`, or fails."""
    channel.queue(data, 0, len(data))
    channel.flush(now_ns())
    while channel.backlog:
        await trio.lowlevel.wait_writable(channel.fd)
        channel.writable = True
        channel.flush(now_ns())
