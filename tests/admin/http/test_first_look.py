"""The first look at a request (`first_look.py`): who has a good token, and which heads are so plain that h11 need not read them."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.http import slices
from admin.http.first_look import FirstLook
from admin.http.parsing import RequestRefusedError, check_head, parse_head
from admin.http.slices import yield_to_loop
from support.admin.admin_client import Control, request

LOOK = FirstLook(["/livez"], lambda head: head.headers.get("authorization") == b"Bearer good" or b"good" in head.headers.get("cookie", b""))


def livez(*lines: str) -> bytes:
    return "\r\n".join(["GET /livez HTTP/1.1", "Host: a", *lines, "", ""]).encode("latin-1")


@pytest.mark.parametrize("lines", [(), ("User-Agent: kube-probe/1.30", "Accept: */*", "Connection: close"), ("X-A:",), ("X-A: \t b \t",)])
def test_plain_heads_of_probes_are_read_as_h11_reads_them(lines: tuple[str, ...]) -> None:
    raw = livez(*lines)
    assert LOOK.probe(raw) == parse_head(raw, h11.Connection(h11.SERVER))


@pytest.mark.parametrize(
    "raw",
    [
        livez("Authorization: Bearer good"),
        livez("cookie: a=b"),
        livez("Content-Length: 0"),
        livez("Transfer-Encoding: chunked"),
        livez("Transfer-Encoding : chunked"),
        livez("Expect: 100-continue"),
        livez("Upgrade: h2c"),
        livez("X-A: b", "x-a: c"),
        livez("host: b"),
        livez("X A: b"),
        livez("X-A: \xe4"),
        livez().replace(b"Host: a\r\n", b""),
        livez().replace(b"GET", b"HEAD"),
        livez().replace(b"1.1", b"1.0"),
        livez().replace(b"/livez", b"/livez?a=b"),
        livez().replace(b"/livez", b"/readyz"),
        livez().replace(b"/livez", b"http://a/livez"),
    ],
)
def test_all_other_heads_are_left_to_h11(raw: bytes) -> None:
    assert LOOK.probe(raw) is None


@given(
    st.lists(st.sampled_from(["a", "A", "-", ":", " ", "\t", "content-length", "connection", "0", "close", "\xe4", "_", "!"]), max_size=12)
)
def test_no_head_is_read_in_two_ways(pieces: list[str]) -> None:
    raw = livez("".join(pieces))
    read = LOOK.probe(raw)
    if read is not None:
        assert check_head(raw) == len(raw)
        try:
            assert parse_head(raw, h11.Connection(h11.SERVER)) == read
        except RequestRefusedError as refused:
            pytest.fail(f"h11 refuses {raw!r}: {refused.detail}")


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("Authorization: Bearer good", True),
        ("authorization:Bearer good \t", True),
        ("Cookie: session=good", True),
        ("Authorization: Bearer bad", False),
        ("Cookie: session=bad", False),
        ("X-Authorization: Bearer good", False),
        ("X-A: b", False),
    ],
)
def test_a_good_token_is_seen(line: str, known: bool) -> None:
    assert LOOK.is_known(livez(line)) is known


async def test_operators_and_sessions_are_known_on_the_admin_port_and_sessions_not_on_the_probes_port(api: Control) -> None:
    reply = await api.ask("POST", "/v1/session", {"token": api.token()}, role=None, headers={"Sec-Fetch-Site": "same-origin"})
    cookie = reply.headers["set-cookie"].partition(";")[0]
    admin, probes = api.admin.server._first_look, api.admin.probes._first_look
    bearer = livez(f"Authorization: Bearer {api.token('viewer')}")
    with_cookie = livez(f"Cookie: a=b; {cookie}").replace(b"Host: a", b"Host: 127.0.0.1")
    assert (admin.is_known(bearer), probes.is_known(bearer)) == (True, True)
    assert (admin.is_known(with_cookie), probes.is_known(with_cookie)) == (True, False)
    assert not admin.is_known(with_cookie.replace(b"\r\n\r\n", b"\r\nSec-Fetch-Site: cross-site\r\n\r\n"))
    assert not admin.is_known(livez("Authorization: Bearer bad"))


async def test_plain_probes_get_the_answer_that_others_get(api: Control) -> None:
    for path in ("/livez", "/readyz", "/startupz"):
        async with await api.connect() as stream:
            plain = await request(stream, "GET", path)
            other = await request(stream, "GET", path, headers={"Cookie": "a=b"})
        assert plain.status == other.status
        assert plain.json().keys() == other.json().keys()
        names = [name for name in plain.headers if name != "x-request-id"]
        assert [(name, plain.headers[name]) for name in names if name != "content-length"] == [
            (name, other.headers[name]) for name in names if name != "content-length"
        ]
        assert plain.headers.keys() == other.headers.keys()
    said = await api.say(b"GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\nGET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 421 ")
    assert said.count(b"Connection: close") == 1


async def test_probes_wait_for_no_turn_of_others(api: Control) -> None:
    """It takes one after each step; where a hundred others stand in the same line, a probe took seconds on a busy gateway."""
    await yield_to_loop()
    async with slices._turn.get():
        for path in ("/livez", "/readyz", "/startupz"):
            assert (await api.ask("GET", path, role=None)).status == 200
