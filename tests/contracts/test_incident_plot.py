"""The picture of the incident in the docs: drawn from the data beside it, by the script in the repository, and fit to be read."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "incident.svg"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def plot() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plot", ROOT / "deploy" / "demo" / "plot.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def second(**more: float) -> dict[str, float]:
    return {"storm": True, "sends": 40, "failed": 0, "p99_ms": 5.0, "passed": 0, "shed": 0, "refused": 0, **more}


def drawn(plot: ModuleType, *seconds: dict[str, float]) -> ElementTree.Element:
    """A picture whose left panel has those seconds, the right one as many quiet ones."""
    panels = [{"title": "<one>", "seconds": seconds}, {"title": "two", "seconds": [second() for _ in seconds]}]
    data: dict[str, Any] = {"title": "storm & calm", "subtitle": "", "panels": panels}
    return ElementTree.fromstring(plot.draw(data))


def heights(picture: ElementTree.Element, kind: str) -> list[float]:
    """Of the bars of one kind, the legend's square left out."""
    return [
        float(bar.attrib["height"]) for bar in picture.iter(f"{SVG}rect") if bar.attrib["class"] == kind and bar.attrib["width"] != "10"
    ]


def test_the_picture_in_the_docs_is_what_its_data_make(plot: ModuleType) -> None:
    """Otherwise: `python deploy/demo/plot.py docs/images/incident.json docs/images/incident.svg`."""
    assert PICTURE.read_text() == plot.draw(json.loads(PICTURE.with_suffix(".json").read_text()))


def test_it_says_in_words_what_it_shows(plot: ModuleType) -> None:
    picture = drawn(plot, second(sends=100, failed=30, p99_ms=400.0), second(sends=60, failed=10))
    assert picture.attrib["role"] == "img"
    assert (picture.findtext(f"{SVG}title"), picture.attrib["aria-labelledby"]) == ("storm & calm", "title desc")
    description = picture.findtext(f"{SVG}desc")
    assert description is not None
    assert "<one>: during the storm 40 of 160 sends to the ten other topics fail" in description


def test_it_can_be_read_on_light_and_on_dark_ground(plot: ModuleType) -> None:
    """No ground of its own, and every colour of a text or line has its other."""
    style = drawn(plot, second()).findtext(f"{SVG}style")
    assert style is not None
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for kind in ("text", ".faint", ".axis", ".grid", ".slow", ".failed"):
        colours = [re.search(rf"{re.escape(kind)} {{[^}}]*#([0-9a-f]+)", part) for part in (light, dark)]
        assert None not in colours, kind
        assert colours[0] != colours[1]


def test_bars_have_the_heights_of_their_values(plot: ModuleType) -> None:
    picture = drawn(plot, second(passed=100, shed=300, refused=600), second(passed=500), second(sends=80, failed=20))
    assert heights(picture, "passed") == [pytest.approx(10.4), pytest.approx(52.0)]  # of 1,000, which are 104 high
    assert heights(picture, "shed") == [pytest.approx(31.2)]
    assert heights(picture, "refused") == [pytest.approx(62.4)]
    assert heights(picture, "failed") == [pytest.approx(26.0)]  # of 80
