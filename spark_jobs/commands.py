"""The functions that the command line calls. They return exit codes and report on stderr."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Final

from limiter.quota_snapshot import Snapshot, SnapshotError, dump, load
from spark_jobs.errors import EnvironmentFaultError, InsufficientInputError
from spark_jobs.parameters import Parameters
from spark_jobs.paths import day_start, local_folder
from spark_jobs.session import spark_session

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2  # docs/design/contract.md 2, as the others
INSUFFICIENT: Final = 5
INTERRUPTED: Final = 130
SMALL_BYTES: Final = (
    64 * 2**20
)  # bytes of log; below it a Java that starts fast ends sooner; between 20 MB, measured, and a busy day (guess)


def compute(
    log: Path | str,
    date: str,
    state: Path | str,
    output: Path | str,
    master: str | None = "local[*]",
    *,
    previous: Path | str | None = None,
    now: str | None = None,
    **parameters: object,
) -> int:
    """Compute the quotas of the night after `date` (UTC) from the access log under `log` and the daily states under `state`; write
    them to `output`.

    `previous` is the snapshot in force, for the guard rails; a file that does not exist is an error. `now` (RFC 3339) stands in for
    the clock. `parameters` are those of `parameters.Parameters`. `master` None is for spark-submit, which brings its own. Returns
    0, 1 (failed), 2 (`date` is none), 5 (input missing or too damaged) or 130 (interrupted); `output` is written whole or not at all.
    """
    try:
        day_start(date)
    except ValueError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return USAGE
    try:
        snapshot, summary = _compute(log, date, state, master, previous, now, Parameters.of(parameters))
        destination = local_folder("output", output)
        _write(destination, dump(snapshot))
    except InsufficientInputError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return INSUFFICIENT
    except (EnvironmentFaultError, SnapshotError, ValueError, OSError) as error:
        print(f"sluice: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("sluice: interrupted; no quotas were written", file=sys.stderr)
        return INTERRUPTED
    print(f"{summary}; wrote {destination} (sha256 {snapshot.sha256()})", file=sys.stderr)
    return OK


def _compute(
    log: Path | str, date: str, state: Path | str, master: str | None, previous: Path | str | None, now: str | None, parameters: Parameters
) -> tuple[Snapshot, str]:
    log_folder, state_folder = local_folder("log", log), local_folder("state", state)
    before = _load(Path(previous)) if previous is not None else None
    computed_at = _moment(now)
    sizes = [path.stat().st_size for path in log_folder.glob(f"dt={date}/hr=*/*.jsonl*")]
    size = sum(sizes)
    print(f"{date}: {len(sizes)} files, {size / 1e6:.1f} MB of log; Spark takes half a minute before it reads", file=sys.stderr)
    with spark_session(master, small=size < SMALL_BYTES) as spark:
        from spark_jobs.recompute import Night, recompute
        from spark_jobs.state.state import State

        night = Night(log_folder, date, State(state_folder), parameters, before, computed_at, code_version())
        try:
            snapshot, day = recompute(spark, night)
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


def _load(path: Path) -> Snapshot:
    try:
        return load(path.read_bytes())
    except SnapshotError as error:
        raise ValueError(f"--previous: {path}: {error}") from error


def _moment(now: str | None) -> str:
    if now is None:
        return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", now) is None:
        raise ValueError(f"--now: {now!r} is not a moment like 2026-11-21T01:00:00Z")
    return now


def _write(path: Path, data: bytes) -> None:
    from spark_jobs.state.state import write_durably

    write_durably(path, data)


def code_version() -> str:
    """The version of the installed distribution; `source` where there is none, as with spark-submit --py-files."""
    try:
        return metadata.version("sluice-gateway")
    except metadata.PackageNotFoundError:
        return "source"
