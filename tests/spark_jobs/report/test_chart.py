"""A topic's chart: every value at its height, days at their place, on a linear or a logarithmic axis."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from spark_jobs.report.chart import FLOOR, TOP, render_chart
from spark_jobs.report.facts import DayFacts, SideFacts
from spark_jobs.report.reading import read_topics
from spark_jobs.report.scale import DAYS, Scale, place_days
from support.models import quota_evidence


def side(*days: DayFacts, rate: float | None = None, dimension: str = "messages") -> SideFacts:
    (topic,) = read_topics(quota_evidence.snapshot(1), None)
    found = topic.side(dimension)
    assert found is not None
    return replace(found, pair=None if rate is None else (rate, 30), series=days)


def day(
    number: int, mean: float | None = 1.0, quota: float | None = None, refused: float | None = 0.0, busiest: float | None = 4.0
) -> DayFacts:
    return DayFacts(f"2026-11-{number:02d}", mean, quota, refused, busiest)


def test_a_chart_is_xml_with_a_summary_for_those_who_cannot_see_it() -> None:
    for topic in read_topics(quota_evidence.snapshot(10), None):
        for found in topic.sides:
            root = ElementTree.fromstring(render_chart(found))
            assert root.attrib["role"] == "img"
            assert f"{found.dimension}, 28 days. New quota " in root.attrib["aria-label"]
            assert len(root.findall(".//title")) == 28


def test_no_day_no_chart() -> None:
    assert render_chart(side()) == ""
    assert render_chart(side(DayFacts("no day", 1, 1, 1, 1))) == ""


def test_days_stand_at_their_place_and_the_last_at_the_right() -> None:
    found = place_days((day(20), day(19), day(1), DayFacts("2026-10-01", 1, 1, 1, 1), DayFacts("?", 1, 1, 1, 1)))
    assert [(place, each.day) for place, each in found] == [(DAYS - 20, "2026-11-01"), (DAYS - 2, "2026-11-19"), (DAYS - 1, "2026-11-20")]


def test_the_quota_is_broken_where_there_was_none() -> None:
    drawn = render_chart(side(day(17, quota=5), day(18, quota=5), day(19), day(20, quota=7), rate=7))
    line = re.search(r'class="q" d="([^"]*)"', drawn)
    assert line is not None
    assert line[1].count("M") == 2


@pytest.mark.parametrize(("busiest", "logarithmic"), [(10.0, False), (1000.0, True)])
def test_the_axis_is_logarithmic_where_the_mean_would_vanish_and_says_so(busiest: float, logarithmic: bool) -> None:
    found = side(day(19, busiest=busiest), day(20, busiest=busiest))
    assert ("logarithmic axis" in render_chart(found)) is logarithmic
    scale = Scale(found.series, None, "messages")
    heights = [scale.part(value) for value in (1.0, busiest / 2, busiest)]
    assert heights == sorted(heights)
    assert heights[0] > 0 or logarithmic
    assert heights[-1] > 0.9


@pytest.mark.parametrize("top", [1e-6, 0.02, 1, 7, 999, 123456, 1e15])
@pytest.mark.parametrize("dimension", ["messages", "bytes"])
def test_the_axis_has_two_to_six_marks(top: float, dimension: str) -> None:
    for low in (top / 2, top / 1000):
        ticks = Scale((day(20, mean=low, busiest=top),), None, dimension).ticks()
        assert 2 <= len(ticks) <= 6
        assert all(0 <= tick <= 1.3 * top for tick in ticks)


def test_nothing_but_zeros_is_a_flat_chart() -> None:
    drawn = render_chart(side(day(20, mean=0, busiest=0), rate=0))
    ElementTree.fromstring(drawn)
    assert "NaN" not in drawn
    ys = [float(found) for found in re.findall(r"V(-?[\d.]+)", drawn)]
    assert all(TOP <= y <= FLOOR + 60 for y in ys)


def test_what_was_refused_is_not_zero_where_it_is_not_known() -> None:
    assert "refused: ?" in render_chart(side(day(20, refused=None)))
    assert 'class="r"' not in render_chart(side(day(20, refused=0)))
    assert 'class="r"' in render_chart(side(day(20, refused=0.5)))
