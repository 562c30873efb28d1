"""Gateways with a real admin API, store and judge, in a thread of their own: for the command line, which is not asynchronous."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import trio

from admin.access import Access
from support.admin.admin_client import Control, Reply, control

T = TypeVar("T")


@dataclass
class Serving:
    """The gateways, and a way into their thread."""

    gateways: list[Control]
    token: trio.lowlevel.TrioToken

    def ask(self, at: int, *request: Any) -> Reply:
        """Ask one of the gateways: method, path, body."""

        async def asked() -> Reply:
            return await self.gateways[at].ask(*request)

        return trio.from_thread.run(asked, trio_token=self.token)

    def call(self, function: Callable[[], T]) -> T:
        """Call it where the gateways run."""
        return trio.from_thread.run_sync(function, trio_token=self.token)

    def options(self) -> list[str]:
        """`--gateway URL,TOKENFILE` for each."""
        places = [f"http://{each.address[0]}:{each.address[1]},{each.folder / 'admin.token'}" for each in self.gateways]
        return [word for place in places for word in ("--gateway", place)]


@contextmanager
def serving(folder: Path, *names: str, access: Access | None = None, more: Callable[[], list[Any]] = list) -> Iterator[Serving]:
    """Gateways of these names; `access` and `more` as for `control`."""
    ready: SimpleQueue[Any] = SimpleQueue()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            gateways = [await stack.enter_async_context(control(folder / name, access=access, more=more)) for name in names]
            for name, gateway in zip(names, gateways, strict=True):
                gateway.gateway.name = name
            over = trio.Event()
            ready.put((gateways, trio.lowlevel.current_trio_token(), over))
            await over.wait()

    thread = Thread(target=trio.run, args=(serve,))
    thread.start()
    gateways, token, over = ready.get(timeout=30)
    try:
        yield Serving(gateways, token)
    finally:
        token.run_sync_soon(over.set)
        thread.join()
