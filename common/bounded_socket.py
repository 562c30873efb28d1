"""The bound of an exchange with a peer that a library speaks to on a thread: seconds for all of it, and bytes of the answer.

A library's time-out is for one read. A peer that drips holds the thread for ever, and one that sends without end fills the memory. So the
library gets sockets that count: `bounded` makes such a class of a connection's class. A TLS handshake has the library's own time-out.

An exchange that trio can cancel as a whole does not need it (`admin/alerting/http_post.py`).
"""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import socket

    Buffer = bytes | bytearray | memoryview

LEAST_S: Final = 0.001  # seconds; a time-out of 0 means something else


class AnswerTooLongError(OSError):
    """The peer's answer has more bytes than it may have."""


class AnswerTooLateError(TimeoutError):
    """The whole answer has not come within its time."""


class Allowance:
    """The time and the bytes that are left of one exchange. `begin` starts the next; one at a time."""

    def __init__(self, seconds: float, most: int) -> None:
        """`most`: bytes of the answer."""
        self.seconds = seconds
        self.most = most
        self.begin()

    def begin(self) -> None:
        self._left = self.most
        self._ends_at = time.monotonic() + self.seconds

    def time_left(self) -> float:
        """Seconds. Raises AnswerTooLateError when there are none."""
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise AnswerTooLateError(f"no whole answer within {self.seconds:g} s")
        return max(left, LEAST_S)

    def spend(self, size: int) -> None:
        """Take `size` bytes that were read. Raises AnswerTooLongError."""
        self._left -= size
        if self._left < 0:
            raise AnswerTooLongError(f"the answer is longer than {self.most} bytes")

    def __repr__(self) -> str:
        return f"<Allowance {self._left} of {self.most} bytes, {self._ends_at - time.monotonic():.3f} of {self.seconds:g} s left>"


class BoundedSocket:
    """A connected socket, plain or TLS, whose reads and writes keep to the allowance. The rest is the socket's own."""

    def __init__(self, sock: socket.socket, allowance: Allowance) -> None:
        self._sock = sock
        self._allowance = allowance
        self._timeout = sock.gettimeout()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds
        self._sock.settimeout(seconds)

    def recv(self, size: int, flags: int = 0) -> bytes:
        self.limit_wait()
        data = self._sock.recv(size, flags)
        self._allowance.spend(len(data))
        return data

    def recv_into(self, buffer: Buffer, size: int = 0, flags: int = 0) -> int:
        self.limit_wait()
        count = self._sock.recv_into(buffer, size, flags)
        self._allowance.spend(count)
        return count

    def sendall(self, data: Buffer, flags: int = 0) -> None:
        self.limit_wait()
        self._sock.sendall(data, flags)

    def makefile(self, mode: str = "rb", buffering: int = -1) -> io.BufferedReader:
        """A file to read from, for http.client."""
        assert mode == "rb", mode
        raw = _BoundedReader(self, self._sock.makefile("rb", 0))
        return _BoundedFile(raw, buffering if buffering > 0 else io.DEFAULT_BUFFER_SIZE)

    def limit_wait(self) -> None:
        """The next call on the socket waits no longer than there is time. Raises AnswerTooLateError. One that does not block stays so."""
        if self._timeout != 0:
            left = self._allowance.time_left()
            self._sock.settimeout(left if self._timeout is None else min(self._timeout, left))

    def spend(self, size: int) -> None:
        self._allowance.spend(size)

    @property
    def most(self) -> int:
        return self._allowance.most


class _BoundedFile(io.BufferedReader):
    """Asks for no more than may come: http.client reads as much at once as a head announces, for which memory is taken beforehand."""

    raw: _BoundedReader

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size if size is None else min(size, self.raw.most() + 1))


class _BoundedReader(io.RawIOBase):
    """What the socket's own file reads, which keeps the socket open until both are closed."""

    def __init__(self, sock: BoundedSocket, raw: Any) -> None:
        self._bounded = sock
        self._raw = raw

    def most(self) -> int:
        """Bytes of one answer."""
        return self._bounded.most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._bounded.limit_wait()
        count: int | None = self._raw.readinto(buffer)
        self._bounded.spend(count or 0)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def bounded(base: type[Any], hook: str, allowance: Allowance) -> type[Any]:
    """A subclass of a library's connection whose method `hook` (`connect`, or one that returns the socket) gives a bounded socket."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = getattr(super(kind, self), hook)(*args, **kwargs)
        if made is not None:
            return BoundedSocket(made, allowance)
        self.sock = BoundedSocket(self.sock, allowance)
        return None

    kind: type[Any] = type(f"Bounded{base.__name__}", (base,), {hook: method})
    return kind
