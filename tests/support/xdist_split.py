"""The parts of a run in two or three processes (`pytest -n 3`): RocketMQ's tests, RabbitMQ's, Spark's two, and every other file.

A part is run by one process, whole, so that what it needs is started once; whoever is done takes the next. The longest come first, and the
many short ones fill what is left. Spark's tests are two parts, the quota job's own and all others: as one they would keep one process busy
long after the others are done, and starting Spark twice costs seconds.

The naive way is a mark `xdist_group` on every test. pytest 9.2 has node ids that xdist 3.8 cannot write its groups into: it then spreads
single tests over the processes, without a word (pytest-xdist issue 1386), and all processes start all brokers and tell the incident at the
same time. So the parts are told to the scheduler itself, by the file that a test is in: the process that schedules collects no tests.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadScopeScheduling

PARTS: Final = ("rocketmq", "rabbitmq", "spark")  # marks; what needs both brokers is the first's, which takes longer to start

QUOTA_JOB: Final = "spark, the quota job"


@cache
def part_of(root: Path, file: str) -> str:
    """The part that the tests of a file belong to, by the marks that its text names; the file itself where it names none."""
    text = (root / file).read_text()
    part = next((part for part in PARTS if f"pytest.mark.{part}" in text), file)
    return QUOTA_JOB if part == "spark" and file.startswith("tests/spark_jobs/") else part


class PartScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process one part after the other, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return part_of(self.config.rootpath, nodeid.partition("::")[0])

    def schedule(self) -> None:
        """Raises RuntimeError where xdist has grouped the tests in another way: then they must not run."""
        self.config.option.loadscopereorder = False  # else the part with the most tests would come first, not the one that takes longest
        super().schedule()
        scopes = {scope for work in (self.workqueue, *self.assigned_work.values()) for scope in work}
        strange = sorted(scope for scope in scopes if scope not in (*PARTS, QUOTA_JOB) and not scope.endswith(".py"))
        if strange:
            raise RuntimeError(f"this pytest-xdist does not ask which part a test belongs to; it has {strange[:5]}")
