"""Mutants: `python tests/mutants/run.py [--sample 100] [ROOM ...]`, or `make mutants ROOM=limiter SAMPLE=100`.

The naive way runs a room's tests for each fault, which are minutes for each of 20,000. So the tests are run once with coverage, and each
mutant is run against those that reach its line, the quickest first, up to the first that fails; one that no test reaches is run against
all. A test run is a fork of this process, which has the libraries loaded already. It works in a copy of the tree, under build/mutants.

A sample is always the same: the mutants in the order of a hash of their names and the seed. A larger one goes on from a smaller one. What
build/mutants/ROOM.json has is not run again, but for survivors when the tests have changed. A mutant whose tests take ten times as long as
without it counts as killed.

Exits 1 where a room's rate is below LEAST, 2 where its tests cannot be run. The report names each survivor, with its diff.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import fnmatch
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).parent
sys.path[:] = [str(HERE.parent), *(entry for entry in sys.path if entry not in ("", str(HERE)))]

from mutants.operators import Mutant, is_valid, mutants_of  # noqa: E402

LEAST: Final = 0.9  # of the mutants of each room
SEED: Final = "20261128"
ASKED: Final = "not (rabbitmq or rocketmq or spark or bench or browser or namespaces or long or storage)"
PATIENCE_S: Final = 60.0  # for the start of a run, besides ten times what its tests took; a guess, for a busy machine
PROCESSOR_S: Final = int(os.environ.get("SLUICE_MUTANTS_PROCESSOR_S", "30"))  # the same of the processor, besides five times: a guess
MEMORY: Final = 4 << 30  # bytes of address space that a run may have
TRIED: Final = "tried"  # the file to which a run writes what it did


@dataclass(frozen=True)
class Room:
    """A part of the product, and the tests beside it: globs and paths from the root."""

    name: str
    product: list[str]
    tests: list[str]


@dataclass
class Baseline:
    """The tests of a room without a fault."""

    durations: dict[str, float] = field(default_factory=dict)  # by test: seconds
    reach: dict[str, dict[int, list[str]]] = field(default_factory=dict)  # by module and line: the tests that run it; "": at import
    red: list[str] = field(default_factory=list)  # tests that fail without a fault, so they say nothing

    def chosen(self, mutant: Mutant) -> list[str]:
        """The tests that can notice a mutant, the quickest first."""
        lines = range(mutant.line, mutant.line + mutant.before.count("\n") + 1)
        found = {name for line in lines for name in self.reach.get(mutant.path, {}).get(line, ())}
        usable = set(self.durations) - set(self.red)
        reached = (found & usable) if "" not in found else set()  # what an import runs shows anywhere
        return sorted(reached or usable, key=lambda name: (self.durations[name], name))


class Selection:
    """A plugin of pytest's: runs the chosen tests in their order; writes down each test's time, and the first that fails."""

    def __init__(self, chosen: list[str] | None, tried: Path) -> None:
        self.order = None if chosen is None else {name: at for at, name in enumerate(chosen)}
        self.tried = tried
        self.durations: dict[str, float] = {}
        self.failed: list[str] = []

    def pytest_sessionstart(self) -> None:
        """Nothing is found out about why a test fails, and nothing is remembered from one mutant to the next."""
        import hypothesis

        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutants", hypothesis.settings.get_profile("default"), database=None, deadline=None, phases=phases, derandomize=True,
            suppress_health_check=list(hypothesis.HealthCheck),
        )  # fmt: skip
        hypothesis.settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.order is not None:
            items[:] = sorted((item for item in items if item.nodeid in self.order), key=lambda item: self.order[item.nodeid])  # type: ignore[index]

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.durations[report.nodeid] = self.durations.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.tried.write_text(json.dumps({"durations": self.durations, "failed": self.failed}))


# ---- a run of tests ----------------------------------------------------------------------------------------------------


def start(tree: Path, tests: Iterable[str], chosen: list[str] | None, folder: Path, options: list[str], processor_s: int) -> int:
    """Fork a run of `tests` in `tree`; its process id. `chosen`: of these tests only, in this order; None: all. It writes to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TRIED).unlink(missing_ok=True)
    pid = os.fork()
    if pid:
        return pid
    status = 3
    try:
        os.setsid()
        with (folder / "output").open("wb") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        os.chdir(tree)
        sys.path[:] = [entry for entry in sys.path if entry != str(HERE.parent)]
        sys.dont_write_bytecode = chosen is not None
        os.environ.update(
            PYTHONDONTWRITEBYTECODE="1", SLUICE_EXPECT_BUILD="python",
            SLUICE_COMMAND=f"env 'PYTHONPATH={tree}' '{sys.executable}' -m cli.main",
        )  # fmt: skip
        if processor_s:
            resource.setrlimit(resource.RLIMIT_CPU, (processor_s, processor_s + 5))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        import pytest

        common = [
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
            f"--basetemp={folder / 'tmp'}",
            "--hypothesis-seed=0",
        ]
        status = int(pytest.main([*common, *options, *tests], plugins=[Selection(chosen, folder / TRIED)]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def stop(pid: int) -> None:
    """End a run, and what it has started."""
    for number in (pid, -pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def copy_of(root: Path, tree: Path) -> None:
    """What git knows of the working tree, and what is new in it."""
    shutil.rmtree(tree, ignore_errors=True)
    names = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=root, capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split("\0")):
        source = root / name
        if source.is_file() and not source.is_symlink():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, tree / name)


def hash_of(root: Path, patterns: Iterable[str]) -> str:
    """Of the files that these globs and folders name."""
    digest = hashlib.sha256()
    for path in files_of(root, patterns):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def files_of(root: Path, patterns: Iterable[str]) -> list[Path]:
    found: set[Path] = set()
    for pattern in patterns:
        found.update((root / pattern).rglob("*.py") if (root / pattern).is_dir() else root.glob(pattern))
    return sorted(found)


# ---- a room ------------------------------------------------------------------------------------------------------------


class Measurement:
    """A room's mutants, and what became of them."""

    def __init__(self, root: Path, room: Room, build: Path, sample: int, jobs: int) -> None:
        self.root, self.room, self.sample, self.jobs = root, room, sample, jobs
        self.folder = build / room.name
        self.file = build / f"{room.name}.json"
        self.texts = {path.relative_to(root).as_posix(): path.read_bytes() for path in files_of(root, room.product)}
        self.tests_hash = hash_of(root, [*room.tests, "tests/support", "tests/conftest.py"])
        known = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.results: dict[str, dict[str, Any]] = known.get("mutants", {})

    def prepare(self) -> bool:
        """Copy the tree, and run the tests once without a fault. False where they cannot be run."""
        for number in range(self.jobs):
            copy_of(self.root, self.folder / f"tree{number}")
        self.baseline = Baseline()
        kept = self.folder / "baseline.json"
        key = self.tests_hash + hash_of(self.root, self.room.product)
        stored = json.loads(kept.read_text()) if kept.exists() else {}
        if stored.get("key") != key:
            stored = self._run_baseline()
            if not stored["durations"]:
                return False
            kept.write_text(json.dumps({"key": key, **stored}))
        self.baseline.durations, self.baseline.red = stored["durations"], stored["red"]
        self.baseline.reach = {path: {int(line): names for line, names in by.items()} for path, by in stored["reach"].items()}
        return True

    def _run_baseline(self) -> dict[str, Any]:
        import coverage

        tree, folder = self.folder / "tree0", self.folder / "run0"
        data = folder / "coverage"
        data.unlink(missing_ok=True)
        settings = folder / "coverage.ini"
        folder.mkdir(parents=True, exist_ok=True)
        settings.write_text(f"[run]\ndata_file = {data}\n")
        sources = sorted({path.split("/")[0] for path in self.texts})
        options = ["-m", ASKED, *(f"--cov={each}" for each in sources), "--cov-context=test", "--cov-report=", f"--cov-config={settings}"]
        pid = start(tree, self.room.tests, None, folder, options, 0)
        try:
            os.waitpid(pid, 0)
        finally:
            stop(pid)
        tried = json.loads((folder / TRIED).read_text()) if (folder / TRIED).exists() else {"durations": {}, "failed": []}
        reach: dict[str, dict[int, list[str]]] = {}
        if data.exists():
            found = coverage.CoverageData(str(data))
            found.read()
            for path in self.texts:
                by_line = found.contexts_by_lineno(str(tree / path))
                reach[path] = {line: sorted({name.split("|")[0] for name in names}) for line, names in by_line.items()}
        else:
            print((folder / "output").read_text()[-3000:], file=sys.stderr)
        return {"durations": tried["durations"], "red": tried["failed"], "reach": reach}

    def drawn(self, equivalents: list[str]) -> tuple[list[Mutant], int, int]:
        """The sample, how many mutants there are, and how many of them are known to be equivalent."""
        every = [mutant for path, text in self.texts.items() for mutant in mutants_of(path, text)]
        judged = [mutant for mutant in every if not any(fnmatch.fnmatchcase(mutant.name, pattern) for pattern in equivalents)]
        judged.sort(key=lambda mutant: hashlib.sha256(f"{SEED} {mutant.name}".encode()).digest())
        found: list[Mutant] = []
        for mutant in judged:
            if self.sample and len(found) == self.sample:
                break
            if is_valid(mutant, self.texts[mutant.path]):
                found.append(mutant)
        return found, len(every), len(every) - len(judged)

    def is_known(self, mutant: Mutant) -> bool:
        result = self.results.get(mutant.name)
        if result is None or result["text"] != digest(self.texts[mutant.path]):
            return False
        return bool(result["verdict"] != "survived" or result["tests"] == self.tests_hash)

    def run(self, mutants: list[Mutant]) -> None:
        """Run all that are not known yet, some at a time."""
        left = iter([mutant for mutant in mutants if not self.is_known(mutant)])
        running: dict[int, tuple[int, Mutant, list[str], float, float]] = {}  # by process id: the tree, and until when
        free = list(range(self.jobs))
        try:
            while True:
                while free and (mutant := next(left, None)) is not None:
                    number = free.pop()
                    pid, chosen, most = self._start(number, mutant)
                    running[pid] = (number, mutant, chosen, time.monotonic(), time.monotonic() + most)
                if not running:
                    return
                for pid, (number, mutant, chosen, began, until) in list(running.items()):
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    if not ended and time.monotonic() < until:
                        continue
                    stop(pid)
                    if not ended:
                        os.waitpid(pid, 0)
                    del running[pid]
                    free.append(number)
                    self._restore(number, mutant)
                    self._note(number, mutant, chosen, status if ended else None, time.monotonic() - began)
                time.sleep(0.02)
        finally:
            for pid in running:
                stop(pid)

    def _start(self, number: int, mutant: Mutant) -> tuple[int, list[str], float]:
        tree = self.folder / f"tree{number}"
        self._write(tree, mutant.path, mutant.applied(self.texts[mutant.path]))
        chosen = self.baseline.chosen(mutant)
        took = sum(self.baseline.durations[name] for name in chosen)
        files = sorted({name.split("::")[0] for name in chosen})
        pid = start(tree, files, chosen, self.folder / f"run{number}", ["-x", "-m", ASKED], PROCESSOR_S + int(5 * took))
        return pid, chosen, PATIENCE_S + 10 * took

    def _write(self, tree: Path, path: str, text: bytes) -> None:
        """Write a module. What is compiled of the one before has the same second and may have the same size, so it is removed."""
        (tree / path).write_bytes(text)
        for compiled in (tree / path).parent.glob(f"__pycache__/{Path(path).stem}.*"):
            compiled.unlink()

    def _restore(self, number: int, mutant: Mutant) -> None:
        self._write(self.folder / f"tree{number}", mutant.path, self.texts[mutant.path])

    def _note(self, number: int, mutant: Mutant, chosen: list[str], status: int | None, took: float) -> None:
        tried = self.folder / f"run{number}" / TRIED
        failed = json.loads(tried.read_text())["failed"] if tried.exists() else []
        code = None if status is None else os.waitstatus_to_exitcode(status)
        verdict = "timed out" if code is None or code == -signal.SIGXCPU else "survived" if code == 0 else "killed"
        by = failed[0] if failed else "" if verdict == "survived" else f"exit code {code}"
        self.results[mutant.name] = {
            "verdict": verdict, "by": by, "line": mutant.line, "ran_against": len(chosen), "seconds": round(took, 1),
            "text": digest(self.texts[mutant.path]), "tests": self.tests_hash,
        }  # fmt: skip
        draft = self.file.with_suffix(".new")
        draft.write_text(json.dumps({"seed": SEED, "mutants": self.results}, indent=1, sort_keys=True) + "\n")
        draft.replace(self.file)

    def diff(self, mutant: Mutant) -> Iterator[str]:
        before = self.texts[mutant.path]
        old, new = before.decode().splitlines(), mutant.applied(before).decode().splitlines()
        lines = list(difflib.unified_diff(old, new, n=0, lineterm=""))[3:]
        yield f"{mutant.path}:{mutant.line}  {mutant.name}"
        yield from (f"    {line}" for line in lines)


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


def main() -> int:
    parser = argparse.ArgumentParser(description="put small faults into the product and see whether the tests beside it notice")
    parser.add_argument("--sample", type=int, default=200, help="mutants of each room; 0: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    parser.add_argument("--root", type=Path, default=HERE.parent.parent, help=argparse.SUPPRESS)
    parser.add_argument("--report", action="store_true", help="run nothing; report what is known")
    parser.add_argument("rooms", nargs="*", metavar="ROOM")
    given = parser.parse_args()
    root = given.root.resolve()
    own = root / "tests/mutants"
    table = tomllib.loads((own / "rooms.toml").read_text())
    unknown = set(given.rooms) - set(table)
    if unknown:
        parser.error(f"no such room: {', '.join(sorted(unknown))}; there are {', '.join(table)}")
    equivalents = [each["mutant"] for each in tomllib.loads((own / "equivalent.toml").read_text()).get("equivalent", ())]
    build = root / "build/mutants"
    import hypothesis  # noqa: F401  -- loaded once, for all runs
    import pytest  # noqa: F401
    import trio.testing  # noqa: F401

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the runs under way are ended
    low = False
    for name in given.rooms or table:
        measured = Measurement(root, Room(name, **table[name]), build, given.sample, given.jobs)
        mutants, many, equal = measured.drawn(equivalents)
        if not given.report:
            if not measured.prepare():
                print(f"{name}: its tests cannot be run", file=sys.stderr)
                return 2
            for each in measured.baseline.red:
                print(f"{name}: not used, as it fails without a fault: {each}", flush=True)
            measured.run(mutants)
        tried = [mutant for mutant in mutants if measured.is_known(mutant)]
        survivors = [mutant for mutant in tried if measured.results[mutant.name]["verdict"] == "survived"]
        for mutant in sorted(survivors, key=lambda each: (each.path, each.line)):
            print("\n".join(measured.diff(mutant)))
        rate = 1 - len(survivors) / len(tried) if tried else 0.0
        low = low or rate < LEAST
        print(f"{name:10} {rate:6.1%} of {len(tried)} killed; {many} in all, {equal} of them known to be equivalent", flush=True)
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
