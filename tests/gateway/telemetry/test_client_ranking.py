"""The ranking of clients over a limit, of all topics: the worst is always listed, and known for a while after it has gone."""

from __future__ import annotations

from common.views.topics import ClientView, LibraryView
from gateway.counting.recent_rates import TICKS
from gateway.telemetry.client_ranking import KEEP_S, MAX_CLIENTS, MAX_NEWCOMERS, MAX_TOPICS_OF_CLIENT, ClientRanking
from limiter.keys import Key, Origin, Tally
from limiter.rules.sender import Sender
from limiter.topics import rocketmq_topic

PIKA: dict[str, object] = {"product": "Pika Python Client Library", "version": "1.4.4"}


def key(topic: str, address: str = "10.0.0.7", user: str | None = "shop", listener: str = "rocket") -> Key:
    return Key(Origin("rocketmq", Sender(listener, address, user), b""), rocketmq_topic(topic.encode()), None, "produce")


def tally(refused: int = 0, delayed: int = 0, dropped: int = 0, passed: int = 0) -> Tally:
    made = Tally()
    made.refused, made.delayed, made.dropped, made.messages = refused, delayed, dropped, passed
    return made


def only(ranking: ClientRanking) -> ClientView:
    (item,) = ranking.describe()
    return item


def test_a_clients_refusals_of_all_topics_are_one_sum_with_the_worst_topic() -> None:
    ranking = ClientRanking()
    for _ in range(3):
        ranking.add(key("orders"), tally(refused=20))
        ranking.add(key("bills"), tally(refused=70, dropped=10, passed=5))
        ranking.tick(1.0)
    item = only(ranking)
    assert (item.client, item.user, item.listener, item.protocol) == ("10.0.0.7", "shop", "rocket", "rocketmq")
    assert (item.refused, item.refused_per_second, item.refused_per_second_1s) == (300, 100.0, 100.0)
    assert (item.topic, item.operation, item.idle_seconds) == ("bills", "produce", 1.0)


def test_messages_that_are_held_count_apart_for_publishers_without_confirms_are_not_refused() -> None:
    ranking = ClientRanking()
    ranking.add(key("orders"), tally(delayed=30))
    ranking.tick(1.0)
    item = only(ranking)
    assert (item.delayed, item.delayed_per_second, item.refused, item.refused_per_second) == (30, 30.0, 0, 0.0)


def test_who_is_within_the_limits_is_not_listed() -> None:
    ranking = ClientRanking()
    ranking.add(key("orders"), tally(passed=500))
    assert ranking.describe() == []


def test_users_and_listeners_of_one_address_are_told_apart() -> None:
    ranking = ClientRanking()
    for each in (key("orders"), key("orders", user=None), key("orders", listener="vip"), key("orders", "10.0.0.8")):
        ranking.add(each, tally(refused=1))
    found = {(item.client, item.user, item.listener) for item in ranking.describe()}
    assert found == {
        ("10.0.0.7", "shop", "rocket"),
        ("10.0.0.7", None, "rocket"),
        ("10.0.0.7", "shop", "vip"),
        ("10.0.0.8", "shop", "rocket"),
    }


def test_what_a_client_said_of_itself_is_known_for_ten_minutes_after_its_connection_went() -> None:
    ranking = ClientRanking()
    sender = key("orders")
    sender.origin.introduce(PIKA, "checkout-7")
    ranking.add(sender, tally(refused=5))
    del sender
    for _ in range(int(KEEP_S)):
        ranking.tick(1.0)
    item = only(ranking)
    assert (item.libraries, item.names, item.topic, item.refused) == (
        [LibraryView(product="Pika Python Client Library", version="1.4.4")],
        ["checkout-7"],
        "orders",
        5,
    )
    assert (item.refused_per_second, item.idle_seconds) == (0.0, KEEP_S)
    ranking.tick(1.0)
    assert ranking.describe() == []


def test_rates_are_means_over_ten_seconds() -> None:
    ranking = ClientRanking()
    ranking.add(key("orders"), tally(refused=100))
    for _ in range(TICKS):
        ranking.tick(1.0)
    assert (only(ranking).refused_per_second, only(ranking).refused_per_second_1s) == (10.0, 0.0)
    ranking.tick(1.0)
    assert only(ranking).refused_per_second == 0.0


