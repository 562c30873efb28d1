"""Units as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiter.limits import Rate
from limiter.units import (
    format_byte_rate,
    format_duration,
    format_rate,
    format_share,
    format_size,
    parse_byte_rate,
    parse_duration,
    parse_from_now,
    parse_rate,
    parse_share,
    parse_size,
)
from support.cases import in_one_loop

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("500/s", Rate(500)),
        ("30k/min", Rate(500)),
        ("2M/h", Rate(5000, 9 * SECOND)),
        ("1/ms", Rate(1000)),
        ("0.5/s", Rate(1, 2 * SECOND)),
        ("1/10s", Rate(1, 10 * SECOND)),
        ("0/s", Rate(0)),
        (" 7 / min ", Rate(7, 60 * SECOND)),
        ("1/d", Rate(1, 86400 * SECOND)),
    ],
)
def test_rates(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10MiB/s", Rate(10 * 2**20)),
        ("64kB/s", Rate(64_000)),
        ("1.5MiB/s", Rate(3 * 2**19)),
        ("500/s", Rate(500)),
        ("1GiB/min", Rate(2**30, 60 * SECOND)),
    ],
)
def test_byte_rates(text: str, rate: Rate) -> None:
    assert parse_byte_rate(text) == rate


@pytest.mark.parametrize(("text", "size"), [("1MiB", 2**20), ("64kB", 64_000), ("512B", 512), ("0.5KiB", 512), ("0B", 0)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "ns"),
    [("2s", 2 * SECOND), ("500ms", SECOND // 2), ("1.5min", 90 * SECOND), ("1h", 3600 * SECOND), ("0s", 0), ("250us", 250_000)],
)
def test_durations(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


def test_in_30m_means_in_half_an_hour() -> None:
    assert parse_from_now("30m") == parse_from_now("1.5 m") * 20 == parse_duration("30min")
    assert parse_from_now("2s") == 2 * SECOND
    with pytest.raises(ValueError, match=r"30M: unknown unit 'M'|'30M'"):
        parse_from_now("30M")


@in_one_loop
@pytest.mark.parametrize(
    ("read", "text", "hint"),
    [
        (parse_rate, "500", "500 has no unit; did you mean 500/s?"),
        (parse_rate, 500, "500 has no unit; did you mean 500/s?"),
        (parse_rate, "500/sec", "'500/sec': unknown unit 'sec'; did you mean 500/s?"),
        (parse_rate, "5K/s", "'5K/s': unknown unit 'K'; did you mean 5k/s?"),
        (parse_rate, "10MiB/s", "'10MiB/s': unknown unit 'MiB'; known: k, M; for example 500/s"),
        (parse_rate, "-5/s", "'-5/s' is no rate (it cannot be negative); write it like 500/s"),
        (parse_rate, "nan/s", "'nan/s' is no rate; write it like 500/s"),
        (parse_rate, "inf/s", "'inf/s' is no rate; write it like 500/s"),
        (parse_rate, "5/0s", "'5/0s': a rate needs a period longer than nothing; write it like 500/s"),
        (parse_rate, "", "'' is no rate; write it like 500/s"),
        (parse_rate, "5e3/s", "'5e3/s' is no rate; write it like 500/s"),
        (parse_byte_rate, "10mb/s", "'10mb/s': unknown unit 'mb'; did you mean 10MB/s?"),
        (parse_byte_rate, "10MiB", "10MiB has no unit; did you mean 10MiB/s?"),
        (parse_size, "100", "100 has no unit; did you mean 100MiB?"),
        (parse_size, "1mib", "'1mib': unknown unit 'mib'; did you mean 1MiB?"),
        (parse_size, "0.3B", "'0.3B' is not a whole number of bytes"),
        (parse_duration, "2", "2 has no unit; did you mean 2s?"),
        (parse_duration, True, "True is no duration; write it like 2s"),
        (parse_duration, "2 sec", "'2 sec': unknown unit 'sec'; did you mean 2 s?"),
        (parse_duration, "-1s", "'-1s' is no duration (it cannot be negative); write it like 2s"),
    ],
)
def test_errors_name_the_text_and_the_way_out(read: object, text: object, hint: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  -- the whole message is compared
        read(text)  # type: ignore[operator]
    assert str(caught.value) == hint


def test_an_endless_text_is_refused_in_no_time() -> None:
    with pytest.raises(ValueError, match="is no rate"):
        parse_rate("9" * 10**6 + "/s")


def test_too_much_is_an_error() -> None:
    with pytest.raises(ValueError, match="above"):
        parse_rate("9999999999999999/s")


exact_rates = st.builds(Rate, st.integers(0, 10**6), st.integers(1, 10**13))


@settings(max_examples=150, deadline=None)
@given(rate=exact_rates)
def test_a_rate_survives_being_written(rate: Rate) -> None:
    assert parse_rate(format_rate(rate)) == rate
    assert parse_byte_rate(format_byte_rate(rate)) == rate


@settings(max_examples=100, deadline=None)
@given(number=st.integers(0, 10**18))
def test_sizes_and_durations_survive_being_written(number: int) -> None:
    assert parse_size(format_size(number)) == number
    assert parse_duration(format_duration(number)) == number


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (Rate(500), "500/s"),
        (Rate(1, 2 * SECOND), "0.5/s"),
        (Rate(7, 60 * SECOND), "7/min"),
        (Rate(1, 7 * SECOND), "1/7s"),
        (Rate(0), "0/s"),
        (Rate(25, 2 * SECOND), "12.5/s"),
    ],
)
def test_rates_are_written_shortly(rate: Rate, text: str) -> None:
    assert format_rate(rate) == text


def test_byte_rates_sizes_and_durations_are_written_shortly() -> None:
    assert format_byte_rate(Rate(10 * 2**20)) == "10MiB/s"
    assert format_byte_rate(Rate(0)) == "0B/s"
    assert format_size(65536) == "64KiB"
    assert format_size(1500) == "1500B"
    assert format_duration(90 * SECOND) == "90s"
    assert format_duration(0) == "0s"


@pytest.mark.parametrize(
    ("text", "parts", "window_ns", "written"),
    [
        ("10%/10s", 100_000, 10 * SECOND, "10%/10s"),
        (" 0.5 % / 1 min ", 5000, 60 * SECOND, "0.5%/1min"),
        ("0%/1s", 0, SECOND, "0%/1s"),
        ("100%/600s", 1_000_000, 600 * SECOND, "100%/10min"),
        ("0.0001%/1500ms", 1, 1500 * SECOND // 1000, "0.0001%/1500ms"),
    ],
)
def test_shares(text: str, parts: int, window_ns: int, written: str) -> None:
    share = parse_share(text)
    assert (share.parts, share.window_ns) == (parts, window_ns)
    assert format_share(share) == written
    assert parse_share(written) == share


@pytest.mark.parametrize(
    "text", ["10%", "10/10s", "10%/0s", "10%/11min", "100.1%/10s", "-1%/10s", "0.00001%/10s", "10%/1.0001s", "", "%/s"]
)
def test_a_text_that_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"10%/10s|at most|the most"):
        parse_share(text)


def test_a_rate_of_too_many_digits_is_refused() -> None:
    """What is shown of it would be longer than what is read: it could not be sent back."""
    rate = parse_rate("0.1234567890123456789012/s")
    assert parse_rate(format_rate(rate)) == rate
    with pytest.raises(ValueError, match="a rate has 24 digits at most; write it like 500/s"):
        parse_rate("0.12345678901234567890123/s")
