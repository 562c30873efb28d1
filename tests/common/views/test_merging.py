"""The views of several processes as one: each field by its law."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from msgspec.structs import replace

from common.views import connections, limits, listeners, spool, status, topics
from common.views.columns import types_of
from common.views.listeners import CapView, ListenerView, SeatsView, UpstreamView
from common.views.spool import SpoolView
from common.views.status import AccessLogView, EventLoopView, FleetView, LimitsInUseView, MemoryLimitView, StatusView
from common.views.topics import ClientView, LibraryView, RefusedClientView, TopicView
from common.views.view import View, facts, merge, merge_all, merge_processes

MODULES = (connections, limits, listeners, spool, status, topics)
MERGED = (TopicView, ClientView, ListenerView, SpoolView, spool.SpooledTopicView, StatusView, limits.OverLimitView)
EXAMPLES: dict[type, Any] = {
    TopicView: TopicView(protocol="amqp", topic="t"),
    ClientView: ClientView(protocol="amqp", listener="rabbit", client="a"),
    ListenerView: ListenerView(name="rabbit"),
    SpoolView: SpoolView(),
    spool.SpooledTopicView: spool.SpooledTopicView(protocol="amqp", topic="t"),
    StatusView: StatusView(fleet=FleetView(), memory_limit=MemoryLimitView(), spool=SpoolView(), access_log=AccessLogView()),
    limits.OverLimitView: limits.OverLimitView(per="topic", thing="t", rule="r"),
}


def over(client: str, messages: int, **more: Any) -> limits.OverLimitView:
    """As one process has it: its worst client, which makes all that is over the limit there unless `over` says otherwise."""
    found: dict[str, Any] = {
        "per": "vhost", "thing": "/", "rule": "work", "client": client, "client_over": {client: messages}, "over": messages, **more
    }  # fmt: skip
    return limits.OverLimitView(**found).settled()


def topic(received: int, waiting: int = 0, **more: Any) -> TopicView:
    found: dict[str, Any] = {
        "protocol": "amqp", "topic": "t", "received": received, "forwarded": received - waiting, "waiting": waiting,
        "received_per_second": 1.5, "idle_seconds": float(received), **more,
    }  # fmt: skip
    return TopicView(**found)


def client(address: str, refused: int, rate: float) -> RefusedClientView:
    return RefusedClientView(client=address, refused=refused, refused_per_second=rate)


@pytest.mark.parametrize("kind", MERGED)
def test_views_of_two_processes_are_one_of_the_same_type(kind: type[View]) -> None:
    example = EXAMPLES[kind]
    assert merge(example, example) == example, "nothing was counted in either"
    assert merge_all([[example], [example]]) == [example] or kind in {SpoolView, StatusView}


def test_every_number_is_added_but_for_those_that_say_otherwise() -> None:
    """A new field whose law is forgotten would show one process's number as that of all: each number says its law, or is named here."""
    same = {
        "BrokerPortsView.room", "FleetView.gateways", "FleetView.outage_seconds", "ListenerView.max_connections",
        "ListenerView.max_connections_per_address", "ListenerView.max_connections_per_user", "MemoryLimitView.limit_bytes",
        "ListenerView.registrations_refused", "MemoryLimitView.size_bytes", "MemoryLimitView.step",
        "OverLimitView.client_refused", "OverLimitView.client_share",
        "StatusView.pid", "StatusView.revision", "StatusView.uptime_seconds", "StatusView.workers_replaced",
        "UpstreamView.held_seconds",
    }  # fmt: skip
    never_merged = ("ConnectionView", "SilentConnectionView", "WorkerView", "TopicAccountView", "TopicLimitView", "CapView", "HeldView",
                    "StageView", "SpoolStageView", "CreditView", "EncryptionView", "FleetMemberView", "LibraryView")  # fmt: skip
    found = set()
    for module in MODULES:
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, View) and kind is not View and name not in never_merged:
                numbers = {field for field in kind.__struct_fields__ if not {int, float}.isdisjoint(types_of(kind, field))}
                found |= {f"{name}.{field}" for field in numbers if facts(kind)[field].law.__name__ == "first"}
    assert found - {"TopicView.used", "TopicView.wait_ms"} == same, "those of a topic are looked up after the merge"


