"""A blind byte-for-byte relay on threads: stands where a gateway would, to show that a test's broker and clients work without one."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def _address(text: object) -> tuple[str, int]:
    host, _, port = str(text).rpartition(":")
    return host, int(port)


class Splice:
    """Accepts at `bind` and connects to `upstream` for each client. A context manager; leaving it closes everything."""

    def __init__(self, bind: tuple[str, int], upstream: tuple[str, int]) -> None:
        self.upstream = upstream
        self._server = socket.create_server(bind)
        self._open: list[socket.socket] = [self._server]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @classmethod
    def between(cls, listeners: Sequence[Mapping[str, object]]) -> ExitStack:
        """One for each listener of a gateway's configuration."""
        stack = ExitStack()
        for listener in listeners:
            stack.enter_context(cls(_address(listener["bind"]), _address(listener["upstream"])))
        return stack

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self.upstream)
            except OSError:
                client.close()
                continue
            self._open += [client, broker]
            for source, sink in ((client, broker), (broker, client)):
                thread = threading.Thread(target=self._copy, args=(source, sink), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(2)
