"""Several workers' views as one."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.telemetry import summing


def topic(received: int, waiting: int = 0, **more: object) -> dict[str, Any]:
    return {
        "protocol": "amqp", "topic": "t", "operation": "produce", "group": None, "received": received, "forwarded": received - waiting,
        "abandoned": 0, "waiting": waiting, "received_per_second": 1.5, "forwarded_per_second": 0.0, "refused_per_second": 0.0,
        "bytes_per_second": 0.0, "idle_seconds": float(received), "wait_p99_ms": None, "clients": [],
        **more,
    }  # fmt: skip


def client(address: str, refused: int, rate: float) -> dict[str, Any]:
    return {"client": address, "forwarded": 0, "refused": refused, "refused_per_second": rate}


def test_a_topics_counts_are_added_and_the_shortest_idleness_counts() -> None:
    (found,) = summing.topics([[topic(3)], [topic(5)]])
    assert (found["topic"], found["received"], found["received_per_second"], found["idle_seconds"]) == ("t", 8, 3.0, 3.0)


@pytest.mark.parametrize(("one", "other", "expected"), [(None, None, None), (7.0, None, 7.0), (None, 7.0, 7.0), (7.0, 90.5, 90.5)])
def test_the_longest_wait_of_a_worker_counts(one: float | None, other: float | None, expected: float | None) -> None:
    """An upper bound of the 99th percentile of all: at most 1 of 100 messages of each worker waited longer."""
    (found,) = summing.topics([[topic(1, wait_p99_ms=one)], [topic(1, wait_p99_ms=other)]])
    assert found["wait_p99_ms"] == expected
    assert summing.ended([found])[0]["wait_p99_ms"] is None


def test_topics_of_other_operations_stay_apart() -> None:
    assert len(summing.topics([[topic(3)], [topic(5, operation="consume")]])) == 2


def test_the_worst_clients_of_all_workers_are_shown() -> None:
    one = [client("a", 5, 1.0), client("b", 9, 0.5)]
    other = [client("b", 9, 0.6), client("c", 1, 0.1), client("d", 1, 0.0)]
    (found,) = summing.topics([[topic(1, clients=one)], [topic(1, clients=other)]])
    assert [(each["client"], each["refused"]) for each in found["clients"]] == [("b", 18), ("a", 5), ("c", 1)]


def ranked(address: str, refused: int, rate: float, **more: object) -> dict[str, Any]:
    return {
        "protocol": "amqp", "listener": "rabbit", "client": address, "user": None, "names": [], "libraries": [], "topic": "t",
        "operation": "produce", "refused": refused, "delayed": 0, "refused_per_second": rate, "delayed_per_second": 0.0,
        "refused_per_second_1s": rate, "delayed_per_second_1s": 0.0, "idle_seconds": 0.5, **more,
    }  # fmt: skip


def test_a_client_that_several_workers_serve_is_one_with_the_topic_of_the_worst() -> None:
    pika, java = {"product": "Pika"}, {"product": "RabbitMQ"}
    one = [ranked("a", 5, 1.0, topic="quiet", names=["n"], libraries=[pika], idle_seconds=0.1), ranked("b", 1, 0.0)]
    other = [ranked("a", 90, 9.5, topic="storm", libraries=[java, pika]), ranked("a", 7, 0.0, user="shop")]
    found = {(item["client"], item["user"]): item for item in summing.clients([one, other])}
    assert set(found) == {("a", None), ("b", None), ("a", "shop")}
    both = found[("a", None)]
    assert (both["refused"], both["refused_per_second"], both["topic"], both["idle_seconds"]) == (95, 10.5, "storm", 0.1)
    assert (both["libraries"], both["names"], both["listener"]) == ([java, pika], ["n"], "rabbit")


def test_an_ended_worker_leaves_no_rates_and_its_waiting_messages_are_abandoned() -> None:
    (left,) = summing.ended([topic(5, waiting=2)])
    assert (left["waiting"], left["abandoned"], left["received_per_second"]) == (0, 2, 0)
    assert left["received"] == left["forwarded"] + left["abandoned"] + left["waiting"]


def listener(opened: int, *, reachable: bool | None, **more: object) -> dict[str, Any]:
    return {
        "name": "rabbit", "bind": "127.0.0.1:1", "connections_opened": opened, "connections_closed": {"client": opened},
        "upstream_reachable": reachable, "upstream_error": None, "upstream_reason": None, "upstreams": [],
        "max_connections": None, "max_connections_per_address": None,
        "max_connections_per_user": None, "tls": None, "caps": [], **more,
    }  # fmt: skip


def test_a_listeners_connections_are_added() -> None:
    (found,) = summing.listeners([[listener(2, reachable=True)], [listener(3, reachable=True, connections_closed={"drain": 1})]])
    assert (found["connections_opened"], found["connections_closed"], found["bind"]) == (5, {"client": 2, "drain": 1}, "127.0.0.1:1")


def test_each_worker_shows_its_own_part_of_a_cap() -> None:
    views = [[listener(1, reachable=True, caps=[{"rule": "broker", "now": now}])] for now in ("500/s", "400/s")]
    (found,) = summing.listeners(views)
    assert [cap["now"] for cap in found["caps"]] == ["500/s", "400/s"]


def test_each_workers_part_of_a_cap_is_shown() -> None:
    (found,) = summing.listeners([[listener(1, reachable=True, caps=[{"worker": 1}])], [listener(1, reachable=True, caps=[{"worker": 2}])]])
    assert found["caps"] == [{"worker": 1}, {"worker": 2}]


def test_a_broker_is_reachable_where_every_worker_reaches_it() -> None:
    reached = [[[listener(1, reachable=one)], [listener(1, reachable=other)]] for one, other in ((True, True), (True, False), (None, True))]
    assert [summing.listeners(views)[0]["upstream_reachable"] for views in reached] == [True, False, None]


def test_an_address_is_in_the_worst_state_that_a_worker_sees_and_connections_are_added_up() -> None:
    def of(state: str, connections: int, error: str | None = None) -> dict[str, object]:
        return {"address": "a:1", "state": state, "preferred": state == "up", "connections": connections, "error": error}

    one, other = listener(1, reachable=True), listener(1, reachable=True)
    one["upstreams"] = [of("up", 3), {**of("up", 1), "address": "b:1", "preferred": False}]
    other["upstreams"] = [of("down", 2, error="Connection refused"), {**of("up", 4), "address": "b:1", "preferred": True}]
    (found,) = summing.listeners([[one], [other]])
    assert [(each["address"], each["state"], each["error"], each["connections"], each["preferred"]) for each in found["upstreams"]] == [
        ("a:1", "down", "Connection refused", 5, True), ("b:1", "up", None, 5, False),
    ]  # fmt: skip
