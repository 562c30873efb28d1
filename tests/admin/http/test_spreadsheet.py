"""Lists as comma-separated values (`admin/http/spreadsheet.py`)."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from admin import openapi
from admin.authentication.auth import Actor, Role
from admin.endpoints import ROUTES
from admin.http import spreadsheet
from admin.http.paging import DESCRIBED_AT_ONCE, LIMIT
from admin.http.parsing import Head
from admin.http.routing import Answer, Request, Route
from admin.http.spreadsheet import CSV, Column, cell, export
from cli import clients, history, limit_columns, output, rules, tables, traffic_columns
from cli.tables import TableColumn
from limiter.topics import rocketmq_topic
from support.admin.admin_client import Control, Reply
from support.processes import HANG_S

LISTS: list[Route] = [route for route in ROUTES if route.columns]
QUOTAS = {"version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "1", "quotas": [
    {"protocol": "rocketmq", "topic": "paid", "messages": {"rate": 5, "burst": 7}},
]}  # fmt: skip


def topic(name: str, refused: float = 0.0) -> dict[str, Any]:
    numbers = dict.fromkeys(("received", "forwarded", "refused", "dropped", "abandoned", "waiting"), 3)
    return {
        "protocol": "rocketmq", "topic": name, "operation": "produce", "group": None, **numbers, "received_per_second": 12.5,
        "forwarded_per_second": 12.5, "refused_per_second": refused, "bytes_per_second": 1000.0,
        "clients": [{"client": "10.0.0.7", "refused": 9, "refused_per_second": refused}],
    }  # fmt: skip


def read(answer: Reply) -> list[dict[str, str]]:
    assert (answer.status, answer.headers["content-type"]) == (200, CSV), answer.body
    return list(csv.DictReader(io.StringIO(answer.body.decode(), newline="")))


@pytest.mark.parametrize("route", LISTS, ids=[route.template for route in LISTS])
async def test_every_list_is_there_for_spreadsheets(api: Control, route: Route) -> None:
    for path, headers in ((f"{route.template}?format=csv", {}), (route.template, {"Accept": "text/csv"})):
        answer = await api.ask("GET", path, role="viewer", headers=headers)
        read(answer)
        assert answer.body.endswith(b"\r\n")
        assert answer.body.decode().split("\r\n")[0] == ",".join(title for title, _ in route.columns)
        assert answer.headers["content-disposition"] == f'attachment; filename="sluice-{route.template.split("/")[2]}.csv"'


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("text/csv, application/json", "application/json"),
        ("text/html", "application/json"),
        ("text/csv;q=0", "application/json"),
        ("text/csv, */*", CSV),
        ("application/json;q=0.5, text/csv;q=0.6", CSV),
    ],
)
async def test_json_is_what_is_not_asked_for_as_csv(api: Control, accept: str, kind: str) -> None:
    assert (await api.ask("GET", "/v1/topics", headers={"Accept": accept})).headers["content-type"] == kind
    assert (await api.ask("GET", "/v1/topics?format=json", headers={"Accept": accept})).headers["content-type"] == "application/json"


async def test_a_format_that_there_is_not(api: Control) -> None:
    assert (await api.ask("GET", "/v1/topics?format=xlsx")).status == 422
    assert (await api.ask("GET", "/v1/status?format=csv")).status == 422
    assert (await api.ask("GET", "/v1/topics?format=csv", role=None)).status == 401


async def test_the_whole_list_comes_unless_less_is_asked_for(api: Control) -> None:
    api.gateway.seen_topics = [topic(f"t{number:04}", float(number)) for number in range(1203)]
    found = read(await api.ask("GET", "/v1/topics?format=csv"))
    assert [row["topic"] for row in found] == [f"t{number:04}" for number in range(1203)]
    by_refused = read(await api.ask("GET", "/v1/topics?format=csv&sort=refused"))
    assert [row["topic"] for row in by_refused[:2]] == ["t1202", "t1201"]
    assert len(by_refused) == 1203
    assert len(read(await api.ask("GET", "/v1/topics?format=csv&limit=7"))) == 7
    assert len(read(await api.ask("GET", "/v1/topics?format=csv&q=t00"))) == 100


@pytest.mark.parametrize("sort", ["name", "refused"])
async def test_a_list_longer_than_a_block_comes_whole(api: Control, sort: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a million topics an export had the first 20,000, and nothing said so."""
    monkeypatch.setattr(spreadsheet, "BLOCK_ROWS", 100)
    api.gateway.seen_topics = [topic(f"t{number:04}", float(number)) for number in range(1203)]
    found = [row["topic"] for row in read(await api.ask("GET", f"/v1/topics?format=csv&sort={sort}"))]
    assert found == sorted((f"t{number:04}" for number in range(1203)), reverse=sort == "refused")
    assert len(read(await api.ask("GET", "/v1/topics?format=csv&limit=150"))) == 150


