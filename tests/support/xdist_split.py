"""The parts of a run in several processes (`pytest -n 4`).

The tests with the run's own RocketMQ are two parts, those with its RabbitMQ are three, those with both are one, Spark's are two, those of
a release are one, and each file of all others is one, also where its tests start brokers of their own. A part is run by one process,
whole, so that what it needs is started once; whoever is done takes the next. The longest come first, and the many short ones fill what is
left. Each broker's tests of the spool are apart, those of RabbitMQ's clients from all others with it, and the quota job's from all others
with Spark: as one part they would keep one process busy long after the others are done, and one more broker or Spark costs seconds.

The naive way is a mark `xdist_group` on every test. pytest 9.2 has node ids that xdist 3.8 cannot write its groups into: it then spreads
single tests over the processes, without a word (pytest-xdist issue 1386), and all processes start all brokers and tell the incident at the
same time. So the parts are told to the scheduler itself, by the file that a test is in: the process that schedules collects no tests.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadScopeScheduling

# What a file's text names where its tests take it: the run's own brokers, Spark, and a release.
SHARED: Final = {
    "rocketmq": re.compile(r"\b(rocketmq: RocketMQ|rocketmq_client: RocketMQClient)\b"),
    "rabbitmq": re.compile(r"\b(rabbitmq: RabbitMQ|probe: Callable)\b"),
    "spark": re.compile(r"\bpytest\.mark\.spark\b"),
    "release": re.compile(r"\breleased: Path\b"),
}
QUOTA_JOB: Final = "spark, the quota job"
SPOOL: Final = "rabbitmq, the spool"
RABBITMQ_CLIENTS: Final = "rabbitmq, its clients"
ROCKETMQ_SPOOL: Final = "rocketmq, the spool"
BOTH_BROKERS: Final = "both brokers"
PARTS: Final = (*SHARED, QUOTA_JOB, SPOOL, RABBITMQ_CLIENTS, ROCKETMQ_SPOOL, BOTH_BROKERS)
OF_THE_SPOOL: Final = re.compile("spool")
OF_CLIENTS: Final = re.compile("client|rabbitmq")
OF_PAGES: Final = "tests/docs/"  # with a broker of its own (tests/docs/conftest.py)


@cache
def part_of(root: Path, file: str) -> str:
    """The part that the tests of a file belong to: the file itself where they share nothing that is slow to start."""
    text = (root / file).read_text()
    part = next((part for part, name in SHARED.items() if name.search(text)), file)
    if part in ("rabbitmq", "rocketmq") and OF_THE_SPOOL.search(file):
        return SPOOL if part == "rabbitmq" else ROCKETMQ_SPOOL
    if part == "rocketmq" and SHARED["rabbitmq"].search(text):
        return BOTH_BROKERS
    if part == "rabbitmq":
        return file if file.startswith(OF_PAGES) else RABBITMQ_CLIENTS if OF_CLIENTS.search(Path(file).name) else part
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
        strange = sorted(scope for scope in scopes if scope not in PARTS and not scope.endswith(".py"))
        if strange:
            raise RuntimeError(f"this pytest-xdist does not ask which part a test belongs to; it has {strange[:5]}")
