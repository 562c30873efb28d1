"""The findings of `sluice why`, from answers of the admin API: demand of what is held, clients that have gone, consumers."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli.client_advice import AMQP_CLIENTS, CONSUMING, REFUSED, WAIT_LONGER
from cli.why import other_keys
from cli.why_facts import Findings, Limited, LimitedClient, last_event, list_events, to_do
from cli.why_text import client_text, commands_of, write_page

PIKA = {"product": "Pika Python Client Library", "version": "1.4.4"}
WORDS = ("amqp", "/", "bills", "bill.eu")
KEY = "%2F/bills/bill.eu"


def level(**more: Any) -> dict[str, Any]:
    usage = {
        "received_per_second": 42.9, "forwarded_per_second": 9.6, "refused_per_second": 0.0, "admitted": 1604, "refused": 0, "held": 2558,
        "wait_ms": 54.5, "breaker": "closed", "fill": 0.0, "last_refused": "2026-11-25T21:34:31.000Z",
    }  # fmt: skip
    limit = {"messages": "10/s", "messages_burst": 10, "messages_per_second": 10.0}
    return {
        "per": "topic", "thing": KEY, "operation": "produce", "origin": "default", "rule": "bills", "place": "limits.yaml:7",
        "limit": limit, "action": "delay", "max_delay": "1s", "mode": "enforce", "usage": usage, **more,
    }  # fmt: skip


def findings(one: dict[str, Any], *clients: LimitedClient) -> Findings:
    return Findings(WORDS, {"protocol": "amqp", "topic": KEY}, [Limited(one)], [{}], list(clients), None, {})


def page(found: Findings) -> str:
    return "\n".join(write_page(found, [AMQP_CLIENTS[0]]))


def test_what_a_limit_holds_is_no_part_of_what_passes() -> None:
    found = findings(level())
    offered, held = found.demand(found.levels[0])
    assert (offered, round(held, 3)) == (42.9, 33.3)
    assert "42.9/s: 9.6/s passes, 33.3/s waits" in page(found)


def test_what_waits_is_told_by_how_much_how_long_and_why_nothing_is_refused() -> None:
    """It said "a message waits up to 1s, then it is refused" and "54.5ms until the next message passes" of 3,900 messages."""
    account = {"state": "waiting", "first_waited_seconds": 65.0, "last_waits_seconds": 130.0, "unrefused_because": "no_confirms"}
    found = findings(level())
    found.traffic = [{"operation": "produce", "waiting": 3900, "account": account}]
    found.levels[0].event = {"event": "limit_reached", "since": "2026-11-25T21:30:00.000Z"}
    text = " ".join(page(found).split())
    assert "bills bill.eu: waiting now, since 2026-11-25" in text
    assert (
        "now 3,900 waiting, the oldest has waited 1min 5s, a new one will wait 2min 10s; nothing is refused, as the publisher uses no"
        in text
    )
    assert "on a channel without confirms it waits for its turn" in text
    assert "until the next message passes" not in text


@pytest.mark.parametrize(
    ("offered", "passed", "less"), [(54.4, 9.2, "63 % less than now"), (54.4, 20.0, "63 % less than now"), (20.0, 9.0, None)]
)
def test_slowing_down_is_told_by_the_limit_and_not_by_what_a_breaker_refuses(offered: float, passed: float, less: str | None) -> None:
    """20/s of 54.4/s was told as 83 % less: what the breaker refused counted, too."""
    one = level(limit={"messages": "20/s", "messages_per_second": 20.0})
    one["usage"] |= {"received_per_second": offered, "forwarded_per_second": passed}
    text = " ".join(page(findings(one)).split())
    assert f"send at most 20/s{f', {less}' if less else ''}." in text


def test_the_sums_of_a_line_are_told_by_the_second() -> None:
    """`limit_reached` comes once a minute: of a client's limit there is nothing else to tell from. A cap of 200/s was said to pass 263/s,
    without a word that this was of the second with its burst."""
    event = {"event": "limit_reached", "ts": "2026-11-25T21:34:31.000Z", "rate": 90, "refused": 1200, "delayed": 0, "seconds": 60.0}
    usage = {"admitted": 1, "refused": 1, "held": 0}
    found = findings(level(per="client", usage=usage))
    found.levels[0].event = event
    assert found.demand(found.levels[0]) == (90.0, 20.0)
    assert "90/s: 70/s passes, 20/s waits, in the 1min to 2026-11-25 21:34:31 UTC" in " ".join(page(found).split())


def test_consumers_are_told_that_more_waits_and_nothing_to_change_for_refusals() -> None:
    text = page(findings(level(operation="consume", action="reject")))
    assert "9.6/s is delivered; what the broker has more waits for its turn" in text
    assert "To do:" not in text
    assert (to_do(AMQP_CLIENTS[0], (CONSUMING,)), to_do(AMQP_CLIENTS[0], (REFUSED,))) == (None, AMQP_CLIENTS[0].to_do)


def test_a_quota_below_what_was_published_names_the_ceiling() -> None:
    text = " ".join(page(findings(level(origin="quota+hour", ceilings=["roof (limits.yaml:9)"]))).split())
    assert "raised for now by the demand of the last hour or of the last seconds held down by the ceiling of roof (limits.yaml:9)" in text
    assert "ceiling" not in page(findings(level(origin="quota", ceilings=[])))


def test_who_gives_back_is_told_what_becomes_of_it_and_to_look_for_the_cause() -> None:
    text = " ".join(page(findings(level(operation="requeue", per="topic"))).split())
    assert "given back by consumers, for this topic" in text
    assert "9.6/s goes back; what is over the limit waits for its turn" in text
    assert "what is given back waits for its turn (AMQP: in the consumer's prefetch; " in text
    assert "See why consumers fail on these messages" in text
    assert "sluice limits set queue / bill.eu --operation requeue --messages" in text
    assert "To do:" not in text


def test_a_limit_that_spools_says_that_publishers_go_on_and_answers_come_later() -> None:
    client = LimitedClient("10.0.0.7", confirms=False)
    text = " ".join(page(findings(level(action="spool"), client)).split())
    assert "33.3/s waits" in text
    assert "spool: publishers go on sending; a message waits on the gateway's disk, and the broker's answer comes when it has" in text
    assert "nothing: publishes go on, confirms come later" in text
    assert f"To do: {WAIT_LONGER}." in text
    assert "sluice spool show amqp / bills bill.eu" in text
    assert "Use publisher confirms: without them nobody learns of those that wait here when the gateway crashes." in text
    assert "Slow down" not in text


@pytest.mark.parametrize(
    ("rate", "per", "limit", "contained"),
    [
        (60.0, "topic", 10.0, True),
        (60.0, "user", 10.0, True),
        (60.0, "rule", 10.0, True),
        (40.0, "topic", 10.0, False),
        (60.0, "client", 10.0, False),
        (60.0, "topic", 1.0, False),
    ],
)
def test_one_client_with_most_of_the_refusals_is_held_back_alone(rate: float, per: str, limit: float, contained: bool) -> None:
    """With half of the topic's limit, beside the larger limit that is proposed."""
    limits = {"messages": f"{limit:g}/s", "messages_burst": 10, "messages_per_second": limit}
    clients = [LimitedClient("10.0.0.8", refused_per_second=100 - rate), LimitedClient("10.0.0.7", refused_per_second=rate)]
    if rate < 50:
        clients.append(LimitedClient("10.0.0.9", refused_per_second=rate / 2))
        clients[0].refused_per_second = rate
    found = Findings(
        WORDS,
        {"protocol": "amqp", "topic": KEY},
        [Limited(level(per=per, limit=limits))],
        [{"refused_per_second": 100.0}],
        clients,
        None,
        {},
    )
    command = "sluice limits set client 10.0.0.7 --messages 5/s --for 1h --reason '...'"
    assert (command in commands_of(found)) is contained
    assert page(found).count(command) == contained
    assert ("Or hold 10.0.0.7 back" in page(found)) is contained
    assert any("limits set amqp / bills bill.eu" in each or "rules set" in each for each in commands_of(found))


