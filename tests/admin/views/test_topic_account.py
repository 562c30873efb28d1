"""What the account of a topic says of it: its state, since when, how long messages wait, whose doing it is, why nothing is refused."""

from __future__ import annotations

from typing import Any

import pytest

from admin.views.topic_account import account_of, first_by_place, first_waited
from common.views.limits import OverLimitView
from common.views.topics import RefusedClientView, TopicAccountView, TopicView
from limiter.limits import Limit, Rate
from limiter.rules.cost import Cost
from limiter.rules.rule_set import Match, Rule
from support.admin.admin_client import Control

LIMIT = Limit(messages=Rate(30))
SINCE = 1795247411.0
SINCE_TEXT = "2026-11-21T07:50:11.000Z"


def client(address: str, waiting: int = 0, refused: float = 0.0, user: str | None = None) -> RefusedClientView:
    return RefusedClientView(client=address, user=user, waiting=waiting, refused_per_second=refused)


def told(
    action: str = "delay",
    received: list[float | None] | None = None,
    limit: Limit = LIMIT,
    mode: str = "enforce",
    cost: Cost | None = None,
    **more: Any,
) -> Any:
    item: dict[str, Any] = {
        "protocol": "amqp", "topic": "%2F/bills/bill", "operation": "produce", "received_per_second": 60.0, "forwarded_per_second": 30.0,
        "refused_per_second": 0.0, "waiting": 0, "clients": [], **more,
    }  # fmt: skip
    algorithm = "token_bucket" if limit.concurrent is None else "concurrency"
    rule = Rule("bills", Match(protocol="amqp"), limit=limit, action=action, mode=mode, cost=cost, algorithm=algorithm)
    return account_of(TopicView(**item), rule, limit, SINCE, received or [])


def test_what_is_held_of_a_publisher_without_confirms_waits_without_a_refusal_and_is_somebodys() -> None:
    """It was told as "Wait 4 ms, a message waits up to 1s, then it is refused", of nobody, while the last one waited for two minutes."""
    clients = [client("10.1.0.8", 900), client("10.1.0.9", 3000, user="billing")]
    assert told(waiting=3900, clients=clients, received=[60.0] * 200) == TopicAccountView(
        state="waiting", since=SINCE_TEXT, first_waited_seconds=65.0, last_waits_seconds=130.0, client="10.1.0.9", user="billing",
        client_share=0.7692, unrefused_because="no_confirms",
    )  # fmt: skip


def test_what_is_refused_is_of_the_client_with_most_refusals() -> None:
    worst = RefusedClientView(client="10.1.0.8", group="billing", refused_per_second=20.0, over_since="2026-11-21T07:50:03.000Z")
    found = told("reject", refused_per_second=30.0, waiting=3, clients=[client("10.1.0.9", 3), worst])
    assert (found.state, found.client, found.group, found.client_share) == ("refused", "10.1.0.8", "billing", 0.6667)
    assert found.unrefused_because is None
    assert found.since == "2026-11-21T07:50:03.000Z", "also where its limit has just recovered, while its rates are still means of before"


@pytest.mark.parametrize(
    ("action", "more", "because"),
    [
        ("delay", {"waiting": 20}, "delay"),
        ("delay", {"waiting": 40}, "no_confirms"),
        ("reject", {"waiting": 40}, "no_confirms"),
        ("reject", {"waiting": 40, "protocol": "rocketmq"}, "one_way"),
        ("spool", {"waiting": 40}, "spool"),
        ("block", {"waiting": 40}, "block"),
        ("reject", {"waiting": 40, "operation": "consume"}, "consume"),
        ("reject", {"waiting": 40, "operation": "requeue"}, "requeue"),
    ],
)
def test_why_nothing_is_refused(action: str, more: dict[str, Any], because: str) -> None:
    assert told(action, **more).unrefused_because == because


def test_where_a_rule_counts_costs_what_passes_stands_for_its_rate() -> None:
    found = told(waiting=300, cost=Cost(step=4096), forwarded_per_second=30.0)
    assert (found.state, found.last_waits_seconds) == ("waiting", 10.0)


def test_a_limit_that_is_only_tried_says_what_it_would_refuse_of_whom_and_since_when() -> None:
    def counted(address: str, rate: float, since: str) -> RefusedClientView:
        return RefusedClientView(client=address, would_refuse_per_second=rate, over_since=since)

    clients = [counted("10.1.0.8", 3.0, "2026-11-21T07:50:00.000Z"), counted("10.1.0.9", 9.0, "2026-11-21T07:50:07.000Z")]
    assert told(mode="shadow", clients=clients) == TopicAccountView(
        state="would_refuse", since="2026-11-21T07:50:00.000Z", would_refuse_per_second=12.0, client="10.1.0.9", client_share=0.75
    )
    assert told(mode="shadow", received_per_second=500.0) == TopicAccountView(state="within"), "none of them is over it lately"


