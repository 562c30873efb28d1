"""`GET /v1/events` and `/v1/stream`: what is sent, in which order, what happens to slow, many and revoked readers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio
import trio.testing

from admin.endpoints import events as endpoint
from admin.http.exchange import Deadlines
from admin.stream_hub import MAX_STREAMS_PER_TOKEN
from common.descriptors import WHOLE
from support.admin.admin_client import Control, control
from support.admin.streams import Reader, reading


def happen(api: Control, kind: str, level: str = "info", **fields: object) -> str:
    """Something is logged; its id."""
    ring = api.gateway.recent_events
    ring.add({"ts": "2026-11-24T02:00:00.000Z", "level": level, "event": kind, **fields})
    return f"{ring.boot}-{ring.last}"


# ---- /v1/events ------------------------------------------------------------------------------------------------------


async def test_events_after_one_are_told_in_order_and_in_pages(api: Control) -> None:
    first = happen(api, "started")
    ids = [happen(api, "limit_reached", topic=f"t{number}") for number in range(5)]
    page = (await api.ask("GET", f"/v1/events?after={first}&limit=3", role="viewer")).json()
    assert [item["id"] for item in page["items"]] == ids[:3]
    assert (page["next"], page["more"], page["gap"]) == (ids[2], True, False)
    rest = (await api.ask("GET", f"/v1/events?after={page['next']}&limit=3")).json()
    assert [item["id"] for item in rest["items"]] == ids[3:]
    assert (rest["next"], rest["more"]) == (ids[4], False)
    assert (await api.ask("GET", f"/v1/events?after={rest['next']}")).json() == {"items": [], "next": ids[4], "more": False, "gap": False}


async def test_without_a_beginning_the_latest_are_told(api: Control) -> None:
    ids = [happen(api, "started") for _ in range(5)]
    page = (await api.ask("GET", "/v1/events?limit=2")).json()
    assert ([item["id"] for item in page["items"]], page["next"], page["more"]) == (ids[3:], ids[4], False)


async def test_events_are_chosen_by_kind_topic_and_level(api: Control) -> None:
    happen(api, "limit_reached", "warning", topic="orders")
    happen(api, "limit_recovered", "info", topic="orders")
    happen(api, "limit_reached", "warning", topic="bills")
    happen(api, "upstream_unreachable", "error")

    async def told(query: str) -> list[str]:
        return [item["event"] for item in (await api.ask("GET", f"/v1/events?{query}")).json()["items"]]

    assert await told("kind=limit_reached,limit_recovered&topic=orders") == ["limit_reached", "limit_recovered"]
    assert await told("topic=bills") == ["limit_reached"]
    assert await told("level=error") == ["upstream_unreachable"]
    assert await told("kind=nothing") == []


async def test_filtered_pages_reach_the_end(api: Control) -> None:
    for number in range(30):
        happen(api, "limit_reached" if number % 3 == 0 else "started", number=number)
    found, after = [], "fake-0"
    while True:
        page = (await api.ask("GET", f"/v1/events?after={after}&kind=limit_reached&limit=4")).json()
        found += [item["number"] for item in page["items"]]
        after = page["next"]
        if not page["more"]:
            break
    assert found == list(range(0, 30, 3))


async def test_a_gap_is_said(api: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.recent_events.MAX_EVENTS", 3)
    first = happen(api, "started")
    for _ in range(5):
        happen(api, "started")
    assert (await api.ask("GET", f"/v1/events?after={first}")).json()["gap"] is True
    of_another_boot = (await api.ask("GET", "/v1/events?after=0ther-5")).json()
    assert (of_another_boot["gap"], len(of_another_boot["items"])) == (True, 3)
    assert (await api.ask("GET", "/v1/events")).json()["gap"] is False


async def test_a_beginning_that_is_no_id_is_refused(api: Control) -> None:
    for wrong in ("5", "fake-", "fake-x", "fake-99999999999999999999", "a b"):
        answer = await api.ask("GET", f"/v1/events?after={wrong.replace(' ', '%20')}")
        assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, "?after")


async def test_a_change_is_an_event(api: Control, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sluice")
    with api.gateway.recent_events:
        await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1&reason=flood", {"messages": "5/s"}, role="operator")
    page = (await api.ask("GET", "/v1/events?kind=changed")).json()
    (event,) = page["items"]
    assert {key: event[key] for key in ("by", "role", "action", "revision", "reason", "targets")} == {
        "by": "operator",
        "role": "operator",
        "action": "PUT /v1/limits/rocketmq/orders",
        "revision": 1,
        "reason": "flood",
        "targets": ["limits/rocketmq/orders"],
    }


# ---- /v1/stream ------------------------------------------------------------------------------------------------------


async def test_a_stream_begins_with_a_snapshot_and_goes_on_with_what_happens(api: Control) -> None:
    happen(api, "started")
    async with reading(api) as reader:
        assert (reader.status, reader.headers["content-type"], reader.headers["cache-control"]) == (200, "text/event-stream", "no-store")
        snapshot = await reader.next()
        assert (snapshot.kind, snapshot.id, snapshot.data["name"]) == ("snapshot", "fake-1", "fake")
        number = happen(api, "limit_reached", "warning", topic="orders")
        event = await reader.next("event")
        assert (event.id, event.data["event"], event.data["topic"], event.data["id"]) == (number, "limit_reached", "orders", number)
        following = await reader.next("snapshot")
        assert following.data["number"] > snapshot.data["number"]


async def test_one_snapshot_a_second_is_made_for_all_readers(api: Control) -> None:
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(reading(api)) for _ in range(8)]
        numbers = []
        for reader in readers:
            numbers.append((await reader.next("snapshot")).data["number"])
            numbers.append((await reader.next("snapshot")).data["number"])
        assert max(numbers) <= api.gateway.snapshots
        assert len(set(numbers)) < len(numbers), "readers share snapshots"
    made = api.gateway.snapshots
    with trio.fail_after(60):
        while (await api.ask("GET", "/metrics")).body.count(b"sluice_admin_streams 0") != 1:
            await trio.sleep(0.05)
    assert api.gateway.snapshots <= made + 1, "without a reader none is made"


async def test_events_missed_are_told_again(api: Control) -> None:
    seen = happen(api, "started")
    missed = [happen(api, "limit_reached", topic=str(number)) for number in range(120)]
    async with reading(api, headers={"Last-Event-ID": seen}) as reader:
        assert [(await reader.next("event")).id for _ in missed] == missed
    async with reading(api, f"?after={missed[-2]}") as reader:
        assert (await reader.next("event")).id == missed[-1]


@pytest.mark.parametrize("last", ["0ther-7", "fake-1", "nonsense", "fake-99999"])
async def test_a_gap_is_said_before_what_is_left(api: Control, monkeypatch: pytest.MonkeyPatch, last: str) -> None:
    monkeypatch.setattr("common.recent_events.MAX_EVENTS", 3)
    for _ in range(6):
        happen(api, "started")
    async with reading(api, "?snapshots=0", headers={"Last-Event-ID": last}) as reader:
        said = [await reader.next() for _ in range(4)]
        assert [(each.kind, each.id) for each in said] == [("gap", ""), ("event", "fake-4"), ("event", "fake-5"), ("event", "fake-6")]


async def test_a_stream_has_what_it_was_asked_for(api: Control) -> None:
    api.gateway.seen_topics = [{"protocol": "rocketmq", "topic": f"t{number}", "operation": "produce"} for number in range(80)]
    async with reading(api, "?topics=3&events=0") as few, reading(api) as usual, reading(api, "?snapshots=0&kind=started") as events:
        assert [topic["topic"] for topic in (await few.next()).data["topics"]] == ["t0", "t1", "t2"]
        assert len((await usual.next()).data["topics"]) == 50
        happen(api, "limit_reached")
        happen(api, "started")
        assert (await events.next()).data["event"] == "started"
        assert (await usual.next("event")).data["event"] == "limit_reached"
        assert (await few.next()).kind == "snapshot"


async def test_a_quiet_stream_shows_that_it_lives(api: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "KEEP_ALIVE_S", 0.1)
    async with reading(api, "?snapshots=0") as reader:
        assert [(await reader.next()).kind for _ in range(2)] == [":", ":"]


async def test_a_snapshot_that_fails_leaves_the_events(api: Control) -> None:
    api.gateway.broken = True
    async with reading(api) as reader:
        happen(api, "started")
        assert (await reader.next()).kind == "event"
        api.gateway.broken = False
        assert (await reader.next()).kind == "snapshot"


async def test_a_revoked_token_ends_the_stream(tmp_path: Path) -> None:
    async with control(tmp_path) as api, reading(api, role="viewer") as reader, reading(api, role="operator") as other:
        await reader.next("snapshot")
        (tmp_path / "viewer.token").write_text("another-token-0123456789\n")
        assert (await api.ask("POST", "/v1/config:reload")).status == 200
        assert "token" in (await reader.next("end")).data["reason"]
        with pytest.raises(EOFError):
            await reader.next()
        await other.next("snapshot")


async def test_a_gateway_that_stops_ends_its_streams(tmp_path: Path) -> None:
    async with control(tmp_path, grace=5.0) as api, reading(api) as reader:
        await reader.next("snapshot")
        api.stop.cancel()
        with trio.CancelScope(shield=True):
            assert "stopping" in (await reader.next("end")).data["reason"]


async def test_a_reader_that_does_not_read_is_closed(tmp_path: Path) -> None:
    async with control(tmp_path, deadlines=Deadlines(write=0.2)) as api:
        api.gateway.seen_topics = [
            {"protocol": "rocketmq", "topic": f"{number}-{'x' * 10_000}", "operation": "produce"} for number in range(200)
        ]
        async with reading(api, "?topics=200"), reading(api, "?snapshots=0") as other:
            with trio.fail_after(30):
                while b"sluice_admin_slow_readers_total 1\n" not in (await api.ask("GET", "/metrics")).body:
                    await trio.sleep(0.1)
            happen(api, "started")
            assert (await other.next("event")).data["event"] == "started", "others are served meanwhile and after"


async def test_a_reader_that_goes_away_gives_its_place_back(api: Control) -> None:
    async with reading(api) as reader:
        await reader.next("snapshot")
        assert b"sluice_admin_streams 1\n" in (await api.ask("GET", "/metrics")).body
    with trio.fail_after(60):
        while b"sluice_admin_streams 0\n" not in (await api.ask("GET", "/metrics")).body:
            await trio.sleep(0.05)


@pytest.fixture
async def full(api: Control) -> AsyncIterator[tuple[Control, list[Reader]]]:
    """As many streams as there may be."""
    async with AsyncExitStack() as stack:
        readers = []
        for number in range(WHOLE.streams):
            role = "viewer" if number < MAX_STREAMS_PER_TOKEN else "operator"
            readers.append(await stack.enter_async_context(reading(api, role=role)))
        yield api, readers


@pytest.mark.slow
async def test_a_thousand_streams_take_nothing_from_other_requests(full: tuple[Control, list[Reader]]) -> None:
    api, readers = full
    assert {reader.status for reader in readers} == {200}
    refused: list[int] = []

    async def another() -> None:
        async with reading(api, role="admin") as reader:
            refused.append(reader.status)

    for _ in range(10):
        async with trio.open_nursery() as nursery:
            for _ in range(94):
                nursery.start_soon(another)
            assert (await api.ask("GET", "/livez", role=None)).status == 200
    assert set(refused) == {503}
    answer = await api.ask("GET", "/v1/stream", role="admin")
    assert (answer.status, answer.json()["type"]) == (503, "urn:sluice:problem:too-many-streams")
    assert "64 streams already" in answer.json()["detail"]
    assert answer.headers["retry-after"] == "10"
    for reader in readers:
        await reader.next("snapshot")


async def test_one_token_cannot_have_all_streams(api: Control) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(MAX_STREAMS_PER_TOKEN):
            await stack.enter_async_context(reading(api, role="viewer"))
        answer = await api.ask("GET", "/v1/stream", role="viewer")
        assert (answer.status, answer.json()["detail"].split(" has ")[0]) == (503, "the token viewer")
        async with reading(api, role="operator") as reader:
            assert reader.status == 200


async def test_the_head_of_a_stream_can_be_asked_for(api: Control) -> None:
    answer = await api.ask("HEAD", "/v1/stream", role="viewer")
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, "text/event-stream", b"")


async def test_a_stream_wants_a_viewers_token_and_known_parameters(api: Control) -> None:
    assert (await api.ask("GET", "/v1/stream", role=None)).status == 401
    assert (await api.ask("GET", "/v1/stream?topics=201")).status == 422
    assert (await api.ask("GET", "/v1/stream?after=nonsense")).status == 422
