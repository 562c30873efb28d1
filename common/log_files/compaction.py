"""Compacts hours of the log: the lines of a gateway's hour as one Parquet file, sorted by topic and second (`sluice log compact`).

Steps, each safe to be killed after: corrupt lines are put aside (`corrupt/`), the Parquet file is written aside, synced and renamed, the
hour's manifest says which files it stands for, and only then are those removed. A next run removes them where that had not happened, and
writes the Parquet file again where no manifest names it.

Nothing is compacted that cannot be compacted whole: a file that is damaged, or of a newer gateway, or that does not fit the manifest, keeps
its hour as it is, with a line that says so.
"""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from common.log_files import durable, manifest
from common.log_files.columns import NewerLineError, parse
from common.log_files.compression import DamagedFileError, chunks
from common.log_files.keeper import tidy
from common.log_files.manifest import HourManifest, ManifestEntry, sha256_of
from common.log_files.marks import Shipments
from common.log_files.names import HOUR_S, OPEN, PARQUET, LogFile, look, one_of_each
from common.log_files.retention import CORRUPT
from common.log_files.sorting import Sorter

BLOCK: Final = 8 << 20  # bytes of whole lines that are parsed at once: 20,000 lines
SCRATCH: Final = ".compacting"  # at the log's root; holds sorted runs
LOCK_WAIT_S: Final = 60.0  # seconds; for a keeper to end its round (a guess)


class CompactedHour(NamedTuple):
    """What became of one gateway's hour."""

    gateway: str
    hour: int
    files: int = 0  # compacted
    lines: int = 0
    corrupt: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    fault: str = ""  # why it was left as it is


class FaultyHourError(Exception):
    """An hour that is left as it is; the message has the way out."""


def compact(directory: Path, now: float, settle_s: float) -> Iterator[CompactedHour]:
    """Every hour that was over `settle_s` ago and has something to compact, oldest first. Raises OSError, durable.BusyError."""
    hours = sorted({(file.hour, file.gateway) for file in look(directory).files if file.form != PARQUET})
    for hour, gateway in hours:
        if hour + HOUR_S + settle_s > now:
            continue
        with durable.lock(directory, LOCK_WAIT_S):
            tidy(directory)
            try:
                done = _compact_hour(directory, hour, gateway)
            except (FaultyHourError, DamagedFileError, NewerLineError, ValueError) as error:
                done = CompactedHour(gateway, hour, fault=str(error))
        if done is not None:
            yield done


def _compact_hour(directory: Path, hour: int, gateway: str) -> CompactedHour | None:
    """None: there is nothing to do (any more)."""
    files = [file for file in look(directory).files if (file.hour, file.gateway) == (hour, gateway)]
    known = manifest.local(directory, gateway, hour)
    files = _remove_compacted(directory, files, known)
    if any(file.form == OPEN for file in files):
        raise FaultyHourError("a file is still open; it is closed at the gateway's next start, or two hours after its last line")
    sources = sorted(one_of_each([file for file in files if file.form != PARQUET]), key=lambda file: file.path.name)
    if not sources:
        return None
    for file in sources:
        _fits(file, known)
    entry = _write(directory, sources)
    known.add(entry)
    durable.write(directory / known.name, known.text())
    _remove(directory, sources, files)
    return CompactedHour(gateway, hour, len(sources), entry.lines or 0, entry.corrupt, sum(file.size for file in sources), entry.size)


def _remove_compacted(directory: Path, files: list[LogFile], known: HourManifest) -> list[LogFile]:
    """Remove what a compacted file stands for, and give back the others. Raises FaultyHourError where that file is not what was written."""
    there = {file.name: file for file in files}
    gone: list[LogFile] = []
    for source, entry in known.sources().items():
        left = [file for file in files if file.form != PARQUET and f"{file.stem}.jsonl" == source]
        found = there.get(entry.name)
        if left and (found is None or found.size != entry.size):
            raise FaultyHourError(
                f"{entry.name} is missing or of another size, though {known.name} names it; restore it, or remove that manifest"
            )
        gone += left
    for file in gone:
        durable.remove(file.path)
    return [file for file in files if file not in gone]


def _fits(file: LogFile, known: HourManifest) -> None:
    """A file that was shipped here has to be what was shipped."""
    entry = known.files.get(file.name)
    if entry is not None and (entry.size != file.size or entry.sha256 != sha256_of(file.path)):
        raise FaultyHourError(f"{file.name} is not what {known.name} says; ship the hour again, or remove that manifest")


def _write(directory: Path, sources: list[LogFile]) -> ManifestEntry:
    """The lines of `sources` as one Parquet file, in place."""
    first = sources[0]
    target = first.path.with_name(f"{first.stem}.{PARQUET}")
    scratch = directory / SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    sorter = Sorter(scratch)
    aside = durable.name_temporary(target)
    try:
        with gzip.GzipFile(scratch / CORRUPT, "wb", mtime=0) as bad:
            corrupt = 0
            for block in _blocks(sources):
                tables, lines = parse(block)
                for table in tables:
                    sorter.add(table)
                for line in lines:
                    bad.write(line + b"\n")
                corrupt += len(lines)
        names = tuple(f"{file.stem}.jsonl" for file in sources)
        sorter.write(aside, {"sluice.sources": "\n".join(names), "sluice.corrupt": str(corrupt)})
        if corrupt:
            _keep_corrupt(directory, scratch / CORRUPT, first)
        size, digest = aside.stat().st_size, sha256_of(aside)
        made = first._replace(path=target, form=PARQUET, size=size)
        Shipments(directory).join(sources, made)
        with aside.open("ab") as file:
            os.fchmod(file.fileno(), first.path.stat().st_mode & 0o777)  # who may read the lines does not change
            durable.finish(file, target)
    except OSError:
        durable.remove(aside)
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return ManifestEntry(made.name, size, digest, sorter.rows, corrupt, names)


def _keep_corrupt(directory: Path, written: Path, first: LogFile) -> None:
    """Give the corrupt lines their place: `corrupt/dt=.../hr=.../STEM.jsonl.gz`."""
    target = directory / CORRUPT / first.folder / f"{first.stem}.jsonl.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = durable.name_temporary(target)
    written.rename(aside)
    with aside.open("ab") as file:
        os.fchmod(file.fileno(), first.path.stat().st_mode & 0o777)
        durable.finish(file, target)


def _blocks(sources: list[LogFile]) -> Iterator[bytes]:
    """Whole lines, about BLOCK bytes at once; each file's last line gets an end where it has none."""
    for file in sources:
        rest: list[bytes] = []
        size = 0
        for data in chunks(file.path, file.form):
            rest.append(data)
            size += len(data)
            if size >= BLOCK:
                head, end, tail = b"".join(rest).rpartition(b"\n")
                if not end:
                    raise DamagedFileError(f"{file.path}: a line of more than {BLOCK} bytes: no access log; move it away")
                yield head + end
                rest, size = [tail], len(tail)
        if last := b"".join(rest):
            yield last if last.endswith(b"\n") else last + b"\n"


def _remove(directory: Path, sources: list[LogFile], files: list[LogFile]) -> None:
    """Remove all forms of `sources`, and their marks of shipping but for the first's, which is the compacted file's by now."""
    stems = {file.stem for file in sources}
    shipments = Shipments(directory)
    for file in files:
        if file.form != PARQUET and file.stem in stems:
            durable.remove(file.path)
    for file in sources[1:]:
        shipments.forget(file)
