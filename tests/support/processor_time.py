"""Which files of tests take the most processor time, told with `--durations`: that of the test run and of all that it has started.

Beside as many other processes as a machine has cores, or more, how long a test takes says little of what it costs. How long each file took
and when each process of a run was done is told, too: by that the parts of a run are shared (support/xdist_split.py). A run in several
processes adds to build/durations.txt; that of a green `make test` may become tests/durations.txt.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from support.processes import tree
from support.xdist_split import DURATIONS, Takes, read_durations

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

TICK: Final = os.sysconf("SC_CLK_TCK")
COLLECTING: Final = "(the collection of all tests)"
KEY: Final = "takes"  # of `workeroutput`
LEAST_S: Final = 5.0  # of what tests/durations.txt has: all others fill what is left, wherever

WRITTEN: Final = "# file, seconds, seconds of a processor; from build/durations.txt of a green make test (support/processor_time.py)\n"


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
        self.takes: defaultdict[str, Takes] = defaultdict(Takes)  # by file
        self.file = COLLECTING
        self.before = Takes()
        self.began = time.monotonic()
        self.ended: list[str] = []  # the processes of a run: after how many seconds, and with which file

    def _charge(self, file: str) -> None:
        """The file that ran until now is done, and `file` begins."""
        now = Takes(time.monotonic() - self.began, spent_by_tree(os.getpid()))
        spent = max(0.0, now.processor_s - self.before.processor_s)  # less: a descendant is gone that nobody waited for
        self.takes[self.file] += Takes(now.wall_s - self.before.wall_s, spent)
        self.file, self.before = file, now

    def pytest_runtest_logstart(self, location: tuple[str, int | None, str]) -> None:
        if location[0] != self.file and self.runs_tests:
            self._charge(location[0])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.runs_tests:
            self._charge("")
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[KEY] = {file: (takes.wall_s, takes.processor_s) for file, takes in self.takes.items()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        told = getattr(node, "workeroutput", {}).get(KEY, {})
        for file, takes in told.items():
            self.takes[file] += Takes(*takes)
        self.ended.append(f"{time.monotonic() - self.began:.0f} s with {list(told)[-1] if told else 'nothing'}")

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter, config: pytest.Config) -> None:
        total = sum(takes.processor_s for takes in self.takes.values())
        terminalreporter.section(f"{self.most} files with the most processor time, of {total:.0f} s, and how long each took")
        for file, takes in sorted(self.takes.items(), key=lambda item: item[1].processor_s, reverse=True)[: self.most]:
            terminalreporter.write_line(f"{takes.processor_s:7.1f} s {takes.wall_s:6.0f} s {file}")
        if self.ended:
            terminalreporter.write_line("\n".join(["The processes were done after", *self.ended]))
            self._write(config.rootpath)

    def _write(self, root: Path) -> None:
        table = root / "build" / Path(DURATIONS).name
        known = read_durations(table) | {file: takes for file, takes in self.takes.items() if file != COLLECTING}
        table.parent.mkdir(exist_ok=True)
        lines = sorted(f"{file} {takes.wall_s:.0f} {takes.processor_s:.0f}\n" for file, takes in known.items() if takes.wall_s >= LEAST_S)
        table.write_text("".join([WRITTEN, *lines]))