def test_a_client_that_is_held_rather_than_refused_is_held_back_alone_too() -> None:
    clients = [LimitedClient("10.0.0.8", delayed=9, delayed_per_second=2.0), LimitedClient("10.0.0.7", delayed=90, delayed_per_second=20.0)]
    both = {"messages": "10/s", "messages_per_second": 10.0, "bytes": "1000B/s", "bytes_per_second": 1000.0}
    assert "sluice limits set client 10.0.0.7 --messages 5/s --bytes 500B/s --for 1h --reason '...'" in page(
        findings(level(limit=both), *clients)
    )


def test_the_limit_on_a_queues_deliveries_is_changed_by_the_queue() -> None:
    found = Findings(("amqp", "/", "amq.default", "jobs"), {"protocol": "amqp"}, [Limited(level(operation="consume"))], [{}], [], None, {})
    assert commands_of(found)[0].startswith("sluice limits set queue / jobs --messages ")


def test_a_shown_command_on_a_user_whose_name_begins_with_a_dash_has_its_options_first() -> None:
    raised, back, _ = commands_of(findings(level(per="user", thing="-x y", origin="override")))
    assert re.fullmatch(r"sluice limits set --messages \d+/s --for 1h --reason '\.\.\.' -- user '-x y'", raised)
    assert back == "sluice limits unset --reason '...' -- user '-x y'"


