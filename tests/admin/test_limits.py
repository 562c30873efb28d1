"""`/v1/limits`: what holds for a key, and changing it live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
import trio

from admin import context
from admin.context import COMPARED_PER_SLICE, SHOWN_PER_SLICE
from admin.store.state import parse_time
from admin.views import limit_list, limit_views
from admin.views.limit_views import Level, Usage, level_of
from limiter.limits import Limit, Rate
from limiter.rules.rule_set import Effective, Match, Rule
from limiter.topics import amqp_topic, rocketmq_topic
from support.admin.admin_client import Control, control

ORDERS = "/v1/limits/rocketmq/orders"


async def put(api: Control, path: str = ORDERS, **body: object) -> None:
    assert (await api.ask("PUT", f"{path}?force=1", body)).status == 200


async def test_a_key_never_seen_has_a_limit_with_its_origin(api: Control) -> None:
    answer = await api.ask("GET", ORDERS)
    view = answer.json()
    level = view["levels"][0]
    assert (answer.status, view["override"], view["topic"]) == (200, None, "orders")
    assert (level["per"], level["origin"], level["rule"], level["place"]) == ("topic", "default", "rocketmq-topics", "limits.yaml:3")
    assert (level["limit"]["messages"], level["limit"]["messages_burst"], level["usage"]) == ("2000/s", 2000, None)


async def test_a_put_is_in_force_for_the_next_batch(api: Control) -> None:
    name, now = rocketmq_topic(b"orders"), 10**9
    assert api.gateway.flood(name, 5000, now) == 2000
    answer = await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "10/s", "burst": "2s", "reason": "incident 12"})
    assert answer.status == 200
    assert api.gateway.judge.rules.revision == 1
    assert api.gateway.flood(rocketmq_topic(b"orders"), 5000, now + 60 * 10**9) == 20
    level = answer.json()["levels"][0]
    assert (level["origin"], level["by"], level["reason"], level["limit"]["messages"]) == ("override", "admin", "incident 12", "10/s")
    assert level["at"] == "2026-11-18T11:06:40.000Z"


@pytest.mark.parametrize("explain", ["", "?explain=1"])
async def test_an_answer_and_its_etag_are_of_one_moment(api: Control, monkeypatch: pytest.MonkeyPatch, explain: str) -> None:
    """Somebody else changes the limit while the answer is made: who changes it then has not seen that."""
    topics = api.gateway.topics

    async def changed_meanwhile(*wanted: Any) -> Any:
        monkeypatch.setattr(api.gateway, "topics", topics)
        await put(api, messages="20/s")
        return await topics(*wanted)

    await put(api, messages="10/s")
    monkeypatch.setattr(api.gateway, "topics", changed_meanwhile)
    seen = await api.ask("GET", ORDERS + explain)
    view = seen.json()
    assert (view["override"]["messages"], view["levels"][0]["limit"]["messages"], view["revision"]) == ("10/s", "10/s", 1)
    undone = await api.ask("PUT", ORDERS, {"messages": "5/s"}, headers={"If-Match": seen.headers["etag"]})
    assert undone.status == 412


async def test_fields_that_a_change_does_not_name_stay_as_the_rule_says(api: Control) -> None:
    await put(api, bytes="5MiB/s")
    limit = (await api.ask("GET", ORDERS)).json()["levels"][0]["limit"]
    assert (limit["messages"], limit["bytes"]) == ("2000/s", "5MiB/s")


async def test_put_replaces_and_patch_merges(api: Control) -> None:
    await put(api, messages="10/s", bytes="5MiB/s")
    assert (await api.ask("PATCH", f"{ORDERS}?force=1", {"messages": "20/s"})).json()["override"]["bytes"] == "5MiB/s"
    assert "messages" not in (await api.ask("PATCH", f"{ORDERS}?force=1", {"messages": None})).json()["override"]
    await put(api, messages="30/s")
    assert "bytes" not in (await api.ask("GET", ORDERS)).json()["override"]


@pytest.mark.parametrize(
    ("query", "body", "kept", "told"),
    [
        ("", {"reason": "twice"}, "twice", "twice"),
        ("&reason=twice", {}, "twice", "twice"),
        ("", {}, "incident 12", ""),
        ("", {"reason": None}, "", ""),
    ],
)
async def test_a_patch_keeps_the_reason_unless_it_says_another(
    api: Control, query: str, body: dict[str, str | None], kept: str, told: str
) -> None:
    """The limit's own reason; the history has that of the request."""
    await put(api, messages="10/s", reason="incident 12")
    answer = await api.ask("PATCH", f"{ORDERS}?force=1{query}", {"messages": "20/s", **body})
    assert (answer.json()["override"].get("reason", ""), answer.json()["levels"][0]["reason"]) == (kept, kept)
    assert (await api.ask("GET", "/v1/history/2")).json()["entry"].get("reason", "") == told


