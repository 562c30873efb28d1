"""The pictures of the algorithms in the docs: drawn by the script in the repository from the limiter as it is, one for each at least."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from limiter.algorithms import ALGORITHMS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "choosing-an-algorithm.md"


@pytest.fixture(scope="module")
def plots() -> ModuleType:
    spec = importlib.util.spec_from_file_location("algorithm_plots", ROOT / "docs" / "plots" / "algorithms.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["algorithm_plots"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_pictures_in_the_docs_are_what_the_limiter_does(plots: ModuleType) -> None:
    """Otherwise: `python docs/plots/algorithms.py`."""
    for picture in plots.PICTURES:
        assert plots.file_of(picture).read_text() == plots.draw(picture), picture.name


def test_every_algorithm_has_a_picture_and_a_section(plots: ModuleType) -> None:
    page = PAGE.read_text()
    assert {picture.rule.algorithm for picture in plots.PICTURES} == set(ALGORITHMS)
    for name in ALGORITHMS:
        assert f"\n## {name}\n" in page, name
    for picture in plots.PICTURES:
        assert f"(images/{plots.file_of(picture).name})" in page, picture.name


def test_every_message_that_arrives_passes_is_refused_or_still_waits(plots: ModuleType) -> None:
    for picture in plots.PICTURES:
        course = picture.simulate(picture.rule)
        waiting = sum(course.offered) - sum(course.passed) - sum(course.refused)
        assert 0 <= waiting <= (plots.LIMIT * 3 if picture.rule.action == "delay" else 0), picture.name


def test_a_picture_says_in_words_what_it_shows(plots: ModuleType) -> None:
    picture = ElementTree.fromstring(plots.draw(plots.PICTURES[0]))
    assert picture.attrib["role"] == "img"
    description = picture.findtext("{http://www.w3.org/2000/svg}desc")
    assert description is not None
    assert "Of 6300 messages" in description
