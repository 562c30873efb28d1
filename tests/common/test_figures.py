"""Numbers for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import figures


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0/s"), (0.25, "0.25/s"), (0.0333333, "0.0333/s"), (1, "1/s"), (37.04, "37/s"), (497.52, "498/s"), (999.7, "1k/s"),
     (1500, "1.5k/s"),      (9866.399, "9.87k/s"), (123456, "123k/s"), (999_999, "1M/s"), (2.5e9, "2.5G/s"), (-3, "-3/s")],
)  # fmt: skip
def test_rates(number: float, text: str) -> None:
    assert figures.rate(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (512, "512 B"), (1000, "0.977 KiB"), (1024, "1 KiB"), (235200, "230 KiB"), (5 << 20, "5 MiB"), (1536 << 10, "1.5 MiB"),
     (1 << 40, "1 TiB"), (5 << 50, "5 PiB")],
)  # fmt: skip
def test_sizes(number: float, text: str) -> None:
    assert figures.size(number) == text
    assert figures.byte_rate(number) == f"{text}/s"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (0.00001, "0.1 %"), (0.004, "0.4 %"), (0.97, "97 %"), (0.9999, "99.9 %"), (0.994, "99.4 %"), (1, "100 %"), (1.5, "150 %")],
)
def test_percents(share: float, text: str) -> None:
    assert figures.percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.00008, "80us"), (0.25, "250ms"), (1, "1s"), (12.54, "12.5s"), (59.7, "1min"), (60, "1min"), (728, "12min 8s"),
     (3599.9, "1h"), (7500, "2h 5min"), (86400, "1d"), (4 * 86400 + 3 * 3600, "4d 3h"), (-5, "-5s")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert figures.duration(seconds) == text


@given(st.floats(0, 1e14))
def test_never_more_than_three_digits_and_never_off_by_more_than_half_a_percent(number: float) -> None:
    text = figures.count(number)
    plain = text.rstrip("kMGT")
    assert sum(letter.isdigit() for letter in plain.lstrip("0.")) <= 3 or number < 1
    value = float(plain) * 1000 ** " kMGT".index(text[len(plain) :] or " ")
    assert value == pytest.approx(number, rel=0.0051, abs=1e-8)