def test_after_a_takeover_what_has_not_been_seen_is_told_since_then() -> None:
    never = level(usage={})
    status = {"uptime_seconds": 8.0, "taken_over_at": "2026-11-21T12:00:00.000Z"}
    found = Findings(WORDS, {"protocol": "amqp", "topic": KEY}, [Limited(never)], [], [], None, status)
    told = " ".join(page(found).split())
    assert "not since the start of this gateway, which was 8s ago" in told
    assert "it took over from another at 2026-11-21" in told


@pytest.mark.parametrize(
    ("client", "said"),
    [
        (LimitedClient("10.0.0.7", refused=9, refused_per_second=2.0, delayed=5), "10.0.0.7: 2/s refused in the last 10 s"),
        (LimitedClient("10.0.0.7", refused=9000), "10.0.0.7: 9,000 refused in all"),
        (LimitedClient("10.0.0.7", delayed=650, delayed_per_second=46.4), "10.0.0.7: 46.4/s waits in the last 10 s, of all its topics"),
        (LimitedClient("10.0.0.7", delayed=650), "10.0.0.7: 650 had to wait, of all its topics"),
        (LimitedClient("10.0.0.7", users={"shop"}), "10.0.0.7 (user shop)"),
    ],
)
def test_a_client_is_shown_with_what_happens_to_it(client: LimitedClient, said: str) -> None:
    assert client_text(client) == said


def test_a_client_that_has_gone_keeps_its_library_and_name(sluice: Any, admin: Any) -> None:
    admin.answers["GET /v1/limits/amqp/%2F/bills/bill.eu"] = (200, {"protocol": "amqp", "topic": KEY, "levels": [level()]})
    admin.answers["GET /v1/connections"] = (200, {"items": [], "next": None, "total": 0})
    admin.answers["GET /v1/topics"] = (200, {"items": [{"protocol": "amqp", "topic": KEY, "clients": []}], "next": None, "total": 1})
    gone = {"protocol": "amqp", "client": "10.0.0.7", "user": "shop", "names": ["billing-1"], "libraries": [PIKA], "topic": KEY,
            "refused": 0, "delayed": 650, "refused_per_second": 0.0, "delayed_per_second": 0.0}  # fmt: skip
    other = {**gone, "client": "10.0.0.8", "topic": "%2F/bills/bill.us"}
    admin.answers["GET /v1/clients"] = (200, {"items": [gone, other], "next": None, "total": 2})
    (client,) = sluice("why", *WORDS, "-o", "json").json["clients"]
    assert (client["client"], client["libraries"], client["names"], client["users"]) == ("10.0.0.7", ["pika"], ["billing-1"], ["shop"])
    assert "10.0.0.7 (billing-1, user shop, pika): 650 had to wait, of all its topics" in " ".join(sluice("why", *WORDS).out.split())