async def test_a_put_has_no_reason_but_its_own(api: Control) -> None:
    await put(api, messages="10/s", reason="incident 12")
    await put(api, messages="20/s")
    assert (await api.ask("GET", ORDERS)).json()["levels"][0]["reason"] == ""


async def test_delete_returns_to_the_rule(api: Control) -> None:
    await put(api, messages="10/s")
    answer = await api.ask("DELETE", f"{ORDERS}?force=1&reason=over")
    assert (answer.status, answer.json()["override"], answer.json()["levels"][0]["origin"]) == (200, None, "default")
    assert (await api.ask("DELETE", f"{ORDERS}?force=1")).status == 404
    assert (await api.ask("GET", "/v1/history/2")).json()["entry"]["reason"] == "over"


@pytest.mark.parametrize(
    ("path", "name", "topic"),
    [
        ("/v1/limits/amqp/%2F/orders/order.created", amqp_topic(b"/", b"orders", b"order.created"), "%2F/orders/order.created"),
        ("/v1/limits/amqp/%2F/amq.default/a%2Fb", amqp_topic(b"/", b"", b"a/b"), "%2F/amq.default/a%2Fb"),
        ("/v1/limits/amqp/a%20b/events/", amqp_topic(b"a b", b"events", b""), "a%20b/events/"),
        ("/v1/limits/rocketmq/%25RETRY%25group", rocketmq_topic(b"%RETRY%group"), "%RETRY%group"),
        ("/v1/limits/rocketmq/%FF%00", rocketmq_topic(b"\xff\x00"), "%FF%00"),
        ("/v1/limits/rocketmq/%2E%2E", rocketmq_topic(b".."), ".."),
        ("/v1/limits/rocketmq/~.", rocketmq_topic(b"."), "."),
        ("/v1/limits/rocketmq/~~.", rocketmq_topic(b"~."), "~."),
        ("/v1/limits/rocketmq/~", rocketmq_topic(b"~"), "~"),
        ("/v1/limits/amqp/~./~../~~..", amqp_topic(b".", b"..", b"~.."), "~./~../~~.."),
        ("/v1/limits/amqp/%2F/orders/.", amqp_topic(b"/", b"orders", b"."), "%2F/orders/~."),
        ("/v1/limits/rocketmq/a:rollback", rocketmq_topic(b"a:rollback"), "a:rollback"),
    ],
)
async def test_any_name_can_be_a_key(api: Control, path: str, name: object, topic: str) -> None:
    await put(api, path, messages="7/s")
    assert list(api.store.rules().overrides) == [name]
    view = (await api.ask("GET", path)).json()
    assert view["topic"] == topic
    assert (await api.ask("GET", view["path"])).json() == view
    assert urljoin("http://gateway/", view["path"]) == f"http://gateway{view['path']}", "a client takes a segment out"


async def test_other_things_called_like_dots_keep_their_paths(api: Control) -> None:
    for path in ("/v1/limits/exchange/%2F/~.", "/v1/limits/consume/queue/~../~.", "/v1/limits/user/~..", "/v1/limits/group/~~."):
        await put(api, path, messages="7/s")
        view = (await api.ask("GET", path)).json()
        assert view["path"] == path


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/limits/rocketmq/", 404),
        ("/v1/limits/rocketmq/a/b", 404),
        ("/v1/limits/amqp/%2F/orders", 404),
        ("/v1/limits/kafka/orders", 404),
        ("/v1/limits/rocketmq/" + "a" * 256, 422),
    ],
)
async def test_paths_that_name_no_key(api: Control, path: str, status: int) -> None:
    assert (await api.ask("GET", path)).status == status


FAULTY = [
    ({"messages": 500}, ["/messages"]),
    ({"messages": "500"}, ["/messages"]),
    ({"messages": "-1/s"}, ["/messages"]),
    ({"messages": "1e999/s", "bytes": "5 bananas/s"}, ["/messages", "/bytes"]),
    ({"mesages": "5/s", "bytes": True}, ["/mesages", "/bytes"]),
    ({"burst": {"messages": "x"}}, ["/burst/messages"]),
    ({"burst": {"messages": 0}}, ["/burst"]),
    ({"burst": "0s", "messages": "1/s"}, ["/burst"]),
    ({"action": "explode"}, ["/action"]),
    ({"mode": "maybe"}, ["/mode"]),
    ({"open_for": "2h"}, ["/open_for"]),
    ({"max_delay": "3s"}, ["/max_delay"]),
    ({"messages": "5/s", "expires": "1s ago"}, ["/expires"]),
    ({"messages": "5/s", "expires": "2020-01-01T00:00:00Z"}, ["/expires"]),
    ({"messages": "5/s", "expires": "2027-01-01T00:00:00"}, ["/expires"]),
    ({"messages": "5/s", "expires": "2027-13-01T00:00:00Z"}, ["/expires"]),
    ({"reason": "only"}, [""]),
    ([], [""]),
]