@dataclass
class Asked:
    """What an export uses of a request's context."""

    request: Request
    gateway: Any


async def test_a_block_is_made_when_the_one_before_is_taken(autojump_clock: trio.testing.MockClock) -> None:
    """So an export of a million rows takes the memory of one block, and none is made for a client that is gone."""
    made: list[tuple[str, int]] = []  # rows wanted and time of each block
    gathered: list[object] = []

    async def handler(context: Any) -> Answer:
        at = int(context.request.query.get("cursor", 0))
        made.append((context.request.query["limit"], context.request.now))
        return Answer({"items": [{"n": at}], "next": str(at + 1) if at < 2 else None})

    async def gather(views: object) -> None:
        gathered.append(views)

    route = Route(
        "GET", "/v1/rows", Role.VIEWER, handler, "", parameters=(LIMIT,), columns=(("n", lambda item: item["n"]),), views=("rows",)
    )
    head = Head("GET", "/v1/rows", "", {}, length=0)
    asked: Any = Asked(Request("1", head, Actor("ann", Role.VIEWER, ""), {}, {}, 5_000_000_000), SimpleNamespace(gather=gather))
    body: Any = (await export(asked, route)).body
    assert [await anext(body), await anext(body), len(made), gathered] == [b"n\r\n", b"0\r\n", 1, []]
    await trio.sleep(60)
    assert [await anext(body), len(made), gathered] == [b"1\r\n", 2, [("rows",)]]
    await trio.sleep(60)
    assert [part async for part in body] == [b"2\r\n"]
    assert made == [("20000", 5_000_000_000), ("20000", 65_000_000_000), ("20000", 125_000_000_000)]


async def test_an_export_that_fails_half_way_is_visibly_cut_short(api: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreadsheet, "BLOCK_ROWS", 100)
    api.gateway.seen_topics = [topic(f"t{number:04}{'x' * 500}") for number in range(200)]
    describe = api.gateway.topics

    async def describe_the_first(places: Any = None) -> Any:
        if any(name.startswith("t0150") for _, name, _ in places):
            raise RuntimeError("a fault of ours")
        return await describe(places)

    api.gateway.topics = describe_the_first  # type: ignore[method-assign, assignment]
    said = await api.say(f"GET /v1/topics?format=csv HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api.token()}\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 200 ")
    assert not said.endswith(b"0\r\n\r\n")


