"""`GET /v1/spool`: the spool as a whole, and the topics that wait in it."""

from __future__ import annotations

from support.admin.admin_client import Control


def waiting(topic: str, messages: int, size: int, seconds: float) -> dict[str, object]:
    return {"protocol": "amqp", "topic": topic, "messages": messages, "bytes": size, "waiting_seconds": seconds}


def fill(api: Control) -> None:
    api.gateway.spooled = [
        waiting("%2F/orders/created", 5, 900, 1.0), waiting("%2F/orders/paid", 70, 70, 9.5), waiting("shop/mails/", 5, 10, 3.0),
    ]  # fmt: skip


async def test_most_messages_come_first_page_by_page_with_a_viewers_token(api: Control) -> None:
    fill(api)
    first = (await api.ask("GET", "/v1/spool?limit=2", role="viewer")).json()
    rest = (await api.ask("GET", f"/v1/spool?cursor={first['next']}", role="viewer")).json()
    assert [[item["messages"] for item in part["items"]] for part in (first, rest)] == [[70, 5], [5]]
    assert [item["topic"] for item in (*first["items"], *rest["items"])] == ["%2F/orders/paid", "%2F/orders/created", "shop/mails/"]
    assert (first["total"], rest["next"]) == (3, None)
    assert first["spool"] == {"messages": 80, "topics": 3}


async def test_the_list_is_filtered_and_sorted(api: Control) -> None:
    fill(api)
    found = {
        query: [item["topic"].rpartition("/")[0] for item in (await api.ask("GET", f"/v1/spool?{query}")).json()["items"]]
        for query in ("q=ORDERS&limit=1", "topic=shop/mails/", "topic=shop", "sort=bytes&limit=1", "sort=name&q=mails", "protocol=rocketmq")
    }
    assert found == {
        "q=ORDERS&limit=1": ["%2F/orders"], "topic=shop/mails/": ["shop/mails"], "topic=shop": [], "sort=bytes&limit=1": ["%2F/orders"],
        "sort=name&q=mails": ["shop/mails"], "protocol=rocketmq": [],
    }  # fmt: skip
    by_wait = (await api.ask("GET", "/v1/spool?sort=wait")).json()["items"]
    assert [item["waiting_seconds"] for item in by_wait] == [9.5, 3.0, 1.0]
    assert (await api.ask("GET", "/v1/spool?sort=age")).status == 422


async def test_it_can_be_had_as_a_table_for_spreadsheets(api: Control) -> None:
    fill(api)
    answer = await api.ask("GET", "/v1/spool?format=csv&sort=name")
    head, first = answer.body.decode().splitlines()[:2]
    assert (head, first) == ("protocol,topic,messages,bytes,waiting_s,paused,paused_until", "amqp,%2F/orders/created,5,900,1.0,,")


PATH = "/v1/spool/amqp/%2F/orders/created"
TOPIC = "%2F/orders/created"


async def audited(api: Control, action: str) -> list[tuple[str, str, str, str]]:
    items = (await api.ask("GET", "/v1/audit?limit=50")).json()["items"]
    return [(item["by"], item["outcome"], item.get("reason", ""), item.get("detail", "")) for item in items if item["action"] == action]


async def test_a_topic_is_paused_for_a_time_with_a_reason_and_is_in_the_audit(api: Control) -> None:
    answer = await api.ask("POST", f"{PATH}:pause", {"for": "30min", "reason": "repairs"}, role="operator")
    found = answer.json()
    assert (answer.status, found["topic"], found["reason"], found["by"]) == (200, TOPIC, "repairs", "operator")
    paused = api.gateway.paused["amqp", TOPIC]
    assert (paused["ends"], paused["reason"], paused["by"]) == (found["until"], "repairs", "operator")
    assert await audited(api, f"POST {PATH}:pause") == [("operator", "done", "repairs", f"until {found['until']}")]
    assert found["remarks"] == ["no rule spools this topic, whoever sends: only what a rule spools is held"]
    endless = (await api.ask("POST", f"{PATH}:pause?reason=again", {})).json()
    assert (endless["until"], api.gateway.paused["amqp", TOPIC]["until"]) == (None, None)


async def test_a_topic_that_a_rule_spools_needs_no_remark(api: Control) -> None:
    rule = {"match": {"protocol": "amqp"}, "limit": {"messages": "5/s"}, "action": "spool"}
    assert (await api.ask("PUT", "/v1/rules/bursts?force=1", {**rule, "position": "first"})).status == 200
    assert (await api.ask("POST", f"{PATH}:pause", {"reason": "repairs"})).json()["remarks"] == []


async def test_a_pause_without_a_reason_or_with_a_strange_time_is_refused(api: Control) -> None:
    for body, pointer in (({}, "/reason"), ({"reason": "  "}, "/reason"), ({"reason": "x", "for": "soon"}, "/for"),
                          ({"reason": "x", "for": "31d"}, "/for")):  # fmt: skip
        answer = await api.ask("POST", f"{PATH}:pause", body)
        assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, pointer), body
    assert (await api.ask("POST", f"{PATH}:discard", {})).status == 422
    assert api.gateway.paused == {}


