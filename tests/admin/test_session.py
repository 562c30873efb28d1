"""Sessions of browsers: a token once, then a cookie that is worth less (`admin/authentication/sessions.py`)."""

from __future__ import annotations

import hashlib
import re
import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from admin.access import Access
from admin.authentication.auth import FREE_FAILURES, Role, TokenFile, ValidTokens
from admin.authentication.sessions import IDLE_NS, LONGEST_NS, MAX_PER_TOKEN, BrowserSession, Sessions, secrets_of
from admin.authentication.sign_in_code import VALID_NS, SignInCode
from admin.endpoints.dashboard import revision
from admin.http.parsing import Head
from support.admin.admin_client import TOKENS, Control, Reply, control, request
from support.admin.streams import reading

HERE = {"Sec-Fetch-Site": "same-origin"}
CHANGE = ("PUT", "/v1/limits/rocketmq/orders?force=1", {"messages": "5/s"})


async def sign_in(api: Control, token: str, **headers: str) -> Reply:
    return await api.ask("POST", "/v1/session", {"token": token}, role=None, headers=headers)


def cookie_of(answer: Reply) -> str:
    """What a browser sends back."""
    return answer.headers["set-cookie"].partition(";")[0]


async def signed_in(api: Control, role: str = "operator") -> str:
    answer = await sign_in(api, api.token(role))
    assert answer.status == 200
    return cookie_of(answer)


async def ask(api: Control, method: str, path: str, secret: str, body: Any = None, **headers: str) -> Reply:
    return await api.ask(method, path, body, role=None, headers={"Cookie": secret, **headers})


# ---- the link of the terminal ------------------------------------------------------------------------------------------


async def use(api: Control, code: str) -> Reply:
    return await api.ask("POST", "/v1/session", {"code": code}, role=None)


def make_code(api: Control) -> str:
    code = api.admin.authentication.make_code()
    assert code is not None
    return code


async def test_a_code_signs_in_once(api: Control) -> None:
    code = make_code(api)
    answer = await use(api, code)
    assert (answer.status, answer.json()["name"], answer.json()["role"]) == (200, "admin", "admin")
    assert (await ask(api, "GET", "/v1/tokens", cookie_of(answer))).status == 200
    assert code not in answer.headers["set-cookie"] + answer.body.decode()
    assert (await use(api, code)).status == 401
    audited = (await api.ask("GET", "/v1/audit")).json()["items"]
    (line,) = [each for each in audited if (each["action"], each["outcome"]) == ("POST /v1/session", "done")]
    assert (line["by"], line["detail"]) == ("admin", "by the link of the terminal")
    assert code not in (await api.ask("GET", "/v1/audit")).body.decode()
    assert all(code.encode() not in path.read_bytes() for path in api.folder.rglob("*") if path.is_file())


async def test_of_many_who_come_with_a_code_at_once_one_is_let_in(api: Control) -> None:
    code, statuses = make_code(api), []

    async def one() -> None:
        statuses.append((await use(api, code)).status)

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(one)
    assert sorted(statuses) == [200] + [401] * 7


async def test_a_code_that_is_no_good_is_a_failed_attempt(api: Control) -> None:
    old = make_code(api)
    good = make_code(api)  # ends the one before
    failures = api.admin.authentication.failures
    for code in (old, "x", "ü", api.token("admin"), "c" * 5000):
        assert (await use(api, code)).status in (401, 429), code
    assert api.admin.authentication.failures == failures + 5
    assert (await api.ask("POST", "/v1/session", {"code": " "}, role=None)).status == 422
    assert (await sign_in(api, good)).status in (401, 429), "a code is no token"
    assert (await api.ask("GET", "/v1/status", role=None, headers={"Authorization": f"Bearer {good}"})).status in (401, 429)
    assert (await use(api, good)).status == 200, "the attempts of others do not use it up"


async def test_a_code_ends_with_its_token(api: Control) -> None:
    code = make_code(api)
    api.admin._tokens.take(api.admin._tokens.read([]))  # as a reload does once the file is gone
    assert (await use(api, code)).status == 401
    assert api.admin.authentication.make_code() is None


def test_a_code_is_good_for_minutes() -> None:
    time = Time()
    codes = SignInCode(time)
    for late, found in ((VALID_NS - 1, b"token"), (VALID_NS, None)):
        code = codes.make(b"token").encode()
        time.now += late
        assert codes.use(code) == found
        assert codes.use(code) is None


# ---- signing in and out ------------------------------------------------------------------------------------------------


