"""An S3 server in memory, as far as `sluice log ship` asks it: HEAD, GET and PUT of objects in buckets that are there, keys of any kind.

moto's, which knows much more of S3, is for `make test-storage`; this one needs nothing installed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class S3StandIn(ThreadingHTTPServer):
    """`objects`: what it holds, by bucket and key (`logs/sluice/...`)."""

    daemon_threads = True

    def __init__(self, *buckets: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.buckets = set(buckets)
        self.objects: dict[str, bytes] = {}
        self.metadata: dict[str, dict[str, str]] = {}

    def environment(self) -> dict[str, str]:
        """What AWS' tools find: an endpoint and some key; no files of the machine."""
        nowhere = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), "/dev/null")
        keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
        return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_port}", **keys, **nowhere}


class Handler(BaseHTTPRequestHandler):
    server: S3StandIn
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, *, only_head: bool = False) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "ETag": '"any"', **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if not only_head:
            self.wfile.write(body)

    def do_GET(self, *, only_head: bool = False) -> None:
        key = self.key()
        found = self.server.objects.get(key)
        if found is None:
            code = "NoSuchKey" if key.partition("/")[0] in self.server.buckets else "NoSuchBucket"
            self.answer(404, f"<Error><Code>{code}</Code><Message>{key}</Message></Error>".encode(), only_head=only_head)
            return
        self.answer(200, found, self.server.metadata[key], only_head=only_head)

    def do_HEAD(self) -> None:
        self.do_GET(only_head=True)

    def do_PUT(self) -> None:
        key, body = self.key(), self.body()
        if key.partition("/")[0] not in self.server.buckets:
            self.answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")
            return
        self.server.objects[key] = body
        self.server.metadata[key] = {name: value for name, value in self.headers.items() if name.lower().startswith("x-amz-meta-")}
        self.answer(200)

    def body(self) -> bytes:
        """Of a request with a length, or in AWS' chunks: SIZE;chunk-signature=..., data, and checksums behind the last."""
        if self.headers.get("Expect", "").lower() == "100-continue":
            pass  # BaseHTTPRequestHandler has answered it
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return self.rfile.read(int(self.headers["Content-Length"] or 0))
        if "Content-Length" in self.headers:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
        else:  # chunks of HTTP around them
            raw = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                raw += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        found = b""
        while raw:
            head, _, raw = raw.partition(b"\r\n")
            size = int(head.split(b";")[0], 16)
            if not size:
                break
            found, raw = found + raw[:size], raw[size + 2 :]
        return found


@contextmanager
def s3_stand_in(*buckets: str) -> Iterator[S3StandIn]:
    """A server with these buckets, empty."""
    with S3StandIn(*buckets) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)