@pytest.mark.parametrize(("option", "absent", "there"), [("--client", "10.0.0.9", "10.0.0.7"), ("--user", "shoop", "shop")])
def test_a_sender_of_which_nothing_has_come_is_told_with_those_that_there_are(
    sluice: Any, admin: Any, option: str, absent: str, there: str
) -> None:
    """Regression: the page of a client that never sent was that of any client, and never named it."""
    admin.answers["GET /v1/limits/amqp/%2F/bills/bill.eu"] = (200, {"protocol": "amqp", "topic": KEY, "levels": [level(usage={})]})
    admin.answers["GET /v1/connections"] = (200, {"items": [{"client": "10.0.0.7:4711", "user": "shop"}], "next": None, "total": 1})
    admin.answers["GET /v1/topics"] = (200, {"items": [{"protocol": "amqp", "topic": KEY, "clients": []}], "next": None, "total": 1})
    admin.answers["GET /v1/clients"] = (200, {"items": [], "next": None, "total": 0})
    admin.answers["GET /v1/status"] = (200, {"uptime_seconds": 7200.0})
    said = " ".join(sluice("why", *WORDS, option, absent).out.split())
    assert f"nothing of {absent} is known: no connection of it is open, and no limit refused or held anything of it since the start" in said
    assert "which was 2h" in said
    assert f"known are: {there}" in said
    assert sluice("why", *WORDS, option, absent, "-o", "json").json["absent"] == [{option.strip("-"): absent, "others": [there]}]
    assert "is known" not in sluice("why", *WORDS, option, there).out


def test_the_cap_of_each_listener_by_which_a_topic_may_come_is_named(sluice: Any, admin: Any) -> None:
    """Regression: with two listeners of a protocol the caps were missing, unless the log named the very topic."""

    def cap(name: str, over: int) -> dict[str, Any]:
        usage = {**level()["usage"], "refused": over, "last_refused": "2026-11-25T21:34:31.000Z" if over else None}
        return level(per="listener", thing=name, rule=f"cap-{name}", usage=usage)

    def answer(query: dict[str, str]) -> dict[str, Any]:
        caps = {"rabbit": cap("rabbit", 900), "shop": cap("shop", 0)}
        return {"protocol": "amqp", "topic": KEY, "levels": [caps[query["listener"]]] if query.get("listener") in caps else []}

    listeners = [{"name": name, "protocol": protocol} for name, protocol in (("rabbit", "amqp"), ("shop", "amqp"), ("rocket", "rocketmq"))]
    admin.answers["GET /v1/listeners"] = (200, {"items": listeners, "next": None, "total": 3})
    admin.computed["GET /v1/limits/amqp/%2F/bills/bill.eu"] = answer
    said = " ".join(sluice("why", *WORDS).out.split())
    assert "no limit of its own holds for it; a listener has a cap" in said
    assert "if it comes by rabbit: 10/s" in said
    assert "for the listener rabbit of rule cap-rabbit: was over it" in said
    assert "if it comes by shop: 10/s" in said
    assert "for the listener shop of rule cap-shop: within it" in said
    assert sorted(sluice("why", *WORDS, "-o", "json").json["caps"]) == ["rabbit", "shop"]
    assert "if it comes by" not in sluice("why", *WORDS, "--listener", "shop").out


def test_the_event_of_a_rule_for_several_operations_is_found_for_each_and_those_of_live_changes_are_told_apart() -> None:
    """One bucket is for all of a rule's operations, and its event names the worst; what no rule is for is a bucket per operation."""
    events = [{"per": "vhost", "rule": "work", "thing": "/", "operation": "declare", "topic": "t"}]
    for operation in ("produce", "declare"):
        assert last_event(events, {"per": "vhost", "rule": "work", "thing": "/", "operation": operation}, KEY) is events[0]
    assert last_event(events, {"per": "vhost", "rule": "work", "thing": "%2F", "operation": "declare"}, KEY) is None
    changed = [{"per": "topic", "rule": "unruled", "thing": KEY, "operation": each} for each in ("requeue", "consume")]
    assert last_event(changed, {"per": "topic", "rule": "unruled", "thing": KEY, "operation": "requeue"}, KEY) is changed[0]


