"""`sluice quotas backtest`: its files and its table; what it computes is tested in tests/spark_jobs/backtest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.quota_backtest import number, percent, show
from spark_jobs.backtest.result import Backtest, Outcome, sum_outcomes


def played() -> Backtest:
    def outcome(name: str, topic: str, refused: int, **more: object) -> Outcome:
        return Outcome(name, "rocketmq", topic, offered=12_345_678, refused=refused, blackout=12, **more)  # type: ignore[arg-type]

    long = "a.topic.with.a.name.longer.than.the.table.is.wide"
    day = [
        outcome("published", long, 54_321, reserved=2e9, unused=1.5e9),
        outcome("mine", long, 54_321, clients={"2001:db8:1234:5678:9abc:def0:1234:5678": 54_000}),
        outcome("mine", "quiet", 0),
    ]
    found = sum_outcomes("exact", "2026-11-20", "2026-11-20", [("2026-11-20", day)])
    found.notes.append("rule x is not replayed: it is per connection")
    return found


def test_the_tables_fit_eighty_columns_and_name_the_worst(capsys: pytest.CaptureFixture[str]) -> None:
    show(played(), "table", 10)
    out, err = capsys.readouterr()
    assert max(map(len, out.splitlines())) <= 80
    assert "published" in out
    assert "0.44 %" in out
    assert "75 %" in out
    assert "Most refused by mine:" in out
    assert "2001:db8" in out
    assert "quiet" not in out
    assert "note: rule x is not replayed" in err


def test_a_file_gets_the_json_beside_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    show(played(), str(file), 10)
    document = json.loads(file.read_text())
    assert document["totals"]["mine"]["refused"] == 54_321
    assert "published" in capsys.readouterr().out
    show(played(), "json", 10)
    assert json.loads(capsys.readouterr().out) == document


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (999, "999"), (1000, "1k"), (4_561_000, "4.56M"), (12_345, "12.3k"), (999_960, "1M"), (5e14, "500T")],
)
def test_numbers_have_at_most_five_characters(value: float | None, text: str) -> None:
    assert number(value) == text


def test_a_share_of_nothing_is_not_zero() -> None:
    assert [percent(None), percent(0.0), percent(0.000123)] == ["-", "0 %", "0.0123 %"]


@pytest.mark.parametrize(
    ("option", "text", "code", "said"),
    [
        ("--limits", "rules: [{name: a, per: moon}]", 3, "moon"),
        ("--limits", None, 3, "cannot be read"),
        ("--limits", "rules:\n- {name: a, limit: {messages: 1/s}}\n- {name: a, limit: {messages: 2/s}}", 3, "is taken by"),
        ("--quotas", "{}", 3, "is missing"),
        ("--quotas", None, 2, "No such file"),
    ],
)
def test_a_faulty_file_is_named_with_its_fault(option: str, text: str | None, code: int, said: str, tmp_path: Path, sluice: Any) -> None:
    file = tmp_path / "given"
    if text is not None:
        file.write_text(text)
    ran = sluice("quotas", "backtest", "--log", "l", "--from", "2026-11-20", option, file)
    assert ran.code == code
    assert said in ran.err
    assert str(file) in ran.err


def test_an_output_that_is_neither_form_nor_file_is_refused(sluice: Any) -> None:
    ran = sluice("quotas", "backtest", "--log", "l", "--from", "2026-11-20", "-o", "xml")
    assert ran.code == 2
    assert "ends in .json" in ran.err
