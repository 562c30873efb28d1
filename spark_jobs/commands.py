"""The functions that the command line calls. They return exit codes and report on stderr."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from limiter.quota_snapshot import Snapshot, SnapshotError, dump_pieces, load
from spark_jobs.days import Day, yesterday
from spark_jobs.errors import EarlyEndError, EnvironmentFaultError, InsufficientInputError, NeedsSparkError
from spark_jobs.log.exclusions import Exclusion
from spark_jobs.method.pins import Pin, read_pins
from spark_jobs.parameters import Parameters
from spark_jobs.report.words import pluralise
from spark_jobs.session import local_cores, spark_session
from spark_jobs.sizing import (
    UNKNOWN_BYTES,
    compute_plain_bytes,
    estimate_lines_bytes,
    parse_conf_options,
    parse_memory_option,
    read_machine_memory,
)
from spark_jobs.storage.choice import storage_for
from spark_jobs.storage.failures import explain_spark_error
from spark_jobs.storage.location import Location
from spark_jobs.storage.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2  # docs/design/contract.md 2, as the others
INSUFFICIENT: Final = 5
INTERRUPTED: Final = 130


def compute(
    log: Path | str,
    date: str | None,
    state: Path | str,
    output: Path | str,
    master: str | None = "local[*]",
    *,
    previous: Path | str | None = None,
    now: str | None = None,
    driver_memory: str | None = None,
    conf: Sequence[str] = (),
    pins: Path | str | None = None,
    exclude: Sequence[str] = (),
    allow_partial: bool = False,
    **parameters: object,
) -> int:
    """Compute the quotas of the night after `date` (a day of the parameter `time_zone`; None: yesterday) from the access log under `log`
    and the daily states under `state`; write them to `output`. All of them are paths or URLs (`storage/location.py`).

    `previous` is the snapshot in force, for the guard rails; a file that does not exist is an error. `pins` is a file of `method/pins.py`;
    `exclude` are incidents (`FROM/TO:TOPIC`) that teach nothing; with `allow_partial` a day without some gateways is scaled instead of
    refused. `now` (RFC 3339) stands in for the clock. `driver_memory` (`4g`) is Java's heap on a local master; by default it follows the
    log's size. `conf` are settings of Spark, `NAME=VALUE` each. `parameters` are those of `parameters.Parameters`. `master` None is for
    spark-submit, which brings its own. Returns 0, 1 (failed, or the day's last files may still be shipped), 2 (a date, an exclusion or a
    scheme that is none), 5 (input missing or too damaged, or a gateway missing) or 130 (interrupted); `output` is written whole or not at
    all.
    """
    try:
        date = Day(date).date if date is not None else yesterday(str(parameters.get("time_zone") or "UTC")).date
        places = NightPlaces.of(log, state, output, previous, pins)
        incidents = [Exclusion.of(text) for text in exclude]
        heap = parse_memory_option(driver_memory) if driver_memory is not None else None
        settings = parse_conf_options(conf)
    except ValueError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return USAGE
    try:
        asked = Computation(date, _parse_moment(now), Parameters.of(parameters), incidents, allow_partial, heap, settings)
        summary = _compute(places, asked, master)
    except InsufficientInputError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return INSUFFICIENT
    except (EarlyEndError, EnvironmentFaultError, SnapshotError, ValueError, OSError) as error:
        print(f"sluice: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("sluice: interrupted; no quotas were written", file=sys.stderr)
        return INTERRUPTED
    print(summary, file=sys.stderr)
    return OK


class NightPlaces(NamedTuple):
    """The locations that a night reads and writes."""

    log: Location
    state: Location
    output: Location
    previous: Location | None
    pins: Location | None

    @property
    def are_local(self) -> bool:
        return all(each is None or each.is_local for each in self)

    @staticmethod
    def of(
        log: Path | str, state: Path | str, output: Path | str, previous: Path | str | None = None, pins: Path | str | None = None
    ) -> NightPlaces:
        """The places of these options. Raises ValueError for a scheme that nobody knows, before a JVM starts."""
        return NightPlaces(
            Location.of("log", log),
            Location.of("state", state),
            Location.of("output", output),
            Location.of("previous", previous) if previous is not None else None,
            Location.of("pins", pins) if pins is not None else None,
        )


class Computation(NamedTuple):
    """The options of a computation."""

    date: str
    computed_at: str
    parameters: Parameters
    exclusions: Sequence[Exclusion]
    allow_partial: bool
    driver_memory: str | None
    conf: dict[str, str]

    @property
    def is_plain(self) -> bool:
        """Whether nothing is asked for that only Spark does."""
        return not self.exclusions and not self.conf and self.driver_memory is None


def _compute(places: NightPlaces, asked: Computation, master: str | None) -> str:
    date = asked.date
    before = _load(places.previous, storage_for(places.previous)) if places.previous is not None and places.previous.is_local else None
    pins = read_pins(storage_for(places.pins).read(places.pins)) if places.pins is not None and places.pins.is_local else None
    log_bytes = UNKNOWN_BYTES
    if places.log.is_local:
        files = list_day_files(places.log, Day(date, asked.parameters.time_zone))
        log_bytes = estimate_lines_bytes(files)
        known = f"{pluralise(len(files), 'file')}, {sum(size for _, size in files) / 1e6:.1f} MB of log"
    else:
        known = f"the log is at {places.log}"
    if log_bytes <= compute_plain_bytes(read_machine_memory()) and asked.is_plain and places.are_local and does_without_spark(master):
        try:
            print(f"{date}: {known}", file=sys.stderr)
            return _run_night(None, places, asked, before, pins)
        except NeedsSparkError as error:
            known = str(error)
    print(f"{date}: {known}; Spark takes half a minute before it reads", file=sys.stderr)
    with spark_session(master, log_bytes=log_bytes, driver_memory=asked.driver_memory, conf=asked.conf) as spark:
        try:
            return _run_night(spark, places, asked, before, pins)
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in {"pyspark", "py4j"}:
                raise
            raise explain_spark_error(error, (places.log, places.state, places.output)) from error


def does_without_spark(master: str | None) -> bool:
    """Whether a small day is read without Spark: on a local master, where no JVM runs yet. Where a package is missing Spark says so."""
    try:
        import pyarrow  # noqa: F401
        from pyspark.sql import SparkSession
    except ImportError:
        return False
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # as `session.spark_session`
    return master is not None and local_cores(master) is not None and not submitted and SparkSession.getActiveSession() is None


def _run_night(
    spark: SparkSession | None, places: NightPlaces, asked: Computation, before: Snapshot | None, pins: Sequence[Pin] | None
) -> str:
    """`before` and `pins` are read here where they are not yet."""
    from spark_jobs.compute import NightInputs, compute_quotas
    from spark_jobs.state.state import DayStates

    date = asked.date
    if places.previous is not None and before is None:
        before = _load(places.previous, storage_for(places.previous, spark))
    state = DayStates(places.state, storage_for(places.state, spark))
    if places.pins is not None and pins is None:
        pins = read_pins(storage_for(places.pins, spark).read(places.pins))
    job = NightInputs(
        places.log, storage_for(places.log, spark), state, date, asked.parameters, before, asked.computed_at, code_version(),
        asked.allow_partial, asked.exclusions, pins or (),
    )  # fmt: skip
    snapshot, quotas, day = compute_quotas(spark, job)
    buffer, parts = BytesIO(), 0
    for part in dump_pieces(snapshot, quotas):
        buffer.write(part)
        parts += 1
    data = buffer.getvalue()
    del quotas, buffer
    storage_for(places.output, spark).write(places.output, data)
    said = snapshot.night.get("remarks")
    for sentence in said if isinstance(said, list) else []:
        print(f"sluice: {sentence}", file=sys.stderr)
    return (
        f"{date}: {day.rows} lines in {len(day.inputs)} files, {day.corrupt} corrupt, {day.stray} of another day, {day.duplicates} twice, "
        f"{day.missing_lines} missing, "
        f"{day.observed_seconds} of {day.end - day.start} seconds observed; {parts - 2} quotas{_describe_lists(snapshot)}; "
        f"wrote {places.output.shown} (sha256 {hashlib.sha256(data).hexdigest()})"
    )


def list_day_files(log: Location, day: Day) -> list[tuple[str, int]]:
    """Name and size of the files of a local log for the day, of whatever time zone."""
    hours = {f"dt={date}/hr={hour}" for date, hour in day.partitions}
    storage = storage_for(log)
    found = [entry for date in sorted({date for date, _ in day.partitions}) for entry in storage.files(log.child(f"dt={date}"))]
    return [(each.name, each.size) for each in found if log.relative(each.location).rpartition("/")[0] in hours]


def _describe_lists(snapshot: Snapshot) -> str:
    """How many topics are not simply computed, and how many gateways are missing, as text."""
    counts = {name: len(found) for name in ("learning", "held", "pinned") if isinstance(found := snapshot.night.get(name), list) and found}
    counts |= {"gateways missing": len(found)} if isinstance(found := snapshot.night.get("missing_gateways"), list) and found else {}
    return "".join(f", {count} {name}" for name, count in counts.items())


def _load(location: Location, storage: Storage) -> Snapshot:
    try:
        return load(storage.read(location))
    except SnapshotError as error:
        raise ValueError(f"--previous: {location.shown}: {error}") from error


def _parse_moment(now: str | None) -> str:
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
