"""What goes to stdout, and what never reaches a terminal."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest
import yaml

from cli.output import cell, clean, colourful, columns, emit, stack_items, table_width

HOSTILE = "\x1b[31mred\x1b[0m\x1b]0;title\x07\x9b2J\r\nnext\u202eevil\u200b[bold]x[/bold]\x00\udcff"


def test_clean_leaves_nothing_that_steers() -> None:
    assert clean(HOSTILE) == "red··next·evil·[bold]x[/bold]··"
    assert clean("名前 %RETRY%g é") == "名前 %RETRY%g é"
    assert clean("orders\x1b]: limited now") == "orders: limited now", "what a name begins and does not end hides nothing behind it"


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_hostile_names_do_not_steer_a_terminal(capsys: pytest.CaptureFixture[str], form: str) -> None:
    emit(form, [{"topic": HOSTILE.replace("\udcff", ""), "n": 1}])
    emit(form, {"topic": HOSTILE.replace("\udcff", "")})
    out = capsys.readouterr().out
    assert all(char.isprintable() or char == "\n" for char in out), repr(out)
    assert "[bold]x[/bold]" in out


@pytest.mark.parametrize("topic", [HOSTILE.replace("\udcff", ""), "a\u202eb", "\u200b", "\x9b", "名", "a\nb", "no", "1e3"])
def test_json_and_yaml_keep_the_names_as_they_are(capsys: pytest.CaptureFixture[str], topic: str) -> None:
    value = {"topic": topic, "名": [1, None, True]}
    emit("json", value)
    assert json.loads(capsys.readouterr().out) == value
    emit("yaml", value)
    assert yaml.safe_load(capsys.readouterr().out) == value


def test_a_table_that_is_piped_is_never_wrapped_nor_coloured(capsys: pytest.CaptureFixture[str]) -> None:
    emit("table", [{"topic": "t" * 300, "refused": 5}, {"topic": "short", "refused": None}])
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["topic", "refused"]
    assert first.split() == ["t" * 300, "5"]
    assert second.split() == ["short", "-"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("no_colour", "term", "coloured"), [(None, "xterm", True), ("1", "xterm", False), ("", "xterm", True), (None, "dumb", False)]
)
def test_colour_only_on_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch, no_colour: str | None, term: str, coloured: bool) -> None:
    monkeypatch.setenv("TERM", term)
    if no_colour is None:
        monkeypatch.delenv("NO_COLOR", raising=False)
    else:
        monkeypatch.setenv("NO_COLOR", no_colour)
    assert not colourful()
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert colourful() is coloured
    emit("table", [{"a": 1}])
    assert ("\x1b[1" in terminal.getvalue()) is coloured


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (True, "yes"),
        (False, "no"),
        (1.5, "1.5"),
        (100.0, "100"),
        (0.12345, "0.123"),
        ({"a": 1, "b": None}, "a 1, b -"),
        ([1, "x"], "1, x"),
        (0, "0"),
    ],
)
def test_cells(value: Any, shown: str) -> None:
    assert cell(value) == shown


def test_columns_reach_into_objects(capsys: pytest.CaptureFixture[str]) -> None:
    emit("table", [{"a": {"b": 1}}, {"a": None}], columns("a.b"))
    assert capsys.readouterr().out == "b\n1\n-\n"


@pytest.mark.parametrize(("width", "is_table"), [(80, False), (200, True)])
def test_on_a_narrow_terminal_a_wide_table_is_stacked(monkeypatch: pytest.MonkeyPatch, width: int, is_table: bool) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    items = [
        {"protocol": "rocketmq", "topic": "t" * 40, "rate": "1000000/s (2000000) -> 2000000/s (4000000)", "none": None, "why": "word " * 20}
    ]
    emit("table", items, columns("protocol", "topic", "rate", "none", "why"), stack=True)
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert ("protocol" in lines[0]) is is_table
    if not is_table:
        assert lines[0] == f"rocketmq {'t' * 40}"
        assert lines[1] == "  rate  1000000/s (2000000) -> 2000000/s (4000000)"
        assert lines[2].startswith("  why   word word")
        assert lines[3].startswith("        word word")


def test_a_table_that_fits_is_a_table() -> None:
    shown = columns("a", "b")
    assert table_width([{"a": "xx", "b": "y" * 500}], shown) == 34
    assert stack_items([{"a": 1, "b": None}], shown, 80) == ["1 -"]
    assert table_width([{"a": "xx", "b": "y" * 500}], shown, uncut=True) == 504
    assert stack_items([], shown, 80) == []


def test_stacked_lines_break_no_name() -> None:
    lines = stack_items([{"a": "x", "b": "one-two-" * 12, "why": "word " * 20}], columns("a", "b", "why"), 80)
    assert lines[1:2] == ["one-two-" * 12]
    assert max(map(len, lines[2:])) <= 80
    assert stack_items([{"a": "x", "b": "y", "why": "z"}], columns("a", "b", "why"), 80, 1) == ["x", "  b    y", "  why  z"]
