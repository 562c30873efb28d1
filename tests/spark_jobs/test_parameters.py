"""Parameters: whole numbers in bounds, errors that name the parameter."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from spark_jobs.parameters import Parameters


def test_options_may_be_text_or_absent() -> None:
    given = Parameters.of({"margin_percent": "30", "floor_messages": 5, "half_life_days": None})
    assert given == Parameters(margin_percent=30, floor_messages=5)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"margin": 15}, "margin: no such parameter; known: backtest_days"),
        ({"margin_percent": "15%"}, "margin_percent: '15%' is not a whole number"),
        ({"margin_percent": 0.15}, "margin_percent: 0.15 is not a whole number"),
        ({"margin_percent": True}, "margin_percent: True is not a whole number"),
        ({"remember_days": 0}, "remember_days: 0 is below 1"),
        ({"percentile_permille": 1001}, "percentile_permille: 1001 is above 1000"),
        ({"step_down_percent": 120}, "step_down_percent: 120 is above 100"),
        ({"weighting": "count"}, "weighting: 'count' is not one of load, seconds"),
        ({"ceiling_messages": 5}, "ceiling_messages: 5 is below floor_messages (10)"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint.partition(":")[0]) as caught:
        Parameters.of(options)
    assert str(caught.value).startswith(complaint)


def test_every_parameter_says_what_it_is() -> None:
    assert [each.name for each in fields(Parameters) if not each.metadata["help"]] == []


def test_rules_tried_under_other_parameters_are_another_fingerprint_and_guard_rails_are_not() -> None:
    assert Parameters().fingerprint() != Parameters(margin_percent=20).fingerprint()
    assert Parameters().fingerprint() == Parameters(step_up_percent=300).fingerprint()


def test_the_documentation_lists_every_parameter_with_its_default() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "quotas.md").read_text()
    table = [
        line for line in text.splitlines() if line.startswith("| `") and line.split("`")[1] in {each.name for each in fields(Parameters)}
    ]
    assert table == [f"| `{each.name}` | {each.default} | {each.metadata['help']} |" for each in fields(Parameters)]
