"""Numbers, times and names as a person reads them."""

from __future__ import annotations

import pytest

from spark_jobs.report.words import (
    UNKNOWN,
    amount_text,
    clean_text,
    factor_text,
    moment_text,
    number_text,
    rate_text,
    share_text,
    short_day,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (7, "7"), (0.01234, "0.0123"), (12.345, "12.3"), (999.4, "999"), (999.6, "1k"), (1234, "1.23k"), (5e15, "5P")],
)
def test_three_digits(number: float, text: str) -> None:
    assert number_text(number) == text


@pytest.mark.parametrize(
    ("each_second", "text"),
    [
        (None, UNKNOWN),
        (0, "0/s"),
        (500, "500/s"),
        (2.5, "2.5/s"),
        (1 / 60, "1/min"),
        (1 / 3600, "1/h"),
        (1e-6, "0.0864/day"),
        (12_345, "12.3k/s"),
    ],
)
def test_rates_of_messages(each_second: float | None, text: str) -> None:
    assert rate_text("messages", each_second) == text


def test_rates_and_amounts_of_bytes() -> None:
    assert rate_text("bytes", 5 * 2**20) == "5 MiB/s"
    assert rate_text("bytes", 0) == "0 B/s"
    assert amount_text("bytes", 1536) == "1.5 KiB"
    assert amount_text("messages", None) == UNKNOWN


@pytest.mark.parametrize(
    ("part", "text"), [(None, UNKNOWN), (0, "0 %"), (0.0007, "0.07 %"), (1e-9, "< 0.001 %"), (0.12345, "12.3 %"), (1, "100 %")]
)
def test_shares(part: float | None, text: str) -> None:
    """A share that is not nothing never reads as nothing."""
    assert share_text(part) == text


def test_factors() -> None:
    assert (factor_text(1.5), factor_text(None), factor_text(float("inf"))) == ("\u00d7 1.5", UNKNOWN, "\u00d7 ∞")


def test_times_have_their_zone() -> None:
    assert moment_text("2026-11-21T00:15:07Z", None) == "2026-11-21 00:15:07 UTC"
    assert moment_text("2026-11-21T00:15:07Z", "UTC") == "2026-11-21 00:15:07 UTC"
    assert moment_text("2026-11-21T00:15:07Z", "Europe/Berlin") == "2026-11-21 00:15:07 UTC (2026-11-21 01:15 Europe/Berlin)"
    assert moment_text("2026-11-21T00:15:07Z", "../etc/passwd") == "2026-11-21 00:15:07 UTC"
    assert moment_text("2026-11-21T00:15:07", None) == "2026-11-21 00:15:07 (no zone given)"
    assert moment_text("soon\x1b[31m", None) == "soon·[31m"


def test_days() -> None:
    assert (short_day("2026-11-20"), short_day("someday")) == ("20 Nov", "someday")


def test_names_are_one_clean_line_of_bounded_length() -> None:
    assert clean_text("a\nb\u202ec\x00") == "a·b·c·"
    shown = clean_text("x" * 500 + "end", 96)
    assert (len(shown), shown[-3:]) == (96, "end")
