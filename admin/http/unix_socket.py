"""A Unix socket to listen on, as the admin API's: mode 0600, a stale one replaced, removed at the end."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

import trio


class UnixSocket:
    """A listening socket at a path."""

    def __init__(self, path: Path, failure: str = "the admin API cannot listen", setting: str = "admin.socket") -> None:
        """`failure` and `setting` are for the message of an error.

        Raises OSError with the path in its message: where another process listens there, or what is there is no socket.
        """
        self.path = path
        self._removed = False
        try:
            _remove_stale(path)
            self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                os.fchmod(self._sock.fileno(), 0o600)  # what bind gives the file (unix(7), Linux): there is no moment in which others may
                self._sock.bind(str(path))
                self._sock.listen(128)
                self._sock.setblocking(False)
            except OSError:
                self._sock.close()
                raise
            self._inode = path.stat().st_ino
        except OSError as error:
            raise OSError(error.errno, f"{failure} at {path}: {error.strerror or error}; see {setting}") from error

    def listener(self) -> trio.SocketListener:
        """For a server, which closes it; the socket itself stays open."""
        return trio.SocketListener(trio.socket.from_stdlib_socket(self._sock.dup()))

    def remove(self) -> None:
        """Close it and remove its file, unless another process has put its own there meanwhile. A second time it does nothing."""
        if self._removed:
            return
        self._removed = True  # another's file may have the same inode from now on
        self._sock.close()
        with contextlib.suppress(OSError):
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()

    def __repr__(self) -> str:
        return f"<UnixSocket {self.path}>"


def has_socket(path: Path) -> bool:
    """Whether a socket is there, used or not; makes its folder. Raises OSError where there cannot be one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(17, "there is something that is no socket")
    return True


def _remove_stale(path: Path) -> None:
    """Remove the socket of a process that is gone."""
    if not has_socket(path):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
    raise OSError(98, "another process listens there")
