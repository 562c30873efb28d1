"""The picture in `docs/protecting-topics.md` shows what the limiter does now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plot() -> ModuleType:
    spec = importlib.util.spec_from_file_location("protecting_plot", ROOT / "docs" / "plots" / "protecting.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_of_this_limiter(plot: ModuleType) -> None:
    """Otherwise: `python docs/plots/protecting.py`."""
    drawn = plot.draw()
    assert (ROOT / "docs" / "images" / "protecting-topics.svg").read_text() == drawn
    assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"


def test_it_shows_the_difference(plot: ModuleType) -> None:
    """While debug floods: without shares payments loses most of what it sends, with them nothing."""
    bucket, shared = (plot.passed(rules) for _, rules in plot.PANELS)
    flood = slice(int(8 / plot.BIN_S), int(30 / plot.BIN_S))
    seconds = 22
    assert sum(bucket["payments"][flood]) * plot.BIN_S < 0.5 * 20 * seconds
    assert sum(shared["payments"][flood]) * plot.BIN_S >= 0.99 * 20 * seconds
