"""Pages of the dashboard, open on a gateway while it works: what each asks for and how often, without a browser's own work.

Each is a browser of its own (tabs of one browser share a stream): it signs in, has the stream, and reads again and again what the screen
shows, as `admin/dashboard/*.js` do. The first and every second one show the overview, the others a topic.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

HOST: Final = "127.0.0.1"
STREAM: Final = "/v1/stream?topics=50&events=0"
OVERVIEW: Final = {"/v1/series?range=15m&since={now}": 2.0}  # path -> seconds from one time to the next; {now}: seconds since 1970
TOPIC: Final = {
    "/v1/series?range=15m&protocol=rocketmq&topic=bench&since={now}": 1.0,
    "/v1/limits/rocketmq/bench?explain=1": 3.0,
    "/v1/topics?protocol=rocketmq&topic=bench": 3.0,
    "/v1/clients?protocol=rocketmq&q=bench&limit=500": 3.0,
}
PATIENCE_S: Final = 30.0  # for an answer of a gateway that is busy


class Admin(NamedTuple):
    """Where a gateway's admin API is."""

    port: int
    token_file: Path


class OpenPage:
    """One page, on two threads: its stream, and what it reads again and again. `snapshots` and `answers` count what came.

    It is made when all has been read once: what is measured is a page that is open, not one that is being opened.
    """

    def __init__(self, admin: Admin, reads: Mapping[str, float]) -> None:
        """Raises OSError or SystemExit where it cannot sign in."""
        self.snapshots = self.answers = 0
        self.faults: list[str] = []
        self._port = admin.port
        self._reads = reads
        self._over = threading.Event()
        self._shown = threading.Event()  # all of it has been read once
        connection = self._connection()
        token = admin.token_file.read_text().strip()
        connection.request("POST", "/v1/session", json.dumps({"token": token}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"a page cannot sign in: {answer.status}")
        self._cookie = {"Cookie": (answer.headers["Set-Cookie"] or "").partition(";")[0]}
        connection.close()
        self._stream = socket.create_connection((HOST, admin.port), timeout=PATIENCE_S)
        self._stream.sendall(f"GET {STREAM} HTTP/1.1\r\nHost: {HOST}:{admin.port}\r\nCookie: {self._cookie['Cookie']}\r\n\r\n".encode())
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._listen, self._read)]
        for thread in self._threads:
            thread.start()
        self._shown.wait(PATIENCE_S)

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(HOST, self._port, timeout=PATIENCE_S)

    def _listen(self) -> None:
        with suppress(OSError), self._stream.makefile("rb") as lines:  # `close` ends it
            for line in lines:
                self.snapshots += line.startswith(b"event: snapshot")

    def _read(self) -> None:
        connection = self._connection()
        due = dict.fromkeys(self._reads, 0.0)
        waited = 0.0
        while not self._over.is_set():
            for path, seconds in self._reads.items():
                if waited < due[path]:
                    continue
                due[path] = waited + (seconds if self._shown.is_set() else seconds * random.random())
                try:
                    connection.request("GET", path.format(now=4_000_000_000), headers=self._cookie)
                    answer = connection.getresponse()
                    answer.read()
                except (OSError, http.client.HTTPException) as error:
                    self.faults.append(f"{path}: {error!r}")
                    self._shown.set()
                    return
                self.answers += answer.status == 200
                if answer.status != 200:
                    self.faults.append(f"{path}: {answer.status}")
            self._shown.set()
            self._over.wait(0.25)
            waited += 0.25
        connection.close()

    def close(self) -> None:
        self._over.set()
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._stream.close()


@contextmanager
def open_pages(admin: Admin | None, count: int) -> Iterator[list[OpenPage]]:
    """So many pages, until the block ends. SystemExit where one was refused something."""
    with ExitStack() as stack:
        pages: list[OpenPage] = []
        if admin is not None:
            for number in range(count):
                pages.append(OpenPage(admin, TOPIC if number % 2 else OVERVIEW))
                stack.callback(pages[-1].close)
        yield pages
    faults = [fault for page in pages for fault in page.faults]
    if faults:
        raise SystemExit(f"a page of the dashboard: {faults[0]}")
