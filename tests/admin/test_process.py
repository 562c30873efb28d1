"""Status, probes, metrics, reload, drain, traffic."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from admin.app import serve
from admin.store.store import Store
from limiter.limits import Limit, Rate
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from limiter.topics import rocketmq_topic
from support.admin.admin_client import RULES, Control, control
from support.admin.fake_gateway import FakeGateway
from support.expositions import families as read_families


async def test_livez_says_how_long_a_turn_takes(api: Control) -> None:
    answer = await api.ask("GET", "/livez", role=None)
    assert (answer.status, answer.json()["status"]) == (200, "alive")
    assert answer.json()["turn_ms"] >= 0


async def test_readyz_tells_its_reasons_only_to_requests_with_a_token(api: Control) -> None:
    assert (await api.ask("GET", "/readyz", role=None)).json() == {"ready": True}
    api.gateway.not_ready = ["broker 10.0.0.7:5672 is unreachable"]
    nobody, viewer = await api.ask("GET", "/readyz", role=None), await api.ask("GET", "/readyz", role="viewer")
    assert (nobody.status, nobody.json()) == (503, {"ready": False})
    assert (viewer.status, viewer.json()["reasons"]) == (503, ["broker 10.0.0.7:5672 is unreachable"])


async def test_warnings_are_told_beside_readiness_and_do_not_make_the_gateway_unready(api: Control) -> None:
    api.gateway.worries = ["disk: 7 bytes are free"]
    assert (await api.ask("GET", "/readyz", role=None)).json() == {"ready": True}
    answer = await api.ask("GET", "/readyz", role="viewer")
    assert (answer.status, answer.json()) == (200, {"ready": True, "warnings": ["disk: 7 bytes are free"]})
    assert (await api.ask("GET", "/v1/status", role="viewer")).json()["warnings"][0] == "disk: 7 bytes are free"


async def test_status_counts_live_changes_of_every_kind(api: Control) -> None:
    rule = {"match": {"protocol": "amqp"}, "per": "client", "limit": {"messages": "5/s"}}
    for path, body in (("limits/rocketmq/orders", rule["limit"]), ("limits/client/10.0.0.9", rule["limit"]), ("rules/each", rule)):
        assert (await api.ask("PUT", f"/v1/{path}?force=1", body)).status == 200
    state = (await api.ask("GET", "/v1/status")).json()["state"]
    assert (state["live_changes_of_keys"], state["live_changes_of_rules"]) == (2, 1)


async def test_metrics_say_whether_readyz_is_content(api: Control) -> None:
    assert "\nsluice_ready 1\n" in (await api.ask("GET", "/metrics", role="viewer")).body.decode()
    api.gateway.not_ready = ["draining"]
    assert "\nsluice_ready 0\n" in (await api.ask("GET", "/metrics", role="viewer")).body.decode()


async def test_probes_do_not_mind_a_wrong_token(api: Control) -> None:
    assert (await api.ask("GET", "/livez", headers={"Authorization": "Bearer wrong"}, role=None)).status == 200


async def test_metrics_are_what_prometheus_reads(api: Control) -> None:
    await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", {"messages": "5/s"})
    await api.ask("GET", "/v1/status", role=None)
    answer = await api.ask("GET", "/metrics", role="viewer")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in read_families(answer.body.decode())}
    assert families["sluice_buffer_bytes"].samples[0].value == 1
    assert families["sluice_state_revision"].samples[0].value == 1
    assert families["sluice_state_keys"].samples[0].value == 1
    assert families["sluice_state_write_failures"].samples[0].value == 0
    assert families["sluice_admin_auth_failures"].samples[0].value == 1
    requests = {tuple(sample.labels.values()): sample.value for sample in families["sluice_admin_requests"].samples}
    assert requests["/v1/limits/rocketmq/{topic}", "PUT", "200"] == 1
    assert requests["/v1/status", "GET", "401"] == 1


async def test_unknown_paths_do_not_become_labels(api: Control) -> None:
    for number in range(20):
        await api.ask("GET", f"/v1/nothing/{number}")
    body = (await api.ask("GET", "/metrics")).body.decode()
    assert 'sluice_admin_requests_total{route="none",method="other",code="404"} 20' in body


async def test_reload(api: Control) -> None:
    assert (await api.ask("POST", "/v1/config:reload")).json() == {"changed": [], "needs_restart": []}
    api.gateway.reload_errors = ["limits.yaml:3:7: rate: 10O is no rate", "limits.yaml:9:1: unknown key"]
    failed = await api.ask("POST", "/v1/config:reload")
    assert (failed.status, [fault["message"] for fault in failed.json()["errors"]]) == (422, api.gateway.reload_errors)


async def test_a_dry_run_of_a_reload_puts_nothing_in_force_and_is_no_deed(api: Control) -> None:
    assert (await api.ask("POST", "/v1/config:reload?dry_run=1")).json() == {"changed": [], "needs_restart": []}
    assert api.gateway.reloads == 0
    assert (await api.ask("GET", "/v1/audit")).json()["items"] == []
    await api.ask("POST", "/v1/config:reload?dry_run=0")
    assert api.gateway.reloads == 1
    assert len((await api.ask("GET", "/v1/audit")).json()["items"]) == 1, "what was done is kept, however it was asked for"


async def test_a_bodys_reason_is_kept_in_the_audit(api: Control) -> None:
    await api.ask("POST", "/v1/config:reload?reason=query", {"reason": "body"})
    await api.ask("POST", "/v1/config:reload?reason=query")
    await api.ask("POST", "/v1/drain", {"confirm": True, "reason": "upgrade"})
    found = [(entry["action"], entry.get("reason")) for entry in (await api.ask("GET", "/v1/audit")).json()["items"]]
    assert found == [("POST /v1/drain", "upgrade"), ("POST /v1/config:reload", "query"), ("POST /v1/config:reload", "body")]


async def test_connections_are_found_by_their_own_names_too(api: Control) -> None:
    api.gateway.open_connections = [
        {"id": 1, "client_properties": {"connection_name": "checkout"}, "held_by": None, "user": "ann"},
        {"id": 2, "client_properties": {}, "held_by": {"rule": "bulk", "topic": "//x/jobs"}, "user": "bob"},
    ]
    for word, found in (("checkout", [1]), ("bulk", [2]), ("jobs", [2]), ("bob", [2]), ("nobody", [])):
        assert [item["id"] for item in (await api.ask("GET", f"/v1/connections?q={word}")).json()["items"]] == found


async def test_draining_must_be_meant(api: Control) -> None:
    for body in ({}, {"confirm": False}, {"confirm": "yes"}, {"confirm": True, "x": 1}):
        assert (await api.ask("POST", "/v1/drain", body)).status == 422
    assert api.gateway.drains == 0
    assert (await api.ask("POST", "/v1/drain", {"confirm": True})).status == 202
    assert api.gateway.drains == 1


async def test_figures_of_other_workers_are_gathered_before_each_answer(api: Control) -> None:
    await api.ask("GET", "/v1/topics")
    await api.ask("GET", "/v1/limits/rocketmq/orders")
    assert api.gateway.gathered == [("topics",), ()]


async def test_a_change_is_answered_when_it_is_in_force_everywhere(api: Control) -> None:
    await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", {"messages": "5/s"})
    await api.ask("POST", "/v1/config:reload")
    assert api.gateway.waits == 2


async def test_a_dry_run_waits_for_nobody(api: Control) -> None:
    await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1&dry_run=1", {"messages": "5/s"})
    assert api.gateway.waits == 0


async def test_connections(api: Control) -> None:
    api.gateway.open_connections = [{"id": number, "client": f"10.0.0.{number}:1", "protocol": "amqp"} for number in range(1, 6)]
    page = (await api.ask("GET", "/v1/connections?limit=2")).json()
    rest = (await api.ask("GET", f"/v1/connections?limit=9&cursor={page['next']}")).json()
    assert ([item["id"] for item in page["items"] + rest["items"]], page["total"]) == ([1, 2, 3, 4, 5], 5)
    assert [item["id"] for item in (await api.ask("GET", "/v1/connections?q=0.3:")).json()["items"]] == [3]
    assert (await api.ask("GET", "/v1/connections/3")).json()["client"] == "10.0.0.3:1"
    assert (await api.ask("DELETE", "/v1/connections/3?dry_run=1")).status == 200
    assert api.gateway.closed == []
    assert (await api.ask("DELETE", "/v1/connections/3?reason=runaway%20job")).status == 200
    assert (api.gateway.closed, api.gateway.close_reasons) == ([3], ["runaway job"])
    entries = (await api.ask("GET", "/v1/audit")).json()["items"]
    (done,) = [entry for entry in entries if entry["outcome"] == "done"]
    assert (done["action"], done["reason"]) == ("DELETE /v1/connections/3", "runaway job")
    for path in ("/v1/connections/3", "/v1/connections/x", "/v1/connections/-1"):
        assert (await api.ask("GET", path)).status == 404


@pytest.mark.parametrize("most", [1, 2, 3, 5])
async def test_no_page_of_topics_loses_one_that_is_produced_and_consumed(api: Control, most: int) -> None:
    api.gateway.seen_topics = [
        {"protocol": "amqp", "topic": f"%2F/amq.default/{name}", "operation": operation, "received_per_second": 5.0}
        for operation in ("consume", "produce")
        for name in "abc"
    ]
    for sort in ("name", "rate"):
        seen: list[tuple[str, str]] = []
        cursor = ""
        while True:
            page = (await api.ask("GET", f"/v1/topics?limit={most}&sort={sort}{cursor}")).json()
            seen += [(item["topic"], item["operation"]) for item in page["items"]]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        assert seen == sorted((item["topic"], item["operation"]) for item in api.gateway.seen_topics)


async def test_topics_sorted_by_what_hurts(api: Control) -> None:
    api.gateway.seen_topics = [
        {"protocol": "rocketmq", "topic": name, "operation": "produce", "received_per_second": rate, "refused_per_second": refused}
        for name, rate, refused in (("a", 1.0, 0.5), ("b", 3.0, 0.0), ("c", 2.0, 0.9))
    ]

    async def names(query: str) -> str:
        return "".join(item["topic"] for item in (await api.ask("GET", f"/v1/topics?{query}")).json()["items"])

    assert [await names("sort=name"), await names("sort=rate"), await names("sort=refused"), await names("q=B")] == [
        "abc",
        "bca",
        "cab",
        "b",
    ]


async def test_a_page_of_topics_describes_no_others(api: Control) -> None:
    """10,000 topics described for a page of 100 took 150 ms of the processor that messages need."""
    api.gateway.seen_topics = [
        {
            "protocol": "amqp",
            "topic": f"%2F/orders/{number:03}",
            "operation": "produce",
            "received_per_second": float(number % 50),
            "forwarded_per_second": 0.0,
            "bytes_per_second": 0.0,
        }
        for number in range(300)
    ]
    for query, described in (("sort=rate", [4]), ("sort=name", [4]), ("sort=used", [4]), ("q=29", [4])):
        api.gateway.topics_asked.clear()
        page = (await api.ask("GET", f"/v1/topics?limit=4&{query}")).json()
        assert (len(page["items"]), api.gateway.topics_asked) == (4, described), query


async def test_topics_have_their_limit_and_how_much_of_it_is_used(tmp_path: Path) -> None:
    def topic(name: str, passed: float, refused: float, *, operation: str = "produce", protocol: str = "rocketmq") -> dict[str, object]:
        rates = {"received_per_second": passed + refused, "forwarded_per_second": passed, "refused_per_second": refused}
        return {"protocol": protocol, "topic": name, "operation": operation, "bytes_per_second": passed * 100, "waiting": 0, **rates}

    rule = Rule("some", Match(protocol="rocketmq"), limit=Limit(messages=Rate(100), bytes=Rate(50_000)))
    async with control(tmp_path, (rule,)) as api:
        api.gateway.flood(rocketmq_topic(b"hot"), 5000, 10**9)
        api.gateway.seen_topics = [
            topic("calm", 10, 0), topic("hot", 99, 300), topic("hot", 5, 0, operation="consume"), topic("rest", 0, 0),
            topic("__other__", 7, 0, protocol="amqp"), topic("over", 150, 0),
        ]  # fmt: skip

        async def items(query: str) -> list[dict[str, Any]]:
            found = (await api.ask("GET", f"/v1/topics?{query}")).json()["items"]
            assert isinstance(found, list)
            return found

        found = {(item["topic"], item["operation"]): item for item in await items("sort=name")}
        hot = found["hot", "produce"]
        assert (hot["used"], hot["limit"]["messages"], hot["limit"]["origin"], hot["limit"]["rule"]) == (0.99, "100/s", "default", "some")
        assert (hot["wait_ms"] is not None, found["calm", "produce"]["wait_ms"]) == (True, None)
        assert (found["calm", "produce"]["used"], found["over", "produce"]["used"]) == (0.1, 1.0)
        assert [found["hot", "consume"][name] for name in ("limit", "used", "wait_ms")] == [None, None, None]
        assert found["__other__", "produce"]["limit"] is None
        by_use = [item["topic"] for item in await items("sort=used")]
        assert by_use[:3] == ["over", "hot", "calm"]
        assert sorted(by_use) == sorted(str(item["topic"]) for item in api.gateway.seen_topics)
        assert (await items("sort=used&limit=1"))[0]["limit"]["messages"] == "100/s"
        assert len(await items("sort=wait")) == len(by_use)


async def test_status_names_what_to_look_at(api: Control) -> None:
    (api.folder.parent / "viewer.token").chmod(0o644)
    await api.ask("POST", "/v1/config:reload")
    status = (await api.ask("GET", "/v1/status")).json()
    assert (status["name"], status["state"]["revision"]) == ("fake", 0)
    assert any("chmod 600" in warning for warning in status["warnings"])


async def test_a_fault_of_ours_is_a_problem_with_a_request_id(api: Control, caplog: pytest.LogCaptureFixture) -> None:
    api.gateway.broken = True
    answer = await api.ask("GET", "/v1/status")
    assert (answer.status, answer.json()["type"]) == (500, "urn:sluice:problem:internal")
    assert b"broken" not in answer.body
    record = next(record for record in caplog.records if record.message == "admin_request_failed")
    assert record.fields["request_id"] == answer.json()["request_id"]  # type: ignore[attr-defined]


async def test_tokens_are_nowhere_to_be_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """docs/design/reliability.md I15: what was said, logged and written, searched for every token."""
    caplog.set_level(logging.DEBUG)
    canary = "canary-5f2b7e91c0d34a68"
    said = b""
    async with control(tmp_path) as api:
        tokens = [api.token(role) for role in ("admin", "viewer", "operator")] + [canary]
        api.gateway.broken = True
        for route, body in (
            ("GET /v1/status", None),
            ("GET /v1/config", None),
            ("GET /metrics", None),
            ("GET /v1/audit", None),
            ("GET /v1/history", None),
            ("GET /v1/openapi.json", None),
            ("PUT /v1/limits/rocketmq/orders?force=1", {"messages": "5/s"}),
            ("POST /v1/config:reload", None),
            ("PUT /v1/limits/rocketmq/orders?force=1", {"messages": 5}),
            (f"GET /v1/status?token={canary}", None),
            (f"GET /v1/status/{canary}", None),
            (f"PUT /v1/status/{canary}", {}),
            (f"GET /{canary}", None),
        ):
            method, path = route.split()
            for role, headers in (
                ("admin", {}),
                (None, {"Authorization": f"Bearer {canary}"}),
                (None, {"Authorization": f"Basic {canary}"}),
            ):
                answer = await api.ask(method, path, body, role=role, headers=headers)
                said += answer.body + repr(answer.headers).encode()
        said += await api.say(f"GET / HTTP/1.1\nAuthorization: Bearer {canary}\n\n".encode())
        said += await api.say(f"GET /{canary} HTTP/1.1\r\nHost: a\r\nHost: b\r\nAuthorization: {canary}\r\n\r\n".encode())
        said += repr((api.store, api.gateway)).encode()
    for file in (tmp_path / "state").rglob("*"):
        if file.is_file() and file.name != "admin.token":
            said += file.read_bytes()
    logged = "".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records) + caplog.text
    for token in tokens:
        assert token.encode() not in said
        assert token not in logged


async def test_an_address_that_is_taken_is_named(api: Control, tmp_path: Path) -> None:
    store = Store.open(tmp_path / "other", RULES)
    with pytest.raises(OSError, match=f"admin API cannot listen on 127.0.0.1 port {api.address[1]}.*admin.bind"):
        await serve(api.address, FakeGateway(store.rules()), store)
    store.close()