async def test_a_token_is_exchanged_for_a_cookie(api: Control) -> None:
    answer = await sign_in(api, api.token("operator"))
    assert answer.status == 200
    assert answer.json() == {
        "name": "operator", "role": "operator", "expires": "2026-11-18T23:06:40.000Z", "gateway": "fake", "version": "0.0.0",
        "page": revision(),
    }  # fmt: skip
    assert re.fullmatch(r"sluice_session=[A-Za-z0-9_-]{43}; Max-Age=43200; Path=/; HttpOnly; SameSite=Strict", answer.headers["set-cookie"])
    assert answer.headers["cache-control"] == "no-store"
    assert api.token("operator") not in answer.headers["set-cookie"] + answer.body.decode()


async def test_the_cookie_stands_for_the_token_everywhere(api: Control) -> None:
    secret = await signed_in(api)
    for path in ("/v1/session", "/v1/status", "/v1/topics", "/v1/limits", "/metrics", "/v1/history"):
        assert (await ask(api, "GET", path, secret)).status == 200, path
    assert (await ask(api, "GET", "/v1/tokens", secret)).status == 403, "an operator's role, no more"
    assert (await ask(api, "GET", "/v1/session", secret)).json()["name"] == "operator"
    assert (await ask(api, *CHANGE[:2], secret, CHANGE[2], **HERE)).status == 200
    assert (await api.ask("GET", "/v1/history")).json()["items"][0]["by"] == "operator"


async def test_other_cookies_of_this_host_do_not_matter(api: Control) -> None:
    """Cookies do not tell ports apart: those of other programs, and of other gateways, come along."""
    secret = await signed_in(api)
    for sent in (f"theme=dark; {secret}", f"sluice_session=ofanother; {secret}", f"{secret};lang=zh", f"a=b;{secret}; sluice_session=x"):
        assert (await ask(api, "GET", "/v1/status", sent)).status == 200, sent
    for sent in ("theme=dark", "sluice_session=", "sluice_session", "xsluice_session=" + secret.partition("=")[2], ";;=;"):
        assert (await ask(api, "GET", "/v1/status", sent)).status == 401, sent


async def test_a_browser_can_be_signed_in_at_two_gateways_of_one_host(tmp_path: Path) -> None:
    """Found by a reviewer: with one name for all ports, who signed in at the second gateway was signed out at the first."""
    jar: dict[str, str] = {}  # a browser's, of one host: a cookie replaces that of the same name
    async with control(tmp_path / "a") as one, control(tmp_path / "b") as other:
        for api, host in ((one, "127.0.0.1:9180"), (other, "127.0.0.1:9280")):
            answer = await sign_in(api, api.token("operator"), Host=host)
            name, _, secret = cookie_of(answer).partition("=")
            jar[name] = secret
        sent = "; ".join(f"{name}={secret}" for name, secret in jar.items())
        for api, host in ((one, "127.0.0.1:9180"), (other, "127.0.0.1:9280")):
            assert (await ask(api, "GET", "/v1/status", sent, Host=host)).status == 200
        gone = await ask(one, "DELETE", "/v1/session", sent, Host="127.0.0.1:9180", **HERE)
        assert gone.headers["set-cookie"].startswith("sluice_session_9180=; Max-Age=0;")
        assert (await ask(one, "GET", "/v1/status", sent, Host="127.0.0.1:9180")).status == 401
        assert (await ask(other, "GET", "/v1/status", sent, Host="127.0.0.1:9280")).status == 200


async def test_signing_out_ends_the_session_and_clears_the_cookie(api: Control) -> None:
    secret, other = await signed_in(api), await signed_in(api)
    answer = await ask(api, "DELETE", "/v1/session", secret, **HERE)
    assert (answer.status, answer.body) == (204, b"")
    assert "content-length" not in answer.headers
    assert answer.headers["set-cookie"] == "sluice_session=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict"
    assert (await ask(api, "GET", "/v1/status", secret)).status == 401
    assert (await ask(api, "GET", "/v1/status", other)).status == 200, "another browser's session goes on"


async def test_who_asks_with_a_bearer_token(api: Control) -> None:
    answer = await api.ask("GET", "/v1/session", role="viewer")
    assert answer.json() == {"name": "viewer", "role": "viewer", "expires": None, "gateway": "fake", "version": "0.0.0", "page": revision()}


