"""Tables on terminals of any width: no line wider, no name broken, the important columns there; in a pipe everything and exact."""

from __future__ import annotations

import csv
import io
import json
import sys
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cli import tables
from cli.names import describe_path, quote_topic
from cli.output import clean, emit
from cli.tables import TableColumn, cell_width, column
from cli.traffic_columns import CONNECTIONS, TOPICS

TOPIC: dict[str, Any] = {
    "protocol": "amqp", "topic": "%2F/orders/order.created", "operation": "produce", "received_per_second": 1500.25,
    "forwarded_per_second": 497.5, "refused_per_second": 1002.75, "bytes_per_second": 235200.0, "received": 123456, "forwarded": 40000,
    "refused": 83456, "dropped": 0, "abandoned": 0, "waiting": 0, "used": 0.97, "wait_ms": 412.5, "group": None,
    "limit": {"messages": "500/s", "bytes": "5MiB/s", "origin": "override"},
    "clients": [{"client": "10.0.0.7", "refused": 83456, "refused_per_second": 1002.75}],
    "account": {"state": "refused", "client": "10.0.0.7", "client_share": 1.0},
}  # fmt: skip


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Show something on a terminal of a width; its lines, without colour."""

    def show(width: int, value: Any, shown: Any, form: str = "table") -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("NO_COLOR", "1")
        with monkeypatch.context() as within:
            made = Tty()
            within.setattr(sys, "stdout", made)
            emit(form, value, shown)
        return made.getvalue().splitlines()

    return show


def test_80_columns_have_what_an_operator_asks_first(terminal: Any, capsys: pytest.CaptureFixture[str]) -> None:
    head, line = terminal(80, [TOPIC], TOPICS)
    assert head.split() == ["topic", "received", "passed", "refused", "limit", "used", "worst", "client"]
    assert line == "/ orders order.created    1.5k/s   498/s     1k/s  500/s  97 %  10.0.0.7 100 %"
    assert capsys.readouterr().err == "12 columns more with -o wide\n"


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("topic", ["order.created", "a.very.long.topic.name.of.a.team.that.writes.long.names.and.more.of.them.0"])
def test_the_topic_that_holds_a_connection_up_is_whole(terminal: Any, width: int, topic: str) -> None:
    held = {"protocol": "rocketmq", "topic": topic, "rule": "rocketmq-topics", "operation": "produce"}
    connection = {
        "id": 1,
        "client": "127.0.0.1:36104",
        "state": "running",
        "bottleneck": "limit",
        "messages_forwarded": 6840,
        "held_by": held,
    }
    lines = terminal(width, [connection], CONNECTIONS)
    assert any(topic in line for line in lines), lines
    assert max(map(cell_width, lines)) <= width


@pytest.mark.parametrize("width", [80, 100, 120])
def test_messages_that_wait_show_at_any_width_and_none_makes_no_column(terminal: Any, width: int) -> None:
    wide = {**TOPIC, "received_per_second": 123_456.0, "limit": {"messages": "123456/s", "bytes": "5MiB/s"}}
    held = {**wide, "refused_per_second": 0.0, "clients": [], "waiting": 312}
    for topics in ([held], [wide, held]):
        head, *lines = terminal(width, topics, TOPICS)
        assert ("waiting" in head.split(), "312" in lines[-1].split()) == (True, True), head
        assert max(map(cell_width, lines)) <= width
    assert "waiting" not in terminal(80, [wide], TOPICS)[0]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_prose_that_does_not_fit_stands_whole_below_its_line(terminal: Any, capsys: pytest.CaptureFixture[str], width: int) -> None:
    prose = [column("name", "name", rank=0), column("number", "number", rank=1), column("reason", "reason", rank=2, below=True)]
    long = "the warehouse in Berlin had its disks full, and its clients sent everything twice " * 2
    lines = terminal(width, [{"name": "a", "number": 1, "reason": long}, {"name": "b", "number": 2}], prose)
    assert lines[0].split() == ["name", "number"]
    assert [lines[1].split(), lines[-1].split()] == [["a", "1"], ["b", "2"]]
    assert " ".join(" ".join(lines[2:-1]).split()) == f"reason: {long.strip()}"
    assert max(map(cell_width, lines)) <= width
    assert "-o wide" not in capsys.readouterr().err, "nothing is missed"
    assert terminal(width, [{"name": "a", "number": 1, "reason": "short"}], prose)[1].split() == ["a", "1", "short"]


def test_columns_go_below_one_by_one_and_a_whole_name_takes_lines_rather_than_lose_its_middle() -> None:
    shown = [
        column("name", "name", rank=0, whole=True), column("by", "by", rank=1, below=True), column("reason", "reason", rank=2, below=True),
    ]  # fmt: skip
    name, reason = f"/ orders {'w' * 50}", "because of the warehouse"
    made = tables.fit_table(shown, [[name, "ops", reason], ["short", "-", "-"]], 40)
    lines = ["name   by", "/ orders", "w" * 50, "       ops", "    reason: because of the warehouse", "short  -"]
    assert [" ".join(line.split()) for line in made.lines] == [" ".join(line.split()) for line in lines]
    assert (made.dropped, made.shortened) == (0, False)
    assert tables.fit_table(shown, [["a", "ops", reason]], 40).lines[1] == "a     ops  because of the warehouse"
    narrow = tables.fit_table(shown, [["a" * 30, "somebody of the night shift", reason]], 40)
    assert [line.split(":")[0].strip() for line in narrow.lines[2:]] == ["by", "reason"]


@pytest.mark.parametrize("client", ["127.0.0.77", "203.0.113.177", "2001:db8:85a3:8d3:1319:8a2e:370:7348"])
@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_address_of_the_worst_client_is_whole_or_not_there(terminal: Any, client: str, width: int) -> None:
    """Of an address without its middle nobody knows whose it is."""
    rates = {"received_per_second": 1152.5, "forwarded_per_second": 12.25, "refused_per_second": 1140.25, "bytes_per_second": 235_200.0}
    account = {"state": "refused", "client": client, "client_share": 0.991}
    busy = {**TOPIC, **rates, "topic": "%2F/amq.default/orders.of.the.warehouse", "limit": {"messages": "2500/s"}, "account": account}
    head, *lines = terminal(width, [busy], TOPICS)
    assert tables.ELLIPSIS not in "".join(lines)
    assert max(map(cell_width, lines)) <= width
    assert [title for title in ("received", "passed", "refused") if title not in head.split()] == []
    assert "limit" in head.split() or width < 120 or len(client) > 30
    assert f"{client} 99.1 %" in lines[-1] or (len(client) > 30 and width < 120)


def test_wider_terminals_have_more_and_wide_has_all(terminal: Any, capsys: pytest.CaptureFixture[str]) -> None:
    seen = [set(terminal(width, [TOPIC], TOPICS)[0].split("  ")) - {""} for width in (80, 120, 200)]
    assert [len(some) for some in seen] == sorted({len(some) for some in seen})
    capsys.readouterr()
    head, line = terminal(80, [TOPIC], TOPICS, "wide")
    assert [title for each in TOPICS if (title := each.title) not in head] == []
    assert all(text in line for text in ("/ orders order.created", "1.5k/s", "230 KiB/s", "97 %", "123k", "5 MiB/s"))
    assert capsys.readouterr().err == ""


def test_a_pipe_has_every_column_and_exact_values(capsys: pytest.CaptureFixture[str]) -> None:
    emit("table", [TOPIC], TOPICS)
    out, err = capsys.readouterr()
    assert [text for text in ("%2F/orders/order.created", "1500.25", "123456", "0.97", "235200", "412.5") if text not in out.split()] == []
    assert err == ""


def test_csv_json_and_yaml_are_exact(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = {**TOPIC, "topic": 'a,"b"\nc'}
    emit("csv", {"items": [TOPIC, hostile], "next": None}, TOPICS)
    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (first["topic"], first["received/s"], first["used"], first["group"]) == ("%2F/orders/order.created", "1500.25", "0.97", "")
    assert second["topic"] == 'a,"b"\\u000ac'  # what acts where it is shown
    emit("csv", {"items": [], "next": None}, TOPICS)
    assert len(capsys.readouterr().out.splitlines()) == 1
    emit("csv", {"name": "a", "inner": {"b": 1.5, "c": True}})
    assert list(csv.reader(io.StringIO(capsys.readouterr().out)))[1:] == [["name", "a"], ["inner.b", "1.5"], ["inner.c", "yes"]]
    emit("json", [TOPIC], TOPICS)
    assert json.loads(capsys.readouterr().out) == [TOPIC]
    emit("yaml", [TOPIC], TOPICS)
    assert yaml.safe_load(capsys.readouterr().out) == [TOPIC]


def test_a_list_without_items_is_told_in_words(terminal: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    emit("table", [], TOPICS, empty="no topics yet")
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (1, "no topics yet\n")
    monkeypatch.setattr(sys, "stdout", made := Tty())
    emit("table", [], TOPICS, empty="no topics yet")
    assert (made.getvalue(), capsys.readouterr().err) == ("", "no topics yet\n")


some_names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=150) | st.sampled_from(
    ["订单" * 30, "😀" * 40, "order." * 25, "%RETRY%g"]
)


@given(names=st.lists(some_names, min_size=1, max_size=5), width=st.integers(60, 250))
def test_no_line_is_wider_than_the_terminal_and_no_name_is_broken(names: list[str], width: int) -> None:
    shown = [column("name", "name", rank=0), column("n", "n", rank=1), TableColumn("why", lambda item: item["why"], 2)]
    names = [clean(name) or "-" for name in names]
    rows = [[name, "123", f"because of {name}"] for name in names]
    made = tables.fit_table(shown, rows, width)
    assert max(map(cell_width, made.lines)) <= width
    text = made.lines[1:]
    for name in names:
        if cell_width(name) <= width:
            assert any(line.startswith(name.rstrip()) for line in text)
    assert sum("123" in line for line in text) >= len(names)


@given(some_names, st.integers(0, 60))
def test_shortened_text_keeps_both_ends(text: str, width: int) -> None:
    short = tables.shorten(text, width)
    assert cell_width(short) <= width
    if cell_width(text) <= width:
        assert short == text
    elif width > 4:
        head, _, tail = short.partition("…")
        assert text.startswith(head)
        assert text.endswith(tail)


@pytest.mark.parametrize(
    ("protocol", "text", "words"),
    [
        ("amqp", "%2F/orders/order.created", "/ orders order.created"),
        ("amqp", "%2F/amq.default/jobs", "/ amq.default jobs"),
        ("amqp", "%2F/orders/", "/ orders ''"),
        ("amqp", "a%20b/x%27y/order.%23", "'a b' \"x'y\" 'order.#'"),
        ("amqp", "%2F/%E8%AE%A2%E5%8D%95/%F0%9F%98%80", "/ 订单 😀"),
        ("rocketmq", "%RETRY%workers", "%RETRY%workers"),
        ("rocketmq", "__other__", "__other__"),
        ("amqp", "no topic", "no topic"),
    ],
)
def test_names_are_as_one_types_them(protocol: str, text: str, words: str) -> None:
    assert quote_topic(protocol, text) == words


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("limits/amqp/%2F/orders/order.created", "amqp / orders order.created"),
        ("limits/rocketmq/%25RETRY%25g", "rocketmq %RETRY%g"),
        ("/v1/rules/a%20b", "rule 'a b'"),
        ("quotas", "quotas"),
        ("limits/client/10.0.0.7", "client 10.0.0.7"),
        ("limits/client/2001%3Adb8%3A%3A7", "client 2001:db8::7"),
        ("limits/consume/client/10.0.0.7", "client 10.0.0.7 --operation consume"),
        ("limits/consume/queue/%2F/jobs", "queue / jobs"),
        ("limits/consume/group/billing", "group billing"),
        ("limits/group/billing", "group billing --operation produce"),
        ("limits/consume/rocketmq/orders", "rocketmq orders --operation consume"),
        ("limits/exchange/%2F/my%20orders", "exchange / 'my orders'"),
        ("live-rules/storm", "rule storm"),
    ],
)
def test_targets_of_changes_are_as_one_types_them(path: str, words: str) -> None:
    assert describe_path(path) == words


def test_what_is_left_over_goes_to_cells_that_were_to_be_shortened() -> None:
    shown = [column("name", "name", rank=0), column("n", "n", rank=1), column("reason", "reason", rank=2)]
    row = ["orders", "5", "w" * 90]
    assert tables.fit_table(shown, [row], 200).lines[1] == f"orders  5  {'w' * 90}"
    assert cell_width(tables.fit_table(shown, [row], 80).lines[1]) == 80


@pytest.mark.parametrize(("text", "width"), [
    ("orders", 6), ("Grüße", 5), ("Gru\u0308ße", 5), ("订单", 4), ("ﾃﾞ", 2), ("한국", 4), ("\u1112\u1161\u11ab", 2), ("🚀", 2),
    ("a\u200db", 2),
])  # fmt: skip
def test_the_columns_that_a_terminal_gives_a_text(text: str, width: int) -> None:
    assert cell_width(text) == width
