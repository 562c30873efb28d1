"""Which clients are behind refusals: the worst are listed, however many there are, and nothing grows without bound."""

from __future__ import annotations

import pytest
from msgspec import to_builtins

from common.log import moment
from gateway.counting.accounts import OTHER, Accounts
from gateway.counting.recent_rates import TICKS
from gateway.telemetry import exposition
from gateway.telemetry.refused_clients import (
    GROUP_IDLE_S,
    MAX_CLIENTS_KEPT,
    MAX_GROUPS_SHOWN,
    MAX_TOPICS,
    RefusedClients,
    consumer_group,
    retry_samples,
)
from limiter.keys import Key, Origin
from limiter.rules.sender import Sender
from limiter.topics import amqp_topic, rocketmq_topic
from support.expositions import series

WORKERS = ("rocketmq", "%RETRY%workers", "produce")


class Counted:
    """Accounts with the refused clients behind them, as the gateway has them."""

    def __init__(self) -> None:
        self.accounts = Accounts()
        self.clients = RefusedClients()
        self.accounts.observers.append(self.clients.add)

    def add(self, client: str, refused: int, forwarded: int = 0, *, topic: bytes = b"%RETRY%workers", dropped: int = 0) -> None:
        """One client's second of one topic."""
        key = Key(Origin("rocketmq", Sender("rocket", client, None), b""), rocketmq_topic(topic), b"workers", "produce")
        key.tally.received = refused + forwarded + dropped
        key.tally.refused, key.tally.messages, key.tally.dropped = refused, forwarded, dropped
        self.accounts.note(key)
        self.accounts.fold(1)

    def listed(self) -> list[tuple[str, int, int]]:
        return [(client.address, client.refused, client.forwarded) for client in self.clients.of(WORKERS)]

    def metric(self, name: str) -> dict[str, float]:
        """The samples of one metric by group."""
        text = "".join(exposition.families(retry_samples(self.clients)))
        return {labels["group"]: value for labels, value in series(text).get(name, [])}


def test_clients_are_listed_from_their_first_refusal_on_the_worst_first() -> None:
    counted = Counted()
    counted.add("10.0.0.7", 0, 50)
    counted.add("10.0.0.8", 5, 10)
    counted.add("10.0.0.9", 90, 20, dropped=3)
    counted.add("10.0.0.7", 0, 50)
    counted.add("10.0.0.8", 0, 7)
    counted.clients.tick(1.0)
    assert counted.listed() == [("10.0.0.9", 93, 20), ("10.0.0.8", 5, 17)]


def test_clients_of_amqp_are_listed_too() -> None:
    counted = Counted()
    key = Key(Origin("amqp", Sender("rabbit", "10.0.0.7", "shop"), b"/"), amqp_topic(b"/", b"orders", b"created"), None, "produce")
    key.tally.refused = 3
    counted.accounts.note(key)
    counted.accounts.fold(1)
    assert [client.address for client in counted.clients.of(("amqp", "%2F/orders/created", "produce"))] == ["10.0.0.7"]
    assert counted.metric("sluice_retries_refused_total") == {}


def test_one_that_is_only_counted_is_listed_with_its_rate_and_since_when() -> None:
    counted = Counted()
    key = Key(Origin("rocketmq", Sender("rocket", "10.0.0.7", "shop"), b""), rocketmq_topic(b"%RETRY%workers"), b"workers", "produce")
    found = []
    for over in [6, 4, *[0] * 61]:
        key.tally.received = key.tally.messages = 20
        key.tally.shadow_refused = over
        counted.accounts.note(key)
        counted.accounts.fold(1)
        counted.clients.tick(1.0)
        found.append(counted.clients.of(WORKERS)[0].describe())
    assert [(each.would_refuse_per_second, each.refused) for each in found[:2]] == [(6.0, 0), (5.0, 0)]
    assert found[0].over_since is not None
    assert (found[-2].would_refuse_per_second, found[-2].over_since) == (0.0, found[0].over_since), "one bout so far"
    assert (found[-1].would_refuse_per_second, found[-1].over_since) == (0.0, None)


def test_one_that_only_has_to_wait_is_listed_with_what_waits_of_it() -> None:
    """A topic that holds messages named nobody: clients were listed from their first refusal on."""
    counted = Counted()
    key = Key(Origin("rocketmq", Sender("rocket", "10.0.0.7", "shop"), b""), rocketmq_topic(b"%RETRY%workers"), b"workers", "produce")
    for received, passed, delayed in ((60, 30, 30), (0, 10, 0), (5, 0, 5)):
        key.tally.received, key.tally.messages, key.tally.delayed = received, passed, delayed
        counted.accounts.note(key)
        counted.accounts.fold(1)
    counted.add("10.0.0.8", 0, 9)
    (client,) = counted.clients.of(WORKERS)
    assert (client.address, client.user, client.waiting, client.refused) == ("10.0.0.7", "shop", 25, 0)


def test_a_client_is_refused_no_more_a_second_than_its_topic_is() -> None:
    """The topic was within its limit for 7 s, and then one client's flood came: both means are over the same 9 s."""
    counted = Counted()
    for second in range(9):
        counted.add("10.0.0.7", refused=900 if second >= 7 else 0, forwarded=50)
        for _ in counted.accounts.tick(1.0):
            pass
        counted.clients.tick(1.0)
    totals = counted.accounts.topics[WORKERS]
    (client,) = counted.clients.of(WORKERS)
    assert totals.recent is not None
    assert (client.rate(), totals.rates[2]) == (900.0, 200.0)
    assert client.describe(totals.recent.seconds).refused_per_second == totals.rates[2]


