"""The benchmark's picture: drawn from a kept file, to scale, and fit to be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from chart import LEFT, draw
from records import Bench, loaded

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "cpu-per-message.svg"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def picture(made_up: Callable[..., Bench]) -> ElementTree.Element:
    return ElementTree.fromstring(draw(made_up(), "made-up.json"))


def test_the_picture_in_the_docs_is_what_the_file_makes_that_it_names() -> None:
    """Otherwise: `python bench/chart.py bench/results/STAMP.json docs/images/cpu-per-message.svg`."""
    description = ElementTree.parse(PICTURE).findtext(f"{SVG}desc")
    assert description is not None
    source = re.match(r"Drawn from (\S+\.json)\. ", description)
    assert source is not None
    assert PICTURE.read_text() == draw(loaded(ROOT / "bench" / "results" / source[1]), source[1])


def test_bars_are_multiples_of_haproxys_median(picture: ElementTree.Element) -> None:
    widths = {
        bar.attrib["class"]: float(bar.attrib["width"])
        for bar in picture.iter(f"{SVG}rect")
        if bar.attrib["x"] == str(LEFT) and bar.attrib["width"] != "10"
    }
    assert widths["envoy"] == pytest.approx(widths["haproxy"] * 2.5, abs=0.2)
    assert widths["sluice"] == pytest.approx(widths["haproxy"] * 0.9, abs=0.2)


def test_thin_lines_go_from_the_least_to_the_most(picture: ElementTree.Element) -> None:
    one = next(path for path in picture.iter(f"{SVG}path") if path.attrib["class"] == "one")
    step = float(one.attrib["d"][1:].split(" ")[0]) - LEFT
    spreads = [re.findall(r"[\d.]+", path.attrib["d"]) for path in picture.iter(f"{SVG}path") if path.attrib["class"] == "spread"]
    found = [tuple((float(x) - LEFT) / step for x in (begin, end)) for begin, _, end in spreads]
    assert found == [pytest.approx(pair, abs=0.01) for pair in ((1.0, 2.0), (2.0, 4.0), (0.8, 3.0))]


def test_only_what_all_three_have_done_is_compared(picture: ElementTree.Element) -> None:
    words = [text.text for text in picture.iter(f"{SVG}text")]
    assert "replies" in words
    assert "stream" not in words


def test_microseconds_stand_beside_the_bars(picture: ElementTree.Element) -> None:
    words = [text.text for text in picture.iter(f"{SVG}text")]
    assert [text for text in words if text and text.endswith("µs")] == ["10.0 µs", "25.0 µs", "9.00 µs"]


def test_it_says_in_words_what_it_shows(picture: ElementTree.Element) -> None:
    assert (picture.attrib["role"], picture.attrib["aria-labelledby"]) == ("img", "title desc")
    assert picture.findtext(f"{SVG}desc") == "Drawn from made-up.json. replies: HAProxy 10.0, Envoy 25.0, sluice 9.00 microseconds."


def test_it_can_be_read_on_light_and_on_dark_ground(picture: ElementTree.Element) -> None:
    """No ground of its own, and every colour has its other."""
    style = picture.findtext(f"{SVG}style")
    assert style is not None
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for kind in ("text", ".faint", ".grid", ".one", ".spread", ".haproxy", ".envoy", ".sluice"):
        found = [re.search(rf"{re.escape(kind)} {{[^}}]*#([0-9a-f]+)", part) for part in (light, dark)]
        colours = [match[1] for match in found if match is not None]
        assert len(colours) == 2, kind
        assert colours[0] != colours[1], kind


def test_nothing_to_compare_is_no_picture(made_up: Callable[..., Bench]) -> None:
    bench = made_up()
    del bench.results["replies"]["envoy"]
    with pytest.raises(ValueError, match="no work was measured"):
        draw(bench, "made-up.json")
