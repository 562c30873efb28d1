"""What the lists of live state cost: descriptions and search words are made of what is asked for, and of nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from admin.endpoints import traffic
from admin.http.paging import matches
from admin.http.routing import Request
from common.views.listeners import ListenerView
from support.admin.admin_client import Control


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The words of each item that was searched."""
    found: list[tuple[str, ...]] = []

    def noted(request: Request, *names: str) -> bool:
        found.append(names)
        return matches(request, *names)

    monkeypatch.setattr(traffic, "matches", noted)
    return found


def connect(api: Control, most: int) -> None:
    api.gateway.open_connections = [
        {"id": number, "client": f"10.0.0.{number}:1", "protocol": "amqp" if number % 2 else "rocketmq"} for number in range(1, most + 1)
    ]


async def test_only_the_connections_of_a_page_are_described(api: Control) -> None:
    connect(api, 9)
    page = (await api.ask("GET", "/v1/connections?limit=2")).json()
    await api.ask("GET", f"/v1/connections?limit=3&cursor={page['next']}")
    await api.ask("GET", "/v1/connections?limit=2&protocol=rocketmq")
    assert api.gateway.described == [[1, 2], [3, 4, 5], [2, 4]]


async def test_a_protocols_connections_are_counted_and_paged_as_a_list_of_their_own(api: Control) -> None:
    connect(api, 5)
    page = (await api.ask("GET", "/v1/connections?protocol=amqp&limit=2")).json()
    rest = (await api.ask("GET", f"/v1/connections?protocol=amqp&cursor={page['next']}")).json()
    assert [[item["id"] for item in part["items"]] for part in (page, rest)] == [[1, 3], [5]]
    assert (page["total"], rest["next"]) == (3, None)


async def test_a_search_looks_at_every_text_of_every_connection(api: Control, searched: list[tuple[str, ...]]) -> None:
    connect(api, 5)
    found = (await api.ask("GET", "/v1/connections?q=rocket&limit=1")).json()
    assert ([item["id"] for item in found["items"]], found["total"]) == ([2], 2)
    assert (api.gateway.described, len(searched)) == ([[1, 2, 3, 4, 5]], 5)


