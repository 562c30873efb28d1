"""A supervisor as systemd is one: it holds listening sockets, hands them to each process it starts, and hears what they tell it."""

from __future__ import annotations

import fcntl
import socket
import sys
from pathlib import Path
from types import TracebackType

ABOVE = 64  # descriptors of the sockets held here: far from 3 and up, which is where the process finds them
# sd_listen_fds(3): descriptors from 3 on, and the variables, LISTEN_PID with the process's own number.
LAUNCH = """
import os, sys
held, names, command = sys.argv[1].split(","), sys.argv[2], sys.argv[3:]
for number, descriptor in enumerate(held):
    os.dup2(int(descriptor), 3 + number)
    os.close(int(descriptor))
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(held)), LISTEN_FDNAMES=names)
os.execvp(command[0], command)
"""


class Supervisor:
    """Listening sockets by name that outlive the processes started with them. A context manager; leaving it closes them.

    With `notices` processes are told where to send theirs (NOTIFY_SOCKET).
    """

    def __init__(self, sockets: dict[str, tuple[str, int]], notices: Path | None = None) -> None:
        self.notices = notices
        self._sockets: dict[str, socket.socket] = {}
        for name, address in sockets.items():
            with socket.create_server(address, backlog=128) as made:
                self._sockets[name] = socket.socket(fileno=fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, ABOVE))
        self._told = None
        if notices is not None:
            self._told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._told.bind(str(notices))

    @property
    def descriptors(self) -> list[int]:
        """For Popen's pass_fds."""
        return [sock.fileno() for sock in self._sockets.values()]

    def command(self, argv: list[str]) -> list[str]:
        """`argv` with the sockets."""
        words = [",".join(map(str, self.descriptors)), ":".join(self._sockets)]
        notify = [] if self.notices is None else ["env", f"NOTIFY_SOCKET={self.notices}"]
        return [*notify, sys.executable, "-c", LAUNCH, *words, *argv]

    def address(self, name: str) -> tuple[str, int]:
        host, port = self._sockets[name].getsockname()[:2]
        return host, port

    def told(self) -> list[str]:
        """The notices that have come since the last call."""
        assert self._told is not None
        found = []
        while True:
            try:
                found.append(self._told.recv(4096, socket.MSG_DONTWAIT).decode())
            except BlockingIOError:
                return found

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for sock in self._sockets.values():
            sock.close()
        if self._told is not None and self.notices is not None:
            self._told.close()
            self.notices.unlink()

    def __repr__(self) -> str:
        return f"<Supervisor {', '.join(f'{name} {self.address(name)}' for name in self._sockets)}>"
