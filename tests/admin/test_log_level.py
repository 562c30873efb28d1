"""`/v1/log/level`, and `/v1/config?origins=1`, which shows it."""

from __future__ import annotations

import pytest
import trio

from support.admin.admin_client import Control


async def test_the_level_is_set_and_returns(api: Control) -> None:
    assert (await api.ask("GET", "/v1/log/level", role="viewer")).json() == {
        "level": "info", "configured": "info", "live": False, "until": None,
    }  # fmt: skip
    answer = await api.ask("PUT", "/v1/log/level", {"level": "debug", "reason": "looking for the client"})
    assert answer.json() == {"level": "debug", "configured": "info", "live": True, "until": None}
    assert api.gateway.level == "debug"
    (line,) = (await api.ask("GET", "/v1/audit")).json()["items"]
    assert (line["action"], line["outcome"], line["reason"]) == ("PUT /v1/log/level", "done", "looking for the client")
    assert (await api.ask("DELETE", "/v1/log/level")).json()["live"] is False
    assert api.gateway.level == "info"


async def test_after_its_time_the_configured_level_holds(api: Control) -> None:
    answer = await api.ask("PUT", "/v1/log/level", {"level": "debug", "for": "10min"})
    assert answer.json()["until"] == "2026-11-18T11:16:40.000Z"
    assert (await api.ask("PUT", "/v1/log/level", {"level": "warning", "for": "50ms"})).json()["level"] == "warning"
    api.clock.now += 1
    with trio.fail_after(60):
        while api.gateway.level != "info":
            await trio.sleep(0.01)
    assert (await api.ask("GET", "/v1/log/level")).json() == {"level": "info", "configured": "info", "live": False, "until": None}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"level": "loud"}, "/level"), ({}, "/level"), ({"level": 7}, "/level"), ({"level": "debug", "for": "soon"}, "/for"),
        ({"level": "debug", "for": "0s"}, "/for"), ({"level": "debug", "for": "9999h"}, "/for"),
        ({"level": "debug", "until": "1h"}, "/until"),
    ],
)  # fmt: skip
async def test_what_cannot_be_is_refused_by_its_field(api: Control, body: object, pointer: str) -> None:
    answer = await api.ask("PUT", "/v1/log/level", body)
    assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert api.gateway.level == "info"


async def test_it_takes_an_admins_token(api: Control) -> None:
    assert (await api.ask("PUT", "/v1/log/level", {"level": "debug"}, role="operator")).status == 403


async def test_the_configuration_is_told_with_its_origins(api: Control) -> None:
    values = {each["path"]: each for each in (await api.ask("GET", "/v1/config?origins=1", role="viewer")).json()["values"]}
    assert values["version"]["origin"] == {"kind": "default"}
    assert values["log.level"]["origin"] == {"kind": "file", "file": "sluice.yaml", "line": 3, "column": 7}
    await api.ask("PUT", "/v1/log/level", {"level": "debug"})
    values = {each["path"]: each for each in (await api.ask("GET", "/v1/config?origins=1")).json()["values"]}
    assert (values["log.level"]["value"], values["log.level"]["origin"]["kind"]) == ("debug", "live")
    assert (await api.ask("GET", "/v1/config")).json()["version"] == 1