def test_a_key_beside_a_queue_that_begins_with_a_dash_is_no_option() -> None:
    items = [{"topic": f"%2F/{exchange}/k", "operation": "produce"} for exchange in ("-x", "orders")]
    client = cast("Any", SimpleNamespace(items=lambda *_, **__: items))
    assert other_keys(client, "/") == ["sluice why -- amqp / -x k", "sluice why amqp / orders k"]


def episodes(*of: tuple[str, int]) -> list[dict[str, Any]]:
    """Lines of one limit, each with its event and worker."""
    bucket = {"protocol": "amqp", "topic": KEY, "per": "topic", "rule": "bills", "thing": KEY, "operation": "produce"}
    return [
        {"id": f"6f1c03aa-{at}", "ts": f"2026-11-30T08:00:0{at}.000Z", "since": "", **bucket, "event": event, "worker": worker}
        for at, (event, worker) in enumerate(of, 1)
    ]


def test_a_limit_is_reached_as_long_as_one_worker_says_so() -> None:
    """Worker 2 says it again a minute later only; when worker 1 recovered, the limit "was over it"."""
    events = episodes(("limit_reached", 1), ("limit_reached", 2), ("limit_recovered", 1))
    assert last_event(events, level(), KEY) is events[1]
    both = [*events, *episodes(("limit_recovered", 2))]
    assert last_event(both, level(), KEY) is both[-1]
    assert last_event([], level(), KEY) is None


def test_a_limit_is_not_reached_any_more_where_the_worker_that_said_so_has_ended(sluice: Any, admin: Any) -> None:
    events = episodes(("limit_reached", 1), ("limit_recovered", 2), ("worker_ended", 1))
    del events[2]["protocol"]
    for told, state in ((events[:2], "limited_now"), (events, "limited_before")):
        admin.answers["GET /v1/events"] = (200, {"items": told, "next": "6f1c03aa-9", "more": False, "gap": False})
        admin.answers[f"GET /v1/limits/amqp/{KEY}"] = (200, {"protocol": "amqp", "topic": KEY, "levels": [level()]})
        admin.answers["GET /v1/topics"] = (200, {"items": [], "next": None, "total": 0})
        assert sluice("why", *WORDS, "-o", "json").json["state"] == state


def test_events_are_in_the_order_of_their_numbers_where_the_clock_was_set_back(sluice: Any, admin: Any) -> None:
    """What had recovered was limited for the hour that the clock was set back by."""
    events = [
        {"id": f"6f1c03aa-{number}", "ts": f"2026-11-30T{hour}:00:00.000Z", "event": event, "protocol": "amqp", "topic": KEY}
        | {"per": "topic", "rule": "bills", "thing": KEY, "operation": "produce"}
        for number, hour, event in ((9, "08", "limit_reached"), (10, "07", "limit_recovered"))
    ]
    admin.answers["GET /v1/events"] = (200, {"items": events, "next": "6f1c03aa-10", "more": False, "gap": False})
    admin.answers[f"GET /v1/limits/amqp/{KEY}"] = (200, {"protocol": "amqp", "topic": KEY, "levels": [level()]})
    assert sluice("why", *WORDS, "-o", "json").json["state"] == "limited_before"


def test_a_limit_of_a_client_that_the_other_protocols_messages_reached_first_is_reached() -> None:
    """Its line is told again each minute, of whichever message was refused last: the other protocol's key was "not limited" meanwhile."""
    shared = {"protocol": "rocketmq", "topic": "orders", "per": "client", "rule": "unruled", "thing": "127.0.0.1", "operation": "produce"}
    namesake = {**shared, "per": "topic", "rule": "bills", "thing": KEY}  # a RocketMQ topic of this name has a bucket of its own
    line = {"ts": "2026-11-30T08:00:00.000Z", "event": "limit_reached"}
    said = [{"id": f"6f1c03aa-{at}", **line, **of} for at, of in enumerate((shared, namesake))]
    client = cast("Any", SimpleNamespace(ask=lambda *_, **__: SimpleNamespace(body={"items": said})))
    events = list_events(client, KEY, "amqp")
    of_client = level(per="client", rule="unruled", thing="127.0.0.1")
    assert (last_event(events, of_client, KEY), last_event(events, level(), KEY)) == (said[0], None)