def test_the_worst_client_of_a_limit_has_its_share_of_what_all_processes_have_over_it() -> None:
    """Where messages wait nothing is refused, and the first process's client was told to make all of it."""
    (found,) = merge_all([[over("a", 50, user="x")], [over("b", 100, user="y")], [over("c", 30, over=50)]])
    assert (found.client, found.user, found.over, found.client_share) == ("b", "y", 200, 0.5)


def test_a_client_of_several_processes_is_over_a_limit_by_the_sum() -> None:
    (found,) = merge_all([[over("a", 60)], [over("a", 40, over=100)]])
    assert (found.client, found.over, found.client_share) == ("a", 160, 0.625)


def test_who_makes_all_of_it_in_several_processes_is_the_only_one() -> None:
    """A client with a connection in each of four workers was the worst of four."""
    (found,) = merge_all([[over("a", 50, clients=1)]] * 4)
    assert (found.clients, found.client_share) == (1, 1.0)
    (found,) = merge_all([[over("a", 50, clients=1)], [over("b", 50, clients=1)]])
    assert (found.clients, found.client_share) == (2, 0.5)


def test_a_topics_counts_are_added_and_the_shortest_idleness_counts() -> None:
    (found,) = merge_all([[topic(3)], [topic(5)]])
    assert (found.topic, found.received, found.received_per_second, found.idle_seconds) == ("t", 8, 3.0, 3.0)


@pytest.mark.parametrize(("one", "other", "expected"), [(None, None, None), (7.0, None, 7.0), (None, 7.0, 7.0), (7.0, 90.5, 90.5)])
def test_the_longest_wait_of_a_worker_counts(one: float | None, other: float | None, expected: float | None) -> None:
    """An upper bound of the 99th percentile of all: at most 1 of 100 messages of each worker waited longer."""
    (found,) = merge_all([[topic(1, wait_p99_ms=one)], [topic(1, wait_p99_ms=other)]])
    assert found.wait_p99_ms == expected
    assert found.strip_rates().wait_p99_ms is None


def test_topics_of_other_operations_stay_apart() -> None:
    assert len(merge_all([[topic(3)], [topic(5, operation="consume")]])) == 2


def test_the_worst_clients_of_all_workers_are_shown() -> None:
    one = [client("a", 5, 1.0), client("b", 9, 0.5)]
    other = [client("b", 9, 0.6), client("c", 1, 0.1), client("d", 1, 0.0)]
    (found,) = merge_all([[topic(1, clients=one)], [topic(1, clients=other)]])
    assert [(each.client, each.refused) for each in found.clients] == [("b", 18), ("a", 5), ("c", 1)]


def ranked(address: str, refused: int, rate: float, **more: Any) -> ClientView:
    found: dict[str, Any] = {
        "protocol": "amqp", "listener": "rabbit", "client": address, "topic": "t", "refused": refused, "refused_per_second": rate,
        "refused_per_second_1s": rate, "idle_seconds": 0.5, **more,
    }  # fmt: skip
    return ClientView(**found)


def test_a_client_that_several_workers_serve_is_one_with_the_topic_of_the_worst() -> None:
    pika, java = LibraryView(product="Pika"), LibraryView(product="RabbitMQ")
    one = [ranked("a", 5, 1.0, topic="quiet", names=["n"], libraries=[pika], idle_seconds=0.1), ranked("b", 1, 0.0)]
    other = [ranked("a", 90, 9.5, topic="storm", libraries=[java, pika]), ranked("a", 7, 0.0, user="shop")]
    found = {(item.client, item.user): item for item in merge_all([one, other])}
    assert set(found) == {("a", None), ("b", None), ("a", "shop")}
    both = found[("a", None)]
    assert (both.refused, both.refused_per_second, both.topic, both.idle_seconds) == (95, 10.5, "storm", 0.1)
    assert (both.libraries, both.names, both.listener) == ([java, pika], ["n"], "rabbit")


def test_an_ended_worker_leaves_no_rates_and_its_waiting_messages_are_abandoned() -> None:
    left = topic(5, waiting=2).strip_rates()
    assert (left.waiting, left.abandoned, left.received_per_second) == (0, 2, 0)
    assert left.received == left.forwarded + left.abandoned + left.waiting


