"""HTTP/1.1, read strictly: a request that may be read in two ways is refused.

An offer to upgrade (Java's client offers h2c by itself) is ignored, as RFC 9110 7.8 allows: the answer is one of HTTP/1.1.

Behind a proxy, two readers of one byte stream that disagree where a request ends can be made to serve one client's bytes as another's
request ("smuggling"). h11 0.16 is strict about most of it, but takes Content-Length together with Transfer-Encoding (the latter wins),
bare LF as the end of a line, folded header lines and chunk extensions (measured, `docs/design/reliability.md` F54). So the head is looked
at before h11 sees it (`check_head`), the request after it was parsed (`check_request`), and the body is handed to h11 in exactly the bytes
that belong to it (`BodyFrame`): the bytes after them are the next request, checked in its turn.

Everything here is sans-IO. A `RequestRefusedError` always ends the connection: after a request that was not understood the start of the
next one is unknown.
"""

from __future__ import annotations

import re
from typing import Final

import h11

from common.records import dataclass

MAX_HEAD: Final = 16 * 1024  # bytes of request line and headers (docs/design/reliability.md 5)
MAX_CHUNK_LINE: Final = 16  # hexadecimal digits of a chunk's size; 16 MiB needs seven
CONTENT_SECURITY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

_END: Final = b"\r\n\r\n"
_NOT_TEXT: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # an AMQP greeting, a TLS hello and RocketMQ frames hold these early on
_LONE: Final = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_REQUEST_LINE: Final = re.compile(rb"[A-Z]{1,16} [\x21-\x7e]+ HTTP/1\.[01]")
_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_LENGTH: Final = re.compile(rb"[0-9]{1,12}")
_LENGTH_LINE: Final = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([^\r]*)", re.IGNORECASE)  # h11 makes one of equal ones
_ONCE: Final = frozenset(
    {
        b"authorization",
        b"content-length",
        b"content-type",
        b"cookie",
        b"host",
        b"idempotency-key",
        b"if-match",
        b"origin",
        b"sec-fetch-site",
        b"transfer-encoding",
    }
)
_CHUNK_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,16}")


