"""The functions that the command line calls. They return exit codes and report on stderr."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from limiter.quota_snapshot import Snapshot, SnapshotError, dump, load
from spark_jobs.errors import EnvironmentFaultError, InsufficientInputError
from spark_jobs.parameters import Parameters
from spark_jobs.paths import day_start
from spark_jobs.session import spark_session
from spark_jobs.sizing import UNKNOWN_BYTES, conf_options, lines_bytes, memory_option
from spark_jobs.storage.choice import storage_for
from spark_jobs.storage.location import Location
from spark_jobs.storage.storage import Storage

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2  # docs/design/contract.md 2, as the others
INSUFFICIENT: Final = 5
INTERRUPTED: Final = 130


def compute(
    log: Path | str,
    date: str,
    state: Path | str,
    output: Path | str,
    master: str | None = "local[*]",
    *,
    previous: Path | str | None = None,
    now: str | None = None,
    driver_memory: str | None = None,
    conf: Sequence[str] = (),
    **parameters: object,
) -> int:
    """Compute the quotas of the night after `date` (UTC) from the access log under `log` and the daily states under `state`; write
    them to `output`. All of them are paths or URLs (`storage/location.py`).

    `previous` is the snapshot in force, for the guard rails; a file that does not exist is an error. `now` (RFC 3339) stands in for
    the clock. `driver_memory` (`4g`) is Java's heap on a local master; by default it follows the log's size. `conf` are settings of Spark,
    `NAME=VALUE` each. `parameters` are those of `parameters.Parameters`. `master` None is for spark-submit, which brings its own. Returns
    0, 1 (failed), 2 (`date` is none, or a scheme that nobody knows), 5 (input missing or too damaged) or 130 (interrupted); `output` is
    written whole or not at all.
    """
    try:
        day_start(date)
        places = Places.of(log, state, output, previous)
        heap = memory_option(driver_memory) if driver_memory is not None else None
        settings = conf_options(conf)
    except ValueError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return USAGE
    try:
        snapshot, summary = _compute(places, date, master, _moment(now), Parameters.of(parameters), heap, settings)
    except InsufficientInputError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return INSUFFICIENT
    except (EnvironmentFaultError, SnapshotError, ValueError, OSError) as error:
        print(f"sluice: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("sluice: interrupted; no quotas were written", file=sys.stderr)
        return INTERRUPTED
    print(f"{summary}; wrote {places.output.shown} (sha256 {snapshot.sha256()})", file=sys.stderr)
    return OK


class Places(NamedTuple):
    """Where a night reads and writes."""

    log: Location
    state: Location
    output: Location
    previous: Location | None

    @staticmethod
    def of(log: Path | str, state: Path | str, output: Path | str, previous: Path | str | None) -> Places:
        """Raises ValueError for a scheme that nobody knows, before a JVM starts."""
        return Places(
            Location.of("log", log),
            Location.of("state", state),
            Location.of("output", output),
            Location.of("previous", previous) if previous is not None else None,
        )


def _compute(
    places: Places, date: str, master: str | None, computed_at: str, parameters: Parameters, driver_memory: str | None, conf: dict[str, str]
) -> tuple[Snapshot, str]:
    before = _load(places.previous, storage_for(places.previous)) if places.previous is not None and places.previous.is_local else None
    log_bytes = UNKNOWN_BYTES
    if places.log.is_local:
        files = [(entry.name, entry.size) for entry in storage_for(places.log).files(places.log.child(f"dt={date}"))]
        log_bytes = lines_bytes(files)
        known = f"{len(files)} files, {sum(size for _, size in files) / 1e6:.1f} MB of log"
    else:
        known = f"the log is at {places.log}"
    print(f"{date}: {known}; Spark takes half a minute before it reads", file=sys.stderr)
    with spark_session(master, log_bytes=log_bytes, driver_memory=driver_memory, conf=conf) as spark:
        from spark_jobs.recompute import Night, recompute
        from spark_jobs.state.state import State

        try:
            if places.previous is not None and before is None:
                before = _load(places.previous, storage_for(places.previous, spark))
            state = State(places.state, storage_for(places.state, spark))
            night = Night(places.log, storage_for(places.log, spark), date, state, parameters, before, computed_at, code_version())
            snapshot, day = recompute(spark, night)
            storage_for(places.output, spark).write(places.output, dump(snapshot))
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in {"pyspark", "py4j"}:
                raise
            raise OSError(f"Spark: {_first_lines(str(error))}") from error
    summary = (
        f"{date}: {day.rows} lines in {len(day.inputs)} files, {day.corrupt} corrupt, {day.duplicates} twice, {day.missing_lines} missing, "
        f"{day.observed_seconds} of 86400 seconds observed; {len(snapshot.quotas)} quotas"
    )
    return snapshot, summary


def _first_lines(text: str) -> str:
    """The first line of a JVM's error; its stack trace is of no use to an operator."""
    return " ".join(line.strip() for line in text.strip().splitlines()[:1])[:1000]


def _load(location: Location, storage: Storage) -> Snapshot:
    try:
        return load(storage.read(location))
    except SnapshotError as error:
        raise ValueError(f"--previous: {location.shown}: {error}") from error


def _moment(now: str | None) -> str:
    if now is None:
        return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", now) is None:
        raise ValueError(f"--now: {now!r} is not a moment like 2026-11-21T01:00:00Z")
    return now


def code_version() -> str:
    """The version of the installed distribution; `source` where there is none, as with spark-submit --py-files."""
    try:
        return metadata.version("sluice-gateway")
    except metadata.PackageNotFoundError:
        return "source"