async def test_what_stands_in_the_cells(api: Control) -> None:
    api.gateway.seen_topics = [topic("orders", 4.0)]
    (row,) = read(await api.ask("GET", "/v1/topics?format=csv"))
    assert (row["received/s"], row["limit"], row["origin"], row["refused_most"]) == ("12.5", "2000/s", "default", "10.0.0.7 4/s")
    assert row["group"] == ""
    assert (await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", {"messages": "5/s", "reason": "=1+1"})).status == 200
    (change,) = read(await api.ask("GET", "/v1/history?format=csv"))
    assert (change["revision"], change["by"], change["what"], change["reason"]) == ("1", "admin", "limits/rocketmq/orders", "'=1+1")
    api.gateway.flood(rocketmq_topic(b"orders"), 3000, 10**12)
    (limit,) = read(await api.ask("GET", "/v1/limits?format=csv"))
    assert (limit["for"], limit["messages"], limit["origin"]) == ("orders", "5/s", "override")
    rule = read(await api.ask("GET", "/v1/rules?format=csv"))[0]
    assert (rule["rule"], rule["messages"], rule["match"]) == ("rocketmq-topics", "2000/s", '{"protocol":"rocketmq"}')
    assert (await api.ask("PUT", "/v1/quotas?force=1", QUOTAS)).status == 200
    (quota,) = read(await api.ask("GET", "/v1/quotas?format=csv"))
    assert (quota["topic"], quota["messages"], quota["messages_burst"], quota["bytes"]) == ("paid", "5", "7", "")


HOSTILE = ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\uff1d1", '=cmd|" /C calc"!A0']


@pytest.mark.parametrize("text", HOSTILE)
async def test_no_cell_is_a_formula(api: Control, text: str) -> None:
    api.gateway.seen_topics = [topic(text)]
    (row,) = read(await api.ask("GET", "/v1/topics?format=csv"))
    assert row["topic"] == f"'{text}"


@pytest.mark.parametrize("letter", "\t\r\n\x1b\x07\x7f\x9b\u061c\u200f\u202e\u2066\u2069\ufeff")
async def test_no_cell_does_anything_where_it_is_shown(
    api: Control, letter: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an export, in `-o csv` and in a table, where a name that begins with it is no formula either."""
    seen = topic(f"{letter}=1{letter}")
    api.gateway.seen_topics = [seen]
    (row,) = read(await api.ask("GET", "/v1/topics?format=csv"))
    shown = f"\\u{ord(letter):04x}"
    assert row["topic"] == f"{shown}=1{shown}"
    for terminal in (False, True):
        monkeypatch.setattr(output, "on_terminal", lambda terminal=terminal: terminal)
        output.emit("csv", [seen], [each for each in traffic_columns.TOPICS if each.title == "topic"])
        assert capsys.readouterr().out.splitlines()[1:] == [f"{shown}=1{shown}"]
        output.emit("table", [seen], [each for each in traffic_columns.TOPICS if each.title == "topic"])
        assert letter not in capsys.readouterr().out.replace("\n", "", 2)


def test_numbers_and_other_values_are_as_they_are() -> None:
    assert [cell(value) for value in (-1, -0.5, None, True, "a=b", [1, "x"], {"a": -1})] == [
        -1, -0.5, None, "true", "a=b", '[1,"x"]', '{"a":-1}',
    ]  # fmt: skip
    assert cell(["=1"]) == '["=1"]'


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (spreadsheet.TOPICS, traffic_columns.TOPICS),
        (spreadsheet.CONNECTIONS, traffic_columns.CONNECTIONS),
        (spreadsheet.CLIENTS, clients.CLIENTS),
        (spreadsheet.LIMITS, limit_columns.IN_USE),
        (spreadsheet.RULES, rules.RULES),
        (spreadsheet.HISTORY, history.COLUMNS),
    ],
    ids=["topics", "connections", "clients", "limits", "rules", "history"],
)
def test_the_columns_are_those_of_the_command(ours: Sequence[Column], theirs: Sequence[TableColumn]) -> None:
    assert [title for title, _ in ours] == [each.title.replace(" ", "_") for each in tables.rank_columns(theirs)]


def test_the_values_are_those_of_the_command() -> None:
    item = {**topic("orders", 4.0), "limit": {"messages": "5/s", "bytes": None, "origin": "override"}, "used": 0.5, "wait_ms": 1.5}
    for own, their in zip(spreadsheet.TOPICS, traffic_columns.TOPICS, strict=True):
        assert own[1](item) == their.read(item), own[0]


@pytest.mark.slow
async def test_exports_asked_for_at_once_are_made_once_and_others_do_not_wait_for_them(api: Control) -> None:
    """Twelve spreadsheets of many topics: the list is made for the first, and once more for all who came while it was."""
    api.gateway.seen_topics = [topic(f"t{number:05}", float(number)) for number in range(3000)]
    made: list[object] = []
    real = api.gateway.topic_places

    async def counted(protocol: str | None, text: str) -> Any:
        made.append(None)
        return await real(protocol, text)

    described: list[int] = []
    describe = api.gateway.topics

    async def described_at_once(places: Any = None) -> Any:
        described.append(len(places))
        return await describe(places)

    api.gateway.topic_places = counted  # type: ignore[method-assign, assignment]
    api.gateway.topics = described_at_once  # type: ignore[method-assign, assignment]
    answers: list[Reply] = []
    order: list[str] = []

    async def export() -> None:
        answers.append(await api.ask("GET", "/v1/topics?format=csv"))
        order.append("export")

    async def look() -> None:
        assert (await api.ask("GET", "/v1/topics?limit=10&sort=rate")).status == 200
        order.append("list")

    async with trio.open_nursery() as nursery:
        for _ in range(12):
            nursery.start_soon(export)
        with trio.fail_after(HANG_S):
            while not made:
                await trio.sleep(0)
        nursery.start_soon(look)
    assert len(made) <= 3, "each export had the list made anew, once for each page"
    assert order.index("list") <= 1, "the list waited for more than the export that was being made"
    assert max(described) <= DESCRIBED_AT_ONCE, "others' lists wait until all topics of an export are described"
    assert {answer.body for answer in answers} == {answers[0].body}
    assert len(read(answers[0])) == 3000
    assert [row["topic"] for row in read(answers[0])][::2999] == ["t00000", "t02999"]


async def test_openapi_is_made_once(api: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = openapi.document

    def counted(routes: list[Route]) -> Any:
        made.append(1)
        return real(routes)

    monkeypatch.setattr(openapi, "document", counted)
    tags: set[str] = set()

    async def ask() -> None:
        tags.add((await api.ask("GET", "/v1/openapi.json")).headers["etag"])

    async with trio.open_nursery() as nursery:
        for _ in range(12):
            nursery.start_soon(ask)
    assert (made, len(tags)) == ([1], 1)
