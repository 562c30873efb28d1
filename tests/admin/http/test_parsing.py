"""Reading HTTP strictly (docs/design/reliability.md F54), without a socket."""

from __future__ import annotations

import random

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.http.parsing import MAX_HEAD, BodyFrame, Head, RequestRefusedError, check_head, parse_head
from support.cases import in_one_loop

GOOD = b"PUT /v1/quotas?force=1 HTTP/1.1\r\nHost: localhost:9180\r\nContent-Length: 3\r\n\r\n"


def read(head: bytes) -> Head:
    size = check_head(head)
    assert size == len(head)
    return parse_head(head, h11.Connection(h11.SERVER))


def status_of(head: bytes) -> int:
    try:
        read(head)
    except RequestRefusedError as refused:
        return refused.status
    return 200


def test_a_good_head_is_read() -> None:
    head = read(GOOD)
    assert (head.method, head.path, head.query, head.length) == ("PUT", "/v1/quotas", "force=1", 3)
    assert head.headers["host"] == b"localhost:9180"


AMBIGUOUS = {
    "length and chunked": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
    "the same length twice": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
    "a list of lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\n",
    "a negative length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\n",
    "a signed length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n",
    "another coding": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    "an obscured coding": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
    "chunked in HTTP/1.0": b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "space before the colon": b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "a folded line": b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n",
    "a folded first line": b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    "another host in the target": b"GET http://evil/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "no path": b"GET x HTTP/1.1\r\nHost: a\r\n\r\n",
    "an authority": b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    "a fragment": b"GET /#x HTTP/1.1\r\nHost: a\r\n\r\n",
    "half an escape": b"GET /%2 HTTP/1.1\r\nHost: a\r\n\r\n",
    "HTTP/2 straight away": b"PRI * HTTP/2.0\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\nHost: a\r\n\r\n",
    "two spaces": b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    "a lower-case method": b"get / HTTP/1.1\r\nHost: a\r\n\r\n",
    "an empty line first": b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "a body on GET": b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n",
    "a chunked body on GET": b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    "two authorizations": b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n",
    "two conditions": b"PUT / HTTP/1.1\r\nHost: a\r\nIf-Match: a\r\nIf-Match: b\r\n\r\n",
    "a NUL in a value": b"GET / HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
}


@in_one_loop
@pytest.mark.parametrize("head", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_ambiguous_heads_are_refused(head: bytes) -> None:
    assert status_of(head) == 400


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\r\nHost: a\n\r\n",
        b"GET / HTTP/1.1\rHost: a\r\r",
        b"AMQP\x00\x00\x09\x01",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00\x00\x00\x50\x00\x00\x00\x40{}",
    ],
    ids=["bare LF", "one bare LF", "bare CR", "AMQP", "TLS", "RocketMQ"],
)
def test_bytes_that_can_never_become_http_are_refused_before_their_head_ends(data: bytes) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        check_head(data)
    assert refused.value.status == 400


def test_the_same_host_in_the_target_is_taken() -> None:
    assert read(b"GET http://A:80/x?y HTTP/1.1\r\nHost: a:80\r\n\r\n").path == "/x"


def test_a_head_that_does_not_end_is_refused_at_its_bound() -> None:
    start = b"GET / HTTP/1.1\r\nX: "
    assert check_head(start + b"a" * (MAX_HEAD - len(start))) == 0
    with pytest.raises(RequestRefusedError) as refused:
        check_head(start + b"a" * (MAX_HEAD - len(start) + 1))
    assert refused.value.status == 431


def test_a_long_body_behind_a_short_head_is_no_long_head() -> None:
    assert check_head(GOOD + b"x" * MAX_HEAD) == len(GOOD)


@in_one_loop
@pytest.mark.parametrize("cut", range(len(GOOD)))
def test_a_good_head_is_never_refused_while_it_comes_in(cut: int) -> None:
    assert check_head(GOOD[:cut]) == 0


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_waited_for_and_nothing_else(data: bytes) -> None:
    assert outcome_of(data) in ("read", "incomplete", 400)


def outcome_of(data: bytes) -> str | int:
    try:
        size = check_head(data)
        if not size:
            return "incomplete"
        parse_head(data[:size], h11.Connection(h11.SERVER))
        return "read"
    except RequestRefusedError as refused:
        return refused.status


CHUNKED = b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"


def frame(length: int | None, data: bytes, sizes: list[int]) -> tuple[bytes, bytes, int]:
    """Feed `data` in pieces of `sizes`; (what was taken, what was left, payload bytes)."""
    body, buffer, taken, at = BodyFrame(length), bytearray(), b"", 0
    for size in [*sizes, len(data)]:
        buffer += data[at : at + size]
        at = min(len(data), at + size)
        taken += body.take(buffer)
    assert body.done
    return taken, bytes(buffer) + data[at:], body.received


@pytest.mark.parametrize(("length", "data", "payload"), [(None, CHUNKED, 6), (6, b"hello!", 6), (0, b"", 0)])
def test_a_body_ends_at_the_same_byte_however_it_comes_in(length: int | None, data: bytes, payload: int) -> None:
    following = b"GET / HTTP/1.1\r\n"
    chance = random.Random(7)
    for sizes in ([], [1] * 60, *([chance.randint(1, 9) for _ in range(20)] for _ in range(20))):
        assert frame(length, data + following, sizes) == (data, following, payload)


@pytest.mark.parametrize(
    "data",
    [
        b"5;x=y\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\n0\n\n",
        b"5\r\nhelloX\r\n",
        b"0\r\nTrailer: x\r\n\r\n",
        b"-1\r\n",
        b"0x5\r\n",
        b"\r\n",
        b"1" * 30,
    ],
    ids=["extension", "bare LF", "too long", "trailer", "negative", "prefixed", "no size", "endless size"],
)
def test_odd_chunks_are_refused(data: bytes) -> None:
    with pytest.raises(RequestRefusedError):
        BodyFrame(None).take(bytearray(data))
