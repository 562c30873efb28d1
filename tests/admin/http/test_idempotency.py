"""`Idempotency-Key`: the same request twice is done once."""

from __future__ import annotations

import pytest
import trio

from admin.http import idempotency
from support.admin.admin_client import Control

ORDERS = "/v1/limits/rocketmq/orders"
KEY = {"Idempotency-Key": "6f1c03aa-orders"}
BODY = {"messages": "5/s"}


async def test_the_same_request_again_gets_the_same_answer_and_changes_nothing(api: Control) -> None:
    first = await api.ask("PUT", f"{ORDERS}?force=1", BODY, headers=KEY)
    await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "7/s"})  # somebody else, meanwhile
    again = await api.ask("PUT", f"{ORDERS}?force=1", BODY, headers=KEY)
    assert (first.status, again.status, again.body, again.etag) == (200, 200, first.body, first.etag)
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    assert again.headers["x-request-id"] != first.headers["x-request-id"]
    assert api.store.revision == 2


async def test_a_condition_that_no_longer_holds_does_not_hide_that_it_was_done(api: Control) -> None:
    seen = (await api.ask("GET", ORDERS)).etag
    for _ in range(2):
        assert (await api.ask("PUT", ORDERS, BODY, headers={**KEY, "If-Match": seen})).status == 200
    assert (await api.ask("PUT", ORDERS, BODY, headers={"If-Match": seen})).status == 412
    assert api.store.revision == 1


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", f"{ORDERS}?force=1", {"messages": "6/s"}), ("PUT", f"{ORDERS}?force=1&reason=x", BODY),
        ("PATCH", f"{ORDERS}?force=1", BODY), ("PUT", "/v1/limits/rocketmq/other?force=1", BODY), ("DELETE", f"{ORDERS}?force=1", None),
    ],
)  # fmt: skip
async def test_the_same_key_with_another_request_is_422(api: Control, method: str, path: str, body: object) -> None:
    await api.ask("PUT", f"{ORDERS}?force=1", BODY, headers=KEY)
    answer = await api.ask(method, path, body, headers=KEY)
    assert (answer.status, answer.json()["type"]) == (422, "urn:sluice:problem:idempotency-key-reused")
    assert api.store.revision == 1


async def test_keys_are_each_tokens_own(api: Control) -> None:
    await api.ask("PUT", f"{ORDERS}?force=1", BODY, headers=KEY)
    assert (await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "6/s"}, headers=KEY, role="operator")).status == 200
    assert api.store.revision == 2


async def test_what_was_refused_may_be_sent_again(api: Control) -> None:
    assert (await api.ask("PUT", ORDERS, BODY, headers=KEY)).status == 428
    assert (await api.ask("PUT", f"{ORDERS}?force=1", {"messages": "x"}, headers=KEY)).status == 422
    assert (await api.ask("PUT", f"{ORDERS}?force=1", BODY, headers=KEY, role="viewer")).status == 403
    assert (await api.ask("PUT", f"{ORDERS}?force=1&dry_run=1", BODY, headers=KEY)).status == 200
    assert (await api.ask("PUT", f"{ORDERS}?force=1", BODY, headers=KEY)).status == 200
    assert api.store.revision == 1


async def test_an_action_without_a_version_is_done_once_and_audited_once(api: Control) -> None:
    for _ in range(3):
        assert (await api.ask("POST", "/v1/config:reload", {"reason": "r"}, headers=KEY)).status == 200
    assert api.gateway.reloads == 1
    assert len((await api.ask("GET", "/v1/audit")).json()["items"]) == 1


async def test_two_at_the_same_time_are_done_once(api: Control) -> None:
    statuses: list[int] = []

    async def one() -> None:
        statuses.append((await api.ask("PUT", f"{ORDERS}?force=1", BODY, headers=KEY)).status)

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(one)
    assert set(statuses) <= {200, 409}
    assert 200 in statuses
    assert api.store.revision == 1


async def test_a_key_that_cannot_be_one_is_refused(api: Control) -> None:
    for key in ("a b", "x" * 256, ""):
        assert (await api.ask("PUT", f"{ORDERS}?force=1", BODY, headers={"Idempotency-Key": key})).status == 400
    assert api.store.revision == 0


async def test_reads_do_not_mind_a_key(api: Control) -> None:
    assert (await api.ask("GET", ORDERS, headers=KEY)).status == 200


async def test_memory_is_bounded_and_the_oldest_go_first(api: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "MAX_KEYS", 3)
    for number in range(5):
        await api.ask("PUT", f"{ORDERS}?force=1", BODY, headers={"Idempotency-Key": str(number)})
    assert api.store.revision == 5
    assert "idempotency-replayed" in (await api.ask("PUT", f"{ORDERS}?force=1", BODY, headers={"Idempotency-Key": "4"})).headers
    assert "idempotency-replayed" not in (await api.ask("PUT", f"{ORDERS}?force=1", BODY, headers={"Idempotency-Key": "0"})).headers
    monkeypatch.setattr(idempotency, "KEEP_S", -1)
    assert "idempotency-replayed" not in (await api.ask("PUT", f"{ORDERS}?force=1", BODY, headers={"Idempotency-Key": "4"})).headers
