"""A channel that speaks TLS: the session sees plain bytes, the socket sees records.

The naive way is `ssl.SSLSocket` on the descriptor. It fails here for three reasons. Its `unwrap` reads after it has written close_notify
and throws application data it meets away, with an error (OpenSSL's "application data after close notify", measured with 3.0): a
half-close would lose what the peer still says. A read may want to write and a write to read, which an edge-triggered loop has to remember
per direction. And it costs two system calls per record of 16 KiB at most. So OpenSSL gets two memory buffers (`ssl.MemoryBIO`) and only
this class touches the socket:

* A write never blocks and is never to be repeated: it always fits the memory buffer. What the socket has not taken waits as ciphertext in
  `_wire`, at most WINDOW_BYTES of plaintext and its overhead; the rest waits as it was queued. `sent` moves when the socket has taken the
  last byte of a record, never when OpenSSL has.
* A read takes what the socket has, in one call as a rule, and decrypts record by record. OpenSSL is asked for plaintext only when it has a
  whole record, as the record's header says: asked too early it raises, which cost more than to decrypt a short message. What found no room
  in the caller's buffer stays encrypted; then `readable` stays set, whatever the kernel says, and the socket is not asked again before that
  is used up. So a channel holds at most one read of ciphertext (FETCH_BYTES, and one record) on top of its backlog.
* What OpenSSL sends of its own accord (session tickets, answers to key updates, alerts) leaves with the next flush.
* `shut_down` first decrypts all that OpenSSL has, then lets it write close_notify with nothing left to stumble over, then sends FIN;
  the other direction goes on.

A FIN without close_notify counts as the peer's end like any other: many clients never send it (Python's own `ssl` does not), and both
protocols frame their messages, so that a cut shows. `truncated` remembers it.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from mypy_extensions import i64

from common.octets import u16
from common.tls.context import explain
from common.views.connections import EncryptionView
from gateway.transport.channel import Channel
from gateway.transport.channel_states import FIN_SENT, READ_EOF, READ_FAILED, READ_OPEN, WRITE_FAILED

HEADER_BYTES: Final = 5  # of a record: type, version, length of what follows
MAJOR_VERSION: Final = 3  # of every record, in its second octet (RFC 8446, 5.1)
RECORD_BYTES: Final = 16_384  # plaintext of the largest record (RFC 8446, 5.1)
OVERHEAD_BYTES: Final = 2048  # of a record's ciphertext, at most: TLS 1.2 (RFC 5246, 6.2.3); 256 in 1.3
WINDOW_BYTES: Final = 65_536  # plaintext encrypted ahead of the socket; more saves no system call worth its memory (a guess)
MAX_OWN_BYTES: Final = 65_536  # of what OpenSSL sends of its own accord, while the socket takes nothing; some hundred are usual (a guess)
FETCH_BYTES: Final = 65_536  # ciphertext taken per recv
MAX_FETCHES: Final = 8  # per call of `receive`; bounds the work where records carry little (a guess)
MAX_RECORDS: Final = 512  # the same; one-byte records cost 2 µs each


class TlsChannel(Channel):
    """One socket with TLS, its handshake done. `received`, `queued` and `sent` count plaintext."""

    def __init__(self, sock: socket.socket, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> None:
        super().__init__(sock)
        self.truncated = False  # the peer's FIN came without close_notify
        self._tls = tls
        records = getattr(tls, "_sslobj", tls)  # OpenSSL's own object: `SSLObject` passes these two calls on, in Python
        self._read = cast("Callable[[int, memoryview], int]", records.read)  # with a buffer it returns the length
        self._write = cast("Callable[[memoryview | bytes], int]", records.write)
        self._incoming = incoming  # ciphertext for OpenSSL
        self._outgoing = outgoing
        early = incoming.read()  # from the handshake's last read; it begins with a record
        self._fetched: bytes | None = early or None  # ciphertext from the socket, from `_at` on not yet given to OpenSSL
        self._at: i64 = 0
        self._missing: i64 = 0  # bytes of the record that OpenSSL has the beginning of
        self._may_have_more = False  # OpenSSL may have plaintext, or a whole record
        self._wire: list[memoryview | bytes] = []  # ciphertext the socket has not taken
        self._encrypted = 0  # ciphertext bytes taken out of `_outgoing` so far
        self._taken = 0  # and those of them the socket has taken
        self._under_way = 0  # plaintext bytes given to OpenSSL so far
        self._marks: deque[tuple[int, int]] = deque()  # (ciphertext up to here, plaintext up to here), not yet taken by the socket
        self._aside: bytearray | None = None  # decrypted before close_notify, not yet received by the session
        self._ended = False  # nothing more will come out of the decryption
        self._notified = False  # our close_notify was written

    # ---- reading ---------------------------------------------------------------------------------------------------

    def read(self, most: i64, buffer: memoryview) -> bytes:
        count = self.receive(buffer[:most] if most < len(buffer) else buffer, 0)
        return bytes(buffer[:count]) if count else b""

    def receive(self, buffer: memoryview, offset: int) -> int:
        """Decrypt into `buffer[offset:]`: how many bytes. As Channel.read, but `readable` also says that more is here already."""
        view = buffer[offset:] if offset else buffer
        size = len(view)
        count = self._read_aside(view, size) if self._aside is not None else 0
        fetches = MAX_FETCHES
        records = MAX_RECORDS
        drained = False
        while count < size and records > 0 and not self._ended and self.read_state != READ_FAILED:
            records -= 1
            got = self._decrypt(view, count, size)
            if got > 0:
                count += got
            elif got < 0 and not self._feed():  # OpenSSL wants more ciphertext, and there is none here
                if drained:
                    self.readable = False
                    break
                if fetches == 0:
                    break
                fetches -= 1
                asked = max(RECORD_BYTES + OVERHEAD_BYTES, min(size - count, FETCH_BYTES))
                fetched = self._fetch(asked)
                if fetched < 0:
                    break
                drained = fetched < asked and not self.hangup_pending
                self._feed()
        if self._outgoing.pending > MAX_OWN_BYTES:
            self.fail(OSError(errno.EPROTO, "TLS: the peer asks for new keys again and again and does not read the answers"))
        if count:
            self.received += count
        elif self._ended:
            if self.read_state == READ_OPEN:
                self._end_reading(READ_EOF)
            self.readable = False
        return count

    def _decrypt(self, view: memoryview, start: i64, end: i64) -> int:
        """One record's plaintext into `view[start:end]`: its length, 0 at the end or after an error, -1 when ciphertext is missing."""
        if not self._may_have_more:
            return -1
        try:
            count = self._read(end - start, view if start == 0 and end == len(view) else view[start:end])
        except ssl.SSLWantReadError:
            self._may_have_more = False
            return -1
        except ssl.SSLZeroReturnError:  # close_notify, after our own
            self._ended = True
            return 0
        except ssl.SSLError as error:
            self.fail(error)
            return 0
        if count == 0:  # close_notify
            self._ended = True
        self._may_have_more = count == end - start
        return count

    def _fetch(self, asked: int) -> int:
        """Take up to `asked` bytes of ciphertext from the socket: how many, -1 for none now or an error. A FIN sets `_ended`."""
        try:
            data = self.sock.recv(asked)
        except BlockingIOError:
            self.readable = False
            return -1
        except OSError as error:
            self.fail(error)
            return -1
        if not data:
            self.truncated = True
            self._ended = True
            return 0
        fetched = self._fetched
        self._fetched = data if fetched is None else fetched[self._at :] + data  # a piece of a record's header
        self._at = 0
        return len(data)

    def _feed(self) -> bool:
        """Give OpenSSL the next record of what was fetched, or what is there of it; whether there was any.

        No more at once, because a memory buffer keeps for ever what it has once grown to (OpenSSL's BIO_s_mem).
        """
        fetched = self._fetched
        if fetched is None:
            return False
        at: i64 = self._at
        there: i64 = len(fetched) - at
        size: i64 = self._missing
        refused = False
        if size == 0:
            if there < HEADER_BYTES:
                return False
            size = HEADER_BYTES + u16(fetched, at + HEADER_BYTES - 2)
            refused = fetched[at + 1] != MAJOR_VERSION or size > HEADER_BYTES + RECORD_BYTES + OVERHEAD_BYTES  # by its header
        given: i64 = min(size, there)
        self._incoming.write(fetched if given == len(fetched) else memoryview(fetched)[at : at + given])
        self._missing = size - given
        self._may_have_more = given == size or refused
        self._at = at + given
        if given == there:
            self._fetched = None
        return True

    def _read_aside(self, view: memoryview, size: int) -> int:
        aside = self._aside
        assert aside is not None
        count = min(size, len(aside))
        view[:count] = aside[:count]
        if count == len(aside):
            self._aside = None
        else:
            del aside[:count]
        return count

    def _set_aside(self) -> None:
        """Decrypt everything OpenSSL has: at most two records. What was fetched and not yet given to it is safe where it is."""
        aside = bytearray()
        scratch = memoryview(bytearray(RECORD_BYTES))
        while not self._ended and self.read_state != READ_FAILED:
            count = self._decrypt(scratch, 0, RECORD_BYTES)
            if count < 0:
                break
            aside += scratch[:count]
        if aside:
            if self._aside is not None:
                aside[:0] = self._aside
            self._aside = aside
            self.readable = self.read_state != READ_FAILED

    # ---- writing ---------------------------------------------------------------------------------------------------

    def flush(self, now: int) -> None:
        """Encrypt and send as much of the backlog as the socket takes."""
        if not self.writable or self.write_state == WRITE_FAILED:
            return
        if self.blocked_at:
            self.blocked_ns += max(now - self.blocked_at, 0)
            self.blocked_at = 0
        before = self._taken
        marks = self._marks
        try:
            while self._wire or self._encrypt():
                wire = self._wire
                count = self.sock.send(wire[0]) if len(wire) == 1 else self.sock.sendmsg(wire)
                self._taken += count
                if self._taken == self._encrypted:
                    self._wire = []
                else:
                    left = memoryview(b"".join(wire))[count:]
                    self._wire = [left]
                while marks and marks[0][0] <= self._taken:
                    self.sent = marks.popleft()[1]
        except BlockingIOError:
            self.writable = False
            self.blocked_at = now if self.queued > self.sent else 0  # what OpenSSL sends of its own accord is nobody's backlog
            self._detach()
        except OSError as error:
            self._fail_writing(error)
        if self._taken != before:
            self.sent_at = now
        if self._notified and not self._wire and self.write_state != WRITE_FAILED:
            self._send_fin()

    def _encrypt(self) -> bool:
        """Make the next ciphertext, in records as large as they may be; whether there is any. Raises OSError."""
        outgoing = self._outgoing
        if self.queued == self._under_way and outgoing.pending == 0:
            return False
        backlog = self._as_list()
        records: list[memoryview | bytes] = []
        if outgoing.pending > 0:  # OpenSSL's own
            records.append(outgoing.read())
            self._encrypted += len(records[0])
        room = WINDOW_BYTES
        while backlog and room >= RECORD_BYTES:
            piece = backlog[0]
            if len(piece) > RECORD_BYTES:
                piece = memoryview(piece)[:RECORD_BYTES]
            elif len(piece) < RECORD_BYTES and len(backlog) > 1:
                piece = self._gather()
            self._write(piece)
            size = len(piece)
            room -= size
            self._under_way += size
            self._consume(size)
            record = outgoing.read()  # one at a time: the buffer keeps what it has grown to
            self._encrypted += len(record)
            records.append(record)
            self._marks.append((self._encrypted, self._under_way))
        self._wire = records
        return True

    def _gather(self) -> bytes:
        """Several short slices as one record."""
        pieces: list[memoryview | bytes] = []
        room = RECORD_BYTES
        for piece in self._backlog:
            if len(piece) >= room:
                pieces.append(memoryview(piece)[:room])
                break
            pieces.append(piece)
            room -= len(piece)
        return b"".join(pieces)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """Send close_notify and FIN, once, when the backlog is empty. The peer may go on sending."""
        if self.write_state >= FIN_SENT or self.closed or self.queued != self.sent:
            return
        if not self._notified:
            self._set_aside()
            if self.write_state == WRITE_FAILED:
                return
            self._notified = True
            try:
                self._tls.unwrap()
            except ssl.SSLWantReadError:
                pass  # the peer's own close_notify is not here yet
            except ssl.SSLError as error:
                self.fail(error)
                return
        self.flush(self.sent_at)

    def _fail_writing(self, error: OSError) -> None:
        super()._fail_writing(error)
        self._wire = []
        self._marks.clear()

    def fail(self, error: OSError) -> None:
        """As Channel.fail; where it is OpenSSL that gave up, the peer is told why (an alert) if its socket takes it now."""
        if self.write_state != WRITE_FAILED and isinstance(error, ssl.SSLError) and not self._wire:
            try:
                alert = self._outgoing.read()
                if alert:
                    self.sock.send(alert)
            except OSError:
                pass  # the connection is lost anyway; the first error is the one that counts
        super().fail(ssl.SSLError(error.errno, f"TLS: {explain(error)[1]}") if isinstance(error, ssl.SSLError) else error)

    def close(self) -> None:
        super().close()
        self._wire = []
        self._aside = None
        self._fetched = None

    def encryption(self) -> EncryptionView | None:
        """TLS version and cipher, and the peer's certified user where there is one."""
        cipher = self._tls.cipher()
        name = cipher[0] if cipher else None
        return EncryptionView(version=self._tls.version(), cipher=name, certificate_user=self.certificate_user)

    def __repr__(self) -> str:
        return f"<Tls{super().__repr__()[1:]}"
