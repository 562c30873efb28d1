"""Which gateways are missing, and which are not to be expected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spark_jobs.days import Day
from spark_jobs.errors import EarlyEndError, InsufficientInputError
from spark_jobs.log.completeness import (
    MAX_SILENCE_S,
    MAY_COME_S,
    count_by_hour,
    describe_ended,
    describe_gateways,
    find_missing,
    find_still_missing,
    flag_observed_seconds,
    refuse_early_end,
    refuse_missing,
)  # fmt: skip
from spark_jobs.log.sequence import GatewayCount
from spark_jobs.state.manifest import Manifest

YESTERDAY, TODAY = Day("2026-11-19"), Day("2026-11-20")


def flags(day: Day, *spans: tuple[int, int]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    found = np.zeros(day.seconds, dtype=np.bool_)
    for start, end in spans:
        found[start:end] = True
    return found


def manifest(gateways: dict[str, tuple[int, int]]) -> Manifest:
    counts = {name: GatewayCount(9, 1, flags(YESTERDAY, span)) for name, span in gateways.items()}
    return Manifest(
        "2026-11-19",
        "data",
        "code",
        "f",
        1,
        0,
        0,
        0,
        0,
        0,
        start=YESTERDAY.start,
        end=YESTERDAY.end,
        gateways=describe_gateways(counts, YESTERDAY),
    )


def test_gateways_are_missing_when_absent_or_there_for_less_than_95_percent_of_yesterdays_seconds() -> None:
    known = manifest(dict.fromkeys(("gone", "half", "restarted", "fine"), (0, 86_400)))
    today = {"half": {"seconds": 43_200}, "restarted": {"seconds": 82_080}, "fine": {"seconds": 86_400}, "new": {"seconds": 10}}
    assert find_missing(today, TODAY, known) == {"gone": (0, 86_400), "half": (43_200, 86_400)}
    assert find_missing(today, TODAY, None) == {}


def test_a_gateway_that_was_stopped_yesterday_is_not_expected_and_one_started_yesterday_is_for_its_seconds() -> None:
    known = manifest({"stopped": (0, 86_000), "started": (80_000, 86_400)})
    assert find_missing({"started": {"seconds": 6_100}}, TODAY, known) == {}
    assert find_missing({}, TODAY, known) == {"started": (0, 6_400)}


def test_what_a_partial_day_lacked_stays_missing_while_it_is_absent_and_some_day_before_had_it() -> None:
    whole = manifest({"a": (0, 86_400), "b": (0, 86_400)})
    partial = replace(manifest({"a": (0, 86_400)}), missing_gateways=["b", "forgotten"])
    assert find_still_missing({"a": {}}, [whole, partial]) == {"b"}
    assert find_still_missing({"a": {}, "b": {"seconds": 1}}, [whole, partial]) == set()
    assert find_still_missing({"a": {}}, [partial]) == set()  # no day that is looked back on had it
    assert find_still_missing({}, []) == find_still_missing({}, [partial, whole]) == set()


def test_a_day_that_lost_an_hour_to_the_clock_expects_fewer_seconds() -> None:
    short = Day("2026-03-29", "Europe/Berlin")
    before = short.before(1)
    known = Manifest("2026-03-28", "d", "c", "f", 1, 0, 0, 0, 0, 0, start=before.start, end=before.end)
    known.gateways["a"] = {"seconds": 86_400, "last": before.end - 1}
    assert find_missing({"a": {"seconds": 79_000}}, short, known) == {}


def test_the_error_names_gateways_seconds_and_the_way_out() -> None:
    refuse_missing({}, "2026-11-20")
    with pytest.raises(InsufficientInputError) as caught:
        refuse_missing({"a": (0, 100), "b": (7, 100)} | {f"c{at}": (0, 1) for at in range(9)}, "2026-11-20")
    text = str(caught.value)
    assert "a (absent, 100 expected), b (7 seconds, 100 expected)" in text
    assert "and 6 more" in text
    assert "--allow-partial" in text


def test_a_second_is_observed_when_any_gateway_was_there() -> None:
    gateways = {"a": GatewayCount(1, 1, flags(TODAY, (0, 10))), "b": GatewayCount(1, 1, flags(TODAY, (5, 3605)))}
    seconds = flag_observed_seconds(gateways, TODAY)
    assert int(seconds.sum()) == 3605
    assert count_by_hour(seconds, TODAY) == [3600, 5] + [0] * 22
    assert describe_gateways(gateways, TODAY)["b"] == {
        "seconds": 3600,
        "first": TODAY.start + 5,
        "last": TODAY.start + 3604,
        "boots": 1,
        "lines": 1,
    }


def test_a_gateway_whose_log_ended_before_midnight_is_named_once_it_is_absent() -> None:
    """findings.md 8, 7: it was forgotten without a word."""
    known = manifest({"stopped": (0, 85_800), "whole": (0, 86_400), "back": (0, 80_000)})
    (said,) = describe_ended({"back": {}}, known)
    assert said.startswith("the log of gateway stopped ended 2026-11-19 23:49:59 UTC, and it is not expected any more")
    assert find_missing({"back": {}, "whole": {"seconds": 86_400}}, TODAY, known) == {}
    assert describe_ended({}, None) == []


def test_a_day_whose_last_hour_is_not_shipped_yet_is_refused_for_some_hours() -> None:
    """23 hours passed as a complete day, each night: a batch at 23:00 UTC was never learned."""
    short = {"a": {"last": TODAY.end - 3601}, "b": {"last": TODAY.start}}
    with pytest.raises(EarlyEndError, match=r"the log ends at 2026-11-20 22:59:59 UTC, .* --allow-partial"):
        refuse_early_end(short, TODAY, None, TODAY.end + 600)
    for now in (TODAY.end - 1800, TODAY.end + MAY_COME_S):  # the day is not over, or nothing is to come
        refuse_early_end(short, TODAY, None, now)
    refuse_early_end({"b": {"last": TODAY.start}, "c": {"last": TODAY.end - MAX_SILENCE_S}}, TODAY, None, TODAY.end + 600)


def test_the_last_hour_of_each_gateway_is_waited_for_but_not_of_one_that_was_stopped() -> None:
    """One gateway whose last hour had come hid all whose had not, and these were not expected on the next day either."""
    known, now = manifest({"a": (0, 86_400), "b": (0, 86_400), "stops": (0, 82_800)}), TODAY.end + 1200
    whole, late, stopped = {"last": TODAY.end - 1}, {"last": TODAY.end - 3601}, {"last": TODAY.end - 2000}
    for newest in (known, None):  # on a first night, and where b is new, too
        with pytest.raises(EarlyEndError, match="the log of gateway b ends at 2026-11-20 22:59:59 UTC"):
            refuse_early_end({"a": whole, "b": late}, TODAY, newest, now)
        refuse_early_end({"a": whole, "b": stopped}, TODAY, newest, now)
    refuse_early_end({"a": whole, "stops": late}, TODAY, known, now)