def listener(opened: int, *, reachable: bool | None, **more: Any) -> ListenerView:
    found: dict[str, Any] = {
        "name": "rabbit", "bind": "127.0.0.1:1", "connections_opened": opened, "connections_closed": {"client": opened},
        "upstream_reachable": reachable, **more,
    }  # fmt: skip
    return ListenerView(**found)


def test_a_listeners_connections_are_added() -> None:
    (found,) = merge_all([[listener(2, reachable=True)], [listener(3, reachable=True, connections_closed={"drain": 1})]])
    assert (found.connections_opened, found.connections_closed, found.bind) == (5, {"client": 2, "drain": 1}, "127.0.0.1:1")


def test_seats_of_all_workers_are_no_more_than_the_listener_has() -> None:
    one = listener(1, reachable=True, max_connections=100, seats=SeatsView(taken=3, most=100))
    (found,) = merge_all([[one], [replace(one, seats=SeatsView(taken=4, most=100))]])
    assert found.seats == SeatsView(taken=7, most=100)
    many = replace(one, max_connections=None, seats=SeatsView(taken=3, most=5000))
    assert merge(many, many).seats == SeatsView(taken=6, most=10_000)


def test_each_workers_part_of_a_cap_is_shown() -> None:
    views = [
        [listener(1, reachable=True, caps=[CapView(rule="broker", limit="1000/s", now=now, worker=worker)])]
        for worker, now in ((1, "500/s"), (2, "400/s"))
    ]
    (found,) = merge_all(views)
    assert [(cap.worker, cap.now) for cap in found.caps] == [(1, "500/s"), (2, "400/s")]


def test_a_broker_is_reachable_where_every_worker_reaches_it() -> None:
    reached = [(listener(1, reachable=one), listener(1, reachable=other)) for one, other in ((True, True), (True, False), (None, True))]
    assert [merge(*views).upstream_reachable for views in reached] == [True, False, None]


def test_an_address_is_in_the_worst_state_that_a_worker_sees_and_connections_are_added_up() -> None:
    def of(address: str, state: str, connections: int, *, preferred: bool = False, error: str | None = None) -> UpstreamView:
        return UpstreamView(address=address, state=state, preferred=preferred, connections=connections, error=error)

    one = listener(1, reachable=True, upstreams=[of("a:1", "up", 3, preferred=True), of("b:1", "up", 1)])
    other = listener(1, reachable=True, upstreams=[of("a:1", "down", 2, error="Connection refused"), of("b:1", "up", 4, preferred=True)])
    assert [(each.address, each.state, each.error, each.connections, each.preferred) for each in merge(one, other).upstreams] == [
        ("a:1", "down", "Connection refused", 5, True), ("b:1", "up", None, 5, False),
    ]  # fmt: skip


def test_of_processes_the_slowest_loop_and_the_fullest_memory_count_and_limits_are_added() -> None:
    one = StatusView(
        connections=2, event_loop=EventLoopView(sweeps=5, lag_ms=1.0), limits=LimitsInUseView(keys=3),
        memory_limit=MemoryLimitView(step=1, size_bytes=90, limit_bytes=100, doing="closing"),
    )  # fmt: skip
    other = StatusView(
        connections=3, event_loop=EventLoopView(sweeps=6, lag_ms=7.0), limits=LimitsInUseView(keys=4),
        memory_limit=MemoryLimitView(size_bytes=10, limit_bytes=100), access_log=AccessLogView(free_bytes=7),
    )  # fmt: skip
    found = merge_processes(StatusView, [other, one])
    assert (found.connections, found.event_loop, found.limits.keys) == (5, EventLoopView(sweeps=11, lag_ms=7.0), 7)
    assert (found.memory_limit, found.access_log) == (one.memory_limit, AccessLogView(free_bytes=7))
    assert merge_processes(StatusView, []) == StatusView(), "no process has reported"


def test_of_a_fleet_the_worst_outage_counts() -> None:
    well = FleetView(name="shop", asks=3, missing=["a"], round_trip_ms=1.0)
    lost = FleetView(name="shop", reachable=False, asks=4, reason="timeout", outage_seconds=7.0, round_trip_ms=2.0)
    found = merge(well, lost)
    assert (found.reachable, found.reason, found.outage_seconds, found.asks, found.round_trip_ms) == (False, "timeout", 7.0, 7, 2.0)