def test_rates_are_means_over_ten_seconds_with_the_last_second_beside() -> None:
    counted = Counted()
    counted.add("10.0.0.7", 900)
    counted.clients.tick(2.0)
    (client,) = counted.clients.of(WORKERS)
    named: dict[str, object] = {"client": "10.0.0.7", "user": None, "waiting": 0, "forwarded": 0, "refused": 900}
    named |= {"group": "workers", "would_refuse_per_second": 0.0, "over_since": moment(client.over_since)}
    rates = {"received_per_second": 450.0, "refused_per_second": 450.0, "refused_per_second_1s": 450.0}
    assert to_builtins(client.describe()) == {**named, **rates}
    counted.clients.tick(1.0)
    rates = {"received_per_second": 300.0, "refused_per_second": 300.0, "refused_per_second_1s": 0.0}
    assert to_builtins(client.describe()) == {**named, **rates}
    for _ in range(TICKS):
        counted.clients.tick(1.0)
    assert (client.rate(), client.window) == (0.0, None)


def test_the_client_refused_most_now_comes_before_the_one_refused_most_earlier() -> None:
    counted = Counted()
    counted.add("10.0.0.7", 1000)
    for _ in range(TICKS):
        counted.clients.tick(1.0)
    counted.add("10.0.0.8", 10)
    counted.clients.tick(1.0)
    assert [client.address for client in counted.clients.of(WORKERS)] == ["10.0.0.8", "10.0.0.7"]


def test_a_crowd_cannot_push_out_the_worst_and_nobody_is_blamed_for_more_than_it_did() -> None:
    counted = Counted()
    for second in range(50):
        counted.add("10.0.0.7", 500)
        for number in range(30):
            counted.add(f"10.1.{second}.{number}", 2)
        counted.clients.tick(1.0)
    listed = counted.listed()
    assert listed[0] == ("10.0.0.7", 25_000, 0)
    assert len(listed) == MAX_CLIENTS_KEPT
    assert all(refused <= 2 for _, refused, _ in listed[1:])


def test_a_new_storm_takes_the_places_of_one_that_is_over() -> None:
    counted = Counted()
    for number in range(MAX_CLIENTS_KEPT):
        counted.add(f"10.0.0.{number}", 1000)
    for _ in range(10):
        counted.clients.tick(1.0)
    counted.add("10.0.1.1", 20)
    assert "10.0.1.1" in {client.address for client in counted.clients.of(WORKERS)}


def test_topics_are_bounded_and_those_refused_last_are_kept() -> None:
    counted = Counted()
    counted.add("10.0.0.7", 1)
    for number in range(MAX_TOPICS):
        counted.add("10.0.0.7", 1, topic=b"made-up-%d" % number)
    assert counted.listed() == []
    assert len(counted.clients.of(("rocketmq", f"made-up-{MAX_TOPICS - 1}", "produce"))) == 1
    assert "1000 topics" in repr(counted.clients)


@pytest.mark.parametrize(
    ("protocol", "topic", "group"),
    [
        ("rocketmq", "%RETRY%workers", "workers"),
        ("rocketmq", "%RETRY%shop%workers", "shop%workers"),
        ("rocketmq", "orders", None),
        ("amqp", "%RETRY%workers", None),
    ],
)
def test_the_group_is_the_one_whose_retries_the_topic_holds(protocol: str, topic: str, group: str | None) -> None:
    assert consumer_group(protocol, topic) == group


def test_metrics_name_the_group_and_never_a_client() -> None:
    counted = Counted()
    counted.add("10.0.0.7", 75, 10)
    counted.add("10.0.0.8", 20, dropped=5)
    counted.add("10.0.0.9", 100, topic=b"orders")
    counted.add("10.0.0.9", 0, 10, topic=b"%RETRY%calm")
    counted.clients.tick(1.0)
    assert counted.metric("sluice_retries_refused_total") == {"workers": 100}
    assert counted.metric("sluice_retries_worst_client_ratio") == {"workers": 0.75}
    assert "10.0.0" not in str(retry_samples(counted.clients))
    for _ in range(TICKS):
        counted.clients.tick(1.0)
    assert counted.metric("sluice_retries_refused_total") == {"workers": 100}
    assert counted.metric("sluice_retries_worst_client_ratio") == {}


def test_groups_beyond_the_cap_are_summed_under_other() -> None:
    counted = Counted()
    for number in range(MAX_GROUPS_SHOWN + 10):
        counted.add("10.0.0.7", 1000 - number, topic=b"%%RETRY%%g%d" % number)
    found = counted.metric("sluice_retries_refused_total")
    assert len(found) == MAX_GROUPS_SHOWN + 1
    assert sum(found.values()) == sum(1000 - number for number in range(MAX_GROUPS_SHOWN + 10))
    assert found[OTHER] == sum(1000 - number for number in range(MAX_GROUPS_SHOWN, MAX_GROUPS_SHOWN + 10))


def test_a_group_that_is_idle_makes_room_and_no_counter_goes_back() -> None:
    counted = Counted()
    for number in range(MAX_GROUPS_SHOWN + 1):
        counted.add("10.0.0.7", 10, topic=b"%%RETRY%%g%d" % number)
    counted.clients.tick(GROUP_IDLE_S - 1)
    counted.add("10.0.0.7", 5, topic=b"%RETRY%g0")
    counted.add("10.0.0.7", 5, topic=b"%RETRY%late")
    assert counted.metric("sluice_retries_refused_total")[OTHER] == 15, "none is idle yet"
    counted.clients.tick(1.0)
    counted.add("10.0.0.7", 7, topic=b"%RETRY%late")
    found = counted.metric("sluice_retries_refused_total")
    assert (found["late"], found[OTHER], found["g0"]) == (7, 15, 15)
    assert len(found) == MAX_GROUPS_SHOWN + 1
    assert "g1" not in found
