"""Tokens, roles and the brake (docs/design/reliability.md F56, 5)."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import cast

import pytest

from admin.authentication.auth import (
    FORGIVE_EVERY_NS,
    FREE_FAILURES,
    MAX_ADDRESSES,
    Actor,
    FailureRateLimiter,
    Role,
    TokenError,
    TokenFile,
    ValidTokens,
    bearer,
    counted_address,
    first_token,
    new_token,
)
from admin.authentication.authentication import Authentication
from admin.http.parsing import Head
from admin.store.store import Store
from common.secret_files import open_to_others
from support.admin.admin_client import Control, control

GOOD = "a-good-token-of-some-length"


@pytest.fixture
def tokens(tmp_path: Path) -> ValidTokens:
    path = tmp_path / "token"
    path.write_text(GOOD + "\n")
    path.chmod(0o600)
    return ValidTokens([TokenFile("ci", Role.OPERATOR, path)])


def test_the_right_token_is_found(tokens: ValidTokens) -> None:
    assert tokens.find(GOOD.encode()) == ("ci", Role.OPERATOR, None)


ODD = {
    "empty": b"",
    "near miss": GOOD[:-1].encode() + b"X",
    "prefix": GOOD[:-1].encode(),
    "longer": GOOD.encode() + b"x",
    "not ASCII": "tökén".encode(),
    "not UTF-8": b"\xff\xfe\x00",
    "1 MB": b"a" * 1_000_000,
}


@pytest.mark.parametrize("presented", ODD.values(), ids=ODD.keys())
def test_odd_tokens_match_no_known_token(tokens: ValidTokens, presented: bytes) -> None:
    assert tokens.find(presented) is None


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (None, None),
        (b"", None),
        (b"Bearer", None),
        (b"Bearer ", None),
        (b"Basic YTpi", None),
        (b"bearer  abc ", b"abc"),
        (b"Bearer \xff", b"\xff"),
    ],
)
def test_bearer_headers(header: bytes | None, token: bytes | None) -> None:
    assert bearer(header) == token


ODD_HEADERS = [b"Bearer ", b"Bearer wrong", b"Bearer \xc3\xb6\xff", b"Basic YTpi", b"Bearer " + b"a" * 16_000, GOOD.encode()]


@pytest.mark.parametrize("header", ODD_HEADERS, ids=range(len(ODD_HEADERS)))
async def test_odd_headers_get_401_and_no_exception(api: Control, caplog: pytest.LogCaptureFixture, header: bytes) -> None:
    said = await api.say(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: " + header + b"\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 401 ")
    assert b"WWW-Authenticate: Bearer" in said
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_token_of_a_megabyte_is_too_long_a_head(api: Control) -> None:
    said = await api.say(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + b"a" * 1_000_000)
    assert said.startswith(b"HTTP/1.1 431 ") or said == b""  # the rest of what was sent may reset the connection


async def test_an_unknown_path_tells_nothing_without_a_token(api: Control) -> None:
    assert (await api.ask("GET", "/v1/nothing", role=None)).status == 401
    assert (await api.ask("GET", "/v1/nothing")).status == 404


async def test_guessing_tokens_is_slowed_down_and_the_right_token_still_works(api: Control) -> None:
    api.fail_at(0)
    statuses = [(await api.ask("GET", "/v1/status", role=None)).status for _ in range(FREE_FAILURES + 3)]
    assert statuses == [401] * FREE_FAILURES + [429] * 3
    slow = await api.ask("GET", "/v1/status", role=None)
    assert int(slow.headers["retry-after"]) > 0
    assert (await api.ask("GET", "/v1/status")).status == 200


async def test_failed_attempts_are_in_the_audit_but_cannot_flood_it(api: Control) -> None:
    for _ in range(30):
        await api.ask("PUT", "/v1/limits/rocketmq/orders", {"messages": "1/s"}, role=None)
    lines = (await api.ask("GET", "/v1/audit")).json()["items"]
    assert 1 <= len(lines) <= 5
    assert (lines[-1]["outcome"], lines[-1]["by"], lines[-1]["address"]) == ("refused", "nobody", "127.0.0.1")


def test_the_brake_forgives_failed_attempts_with_time() -> None:
    brake = FailureRateLimiter()
    for _ in range(FREE_FAILURES):
        assert brake.fail("a", 0) == 0
    assert brake.fail("a", 0) == FORGIVE_EVERY_NS
    assert brake.fail("b", 0) == 0
    assert brake.fail("a", 3 * FORGIVE_EVERY_NS) == 0


def test_a_host_of_ipv6_is_braked_whichever_of_its_addresses_it_takes() -> None:
    """Until November 2026 each of its 2^64 addresses had ten free failures."""
    brake = FailureRateLimiter()
    waits = [brake.fail(f"2001:db8:0:7::{number:x}", 0) for number in range(FREE_FAILURES + 1)]
    assert waits == [0] * FREE_FAILURES + [FORGIVE_EVERY_NS]
    assert brake.fail("2001:db8:0:8::1", 0) == 0, "another network"
    assert [brake.fail(f"::ffff:10.0.0.{number}", 0) for number in range(20)] == [0] * 20, "IPv4 in IPv6: all of it is in one /64"
    assert [brake.fail(address, 0) for address in ("10.0.0.7", "local (uid 0)", "gone")] == [0] * 3
    assert counted_address("::ffff:10.0.0.7") == counted_address("10.0.0.7")
    assert counted_address("fe80::1%eth0") == "fe80::"


def test_the_brake_remembers_a_bounded_number_of_addresses() -> None:
    brake = FailureRateLimiter()
    for number in range(5 * MAX_ADDRESSES):
        brake.fail(str(number), 0)
    assert f"{MAX_ADDRESSES} addresses" in repr(brake)


def test_the_first_start_makes_a_token_that_only_its_owner_can_read(tmp_path: Path) -> None:
    path = first_token(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_text().strip()) == 43  # 256 bits in base64
    before = path.read_bytes()
    assert first_token(tmp_path).read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["admin.token"]


def test_tokens_differ() -> None:
    assert len({new_token() for _ in range(100)}) == 100


def test_a_token_of_roots_that_reaches_us_by_its_group_is_as_it_must_be(tmp_path: Path) -> None:
    """Kubernetes' Secrets: root:fsGroup, mode 0440."""
    file = tmp_path / "token"
    file.write_text("x" * 40)
    file.chmod(0o440)
    about = file.stat()
    assert open_to_others(about), "our own has mode 0600"
    roots = os.stat_result((*about[:4], os.geteuid() + 1, *about[5:]))
    assert not open_to_others(roots)
    file.chmod(0o444)
    assert open_to_others(os.stat_result((*file.stat()[:4], os.geteuid() + 1, *about[5:])))


