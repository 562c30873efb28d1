"""What is known of the log's hours beside the files: which were shipped, and which the nightly job has counted.

Marks lie beside the log, because those who write them may be other processes, on other schedules:

* `shipped/TARGET/dt=.../hr=.../FILE`: `sluice log ship` has put this file at the target whole. TARGET is a hash of the target's URL.
* `counted/dt=DATE.json`, `{"start": ..., "end": ...}` in epoch seconds: the nightly job has published the state of that day, which began
  and ended then in its time zone. It writes them where it reads the log from this very directory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from common.log_files import durable
from common.log_files.names import HOUR_S, LogFile

SHIPPED: Final = "shipped"
COUNTED: Final = "counted"
REMEMBERED_S: Final = 60 * 86_400  # seconds; before the newest counted day; a night makes up for days missed since (its `remember_days`)


class Shipments:
    """The marks of one target, or of all of them. A file counts as shipped in whichever form it went."""

    def __init__(self, directory: Path, target: str | None = None) -> None:
        """`target`: its URL; None for all targets (reading alone)."""
        self._folders = (
            [directory / SHIPPED / hashlib.sha256(target.encode()).hexdigest()[:12]]
            if target is not None
            else sorted((directory / SHIPPED).glob("*"))
        )

    def begin(self, url: str) -> None:
        """The log is shipped from here to `url` from now on: what was not shipped is kept. Raises OSError."""
        folder = self._folders[0]
        if not (folder / "target").exists():
            durable.write(folder / "target", f"{url}\n".encode())

    @property
    def begun(self) -> bool:
        """Whether anything was ever shipped from here."""
        return any(folder.is_dir() for folder in self._folders)

    def has(self, file: LogFile) -> bool:
        return any((folder / file.folder / file.stem).exists() for folder in self._folders)

    def add(self, file: LogFile, entry: dict[str, object]) -> None:
        """`entry` is the file's in the hour's manifest. Raises OSError."""
        durable.write(self._folders[0] / file.folder / file.stem, json.dumps(entry, sort_keys=True).encode())

    def forget(self, file: LogFile) -> None:
        """The file is deleted here; so are its marks."""
        for folder in self._folders:
            durable.remove(folder / file.folder / file.stem)

    def join(self, sources: list[LogFile], into: LogFile) -> None:
        """`into` (named after one of `sources`) takes their place: shipped where all of them were."""
        for folder in self._folders:
            if not all((folder / file.folder / file.stem).exists() for file in sources):
                durable.remove(folder / into.folder / into.stem)

    def folders(self) -> list[Path]:
        return list(self._folders)


class Counted:
    """Seconds that the nightly job has counted."""

    def __init__(self, directory: Path) -> None:
        self._paths: dict[tuple[int, int], list[Path]] = {}
        for path, span in _spans(directory / COUNTED):
            self._paths.setdefault(span, []).append(path)
        self.spans = sorted(self._paths)

    @property
    def begun(self) -> bool:
        return bool(self.spans)

    def forget(self, before: int) -> None:
        """Remove marks of days that ended by `before` (epoch seconds), but the newest, which tells that days are counted here."""
        for start, end in self.spans[:-1]:
            if end <= before:
                for path in self._paths[start, end]:
                    durable.remove(path)

    def covers(self, hour: int) -> bool:
        """Whether every second of the hour was counted, maybe in two days; or it is so old that no night counts it any more."""
        if self.spans and hour + HOUR_S <= self.spans[-1][1] - REMEMBERED_S:
            return True
        at = hour
        for start, end in self.spans:
            if start <= at < end:
                at = end
        return at >= hour + HOUR_S


def _spans(folder: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    for path in folder.glob("dt=*.json"):
        try:
            mark = json.loads(path.read_bytes())
            start, end = mark["start"], mark["end"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a mark that cannot be read counts nothing: the hours stay
        if isinstance(start, int) and isinstance(end, int):
            yield path, (start, end)
