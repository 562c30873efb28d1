"""A receiver of alerts: an HTTP server that keeps what was posted to it and answers as a test wants."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from support.processes import LOOPBACK, wait_until


class Posted(NamedTuple):
    """One request, and what it was answered."""

    path: str
    fields: dict[str, str]  # of its head, by lower-case name
    body: Any
    status: int


class Receiver(ThreadingHTTPServer):
    """Answers 200, or the next of `statuses`; with `mute` set it takes requests and says nothing. A context manager."""

    daemon_threads = True

    def __init__(self, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        super().__init__((LOOPBACK, port), Handler)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.scheme = "http" if context is None else "https"
        self.statuses: list[int] = []  # of the next answers
        self.status = 200  # of those after them
        self.answer = b"{}"  # the body of each
        self.fields: dict[str, str] = {}  # of each answer's head
        self.mute = threading.Event()
        self.posted: list[Posted] = []
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join(10)
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A gateway that gives a request up is no fault of the server's."""

    @property
    def url(self) -> str:
        return f"{self.scheme}://{LOOPBACK}:{self.server_port}/hook"

    def taken(self) -> list[Any]:
        """The bodies that were answered 2xx."""
        return [one.body for one in list(self.posted) if 200 <= one.status < 300]

    def states(self) -> list[tuple[str, str]]:
        """(thing, status) of each alert in each message that was taken, in order."""
        return [(alert["labels"].get("thing", ""), alert["status"]) for body in self.taken() for alert in body["alerts"]]

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_until(condition, within=60, what=what)
        except TimeoutError as error:
            shown = [(one.status, json.dumps(one.body)[:600]) for one in self.posted[-5:]]
            raise AssertionError(f"{error}; the last posts: {shown}") from None


class Handler(BaseHTTPRequestHandler):
    server: Receiver
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.server.mute.is_set():
            self.connection.settimeout(60)
            self.rfile.read(1)  # until the client gives up
            self.close_connection = True
            return
        status = self.server.statuses.pop(0) if self.server.statuses else self.server.status
        fields = {name.lower(): text for name, text in self.headers.items()}
        self.server.posted.append(Posted(self.path, fields, json.loads(body), status))
        self.send_response(status)
        for name, text in self.server.fields.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)


class Dripper:
    """Takes connections and sends a byte of an answer's head now and then, for ever. A context manager."""

    def __init__(self, sent: bytes = b"HTTP/1.1 200 OK\r\nX: ") -> None:
        self._listening = socket.create_server((LOOPBACK, 0))
        self._sent = sent
        self._over = threading.Event()
        self.closed = threading.Event()  # a client has given up
        self.url = f"http://{LOOPBACK}:{self._listening.getsockname()[1]}/"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client:
                try:
                    client.sendall(self._sent)
                    while not self._over.is_set():
                        client.sendall(b"x")
                        time.sleep(0.02)
                except OSError:
                    self.closed.set()

    def __enter__(self) -> Dripper:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listening.close()
