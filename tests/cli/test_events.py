"""`sluice events` and `sluice top --once` in every form; lines of events on a terminal."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
from typing import Any

import pytest
import yaml

from cli import events
from cli.events import as_text
from cli.exits import CommandError
from cli.repeats import fold_repeats
from cli.tables import cell_width, fold
from cli.top import TopView, TrafficReader
from common.failures import FAILED, NOT_FOUND, UNREACHABLE
from support.processes import wait_until

EVENTS: list[dict[str, Any]] = [
    {
        "id": "a-1", "ts": "2026-11-21T12:00:00.000Z", "level": "warning", "event": "limit_reached", "protocol": "amqp",
        "topic": "%2F/orders/order.created", "rule": "orders", "refused": 120, "reason": 'say "no", twice',
    },
    {"id": "a-2", "ts": "2026-11-21T12:00:01.000Z", "level": "info", "event": "reloaded", "by": "ops", "note": "a\nb\x1b[31m"},
]  # fmt: skip


@pytest.fixture
def eventful(admin: Any) -> Any:
    admin.answers["GET /v1/events"] = (200, {"items": EVENTS, "next": "a-2", "more": False, "gap": False})
    return admin


def test_yaml_is_a_document_per_event(sluice: Any, eventful: Any) -> None:
    ran = sluice("events", "-o", "yaml")
    assert ran.code == 0, ran.err
    assert [*yaml.safe_load_all(ran.out)] == EVENTS


def test_csv_has_what_all_events_have_and_the_other_fields_as_json(sluice: Any, eventful: Any) -> None:
    ran = sluice("events", "-o", "csv")
    assert ran.code == 0, ran.err
    rows = [*csv.DictReader(io.StringIO(ran.out))]
    assert [*rows[0]] == ["id", "ts", "level", "event", "protocol", "topic", "fields"]
    assert [(row["event"], row["topic"]) for row in rows] == [("limit_reached", "%2F/orders/order.created"), ("reloaded", "")]
    assert json.loads(rows[0]["fields"]) == {"rule": "orders", "refused": 120, "reason": 'say "no", twice'}
    assert json.loads(rows[1]["fields"])["note"] == EVENTS[1]["note"]


def test_csv_without_an_event_has_its_header(sluice: Any, admin: Any) -> None:
    admin.answers["GET /v1/events"] = (200, {"items": [], "next": "a-2", "more": False, "gap": False})
    assert sluice("events", "-o", "csv").out == "id,ts,level,event,protocol,topic,fields\n"


@pytest.mark.parametrize(("options", "member", "first"), [([], "topics", "orders"), (["--connections"], "connections", 7)])
def test_top_is_told_exactly_as_csv_and_yaml(sluice: Any, admin: Any, options: list[str], member: str, first: object) -> None:
    admin.topics = [{"id": 7, "protocol": "rocketmq", "topic": "orders", "client": "10.0.0.7:1", "received_per_second": 1500.25}]
    ran = sluice("top", "--once", *options, "-o", "yaml")
    assert ran.code == 0, ran.err
    told = yaml.safe_load(ran.out)
    assert (told[member], set(told)) == (admin.topics, {"gateway", member})
    rows = [*csv.DictReader(io.StringIO(sluice("top", "--once", *options, "-o", "csv").out))]
    assert str(first) in rows[0].values()
    assert ("1500.25" in rows[0].values()) == (member == "topics")


@pytest.mark.parametrize(("options", "sort"), [([], "worst"), (["--connections"], "wait"), (["--connections", "--sort", "age"], "age")])
def test_top_begins_with_the_order_asked_for(sluice: Any, admin: Any, options: list[str], sort: str) -> None:
    assert sluice("top", "--once", *options).code == 0
    (asked,) = [request for request in admin.requests if request.path in {"/v1/topics", "/v1/connections"}]
    assert asked.query["sort"] == sort


def test_what_top_has_begun_ends_with_it(sluice: Any, admin: Any) -> None:
    """Its thread went on asking for ever: in a process that calls more than one command, of a gateway that had ended long ago."""
    assert sluice("top", "--once").code == 0
    wait_until(
        lambda: not any(isinstance(each, TrafficReader) for each in threading.enumerate()), within=10, what="no thread of top is left"
    )


def test_an_order_of_the_other_view_is_refused_with_those_there_are(sluice: Any, admin: Any) -> None:
    ran = sluice("top", "--once", "--connections", "--sort", "rate")
    assert (ran.code, ran.err) == (
        2, "sluice: --sort rate is not for connections; they sort by wait, refused, backlog, forwarded, blocked, age, name\n",
    )  # fmt: skip


def reached(second: int, topic: str = "orders", since: str = "12:00:00", refused: int = 10) -> dict[str, Any]:
    at = f"2026-11-21T12:{second // 60:02}:{second % 60:02}.000Z"
    return {
        "id": f"b-{second}-{topic}", "ts": at, "level": "warning", "event": "limit_reached", "protocol": "rocketmq", "topic": topic,
        "per": "topic", "thing": topic, "rule": "all", "operation": "produce", "since": since, "refused": refused, "delayed": 0,
    }  # fmt: skip


def test_a_limit_that_goes_on_being_reached_is_two_lines_and_all_shows_each(sluice: Any, admin: Any) -> None:
    flood = [event for second in range(58) for event in (reached(second), reached(second, "bills", refused=1))]
    between = {"id": "c", "ts": "2026-11-21T12:00:30.000Z", "level": "info", "event": "changed", "by": "ops"}
    again = reached(59, since="12:00:59")
    admin.answers["GET /v1/events"] = (200, {"items": [*flood[:60], between, *flood[60:], again], "next": "c", "more": False, "gap": False})
    lines = sluice("events").out.splitlines()
    assert [(re.findall(r"12:\d\d:\d\d", line)[0], re.findall(r"limit_reached|changed", line)[0]) for line in lines] == [
        ("12:00:00", "limit_reached"), ("12:00:00", "limit_reached"), ("12:00:30", "changed"), ("12:00:57", "limit_reached"),
        ("12:00:57", "limit_reached"), ("12:00:59", "limit_reached"),
    ]  # fmt: skip
    assert all(said in lines[3] for said in ("orders  lines=57 ", "refused=570 "))
    assert sum("lines=" in line for line in lines) == 2
    assert len(sluice("events", "--limit", "2").out.splitlines()) == 2
    assert len(sluice("events", "--all").out.splitlines()) == len(flood) + 2
    assert admin.requests[-1].query["limit"] == "50"
    assert len(sluice("events", "-o", "json").out.splitlines()) == len(flood) + 2


def changed(second: int, target: str) -> dict[str, Any]:
    at = f"2026-11-21T12:00:{second:02}.500Z"
    return {"id": f"c-{second}", "ts": at, "level": "info", "event": "changed", "by": "ops", "targets": [target], "changes": 1}


def test_lines_before_a_change_of_their_limit_are_not_summed_with_those_after_it(sluice: Any, admin: Any) -> None:
    """Found by a reader: `lines=40 refused=...` stood for lines of two limits."""
    of_another = changed(4, "limits/rocketmq/bills")
    change = changed(9, "limits/rocketmq/orders")
    before = [{**reached(second), "limit": "10/s"} for second in range(10)]
    after = [{**reached(second), "limit": "20/s", "origin": "override"} for second in range(10, 20)]
    items = [*before[:5], of_another, *before[5:], change, *after]
    admin.answers["GET /v1/events"] = (200, {"items": items, "next": "c", "more": False, "gap": False})
    lines = sluice("events").out.splitlines()
    found = [("changed" in line, *re.findall(r"lines=(\d+)", line), *re.findall(r"limit=(\S+)", line)) for line in lines]
    assert found == [(False, "10/s"), (True,), (False, "9", "10/s"), (True,), (False, "20/s"), (False, "9", "20/s")]


@pytest.mark.parametrize(
    ("change", "parted"),
    [
        (changed(1, "rules/all"), True),
        (changed(1, "live-rules/all"), True),
        (changed(1, "rules/other"), False),
        (changed(1, "quotas"), False),
        ({**changed(1, "limits/rocketmq/bills"), "changes": 90}, True),  # more than are named
        ({**EVENTS[1], "in_force": ["rules"]}, True),
        ({**EVENTS[1], "in_force": []}, False),
    ],
)
def test_only_a_change_that_may_be_of_a_limit_parts_its_lines(change: dict[str, Any], parted: bool) -> None:
    seen = fold_repeats([reached(0), reached(1), change, reached(2), reached(3)])
    assert [each.get("lines") for each in seen] == ([None, None, None, None, None] if parted else [None, None, 3])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sluice limits set amqp / orders 'order.#' --messages 5/s", "\"sluice limits set amqp / orders 'order.#' --messages 5/s\""),
        ("the broker's disk", '"the broker\'s disk"'),
        ('say "it\'s"', '"say \\"it\'s\\""'),
        ("it's $5", '"it\'s $5"'),
    ],
)
def test_a_command_in_an_event_can_be_copied(text: str, shown: str) -> None:
    line = as_text({**EVENTS[1], "remedy": text})
    assert f"remedy={shown}" in line
    assert "'\"'\"'" not in line


LONG = "shop.orders.europe.germany.berlin.warehouse-12.created.v2.and-a-tail.that.never.ends"


REACHED = {
    **EVENTS[0], "listener": "rabbit", "per": "topic", "thing": "%2F/orders/order.created", "limit": "20/s", "rate": 74, "seconds": 60.0,
    "delayed": 0, "waiting": 0, "clients": 2, "client": "10.1.0.9", "user": "billing", "since": "2026-11-21T11:58:00.000Z",
}  # fmt: skip
del REACHED["reason"]
IS_OVER = " is over its limit of 20/s, rule orders"
OVER = f"/ orders order.created{IS_OVER}"


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (
            REACHED,
            f"{OVER}: 74/s came, 120 refused in 1min; most of it by 10.1.0.9 (billing), the worst of 2",
        ),
        (
            {**REACHED, "refused": 0, "delayed": 3788, "waiting": 3900, "clients": 1, "lines": 9},
            f"{OVER}: 74/s came, 3,788 had to wait, 3,900 waiting now in 1min (the sum of 9 lines); most of it by 10.1.0.9 (billing)",
        ),
        (
            {**REACHED, "per": "client", "thing": "10.1.0.9", "reason": "share", "user": None, "group": "night", "clients": 1},
            f"client 10.1.0.9{IS_OVER}, as share: 74/s came, 120 refused in 1min; most of it by 10.1.0.9, group night",
        ),
        (
            {**REACHED, "event": "limit_recovered", "clients": 1},
            "/ orders order.created is within its limit of 20/s again, after 2min: 120 refused; most of it by 10.1.0.9 (billing)",
        ),
        (
            {"ts": REACHED["ts"], "event": "changed", "by": "ana", "role": "operator", "action": "set", "revision": 7, "reason": "incident",
             "targets": ["limits/rocketmq/orders"], "changes": 3},
            "ana (operator) set limits/rocketmq/orders and 2 more, revision 7: incident",
        ),
    ],
)  # fmt: skip
def test_on_a_terminal_what_is_most_frequent_is_a_sentence(event: dict[str, Any], told: str) -> None:
    """An event took five lines of fields at 80 columns."""
    assert " ".join(as_text(event, 80).split()).partition(" ")[2].removeprefix("12:00:00 ") == told
    assert len(as_text(event, 80).splitlines()) <= 3
    assert "rate=" in as_text(event) or event["event"] == "changed", "a pipe has the fields"


def test_an_event_of_another_version_has_its_fields() -> None:
    assert "rule=orders" in as_text(EVENTS[0], 80)


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_an_event_is_folded_between_its_fields_and_its_name_is_whole(width: int) -> None:
    event = {**EVENTS[0], "topic": f"%2F/orders/{LONG}", "reason": "the broker was moved and its disk was full " * 3}
    lines = as_text(event, width).splitlines()
    assert all(cell_width(line) <= width or line.strip() == LONG for line in lines), lines
    assert sum(LONG in line for line in lines) == 1
    assert " ".join(" ".join(lines).split()) == " ".join(as_text(event).split()), "nothing is left out"


def test_folding_keeps_parts_together_and_words_whole() -> None:
    assert fold(["/ orders a", "rule=x"], 12, indent="  ") == ["/ orders a", "  rule=x"]
    assert fold(["one", "two", "three", "four"], 10, indent="  ", first="head: ") == ["head: one", "  two", "  three", "  four"]
    assert fold(["x" * 12, "y"], 10, indent="  ") == ["x" * 12, "  y"]
    assert fold(["名" * 5, "b"], 11) == ["名" * 5, "b"]
    assert fold([], 10, first="head") == ["head"]


class Answers:
    """A gateway that fails with each of these errors in turn, and then has an event."""

    url = "http://127.0.0.1:9180"

    def __init__(self, *errors: CommandError) -> None:
        self.errors = [*errors]

    def follow(self, *_: object) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        yield "event", "b-1", {"event": "started"}

    def ask(self, *_: object, **__: object) -> Any:
        raise self.errors.pop(0)


def test_a_gateway_that_a_proxy_cannot_reach_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """`events -f` and `top` ended at the first 502 or 503, as a proxy answers while a gateway restarts, and it itself while it stops."""
    monkeypatch.setattr(events, "RETRY_S", 0.0)
    away = (
        CommandError(UNREACHABLE, "it is away"),
        CommandError(FAILED, "bad gateway", status=502),
        CommandError(FAILED, "it stops", status=503),
    )
    gateway: Any = Answers(*away)
    assert next(events.follow_events(gateway, {}, "")) == {"event": "started"}
    gone = CommandError(NOT_FOUND, "there is nothing at this path", status=404)
    with pytest.raises(CommandError):
        next(events.follow_events(Answers(gone), {}, ""))  # type: ignore[arg-type]
    view = TopView()
    view.look(Answers(away[2]))  # type: ignore[arg-type]
    assert view.trouble == "it stops; trying again"
    with pytest.raises(CommandError):
        view.look(Answers(gone))  # type: ignore[arg-type]
