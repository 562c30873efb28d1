"""A suite that `go test` builds: a module's own integration tests, fetched through the Go module proxy at one version."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from suites.outcomes import FAILED, PASSED, SKIPPED, Outcome, Outcomes, SuiteError
from suites.sides import Side
from support.clients.programs import GO_MISSING
from support.environments import ROOT, SOURCES

ENDINGS = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}
ENDING = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \([0-9.]+s\)$")


@dataclass(frozen=True)
class GoSuite:
    """The tests of a Go module, compiled once; a module's zip carries its tests."""

    name: str
    module: str
    version: str
    tests: int  # how many this version has, subtests included
    passes: int  # how many of them pass directly, at least
    tags: str
    settings: Callable[[Side], dict[str, str]]  # environment variables that lead the suite to its broker
    requirements: tuple[str, ...] = ()  # MODULE@VERSION of what its tests import, in place of what its go.mod says
    left_out: tuple[str, ...] = ()  # names of tests that are not run, with * and ?
    patience_s: int = 400

    def prepare(self) -> None:
        """Fetch and compile, once. Raises SuiteError."""
        program = self._program()
        if program.exists():
            return
        if shutil.which("go") is None:
            raise SuiteError(GO_MISSING)
        found = self._go("mod", "download", "-json", f"{self.module}@{self.version}", cwd=ROOT)
        shutil.rmtree(program.parent, ignore_errors=True)
        shutil.copytree(json.loads(found)["Dir"], program.parent)  # the module cache is read-only
        for path in [program.parent, *program.parent.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o200)
        for requirement in self.requirements:
            self._go("mod", "edit", f"-require={requirement}", cwd=program.parent)
        self._go("test", "-c", "-mod=mod", "-vet=off", f"-tags={self.tags}", "-o", str(program), ".", cwd=program.parent)

    def _go_tests(self) -> set[str]:
        """The names of all tests and examples, without subtests."""
        listing = subprocess.run([str(self._program()), "-test.list=."], capture_output=True, text=True, check=True, timeout=60).stdout
        return set(re.findall(r"^(?:Test|Example)\w*$", listing, re.MULTILINE))

    def _program(self) -> Path:
        return SOURCES / f"{self.name}-{self.version}" / "suite.test"

    def _go(self, *words: str, cwd: Path) -> str:
        done = subprocess.run(["go", *words], cwd=cwd, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            raise SuiteError(f"{self.name}: go {' '.join(words)} ended with {done.returncode}: {(done.stdout + done.stderr)[-3000:]}")
        return done.stdout

    def run(self, side: Side, only: Sequence[str] = ()) -> Outcomes:
        """Run all tests, or `only` the named ones, against a side. Raises SuiteError."""
        command = [str(self._program()), "-test.v", f"-test.timeout={self.patience_s}s"]
        if only or self.left_out:  # -test.skip is newer than Debian's Go
            wanted = only or (test for test in self._go_tests() if not any(fnmatchcase(test, pattern) for pattern in self.left_out))
            roots = {test.partition("/")[0] for test in wanted}
            command.append(f"-test.run=^({'|'.join(sorted(roots))})$")
        log = side.scratch / f"{self.name}.log"
        with log.open("a+") as output:
            began = output.tell()
            try:
                subprocess.run(
                    command,
                    cwd=self._program().parent,
                    env=os.environ | self.settings(side),
                    stdout=output,
                    stderr=output,
                    check=False,
                    timeout=self.patience_s + 10,
                )
            except subprocess.TimeoutExpired:
                raise SuiteError(f"{self.name}, {side.name}: did not end within {self.patience_s} s: {log}") from None
            output.seek(began)
            said = output.read()
        outcomes = read_log(said)
        if not outcomes:
            raise SuiteError(f"{self.name}, {side.name}: no test ran\n{said[-3000:]}")
        return {test: outcome for test, outcome in outcomes.items() if not only or test in only}


def read_log(said: str) -> Outcomes:
    """The outcomes in the output of `-test.v`. The detail of a failed test is the last line it logged before its end."""
    outcomes: Outcomes = {}
    last = ""
    for line in said.splitlines():
        ending = ENDING.match(line)
        if ending:
            word = ENDINGS[ending[1]]
            outcomes[ending[2]] = Outcome(word, last if word == FAILED else "")
        elif line.startswith(" "):
            last = line.strip()
    for test, outcome in outcomes.items():
        if outcome.word == FAILED and not outcome.detail:
            outcomes[test] = Outcome(FAILED, last)
    return outcomes
