"""Serves the admin API and the probes (`admin/`) of a running gateway, lets a reload change who reaches them, and begins again after a
fault.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from admin.access import ADMIN_PORT, PROBES_PORT, Access, bound
from admin.authentication.sign_in_code import VALID_MINUTES
from common.supervised_loop import SupervisedLoop
from config.tls_files import admin_hop

if TYPE_CHECKING:
    import ssl

    from admin.access import Bind
    from admin.app import Admin
    from admin.http.unix_socket import UnixSocket
    from admin.ports import OperatedGateway
    from admin.store.store import Store
    from config import Settings
    from config.known_settings import AdminSettings
    from gateway.systemd import Inheritance

RETRY_S: Final = 1.0  # seconds; after a fault that ended the admin server; a guess


class SignInLink(NamedTuple):
    """A link to the dashboard that signs a browser in, once, within `minutes`."""

    url: str
    minutes: int


class AdminServer:
    """The admin API of one gateway, or of the parent of several workers."""

    def __init__(self, gateway: OperatedGateway, store: Store, settings: Settings) -> None:
        self._gateway = gateway
        self._store = store
        self._settings = settings
        self._open: dict[str, list[socket.socket]] = {}  # by purpose; the server has duplicates of them
        self._admin: Admin | None = None  # while it serves
        self._port = settings.admin.bind.port  # where it serves
        self._access: Access | None = None  # None until it serves, and after a reload
        self._scope = trio.CancelScope()
        self._wanted = trio.Event()  # again, after `leave`
        self._up = False  # it has served
        self._unix_socket: UnixSocket | None = None

    def take_sockets(self, inheritance: Inheritance) -> None:
        """Take the sockets that systemd or another process has opened, found by address and only then by name."""
        for name, bind, _ in self._binds():
            found = []
            while (sock := inheritance.take_at(bind)) is not None:  # a name may have several addresses
                found.append(sock)
            named = None if found else inheritance.take_named(name)
            if found or named is not None:
                self._open[name] = found if named is None else [named]

    async def open(self) -> None:
        """Bind what is not open yet, and try what else may fail when it serves: the certificate, the tokens, the Unix socket's place.

        For a process that takes over: whatever fails here leaves the running one as it is. Raises OSError, TlsFileError, TokenError.
        """
        from admin.access import token_files
        from admin.authentication.auth import ValidTokens
        from admin.authentication.token_store import TokenStore
        from admin.http.unix_socket import has_socket

        self._access = access_of(self._settings)
        folder = self._store.folder
        ValidTokens(token_files(folder, self._access.tokens), TokenStore(folder), time.time)
        if self._settings.admin.socket is not None:
            has_socket(self._settings.admin.socket)
        for name, bind, purpose in self._binds():
            await self._bind(name, bind, purpose)

    def _binds(self) -> Iterator[tuple[str, tuple[str, int], tuple[str, str]]]:
        """What listens: its name, where, and how it is called in errors."""
        yield "admin", self._settings.admin.bind, ADMIN_PORT
        if self._settings.probes is not None:
            yield "probes", self._settings.probes.bind, PROBES_PORT

    def sockets(self) -> list[socket.socket]:
        """All TCP sockets it listens on, where another process may take over."""
        return [sock for sockets in self._open.values() for sock in sockets]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Once it is up, no fault in it ends the gateway. Raises OSError when an address cannot be had."""
        try:
            while True:
                with self._scope:
                    await self._serve(task_status)
                await self._wanted.wait()
        finally:
            self._remove_unix_socket()
            self._close()

    def leave(self) -> None:
        """Serve nobody until `come_back`: another process does, at the same addresses."""
        self._remove_unix_socket()
        self._wanted = trio.Event()
        self._scope.cancel()

    def come_back(self) -> None:
        if self._scope.cancel_called:
            self._scope = trio.CancelScope()
            self._wanted.set()

    def _unix_listener(self) -> trio.SocketListener | None:
        """Of `admin.socket`, where that is set. Raises OSError."""
        from admin.http.unix_socket import UnixSocket

        path = self._settings.admin.socket
        if path is not None and self._unix_socket is None:
            self._unix_socket = UnixSocket(path)
        return None if self._unix_socket is None else self._unix_socket.listener()

    def _remove_unix_socket(self) -> None:
        if self._unix_socket is not None:
            self._unix_socket.remove()
            self._unix_socket = None

    def _close(self) -> None:
        for sock in self.sockets():
            sock.close()
        self._open.clear()

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        from admin.app import serve

        loop = SupervisedLoop("admin", "admin_failed")
        while True:
            try:
                async with trio.open_nursery() as nursery:
                    self._access = self._access or access_of(self._settings)
                    unix_listener = self._unix_listener()
                    addresses = await nursery.start(
                        partial(
                            serve,
                            await self._provide_listeners("admin", self._settings.admin.bind, ADMIN_PORT),
                            self._gateway,
                            self._store,
                            access=self._access,
                            probes=None
                            if self._settings.probes is None
                            else await self._provide_listeners("probes", self._settings.probes.bind, PROBES_PORT),
                            more=[] if unix_listener is None else [unix_listener],
                            began=self._began,
                        )
                    )
                    self._port = addresses[0][1]
                    if not self._up:
                        self._up = True
                        task_status.started()
            except Exception as error:
                if not self._up:
                    raise
                loop.fail(error)
            await trio.sleep(RETRY_S)

    def sign_in_link(self) -> SignInLink | None:
        """A new one, which ends the one before; None where nobody serves, or the state directory's token is not valid."""
        code = None if self._admin is None else self._admin.authentication.make_code()
        if code is None:
            return None
        return SignInLink(f"{page_address(self._settings.admin, self._port)}/#sign-in={code}", VALID_MINUTES)

    def _began(self, admin: Admin) -> None:
        self._admin = admin

    async def _bind(self, name: str, bind: tuple[str, int], purpose: tuple[str, str]) -> None:
        """Raises OSError."""
        if name in self._open:
            return
        opened = await bound(bind, *purpose)
        self._open[name] = [duplicate(listener) for listener in opened]
        for listener in opened:
            await listener.aclose()

    async def _provide_listeners(self, name: str, bind: tuple[str, int], purpose: tuple[str, str]) -> Bind:
        """Listeners for the server, which closes what it is given. Raises OSError."""
        if name not in self._open:
            if self._settings.gateway.takeover is None:
                return bind
            await self._bind(name, bind, purpose)
        return [trio.SocketListener(trio.socket.from_stdlib_socket(sock.dup())) for sock in self._open[name]]

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


def duplicate(listener: trio.abc.Listener[trio.abc.Stream]) -> socket.socket:
    """The socket of a listener, open even when that closes it."""
    assert isinstance(listener, trio.SocketListener)
    return socket.socket(fileno=os.dup(listener.socket.fileno()))


def page_address(admin: AdminSettings, port: int) -> str:
    """Where a browser on this host finds the dashboard: by the first of `admin.names` where there is TLS, whose certificate has it."""
    scheme = "http" if admin.tls is None else "https"
    host = admin.names[0] if admin.tls is not None and admin.names else admin.bind.host
    if host in {"0.0.0.0", "::"}:  # noqa: S104  -- compared, not bound
        host = "localhost"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


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
    from common.tls.context import explain

    return explain(error)[1]
