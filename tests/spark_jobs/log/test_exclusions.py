"""Incidents that are left out: how they are written, what they match, how long they are."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.days import Day
from spark_jobs.log.exclusions import Exclusion, count_excluded_seconds

DAY = Day("2026-11-20")


def test_moments_may_have_any_offset_and_topics_any_letter() -> None:
    found = Exclusion.of("2026-11-20T10:00:00+02:00/2026-11-20T08:30:00Z:/shop/a:b/%2F")
    assert (found.start - DAY.start, found.end - DAY.start, found.topic) == (8 * 3600, 8 * 3600 + 1800, "/shop/a:b/%2F")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("orders", "is not FROM/TO:TOPIC; write for instance 2026-"),
        ("2026-11-20T10:00:00Z/2026-11-20T10:30:00Z:", "is not FROM/TO:TOPIC"),
        ("10:00/2026-11-20T10:30:00Z:orders", "'10:00' is no moment with a time zone"),
        ("2026-11-20T10:00:00/2026-11-20T10:30:00Z:orders", "no moment with a time zone"),
        ("2026-11-20T10:00:00Z/2026-11-20T10:00:00Z:orders", "it ends before it begins"),
    ],
)
def test_what_is_no_exclusion_is_refused_with_an_example(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match="--exclude: ") as caught:
        Exclusion.of(text)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("glob", "topic", "fits"),
    [("orders", "orders", True), ("orders", "orders2", False), ("ord*", "orders", True), ("ord?rs", "orders", True), ("*", "/a/b", True),
     ("a.c", "abc", False), ("a[b", "a[b", True), ("ord*", "xord", False)],
)  # fmt: skip
def test_a_topic_is_exact_or_a_glob(glob: str, topic: str, fits: bool) -> None:
    assert Exclusion(0, 1, glob, "").matches(topic) is fits


def test_seconds_are_counted_once_within_the_day_and_only_where_observed() -> None:
    observed = np.ones(DAY.seconds, dtype=np.bool_)
    observed[:50] = False
    both = [Exclusion(DAY.start - 100, DAY.start + 100, "orders", ""), Exclusion(DAY.start + 90, DAY.start + 110, "ord*", "")]
    assert count_excluded_seconds(both, "orders", observed, DAY) == 60
    assert count_excluded_seconds(both, "audit", observed, DAY) == 0
    assert count_excluded_seconds([Exclusion(DAY.end + 5, DAY.end + 9, "*", "")], "orders", observed, DAY) == 0
