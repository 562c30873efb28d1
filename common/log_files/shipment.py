"""Ships closed hours of the log to a target (`sluice log ship`): every file whole and once, and the hour's manifest last.

An hour of a gateway is shipped when it is over and none of its files is open. Its files go first, then the manifest with their sizes and
hashes, then the marks beside the log that say so (`marks.py`). A run that is killed anywhere is gone on with by the next one: a file that
is at the target already, by size and hash, is not sent again, and a manifest is made of what the target has and what was added. So the
target never has a manifest that names what is not there, and an hour without one is an hour that is not there whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from common.log_files import durable, manifest
from common.log_files.compression import DamagedFileError, chunks
from common.log_files.folder import Folder
from common.log_files.keeper import Report, close_stale, tidy
from common.log_files.manifest import HourManifest, ManifestEntry, sha256_of
from common.log_files.marks import Shipments
from common.log_files.names import HOUR_S, OPEN, PARQUET, LogFile, look, one_of_each
from common.log_files.retention import CORRUPT
from common.log_files.targets import Target

LOCK_WAIT_S: Final = 60.0  # seconds; for a keeper to end its round (a guess)


class Sent(NamedTuple):
    """What became of one gateway's hour."""

    gateway: str
    hour: int
    files: int = 0
    bytes: int = 0
    already: int = 0  # files that were at the target
    fault: str = ""  # why it was left for the next run


def ship(directory: Path, target: Target, now: float, settle_s: float) -> Iterator[Sent]:
    """Every hour that was over `settle_s` ago and has something to ship, oldest first. Raises OSError, TargetError, ValueError."""
    if isinstance(target, Folder) and target.within(directory):
        raise ValueError(f"{target.url} is the log itself, or within it; ship to another folder")
    marks = Shipments(directory, target.url)
    marks.begin(target.url)
    with durable.lock(directory, LOCK_WAIT_S):
        tidy(directory)
        close_stale(look(directory).files, now, Report())
    hours = sorted({(file.hour, file.gateway) for file in look(directory).files if not marks.has(file)})
    for hour, gateway in hours:
        if hour + HOUR_S + settle_s > now:
            continue
        with durable.lock(directory, LOCK_WAIT_S):  # nobody compresses or deletes these files meanwhile
            try:
                sent = _ship_hour(directory, target, marks, hour, gateway)
            except (DamagedFileError, ValueError) as error:
                sent = Sent(gateway, hour, fault=str(error))
        if sent is not None:
            yield sent


def _ship_hour(directory: Path, target: Target, marks: Shipments, hour: int, gateway: str) -> Sent | None:
    files = [file for file in look(directory).files if (file.hour, file.gateway) == (hour, gateway)]
    if any(file.form == OPEN for file in files):
        return Sent(gateway, hour, fault="a file is still open; it is closed at the gateway's next start, or two hours after its last line")
    here = manifest.local(directory, gateway, hour)
    stands_for = set(here.sources())  # what a compacted file holds was not removed yet
    due = [file for file in one_of_each(files) if not marks.has(file) and not (file.form != PARQUET and f"{file.stem}.jsonl" in stands_for)]
    if not due:
        return None
    whole = HourManifest(gateway, hour)
    known = target.get(whole.name)
    if known is not None:
        try:
            whole = manifest.read(known, gateway, hour)
        except ValueError as error:
            raise ValueError(f"{target.url}/{whole.name}: {error}") from None
    entries = [(file, _entry(file, here)) for file in due]
    sent = size = 0
    for file, entry in entries:
        kept = directory / CORRUPT / file.folder / f"{file.stem}.jsonl.gz"
        if entry.corrupt and kept.exists():
            _put(target, f"{CORRUPT}/{file.folder}/{kept.name}", kept, kept.stat().st_size, sha256_of(kept))
        if _put(target, entry.name, file.path, entry.size, entry.sha256):
            sent += 1
            size += entry.size
        whole.add(entry)
    target.put_bytes(whole.name, whole.text())
    for file, entry in entries:
        marks.add(file, {"name": entry.name, "sha256": entry.sha256, "size": entry.size})
    return Sent(gateway, hour, sent, size, len(entries) - sent)


def _put(target: Target, name: str, path: Path, size: int, sha256: str) -> bool:
    """Whether it had to be sent."""
    there = target.stat(name, size)
    if there is not None and there.size == size and there.sha256 == sha256:
        return False
    target.put(name, path, sha256)
    return True


def _entry(file: LogFile, here: HourManifest) -> ManifestEntry:
    """What the manifest says of a file. Raises DamagedFileError, for what is torn must not be called whole; ValueError."""
    digest = sha256_of(file.path)
    known = here.files.get(file.name)
    if known is not None:
        if (known.size, known.sha256) != (file.size, digest):
            raise ValueError(f"{file.path} is not what {here.name} says; restore it, or remove that manifest")
        return known
    if file.form == PARQUET:
        return ManifestEntry(file.name, file.size, digest)
    lines = 0
    last = b"\n"
    for data in chunks(file.path, file.form):
        lines += data.count(b"\n")
        last = data[-1:]
    return ManifestEntry(file.name, file.size, digest, lines + (last != b"\n"))