async def test_listeners_are_paged_and_filtered_in_their_order(api: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server's listener can have one for each broker; the list took no parameters until November 2026."""
    known = [
        ListenerView(name=f"l{number}", protocol="amqp" if number % 2 else "rocketmq", bind=f"127.0.0.1:{number}") for number in (3, 1, 2)
    ]
    monkeypatch.setattr(api.gateway, "listeners", lambda: known)
    page = (await api.ask("GET", "/v1/listeners?limit=2")).json()
    rest = (await api.ask("GET", f"/v1/listeners?limit=2&cursor={page['next']}")).json()
    assert [[item["name"] for item in part["items"]] for part in (page, rest)] == [["l3", "l1"], ["l2"]]
    assert (page["total"], rest["next"]) == (3, None)
    found = [(await api.ask("GET", f"/v1/listeners?{query}")).json() for query in ("protocol=amqp", "q=:2", "q=rocketmq&protocol=amqp")]
    assert [[item["name"] for item in part["items"]] for part in found] == [["l3", "l1"], ["l2"], []]


def over_limit(address: str, refused: float, delayed: float, total: int, **more: object) -> dict[str, object]:
    rates = {"refused_per_second": refused, "delayed_per_second": delayed, "refused": total, "delayed": 0}
    said = {"names": ["checkout-7"], "libraries": [{"product": "Pika"}]} if address == "10.0.0.2" else {"names": [], "libraries": []}
    return {"protocol": "amqp", "listener": "rabbit", "client": address, "user": None, "topic": "t", **rates, **said, **more}


async def test_clients_are_ranked_over_all_topics_searched_and_paged_with_a_viewers_token(api: Control) -> None:
    api.gateway.seen_clients = [
        over_limit("10.0.0.1", 5.0, 0.0, 900), over_limit("10.0.0.2", 70.5, 0.0, 80), over_limit("10.0.0.3", 0.0, 9.0, 0),
        over_limit("10.0.0.4", 0.0, 0.0, 2, protocol="rocketmq"), over_limit("10.0.0.5", 5.0, 3.0, 5),
    ]  # fmt: skip

    async def asked(query: str) -> list[str]:
        answer = await api.ask("GET", f"/v1/clients?{query}", role="viewer")
        assert answer.status == 200, answer.body
        return [str(item["client"])[-1] for item in answer.json()["items"]]

    assert await asked("") == ["2", "5", "1", "3", "4"]
    assert await asked("sort=held") == ["3", "5", "2", "1", "4"]
    assert await asked("sort=total") == ["1", "2", "5", "4", "3"]
    assert await asked("sort=name") == ["1", "2", "3", "4", "5"]
    assert await asked("q=CHECKOUT") == await asked("q=pika") == ["2"]
    assert await asked("protocol=rocketmq") == ["4"]
    first = (await api.ask("GET", "/v1/clients?limit=2")).json()
    rest = (await api.ask("GET", f"/v1/clients?cursor={first['next']}")).json()
    assert [[item["client"][-1] for item in page["items"]] for page in (first, rest)] == [["2", "5"], ["1", "3", "4"]]
    assert (first["total"], rest["next"]) == (5, None)
    assert (await api.ask("GET", "/v1/clients?sort=nobody")).status == 422


@pytest.mark.parametrize("query", ["", "?q=", "?protocol=amqp"])
async def test_a_list_without_a_search_term_searches_nothing(api: Control, searched: list[tuple[str, ...]], query: str) -> None:
    connect(api, 3)
    api.gateway.seen_topics = [{"protocol": "amqp", "topic": name, "operation": "produce"} for name in "abc"]
    shown = [len((await api.ask("GET", f"/v1/{what}{query}")).json()["items"]) for what in ("topics", "connections")]
    assert (searched, shown) == ([], [3, 2 if "protocol" in query else 3])


async def test_a_search_gives_the_loop_its_turns(api: Control, searched: list[tuple[str, ...]]) -> None:
    connect(api, 10 * traffic.SLICE_ITEMS)
    most = seen = 0

    class Steps(trio.abc.Instrument):
        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal most, seen
            del task
            most, seen = max(most, len(searched) - seen), len(searched)

    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    assert (await api.ask("GET", "/v1/connections?q=nowhere")).json()["total"] == 0
    trio.lowlevel.remove_instrument(steps)
    assert (len(searched), most) == (10 * traffic.SLICE_ITEMS, traffic.SLICE_ITEMS)


async def test_one_connection_is_found_without_the_others(api: Control) -> None:
    connect(api, 9)
    assert (await api.ask("GET", "/v1/connections/7")).json()["id"] == 7
    assert (await api.ask("DELETE", "/v1/connections/7")).json() == {"done": "connection 7 is being closed"}
    assert (api.gateway.described, api.gateway.closed) == ([[7]], [7])


@pytest.mark.parametrize("text", ["0", "07", "+7", "%207", "7_0", "7.0", "-7", "x", "%D9%A7", "%FF", "9" * 5000])
async def test_a_connection_has_one_name(api: Control, text: str) -> None:
    connect(api, 99)
    for method in ("GET", "DELETE"):
        answer = await api.ask(method, f"/v1/connections/{text}")
        assert (answer.status, answer.json()["type"]) == (404, "urn:sluice:problem:not-found")
    assert (api.gateway.described, api.gateway.closed) == ([], [])


async def test_a_connection_that_ends_while_it_is_asked_for_is_left_out(api: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(api, 3)
    monkeypatch.setattr(api.gateway, "connections", lambda: dict.fromkeys(range(1, 5), "amqp"))
    assert [item["id"] for item in (await api.ask("GET", "/v1/connections")).json()["items"]] == [1, 2, 3]
    gone = await api.ask("GET", "/v1/connections/4")
    assert (gone.status, gone.json()["detail"]) == (404, "connection 4 has just ended by itself")


async def test_connections_sorted_by_what_is_largest(api: Control) -> None:
    numbers = {1: (5, 0.0, 0.5), 2: (900, 0.0, 0.0), 3: (0, 2.0, 0.0)}
    api.gateway.open_connections = [
        {"id": number, "protocol": "amqp", "messages_forwarded": passed, "broker_blocked_seconds": blocked, "send_blocked_seconds": slow}
        for number, (passed, blocked, slow) in numbers.items()
    ]

    async def order(sort: str) -> list[int]:
        return [item["id"] for item in (await api.ask("GET", f"/v1/connections?sort={sort}")).json()["items"]]

    assert [await order("forwarded"), await order("blocked"), await order("name")] == [[2, 1, 3], [3, 1, 2], [1, 2, 3]]


def seen(topic: str, protocol: str = "rocketmq", **more: Any) -> dict[str, Any]:
    return {"protocol": protocol, "topic": topic, "operation": "produce", "clients": [], **more}


async def asked_topics(api: Control, query: str) -> tuple[list[str], int]:
    found = (await api.ask("GET", f"/v1/topics?{query}")).json()
    return [item["topic"] for item in found["items"]], found["total"]


async def test_the_worst_topics_come_first_and_a_page_begins_anywhere(api: Control) -> None:
    """The page fetched all topics in the order of their names, and called what had come "Refused first"."""
    api.gateway.seen_topics = [
        seen("a", received_per_second=900.0), seen("b"), seen("c", waiting=3900), seen("d", waiting=40, refused_per_second=0.5),
        seen("e", refused_per_second=20.0), seen("f", shadow_refused=7), seen("g", received_per_second=2.0),
    ]  # fmt: skip
    assert await asked_topics(api, "sort=worst") == (["e", "d", "c", "a", "g", "b", "f"], 7)
    assert await asked_topics(api, "sort=worst&limit=2&offset=3") == (["a", "g"], 7)
    assert await asked_topics(api, "sort=worst&limit=2&offset=7") == ([], 7)
    assert (await asked_topics(api, "sort=would_refuse&limit=1"))[0] == ["f"]
    assert api.gateway.topics_asked == [7, 2, 0, 1], "only the topics of a page are described"


async def test_a_page_deep_in_a_long_list_is_the_one_asked_for(api: Control) -> None:
    api.gateway.seen_topics = [seen(f"many.{at:04}") for at in range(1200)]
    assert await asked_topics(api, "sort=worst&limit=3&offset=1100") == (["many.1100", "many.1101", "many.1102"], 1200)


@pytest.mark.parametrize(
    ("query", "moving"),
    [
        ("sort=worst", 30),
        ("sort=worst", 1100),
        ("sort=worst&q=M", 30),
        ("sort=name&protocol=rocketmq", 30),
        ("sort=would_refuse", 900),
        ("sort=worst&q=m%20.", 1200),
    ],
)
async def test_all_pages_together_are_the_list_whatever_moves(api: Control, query: str, moving: int) -> None:
    """Those with a number come first; the others, of which there may be 100,000, come by their names."""
    shuffled = sorted(range(1200), key=lambda at: at * 7919 % 1200)
    api.gateway.seen_topics = [seen(f"m.{at:04}", refused_per_second=float(at % 4), shadow_refused=at % 4) for at in shuffled[:moving]]
    api.gateway.seen_topics += [seen(f"m.{at:04}") for at in shuffled[moving:]]
    whole: list[str] = []
    cursor = ""
    while True:
        answer = (await api.ask("GET", f"/v1/topics?{query}&limit=100{cursor}")).json()
        whole += [item["topic"] for item in answer["items"]]
        assert answer["total"] == 1200
        if answer.get("next") is None:
            break
        cursor = f"&cursor={answer['next']}"
    by_offset = [
        topic for at in range(0, 1200, 100) for topic in (await asked_topics(api, f"{query}&limit=100{f'&offset={at}' if at else ''}"))[0]
    ]
    assert len(set(whole)) == len(whole) == 1200
    assert whole == by_offset
    numbers = {} if "name" in query else {f"m.{at:04}": at % 4 for at in shuffled[:moving]}
    assert whole == sorted(whole, key=lambda topic: (-numbers.get(topic, 0), topic))


async def test_a_page_may_end_amid_topics_that_have_the_same_number(api: Control) -> None:
    refused = {f"m.{at * 7919 % 60:04}": float(at % 3) for at in range(60)}
    api.gateway.seen_topics = [seen(topic, refused_per_second=number) for topic, number in refused.items()]
    wanted = sorted(refused, key=lambda topic: (-refused[topic], topic))
    cursor = ""
    for first in range(0, 60, 7):
        answer = (await api.ask("GET", f"/v1/topics?sort=refused&limit=7{cursor}")).json()
        assert [item["topic"] for item in answer["items"]] == wanted[first : first + 7]
        offset = f"&offset={first}" if first else ""
        assert await asked_topics(api, f"sort=refused&limit=7{offset}") == (wanted[first : first + 7], 60)
        cursor = f"&cursor={answer.get('next')}"
    assert answer.get("next") is None


async def test_a_topic_is_found_by_just_its_name_however_many_have_it_in_theirs(api: Control) -> None:
    """The topic's screen searched its name, and showed no figures where 500 others that have it in theirs came first."""
    api.gateway.seen_topics = [seen(f"{at:03}.orders") for at in range(600)] + [seen("orders"), seen("orders", "amqp"), seen("ORDERS")]
    api.gateway.seen_topics += [seen("orders") | {"operation": "consume"}]
    assert await asked_topics(api, "topic=orders&protocol=rocketmq") == (["orders", "orders"], 2)
    assert await asked_topics(api, "topic=orders&limit=1&q=x") == (["orders"] * 3, 3)
    assert await asked_topics(api, "topic=order") == ([], 0)


async def test_a_page_goes_on_behind_a_name_with_spaces(api: Control) -> None:
    """Clients of RocketMQ choose such names. Until November 2026 the page behind one began with it again."""
    names = ["a", "a b", "a b c", "a  d", " ", "b"]
    api.gateway.seen_topics = [seen(name, received_per_second=float(name == "a b c")) for name in names]
    for sort, wanted in (("name", sorted(names)), ("rate", ["a b c", *sorted(set(names) - {"a b c"})])):
        found: list[str] = []
        cursor = ""
        for _ in names:
            answer = (await api.ask("GET", f"/v1/topics?sort={sort}&limit=1{cursor}")).json()
            found += [item["topic"] for item in answer["items"]]
            cursor = f"&cursor={answer.get('next')}"
        assert (found, answer.get("next")) == (wanted, None)


async def test_by_wait_those_come_first_whose_last_message_waits_longest(api: Control) -> None:
    api.gateway.seen_topics = [seen("short", waiting=400), seen("long", waiting=9000), seen("calm", received_per_second=1.0)]
    assert (await asked_topics(api, "sort=wait"))[0] == ["long", "short", "calm"]


async def test_by_use_and_by_wait_describe_no_topic_but_those_of_the_page_and_those_that_wait(api: Control) -> None:
    """Each page of 10,000 topics that moved described all of them: 0.8 s of the processor every two seconds."""
    rates = {"half": 20.0, "calm": 1.0, "bytes": 8.0, "held": 4.0, "shut": 0.5, "free": 99.0, "at rest": 0.0}
    api.gateway.seen_topics = [
        seen(name, received_per_second=rate, forwarded_per_second=rate, bytes_per_second=1000 * rate, waiting=900 if name == "held" else 0)
        for name, rate in rates.items()
    ]
    for name, limit in (("half", "40/s"), ("calm", "40/s"), ("held", "4/s"), ("shut", "0/s")):
        await api.ask("PUT", f"/v1/limits/rocketmq/{name}?force=1", {"messages": limit, "action": "delay"})
    await api.ask("PUT", "/v1/limits/rocketmq/bytes?force=1", {"messages": "80/s", "bytes": "10kB/s"})
    await api.ask("PUT", "/v1/limits/rocketmq/free?force=1", {"messages": "99/s", "mode": "off"})
    api.gateway.topics_asked.clear()
    by_use = (await api.ask("GET", "/v1/topics?sort=used")).json()["items"]
    assert [(item["topic"], item["used"]) for item in by_use if item["used"]] == [
        ("held", 1.0),
        ("shut", 1.0),
        ("bytes", 0.8),
        ("half", 0.5),
        ("calm", 0.025),
    ]
    assert (await asked_topics(api, "sort=wait"))[0][0] == "held"
    assert api.gateway.topics_asked == [7, 1, 7]


async def test_a_page_that_ends_with_what_waits_without_end_has_a_next_one(api: Control) -> None:
    api.gateway.seen_topics = [seen("stopped", waiting=400), seen("calm", received_per_second=1.0)]
    await api.ask("PUT", "/v1/limits/rocketmq/stopped?force=1", {"messages": "0/s", "action": "delay"})
    first = (await api.ask("GET", "/v1/topics?sort=wait&limit=1")).json()
    assert [item["topic"] for item in first["items"]] == ["stopped"]
    rest = await api.ask("GET", f"/v1/topics?sort=wait&limit=1&cursor={first['next']}")
    assert (rest.status, [item["topic"] for item in rest.json()["items"]]) == (200, ["calm"])


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("CREATED", ["%2F/orders/order.created"]),
        ("order", ["%2F/orders/order.created", "orders"]),
        ("/orders/", ["%2F/orders/order.created"]),
        ("order%20created", ["%2F/orders/order.created"]),
        ("%25e8%25ae%25a2", ["%E8%AE%A2/x/y"]),
        ("%E8%AE%A2", ["%E8%AE%A2/x/y"]),
        ("10.0.0.7", []),
    ],
)
async def test_topics_are_found_by_their_names_as_written_or_as_read(api: Control, words: str, found: list[str]) -> None:
    api.gateway.seen_topics = [
        seen("%2F/orders/order.created", "amqp"), seen("%E8%AE%A2/x/y", "amqp"), seen("orders", clients=[{"client": "10.0.0.7"}])
    ]  # fmt: skip
    assert sorted((await asked_topics(api, f"q={words}"))[0]) == found
    assert len(api.gateway.topics_asked) <= 1, "to search describes none"
