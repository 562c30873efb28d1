"""The other side of a connection of the admin server."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Final

import trio
import trio.abc

_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid; struct ucred of unix(7)


@dataclass(slots=True, eq=False)
class Peer:
    """A client's address, and whether one of its requests had a good token. One that had none gives way when places are short."""

    address: str
    authenticated: bool = False


def peer_of(stream: trio.abc.Stream) -> Peer:
    """The peer of a connection just accepted: its address without its port; "local" for Unix sockets, with the user's number."""
    if not isinstance(stream, trio.SocketStream):
        return Peer("local")
    if stream.socket.family == socket.AF_UNIX:
        return Peer(f"local (uid {_uid(stream)})")
    try:
        name = stream.socket.getpeername()
    except OSError:
        return Peer("gone")
    return Peer(str(name[0]) if isinstance(name, tuple) else "local")


def _uid(stream: trio.SocketStream) -> int:
    """The user who has connected, as the kernel has it: for the audit. It grants nothing."""
    credentials = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def speaks_tcp(stream: trio.abc.Stream) -> bool:
    """Whether it came over a network, loopback included."""
    return isinstance(stream, trio.SocketStream) and stream.socket.family in {socket.AF_INET, socket.AF_INET6}
