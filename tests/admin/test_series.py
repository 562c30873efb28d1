"""`/v1/series` and what a limit would have refused, over the API."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from admin.views.hindsight import would_have_refused
from admin.views.marks import MOST
from limiter.limits import Limit, Rate
from support.admin.admin_client import Control

START = 1_794_999_700  # five minutes before the tests' clock
ORDERS = ("rocketmq", "orders", "produce")
QUERY = "/v1/series?protocol=rocketmq&topic=orders"


def feed(api: Control, seconds: int, received: float, place: tuple[str, str, str] = ORDERS, begin: int = START) -> None:
    for second in range(begin, begin + seconds):
        for _ in api.gateway.series.close_second(second, 1.0, [(place, (received, received, 0.0, 0.0, 0.0))], api.store.rules()):
            pass


async def test_the_points_of_a_topic(api: Control) -> None:
    feed(api, 300, 800.0)
    found = (await api.ask("GET", QUERY, role="viewer")).json()
    assert {name: found[name] for name in ("step", "start", "end", "protocol", "topic", "operation", "known", "marks", "missing")} == {
        "step": 1, "start": START, "end": START + 299, "protocol": "rocketmq", "topic": "orders", "operation": "produce", "known": True,
        "marks": [], "missing": [],
    }  # fmt: skip
    assert found["points"]["received"] == [800] * 300
    assert found["points"]["limit"] == [2000] * 300
    day = (await api.ask("GET", f"{QUERY}&range=24h")).json()
    assert (day["step"], day["points"]["received"]) == (10, [800] * 29)
    since = (await api.ask("GET", f"{QUERY}&since={START + 297}")).json()
    assert (since["start"], since["points"]["forwarded"]) == (START + 297, [800] * 3)


async def test_all_topics_together(api: Control) -> None:
    feed(api, 5, 800.0)
    api.gateway.missing_workers = [2]
    found = (await api.ask("GET", "/v1/series")).json()
    assert (found["topic"], found["protocol"], found["points"]["received"], found["missing"]) == (None, None, [800] * 5, [2])
    assert found["points"]["limit"] is None


async def test_a_topic_of_amqp_is_named_by_its_text(api: Control) -> None:
    place = ("amqp", "%2F/orders/order.created", "produce")
    feed(api, 5, 3.0, place)
    for sent in ("%252F/orders/order.created", "%252F%2Forders%2Forder.created"):
        found = (await api.ask("GET", f"/v1/series?protocol=amqp&topic={sent}")).json()
        assert (found["topic"], found["known"], found["points"]["received"]) == (place[1], True, [3] * 5)


async def test_a_topic_without_a_series_is_not_known(api: Control) -> None:
    feed(api, 5, 3.0)
    found = (await api.ask("GET", "/v1/series?protocol=rocketmq&topic=never")).json()
    assert (found["known"], found["points"]["received"]) == (False, [None] * 5)
    consumed = (await api.ask("GET", f"{QUERY}&operation=consume")).json()
    assert (consumed["known"], consumed["operation"]) == (False, "consume")


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("range=5m", "?range"),
        ("topic=orders", "?protocol"),
        ("protocol=rocketmq", "?topic"),
        ("operation=produce", "?topic"),
        ("protocol=kafka&topic=orders", "?protocol"),
        ("protocol=amqp&topic=orders", "?topic"),
        ("protocol=amqp&topic=a/b/c/d", "?topic"),
        ("since=yesterday", "?since"),
        ("since=-1", "?since"),
        ("since=999999999999", "?since"),
        ("step=1", "?step"),
    ],
)
async def test_what_cannot_be_asked_for(api: Control, query: str, pointer: str) -> None:
    answer = await api.ask("GET", f"/v1/series?{query}")
    assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, pointer)


async def test_marks_where_limits_were_changed(api: Control) -> None:
    feed(api, 300, 800.0)

    async def change(path: str, reason: str) -> None:
        assert (await api.ask("PUT", f"{path}?force=1", {"messages": "5/s", "reason": reason}, role="operator")).status == 200

    await change("/v1/limits/rocketmq/orders", "incident 12")
    await change("/v1/limits/rocketmq/other", "elsewhere")
    await change("/v1/rules/rocketmq-topics", "for all")
    api.clock.now += 1
    everything = (await api.ask("GET", "/v1/series")).json()["marks"]
    assert [mark["revision"] for mark in everything] == [1, 2, 3]
    mine = (await api.ask("GET", QUERY)).json()["marks"]
    assert mine == [
        {"ts": 1_795_000_000, "revision": 1, "by": "operator", "reason": "incident 12", "what": "limits/rocketmq/orders"},
        {"ts": 1_795_000_000, "revision": 3, "by": "operator", "reason": "for all", "what": "rules/rocketmq-topics"},
    ]
    await change("/v1/limits/rocketmq/orders", "again")
    assert [mark["revision"] for mark in (await api.ask("GET", QUERY)).json()["marks"]] == [1, 3, 4], "what is new is read"
    feed(api, 3600, 1.0, begin=START + 300)
    assert (await api.ask("GET", QUERY)).json()["marks"] == [], "before the first point"
    assert len((await api.ask("GET", f"{QUERY}&range=24h")).json()["marks"]) == 3


async def test_a_change_of_what_consumers_get_is_marked_in_its_queues_chart(api: Control) -> None:
    for path in ("limits/consume/queue/%2F/jobs", "limits/requeue/queue/%2F/jobs", "limits/consume/rocketmq/orders"):
        assert (await api.ask("PUT", f"/v1/{path}?force=1", {"messages": "5/s"}, role="operator")).status == 200
    feed(api, 300, 800.0)

    async def marked(protocol: str, topic: str, operation: str) -> list[str]:
        place = f"protocol={protocol}&topic={quote(topic, safe='')}&operation={operation}"
        return [mark["what"] for mark in (await api.ask("GET", f"/v1/series?{place}")).json()["marks"]]

    assert await marked("amqp", "%2F/amq.default/jobs", "consume") == ["limits/consume/queue/%2F/jobs"]
    assert await marked("amqp", "%2F/amq.default/jobs", "requeue") == ["limits/requeue/queue/%2F/jobs"]
    assert await marked("rocketmq", "orders", "consume") == ["limits/consume/rocketmq/orders"]


async def test_a_limit_of_one_client_on_the_topic_is_marked(api: Control) -> None:
    feed(api, 300, 800.0)
    for name, match in (("mine", {"topic": "orders", "client": "10.0.0.9"}), ("others", {"topic": "bills", "client": "10.0.0.9"})):
        rule = {"match": {"protocol": "rocketmq", "operation": "produce", **match}, "per": "client", "limit": {"messages": "5/s"}}
        assert (await api.ask("PUT", f"/v1/rules/{name}?force=1", rule, role="operator")).status == 200
    assert [mark["what"] for mark in (await api.ask("GET", QUERY)).json()["marks"]] == ["live-rules/mine"]


async def test_marks_are_bounded(api: Control) -> None:
    feed(api, 5, 800.0, begin=1_795_000_000)
    for at in range(MOST + 5):
        body: dict[str, Any] = {"messages": f"{at + 1}/s"}
        assert (await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", body)).status == 200
    marks = (await api.ask("GET", QUERY)).json()["marks"]
    assert [mark["revision"] for mark in marks] == [*range(6, MOST + 6)]


# ---- what a limit would have refused -------------------------------------------------------------------------------------


async def test_a_dry_run_says_what_would_have_been_refused(api: Control) -> None:
    feed(api, 300, 800.0)
    path = "/v1/limits/rocketmq/orders?dry_run=1"
    for method in ("PUT", "PATCH"):
        found = (await api.ask(method, path, {"messages": "500/s"})).json()
        assert found["would_have_refused"] == {"messages": 300 * 300 - 500, "of": 240_000, "seconds": 300}
    assert (await api.ask("PUT", path, {"messages": "1000/s"})).json()["would_have_refused"]["messages"] == 0
    assert (await api.ask("PUT", path, {"messages": "0/s"})).json()["would_have_refused"]["messages"] == 240_000
    assert (await api.ask("PUT", path, {"messages": "0/s", "mode": "shadow"})).json()["would_have_refused"]["messages"] == 240_000
    assert (await api.ask("PUT", path, {"messages": "0/s", "mode": "off"})).json()["would_have_refused"] is None


async def test_where_nothing_is_known_nothing_is_said(api: Control) -> None:
    feed(api, 300, 800.0)
    for path in ("/v1/limits/rocketmq/never", "/v1/rules/rocketmq-topics", "/v1/limits/client/10.0.0.7"):
        found = (await api.ask("PUT", f"{path}?dry_run=1", {"messages": "500/s"})).json()
        assert found["would_have_refused"] is None, path
    assert (await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", {"messages": "500/s"})).status == 200
    taken_back = (await api.ask("DELETE", "/v1/limits/rocketmq/orders?dry_run=1")).json()
    assert taken_back["would_have_refused"] == {"messages": 0, "of": 240_000, "seconds": 300}, "under the rule's 2000/s"


@pytest.mark.parametrize(
    ("received", "limit", "refused", "of", "seconds"),
    [
        ([10.0] * 5, Limit(messages=Rate(10)), 0, 50, 5),
        ([20.0] * 5, Limit(messages=Rate(10)), 40, 100, 5),  # a bucket of 10 is full at first
        ([50.0, 0.0, 0.0, 0.0, 50.0], Limit(messages=Rate(10), messages_burst=40), 10, 100, 5),
        ([0.0, 50.0, None, 50.0], Limit(messages=Rate(10), messages_burst=40), 40, 100, 3),
        ([10.0] * 3, Limit(bytes=Rate(10)), 0, 30, 3),
    ],
)
def test_the_bucket_is_filled_and_emptied_second_by_second(
    received: list[float | None], limit: Limit, refused: int, of: int, seconds: int
) -> None:
    found = would_have_refused(received, limit)
    assert found is not None
    assert (found.messages, found.of, found.seconds) == (refused, of, seconds)


def test_nothing_known_is_not_nothing_refused() -> None:
    assert would_have_refused([], Limit(messages=Rate(10))) is None
    assert would_have_refused([None, None], Limit(messages=Rate(10))) is None
