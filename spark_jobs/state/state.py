"""The state directory: the memory of each day, in `dt=` folders that change all at once.

    STATE/dt=2026-11-20/manifest.json                       the inputs of the day, and the data folder in force
    STATE/dt=2026-11-20/data-1f0c…/usage|candidates|scores  the tables of `schemas.py` (Parquet)
    STATE/corrupt/dt=2026-11-20/*.json                      the corrupt lines of the day, with file and fault

The manifest is replaced atomically after the data it names is written, and the data of an earlier run is removed after that. So a
run that dies leaves the old state or the new one, a rerun replaces the day in any case (an empty day too: Spark's own dynamic
overwrite would leave the stale rows), and folders that no manifest names are swept by the next run. One run per state directory at
a time.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from dataclasses import asdict, dataclass, field
from datetime import date as calendar_date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.errors import InsufficientInputError
from spark_jobs.paths import read_url, write_url
from spark_jobs.schemas import STATE_FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

MANIFEST: Final = "manifest.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The inputs of a day. `data` names the folder beside it."""

    date: str
    data: str
    code: str
    fingerprint: str  # of the parameters the candidates were made with
    rows: int
    corrupt: int
    stray: int  # lines of another day
    duplicates: int
    missing_lines: int  # gaps in the sequence numbers
    observed_seconds: int
    inputs: list[dict[str, Any]] = field(default_factory=list)
    format: int = STATE_FORMAT


@dataclass(frozen=True, slots=True)
class State:
    """The days under one directory."""

    root: Path

    def folder(self, date: str) -> Path:
        return self.root / f"dt={date}"

    def manifest(self, date: str) -> Manifest | None:
        """None where the day is not remembered. Raises InsufficientInputError where its manifest cannot be read."""
        path = self.folder(date) / MANIFEST
        try:
            found = json.loads(path.read_bytes())
            if found.get("format") != STATE_FORMAT:
                raise InsufficientInputError(
                    f"{path}: format {found.get('format')}, this program reads {STATE_FORMAT}; compute the day again"
                )
            return Manifest(**found)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, AttributeError) as error:
            raise InsufficientInputError(f"{path}: {error}; compute the day again or remove its folder") from error

    def before(self, date: str, days: int) -> list[Manifest]:
        """The remembered days before `date` and at most `days` days back, oldest first."""
        today = calendar_date.fromisoformat(date)
        found = []
        for path in sorted(self.root.glob(f"dt=*/{MANIFEST}")):
            name = path.parent.name.removeprefix("dt=")
            try:
                age = (today - calendar_date.fromisoformat(name)).days
            except ValueError:
                continue
            if 0 < age <= days and (manifest := self.manifest(name)) is not None:
                found.append(manifest)
        return found

    def data(self, day: Manifest) -> Path:
        return self.folder(day.date) / day.data

    def stage(self, date: str) -> Path:
        """A new data folder for `date`: not part of the state until `publish`. Sweeps what earlier runs left."""
        folder = self.folder(date)
        current = self.manifest(date)
        for stale in folder.glob("data-*"):
            if current is None or stale.name != current.data:
                shutil.rmtree(stale)
        staged = folder / f"data-{uuid.uuid4().hex}"
        staged.mkdir(parents=True)
        return staged

    def publish(self, manifest: Manifest) -> None:
        """Make the staged data of `manifest` the state of its day, then remove what it replaces."""
        folder = self.folder(manifest.date)
        write_durably(folder / MANIFEST, json.dumps(asdict(manifest), sort_keys=True, indent=1).encode() + b"\n")
        for stale in folder.glob("data-*"):
            if stale.name != manifest.data:
                shutil.rmtree(stale)

    def keep_corrupt(self, lines: DataFrame | None, date: str) -> Path:
        """Keep the corrupt lines of `date` aside (None: there are none); returns their folder."""
        folder = self.root / "corrupt" / f"dt={date}"
        if lines is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            lines.write.mode("overwrite").json(write_url(folder))
        return folder


def read_table(spark: SparkSession, table: str, schema: StructType, folders: list[Path]) -> DataFrame:
    """The rows of `table` in those data folders; no rows for no folders."""
    if not folders:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*[read_url(folder / table) for folder in folders])


def write_table(rows: DataFrame, table: str, schema: StructType, staged: Path) -> DataFrame:
    """Write `rows` into a staged data folder and return them as read back: later steps start from the file, not from a plan that
    grows."""
    rows.repartition(1).write.parquet(write_url(staged / table))
    return read_table(rows.sparkSession, table, schema, [staged])


def write_durably(path: Path, data: bytes) -> None:
    """Replace `path` in one step, on disk before this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
