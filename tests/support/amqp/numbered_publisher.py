"""A publisher that numbers its messages and never waits: it writes as fast as the gateway reads, and takes confirms as they come.

Libraries stop and wait here and there, for windows and close-oks; this shows what the gateway itself takes.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator

from pamqp import commands

from support.amqp import frames as amqp
from support.processes import LOOPBACK

PATIENCE_S = 60.0
MARK = b"########"
ACK, NACK = b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78"
CLOSES = (b"\x00\x0a\x00\x32", b"\x00\x14\x00\x28")
CONNECTION_CLOSE = CLOSES[0]
CLOSE_OK = b"\x00\x0a\x00\x33"
OPEN_OK = b"\x00\x14\x00\x0b"


def number_of(body: bytes) -> int:
    return int(struct.unpack(">Q", body[:8])[0])


class NumberedPublisher:
    """One connection with one channel. Numbers begin at 0; the confirm of number n has tag n + 1."""

    def __init__(self, port: int, *, confirms: bool = False, channels: tuple[int, ...] = (1,), user: str = "guest") -> None:
        self.socket = socket.create_connection((LOOPBACK, port), timeout=PATIENCE_S)
        self.acked: dict[int, float] = {}  # number: when
        self.nacked: set[int] = set()
        self.closed = ""  # the broker's, or the gateway's, reason for a close
        self.close_answered = False
        self.over = threading.Event()  # nothing more comes
        self._opened = threading.Event()
        self._outstanding: dict[int, None] = {}
        self._threads: list[threading.Thread] = []
        self.sent = 0
        self.failed: OSError | None = None
        self.socket.sendall(amqp.greeting(user=user, password=user, channels=channels, confirms=channels if confirms else ()))
        self._run(self._read)
        assert self._opened.wait(PATIENCE_S), "the channel is not opened"

    def _run(self, what: object) -> None:
        thread = threading.Thread(target=what, daemon=True)  # type: ignore[arg-type]
        thread.start()
        self._threads.append(thread)

    def begin(
        self, count: int, topics: Iterable[str], size: int = 1024, *, channel: int = 1, expirations: tuple[str | None, ...] = (None,)
    ) -> None:
        """Publish `count` messages of `size` bytes to `topics` in turn, on a thread; to each with all of the `expirations`."""
        body = MARK + bytes(size - 8)
        words = [amqp.publish(channel, topic, body, expiration=expiration) for topic in topics for expiration in expirations]
        self._run(lambda: self._publish(count, words))

    def _publish(self, count: int, shapes: list[bytes]) -> None:
        try:
            for start in range(self.sent, self.sent + count, 100):
                numbers = range(start, min(start + 100, self.sent + count))
                self._outstanding.update(dict.fromkeys(numbers))
                self.socket.sendall(b"".join([shapes[each % len(shapes)].replace(MARK, struct.pack(">Q", each), 1) for each in numbers]))
        except OSError as error:
            self.failed = error
        else:
            self.sent += count

    def wait_until_sent(self, count: int, within: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + within
        while self.sent < count and self.failed is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.sent >= count, f"only {self.sent} of {count} messages were taken: {self.failed}"

    def say(self, data: bytes) -> None:
        self.socket.sendall(data)

    def hang_up(self) -> None:
        """End without a word, as a process that has ended does."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Ask for the close; after the answer (`close_answered`) the connection is ended, as clients do it."""
        self.say(amqp.method(0, commands.Connection.Close(200, "", 0, 0)))

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            for kind, payload in self._frames():
                if kind == 1:
                    self._method(payload)
        self.over.set()

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        rest = b""
        while data := self._more():
            rest += data
            at = 0
            while at + 8 <= len(rest) and at + (size := int.from_bytes(rest[at + 3 : at + 7], "big")) + 8 <= len(rest):
                yield rest[at], rest[at + 7 : at + 7 + size]
                at += size + 8
            rest = rest[at:]

    def _more(self) -> bytes:
        while True:
            try:
                return self.socket.recv(65536)
            except TimeoutError:
                continue  # nothing was said for a while; the thread ends with the socket

    def _method(self, payload: bytes) -> None:
        method = payload[:4]
        if method in (ACK, NACK):
            number, multiple = int.from_bytes(payload[4:12], "big") - 1, payload[12] & 1
            for each in self._up_to(number) if multiple else [number]:
                del self._outstanding[each]
                if method == ACK:
                    self.acked[each] = time.monotonic()
                else:
                    self.nacked.add(each)
        elif method in CLOSES:
            self.closed = payload[7 : 7 + payload[6]].decode()
            if method == CONNECTION_CLOSE:  # unanswered, the other side waits for seconds
                with contextlib.suppress(OSError):
                    self.hang_up()
        elif method == CLOSE_OK:
            self.close_answered = True
            self.hang_up()
        elif method == OPEN_OK:
            self._opened.set()

    def _up_to(self, number: int) -> list[int]:
        """The outstanding ones, which are in order, up to this one."""
        found: list[int] = []
        for each in self._outstanding:
            if each > number:
                break
            found.append(each)
        return found

    def __enter__(self) -> NumberedPublisher:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self.socket.close()
