"""A channel: one non-blocking socket in the loop, with what still has to be sent.

Edge-triggered (EPOLLET): the kernel tells once that a socket became readable or writable, so the channel remembers it (`readable`,
`writable`) until a call says otherwise. That saves one `epoll_ctl` per change of interest, which level-triggered loops pay twice for
every blocked send. A read shorter than asked has emptied a stream socket (epoll(7)), so the call that would only say EAGAIN is saved
too, unless the peer has hung up: then reading goes on until it says so.

The backlog is bounded by its owner: a session stops reading one side while the other side's backlog is above its cap.
"""

from __future__ import annotations

import os
import socket
from typing import Any, Final

from mypy_extensions import i64

IOV: Final = 64  # slices per writev; Linux allows 1,024, beyond 64 no gain was measured (a guess kept small)
READ: Final = 65_536  # bytes asked for while less comes: what is not filled is given back at once, but it has to be there first
SMALL: Final = 1024  # bytes; joining slices that are shorter on average costs less than handing each to the kernel (a guess)
SHORT: Final = 4096  # bytes; copying a shorter slice costs less than a view of it, which takes three objects: 0.3 µs (2026-11)
FEW: Final = 479  # the same where only as much has come for some time: with Python's header it is the most that its own allocator serves
LATELY: Final = 8  # reads; a longer message than FEW costs a second one, so it must be rare (a guess)

# The system's calls, looked up once: compiled code would look in two dictionaries each time.
read: Final = os.read
write: Final = os.write
write_all: Final = os.writev


