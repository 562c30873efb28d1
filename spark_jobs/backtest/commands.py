"""The backtest for the command line: from texts to its result and exit code. Reports on stderr."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from spark_jobs.backtest.run import Runner, Task
from spark_jobs.days import Day
from spark_jobs.errors import EnvironmentFaultError, InsufficientInputError
from spark_jobs.session import spark_session
from spark_jobs.sizing import UNKNOWN_BYTES, estimate_lines_bytes, parse_conf_options, parse_memory_option
from spark_jobs.storage.choice import storage_for
from spark_jobs.storage.failures import explain_spark_error
from spark_jobs.storage.location import Location

if TYPE_CHECKING:
    from limiter.quota_snapshot import Snapshot
    from limiter.rules.rule import Rule
    from spark_jobs.backtest.result import Backtest

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INSUFFICIENT: Final = 5
INTERRUPTED: Final = 130


def backtest(
    first: str,
    last: str,
    log: str | None = None,
    state: str | None = None,
    master: str | None = "local[*]",
    *,
    candidates: Mapping[str, Snapshot] | None = None,
    rules: tuple[Rule, ...] | None = None,
    quick: bool = False,
    raised: float = 0.0,
    time_zone: str = "UTC",
    driver_memory: str | None = None,
    conf: Sequence[str] = (),
) -> tuple[int, Backtest | None]:
    """Play the days from `first` to `last`. Arguments as `run.Task`; `log` and `state` are paths or URLs. Nothing is written.

    `driver_memory` (`4g`) is Java's heap on a local master; by default it follows the largest day's log. `conf`: Spark's `NAME=VALUE`.

    The exit code, and the result where that is 0: 1 failed, 2 usage, 5 no day could be played, 130 interrupted.
    """
    try:
        places = [None if text is None else Location.of(name, text) for name, text in (("log", log), ("state", state))]
        days = [Day(date, time_zone) for date in (first, last)]
        task = Task(days[0], days[1], places[0], places[1], dict(candidates or {}), rules, quick, raised)
        heap = parse_memory_option(driver_memory) if driver_memory is not None else None
        settings = parse_conf_options(conf)
    except ValueError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return USAGE, None
    try:
        with spark_session(master, log_bytes=0 if quick else estimate_largest_day(task), driver_memory=heap, conf=settings) as spark:
            try:
                return OK, Runner(spark, task).run()
            except Exception as error:
                if type(error).__module__.partition(".")[0] not in {"pyspark", "py4j"}:
                    raise
                raise explain_spark_error(error, [place for place in places if place is not None]) from error
    except InsufficientInputError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return INSUFFICIENT, None
    except (EnvironmentFaultError, ValueError, OSError) as error:
        print(f"sluice: {error}", file=sys.stderr)
        return FAILED, None
    except KeyboardInterrupt:
        print("sluice: interrupted; nothing was written", file=sys.stderr)
        return INTERRUPTED, None


def estimate_largest_day(task: Task) -> int:
    """About how many bytes of lines the largest day of the log has: days are replayed one after the other."""
    log = task.log
    if log is None or not log.is_local:
        return UNKNOWN_BYTES
    storage = storage_for(log)
    sizes = []
    for day in task.days():
        folders = [log.child(f"dt={date}", f"hr={hour}") for date, hour in day.partitions]
        sizes.append(sum(estimate_lines_bytes((entry.name, entry.size) for entry in storage.list(folder)) for folder in folders))
    return max(sizes)
