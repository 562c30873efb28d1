"""`/v1/quotas`: a snapshot swapped as a whole."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from admin.endpoints.quotas import BODY_LIMIT
from admin.store.snapshots import KEEP
from limiter.topics import rocketmq_topic
from support.admin.admin_client import Control, control


def snapshot(**rates: int) -> dict[str, object]:
    quotas = [{"protocol": "rocketmq", "topic": topic, "messages": {"rate": rate, "burst": rate}} for topic, rate in rates.items()]
    return {"version": 1, "computed_at": "2026-11-21T01:00:00Z", "code": "0.1.0", "quotas": quotas}


async def test_quotas_hold_between_file_and_pattern(api: Control) -> None:
    answer = await api.ask("PUT", "/v1/quotas?force=1&reason=nightly", snapshot(orders=50, other=60))
    assert answer.status == 200
    assert (answer.json()["published"]["quotas"], answer.json()["revision"]) == (2, 1)
    level = (await api.ask("GET", "/v1/limits/rocketmq/orders")).json()["levels"][0]
    assert (level["origin"], level["limit"]["messages"]) == ("quota", "50/s")
    assert api.gateway.flood(rocketmq_topic(b"orders"), 5000, 10**9) == 50
    await api.ask("PUT", "/v1/limits/rocketmq/orders?force=1", {"messages": "7/s"})
    assert (await api.ask("GET", "/v1/limits/rocketmq/orders")).json()["levels"][0]["origin"] == "override"


async def test_a_snapshot_that_was_read_can_be_written_back(api: Control) -> None:
    empty = await api.ask("GET", "/v1/quotas")
    assert empty.json()["quotas"] == []
    await api.ask("PUT", "/v1/quotas", snapshot(orders=50), headers={"If-Match": empty.etag})
    read = await api.ask("GET", "/v1/quotas")
    assert read.json()["quotas"][0]["messages"] == {"rate": 50, "burst": 50}
    again = await api.ask("PUT", "/v1/quotas", read.body, headers={"If-Match": read.etag})
    assert again.json()["published"]["sha256"] == (await api.ask("GET", "/v1/history/1")).json()["entry"]["changes"][0]["after"]["sha256"]
    assert (await api.ask("PUT", "/v1/quotas", empty.body, headers={"If-Match": again.etag})).status == 200
    assert (await api.ask("GET", "/v1/limits/rocketmq/orders")).json()["levels"][0]["origin"] == "default"


async def test_preconditions(api: Control) -> None:
    assert (await api.ask("PUT", "/v1/quotas", snapshot(orders=1))).status == 428
    assert (await api.ask("PUT", "/v1/quotas", snapshot(orders=1), headers={"If-Match": '"x"'})).status == 412
    assert api.store.revision == 0


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b"{", ""),
        (b"{}", "/version"),
        (json.dumps(snapshot(orders=-1)).encode(), "/quotas/0/messages/rate"),
        (json.dumps({**snapshot(), "extra": 1}).encode(), "/extra"),
        (
            json.dumps({**snapshot(), "quotas": [{"protocol": "amqp", "topic": "x", "messages": {"rate": 1, "burst": 1}}]}).encode(),
            "/quotas/0/topic",
        ),
    ],
)
async def test_a_faulty_snapshot_names_the_place_and_changes_nothing(api: Control, body: bytes, pointer: str) -> None:
    await api.ask("PUT", "/v1/quotas?force=1", snapshot(orders=50))
    answer = await api.ask("PUT", "/v1/quotas?force=1", body)
    assert (answer.status, [fault["pointer"] for fault in answer.json()["errors"]]) == (422, [pointer])
    assert (api.store.revision, (await api.ask("GET", "/v1/quotas")).json()["quotas"][0]["topic"]) == (1, "orders")


async def test_a_dry_run_names_the_topics_in_use(api: Control) -> None:
    api.gateway.flood(rocketmq_topic(b"orders"), 1, 10**9)
    preview = (await api.ask("PUT", "/v1/quotas?dry_run=1", snapshot(orders=50, other=60))).json()
    assert [topic["topic"] for topic in preview["topics"]] == ["orders"]
    assert (api.store.revision, list((api.folder).glob("quotas/*"))) == (0, [])


async def test_large_snapshots_are_taken(api: Control) -> None:
    large = snapshot(**{f"topic-{number:05d}": 1 + number for number in range(3000)})
    assert len(json.dumps(large)) > 256 * 1024
    assert (await api.ask("PUT", "/v1/quotas?force=1", large)).json()["published"]["quotas"] == 3000


async def test_a_snapshot_may_come_compressed(api: Control) -> None:
    plain = json.dumps(snapshot(**{f"topic-{number:05d}": 1 + number for number in range(3000)})).encode()
    packed = gzip.compress(plain)
    assert len(packed) < len(plain) / 5
    told = {"Content-Encoding": "gzip"}
    assert (await api.ask("PUT", "/v1/quotas?force=1", packed, headers=told)).json()["published"]["quotas"] == 3000
    assert (await api.ask("GET", "/v1/quotas/status")).json()["encodings"] == ["gzip"]
    bomb = gzip.compress(b" " * (BODY_LIMIT + 1))
    refused = {
        "no gzip": (plain, told, 400), "cut off": (packed[:-9], told, 400), "two": (packed + packed, told, 400),
        "larger than a gateway takes": (bomb, told, 413), "another way": (packed, {"Content-Encoding": "br"}, 415),
    }  # fmt: skip
    for name, (body, headers, status) in refused.items():
        answer = await api.ask("PUT", "/v1/quotas?force=1", body, headers=headers)
        assert (name, answer.status) == (name, status)
    assert api.store.revision == 1


async def test_quotas_hold_over_a_restart(tmp_path: Path) -> None:
    async with control(tmp_path) as api:
        await api.ask("PUT", "/v1/quotas?force=1", snapshot(orders=50))
    async with control(tmp_path) as api:
        assert api.gateway.flood(rocketmq_topic(b"orders"), 5000, 10**9) == 50


async def test_only_the_last_snapshots_are_kept(api: Control) -> None:
    for rate in range(1, KEEP + 4):
        assert (await api.ask("PUT", "/v1/quotas?force=1", snapshot(orders=rate))).status == 200
    assert len(list(api.folder.glob("quotas/*.json"))) == KEEP
    assert (await api.ask("POST", f"/v1/history/{KEEP}:rollback?force=1")).status == 200
    assert (await api.ask("GET", "/v1/quotas")).json()["quotas"][0]["messages"]["rate"] == KEEP
    gone = await api.ask("POST", "/v1/history/1:rollback?force=1")
    assert (gone.status, gone.json()["type"]) == (409, "urn:sluice:problem:snapshot-gone")
