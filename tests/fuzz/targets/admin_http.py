"""What is fuzzed of the admin server's HTTP: which requests a stream of bytes holds, held against a slow and plain reader.

What is taken is taken by both, to the byte: two readers that disagree where a request ends are how requests are smuggled.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import h11
from fuzz.scripts import cut

from admin.http.parsing import MAX_CHUNK_LINE, MAX_HEAD, BodyFrame, Head, RequestRefusedError, check_head, parse_head

STATUSES = (400, 431)
REQUEST_LINE = re.compile(rb"([A-Z]+) ([!-~]+) HTTP/1\.[01]")
HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")


class Served(NamedTuple):
    """A request as it was understood. `target` is path and query; `headers` in lower case and in their order."""

    method: str
    target: str
    headers: tuple[tuple[str, bytes], ...]
    body: bytes


def understood(head: Head, body: bytes) -> Served:
    target = head.path + ("?" + head.query if head.query else "")
    return Served(head.method, target, tuple(head.headers.items()), body)


def served(pieces: list[bytes]) -> tuple[list[tuple[Head, bytes]], int]:
    """The whole requests that come in these pieces, as `admin.http.exchange` reads them, and the status of a refusal (0: none)."""
    buffer = bytearray()
    found: list[tuple[Head, bytes]] = []
    head: Head | None = None
    frame = BodyFrame(0)
    connection = h11.Connection(h11.SERVER)
    body = b""
    try:
        for piece in pieces:
            buffer += piece
            while buffer:
                if head is None:
                    size = check_head(buffer)
                    if not size:
                        break
                    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * MAX_HEAD)
                    head, body = parse_head(bytes(buffer[:size]), connection), b""
                    del buffer[:size]
                    frame = BodyFrame(head.length)
                if not frame.done:
                    if not buffer:
                        break
                    connection.receive_data(frame.take(buffer))
                    body += decoded(connection)
                    assert len(repr(frame)) < 200
                if frame.done:
                    body += decoded(connection)
                    assert connection.their_state not in (h11.IDLE, h11.SEND_BODY, h11.ERROR), connection.their_state
                    found.append((head, body))
                    head = None
    except RequestRefusedError as refused:
        return found, refused.status
    return found, 0


def decoded(connection: h11.Connection) -> bytes:
    """The payload that has come; what h11 finds wrong with it is the client's fault. Raises RefusedError."""
    out = b""
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            raise RequestRefusedError(400, str(error)) from error
        if not isinstance(event, h11.Data):
            return out
        out += bytes(event.data)


def slowly(data: bytes, most: int) -> list[Served]:
    """The first `most` requests of `data`, read by RFC 9112 and nothing else. Raises ValueError where they are not there."""
    found = []
    at = 0
    for _ in range(most):
        end = data.index(b"\r\n\r\n", at)
        first, *lines = data[at:end].split(b"\r\n")
        at = end + 4
        line = REQUEST_LINE.fullmatch(first)
        if line is None:
            raise ValueError(f"no request line: {first!r}")
        headers: dict[str, bytes] = {}
        for each in lines:
            header = HEADER.fullmatch(each)
            if header is None:
                raise ValueError(f"no header: {each!r}")
            name = header[1].decode().lower()
            value = header[2].lower() if name == "transfer-encoding" else header[2]  # names of codings have no case
            headers[name] = headers[name] + b", " + value if name in headers else value
        if "transfer-encoding" in headers and "content-length" in headers:
            raise ValueError("its length is told in two ways")
        if "transfer-encoding" in headers:
            body, at = chunks(data, at)
        else:
            length = int(headers.get("content-length", b"0"))
            body, at = data[at : at + length], at + length
        if at > len(data):
            raise ValueError("the body is not whole")
        target = line[2].decode()
        if not target.startswith("/"):
            target = "/" + target.split("://", 1)[1].partition("/")[2]
        found.append(Served(line[1].decode(), target, tuple(headers.items()), body))
    return found


def chunks(data: bytes, at: int) -> tuple[bytes, int]:
    """A chunked body, and where it ends."""
    body = b""
    while True:
        end = data.index(b"\r\n", at)
        size = int(data[at:end], 16)
        if end - at > MAX_CHUNK_LINE:
            raise ValueError("a chunk's size of too many digits")
        at = end + 2
        body += data[at : at + size]
        if data[at + size : at + size + 2] != b"\r\n":
            raise ValueError("a chunk does not end where it says")
        at += size + 2
        if size == 0:
            return body, at


def written(request: Served, *, chunked: bool) -> bytes:
    """The request as a client would write it."""
    headers = b"".join(name.encode() + b": " + value + b"\r\n" for name, value in request.headers)
    body = request.body
    if chunked:
        body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
    version = "HTTP/1.1" if "host" in dict(request.headers) else "HTTP/1.0"
    return f"{request.method} {request.target} {version}\r\n".encode() + headers + b"\r\n" + body


def admin_http(data: bytes) -> None:
    """Requests of HTTP/1.1: refused, or read as the slow reader does; the same however they are cut; the same when written again."""
    if not data:
        return
    said = data[1:]
    found, status = served([said])
    assert status in (0, *STATUSES), status
    for how in (1, 2 + data[0]):
        again, same = served(cut(said, how))
        assert [understood(*each) for each in again] == [understood(*each) for each in found], "cut differently, it is other requests"
        assert same == status or 431 in (same, status), f"cut differently, the status is another: {status} / {same}"
    requests = [understood(*each) for each in found]
    read = slowly(said, len(requests))
    for fast, slow in zip(requests, read, strict=True):
        assert (fast.method, fast.target.partition("#")[0].rstrip("?"), dict(fast.headers), fast.body) == (
            slow.method, slow.target.rstrip("?"), dict(slow.headers), slow.body,
        ), f"{fast} / {slow}"  # fmt: skip
    for (head, _), request in zip(found, requests, strict=True):
        once, refused = served([written(request, chunked=head.length is None)])
        assert refused == 0, f"written again, it is refused: {request}"
        assert [understood(*each) for each in once] == [request]
