"""A name node and a data node of HDFS as WebHDFS shows them, in memory: the operations that `sluice log ship` uses.

After hadoop.apache.org, "WebHDFS REST API": CREATE and OPEN are answered 307 by the name node, and by the data node where that leads.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class Hdfs(ThreadingHTTPServer):
    """Its files, by path; `refuse` is the users it answers 403; `requests` what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.refuse: set[str] = set()
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"webhdfs://sluice@127.0.0.1:{self.server_port}/logs"


class Handler(BaseHTTPRequestHandler):
    server: Hdfs
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        operation, path, words = self.asked()
        data = self.server.files.get(path)
        if data is None:
            self.fault(404, "FileNotFoundException", f"File does not exist: {path}")
        elif operation == "GETFILESTATUS":
            self.json({"FileStatus": {"length": len(data), "type": "FILE", "pathSuffix": ""}})
        elif operation == "OPEN" and "data" not in words:
            self.redirect()
        elif operation == "OPEN":
            self.answer(200, data)
        else:
            self.fault(400, "IllegalArgumentException", operation)

    def do_PUT(self) -> None:
        operation, path, words = self.asked()
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        files = self.server.files
        if words.get("user.name") in self.server.refuse:
            self.fault(403, "AccessControlException", f'Permission denied: user={words["user.name"]}, access=WRITE, inode="/"')
        elif operation == "CREATE" and "data" not in words:
            assert body == b"", "the name node takes no data"
            self.redirect()
        elif operation == "CREATE":
            if path in files and words.get("overwrite") != "true":
                self.fault(403, "FileAlreadyExistsException", path)
                return
            files[path] = body
            self.answer(201, b"")
        elif operation == "RENAME":
            target = words["destination"]
            possible = path in files and target not in files
            if possible:
                files[target] = files.pop(path)
            self.json({"boolean": possible})
        else:
            self.fault(400, "IllegalArgumentException", operation)

    def do_DELETE(self) -> None:
        _, path, _ = self.asked()
        self.json({"boolean": self.server.files.pop(path, None) is not None})

    def asked(self) -> tuple[str, str, dict[str, str]]:
        where = urlsplit(self.path)
        words = {name: values[0] for name, values in parse_qs(where.query).items()}
        path = unquote(where.path).removeprefix("/webhdfs/v1")
        self.server.requests.append(f"{words['op']} {path}")
        return words["op"], path, words

    def redirect(self) -> None:
        self.send_response(307)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}{self.path}&data=1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def json(self, value: object, status: int = 200) -> None:
        self.answer(status, json.dumps(value).encode())

    def fault(self, status: int, kind: str, message: str) -> None:
        self.json({"RemoteException": {"exception": kind, "message": f"{message}\n at org.apache.hadoop"}}, status)

    def answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def hdfs_server() -> Iterator[Hdfs]:
    server = Hdfs()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