class RequestRefusedError(Exception):
    """The request is not served and the connection ends. `status` is the answer's, `detail` the fault."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Head:
    """A request without its body. `path` is raw (still percent-encoded), `length` is None for a chunked body."""

    method: str
    path: str
    query: str
    headers: dict[str, bytes]  # names in lower case
    length: int | None

    @property
    def has_body(self) -> bool:
        return self.length is None or self.length > 0

    def __repr__(self) -> str:
        return f"<Head {self.method} {self.path}>"  # never the headers: they hold the token


def check_head(data: bytes | bytearray) -> int:
    """The length of the head that `data` begins with, or 0 while it is incomplete; raises RequestRefusedError as soon as it is hopeless.

    Does not read past the head: there begins the body, or the next request.
    """
    end = data.find(_END)
    size = len(data) if end < 0 else end + len(_END)
    if size > MAX_HEAD:
        raise RequestRefusedError(431, f"the request's head is longer than {MAX_HEAD} bytes")
    head = bytes(data[:size])
    if _NOT_TEXT.search(head):
        raise RequestRefusedError(400, "these are not the bytes of an HTTP/1.1 request; is this the admin port you want?")
    # While the head is incomplete its last byte may be the CR of a line end whose LF is still to come.
    if _LONE.search(head[:-1] if end < 0 and head.endswith(b"\r") else head):
        raise RequestRefusedError(400, "lines must end with CR LF")
    line, ended, rest = head.partition(b"\r\n")
    if ended and not _REQUEST_LINE.fullmatch(line):
        raise RequestRefusedError(400, "the first line must be METHOD target HTTP/1.1")
    if rest.startswith((b" ", b"\t")) or b"\r\n " in rest or b"\r\n\t" in rest:
        raise RequestRefusedError(400, "header lines must not be folded")
    return 0 if end < 0 else size


def parse_head(head: bytes, connection: h11.Connection) -> Head:
    """Let a fresh `connection` parse the whole `head`, and make the checks that h11 does not; raises RequestRefusedError."""
    lengths = _LENGTH_LINE.findall(head)
    if len(lengths) > 1 or (lengths and not _LENGTH.fullmatch(lengths[0].rstrip(b" \t"))):
        raise RequestRefusedError(400, "Content-Length must be given once, as a number of bytes")
    try:
        connection.receive_data(head)
        event = connection.next_event()
    except h11.RemoteProtocolError as error:
        raise RequestRefusedError(400, f"malformed request: {error}") from error
    if not isinstance(event, h11.Request):
        raise RequestRefusedError(400, "malformed request")
    return check_request(event)


def check_request(request: h11.Request) -> Head:
    """The head of `request`, if it can be read in one way only; raises RequestRefusedError."""
    headers: dict[str, bytes] = {}
    for name, value in request.headers:
        key = name.decode("ascii")
        if key in headers:
            if name in _ONCE:
                raise RequestRefusedError(400, f"more than one {key} header")
            value = headers[key] + b", " + value  # noqa: PLW2901  -- lists continue (RFC 9110 5.3)
        headers[key] = value
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None and length is not None:
        raise RequestRefusedError(400, "Content-Length and Transfer-Encoding exclude each other")
    if coding is not None and (coding.lower() != b"chunked" or request.http_version != b"1.1"):
        raise RequestRefusedError(400, "the only Transfer-Encoding understood is chunked, with HTTP/1.1")
    target = request.target.decode("ascii")
    path, _, query = _origin_form(target, headers.get("host", b"")).partition("?")
    if "#" in target or _PERCENT.search(target):
        raise RequestRefusedError(400, "the target holds a fragment or a malformed percent-encoding")
    size = None if coding is not None else int(length or 0)
    method = request.method.decode("ascii")
    if method in ("GET", "HEAD") and size != 0:
        raise RequestRefusedError(400, f"{method} takes no body")
    return Head(method, path, query, headers, size)


def _origin_form(target: str, host: bytes) -> str:
    """`/path?query`, also out of `http://host/path?query` where that names the same host as the Host header does."""
    if target.startswith("/"):
        return target
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        raise RequestRefusedError(400, "the target must begin with /")
    authority, slash, path = rest.partition("/")
    if not slash or authority.lower().encode() != host.lower():
        raise RequestRefusedError(400, "the target names another host than the Host header")
    return "/" + path


class BodyFrame:
    """Where a request's body ends. `take` cuts the bytes that belong to it off the front of the buffer.

    Holds no body bytes, only the beginning of a chunk-size line (at most MAX_CHUNK_LINE bytes).
    """

    __slots__ = ("_line", "_rest", "_state", "announced", "received")

    def __init__(self, length: int | None) -> None:
        self._rest = length or 0  # bytes to come of the body, or of the chunk
        self._state = "size" if length is None else ("plain" if length else "done")
        self._line = b""
        self.announced = length or 0  # bytes; 0 where a chunked body does not say
        self.received = 0  # bytes of payload

    @property
    def done(self) -> bool:
        return self._state == "done"

    def take(self, buffer: bytearray) -> bytes:
        """Remove the bytes of the body from `buffer` and return them, framing included; raises RequestRefusedError."""
        if self._state == "plain":
            return self._payload(buffer, "done")
        taken: list[bytes] = []
        while buffer and self._state != "done":
            taken.append(self._payload(buffer, "after") if self._state == "data" else self._framing(buffer))
        return b"".join(taken)

    def _payload(self, buffer: bytearray, following: str) -> bytes:
        data = bytes(buffer[: self._rest])
        del buffer[: self._rest]
        self._rest -= len(data)
        self.received += len(data)
        if self._rest == 0:
            self._state = following
        return data

    def _framing(self, buffer: bytearray) -> bytes:
        """One byte of a chunk's size line, of the CR LF behind its data, or of the end."""
        byte = bytes(buffer[:1])
        del buffer[:1]
        self._line += byte
        if not self._line.endswith(b"\r\n"):
            bound = MAX_CHUNK_LINE + 2 if self._state == "size" else 2
            if len(self._line) >= bound or (byte == b"\n"):
                raise RequestRefusedError(400, "malformed chunk, chunk extension or trailer; none of them is taken")
            return byte
        line, self._line = self._line[:-2], b""
        if self._state == "size":
            if not _CHUNK_SIZE.fullmatch(line):
                raise RequestRefusedError(400, "malformed chunk size or chunk extension")
            self._rest = int(line, 16)
            self._state = "data" if self._rest else "end"
        elif line:
            raise RequestRefusedError(400, "malformed chunk or trailer")
        else:
            self._state = "size" if self._state == "after" else "done"
        return byte

    def __repr__(self) -> str:
        return f"<BodyFrame {self._state} received={self.received} rest={self._rest}>"
