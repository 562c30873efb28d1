"""A channel: one non-blocking socket in the loop, with what still has to be sent.

Edge-triggered (EPOLLET): the kernel tells once that a socket became readable or writable, so the channel remembers it (`readable`,
`writable`) until a call says otherwise. That saves one `epoll_ctl` per change of interest, which level-triggered loops pay twice for
every blocked send. A read shorter than asked has emptied a stream socket (epoll(7)), so the call that would only say EAGAIN is saved
too, unless the peer has hung up: then reading goes on until its end shows.

How either direction ends is in `channel_states.py`.

The backlog is bounded by its owner: a session stops reading one side while the other side's backlog is above its cap.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from contextlib import suppress
from typing import Any, Final

from mypy_extensions import i64, mypyc_attr, u8

from common.views.connections import EncryptionView
from gateway.transport.channel_states import (
    FIN_PENDING,
    FIN_SENT,
    READ_EOF,
    READ_FAILED,
    READ_OPEN,
    READ_STEPS,
    WRITE_FAILED,
    WRITE_OPEN,
    WRITE_STEPS,
)

MAX_IOV: Final = 64  # slices per writev; Linux allows 1,024, beyond 64 no gain was measured (a guess kept small)
READ_BYTES: Final = 65_536  # asked for per read while less comes; what is not filled is given back, but it has to be allocated first
JOIN_BELOW_MEAN_BYTES: Final = 1024  # joining slices that are shorter on average costs less than handing each to the kernel (a guess)
COPY_BELOW_BYTES: Final = 4096  # copying a shorter slice costs less than a view of it, which takes three objects: 0.3 µs (2026-11)
# Asked for per read where no more has come for some time. pymalloc, Python's own allocator, serves up to 512 bytes from its pools, and a
# bytes object of 479 takes 512 with its header; anything longer is malloc's.
SMALL_READ_BYTES: Final = 479
# Reads that are asked for in full after one that was as long as READ_BYTES: what a client sends in gusts longer than that comes in one read
# each, and is one batch, one submission and one write, not two (a guess).
LONG_READS: Final = 16
MIN_SMALL_READS: Final = 8  # reads in a row before that; a longer message costs a second read, so it must be rare (a guess)

TCP_INFO_BYTES: Final = 56  # of the kernel's struct tcp_info, up to and including the next
LAST_DATA_RECV: Final = 52  # tcpi_last_data_recv: ms since the last byte was received (include/uapi/linux/tcp.h)

# The system's calls, looked up once: compiled code would look in two dictionaries each time.
read: Final = os.read
write: Final = os.write
write_all: Final = os.writev


@mypyc_attr(allow_interpreted_subclasses=True)  # tests say when something was heard
class Heard:
    """What the connections to one peer have in common. Which of them was read last: who asks whether that peer still speaks need not look
    at all of them.
    """

    def __init__(self, address: str = "") -> None:
        self.address = address  # of the peer, as text
        self.channel: Channel | None = None
        self.connections = 0  # clients' that are open
        self.doubted = False  # one has ended on which the peer had said nothing

    def silent_s(self) -> float:
        """Seconds since the kernel received the last byte on that connection; infinite where it is closed, or there is none.

        The kernel's word, because a byte that is read now may have waited in the socket while the peer has long been dead.
        """
        channel = self.channel
        if channel is None or channel.closed:
            self.channel = None
            return float("inf")
        try:
            info = channel.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
            return float(struct.unpack_from("=I", info, LAST_DATA_RECV)[0]) / 1e3
        except (OSError, struct.error):  # not TCP, or gone
            return float("inf")


OF_CLIENTS: Final = Heard()  # whom nobody asks whether they still speak


class Channel:
    """One socket. `queued` and `sent` count bytes since the beginning: queued - sent is the backlog."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        # What every turn looks at comes first, see `Session`.
        self.fd = sock.fileno()
        self._handle: Any = self.fd  # the same as the system's calls take it: compiled code would make an object of it each time
        self.readable = True
        self.writable = True
        self.hangup_pending = False  # the kernel announced the peer's FIN or an error: read until it shows
        self.read_state: u8 = READ_OPEN
        self.write_state: u8 = WRITE_OPEN
        self.closed = False
        self._has_backlog = False  # something is in `_backlog`
        self.lends_certificate = False  # a client's side of TLS, with a certificate of the gateway's own to show
        self.write_error: OSError | None = None  # why sending failed
        self.queued = 0
        self.sent = 0
        self._head: memoryview | bytes | None = None  # the first piece of what is queued, nearly always the only one; see `_as_list`
        self.received = 0  # bytes
        self.received_at = 0  # monotonic ns of the last byte read; kept by the owner
        self.sent_at = 0  # monotonic ns of the last byte the socket took
        self.blocked_at = 0  # monotonic ns since when the backlog waits for the socket; 0: it does not
        self._next_read_bytes: i64 = READ_BYTES  # to be asked for by the next `read`
        self._small_reads_in_row: i64 = 0  # that brought SMALL_READ_BYTES at most
        self._long_reads_left: i64 = 0  # to be asked for in full, since one has brought READ_BYTES
        self.read_error: OSError | None = None  # why reading failed
        self.blocked_ns = 0  # waits for the socket that are over
        self._backlog: list[memoryview | bytes] = []  # a list, which compiled code knows; it is short, or its end is far from being sent
        self.certificate_user: str | None = None  # the user that the peer's certificate names, where TLS has verified one
        self.sock = sock
        self.heard = OF_CLIENTS  # of the peer: shared by all connections to one broker

    @property
    def backlog(self) -> int:
        """Bytes queued and not yet taken by the socket."""
        return self.queued - self.sent

    def read(self, most: i64, buffer: memoryview) -> bytes:
        """What has come, at most `most` bytes; b"" for nothing. Sets `readable` and `read_state`. `buffer` is used by TlsChannel only.

        The kernel writes into the very bytes that are then passed on: a read into a buffer of the loop's, and out of it, took 0.5 µs more
        (2026-11).
        """
        asked: i64 = min(most, self._next_read_bytes)
        try:
            data = read(self._handle, READ_BYTES) if asked == READ_BYTES else read(self._handle, asked)
        except BlockingIOError:
            self.readable = False
            return b""
        except OSError as error:
            self.fail(error)
            return b""
        count: i64 = len(data)
        if count == 0:
            if self.read_state == READ_OPEN:
                self._end_reading(READ_EOF)
            self.readable = False
            return b""
        if count > SMALL_READ_BYTES:
            self._small_reads_in_row = 0
        if count >= READ_BYTES:
            self._long_reads_left = LONG_READS
        elif self._long_reads_left > 0:
            self._long_reads_left -= 1
        if count < asked:
            if count <= SMALL_READ_BYTES:
                self._small_reads_in_row += 1
            if not self.hangup_pending:
                self.readable = False
        else:
            self._small_reads_in_row = 0
        if self._long_reads_left > 0:
            self._next_read_bytes = max(most, READ_BYTES)
        else:
            self._next_read_bytes = READ_BYTES if self._small_reads_in_row < MIN_SMALL_READS else SMALL_READ_BYTES
        self.received += count
        return data

    def queue(self, data: bytes, start: i64, end: i64) -> None:
        """Put `data[start:end]` behind the backlog; nothing long is copied."""
        size = end - start
        if size == 0 or self.write_state != WRITE_OPEN:
            return
        piece: memoryview | bytes = data
        if size != len(data):
            waits = not self.writable and size * 2 < len(data)  # then a small slice must not keep a whole read alive
            piece = data[start:end] if size <= COPY_BELOW_BYTES or waits else memoryview(data)[start:end]
        if self.queued == self.sent:
            self._head = piece
        else:
            self._backlog.append(piece)
            self._has_backlog = True
        self.queued += size

    def flush(self, now: int) -> None:
        """Send as much of the backlog as the socket takes."""
        if self.queued == self.sent or not self.writable or self.write_state == WRITE_FAILED:
            return
        if self.blocked_at:
            self.blocked_ns += now - self.blocked_at
            self.blocked_at = 0
        before = self.sent
        if self._has_backlog and len(self._backlog) > 1 and self.queued - before < JOIN_BELOW_MEAN_BYTES * len(self._backlog):
            self._head = b"".join(self._as_list())
            self._backlog = []
            self._has_backlog = False
        try:
            first = self._head
            if first is not None and not self._has_backlog:
                taken = write(self._handle, first)
                self.sent += taken
                if self.sent == self.queued:
                    self._head = None
                else:
                    self._head = memoryview(first)[taken:]
            while self.sent != self.queued:
                taken = write_all(self._handle, self._as_list()[:MAX_IOV])
                self.sent += taken
                self._consume(taken)
            self._has_backlog = False
        except BlockingIOError:
            self.writable = False
            self.blocked_at = now
            self._detach()
        except OSError as error:
            self._fail_writing(error)
        if self.sent != before:
            self.sent_at = now

    def _as_list(self) -> list[memoryview | bytes]:
        """`_backlog`, with all that is queued in order; the head moves there."""
        if self._head is not None:
            self._backlog.insert(0, self._head)
            self._has_backlog = True
            self._head = None
        return self._backlog

    def _detach(self) -> None:
        """Copy small slices of long reads out of these: what has to wait must not keep a whole read alive."""
        backlog = self._as_list()
        for index, view in enumerate(backlog):
            if isinstance(view, memoryview) and isinstance(view.obj, bytes) and len(view) * 2 < len(view.obj):
                backlog[index] = bytes(view)

    def check(self) -> None:
        """The kernel announced an error: take it without reading. What the peer had sent before can still be read."""
        number = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._fail_writing(OSError(number, os.strerror(number)))

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

    def request_fin(self) -> None:
        """Nothing more is to be sent: the owner calls `shut_down` until FIN is sent."""
        if self.write_state == WRITE_OPEN:
            self._step_writing(FIN_PENDING)

    def shut_down(self) -> None:
        """Send FIN, once, when the backlog is empty."""
        if not self.backlog:
            self._send_fin()

    def _send_fin(self) -> None:
        if self.write_state >= FIN_SENT or self.closed:
            return
        self._step_writing(FIN_SENT)
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._fail_writing(error)

    def _fail_writing(self, error: OSError) -> None:
        """Nothing more can be sent, and what was queued is lost. The peer's last bytes may still be there: read until its end shows."""
        if self.write_state != WRITE_FAILED:
            self._step_writing(WRITE_FAILED)
            self.write_error = error.with_traceback(None)  # which would keep all that the frames keep
        self.hangup_pending = True
        self.readable = self.read_state == READ_OPEN
        self.writable = False
        self._head = None
        self._backlog.clear()
        self.queued = self.sent

    def give_up(self, why: str) -> None:
        """Nothing more is read or sent, and the peer is told so by a FIN behind what the kernel has taken."""
        with suppress(OSError):  # it is gone
            self.sock.shutdown(socket.SHUT_RDWR)
        self.fail(OSError(errno.ETIMEDOUT, why))

    def fail(self, error: OSError) -> None:
        """The socket is of no more use; what was queued is lost."""
        if self.read_state == READ_OPEN:
            self._end_reading(READ_FAILED)
            self.read_error = error.with_traceback(None)
        self._fail_writing(error)

    def _end_reading(self, state: u8) -> None:
        assert state in READ_STEPS[self.read_state], f"reading in state {self.read_state} cannot become {state}"
        self.read_state = state

    def _step_writing(self, state: u8) -> None:
        assert state in WRITE_STEPS[self.write_state], f"writing in state {self.write_state} cannot become {state}"
        self.write_state = state

    def send_blocked_ns(self, now: int) -> int:
        """How long a backlog has waited for the socket so far, the present wait included: a counter."""
        return self.blocked_ns + (max(now - self.blocked_at, 0) if self.blocked_at else 0)

    def encryption(self) -> EncryptionView | None:
        """What protects this hop, for operators; None: nothing does."""
        return None

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._head = None
            self._backlog.clear()
            self.sock.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "eof" if self.read_state == READ_EOF else "open"
        if self.write_error is not None and not self.closed:
            state = f"error {self.write_error}"
        return f"<Channel {state} fd={self.fd} received={self.received} sent={self.sent} backlog={self.backlog}>"