async def test_a_dry_run_pauses_and_resumes_nothing(api: Control) -> None:
    assert (await api.ask("POST", f"{PATH}:pause?dry_run=1", {"reason": "x"})).status == 200
    assert api.gateway.paused == {}
    assert (await api.ask("POST", f"{PATH}:resume?dry_run=1", {})).status == 404
    api.gateway.spooled = [{**waiting(TOPIC, 1, 1, 1.0), "paused": {"until": None}}]
    assert (await api.ask("POST", f"{PATH}:resume?dry_run=1", {})).json() == {"done": f"{TOPIC} would go on at its limit"}
    assert await audited(api, f"POST {PATH}:pause") == []


async def test_what_is_not_paused_is_not_resumed(api: Control) -> None:
    assert (await api.ask("POST", f"{PATH}:resume", {})).status == 404
    await api.ask("POST", f"{PATH}:pause", {"reason": "x"})
    assert (await api.ask("POST", f"{PATH}:resume", {"reason": "over"})).json() == {"done": f"{TOPIC} goes on at its limit"}
    assert ("admin", "done", "over", "") in await audited(api, f"POST {PATH}:resume")


async def test_a_discard_says_how_much_and_a_request_that_is_sent_again_does_nothing(api: Control) -> None:
    fill(api)
    preview = (await api.ask("POST", f"{PATH}:discard?dry_run=1", {"reason": "a test of ours"})).json()
    assert (preview["messages"], preview["bytes"], preview["connection_ids"], preview["dry_run"]) == (5, 900, [7], True)
    headers = {"Idempotency-Key": "one"}
    done = (await api.ask("POST", f"{PATH}:discard", {"reason": "a test of ours"}, headers=headers)).json()
    assert done == {**preview, "dry_run": False}
    assert (await api.ask("POST", f"{PATH}:discard", {"reason": "a test of ours"}, headers=headers)).json() == done
    assert await audited(api, f"POST {PATH}:discard") == [("admin", "done", "a test of ours", "5 messages of 1 connections")]
    assert (await api.ask("POST", f"{PATH}:discard", {"reason": "again"})).json()["messages"] == 0


async def test_a_viewer_neither_pauses_nor_discards(api: Control) -> None:
    for verb in ("pause", "resume", "discard"):
        assert (await api.ask("POST", f"{PATH}:{verb}", {"reason": "x"}, role="viewer")).status == 403


async def test_a_drain_names_its_file_and_what_failed(api: Control) -> None:
    fill(api)
    for name in ("", "../out", "/tmp/out", ".hidden", "a b", "x" * 101):
        answer = await api.ask("POST", f"{PATH}:drain", {"to": name, "reason": "x"})
        assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, "/to"), name
    api.gateway.drain_faults = ["File exists: out.jsonl; nothing is given up"]
    refused = await api.ask("POST", f"{PATH}:drain", {"to": "out.jsonl", "reason": "x"})
    assert (refused.status, refused.json()["detail"]) == (500, "nothing was given up: File exists: out.jsonl; nothing is given up")
    api.gateway.drain_faults = []
    api.gateway.drained_files = ["out.jsonl"]
    for query in ("?dry_run=1", ""):
        refused = await api.ask("POST", f"{PATH}:drain{query}", {"to": "out.jsonl", "reason": "x"})
        assert (refused.status, refused.json()["type"]) == (409, "urn:sluice:problem:file-exists")
        assert refused.json()["detail"] == "out.jsonl is there already"
    api.gateway.drained_files = []
    done = (await api.ask("POST", f"{PATH}:drain", {"to": "out.jsonl", "reason": "x"}, role="operator")).json()
    assert (done["messages"], done["files"], done["faults"]) == (5, ["state/drained/out.jsonl"], [])
    lines = await audited(api, f"POST {PATH}:drain")
    assert ("operator", "done", "x", "5 messages of 1 connections to state/drained/out.jsonl") in lines
    assert (await api.ask("POST", f"{PATH}:drain", {"to": "out.jsonl", "reason": "x"}, role="viewer")).status == 403


async def test_a_rocketmq_topic_is_paused_and_given_up_and_no_topic_of_that_name_of_amqp(api: Control) -> None:
    fill(api)
    api.gateway.spooled.append({**waiting("%2F/orders/created", 3, 30, 1.0), "protocol": "rocketmq"})
    path = "/v1/spool/rocketmq/%252F%2Forders%2Fcreated"
    found = (await api.ask("POST", f"{path}:pause", {"reason": "repairs"}, role="operator")).json()
    assert (found["protocol"], found["topic"], list(api.gateway.paused)) == ("rocketmq", TOPIC, [("rocketmq", TOPIC)])
    assert (await api.ask("POST", f"{PATH}:resume", {})).status == 404
    done = (await api.ask("POST", f"{path}:discard", {"reason": "a test"}, role="operator")).json()
    assert (done["protocol"], done["messages"], done["bytes"]) == ("rocketmq", 3, 30)
    drained = (await api.ask("POST", f"{path}:drain", {"to": "o.jsonl", "reason": "x"}, role="operator")).json()
    assert (drained["protocol"], drained["messages"]) == ("rocketmq", 0)
    assert (await api.ask("POST", f"{path}:resume", {"reason": "over"}, role="operator")).status == 200
    assert await audited(api, f"POST {path}:discard") == [("operator", "done", "a test", "3 messages of 1 connections")]
    for verb in ("pause", "resume", "discard"):
        assert (await api.ask("POST", f"{path}:{verb}", {"reason": "x"}, role="viewer")).status == 403
