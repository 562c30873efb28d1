"""Which files of the log may go: hours older than `keep`, and the oldest while all take more than `keep_size`.

What may not go yet stays, whatever `keep` and `keep_size` say (`access_log.keep_until`): hours that were not shipped, where the log is
shipped from here, or not counted, where the nightly job reads it here. They are told as held, because a disk that fills is somebody's to
know. What is decided is a gateway's hour as a whole, which its manifest names: all of its files go or none, but for one that is still open.
`auto` takes what the directory shows: marks of shipping, else marks of counting, else age and size alone.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from common.log_files import durable
from common.log_files.manifest import MANIFEST, HourManifest
from common.log_files.marks import Counted, Shipments
from common.log_files.names import HOUR_S, OPEN, LogFile, folder_of

AUTO: Final = "auto"
CORRUPT: Final = "corrupt"  # beside the log: lines that `sluice log compact` could not take


class Keep(NamedTuple):
    """The settings `access_log.keep`, `keep_size` and `keep_until`."""

    seconds: int
    size: int  # bytes
    until: str  # AUTO, `shipped`, `counted` or `age`


class RetentionChoice(NamedTuple):
    """What becomes of the files."""

    delete: list[LogFile]
    held: list[LogFile]  # would go if they were shipped or counted
    waits_for: str  # `shipped`, `counted` or `age`: what `keep_until` means here


def choose(files: list[LogFile], keep: Keep, now: float, shipments: Shipments, counted: Counted) -> RetentionChoice:
    """`files` as `names.look` finds them. Whole hours of a gateway, oldest first; never the hour that is not over, nor an open file."""
    until = keep.until
    if until == AUTO:
        until = "shipped" if shipments.begun else "counted" if counted.begun else "age"
    total = sum(file.size for file in files)
    delete: list[LogFile] = []
    held: list[LogFile] = []
    for (hour, _), its in groupby(sorted(files, key=_hour_of_gateway), key=_hour_of_gateway):
        over = hour + HOUR_S
        closed = [file for file in its if file.form != OPEN]
        if over > now or not (over + keep.seconds < now or total > keep.size):
            continue
        total -= sum(file.size for file in closed)
        free = until == "age" or (all(map(shipments.has, closed)) if until == "shipped" else counted.covers(hour))
        (delete if free else held).extend(closed)
    return RetentionChoice(delete, held, until)


def _hour_of_gateway(file: LogFile) -> tuple[int, str]:
    return file.hour, file.gateway


def carry_out(directory: Path, delete: list[LogFile], shipments: Shipments) -> None:
    """Delete whole hours of gateways, and what lies beside the log for them. Raises OSError.

    Manifests go first: what is left when this is interrupted are files without a manifest, which the nightly job reads as they are, and
    never a manifest that names what is gone.
    """
    whole = {_hour_of_gateway(file) for file in delete}
    for hour, gateway in whole:
        durable.remove(directory / HourManifest(gateway, hour).name)
    for file in delete:
        durable.remove(file.path)
        shipments.forget(file)
    for hour, gateway in whole:
        folder = folder_of(hour)
        stems = {file.stem for file in delete if _hour_of_gateway(file) == (hour, gateway)}
        for path in (directory / CORRUPT / folder).glob("*.jsonl.gz"):
            if path.name.removesuffix(".jsonl.gz") in stems:
                durable.remove(path)
        roots = [directory, directory / CORRUPT, *shipments.folders()]
        for root in roots:
            _remove_empty(root / folder, root)
        _remove_empty((directory / MANIFEST / gateway / folder).parent, directory / MANIFEST / gateway)


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove `folder` and those above it, below `root`, as far as they are empty."""
    while folder != root:
        try:
            folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError:  # something is in it
            return
        folder = folder.parent