def test_a_token_others_can_read_is_warned_about(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(GOOD)
    path.chmod(0o644)
    assert "chmod 600" in ValidTokens([TokenFile("ci", Role.VIEWER, path)]).warnings[0]


@pytest.mark.parametrize("content", [None, "", "  \n", "short"])
def test_a_token_file_without_a_token_is_a_warning_at_the_start_and_an_error_at_a_reload(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    files = [TokenFile("ci", Role.VIEWER, path)]
    tokens = ValidTokens(files)
    assert "'ci'" in tokens.warnings[0]
    assert str(path) in tokens.warnings[0]
    assert tokens.find((content or "").strip().encode()) is None
    good = tmp_path / "good"
    good.write_text(GOOD)
    read = tokens.read([*files, TokenFile("other", Role.VIEWER, good)])
    assert "'ci'" in read.warnings[0]
    assert [each.name for each in read.by_digest.values()] == ["other"], "it was never good: others come into force"
    with pytest.raises(TokenError, match=r"ci.*token"):
        ValidTokens([]).read(files)
    path.write_text(GOOD)
    tokens.take(tokens.read(files))
    assert tokens.find(GOOD.encode()) is not None
    path.write_text("")
    with pytest.raises(TokenError, match=r"ci.*token"):
        tokens.read(files)


async def test_rotated_tokens_are_good_after_a_reload(api: Control) -> None:
    file = api.folder.parent / "viewer.token"
    assert (await api.ask("GET", "/v1/status", role="viewer")).status == 200
    file.write_text("another-token-0123456789")
    assert (await api.ask("POST", "/v1/config:reload")).status == 200
    assert (await api.ask("GET", "/v1/status", role="viewer")).status == 401
    file.write_text("")
    assert (await api.ask("POST", "/v1/config:reload")).status == 422
    assert (await api.ask("GET", "/v1/status", role="operator")).status == 200


async def test_the_token_stays_over_a_restart(tmp_path: Path) -> None:
    async with control(tmp_path) as api:
        before = api.token()
    async with control(tmp_path) as api:
        assert api.token() == before
        assert (await api.ask("GET", "/v1/status")).status == 200


@pytest.mark.parametrize(
    ("request_line", "kept"),
    [
        ("GET /v1/status/CANARY", "GET /v1/status/*"),
        ("GET /v1/limits/rocketmq/CANARY", "GET /v1/limits/rocketmq/{topic}"),
        ("DELETE /v1/tokens/CANARY", "DELETE /v1/tokens/{name}"),
        ("POST /v1/tokens/CANARY:rotate", "POST /v1/tokens/{name}:rotate"),
        ("GET /CANARY", "GET /*"),
        ("GET /v1/%73tatus/CANARY", "GET /v1/*/*"),
        ("PUT /v1/status", "PUT /v1/status"),
    ],
)
async def test_a_refused_request_is_kept_without_the_names_in_its_path(api: Control, request_line: str, kept: str) -> None:
    """`GET /v1/status/TOKEN`, the header forgotten, wrote the token into refusals.jsonl and /v1/audit."""
    method, path = request_line.split()
    assert (await api.ask(method, path, role=None)).status == 401
    answer = await api.ask("GET", "/v1/audit")
    assert [line["action"] for line in answer.json()["items"]] == [kept]
    assert b"CANARY" not in answer.body + (api.folder / "refusals.jsonl").read_bytes()


def test_a_request_that_is_being_answered_ends_with_its_token_or_its_role(tokens: ValidTokens, tmp_path: Path) -> None:
    """After a reload a name may stand for less, and a token for another name."""
    authentication = Authentication(tokens, cast("Store", None))
    head = Head("GET", "/v1/events", "", {"authorization": f"Bearer {GOOD}".encode()}, 0)
    actor = Actor("ci", Role.OPERATOR, "10.0.0.7")
    assert [authentication.still_allowed(head, actor, role) for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN)] == [True, True, False]
    for name, role, allowed in (("ci", Role.VIEWER, False), ("ci", Role.ADMIN, True), ("other", Role.ADMIN, False)):
        tokens.take(tokens.read([TokenFile(name, role, tmp_path / "token")]))
        assert authentication.still_allowed(head, actor, Role.OPERATOR) == allowed
    tokens.take(tokens.read([]))
    assert not authentication.still_allowed(head, actor, Role.NOBODY)
