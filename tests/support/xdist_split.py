"""The parts of a run in several processes (`pytest -n 5`), and which of them is next.

A part is run by one process, whole, so that what it needs is started once: the run's own brokers, Spark, a release. Each file that shares
none of these is a part, also where its tests start brokers of their own. What all tests with one broker take is more than a process should
have, so they are several parts: each broker's files by name, in PART_S at most. One more broker costs seconds.

Whoever is done takes the next part: the longest that is left, among those that do not ask for more processors than the machine has beside
what runs. Most end-to-end tests wait, for brokers, clients and limits; those of many Javas do not, and side by side they would only be
late. The many short files that never wait fill what is left. How long a file takes, and how much of it a processor, `tests/durations.txt`
knows, from a run; a file that is not there takes little time, and all of it a processor.

The naive way is a mark `xdist_group` on every test. pytest 9.2 has node ids that xdist 3.8 cannot write its groups into: it then spreads
single tests over the processes, without a word (pytest-xdist issue 1386), and all processes start all brokers and tell the incident at the
same time. So the parts are told to the scheduler itself, by the file that a test is in: the process that schedules collects no tests.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from xdist.scheduler import LoadScopeScheduling

# What a file's text names where its tests take it: the run's own brokers, a release, and Spark. The first counts: a release takes 19 CPU-s,
# and test_debian.py has a RabbitMQ for `make test-packages` alone.
SHARED: Final = {
    "rocketmq": re.compile(r"\b(rocketmq: RocketMQ|rocketmq_client: RocketMQClient)\b"),
    "release": re.compile(r"\breleased: Path\b"),
    "rabbitmq": re.compile(r"\b(rabbitmq: RabbitMQ|probe: Callable)\b"),
    "spark": re.compile(r"\bpytest\.mark\.spark\b"),
}
QUOTA_JOB: Final = "spark, the quota job"  # apart from all others with Spark: one more session is less than what one process would be late
OF_PAGES: Final = "tests/docs/"  # with a broker of its own (tests/docs/conftest.py)
# At most. RabbitMQ starts in 4 CPU-s and idle takes 0.2 % of a processor, so tests that need it beside RocketMQ are in RocketMQ's part;
# that one starts in 6 and idle takes a fifteenth of a processor (measured 2026-11).
PART_S: Final = {"rabbitmq": 240.0, "rocketmq": 600.0}
DURATIONS: Final = "tests/durations.txt"


@dataclass(frozen=True)
class Takes:
    """How long a file, or a part, takes."""

    wall_s: float = 0.0
    processor_s: float = 0.0

    @property
    def share(self) -> float:
        """Of a processor, while it runs."""
        return self.processor_s / self.wall_s if self.wall_s else 1.0

    def __add__(self, other: Takes) -> Takes:
        return Takes(self.wall_s + other.wall_s, self.processor_s + other.processor_s)


def read_durations(table: Path) -> dict[str, Takes]:
    """By file."""
    lines = [line.split() for line in table.read_text().splitlines() if not line.startswith("#")] if table.exists() else []
    return {file: Takes(float(wall), float(processor)) for file, wall, processor in lines}


@cache
def durations(root: Path) -> dict[str, Takes]:
    return read_durations(root / DURATIONS)


def kind_of(text: str, file: str) -> str:
    """What the tests of a file share with those of others; the file itself where it is nothing."""
    kind = next((kind for kind, name in SHARED.items() if name.search(text)), file)
    if kind == "rabbitmq" and file.startswith(OF_PAGES):
        return file
    return QUOTA_JOB if kind == "spark" and file.startswith("tests/spark_jobs/") else kind


@cache
def parts(root: Path) -> dict[str, str]:
    """The part of each file of tests. The files of a broker are divided in the order of their names, so clients' are together."""
    files = sorted(path.relative_to(root).as_posix() for path in (root / "tests").rglob("test_*.py"))
    kinds = {file: kind_of((root / file).read_text(), file) for file in files}
    known = durations(root)
    for kind, part_s in PART_S.items():
        its = [file for file in files if kinds[file] == kind]
        ends = list(accumulate(known.get(file, Takes()).wall_s for file in its))
        size = ends[-1] / (ends[-1] // part_s + 1) if its else 0.0
        for file, end in zip(its, ends, strict=True):
            number = int((end - known.get(file, Takes()).wall_s / 2) / size) if size else 0
            kinds[file] = f"{kind} {number + 1}" if size < ends[-1] else kind
    return kinds


def part_of(root: Path, file: str) -> str:
    return parts(root).get(file, file)


@cache
def part_takes(root: Path) -> dict[str, Takes]:
    """By part; all tests of its files are asked for, or it takes less."""
    sums: defaultdict[str, Takes] = defaultdict(Takes)
    for file, takes in durations(root).items():
        sums[part_of(root, file)] += takes
    return dict(sums)


class PartScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process one part after the other."""

    def _split_scope(self, nodeid: str) -> str:
        return part_of(self.config.rootpath, nodeid.partition("::")[0])

    def schedule(self) -> None:
        """Raises RuntimeError where xdist has grouped the tests in another way: then they must not run."""
        self.config.option.loadscopereorder = False  # else the part with the most tests would come first, not the one that takes longest
        super().schedule()
        scopes = {scope for work in (self.workqueue, *self.assigned_work.values()) for scope in work}
        known = set(parts(self.config.rootpath).values())
        strange = sorted(scope for scope in scopes if scope not in known and not scope.endswith(".py"))
        if strange:
            raise RuntimeError(f"this pytest-xdist does not ask which part a test belongs to; it has {strange[:5]}")

    def _assign_work_unit(self, node: Any) -> None:
        takes = part_takes(self.config.rootpath)
        running = [part for work in self.assigned_work.values() for part, tests in work.items() if not all(tests.values())]
        free = len(os.sched_getaffinity(0)) - sum(takes.get(part, Takes()).share for part in running)
        self.workqueue.move_to_end(next_part(list(self.workqueue), takes, free), last=False)
        super()._assign_work_unit(node)


def next_part(left: list[str], takes: dict[str, Takes], free: float) -> str:
    """Of the parts that are left, the longest of those that take at most `free` processors; where there is none, the one that takes least.

    Where several are as long, the first.
    """
    known = {part: takes.get(part, Takes()) for part in left}
    fitting = [part for part in left if known[part].share <= free]
    return max(fitting, key=lambda part: known[part].wall_s) if fitting else min(left, key=lambda part: known[part].share)
