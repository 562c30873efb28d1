"""The protocol of systemd and other service managers: sockets they pass (sd_listen_fds(3)), states they are sent (sd_notify(3)).

A listening socket that this process binds dies with it, and clients are refused until the next process has bound it. A socket that systemd
holds outlives the process: the kernel lets clients connect meanwhile, and they wait in its queue for the next process. (SO_REUSEPORT does
not do that: the queue is dropped with the socket.) Closing our descriptor closes nothing for the others; `shutdown` would, so it is never
called on a listening socket.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final

from common import log

FIRST: Final = 3  # SD_LISTEN_FDS_START
VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
UNUSED: Final = "give it the name of a listener, or the address of its bind; or take it out of the service manager's configuration"
ANY: Final = "0.0.0.0"  # noqa: S104  -- compared with, not bound to


class Inheritance:
    """Listening sockets that systemd has opened, or that another process passes; each is given out once."""

    def __init__(self, sockets: list[tuple[str, socket.socket]], remedy: str = UNUSED) -> None:
        self._left = sockets  # with their names
        self._remedy = remedy  # where nobody wants one

    def take_at(self, bind: tuple[str, int]) -> socket.socket | None:
        """Take the one that listens where `bind` (host, port) would."""
        if not self._left:
            return None
        wanted = _addresses(bind)
        return self._take(next((index for index, (_, sock) in enumerate(self._left) if _listens_at(sock, wanted)), None))

    def take_named(self, name: str) -> socket.socket | None:
        """Take the one of this name, wherever it listens."""
        return self._take(next((index for index, (own, _) in enumerate(self._left) if own == name), None))

    def close_rest(self) -> None:
        """Close the sockets that are left: their clients would wait in the kernel's queue for nothing."""
        for name, sock in self._left:
            log.event(logging.WARNING, "inherited_socket_unused", socket=name or None, bind=_text(sock), remedy=self._remedy)
            sock.close()
        self._left.clear()

    def _take(self, index: int | None) -> socket.socket | None:
        return None if index is None else self._left.pop(index)[1]

    def __repr__(self) -> str:
        return f"<Inheritance {len(self._left)} left: {', '.join(f'{name} {_text(sock)}' for name, sock in self._left)}>"


def inherit(environ: MutableMapping[str, str] | None = None) -> Inheritance:
    """The sockets that systemd has passed to this process. Call it first of all, before their numbers could be those of other files.

    The variables that announce them are removed, so that no child takes them for its own.
    """
    variables = os.environ if environ is None else environ
    pid, count, names = (variables.pop(name, "") for name in VARIABLES)
    if not count:
        return Inheritance([])
    if pid != str(os.getpid()):
        log.event(
            logging.WARNING, "inherited_sockets_not_ours", err=f"LISTEN_PID is {pid or 'not set'}, this process is {os.getpid()}",
            remedy="let the service manager start sluice itself (with `exec` where a script stands between them)",
        )  # fmt: skip
        return Inheritance([])
    if not count.isdecimal():
        err = f"LISTEN_FDS is {count!r}, not a number"
        log.event(logging.WARNING, "inherited_sockets_not_ours", err=err, remedy="see sd_listen_fds(3)")
        return Inheritance([])
    called = names.split(":")
    found = []
    for number in range(int(count)):
        name = called[number] if number < len(called) else ""
        try:
            found.append((name, listening_socket(FIRST + number)))
        except OSError as error:
            log.event(
                logging.WARNING, "inherited_socket_unusable", fd=FIRST + number, socket=name or None, err=error.strerror,
                remedy="sluice takes listening TCP sockets (systemd: ListenStream=host:port, Accept=no)",
            )  # fmt: skip
    return Inheritance(found)


def listening_socket(descriptor: int) -> socket.socket:
    """The TCP socket with this descriptor, which must be listening. Raises OSError."""
    os.set_inheritable(descriptor, False)
    sock = socket.socket(fileno=descriptor)
    tcp = sock.family in {socket.AF_INET, socket.AF_INET6} and sock.type == socket.SOCK_STREAM
    if not tcp or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        text = repr(sock)
        sock.close()
        raise OSError(0, f"not a listening TCP socket: {text}")
    sock.setblocking(False)
    return sock


def _addresses(bind: tuple[str, int]) -> set[tuple[str, int]]:
    """All addresses of a socket that is bound to (host, port); empty where the name does not resolve."""
    with suppress(OSError):
        return {each[4][:2] for each in socket.getaddrinfo(*bind, type=socket.SOCK_STREAM)}  # type: ignore[misc]  # of IP families
    return set()


def _listens_at(sock: socket.socket, wanted: set[tuple[str, int]]) -> bool:
    host, port = sock.getsockname()[:2]
    if (host, port) in wanted:
        return True
    if host != "::" or (ANY, port) not in wanted:
        return False
    return not sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)  # ListenStream=5672 is [::]:5672, and takes IPv4 too


def _text(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# ---- notices -----------------------------------------------------------------------------------------------------------


def notify(state: str, patience: float = 0.0) -> None:
    """Send systemd a state: `READY=1`, `STOPPING=1`, `RELOADING=1`. Does nothing where none listens (NOTIFY_SOCKET).

    `patience`: seconds to wait where it has too much to read; by default none.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if state == "RELOADING=1":
        state += f"\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:  # a fault in it must not keep us from serving
        sock.settimeout(patience)
        sock.sendto(state.encode(), "\0" + address[1:] if address[0] == "@" else address)


def keep_silent() -> str:
    """Send nothing from now on: another process speaks for the service. What `speak` needs to go on."""
    return os.environ.pop("NOTIFY_SOCKET", "")


def speak(address: str) -> None:
    """Send what there is to say to `address` (of `keep_silent`) again."""
    if address:
        os.environ["NOTIFY_SOCKET"] = address