async def test_a_token_that_ends_ends_its_session(api: Control) -> None:
    made = (await api.ask("POST", "/v1/tokens", {"name": "guest", "role": "viewer", "expires": "10min"})).json()
    answer = await sign_in(api, made["token"])
    assert answer.json()["expires"] == "2026-11-18T11:16:40.000Z"
    assert "Max-Age=600;" in answer.headers["set-cookie"]
    secret = cookie_of(answer)
    async with cookie_stream(api, secret) as stream:
        await stream.next("snapshot")
        api.clock.now += 601
        assert (await stream.next("end")).data == {"reason": "this token may not read the stream any more"}
    assert (await ask(api, "GET", "/v1/status", secret)).status == 401


async def test_a_revoked_token_ends_its_sessions_and_their_streams(api: Control) -> None:
    made = (await api.ask("POST", "/v1/tokens", {"name": "guest", "role": "viewer"})).json()
    secret = cookie_of(await sign_in(api, made["token"]))
    async with cookie_stream(api, secret) as stream:
        await stream.next("snapshot")
        assert (await api.ask("DELETE", "/v1/tokens/guest")).status == 200
        await stream.next("end")
        with pytest.raises(EOFError):
            await stream.next()
    assert (await ask(api, "GET", "/v1/session", secret)).status == 401


async def test_signing_out_ends_the_sessions_streams(api: Control) -> None:
    secret = await signed_in(api, "viewer")
    async with cookie_stream(api, secret) as stream:
        await stream.next("snapshot")
        assert (await ask(api, "DELETE", "/v1/session", secret, **HERE)).status == 204
        await stream.next("end")


async def test_sessions_are_forgotten_at_a_restart(tmp_path: Path) -> None:
    async with control(tmp_path) as api:
        secret = await signed_in(api)
    async with control(tmp_path) as api:
        answer = await ask(api, "GET", "/v1/session", secret)
        assert (answer.status, answer.json()["type"]) == (401, "urn:sluice:problem:unauthorised")
        assert "sign in" in (await ask(api, "GET", "/v1/status", secret)).json()["detail"]
        assert [line["by"] for line in await audited(api)] == ["operator"], "what every page meets after a restart is no attempt to guess"


async def test_over_tls_the_cookie_is_for_tls_only(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with control(tmp_path, access=Access(tls=context)) as api:
        async with trio.SSLStream(await api.connect(), trusting, server_hostname="127.0.0.1", https_compatible=True) as stream:
            answer = await request(stream, "POST", "/v1/session", {"token": api.token()})
        assert answer.status == 200
        assert answer.headers["set-cookie"].endswith("; SameSite=Strict; Secure")


# ---- bad input -----------------------------------------------------------------------------------------------------------


async def test_wrong_tokens_are_refused_braked_and_audited(api: Control) -> None:
    api.fail_at(1)
    answers = [await sign_in(api, "wrong-token-of-a-stranger") for _ in range(FREE_FAILURES + 2)]
    assert [answer.status for answer in answers] == [401] * FREE_FAILURES + [429] * 2
    assert all("set-cookie" not in answer.headers for answer in answers)
    assert int(answers[-1].headers["retry-after"]) >= 6
    assert [(line["action"], line["outcome"]) for line in await audited(api)] == [("POST /v1/session", "refused")]
    assert b"wrong-token" not in b"".join(path.read_bytes() for path in api.folder.glob("*.jsonl"))
    assert (await sign_in(api, api.token("viewer"))).status == 200, "a good token is never locked out"


async def test_a_wrong_token_beside_an_open_session_is_one_line_of_the_audit(api: Control) -> None:
    """Found by a reviewer: there were two, and one of them named the session's token."""
    secret = await signed_in(api)
    wrong = await ask(api, "POST", "/v1/session", secret, {"token": "wrong-token-of-a-stranger"}, **HERE)
    assert wrong.status == 401
    lines = [(line["action"], line["by"], line["outcome"]) for line in await audited(api)]
    assert lines == [("POST /v1/session", "nobody", "refused"), ("POST /v1/session", "operator", "done")]
    malformed = await ask(api, "POST", "/v1/session", secret, {"tokens": ""}, **HERE)
    assert malformed.status == 422
    assert (await audited(api))[0]["by"] == "operator", "another refusal has its line as ever"


async def test_asking_who_asks_is_no_failed_attempt_but_a_wrong_token_is(api: Control) -> None:
    for _ in range(FREE_FAILURES + 2):
        assert (await api.ask("GET", "/v1/session", role=None)).status == 401
    assert await audited(api) == []
    api.fail_at(0)
    statuses = [(await api.ask("GET", "/v1/session", role=None, headers={"Authorization": "Bearer no"})).status for _ in range(12)]
    assert statuses == [401] * FREE_FAILURES + [429] * 2


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 422),
        ({}, 422),
        ({"token": ""}, 422),
        ({"token": 12345}, 422),
        ({"token": ["x"]}, 422),
        ({"tokens": "x"}, 422),
        ({"token": "\u00f6" * 40}, 401),
        ({"token": "x" * 9000}, 413),
    ],
)
async def test_bodies_that_are_no_token(api: Control, body: Any, status: int) -> None:
    answer = await api.ask("POST", "/v1/session", body, role=None)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")