@pytest.mark.parametrize(("body", "pointers"), FAULTY, ids=[str(body) for body, _ in FAULTY])
async def test_every_fault_of_a_body_is_named_and_nothing_changes(api: Control, body: object, pointers: list[str]) -> None:
    answer = await api.ask("PUT", f"{ORDERS}?force=1", body)
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status, [fault["pointer"] for fault in answer.json()["errors"]]) == (422, pointers)
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert api.store.revision == 0


@pytest.mark.parametrize(
    ("body", "pointer"), [({"burst": "2s"}, "/burst"), ({"burst": {"messages": 5}}, "/burst"), ({"open_for": "1s"}, "/open_for")]
)
async def test_fields_that_the_algorithm_does_not_have_cannot_be_changed(tmp_path: Path, body: dict[str, object], pointer: str) -> None:
    rules = (Rule("paced", match=Match(protocol="rocketmq"), limit=Limit(messages=Rate(50)), algorithm="pacing"),)
    async with control(tmp_path, rules) as api:
        for path in (ORDERS, "/v1/rules/paced"):
            answer = await api.ask("PUT", f"{path}?force=1", {"messages": "5/s", **body})
            assert (answer.status, [fault["pointer"] for fault in answer.json()["errors"]]) == (422, [pointer])
            assert (await api.ask("PUT", f"{path}?force=1", {"messages": "5/s"})).status == 200


async def test_a_limit_is_shown_with_what_its_algorithm_makes_of_it(tmp_path: Path) -> None:
    rules = (
        Rule("paced", match=Match(protocol="rocketmq"), limit=Limit(messages=Rate(50)), algorithm="pacing"),
        Rule("warming", match=Match(protocol="amqp"), limit=Limit(messages=Rate(50)), algorithm="warm_up"),
    )
    async with control(tmp_path, rules) as api:
        level = (await api.ask("GET", ORDERS)).json()["levels"][0]
        assert (level["algorithm"], level["limit"]) == ("pacing", {"messages": "50/s", "messages_per_second": 50.0})
        level = (await api.ask("GET", "/v1/limits/amqp/%2F/orders/x")).json()["levels"][0]
        assert (level["limit"]["messages_burst"], level["limit"]["warm_up"]) == (50, "10s")


@pytest.mark.parametrize("action", ["block", "close"])
async def test_an_action_of_its_own_for_one_topic(api: Control, action: str) -> None:
    answer = await api.ask("PUT", "/v1/limits/amqp/%2F/orders/x?force=1", {"messages": "5/s", "action": action, "max_delay": "8s"})
    assert (answer.status, answer.json()["override"]["action"]) == (200, action)


async def test_a_fallback_of_its_own_for_one_topic(api: Control) -> None:
    path = "/v1/limits/amqp/%2F/orders/x"
    answer = await api.ask("PUT", f"{path}?force=1", {"messages": "5/s", "fallback": "drop"})
    assert (answer.status, answer.json()["override"]["fallback"]) == (200, "drop")
    assert next((level["per"], level["fallback"]) for level in answer.json()["levels"]) == ("topic", "drop")
    preview = (await api.ask("PUT", f"{path}?dry_run=1&force=1", {"messages": "5/s", "fallback": "close"})).json()
    assert preview["topics_affected"] == 1
    wrong = await api.ask("PUT", f"{path}?force=1", {"messages": "5/s", "fallback": "reject"})
    assert (wrong.status, wrong.json()["errors"][0]["pointer"]) == (422, "/fallback")


async def test_rocketmqs_clients_do_not_wait_for_8_s(api: Control) -> None:
    answer = await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", {"messages": "5/s", "max_delay": "8s"})
    assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, "/max_delay")


async def test_reply_is_rocketmqs(api: Control) -> None:
    answer = await api.ask("PUT", "/v1/limits/amqp/%2F/orders/x?force=1", {"messages": "5/s", "reply": "system_busy"})
    assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, "/reply")
    assert api.store.revision == 0


@pytest.mark.parametrize("body", [b"{", b"\xff", b"nope", b"[" * 100_000, b'{"messages": NaN}', b""])
async def test_bodies_that_are_not_json_are_400(api: Control, body: bytes) -> None:
    assert (await api.ask("PUT", f"{ORDERS}?force=1", body)).status == 400


