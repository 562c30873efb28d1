"""`sluice connections`: who is connected, what holds them up, and closing one."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from cli.traffic_columns import CONNECTIONS


def connection(number: int, **more: Any) -> dict[str, Any]:
    shown = {"id": number, "listener": "rabbit", "protocol": "amqp", "client": f"10.0.0.{number}:5000", "user": "shop", "vhost": "/"}
    times = {"broker_blocked_seconds": 12.5, "send_blocked_seconds": 0.25, "held_messages": 3, "held_bytes": 1024}
    stages = {"age_seconds": 60.5, "credit": {"reader": {"blocked_seconds": 1.5}, "spool": {"stage": "disk"}}}
    named = {"client_properties": {"connection_name": "checkout-7"}, "held_by": {"rule": "bulk", "topic": "//amq.default/jobs"}}
    return {**shown, "state": "blocked", "bottleneck": "broker_blocked", "messages_forwarded": 9, **times, **stages, **named, **more}


def test_list_shows_the_user_of_each_connection_and_what_holds_it_up(sluice: Any, admin: Any) -> None:
    admin.topics = [connection(7)]
    head, line = sluice("connections", "list").out.splitlines()
    columns = (
        "name",
        "user",
        "vhost",
        "state",
        "bottleneck",
        "rule",
        "topic",
        "held",
        "held bytes",
        "spool stage",
        "flow s",
        "blocked s",
        "send blocked",
    )
    assert all(name in head for name in columns)
    assert line.split() == [
        "7", "rabbit", "10.0.0.7:5000", "checkout-7", "shop", "/", "blocked", "broker_blocked", "bulk", "//amq.default/jobs",
        "9", "-", "-", "3", "1024", "-", "disk", "1.5", "12.5", "0.25", "60.5", "-", "-", "-", "-",
    ]  # fmt: skip


def test_a_consumer_that_does_not_read_shows_as_one(sluice: Any, admin: Any) -> None:
    unread = {"messages_delivered": 60_512, "backlog_to_client": 262_144, "unread_seconds": 71.2, "bottleneck": "client"}
    admin.topics = [connection(7, client_properties={}, held_by=None, messages_forwarded=0, held_messages=0, state="flow", **unread)]
    item = sluice("connections", "list", "-o", "json").json[0]
    assert [item[name] for name in unread] == [*unread.values()]
    head, line = sluice("connections", "list", "-o", "csv").out.splitlines()
    assert [head.split(",")[at] for at in (-4, -3, -2)] == ["delivered", "unread", "unread_s"]
    assert line.split(",")[-4:-1] == ["60512", "262144", "71.2"]
    shown = {each.title: each.people(item) for each in CONNECTIONS if each.people is not None}
    assert [shown[name] for name in ("bottleneck", "delivered", "unread", "unread s")] == [
        "client does not read",
        "60.5k",
        "256 KiB",
        "1min 11s",
    ]


def test_a_client_that_is_gone_shows_as_one_with_what_still_goes_on(sluice: Any, admin: Any) -> None:
    admin.topics = [connection(7, state="client_gone", client_gone_seconds=12.5, held_messages=1200), connection(8)]
    item, other = sluice("connections", "list", "-o", "json").json
    (gone,) = [each for each in CONNECTIONS if each.title == "client gone s"]
    assert gone.people is not None
    assert (gone.read(item), gone.people(item)) == (12.5, "its client is gone; 1.2k messages still go on")
    assert gone.people(other) is None


def test_bytes_on_disk_have_a_column_where_something_is_spooled(sluice: Any, admin: Any) -> None:
    admin.topics = [connection(7, spooled_bytes=5 << 20, bottleneck="spool"), connection(8, spooled_bytes=0)]
    lines = sluice("connections", "list", "-o", "csv").out.splitlines()
    assert [line.split(",")[15] for line in lines] == ["spooled_bytes", "5242880", "0"]
    shown = {each.title: each.people for each in CONNECTIONS if each.people is not None}
    assert [shown["spooled bytes"](item) for item in admin.topics] == ["5 MiB", None], "a column of nothing but None is left out"
    assert [shown["bottleneck"](item) for item in admin.topics] == ["spool full or slow", "broker_blocked"]


def test_who_is_refused_shows_with_the_rate(sluice: Any, admin: Any) -> None:
    """Found by a reader: the connection of a flooder was "running", and nothing told it from the others."""
    flood = connection(7, refused_per_second=1480.2, messages_refused=90_000)
    admin.topics = [flood, connection(8, refused_per_second=0, messages_refused=0)]
    head, flooder, calm = (line.split(",") for line in sluice("connections", "list", "-o", "csv").out.splitlines())
    at = head.index("refused/s")
    assert (head[at + 1], flooder[at : at + 2], calm[at : at + 2]) == ("refused", ["1480.2", "90000"], ["0", "0"])
    shown = {each.title: each.people for each in CONNECTIONS if each.people is not None}
    assert [shown["refused/s"](item) for item in admin.topics] == ["1.48k/s", None]


def test_one_without_a_virtual_host_has_a_dash(sluice: Any, admin: Any) -> None:
    admin.topics = [connection(7, protocol="rocketmq", vhost=None, user=None, client_properties=None, held_by=None)]
    assert sluice("connections", "list").out.splitlines()[1].split()[3:10] == ["-", "-", "-", "blocked", "broker_blocked", "-", "-"]


def test_close_tells_why(sluice: Any, admin: Any) -> None:
    ran = sluice("connections", "close", 7, "--yes", "--reason", "runaway job")
    assert (ran.code, ran.out, ran.err) == (0, "", "connection 7 is being closed\n")
    (write,) = admin.writes()
    assert (write.method, write.path, write.query["reason"]) == ("DELETE", "/v1/connections/7", "runaway job")


def test_close_asks_first(sluice: Any, admin: Any) -> None:
    ran = sluice("connections", "close", 7)
    assert ran.code == 2
    assert "Close connection 7" in ran.err
    assert "add --yes" in ran.err
    assert admin.requests == []


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A keyboard on which these lines are typed; a line more would be the end of the file."""

    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

    return lambda *lines: monkeypatch.setattr("sys.stdin", Keyboard("".join(f"{line}\n" for line in lines)))