async def test_a_token_does_not_stand_in_the_address(api: Control) -> None:
    answer = await api.ask("POST", f"/v1/session?token={api.token()}", {"token": api.token()}, role=None)
    assert answer.status == 400


async def test_signing_in_and_out_is_in_the_audit(api: Control) -> None:
    secret = await signed_in(api)
    assert (await ask(api, "DELETE", "/v1/session", secret, **HERE)).status == 204
    lines = [(line["action"], line["by"], line["role"], line["outcome"]) for line in await audited(api)]
    assert lines == [("DELETE /v1/session", "operator", "operator", "done"), ("POST /v1/session", "operator", "operator", "done")]


# ---- other origins -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:8080"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": ""},
    ],
)
@pytest.mark.parametrize("request_line", [CHANGE, ("DELETE", "/v1/session", None), ("POST", "/v1/config:reload", None)])
async def test_a_change_with_a_cookie_needs_a_proof(api: Control, headers: dict[str, str], request_line: tuple[str, str, Any]) -> None:
    secret = await signed_in(api, "admin")
    method, path, body = request_line
    answer = await ask(api, method, path, secret, body, **headers)
    assert (answer.status, api.store.revision, api.gateway.reloads) == (403 if "cross" in answer.json()["type"] else 401, 0, 0)
    assert answer.status == 403 or headers, "what browsers say of other origins is enough to know nobody"
    assert (await ask(api, "GET", "/v1/session", secret)).status == 200, "the session goes on"


@pytest.mark.parametrize(
    "headers", [HERE, {"Origin": "http://127.0.0.1"}, {"Origin": "HTTP://127.0.0.1", **HERE}, {"Origin": "null", **HERE}]
)
async def test_a_page_of_this_origin_may_change(api: Control, headers: dict[str, str]) -> None:
    assert (await ask(api, *CHANGE[:2], await signed_in(api), CHANGE[2], **headers)).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        (HERE, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "http://127.0.0.1"}, 200),
        ({"Sec-Fetch-Site": "same-site"}, 401),
        ({"Sec-Fetch-Site": "cross-site"}, 401),
        ({"Origin": "http://127.0.0.1:8080"}, 401),
        ({"Host": "evil.example"}, 421),
    ],
)
async def test_reads_that_another_origin_asks_for_get_nothing(api: Control, headers: dict[str, str], status: int) -> None:
    secret = await signed_in(api)
    for path in ("/v1/session", "/v1/status", "/metrics"):
        assert (await ask(api, "GET", path, secret, **headers)).status == status
    async with cookie_stream(api, secret, **headers) as stream:
        assert stream.status == status


async def test_a_bearer_token_needs_no_proof_and_a_wrong_one_is_not_mended_by_a_cookie(api: Control) -> None:
    assert (await api.ask(*CHANGE)).status == 200
    wrong = {"Cookie": await signed_in(api), "Authorization": "Bearer wrong"}
    assert (await api.ask("GET", "/v1/status", role=None, headers=wrong)).status == 401


async def test_the_probes_listener_takes_no_cookies(api: Control) -> None:
    """It does not look at the Host header, so a rebound name could come along with them."""
    secret = await signed_in(api)
    there = Control(api.probes, api.gateway, api.store, api.folder, api.clock)
    assert (await ask(there, "GET", "/metrics", secret)).status == 401
    assert (await there.ask("GET", "/metrics")).status == 200


# ---- bounds --------------------------------------------------------------------------------------------------------------


class Time:
    def __init__(self) -> None:
        self.now = 1_000_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def tokens(tmp_path: Path) -> ValidTokens:
    files = []
    for name in ("a", "b", "c", "d", "e", "f"):
        path = tmp_path / name
        path.write_text(TOKENS["viewer"] + name)
        path.chmod(0o600)
        files.append(TokenFile(name, Role.VIEWER, path))
    return ValidTokens(files)


def digest_of(name: str) -> bytes:
    return hashlib.sha256(token_of(name)).digest()


def token_of(name: str) -> bytes:
    return (TOKENS["viewer"] + name).encode()