async def test_unknown_parameters_are_named(api: Control) -> None:
    answer = await api.ask("GET", "/v1/limits?protocl=amqp&limit=0&sort=x")
    assert (answer.status, [fault["pointer"] for fault in answer.json()["errors"]]) == (422, ["?protocl", "?limit", "?sort"])
    assert "did you mean `protocol`?" in answer.json()["errors"][0]["message"]


# ---- preconditions -----------------------------------------------------------------------------------------------------


async def test_a_write_must_say_what_it_has_seen(api: Control) -> None:
    assert (await api.ask("PUT", ORDERS, {"messages": "5/s"})).status == 428
    seen = (await api.ask("GET", ORDERS)).etag
    answer = await api.ask("PUT", ORDERS, {"messages": "5/s"}, headers={"If-Match": seen})
    assert (answer.status, answer.etag) == (200, (await api.ask("GET", ORDERS)).etag)
    stale = await api.ask("PUT", ORDERS, {"messages": "6/s"}, headers={"If-Match": seen})
    assert (stale.status, stale.headers["etag"]) == (412, answer.etag)
    assert (await api.ask("PUT", ORDERS, {"messages": "6/s"}, headers={"If-Match": f'"x", {answer.etag}'})).status == 200
    assert (await api.ask("PUT", ORDERS, {"messages": "7/s"}, headers={"If-Match": "*"})).status == 200
    assert api.store.revision == 3


async def test_of_concurrent_writes_of_the_same_revision_one_wins(api: Control) -> None:
    """docs/design/reliability.md F52."""
    seen = (await api.ask("GET", ORDERS)).etag
    statuses: list[int] = []

    async def write(rate: str) -> None:
        statuses.append((await api.ask("PUT", ORDERS, {"messages": rate}, headers={"If-Match": seen})).status)

    async with trio.open_nursery() as nursery:
        for number in range(1, 9):
            nursery.start_soon(write, f"{number}/s")
    assert sorted(statuses) == [200] + [412] * 7
    assert (await api.ask("GET", "/v1/history")).json()["revision"] == 1
    outcomes = [line["outcome"] for line in (await api.ask("GET", "/v1/audit")).json()["items"]]
    assert sorted(outcomes) == ["applied"] + ["refused"] * 7


async def test_usage_does_not_change_what_was_seen(api: Control) -> None:
    before = (await api.ask("GET", ORDERS)).etag
    api.gateway.flood(rocketmq_topic(b"orders"), 5000, 10**9)
    assert (await api.ask("GET", ORDERS)).etag == before


async def test_a_rule_changed_meanwhile_changes_what_was_seen(api: Control) -> None:
    before = (await api.ask("GET", ORDERS)).etag
    assert (await api.ask("PUT", "/v1/rules/rocketmq-topics?force=1", {"messages": "9/s"})).status == 200
    assert (await api.ask("PUT", ORDERS, {"messages": "5/s"}, headers={"If-Match": before})).status == 412


# ---- dry runs ----------------------------------------------------------------------------------------------------------


async def test_a_dry_run_changes_nothing_and_says_what_would(api: Control) -> None:
    api.gateway.flood(rocketmq_topic(b"orders"), 1, 10**9)
    api.gateway.flood(rocketmq_topic(b"other"), 1, 10**9)
    answer = await api.ask("PUT", f"{ORDERS}?dry_run=1", {"messages": "5/s"})
    preview = answer.json()
    assert (answer.status, preview["dry_run"], preview["would_be_revision"], preview["topics_affected"]) == (200, True, 1, 1)
    assert preview["changes"][0]["target"] == "limits/rocketmq/orders"
    assert preview["changes"][0]["after"]["messages"] == "5/s"
    assert [preview["topics"][0][when][0]["limit"]["messages"] for when in ("before", "after")] == ["2000/s", "5/s"]
    assert (api.store.revision, api.gateway.enforced, len((await api.ask("GET", "/v1/audit")).json()["items"])) == (0, [], 0)


async def test_a_dry_run_of_a_rule_names_the_topics_in_use(api: Control) -> None:
    for topic in (b"a", b"b", b"c"):
        api.gateway.flood(rocketmq_topic(topic), 1, 10**9)
    await put(api, "/v1/limits/rocketmq/c", messages="1/s")
    preview = (await api.ask("PUT", "/v1/rules/rocketmq-topics?dry_run=1", {"messages": "9/s"})).json()
    assert sorted(topic["topic"] for topic in preview["topics"]) == ["a", "b"]


