"""Limit requests of RocketMQ consoles (remote admin) that come to a worker: its parent, which alone changes limits, does them.

A worker sends each to its parent and waits; both ends do one at a time, in their order. A worker whose parent is gone ends anyway.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import trio

from gateway.workers.wire import LimitRequestDone, LimitRequested

if TYPE_CHECKING:
    from gateway.remote_admin import LimitRequestService
    from gateway.workers.wire import Outbox

VIEW, CHANGE, REFUSE, TURN_AWAY = "view", "change", "refuse", "turn_away"


class ParentsLimitRequests:
    """The worker's end. Implements `gateway.remote_admin.LimitRequestService`."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._numbers = count(1)
        self._waiting: dict[int, trio.Event] = {}
        self._done: dict[int, LimitRequestDone] = {}

    async def view(self) -> bytes:
        return (await self._ask(VIEW, ())).body

    async def change(self, action: str, topic: bytes, rate: float, client: str, access_key: str, request_id: str) -> str:
        return (await self._ask(CHANGE, (action, client, access_key, request_id), topic=topic, rate=rate)).why

    async def refuse(self, action: str, why: str, client: str, access_key: str, request_id: str) -> None:
        await self._ask(REFUSE, (action, client, access_key, request_id), why=why)

    async def turn_away(self, action: str, why: str, client: str, access_key: str, request_id: str) -> None:
        await self._ask(TURN_AWAY, (action, client, access_key, request_id), why=why)

    async def _ask(self, kind: str, who: tuple[str, ...], topic: bytes = b"", rate: float = 0.0, why: str = "") -> LimitRequestDone:
        number = next(self._numbers)
        done = self._waiting[number] = trio.Event()
        self._outbox.put(LimitRequested(number, kind, list(who), topic, rate, why))
        try:
            await done.wait()
            return self._done[number]
        finally:
            self._waiting.pop(number, None)
            self._done.pop(number, None)

    def take(self, message: LimitRequestDone) -> None:
        """The parent's answer."""
        if message.number in self._waiting:
            self._done[message.number] = message
            self._waiting[message.number].set()

    def __repr__(self) -> str:
        return f"<ParentsLimitRequests {len(self._waiting)} waiting>"


async def do_request(service: LimitRequestService, asked: LimitRequested) -> LimitRequestDone:
    """The parent's end."""
    if asked.kind == VIEW:
        return LimitRequestDone(asked.number, body=await service.view())
    action, *who = asked.who
    if asked.kind == CHANGE:
        return LimitRequestDone(asked.number, why=await service.change(action, asked.topic, asked.rate, *who))
    if asked.kind == REFUSE:
        await service.refuse(action, asked.why, *who)
    else:
        await service.turn_away(action, asked.why, *who)
    return LimitRequestDone(asked.number)
