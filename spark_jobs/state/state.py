"""The state directory: the memory of each day, in `dt=` folders that change all at once.

    STATE/dt=2026-11-20/manifest.json             the inputs of the day, and the data folder in force
    STATE/dt=2026-11-20/data-1f0c…/topics         the tables of `schemas.py` (Parquet)
    STATE/corrupt/dt=2026-11-20/*.json            the corrupt lines of the day, with file and fault
    STATE/nights/dt=2026-11-20/…                  the files of the night

Data folders are written once and never changed. The manifest is written last, whole or not at all (`storage.Storage.write`), and the
data of an earlier run is removed after that. So a run that dies leaves the old state or the new one on any file system, also on object
stores, which cannot rename; a rerun replaces the day in any case; the next run sweeps folders that no manifest names.
One run per state directory at a time.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import date as calendar_date
from typing import TYPE_CHECKING, Final

from spark_jobs.errors import InsufficientInputError
from spark_jobs.state.manifest import Manifest
from spark_jobs.storage.local import sync_below
from spark_jobs.storage.location import Location
from spark_jobs.storage.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MANIFEST: Final = "manifest.json"
DATA: Final = "data-"


@dataclass(frozen=True, slots=True)
class DayStates:
    """The days under one location."""

    root: Location
    storage: Storage

    def folder(self, date: str) -> Location:
        return self.root.child(f"dt={date}")

    def night(self, date: str) -> Location:
        """The folder of the night after `date`."""
        return self.root.child("nights", f"dt={date}")

    def list_dates(self) -> list[str]:
        """The days that have a folder (perhaps without a manifest), oldest first."""
        found = []
        for entry in self.storage.list(self.root):
            name = entry.name.removeprefix("dt=")
            if entry.is_folder and name != entry.name and _is_date(name):
                found.append(name)
        return sorted(found)

    def read_manifest(self, date: str) -> Manifest | None:
        """The day's manifest; None where the day is not remembered. Raises InsufficientInputError where its manifest cannot be read."""
        location = self.folder(date).child(MANIFEST)
        try:
            return Manifest.load(self.storage.read(location))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise InsufficientInputError(f"{location.shown}: {error}") from error

    def read_manifests_before(self, date: str, days: int) -> list[Manifest]:
        """The remembered days before `date` and at most `days` days back, oldest first."""
        today = calendar_date.fromisoformat(date)
        near = [name for name in self.list_dates() if 0 < (today - calendar_date.fromisoformat(name)).days <= days]
        return [manifest for name in near if (manifest := self.read_manifest(name)) is not None]

    def data(self, day: Manifest) -> Location:
        return self.folder(day.date).child(day.data)

    def stage(self, date: str) -> Location:
        """A new data folder for `date`: not part of the state until `publish`. Sweeps the leftovers of earlier runs."""
        current = self.read_manifest_or_none(date)
        self._sweep(date, current.data if current is not None else None)
        return self.folder(date).child(f"{DATA}{uuid.uuid4().hex}")

    def read_manifest_or_none(self, date: str) -> Manifest | None:
        """As `read_manifest`, but None for one that cannot be read: the day is being computed again, which is the way out."""
        try:
            return self.read_manifest(date)
        except InsufficientInputError:
            return None

    def publish(self, manifest: Manifest) -> None:
        """Make the staged data of `manifest` the state of its day, then remove the data that it replaces. On this machine the new data
        is on the disk first: a power cut must not leave a manifest of files that are empty."""
        if self.root.is_local:
            sync_below(self.data(manifest).local)
        self.storage.write(self.folder(manifest.date).child(MANIFEST), manifest.dump())
        self._sweep(manifest.date, manifest.data)

    def _sweep(self, date: str, kept: str | None) -> None:
        for entry in self.storage.list(self.folder(date)):
            if entry.name.startswith(DATA) and entry.name != kept:
                self.storage.remove(entry.location)

    def keep_corrupt(self, lines: DataFrame | None, date: str) -> Location:
        """Keep the corrupt lines of `date` aside (None: there are none); returns their folder."""
        folder = self.root.child("corrupt", f"dt={date}")
        self.storage.remove(folder)
        if lines is not None:
            lines.write.mode("overwrite").json(str(folder))
        return folder


def _is_date(name: str) -> bool:
    try:
        return calendar_date.fromisoformat(name).isoformat() == name
    except ValueError:
        return False


def read_table(spark: SparkSession, table: str, schema: StructType, folders: list[Location]) -> DataFrame:
    """The rows of `table` in those data folders; no rows for no folders.

    Raises InsufficientInputError where a folder that a manifest names is gone.
    """
    from pyspark.errors import AnalysisException

    if not folders:
        return spark.createDataFrame([], schema)
    try:
        return spark.read.schema(schema).parquet(*[folder.child(table).glob for folder in folders])
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        path = (error.getMessageParameters() or {}).get("path", table)
        raise InsufficientInputError(describe_missing_table(path)) from None


def describe_missing_table(path: str) -> str:
    """The error about a table that is not there."""
    return f"{path}: its day's manifest names it and it is gone; compute the day again, or remove its folder to forget it"


def write_table(rows: DataFrame, table: str, schema: StructType, staged: Location) -> DataFrame:
    """Write `rows` into a staged data folder and return them as read back: later steps start from the file, not from a plan that
    grows."""
    rows.write.parquet(str(staged.child(table)))
    return read_table(rows.sparkSession, table, schema, [staged])