async def test_a_dry_run_gives_messages_their_turn(api: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of topics are compared in slices. In one go they held every message up by 5 to 20 ms (`bench/admin_load.py`)."""
    for number in range(500):
        api.gateway.flood(rocketmq_topic(b"topic-%d" % number), 1, 10**9)
    turn = 0
    work: Counter[tuple[int, str]] = Counter()

    async def turns_of_the_loop() -> None:
        nonlocal turn
        while True:
            turn += 1
            await trio.lowlevel.checkpoint()

    def noted(name: str) -> None:
        original = getattr(context, name)

        def call(*arguments: object) -> object:
            work[turn, name] += 1
            return original(*arguments)

        monkeypatch.setattr(context, name, call)

    noted("shape")
    noted("levels_of")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns_of_the_loop)
        preview = (await api.ask("PUT", "/v1/rules/rocketmq-topics?dry_run=1", {"messages": "9/s"})).json()
        nursery.cancel_scope.cancel()
    assert preview["topics_affected"] == 500
    assert len(preview["topics"]) == 100
    found: dict[str, list[int]] = {}
    for (_, name), count in work.items():
        found.setdefault(name, []).append(count)
    assert {name: sum(counts) for name, counts in found.items()} == {"shape": 1000, "levels_of": 200}
    # Two calls for each topic. Two slices may follow each other, as trio runs the tasks of a round in any order; three may not.
    assert max(found["shape"]) <= 2 * 2 * COMPARED_PER_SLICE
    assert max(found["levels_of"]) <= 2 * 2 * SHOWN_PER_SLICE


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({"expires": "30m"}, ("expires", None, "2026-11-18T11:36:40.000Z")),
        ({"reason": "incident 13"}, ("reason", "", "incident 13")),
        ({"candidate": {"messages": "3/s"}}, ("candidate", None, "3/s")),
    ],
)
async def test_a_dry_run_shows_what_changes_beside_the_rate(
    api: Control, more: dict[str, object], shown: tuple[str, object, object]
) -> None:
    await put(api, messages="5/s")
    (topic,) = (await api.ask("PUT", f"{ORDERS}?dry_run=1", {"messages": "5/s", **more})).json()["topics"]
    name, before, after = shown
    then = topic["after"][0][name]
    assert (topic["before"][0][name], then["messages"] if name == "candidate" else then) == (before, after)


async def test_a_dry_run_of_what_is_there_already_shows_no_topic(api: Control) -> None:
    """By another, and later; but nothing would be different."""
    await put(api, messages="5/s", reason="incident 12")
    api.clock.now += 60
    preview = (await api.ask("PUT", f"{ORDERS}?dry_run=1", {"messages": "5/s", "reason": "incident 12"})).json()
    assert (preview["topics_affected"], preview["topics"]) == (0, [])


# ---- expiry ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expires", ["30m", "30min", "1800s", "2026-11-18T11:36:40Z", "2026-11-18T19:36:40+08:00"])
async def test_a_change_can_be_for_a_time(api: Control, expires: str) -> None:
    await put(api, messages="5/s", expires=expires)
    assert (await api.ask("GET", ORDERS)).json()["override"]["expires"] == "2026-11-18T11:36:40.000Z"
    assert api.store.next_expiry == api.clock.now + 1800
    api.clock.now += 1800
    assert (await api.ask("GET", ORDERS)).json()["levels"][0]["origin"] == "default"
    await api.store.remove_expired()
    entry = (await api.ask("GET", "/v1/history/2")).json()["entry"]
    assert (entry["by"], entry["reason"], api.store.state.keys) == ("sluice", "expired", {})


async def test_a_change_that_expired_while_the_gateway_was_down_does_not_hold(tmp_path: Path) -> None:
    async with control(tmp_path) as api:
        api.clock.now -= 10_000
        await put(api, messages="5/s", expires="1h")
        await put(api, "/v1/limits/rocketmq/other", messages="6/s")
    async with control(tmp_path) as api:
        assert (await api.ask("GET", ORDERS)).json()["levels"][0]["origin"] == "default"
        assert (await api.store.remove_expired(), api.store.revision) == ("", 3)
        assert list(api.store.state.keys) == ["limits/rocketmq/other"]


# ---- the list ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [ORDERS, "/v1/limits/client/10.0.0.7"])
async def test_a_change_that_has_ended_and_is_not_removed_yet_is_no_change(api: Control, path: str) -> None:
    """It may take 15 min after a start: a PATCH was answered 200 meanwhile, with the end of the past, and held nowhere."""
    await put(api, path, messages="100/s", action="drop", expires="30m")
    api.clock.now += 1800
    seen = await api.ask("GET", path)
    assert (seen.json()["override"], [level["origin"] for level in seen.json()["levels"] if level["origin"] == "override"]) == (None, [])
    answer = await api.ask("PATCH", path, {"messages": "50/s"}, headers={"If-Match": seen.etag})
    view = answer.json()
    assert (answer.status, view["levels"][0]["limit"]["messages"], view["levels"][0]["origin"]) == (200, "50/s", "override")
    assert ("expires" in view["override"], "action" in view["override"]) == (False, False)
    await api.store.remove_expired()
    assert (await api.ask("GET", path)).json()["override"] == view["override"]


async def test_the_removal_of_what_has_ended_is_no_change_that_a_writer_must_have_seen(api: Control) -> None:
    await put(api, messages="100/s", expires="30m")
    api.clock.now += 1800
    seen = (await api.ask("GET", ORDERS)).etag
    await api.store.remove_expired()
    assert (await api.ask("PUT", ORDERS, {"messages": "50/s"}, headers={"If-Match": seen})).status == 200


async def test_the_list_shows_what_is_in_use_and_what_is_changed(api: Control) -> None:
    now = 10**9
    api.gateway.flood(rocketmq_topic(b"hot"), 5000, now)
    api.gateway.flood(rocketmq_topic(b"cold"), 1, now)
    hot = {"protocol": "rocketmq", "topic": "hot", "operation": "produce", "received_per_second": 5000.0, "refused_per_second": 3000.0}
    api.gateway.seen_topics = [hot, hot | {"operation": "consume", "received_per_second": 1.0}]
    await put(api, "/v1/limits/amqp/%2F/orders/order.x", messages="7/s")
    items = {item["level"]["thing"]: item for item in (await api.ask("GET", "/v1/limits")).json()["items"]}
    assert sorted(items) == ["%2F/orders/order.x", "cold", "hot"]
    hot = items["hot"]["level"]["usage"]
    assert (hot["admitted"], hot["refused"], hot["received_per_second"]) == (2000, 3000, 5000.0)
    assert hot["last_refused"] is not None
    assert items["cold"]["level"]["usage"]["last_refused"] is None
    assert items["hot"]["path"] == "/v1/limits/rocketmq/hot"
    assert items["%2F/orders/order.x"]["level"]["usage"] is None


GROUP = "/v1/limits/amqp/%2F/words/order.eu.%23"
BY_WORDS = Rule("words", Match(exchange="words"), limit=Limit(messages=Rate(50)), routing_key_words=2, place="limits.yaml:9")


async def test_a_group_of_keys_is_changed_by_its_name_and_is_one_row_of_the_list(tmp_path: Path) -> None:
    async with control(tmp_path, rules=(BY_WORDS,)) as api:
        one, other, short = (amqp_topic(b"/", b"words", key) for key in (b"order.eu.1", b"order.eu", b"order"))
        assert api.gateway.flood(one, 90, 10**9) == 50
        await put(api, GROUP, messages="2/s")
        assert api.gateway.flood(other, 90, 100 * 10**9) == 2
        assert api.gateway.flood(short, 90, 100 * 10**9) == 50
        items = (await api.ask("GET", "/v1/limits")).json()["items"]
        assert [(item["level"]["thing"], item["path"]) for item in items] == [
            ("%2F/words/order", "/v1/limits/amqp/%2F/words/order"),
            ("%2F/words/order.eu.#", GROUP),
        ]
        view = (await api.ask("GET", GROUP)).json()
        assert (view["topic"], view["path"], view["override"]["messages"]) == ("%2F/words/order.eu.#", GROUP, "2/s")
        assert (view["levels"][0]["usage"]["admitted"], view["levels"][0]["origin"]) == (52, "override")
        assert (await api.ask("DELETE", f"{GROUP}?force=1")).json()["levels"][0]["origin"] == "default"


async def test_the_usage_of_a_key_in_a_group_is_the_groups(tmp_path: Path) -> None:
    async with control(tmp_path, rules=(BY_WORDS,)) as api:
        api.gateway.flood(amqp_topic(b"/", b"words", b"order.eu.1"), 90, 10**9)
        group = {"protocol": "amqp", "topic": "%2F/words/order.eu.#", "operation": "produce", "received_per_second": 90.0}
        api.gateway.seen_topics = [group, group | {"topic": "%2F/words/order.eu.2", "received_per_second": 1.0}]
        (level,) = (await api.ask("GET", "/v1/limits/amqp/%2F/words/order.eu.2")).json()["levels"]
        assert (level["usage"]["admitted"], level["usage"]["received_per_second"]) == (50, 90.0)


async def test_a_queue_shows_what_holds_for_consuming_from_it_too(tmp_path: Path) -> None:
    jobs = Match(queue="jobs", operation="consume")
    rules = (
        Rule("publish", Match(protocol="amqp"), limit=Limit(messages=Rate(50))),
        Rule("consume", jobs, limit=Limit(messages=Rate(7)), place="limits.yaml:9"),
    )
    async with control(tmp_path, rules=rules) as api:
        queue, exchange = "/v1/limits/amqp/%2F/amq.default/jobs", "/v1/limits/amqp/%2F/orders/jobs"
        api.gateway.flood(amqp_topic(b"/", b"", b"jobs"), 20, 10**9, operation="consume")
        consumed = {"protocol": "amqp", "topic": "%2F/amq.default/jobs", "operation": "consume", "received_per_second": 20.0}
        api.gateway.seen_topics = [consumed, consumed | {"operation": "produce", "received_per_second": 3.0}]
        answer = await api.ask("GET", queue)
        produce, consume = answer.json()["levels"]
        assert (produce["operation"], produce["rule"], produce["usage"]) == ("produce", "publish", None)
        assert (consume["operation"], consume["rule"], consume["limit"]["messages"]) == ("consume", "consume", "7/s")
        assert (consume["usage"]["admitted"], consume["usage"]["received_per_second"]) == (7, 20.0)
        assert [level["operation"] for level in (await api.ask("GET", exchange)).json()["levels"]] == ["produce"]
        (item,) = (await api.ask("GET", "/v1/limits")).json()["items"]
        assert (item["operation"], item["level"]["operation"]) == ("consume", "consume")
        assert (await api.ask("PUT", queue, {"messages": "1/s"}, headers={"If-Match": answer.etag})).status == 200


async def test_the_list_is_filtered_sorted_and_cut(api: Control) -> None:
    for number in range(25):
        api.gateway.flood(rocketmq_topic(b"topic-%02d" % number), 2000 + number, 10**9)
        rates = dict.fromkeys(("received_per_second", "forwarded_per_second", "bytes_per_second"), float(number))
        now = {"topic": f"topic-{number:02d}", "protocol": "rocketmq", "operation": "produce", "refused_per_second": float(number)}
        api.gateway.seen_topics.append(now | rates)
    seen: list[str] = []
    cursor = ""
    for _ in range(3):
        page = (await api.ask("GET", f"/v1/limits?protocol=rocketmq&q=TOPIC-&sort=refused&limit=10{cursor}")).json()
        assert page["total"] == 25
        seen += [item["level"]["thing"] for item in page["items"]]
        cursor = f"&cursor={page['next']}"
    assert page["next"] is None
    assert seen == [f"topic-{number:02d}" for number in range(24, -1, -1)]
    assert (await api.ask("GET", "/v1/limits?protocol=amqp")).json()["total"] == 0
    assert (await api.ask("GET", "/v1/limits?cursor=garbage")).status == 422
    for sort in ("name", "fill", "used", "rate", "wait", "last_refused"):
        assert (await api.ask("GET", f"/v1/limits?sort={sort}")).json()["total"] == 25


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The things of the limits that were described, one after the other."""
    found: list[str] = []

    def noted(effective: Effective, usage: Usage | None = None, operation: str = "produce") -> Level:
        found.append(effective.thing)
        return level_of(effective, usage, operation)

    monkeypatch.setattr(limit_list, "level_of", noted)
    monkeypatch.setattr(limit_views, "level_of", noted)
    return found


async def some_in_use(api: Control) -> None:
    """Thirty limits: 25 in use, of topics of which three move, and five live changes of what no message has used."""
    for number in range(25):
        api.gateway.flood(rocketmq_topic(b"topic-%02d" % number), 1990 + number, (1 + number) * 10**9)
        rates = dict.fromkeys(("received_per_second", "forwarded_per_second", "bytes_per_second"), float(max(0, number - 21)))
        topic = {"topic": f"topic-{number:02d}", "protocol": "rocketmq", "operation": "produce", "refused_per_second": float(number % 3)}
        api.gateway.seen_topics.append(topic | rates)
    for number in range(3):
        await put(api, f"/v1/limits/rocketmq/unused-{number}", messages="7/s")
    for number in range(2):
        await put(api, f"/v1/limits/client/10.0.0.{number}", messages="7/s")


@pytest.mark.parametrize(
    ("query", "of_topics", "of_limits"),
    [
        ("limit=7", [5], 7),  # two are clients
        ("limit=7&sort=rate", [7], 7),
        ("limit=7&sort=refused", [7], 7),
        ("limit=7&sort=wait", [7], 7),
        ("limit=7&sort=used", [7], 7),
        ("limit=7&q=topic-1", [7], 7),
        ("limit=7&q=unused", [0], 3),
        ("limit=7&protocol=amqp", [], 0),
        ("limit=500", [25], 30),
    ],
)
async def test_only_the_limits_of_a_page_are_described(
    api: Control, described: list[str], query: str, of_topics: list[int], of_limits: int
) -> None:
    """Until November 2026 all were: 0.6 s of the processor for each page of 10,000 limits."""
    await some_in_use(api)
    described.clear()
    api.gateway.topics_asked.clear()
    page = (await api.ask("GET", f"/v1/limits?{query}")).json()
    assert (api.gateway.topics_asked, len(described), len(page["items"])) == (of_topics, of_limits, of_limits)


def largest_first(name: str) -> Callable[[dict[str, Any]], float]:
    return lambda usage: -(usage[name] or 0)


@pytest.mark.parametrize(
    ("sort", "number"),
    [
        ("name", lambda _: 0),
        ("fill", lambda usage: usage["fill"]),
        ("rate", largest_first("received_per_second")),
        ("refused", largest_first("refused_per_second")),
        ("used", largest_first("used")),
        ("wait", largest_first("wait_ms")),
        ("last_refused", lambda usage: -parse_time(usage["last_refused"]) if usage["last_refused"] else 1),
    ],
)
async def test_pages_have_each_limit_once_in_the_order_of_what_they_show(
    api: Control, sort: str, number: Callable[[dict[str, Any]], Any]
) -> None:
    await some_in_use(api)
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = (await api.ask("GET", f"/v1/limits?sort={sort}&limit=4{cursor}")).json()
        found += page["items"]
        assert page["total"] == 30
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    names = [f"{item['level']['per']} {item['protocol']} {item['level']['thing']}" for item in found]
    assert len(set(names)) == len(names) == 30
    if sort == "name":
        assert names == sorted(names)
        return
    numbers = [number(item["level"]["usage"]) for item in found[:25]]
    assert [item["level"]["usage"] for item in found[25:]] == [None] * 5
    assert numbers == sorted(numbers)


async def test_a_change_that_may_not_do_what_was_meant_says_so(tmp_path: Path) -> None:
    rule = Rule("some", Match(protocol="rocketmq", topic="other"), limit=Limit(messages=Rate(5)))
    async with control(tmp_path, (rule,)) as api:
        assert (await api.ask("GET", ORDERS)).json()["remarks"] == []
        answer = await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "10/s"})
        assert [remark.partition(":")[0] for remark in answer.json()["remarks"]] == ["no rule is for this key (rule"]
        answer = await api.ask("PUT", "/v1/limits/amqp/%2F/orders/created?force=1", {"messages": "10/s"})
        assert "no listener speaks amqp" in answer.json()["remarks"][0]
        await api.ask("PUT", "/v1/limits/listener/rocket?force=1", {"messages": "10/s"})  # of which no rule is; of `other` there is one
        assert (await api.ask("PUT", "/v1/limits/rocketmq/other?force=1", {"messages": "10/s"})).json()["remarks"] == []


