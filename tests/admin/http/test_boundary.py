"""The browser's boundary (docs/design/reliability.md F55)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.admin.admin_client import Control, control

OURS = [
    "127.0.0.1",
    "127.0.0.1:9180",
    "[::1]",
    "[::1]:9180",
    "10.1.2.3:80",
    "localhost",
    "LOCALHOST:9180",
    "sluice.localhost",
    "localhost.:1",
]


async def test_addresses_and_localhost_are_us(api: Control) -> None:
    assert {host: (await api.ask("GET", "/livez", headers={"Host": host})).status for host in OURS} == dict.fromkeys(OURS, 200)


HOSTILE = [
    "evil.example",
    "evil.example:9180",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "notlocalhost",
    "a@127.0.0.1",
    "127.0.0.1:x",
    "::1",
    "",
]


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/v1/status", "/", "/nothing"])
async def test_other_names_get_421_everywhere(api: Control, path: str) -> None:
    assert {host: (await api.ask("GET", path, headers={"Host": host})).status for host in HOSTILE} == dict.fromkeys(HOSTILE, 421)


async def test_a_configured_name_is_us(tmp_path: Path) -> None:
    async with control(tmp_path, names=("gateway.internal",)) as api:
        assert (await api.ask("GET", "/livez", headers={"Host": "Gateway.internal:9180"})).status == 200


CHANGE = ("PUT", "/v1/limits/rocketmq/orders?force=1", {"messages": "5/s"})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1"}, 200),
        ({"Origin": "http://127.0.0.1"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": ""}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:81"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[x"}, 403),
    ],
)
async def test_changes_asked_for_by_other_sites_are_refused(api: Control, headers: dict[str, str], status: int) -> None:
    assert (await api.ask(*CHANGE, headers=headers)).status == status
    assert api.store.revision == (1 if status == 200 else 0)


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx", None]
)
async def test_bodies_that_a_form_could_send_are_415(api: Control, content_type: str | None) -> None:
    assert (await api.ask(*CHANGE, content_type=content_type)).status == 415


async def test_a_charset_does_no_harm(api: Control) -> None:
    assert (await api.ask(*CHANGE, content_type="Application/JSON; charset=utf-8")).status == 200


async def test_reads_from_other_sites_get_no_permission_to_be_read(api: Control) -> None:
    answer = await api.ask("GET", "/v1/status", headers={"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"})
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert (await api.ask("OPTIONS", "/v1/status", headers={"Origin": "http://evil.example"})).status in (403, 405)
