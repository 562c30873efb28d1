"""The reason why Spark ended, as one line with the way out: more memory, disk, executors.

A JVM's error is pages of stack traces, with the one word that matters somewhere in them. A JVM that is out of memory says nothing
at all: ours is told to exit with code 3 then (ExitOnOutOfMemoryError), because one that goes on in that state hangs as often as it fails.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Final, NamedTuple

JAVA_OUT_OF_MEMORY: Final = 3  # exit code of a JVM with ExitOnOutOfMemoryError
_MEMORY: Final = re.compile(
    r"java\.lang\.OutOfMemoryError|GC overhead limit exceeded|SparkOutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY|System memory \d+ must be"
)
_LOST: Final = re.compile(
    r"ExecutorLostFailure|Lost executor|Executor heartbeat timed out|Container killed|exceeding (?:physical )?memory limits"
    r"|Remote RPC client disassociated|MetadataFetchFailedException|FetchFailed"
)
_NO_MASTER: Final = re.compile(
    r"All masters are unresponsive|Master removed our application|Could not parse Master URL|SparkContext was shut down"
)
_DISK: Final = re.compile(r"No space left on device|Disk quota exceeded|not enough space on the disk", re.IGNORECASE)
_PYTHON: Final = re.compile(r"Python worker exited unexpectedly|Python worker failed to connect back|\bMemoryError\b")
_RESULT: Final = re.compile(r"spark\.driver\.maxResultSize")


class SparkFaultError(OSError):
    """Spark could not go on; the text is one line with the way out."""


class Ended(NamedTuple):
    """The facts of the session that failed."""

    master: str
    local: bool
    heap: str  # text as in spark.driver.memory
    work_folder: str  # folder of Spark's temporary files; "": the workers' own
    java: int | None = None  # exit code of our own Java, negative: a signal; None: it runs, or is not ours


def list_causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes, outermost first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def is_of_spark(error: BaseException) -> bool:
    """Whether Spark, or the way to it, has to do with `error`."""
    return any(type(each).__module__.partition(".")[0] in {"pyspark", "py4j"} for each in list_causes(error))


def explain_fault(error: BaseException, ended: Ended) -> str | None:
    """One line with the way out; None where the fault is none of these."""
    text = "\n".join(str(each) for each in list_causes(error))
    if ended.java == JAVA_OUT_OF_MEMORY or (ended.local and _MEMORY.search(text)):
        return (
            f"out of memory: Java's heap of {ended.heap} was too small; give it more: "
            f"--driver-memory {_double_heap(ended.heap)} (--conf spark.sql.shuffle.partitions=N with a larger N helps, too)"
        )
    if ended.java is not None and ended.java == -signal.SIGKILL:
        return (
            f"Java was killed, as the kernel does when the machine's memory is used up; give the machine or container more than the heap "
            f"({ended.heap}) and 1 GB, or Java less: --driver-memory"
        )
    if _DISK.search(text):
        where = f"Spark's work files in {ended.work_folder}" if ended.work_folder else "the workers' work files"
        return (
            f"no space left on a disk: free some for {where} and for --state, or put the work files elsewhere: "
            "--conf spark.local.dir=/FOLDER"
        )
    if _MEMORY.search(text):
        return "out of memory on an executor: give executors more, --conf spark.executor.memory=4g"
    if _RESULT.search(text):
        return "results larger than the driver takes: --conf spark.driver.maxResultSize=4g and --driver-memory 8g"
    if _PYTHON.search(text):
        return (
            "a Python worker of Spark ended, as it does for want of memory: give the machine more, or use fewer at a time: "
            f"{'--master local[1]' if ended.local else '--conf spark.executor.cores=1'}"
        )
    if _LOST.search(text):
        return (
            f"executors of {ended.master} were lost: look at its workers, and give executors more memory: "
            "--conf spark.executor.memory=4g --conf spark.executor.memoryOverhead=1g"
        )
    if _NO_MASTER.search(text):
        return f"the cluster at {ended.master} cannot be used or ended the job: is --master right, is it up, and has it workers?"
    if ended.java is not None:
        return f"Java ended by itself with {ended.java}; more is said with --conf spark.log.level=ERROR"
    return None


def _double_heap(heap: str) -> str:
    """`1024m` → `2048m`."""
    found = re.fullmatch(r"(\d+)([a-z])", heap)
    return f"{int(found[1]) * 2}{found[2]}" if found else "4g"
