"""The demo tells what happens in the order in which it happens."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(__file__).parents[2] / "deploy" / "demo"
COMMAND_S = 3.4  # seconds that a command takes on a slow machine
RULE, LOWERED = 300, 100  # messages a second


class Clock:
    """Stands still but where somebody sleeps, and while a command runs."""

    def __init__(self) -> None:
        self.now = 100.0
        self.changed = float("inf")

    def run_command(self, words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.now += COMMAND_S
        self.changed = min(self.changed, self.now)
        return subprocess.CompletedProcess(words, 0, "limit changed\n", "")


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DEMO))
    for name in ("story", "judging", "installing", "demo"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = importlib.import_module("demo")
    for name in ("story", "judging", "installing", "demo"):
        monkeypatch.setitem(sys.modules, name, sys.modules[name])  # of this test alone
    return found


def test_no_line_of_a_second_before_a_change_stands_behind_the_change(
    demo: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: behind "limit changed" came the seconds that had passed while the command ran, at the rate before."""
    clock, story = Clock(), sys.modules["story"]

    class Traffic:
        """A publisher's lines: one each second, 20 ms after the clock's; what passes follows the limit."""

        def __init__(self, *_: Any) -> None:
            self.began = clock.now

        def lines(self) -> list[dict[str, Any]]:
            ends = [self.began + number + 1.02 for number in range(int(clock.now - self.began))]
            rates = [RULE if end < clock.changed else LOWERED if end - 1 >= clock.changed else 200 for end in ends]
            return [
                {"at": end, "offered": 1500, "passed": rate, "refused": 1500 - rate, "p99_ms": 1.0}
                for end, rate in zip(ends, rates, strict=True)
            ]

    monkeypatch.setattr(demo, "Program", Traffic)
    monkeypatch.setattr(demo.Round, "finish", lambda _: None)
    monkeypatch.setattr(demo.Round, "__exit__", lambda *_: None)
    monkeypatch.setattr(demo.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(demo.time, "sleep", lambda seconds: setattr(clock, "now", clock.now + seconds))
    monkeypatch.setattr(story.subprocess, "run", clock.run_command)
    gateway = story.Gateway.__new__(story.Gateway)
    gateway.command, gateway.environment, gateway.address = ["sluice"], {}, "127.0.0.1:5672"
    with pytest.raises(KeyError):  # there are no messages to be judged
        demo.limit_the_flood(gateway, "", tmp_path / "flood", [])
    before, after = capsys.readouterr().out.split("    limit changed\n")
    passed = [[int(found) for found in re.findall(r"^ +\d+ │ +1500 +(\d+)", text, re.MULTILINE)] for text in (before, after)]
    assert set(passed[0]) == {RULE}
    assert len(passed[0]) >= demo.SHOWN_S + int(COMMAND_S) - 1
    assert (passed[1][0], set(passed[1][1:])) == (200, {LOWERED})
