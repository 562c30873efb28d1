"""`GET /v1/spool`: the spool as a whole, and the topics that wait in it."""

from __future__ import annotations

from support.admin.admin_client import Control


def waiting(topic: str, messages: int, size: int, seconds: float) -> dict[str, object]:
    return {
        "protocol": "amqp",
        "topic": topic,
        "messages": messages,
        "bytes": size,
        "disk_messages": 0,
        "disk_bytes": 0,
        "waiting_seconds": seconds,
    }


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
    assert (first["spool"]["messages"], first["spool"]["topics"]) == (80, 3)


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
    assert (head, first) == (
        "protocol,topic,messages,bytes,disk_messages,disk_bytes,waiting_s",
        "amqp,%2F/orders/created,5,900,0,0,1.0",
    )