def test_at_0_a_second_the_last_waits_without_end() -> None:
    found = told(waiting=5, limit=Limit(messages=Rate(0)), received=[None, 0.0, 3.0, 2.0, 0.0])
    assert (found.state, found.last_waits_seconds, found.first_waited_seconds) == ("waiting", None, 3.0)


def test_a_limit_of_bytes_holds_as_many_as_pass_now() -> None:
    found = told(waiting=600, limit=Limit(bytes=Rate(1000)))
    assert (found.state, found.last_waits_seconds) == ("waiting", 20.0)
    both = told(waiting=600, limit=Limit(messages=Rate(100), bytes=Rate(1000)))
    assert both.last_waits_seconds == 20.0


def test_what_waits_for_requests_in_flight_to_end_goes_on_as_messages_pass_now() -> None:
    found = told(waiting=600, limit=Limit(concurrent=10))
    assert (found.state, found.last_waits_seconds) == ("waiting", 20.0)
    assert told(waiting=2, limit=Limit(concurrent=10)).state == "within"


def test_what_is_refused_under_a_limit_that_is_only_tried_is_anothers_doing() -> None:
    assert told(mode="shadow", refused_per_second=30.0).state == "refused"


def test_what_is_on_its_way_is_not_held() -> None:
    assert told(waiting=2) == TopicAccountView(state="within")


@pytest.mark.parametrize(("waiting", "seconds"), [(1, 1.0), (60, 1.0), (61, 2.0), (180, 3.0), (181, None)])
def test_the_first_that_waits_came_when_the_last_so_many_had_not(waiting: int, seconds: float | None) -> None:
    assert first_waited(waiting, [None, 60.0, 60.0, 60.0]) == seconds


def test_a_topic_over_two_limits_is_so_since_the_first() -> None:
    facts = [OverLimitView(per="topic", thing="a", rule="r", protocol="amqp", topic="a", bouts_since=since) for since in (9.0, 7.0)]
    assert first_by_place(facts) == {("amqp", "a", "produce"): facts[1]}


async def test_a_topic_without_a_limit_of_its_own_has_an_account_of_those_of_other_levels(api: Control) -> None:
    rule = {"match": {"protocol": "amqp"}, "per": "client", "limit": {"messages": "5/s"}, "action": "delay"}
    assert (await api.ask("PUT", "/v1/rules/each?force=1", rule)).status == 200
    place = {"protocol": "amqp", "topic": "%2F/bills/bill", "operation": "produce"}
    item = {**place, "received_per_second": 60.0, "forwarded_per_second": 30.0, "refused_per_second": 0.0, "bytes_per_second": 0.0}
    clients = [{"client": "10.0.0.7", "waiting": 3900, "refused_per_second": 20.0}]
    api.gateway.over_limits = [{**place, "since": SINCE, "bouts_since": SINCE, "per": "client", "thing": "10.0.0.7", "rule": "each"}]
    for more, state, because in (
        ({"waiting": 3900}, "waiting", "no_confirms"), ({"refused_per_second": 30.0}, "refused", None), ({"waiting": 1}, "within", None)
    ):  # fmt: skip
        api.gateway.seen_topics = [{**item, "clients": clients, **more}]
        (found,) = (await api.ask("GET", "/v1/topics?protocol=amqp")).json()["items"]
        account = found["account"]
        assert (found["limit"], account["state"], account["unrefused_because"]) == (None, state, because)
        assert account["client"] == (None if state == "within" else "10.0.0.7")


async def test_each_topic_of_the_list_has_its_account(api: Control) -> None:
    place = {"protocol": "rocketmq", "topic": "orders", "operation": "produce"}
    item = {
        **place, "received_per_second": 2500.0, "forwarded_per_second": 2000.0, "refused_per_second": 0.0, "bytes_per_second": 0.0,
        "waiting": 4000, "clients": [{"client": "10.0.0.7", "waiting": 4000}],
    }  # fmt: skip
    api.gateway.seen_topics = [item]
    api.gateway.over_limits = [{**place, "since": SINCE, "bouts_since": SINCE, "per": "topic", "thing": "orders", "rule": "r"}]
    (found,) = (await api.ask("GET", "/v1/topics")).json()["items"]
    assert found["limit"]["action"] == "reject"
    assert found["account"] == {
        "state": "waiting", "since": SINCE_TEXT, "would_refuse_per_second": 0.0, "first_waited_seconds": None, "last_waits_seconds": 2.0,
        "client": "10.0.0.7",
        "user": None, "group": None, "client_share": 1.0, "unrefused_because": "one_way",
    }  # fmt: skip
