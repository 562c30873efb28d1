"""Threads take turns more often while any work is under way beside the event loop."""

from __future__ import annotations

import sys

import pytest

from common.quick_switches import SWITCH_S, quick_switches


def test_the_last_one_that_ends_brings_the_usual_interval_back() -> None:
    usual = sys.getswitchinterval()
    first, second = quick_switches(), quick_switches()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(SWITCH_S), "the second one is still under way"
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(usual)
