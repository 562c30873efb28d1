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


@dataclass(frozen=True)
class PytestSuite:
    """Tests that come with a project's source distribution. They are run unmodified, without reruns of their own."""

    name: str
    project: str
    version: str
    tests: int  # how many this version has; fewer mean that the suite did not run as it should
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
        options = ["-p", "no:cacheprovider", "-o", "junit_family=xunit1", "-o", "faulthandler_timeout=60", f"--junitxml={report}"]
        command = [str(self._python()), "-m", "pytest", "-v", *options, *self.arguments, *(only or self.paths)]
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
        try:
            done = subprocess.run(
                command,
                cwd=source(self.project, self.version),
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
        return read_report(report)


def read_report(report: Path) -> Outcomes:
    """The outcomes in a JUnit report (family xunit1, which names the files), by pytest's node ids."""
    outcomes: Outcomes = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        file = case.get("file", "")
        module = file.removesuffix(".py").replace("/", ".")
        classes = case.get("classname", "").removeprefix(module).strip(".").replace(".", "::")
        test = "::".join(word for word in (file, classes, case.get("name", "")) if word)
        outcome = Outcome(PASSED)
        for child in case:
            if child.tag in ("failure", "error"):
                outcome = Outcome(FAILED, child.get("message", "").partition("\n")[0])
            elif child.tag == "skipped" and outcome.word == PASSED:
                outcome = Outcome(SKIPPED, child.get("message", "").partition("\n")[0])
        if outcomes.get(test, outcome).word != FAILED:  # an error after a failure is a second entry
            outcomes[test] = outcome
    return outcomes