def test_who_may_not_close_is_told_before_a_question(sluice: Any, admin: Any, typing: Callable[..., None]) -> None:
    typing("y")
    said = "this needs the role operator; shop-team has viewer"
    forbidden = {"type": "urn:sluice:problem:forbidden", "title": "forbidden", "status": 403, "detail": said, "errors": []}
    admin.answers["DELETE /v1/connections/7"] = (403, forbidden)
    ran = sluice("connections", "close", 7)
    assert (ran.code, "needs the role operator" in ran.err, "[y/N]" in ran.out + ran.err) == (5, True, False)
    assert [write.query.get("dry_run") for write in admin.writes()] == ["1"]


def test_who_may_not_drain_is_told_before_a_question(sluice: Any, admin: Any, typing: Callable[..., None]) -> None:
    typing("y")
    said = "this needs the role admin; shop-team has viewer"
    forbidden = {"type": "urn:sluice:problem:forbidden", "title": "forbidden", "status": 403, "detail": said, "errors": []}
    admin.answers["POST /v1/drain"] = (403, forbidden)
    ran = sluice("drain")
    assert (ran.code, "needs the role admin" in ran.err, "[y/N]" in ran.out + ran.err) == (5, True, False)
    assert [write.query.get("dry_run") for write in admin.writes()] == ["1"]


@pytest.mark.parametrize(
    ("lines", "code", "questions", "closed"),
    [(["y"], 0, 1, True), (["si", "YES"], 0, 2, True), (["n"], 1, 1, False), ([""], 1, 1, False), (["q"] * 9, 1, 3, False)],
)
def test_a_question_takes_three_wrong_answers_at_most(
    sluice: Any, admin: Any, typing: Callable[..., None], lines: list[str], code: int, questions: int, closed: bool
) -> None:
    typing(*lines)
    ran = sluice("connections", "close", 7)
    assert (ran.code, (ran.out + ran.err).count("[y/N]")) == (code, questions)
    assert any(not write.query.get("dry_run") for write in admin.writes()) is closed
    assert ("nothing was changed" in ran.err) is not closed


def test_a_dry_run_of_closing_says_so(sluice: Any, admin: Any) -> None:
    ran = sluice("connections", "close", 7, "--dry-run")
    assert (ran.code, ran.err) == (0, "dry run, nothing is changed; would close connection 7\n")
    assert admin.writes()[-1].query["dry_run"] == "1"


def test_closing_an_unknown_connection_exits_with_7(sluice: Any, admin: Any) -> None:
    assert sluice("connections", "close", 99, "--yes").code == 7


def test_closing_takes_a_number_and_no_version(sluice: Any, admin: Any) -> None:
    assert sluice("connections", "close", "all", "--yes").code == 2
    assert sluice("connections", "close", 7, "--yes", "--if-version", "x").code == 2
    assert admin.requests == []
