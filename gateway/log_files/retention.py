"""Which files of the log may go: hours older than `keep`, and the oldest while all take more than `keep_size`.

What may not go yet stays, whatever `keep` and `keep_size` say (`access_log.keep_until`): hours that were not shipped, where the log is
shipped from here, or not counted, where the nightly job reads it here. They are told as held, because a disk that fills is somebody's to
know. `auto` takes what the directory shows: marks of shipping, else marks of counting, else age and size alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from gateway.log_files import durable
from gateway.log_files.manifest import MANIFEST, Manifest
from gateway.log_files.marks import Counted, Shipments
from gateway.log_files.names import HOUR_S, OPEN, LogFile, folder_of

AUTO: Final = "auto"
KEEP_UNTIL: Final = (AUTO, "shipped", "counted", "age")
CORRUPT: Final = "corrupt"  # beside the log: lines that `sluice log compact` could not take


class Keep(NamedTuple):
    """The settings `access_log.keep`, `keep_size` and `keep_until`."""

    seconds: int
    size: int  # bytes
    until: str  # one of KEEP_UNTIL


class Choice(NamedTuple):
    """What becomes of the files."""

    delete: list[LogFile]
    held: list[LogFile]  # would go if they were shipped or counted
    waits_for: str  # `shipped`, `counted` or `age`: what `keep_until` means here


def choose(files: list[LogFile], keep: Keep, now: float, shipments: Shipments, counted: Counted) -> Choice:
    """`files` as `names.look` finds them. Whole hours, oldest first; never the hour that is not over, nor an open file."""
    until = keep.until
    if until == AUTO:
        until = "shipped" if shipments.begun else "counted" if counted.begun else "age"
    total = sum(file.size for file in files)
    delete: list[LogFile] = []
    held: list[LogFile] = []
    for file in sorted(files, key=lambda each: each.hour):
        over = file.hour + HOUR_S
        if over > now or file.form == OPEN or not (over + keep.seconds < now or total > keep.size):
            continue
        total -= file.size
        free = until == "age" or (shipments.has(file) if until == "shipped" else counted.covers(file.hour))
        (delete if free else held).append(file)
    return Choice(delete, held, until)


def carry_out(directory: Path, delete: list[LogFile], shipments: Shipments) -> None:
    """Delete files, and what lies beside the log for them. Raises OSError."""
    for file in delete:
        durable.remove(file.path)
        shipments.forget(file)
    for hour, gateway in {(file.hour, file.gateway) for file in delete}:
        folder = folder_of(hour)
        stems = {file.stem for file in delete if (file.hour, file.gateway) == (hour, gateway)}
        for path in (directory / CORRUPT / folder).glob("*.jsonl.gz"):
            if path.name.removesuffix(".jsonl.gz") in stems:
                durable.remove(path)
        if not any((directory / folder).glob(f"{gateway}-*")):
            durable.remove(directory / Manifest(gateway, hour).name)
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
