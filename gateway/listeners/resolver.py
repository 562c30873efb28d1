"""Names of brokers: each has threads of its own for its resolution (`docs/design/reliability.md` F49).

trio resolves on threads that all blocking calls of the process share, forty at a time: with a resolver that hangs, forty clients that want
its name would keep a live change waiting for its fsync, and everybody whose broker has another name.
"""

from __future__ import annotations

import socket
from typing import Any, Final

import trio

THREADS_PER_NAME: Final = 4  # a guess: a resolver that is well answers each within milliseconds


class Resolver(trio.abc.HostnameResolver):
    """Asks the C library, as trio does. Not for addresses: trio has those without a thread."""

    def __init__(self) -> None:
        self._threads: dict[str, trio.CapacityLimiter] = {}  # by name: the configuration's, which are few

    async def getaddrinfo(
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,  # noqa: A002  -- trio's names
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """As `socket.getaddrinfo`. Who does not wait any longer leaves its thread to finish alone."""
        name = "" if host is None else host.decode()
        limiter = self._threads.get(name)
        if limiter is None:
            limiter = self._threads[name] = trio.CapacityLimiter(THREADS_PER_NAME)
        return await trio.to_thread.run_sync(
            socket.getaddrinfo, host, port, family, type, proto, flags, limiter=limiter, abandon_on_cancel=True
        )

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        """As `socket.getnameinfo`."""
        return await trio.to_thread.run_sync(socket.getnameinfo, sockaddr, flags, abandon_on_cancel=True)
