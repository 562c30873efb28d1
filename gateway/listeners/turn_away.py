"""Turning clients away: closed in their own protocol where it has words for it, and never a task that stays.

A client is told within DEADLINE_S, then closed whatever it does. At most TURNED_AWAY are told at a time: in a flood the others are closed
without a word, so that politeness costs the connections that work nothing. RocketMQ has no word for it; its clients see the close and
come back after their own backoff.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from gateway.admission import TURNED_AWAY
from gateway.protocols import PROTOCOLS
from gateway.protocols.protocol import Rejection
from gateway.transport.channel import Channel
from gateway.transport.channel_io import read_some, write_all
from gateway.transport.proxy_protocol import MalformedHeaderError

DEADLINE_S: Final = 2.5  # clients know within 3 s (docs/design/reliability.md F22)
LINGER_S: Final = 0.5  # for a client to read last words and close; the RST of unread bytes would overtake them


class Exit:
    """The way out of one listener. Closing the socket in the end is the caller's."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.under_way = 0
        self.untold = 0  # closed without a word, for want of words or of room

    async def turn_away(self, ready: Callable[[], Awaitable[Channel]], code: int, text: str) -> None:
        """Tell a client why it cannot connect, where its protocol has words for that; `ready` makes its channel fit for words."""
        rejection = PROTOCOLS[self.protocol].rejection
        if rejection is None:
            self.untold += 1
            return
        dismissal = rejection(code, text)

        async def tell() -> None:
            client = await ready()
            await _tell(client, dismissal)
            await _part(client)

        await self._within_bounds(tell)

    async def say(self, client: Channel, last_words: bytes) -> None:
        """Send `last_words`, if any."""
        if not last_words:
            self.untold += 1
            return

        async def tell() -> None:
            await write_all(client, last_words)
            await _part(client)

        await self._within_bounds(tell)

    async def _within_bounds(self, tell: Callable[[], Awaitable[None]]) -> None:
        if self.under_way >= TURNED_AWAY:
            self.untold += 1
            return
        self.under_way += 1
        try:
            with trio.move_on_after(DEADLINE_S):
                await tell()
        except (OSError, MalformedHeaderError):
            self.untold += 1  # it did not get as far as words (PROXY header, TLS)
        finally:
            self.under_way -= 1

    def __repr__(self) -> str:
        return f"<Exit {self.protocol} under_way={self.under_way} untold={self.untold}>"


async def _tell(client: Channel, dismissal: Rejection) -> None:
    while not dismissal.over:
        data = await read_some(client)
        if not data:
            return
        await write_all(client, dismissal.receive(data))


async def _part(client: Channel) -> None:
    """Read until the client closes, for LINGER_S at most."""
    client.shut_down()
    with trio.move_on_after(LINGER_S):
        while await read_some(client):
            pass