@pytest.mark.parametrize("dry_run", ["", "&dry_run=1"])
@pytest.mark.parametrize("path", [ORDERS, "/v1/limits/client/10.0.0.7"])
async def test_a_burst_in_tokens_that_stays_under_another_rate_is_told(tmp_path: Path, path: str, dry_run: str) -> None:
    limit = Limit(messages=Rate(1000), messages_burst=10_000, bytes=Rate(10 << 20), bytes_burst=20 << 20)
    rules = (Rule("each", Match(protocol="rocketmq"), limit=limit), Rule("clients", per="client", limit=limit))

    async def remarks(change: dict[str, Any]) -> list[str]:
        found: list[str] = (await api.ask("PUT", f"{path}?force=1{dry_run}", change)).json()["remarks"]
        return found

    rest = "name one, too, where less is to pass at once"
    async with control(tmp_path, rules) as api:
        assert await remarks({"messages": "50/s", "bytes": "1MiB/s"}) == [
            f"the burst stays 10000 messages, 200 s of 50/s: {rest}",
            f"the burst stays 20MiB, 20 s of 1MiB/s: {rest}",
        ]
        assert await remarks({"messages": "2000/s"}) == []
        assert await remarks({"messages": "0/s"}) == []
        assert await remarks({"messages": "50/s", "burst": "1s"}) == []


async def test_a_change_of_a_key_that_nothing_limits_must_bring_a_rate(api: Control) -> None:
    path = "/v1/limits/amqp/%2F/free/k"
    answer = await api.ask("PUT", f"{path}?force=1", {"action": "drop"})
    assert answer.status == 422
    assert "give a rate" in str(answer.json())
    assert (await api.ask("PUT", f"{path}?force=1", {"messages": "5/s", "action": "drop"})).status == 200
