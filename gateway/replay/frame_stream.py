"""The connection of the gateway's own client to a listener of the gateway: whole frames come out of it, whatever the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

READ_BYTES: Final = 65_536


class ReplayError(Exception):
    """The connection, its beginning, or a message for now, was refused: tried again later. `code`: the broker's, or 0."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class FrameStream:
    """One connection. `size_of` reads the size of a frame, in bytes, from its first `head` bytes."""

    def __init__(self, stream: trio.SocketStream, head: int, size_of: Callable[[bytes], int]) -> None:
        self.stream = stream
        self.head = head
        self.size_of = size_of
        self._data = bytearray()

    async def next(self) -> bytes:
        """The next frame, whole. Cancelled, it loses nothing. Raises ReplayError."""
        data = self._data
        while True:
            if len(data) >= self.head:
                whole = self.size_of(bytes(data[: self.head]))
                if len(data) >= whole:
                    one = bytes(data[:whole])
                    del data[:whole]
                    return one
            try:
                more = await self.stream.receive_some(READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ReplayError(f"the connection has ended: {error}") from error
            if not more:
                raise ReplayError("the connection has ended")
            data += more

    def __repr__(self) -> str:
        return f"<FrameStream {len(self._data)} bytes>"