class Channel:
    """One socket. `queued` and `sent` count bytes since the beginning: queued - sent is the backlog."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        # What every turn looks at comes first, see `Session`.
        self.fd = sock.fileno()
        self._handle: Any = self.fd  # the same as the system's calls take it: compiled code would make an object of it each time
        self.readable = True
        self.writable = True
        self.hung_up = False  # the kernel announced the peer's FIN or an error: read until it shows
        self.eof = False  # the peer's FIN was read
        self.shut = False  # we have sent our FIN
        self.closed = False
        self._pieces = False  # something is in `_backlog`
        self.lends_certificate = False  # a client's side of TLS, with a certificate of the gateway's own to show
        self.cut: OSError | None = None  # sending failed: nothing more can be sent, but what has come may still be read
        self.queued = 0
        self.sent = 0
        self._first: memoryview | bytes | None = None  # the first piece of what is queued, nearly always the only one, unless `_lined_up`
        self.received = 0  # bytes
        self.received_at = 0  # monotonic ns of the last byte read; kept by the owner
        self.sent_at = 0  # monotonic ns of the last byte the socket took
        self.blocked_at = 0  # monotonic ns since when the backlog waits for the socket; 0: it does not
        self._most: i64 = READ  # to be asked for by the next `read`
        self._few: i64 = 0  # reads in a row that brought FEW bytes at most
        self.error: OSError | None = None  # reading failed: nothing more will come
        self.blocked_ns = 0  # all such waits that are over
        self._backlog: list[memoryview | bytes] = []  # a list, which compiled code knows; it is short, or its end is far from being sent
        self.certificate_user: str | None = None  # whom the peer's certificate names, where TLS has verified one
        self.sock = sock

    @property
    def backlog(self) -> int:
        """Bytes queued and not yet taken by the socket."""
        return self.queued - self.sent

    def read(self, most: i64, buffer: memoryview) -> bytes:
        """What has come, at most `most` bytes; b"" for nothing. Sets `eof`, `readable` and `error`. `buffer` is for who cannot do without.

        The kernel writes into the very bytes that are then passed on: a read into a buffer of the loop's, and out of it, took 0.5 µs more
        (2026-11).
        """
        asked: i64 = min(most, self._most)
        try:
            data = read(self._handle, READ) if asked == READ else read(self._handle, asked)
        except BlockingIOError:
            self.readable = False
            return b""
        except OSError as error:
            self.fail(error)
            return b""
        count: i64 = len(data)
        if count == 0:
            self.eof = True
            self.readable = False
            return b""
        if count < asked:
            self._few = self._few + 1 if count <= FEW else 0
            self._most = READ if self._few < LATELY else FEW
            if not self.hung_up:
                self.readable = False
        else:
            self._few = 0
            self._most = READ if asked == FEW else max(most, READ)
        self.received += count
        return data

    def queue(self, data: bytes, start: i64, end: i64) -> None:
        """Put `data[start:end]` behind the backlog; nothing long is copied."""
        size = end - start
        if size == 0 or self.cut is not None:
            return
        piece: memoryview | bytes = data
        if size != len(data):
            waits = not self.writable and size * 2 < len(data)  # then a small slice must not keep a whole read alive
            piece = data[start:end] if size <= SHORT or waits else memoryview(data)[start:end]
        if self.queued == self.sent:
            self._first = piece
        else:
            self._backlog.append(piece)
            self._pieces = True
        self.queued += size

    def flush(self, now: int) -> None:
        """Send as much of the backlog as the socket takes."""
        if self.queued == self.sent or not self.writable or self.cut is not None:
            return
        if self.blocked_at:
            self.blocked_ns += now - self.blocked_at
            self.blocked_at = 0
        before = self.sent
        if self._pieces and len(self._backlog) > 1 and self.queued - before < SMALL * len(self._backlog):
            self._first = b"".join(self._lined_up())
            self._backlog = []
            self._pieces = False
        try:
            first = self._first
            if first is not None and not self._pieces:
                taken = write(self._handle, first)
                self.sent += taken
                if self.sent == self.queued:
                    self._first = None
                else:
                    self._first = memoryview(first)[taken:]
            while self.sent != self.queued:
                taken = write_all(self._handle, self._lined_up()[:IOV])
                self.sent += taken
                self._consume(taken)
            self._pieces = False
        except BlockingIOError:
            self.writable = False
            self.blocked_at = now
            self._detach()
        except OSError as error:
            self._cut_off(error)
        if self.sent != before:
            self.sent_at = now

    def _lined_up(self) -> list[memoryview | bytes]:
        """All that is queued, in order, in `_backlog`."""
        if self._first is not None:
            self._backlog.insert(0, self._first)
            self._pieces = True
            self._first = None
        return self._backlog

    def _detach(self) -> None:
        """What has to wait keeps its own bytes only: a small slice must not keep a whole read alive."""
        backlog = self._lined_up()
        for index, view in enumerate(backlog):
            if isinstance(view, memoryview) and isinstance(view.obj, bytes) and len(view) * 2 < len(view.obj):
                backlog[index] = bytes(view)

    def check(self) -> None:
        """The kernel announced an error: take it without reading."""
        number = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self.fail(OSError(number, os.strerror(number)))

    def _consume(self, taken: i64) -> None:
        backlog = self._backlog
        gone = 0
        while taken > 0:
            head = backlog[gone]
            size: i64 = len(head)
            if size > taken:
                backlog[gone] = memoryview(head)[taken:]
                break
            gone += 1
            taken -= size
        del backlog[:gone]

    def shut_down(self) -> None:
        """Send FIN, once, when the backlog is empty."""
        if not self.backlog:
            self._send_fin()

    def _send_fin(self) -> None:
        if self.shut or self.closed:
            return
        self.shut = True
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._cut_off(error)

    def _cut_off(self, error: OSError) -> None:
        """Nothing more can be sent, and what was queued is lost. The peer's last words may still be there: read until its end shows."""
        if self.cut is None:
            self.cut = error
        self.hung_up = True
        self.readable = self.error is None and not self.eof
        self.writable = False
        self._first = None
        self._backlog.clear()
        self.queued = self.sent

    def fail(self, error: OSError) -> None:
        """The socket is of no more use; what was queued is lost."""
        if self.error is None:
            self.error = error
        self._cut_off(error)

    def send_blocked_ns(self, now: int) -> int:
        """How long a backlog has waited for the socket so far, the present wait included: a counter."""
        return self.blocked_ns + (max(now - self.blocked_at, 0) if self.blocked_at else 0)

    def encryption(self) -> dict[str, object] | None:
        """What protects this hop, for operators; None: nothing does."""
        return None

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._first = None
            self._backlog.clear()
            self.sock.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"error {self.cut}" if self.cut else "eof" if self.eof else "open"
        return f"<Channel {state} fd={self.fd} received={self.received} sent={self.sent} backlog={self.backlog}>"
