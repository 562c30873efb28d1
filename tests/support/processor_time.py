"""Which files of tests take the most processor time, told with `--durations`: that of the test run and of all that it has started.

Beside as many other processes as a machine has cores, or more, how long a test takes says little of what it costs.
"""

from __future__ import annotations

import os
from collections import defaultdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from support.processes import tree

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

TICK: Final = os.sysconf("SC_CLK_TCK")
COLLECTING: Final = "(the collection of all tests)"
KEY: Final = "processor_seconds"  # of `workeroutput`


def spent_by_tree(pid: int) -> float:
    """Seconds of `pid`, of its living descendants and of those that they have waited for, since they began."""
    ticks = 0
    for each in tree(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))  # user, system, and both of children waited for
    return ticks / TICK


class ProcessorTime:
    """A plugin. A broker that several files share is charged to each for what it did meanwhile, and its start to the first."""

    def __init__(self, most: int, *, runs_tests: bool) -> None:
        """`most`: how many files are told. `runs_tests`: this process does, and does not only hand them to others."""
        self.most = most
        self.runs_tests = runs_tests
        self.seconds: defaultdict[str, float] = defaultdict(float)  # by file
        self.file = COLLECTING
        self.before = 0.0

    def _charge(self, file: str) -> None:
        """The file that ran until now is done, and `file` begins."""
        now = spent_by_tree(os.getpid())
        self.seconds[self.file] += max(0.0, now - self.before)  # less: a descendant is gone that nobody waited for
        self.file, self.before = file, now

    def pytest_runtest_logstart(self, location: tuple[str, int | None, str]) -> None:
        if location[0] != self.file and self.runs_tests:
            self._charge(location[0])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.runs_tests:
            self._charge("")
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[KEY] = dict(self.seconds)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for file, seconds in getattr(node, "workeroutput", {}).get(KEY, {}).items():
            self.seconds[file] += seconds

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        total = sum(self.seconds.values())
        terminalreporter.section(f"{self.most} files with the most processor time, of {total:.0f} s")
        for file, seconds in sorted(self.seconds.items(), key=itemgetter(1), reverse=True)[: self.most]:
            terminalreporter.write_line(f"{seconds:7.1f} s {file}")
