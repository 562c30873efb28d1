"""The admin's HTTP/1.1 server: h11 on trio, one task per connection, one request at a time.

    accept ── (at most 64 connections) ──► head ──► respond(head, body) ──► answer ──► next head ...
                                            5 s      10 s for the body      5 s per write

Nothing a client does or leaves undone holds the server: every wait has a deadline, and a connection whose deadline passes, or that is cut
off by shutdown, is closed without waiting for it (Hypercorn's shutdown hangs behind a reader that stalls; `reliability.md` finding 1).
When all places are taken the connection that has been idle longest gives way; when none is idle a newcomer gets 503.

A request is not read further than needed: who may not ask is told so before the body is read, and then the connection ends.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

import h11
import trio
import trio.abc

from admin.http import CONTENT_SECURITY, MAX_HEAD, BodyFrame, Head, RefusedError, check_head, parse_head
from admin.problems import ProblemError
from admin.routing import Answer, encode

RECEIVE: Final = 64 * 1024  # bytes per read
PIECE: Final = 32 * 1024  # bytes a stream is gathered to before it is written
LINGER: Final = 1024 * 1024  # bytes read and thrown away after an early answer, so that a reset does not overtake it
ACCEPT_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED})
BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"

_log = logging.getLogger("sluice.admin")

ReceiveBody: TypeAlias = Callable[[int], Awaitable[bytes]]  # (most bytes) -> the whole body; raises RefusedError 413
Respond: TypeAlias = Callable[[Head | RefusedError, ReceiveBody, str], Awaitable[Answer]]  # (head, body, peer's address)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds (reliability.md A6, API4; `idle` and `linger` are guesses)."""

    head: float = 5.0  # from a request's first byte (or the connection's begin) to the end of its head
    body: float = 10.0  # for the whole body
    write: float = 5.0  # for every piece of the answer
    idle: float = 60.0  # between two requests
    linger: float = 1.0  # reading on after an early answer


class Server:
    """Connections, and nothing about what they ask for: `respond` turns a head into an answer.

    Holds at most `most` connections with one head, one body (as long as `respond` lets it be) and one piece of an answer each.
    """

    def __init__(self, respond: Respond, deadlines: Deadlines = Deadlines(), most: int = 64) -> None:  # noqa: B008  -- frozen
        self._respond = respond
        self.deadlines = deadlines
        self.most = most
        self.connections: dict[Connection, None] = {}  # in the order they became idle or began
        self.turned_away = 0
        self.draining = False

    async def serve(self, listeners: Sequence[trio.abc.Listener[trio.abc.Stream]], grace: float) -> None:
        """Serve until cancelled; then let requests that are under way finish for at most `grace` seconds."""
        async with trio.open_nursery() as nursery:
            with trio.CancelScope(shield=True) as serving:
                try:
                    async with trio.open_nursery() as accepting:
                        accepting.start_soon(self._stop_when_cancelled, accepting.cancel_scope, nursery.cancel_scope)
                        for listener in listeners:
                            accepting.start_soon(self._accept, listener, accepting)
                finally:
                    serving.cancel()