def test_the_worst_topic_is_the_one_of_late_and_a_new_worst_finds_its_place_among_many() -> None:
    ranking = ClientRanking()
    for number in range(3 * MAX_TOPICS_OF_CLIENT):
        ranking.add(key(f"small-{number}"), tally(refused=2))
    ranking.add(key("large"), tally(refused=900))
    ranking.tick(1.0)
    assert only(ranking).topic == "large"
    for _ in range(12):
        ranking.add(key("later"), tally(refused=50))
        ranking.tick(1.0)
    assert only(ranking).topic == "later"


def test_the_list_is_bounded_and_the_worst_clients_are_in_it() -> None:
    ranking = ClientRanking()
    for number in range(MAX_CLIENTS):
        ranking.add(key("orders", f"10.0.0.{number}"), tally(refused=10 + number))
    ranking.tick(1.0)
    ranking.add(key("orders", "10.0.9.1"), tally(refused=1))  # 10.0.0.0 was refused 10, halved
    assert "10.0.9.1" not in {item.client for item in ranking.describe()}
    for number in range(2 * MAX_CLIENTS):
        ranking.add(key("orders", f"10.9.0.{number}"), tally(refused=3))
    ranking.add(key("orders", "10.0.9.9"), tally(refused=500))
    ranking.tick(1.0)
    ranking.add(key("orders", "10.0.9.9"), tally(refused=500))
    found = {str(item.client) for item in ranking.describe()}
    assert len(found) == MAX_CLIENTS
    assert {"10.0.9.9", f"10.0.0.{MAX_CLIENTS - 1}"} <= found
    assert "10.0.0.0" not in found
    assert not any(address.startswith("10.9.") for address in found)


def test_a_client_over_a_limit_on_thousands_of_topics_is_listed_however_little_each_has() -> None:
    ranking = ClientRanking()
    for _ in range(3):
        for number in range(MAX_CLIENTS):
            ranking.add(key("orders", f"10.0.0.{number}"), tally(refused=5))
        for topic in range(2000):
            ranking.add(key(f"topic-{topic}", "10.0.9.9"), tally(refused=5))
        ranking.tick(1.0)
    worst = max(ranking.describe(), key=lambda item: float(str(item.refused_per_second_1s)))
    assert (worst.client, worst.refused_per_second_1s, len(ranking.describe())) == ("10.0.9.9", 10_000.0, MAX_CLIENTS)


def test_a_client_that_is_a_little_worse_than_the_rest_is_listed_too() -> None:
    ranking = ClientRanking()
    for _ in range(6):
        for number in range(MAX_CLIENTS):
            ranking.add(key("orders", f"10.0.0.{number}"), tally(refused=50))
        ranking.add(key("orders", "10.0.9.9"), tally(refused=60))
        ranking.tick(1.0)
    assert "10.0.9.9" in {item.client for item in ranking.describe()}


def test_made_up_addresses_cost_bounded_memory_and_hide_nobody() -> None:
    ranking = ClientRanking()
    for number in range(MAX_CLIENTS):
        ranking.add(key("orders", f"10.0.0.{number}"), tally(refused=5))
    for number in range(4 * MAX_NEWCOMERS):
        ranking.add(key("orders", f"10.9.0.{number}"), tally(refused=1))
        ranking.add(key(f"topic-{number}", "10.0.9.9"), tally(refused=1))
        assert len(ranking._newcomers) <= 2 * MAX_NEWCOMERS
    ranking.tick(1.0)
    ranking.add(key("orders", "10.0.9.9"), tally(refused=1))
    assert "10.0.9.9" in {item.client for item in ranking.describe()}


def test_an_origin_tells_a_few_libraries_and_names_apart() -> None:
    origin = key("orders").origin
    for number in range(9):
        origin.introduce(PIKA, f"worker-{number}")
    origin.introduce({}, "")
    assert (origin.libraries, origin.names) == ((PIKA,), ("worker-0", "worker-1", "worker-2"))


def test_repr() -> None:
    ranking = ClientRanking()
    ranking.add(key("orders"), tally(refused=5, delayed=2))
    ranking.tick(1.0)
    assert repr(ranking) == "<ClientRanking of 1 clients>"
    assert (
        repr(ranking._clients[("rocketmq", "rocket", "10.0.0.7", "shop")]) == "<RankedClient 10.0.0.7 refused=5 5/s delayed=2 worst=orders>"
    )
