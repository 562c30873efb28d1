"""`/v1/tokens`: made, listed, rotated and revoked while the gateway runs; never kept in the clear, never lost."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path
from typing import Any

import pytest
import trio

from admin.access import Access
from admin.authentication.auth import Role, ValidTokens
from admin.authentication.token_store import FILE, StoredToken, TokenStore, made
from support.admin.admin_client import Control, Reply, control, request


async def make(api: Control, name: str = "grafana", role: str = "viewer", **more: Any) -> str:
    made = await api.ask("POST", "/v1/tokens", {"name": name, "role": role, **more})
    assert made.status == 201, made.body
    token = made.json()["token"]
    assert isinstance(token, str)
    return token


async def ask_as(api: Control, token: str, method: str = "GET", path: str = "/v1/status", body: Any = None) -> Reply:
    async with await api.connect() as stream:
        return await request(stream, method, path, body, token=token)


async def listed(api: Control) -> dict[str, dict[str, Any]]:
    return {token["name"]: token for token in (await api.ask("GET", "/v1/tokens")).json()["items"]}


async def test_a_token_is_valid_at_once_and_may_what_its_role_may(api: Control) -> None:
    viewer, operator = await make(api), await make(api, "ci", "operator")
    assert (await ask_as(api, viewer)).status == 200
    assert (await ask_as(api, viewer, "POST", "/v1/config:reload")).status == 403
    assert (await ask_as(api, operator, "DELETE", "/v1/connections/1")).status == 404
    for token in (viewer, operator):
        for method, path, body in (
            ("GET", "/v1/tokens", None),
            ("POST", "/v1/tokens", {"name": "x", "role": "viewer"}),
            ("DELETE", "/v1/tokens/grafana", None),
            ("POST", "/v1/tokens/grafana:rotate", None),
        ):
            assert (await ask_as(api, token, method, path, body)).status == 403


async def test_only_digests_are_kept_and_tokens_survive_a_restart(tmp_path: Path) -> None:
    async with control(tmp_path) as api:
        token = await make(api, reason="dashboards")
        assert (await ask_as(api, token)).status == 200
    file = tmp_path / "state" / FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert token not in file.read_text()
    assert all(token not in path.read_text() for path in (tmp_path / "state").iterdir() if path.is_file())
    async with control(tmp_path) as api:
        assert (await ask_as(api, token)).status == 200
        assert (await listed(api))["grafana"]["created_by"] == "admin"


async def test_the_list_shows_all_tokens_and_no_secret(api: Control) -> None:
    token = await make(api, expires="90d")
    await ask_as(api, token)
    shown = await listed(api)
    assert {name: each["origin"] for name, each in shown.items()} == {
        "admin": "state", "viewer": "file", "operator": "file", "grafana": "api",
    }  # fmt: skip
    assert shown["grafana"]["last_used_at"] is not None
    assert shown["viewer"]["last_used_at"] is None
    assert shown["grafana"]["expires_at"] > shown["grafana"]["created_at"]
    text = json.dumps(shown)
    assert token not in text
    assert "sha256" not in text


async def test_a_revoked_token_fails_at_the_next_request_of_an_open_connection(api: Control) -> None:
    token = await make(api)
    async with await api.connect() as stream:
        assert (await request(stream, "GET", "/v1/status", token=token)).status == 200
        revoked = await api.ask("DELETE", "/v1/tokens/grafana")
        assert (revoked.status, revoked.json()["valid"]) == (200, False)
        assert (await request(stream, "GET", "/v1/status", token=token)).status == 401
    assert "grafana" not in await listed(api)
    assert (await api.ask("DELETE", "/v1/tokens/grafana")).status == 404


async def test_a_stream_ends_with_its_token(api: Control) -> None:
    token = await make(api)
    async with await api.connect() as stream:
        await stream.send_all(f"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
        await api.ask("DELETE", "/v1/tokens/grafana")
        with trio.fail_after(30):
            while await stream.receive_some():
                pass


async def test_a_rotated_token_replaces_the_one_before_at_once_or_after_an_overlap(api: Control) -> None:
    first = await make(api)
    second = (await api.ask("POST", "/v1/tokens/grafana:rotate")).json()["token"]
    assert ((await ask_as(api, first)).status, (await ask_as(api, second)).status) == (401, 200)
    third = (await api.ask("POST", "/v1/tokens/grafana:rotate", {"overlap": "10m"})).json()["token"]
    assert ((await ask_as(api, second)).status, (await ask_as(api, third)).status) == (200, 200)
    api.clock.now += 601
    assert ((await ask_as(api, second)).status, (await ask_as(api, third)).status) == (401, 200)
    assert (await api.ask("POST", "/v1/tokens/grafana:rotate", {"overlap": "25h"})).status == 422


async def test_a_token_that_has_ended_is_rotated_to_another_end_only(api: Control) -> None:
    """The new one had the old end: the answer was 200, and the token was never valid."""
    await make(api, expires="1h")
    api.clock.now += 3600
    answer = await api.ask("POST", "/v1/tokens/grafana:rotate")
    assert (answer.status, [error["pointer"] for error in answer.json()["errors"]]) == (422, ["/expires"])
    for end in ("1h", None):
        token = (await api.ask("POST", "/v1/tokens/grafana:rotate", {"expires": end})).json()["token"]
        assert (await ask_as(api, token)).status == 200


async def test_the_first_token_can_be_rotated_and_its_file_has_the_new_one(api: Control) -> None:
    before = api.token()
    made = await api.ask("POST", "/v1/tokens/admin:rotate")
    assert made.status == 200
    assert made.json()["token"] == api.token() != before
    assert stat.S_IMODE((api.folder / "admin.token").stat().st_mode) == 0o600
    assert ((await ask_as(api, before)).status, (await ask_as(api, api.token())).status) == (401, 200)


async def test_a_reload_that_has_read_the_files_before_takes_no_rotation_back(api: Control) -> None:
    """The token that was replaced, because it had leaked, was valid again, and the new one was not."""
    before = api.token()
    commit = api.admin.prepare(Access())
    await api.ask("POST", "/v1/tokens/admin:rotate")
    commit()
    assert ((await ask_as(api, before)).status, (await ask_as(api, api.token())).status) == (401, 200)
    (api.folder / "admin.token").write_text(before + "\n")
    api.admin.prepare(Access())()
    assert (await ask_as(api, before)).status == 200, "what is read later counts"


async def test_a_token_ends_when_it_expires(api: Control) -> None:
    token = await make(api, expires="1h")
    assert (await ask_as(api, token)).status == 200
    api.clock.now += 3601
    assert (await ask_as(api, token)).status == 401
    assert (await listed(api))["grafana"]["valid"] is False


async def test_the_last_token_of_an_admin_is_not_revoked_by_accident(tmp_path: Path) -> None:
    async with control(tmp_path) as api:
        alice, bob = await make(api, "alice", "admin"), await make(api, "bob", "admin")
    (tmp_path / "state" / "admin.token").write_text("")  # as after a full disk: the gateway starts all the same
    async with control(tmp_path) as api:
        assert "admin.token" in (await ask_as(api, alice)).json()["warnings"][0]
        assert (await ask_as(api, alice, "DELETE", "/v1/tokens/bob")).status == 200
        assert (await ask_as(api, bob)).status == 401
        refused = await ask_as(api, alice, "DELETE", "/v1/tokens/alice")
        assert (refused.status, refused.json()["type"]) == (409, "urn:sluice:problem:last-admin")
        assert (await ask_as(api, alice)).status == 200
        assert (await ask_as(api, alice, "DELETE", "/v1/tokens/alice?force=1")).status == 200
        assert (await ask_as(api, alice)).status == 401


@pytest.mark.parametrize("name", ["admin", "viewer"])
async def test_tokens_of_files_are_revoked_where_they_stand(api: Control, name: str) -> None:
    refused = await api.ask("DELETE", f"/v1/tokens/{name}")
    assert (refused.status, refused.json()["type"]) == (409, "urn:sluice:problem:token-in-file")
    assert (await api.ask("GET", "/v1/status", role="viewer")).status == 200


BAD = {
    "no name": ({"role": "viewer"}, 422),
    "no role": ({"name": "a"}, 422),
    "role": ({"name": "a", "role": "root"}, 422),
    "reserved": ({"name": "admin", "role": "viewer"}, 422),
    "slash": ({"name": "a/b", "role": "viewer"}, 422),
    "newline": ({"name": "a\nb", "role": "viewer"}, 422),
    "long": ({"name": "a" * 65, "role": "viewer"}, 422),
    "past": ({"name": "a", "role": "viewer", "expires": "2020-01-01T00:00:00Z"}, 422),
    "taken by a file": ({"name": "viewer", "role": "viewer"}, 409),
    "unknown member": ({"name": "a", "role": "viewer", "token": "mine"}, 422),
}


@pytest.mark.parametrize(("body", "status"), BAD.values(), ids=BAD.keys())
async def test_tokens_that_cannot_be_made_are_refused(api: Control, body: dict[str, str], status: int) -> None:
    assert (await api.ask("POST", "/v1/tokens", body)).status == status
    assert len(await listed(api)) == 3


async def test_two_tokens_of_one_name_are_refused_and_a_dry_run_makes_none(api: Control) -> None:
    await make(api)
    assert (await api.ask("POST", "/v1/tokens", {"name": "grafana", "role": "admin"})).status == 409
    dry = await api.ask("POST", "/v1/tokens?dry_run=1", {"name": "ci", "role": "viewer"})
    assert (dry.status, dry.json()["token"]) == (200, None)
    for path in ("/v1/tokens/grafana?dry_run=1", "/v1/tokens/grafana:rotate?dry_run=1"):
        assert (await api.ask("DELETE" if path.endswith("a?dry_run=1") else "POST", path)).status == 200
    assert set(await listed(api)) == {"admin", "viewer", "operator", "grafana"}


async def test_the_audit_tells_who_made_and_revoked_what_and_no_secret(api: Control, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = await make(api, reason="dashboards")
    await api.ask("DELETE", "/v1/tokens/grafana?reason=gone")
    audit = await api.ask("GET", "/v1/audit")
    lines = [(line["action"], line["by"], line["reason"]) for line in audit.json()["items"][:2]]
    assert lines == [("DELETE /v1/tokens/grafana", "admin", "gone"), ("POST /v1/tokens", "admin", "grafana (viewer): dashboards")]
    assert token not in audit.body.decode()
    assert token not in caplog.text


async def test_a_disk_that_is_full_changes_nothing(api: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    token = await make(api)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("admin.authentication.token_store.durable.replace", full)
    assert (await api.ask("POST", "/v1/tokens", {"name": "ci", "role": "viewer"})).status == 507
    assert (await api.ask("DELETE", "/v1/tokens/grafana")).status == 507
    assert (await ask_as(api, token)).status == 200
    assert "ci" not in await listed(api)


async def test_no_token_changes_once_another_process_has_the_folder(api: Control) -> None:
    """It has read them already: a token that was revoked here would have stayed valid there."""
    token, own = await make(api), api.token()
    written = (api.folder / FILE).read_bytes()
    await api.store.hand_over()
    api.store.give()
    for method, path, body in [("POST", "", {"name": "ci", "role": "viewer"}), ("DELETE", "/grafana", None), ("POST", "/admin:rotate", {})]:
        answer = await api.ask(method, f"/v1/tokens{path}", body)
        assert (answer.status, "another process has taken over" in answer.json()["detail"]) == (507, True)
    assert ((api.folder / FILE).read_bytes(), api.token(), (await ask_as(api, token)).status) == (written, own, 200)


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"tokens":[{"name":"a","role":"root","sha256":"","created_at":"","created_by":""}]}', b"\xff"]
)
async def test_a_damaged_file_is_a_warning_and_is_not_written_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state").mkdir()
    file = tmp_path / "state" / FILE
    file.write_bytes(content)
    async with control(tmp_path) as api:
        assert any(FILE in warning for warning in (await api.ask("GET", "/v1/status")).json()["warnings"])
        assert (await api.ask("POST", "/v1/tokens", {"name": "ci", "role": "viewer"})).status == 500
    assert file.read_bytes() == content


async def test_when_tokens_were_used_last_is_written_now_and_then(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    token, digest = made()
    await store.put(StoredToken("grafana", "viewer", digest, "2026-11-21T12:00:00Z", "admin"))
    tokens = ValidTokens([], store, lambda: 1_795_000_777.0)
    assert tokens.find(token.encode()) == ("grafana", Role.VIEWER, None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.keep_last_used, 0.01)
        with trio.fail_after(30):
            while TokenStore(tmp_path).by_name["grafana"].last_used_at is None:
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert store.by_name["grafana"].last_used_at == "2026-11-18T11:19:37.000Z"
