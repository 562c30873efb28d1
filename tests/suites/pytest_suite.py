"""A suite that pytest runs: a source distribution from PyPI at one version, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from suites.outcomes import FAILED, PASSED, SKIPPED, Outcome, Outcomes, SuiteError
from suites.sides import Side
from support.environments import environment, source

OPTIONS = ("-v", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=60")


@dataclass(frozen=True)
class PytestSuite:
    """Tests that come with a project's source distribution. They are run unmodified, without reruns of their own."""

    name: str
    project: str
    version: str
    tests: int  # how many this version has; another number means that the suite did not run as it should
    passes: int  # how many of them pass directly, at least
    config: str  # the project's own file with pytest's settings; without it pytest would take ours, found further up
    paths: tuple[str, ...]
    settings: Callable[[Side], dict[str, str]]  # environment variables that lead the suite to its broker
    requirements: tuple[str, ...] = ()  # besides the project itself and pytest, pinned
    arguments: tuple[str, ...] = ()
    patience_s: int = 300

    def prepare(self) -> None:
        """Fetch and install, once. Raises PackagesUnreachableError."""
        self._python()

    def _python(self) -> Path:
        return environment(self.name, source(self.project, self.version), "pytest==8.4.2", *self.requirements)

    def run(self, side: Side, only: Sequence[str] = ()) -> Outcomes:
        """Run all tests, or `only` the named ones, against a side. Raises SuiteError."""
        report = side.scratch / f"{self.name}-{time.monotonic_ns()}.xml"
        home = source(self.project, self.version)
        options = ["-c", self.config, f"--rootdir={home}", f"--junitxml={report}", *OPTIONS]
        command = [str(self._python()), "-m", "pytest", *options, *self.arguments, *(only or self.paths)]
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
        try:
            done = subprocess.run(
                command,
                cwd=home,
                env=variables | self.settings(side),
                capture_output=True,
                text=True,
                check=False,
                timeout=self.patience_s,
            )
        except subprocess.TimeoutExpired as error:
            said = (error.stdout or b"").decode(errors="replace")[-3000:]
            raise SuiteError(f"{self.name}, {side.name}: did not end within {self.patience_s} s\n{said}") from None
        if not report.exists():
            raise SuiteError(f"{self.name}, {side.name}: pytest ended with {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
        return read_report(report, home)


def read_report(report: Path, home: Path) -> Outcomes:
    """The outcomes in a JUnit report of tests under `home`, by pytest's node ids."""
    outcomes: Outcomes = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        test = f"{node(case.get('classname', ''), home)}::{case.get('name', '')}"
        outcome = Outcome(PASSED)
        for child in case:
            if child.tag in ("failure", "error"):
                outcome = Outcome(FAILED, child.get("message", "").partition("\n")[0])
            elif child.tag == "skipped" and outcome.word == PASSED:
                outcome = Outcome(SKIPPED, child.get("message", "").partition("\n")[0])
        if test not in outcomes or outcomes[test].word != FAILED:  # an error after a failure is a second entry
            outcomes[test] = outcome
    return outcomes


def node(dotted: str, home: Path) -> str:
    """`t.integration.test_rmq.test_Channel` as a node id: the file is the longest beginning that is one."""
    words = dotted.split(".")
    for count in range(len(words), 0, -1):
        file = Path(*words[:count]).with_suffix(".py")
        if (home / file).exists():
            return "::".join([str(file), *words[count:]])
    return dotted
