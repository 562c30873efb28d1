"""Parameters: whole numbers in bounds, errors that name the parameter."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from spark_jobs.parameters import Parameters


def test_options_may_be_text_or_absent() -> None:
    given = Parameters.of({"target_refused_ppm": "300", "floor_per_minute": 5, "half_life_days": None, "time_zone": "Asia/Tokyo"})
    assert given == Parameters(target_refused_ppm=300, floor_per_minute=5, time_zone="Asia/Tokyo")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"margin": 15}, "margin: no such parameter; known: burst_seconds"),
        ({"step_up_percent": "15%"}, "step_up_percent: '15%' is not a whole number"),
        ({"step_up_percent": 0.15}, "step_up_percent: 0.15 is not a whole number"),
        ({"step_up_percent": True}, "step_up_percent: True is not a whole number"),
        ({"remember_days": 0}, "remember_days: 0 is below 1"),
        ({"target_refused_ppm": 0}, "target_refused_ppm: 0 is below 1"),
        ({"burst_seconds": 31}, "burst_seconds: 31 is above 30"),
        ({"step_down_percent": 120}, "step_down_percent: 120 is above 100"),
        ({"time_zone": "Mars"}, "time_zone: 'Mars' is unknown"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint.partition(":")[0]) as caught:
        Parameters.of(options)
    assert str(caught.value).startswith(complaint)


def test_every_parameter_says_what_it_is() -> None:
    assert [each.name for each in fields(Parameters) if not each.metadata["help"]] == []


def test_what_a_day_s_rows_are_made_with_is_the_fingerprint_and_guard_rails_are_not() -> None:
    assert Parameters().fingerprint() != Parameters(storm_share_ppm=20).fingerprint()
    assert Parameters().fingerprint() != Parameters(time_zone="Asia/Tokyo").fingerprint()
    assert Parameters().fingerprint() == Parameters(step_up_percent=300).fingerprint()


def test_the_documentation_lists_every_parameter_with_its_default() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "how-a-quota-is-computed.md").read_text()
    table = [
        line for line in text.splitlines() if line.startswith("| `") and line.split("`")[1] in {each.name for each in fields(Parameters)}
    ]
    assert table == [f"| `{each.name}` | {each.default} | {each.metadata['help']} |" for each in fields(Parameters)]