@pytest.mark.parametrize(
    ("began", "used", "over"),
    [(0, 1, False), (0, 0, True), (IDLE_NS - LONGEST_NS + 1, 1, False), (IDLE_NS - LONGEST_NS, 1, True)],
)
def test_a_session_is_over_to_the_nanosecond(began: int, used: int, *, over: bool) -> None:
    assert BrowserSession(b"", began, used).over(IDLE_NS) == over


def test_a_session_ends_when_it_is_idle_and_in_any_case(tokens: ValidTokens) -> None:
    time = Time()
    sessions = Sessions(tokens, time)
    idle, busy = sessions.begin(digest_of("a")).encode(), sessions.begin(digest_of("a")).encode()
    began, step = time.now, IDLE_NS - 1
    while time.now + step < began + LONGEST_NS:
        time.now += step
        found = sessions.find(busy)
        assert found is not None
        assert found.name == "a"
        if time.now - began >= IDLE_NS:
            assert sessions.find(idle) is None
    assert sessions.ends_in(busy) == -(-(began + LONGEST_NS - time.now) // 1_000_000_000)
    time.now = began + LONGEST_NS + 1_000_000_000
    assert sessions.ends_in(busy) == 0
    assert sessions.find(busy) is None
    assert len(sessions) == 0


def test_sessions_that_nobody_asks_for_again_are_forgotten_when_they_end(tokens: ValidTokens) -> None:
    time = Time()
    sessions = Sessions(tokens, time)
    for name in "abc":
        sessions.begin(digest_of(name))
    time.now += LONGEST_NS
    sessions.begin(digest_of("d"))
    assert len(sessions) == 1


def test_the_number_of_sessions_is_bounded_and_the_one_idle_longest_goes(tokens: ValidTokens) -> None:
    sessions = Sessions(tokens, Time())
    other = sessions.begin(digest_of("b")).encode()
    mine = [sessions.begin(digest_of("a")).encode() for _ in range(MAX_PER_TOKEN)]
    assert sessions.find(mine[0]) is not None  # used: the next is idle longest now
    sessions.begin(digest_of("a"))
    assert sessions.find(mine[1]) is None
    assert sessions.find(mine[0]) is not None
    assert sessions.find(other) is not None
    assert len(sessions) == MAX_PER_TOKEN + 1


def test_sessions_of_many_tokens_push_out_none_of_another(tokens: ValidTokens) -> None:
    """1,280 sign-ins of five viewers ended the administrator's session (2026-11)."""
    sessions = Sessions(tokens, Time())
    first = {name: sessions.begin(digest_of(name)).encode() for name in "fabcde"}
    for name in "abcde":
        for _ in range(MAX_PER_TOKEN - 1):
            sessions.begin(digest_of(name))
    assert [name for name, secret in first.items() if sessions.find(secret) is None] == []
    for _ in range(MAX_PER_TOKEN):
        sessions.begin(digest_of("a"))
    assert [name for name, secret in first.items() if sessions.find(secret) is None] == ["a"], "a token has no more than its own"
    assert len(sessions) == 5 * MAX_PER_TOKEN + 1


def test_no_secret_is_kept(tokens: ValidTokens) -> None:
    sessions = Sessions(tokens, Time())
    secret = sessions.begin(digest_of("a"))
    assert secret.encode() not in repr(sessions._open).encode()
    assert sessions.find(secret[:-1].encode()) is None
    assert len({sessions.begin(digest_of("a")) for _ in range(100)}) == 100


def head(host: bytes, sent: bytes) -> Head:
    return Head("GET", "/v1/status", "", {"host": host, "cookie": sent}, 0)


def test_cookies_are_read_with_care() -> None:
    assert secrets_of(Head("GET", "/v1/status", "", {}, 0)) == []
    sent = b"a=b; sluice_session=x; c; sluice_session=y;sluice_session=; sluice_session_9180=z"
    assert secrets_of(head(b"localhost", sent)) == [b"x", b"y"]
    assert secrets_of(head(b"localhost:9180", sent)) == [b"z"]
    assert secrets_of(head(b"[::1]:9180", sent)) == [b"z"]
    assert secrets_of(head(b"[::1]", sent)) == [b"x", b"y"]
    assert secrets_of(head(b"localhost:9280", sent)) == []


def cookie_stream(api: Control, secret: str, **headers: str) -> Any:
    return reading(api, headers={"Cookie": secret, **headers}, token="")


async def audited(api: Control) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = (await api.ask("GET", "/v1/audit")).json()["items"]
    return [line for line in lines if "/v1/session" in line["action"] or line["by"] == "nobody"]
