"""Serves the admin API and the probes (`admin/`) of a running gateway, lets a reload change who reaches them, and begins again after a
fault.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from admin.access import Access
from gateway.lifecycle.scheduling import SupervisedLoop
from gateway.settings.tls_files import admin_hop

if TYPE_CHECKING:
    import ssl

    from admin.access import Bind
    from admin.app import Admin
    from admin.ports import Gateway
    from admin.store import Store
    from admin.unix_socket import UnixSocket
    from gateway.settings import Settings
    from gateway.systemd import Inheritance

RETRY_S: Final = 1.0  # seconds; after a fault that ended the admin server; a guess


class AdminServer:
    """The admin API of one gateway, or of the parent of several workers."""

    def __init__(self, gateway: Gateway, store: Store, settings: Settings) -> None:
        self._gateway = gateway
        self._store = store
        self._settings = settings
        self._inherited: dict[str, socket.socket] = {}
        self._admin: Admin | None = None  # while it serves
        self._access: Access | None = None  # None until it serves, and after a reload

    def take_sockets(self, inheritance: Inheritance) -> None:
        """Take the sockets that systemd has opened, found by address and only then by name."""
        binds = {"admin": self._settings.admin.bind}
        if self._settings.probes is not None:
            binds["probes"] = self._settings.probes.bind
        for name, bind in binds.items():
            found = inheritance.at(bind) or inheritance.named(name)
            if found is not None:
                self._inherited[name] = found

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Once it is up, no fault in it ends the gateway. Raises OSError when an address cannot be had."""
        from admin.unix_socket import UnixSocket

        path = self._settings.admin.socket
        unix_socket = None if path is None else UnixSocket(path)
        try:
            await self._serve(unix_socket, task_status)
        finally:
            if unix_socket is not None:
                unix_socket.remove()

    async def _serve(self, unix_socket: UnixSocket | None, task_status: trio.TaskStatus[None]) -> None:
        from admin.app import serve

        loop = SupervisedLoop("admin", "admin_failed")
        up = False
        while True:
            try:
                async with trio.open_nursery() as nursery:
                    self._access = self._access or access_of(self._settings)
                    await nursery.start(
                        partial(
                            serve,
                            self._where("admin", self._settings.admin.bind),
                            self._gateway,
                            self._store,
                            access=self._access,
                            probes=None if self._settings.probes is None else self._where("probes", self._settings.probes.bind),
                            more=[] if unix_socket is None else [unix_socket.listener()],
                            began=self._began,
                        )
                    )
                    if not up:
                        up = True
                        task_status.started()
            except Exception as error:
                if not up:
                    raise
                loop.fail(error)
            await trio.sleep(RETRY_S)

    def _began(self, admin: Admin) -> None:
        self._admin = admin

    def _where(self, name: str, bind: tuple[str, int]) -> Bind:
        inherited = self._inherited.get(name)
        if inherited is None:
            return bind
        return [trio.SocketListener(trio.socket.from_stdlib_socket(inherited.dup()))]  # the server closes what it is given

    # ---- at a reload -------------------------------------------------------------------------------------------------

    def prepare(self, settings: Settings) -> Callable[[], None]:
        """Read what new settings name; what is returned puts it in force. Raises TokenError, TlsFileError."""
        access = access_of(settings)
        in_force = None if self._admin is None else self._admin.prepare(access)

        def commit() -> None:
            self._settings, self._access = settings, access
            if in_force is not None:
                in_force()

        return commit

    def __repr__(self) -> str:
        return f"<AdminServer {self._settings.admin.bind}{'' if self._admin is None else ' serving'}>"


def access_of(settings: Settings) -> Access:
    """Who may reach the admin API, and how. Raises TlsFileError."""
    admin, probes = settings.admin, settings.probes
    hop = None if admin.tls is None else admin_hop(admin.tls)
    return Access(
        admin.tokens,
        admin.names,
        None if hop is None else hop.context,
        _explain,
        None if hop is None or hop.own is None else hop.own.until,
        probes is not None and probes.metrics == "open",
    )


def _explain(error: ssl.SSLError) -> str:
    from gateway.transport.tls.context import explain

    return explain(error)[1]
