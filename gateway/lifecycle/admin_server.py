"""Serves the admin API (`admin/`) of a running gateway, and begins it again after a fault."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from gateway.lifecycle.scheduling import SupervisedLoop

if TYPE_CHECKING:
    import socket

    from admin.ports import Gateway
    from admin.store import Store
    from gateway.settings.known_settings import Admin

RETRY_S: Final = 1.0  # seconds; after a fault that ended the admin server; a guess


async def serve_admin(
    gateway: Gateway,
    store: Store,
    settings: Admin,
    inherited: socket.socket | None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """The admin API, on the `inherited` socket where there is one. Once it is up, no fault in it ends the gateway."""
    from admin.app import serve

    def where() -> tuple[str, int] | list[trio.SocketListener]:
        if inherited is None:
            return settings.bind
        return [trio.SocketListener(trio.socket.from_stdlib_socket(inherited.dup()))]  # the server closes what it is given

    loop = SupervisedLoop("admin", "admin_failed")
    up = False
    while True:
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(serve, where(), gateway, store, tokens=settings.tokens))
                if not up:
                    up = True
                    task_status.started()
        except Exception as error:
            if not up:
                raise
            loop.fail(error)
        await trio.sleep(RETRY_S)
