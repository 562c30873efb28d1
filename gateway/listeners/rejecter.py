"""Rejecting clients: each is told why in its own protocol, where that has words for it, and no task stays for long.

A client is told within DEADLINE_S, then its socket is closed whatever it does. At most MAX_REJECTING are told at a time. In a flood the
others are closed silently, so that politeness costs the connections that work nothing. RocketMQ has no frame for it: its clients see the
close and come back after their own backoff.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from common.descriptors import MAX_REJECTING
from gateway.protocols import PROTOCOLS
from gateway.protocols.protocol import Rejection
from gateway.transport.channel import Channel
from gateway.transport.channel_io import read_some, write_all
from gateway.transport.proxy_protocol import MalformedHeaderError

DEADLINE_S: Final = 2.5  # for telling one client: it knows within 3 s (docs/design/reliability.md F22)
LINGER_S: Final = 0.5  # for a client to read the last bytes and close; the RST of unread bytes would overtake them


class Rejecter:
    """Rejects the clients of one listener. The caller closes the socket in the end."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.rejecting = 0  # now
        self.rejected_silently = 0  # the protocol has no words for it, or too many were being told

    async def reject(self, ready: Callable[[], Awaitable[Channel]], code: int, text: str, *, away: bool) -> None:
        """Tell a client why it cannot connect, or that its broker is `away`. `ready` brings its channel to where the protocol begins."""
        rejection_of = PROTOCOLS[self.protocol].rejection
        if rejection_of is None:
            self.rejected_silently += 1
            return
        rejection = rejection_of(code, text, away)

        async def tell() -> None:
            client = await ready()
            await _converse(client, rejection)
            await _linger(client)

        await self._within_bounds(tell)

    async def send_last_words(self, client: Channel, last_words: bytes) -> None:
        """Send `last_words`, if any."""
        if not last_words:
            self.rejected_silently += 1
            return

        async def tell() -> None:
            await write_all(client, last_words)
            await _linger(client)

        await self._within_bounds(tell)

    async def _within_bounds(self, tell: Callable[[], Awaitable[None]]) -> None:
        if self.rejecting >= MAX_REJECTING:
            self.rejected_silently += 1
            return
        self.rejecting += 1
        try:
            with trio.move_on_after(DEADLINE_S):
                await tell()
        except (OSError, MalformedHeaderError):
            self.rejected_silently += 1  # it broke before the protocol began (PROXY header, TLS)
        finally:
            self.rejecting -= 1

    def __repr__(self) -> str:
        return f"<Rejecter {self.protocol} rejecting={self.rejecting} silently={self.rejected_silently}>"


async def _converse(client: Channel, rejection: Rejection) -> None:
    while not rejection.over:
        data = await read_some(client)
        if not data:
            return
        await write_all(client, rejection.receive(data))


async def _linger(client: Channel) -> None:
    """Read until the client closes, for LINGER_S at most."""
    client.shut_down()
    with trio.move_on_after(LINGER_S):
        while await read_some(client):
            pass
