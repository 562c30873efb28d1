"""Names of the access log's files, and what they tell: `dt=YYYY-MM-DD/hr=HH/GATEWAY-BOOT-NNNNNN.FORM` (`docs/access-log.md`)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

HOUR_S: Final = 3600  # seconds
OPEN: Final = "jsonl.open"  # still written, or left by a crash
PLAIN: Final = "jsonl"
GZIP: Final = "jsonl.gz"
ZSTD: Final = "jsonl.zst"
PARQUET: Final = "parquet"
BEST_FIRST: Final = (PARQUET, ZSTD, GZIP, PLAIN, OPEN)  # where one stem is there in several forms, the first of these counts

_DAY: Final = re.compile(r"dt=(\d{4}-\d\d-\d\d)")
_HOUR: Final = re.compile(r"hr=([01]\d|2[0-3])")
_FILE: Final = re.compile(r"(?P<gateway>[A-Za-z0-9._-]{1,100})-[0-9a-z]+-\d{6,}\.(?P<form>jsonl(?:\.(?:open|gz|zst))?|parquet)")
TEMPORARY: Final = re.compile(r".+\.(?:jsonl\.gz|jsonl\.zst|parquet|json)\.tmp")  # what a killed process left half-written; ours alone


class LogFile(NamedTuple):
    """One file of the log, as it was found."""

    path: Path
    hour: int  # epoch seconds of its hour's beginning (UTC)
    gateway: str  # as in the name
    form: str  # one of BEST_FIRST
    size: int  # bytes
    modified: float  # epoch seconds

    @property
    def stem(self) -> str:
        """The name without its form: the same in all forms."""
        return self.path.name[: -len(self.form) - 1]

    @property
    def folder(self) -> str:
        """`dt=.../hr=...`."""
        return folder_of(self.hour)

    @property
    def name(self) -> str:
        """Under the log's directory."""
        return f"{self.folder}/{self.path.name}"


class FoundFiles(NamedTuple):
    """The files of a directory, oldest hour first, and what lies among them that is none."""

    files: list[LogFile]
    foreign: list[Path]


def folder_of(hour: int) -> str:
    """`dt=.../hr=...` of the hour that begins at `hour` (epoch seconds)."""
    return f"{datetime.fromtimestamp(hour, UTC):dt=%Y-%m-%d/hr=%H}"


def hour_of(folder: str) -> int:
    """The inverse of `folder_of`. Raises ValueError."""
    return int(datetime.strptime(folder, "dt=%Y-%m-%d/hr=%H").replace(tzinfo=UTC).timestamp())


def hour_text(hour: int) -> str:
    """For people and JSON: `2026-11-20T05`."""
    return f"{datetime.fromtimestamp(hour, UTC):%Y-%m-%dT%H}"


def look(directory: Path) -> FoundFiles:
    """The files there are now. A file that is renamed meanwhile is found under one of its names, or the next time. Raises OSError."""
    files: list[LogFile] = []
    foreign: list[Path] = []
    for day in _folders(directory, _DAY):
        for hour in _folders(day, _HOUR):
            try:
                start = hour_of(f"{day.name}/{hour.name}")
            except ValueError:  # 31 February
                foreign.append(hour)
                continue
            for entry in sorted(os.scandir(hour), key=lambda each: each.name):
                matched = _FILE.fullmatch(entry.name)
                if matched is None:
                    if TEMPORARY.fullmatch(entry.name) is None:
                        foreign.append(Path(entry.path))
                    continue
                try:
                    stat = entry.stat()
                except FileNotFoundError:
                    continue
                files.append(LogFile(Path(entry.path), start, matched["gateway"], matched["form"], stat.st_size, stat.st_mtime))
    return FoundFiles(files, foreign)


def _folders(parent: Path, pattern: re.Pattern[str]) -> Iterator[Path]:
    for entry in sorted(os.scandir(parent), key=lambda each: each.name):
        if pattern.fullmatch(entry.name) and entry.is_dir():
            yield Path(entry.path)


def one_of_each(files: list[LogFile]) -> list[LogFile]:
    """Of several forms of one stem the best alone (BEST_FIRST): a crash may leave two, which hold the same lines."""
    best: dict[tuple[int, str], LogFile] = {}
    for file in files:
        known = best.get((file.hour, file.stem))
        if known is None or BEST_FIRST.index(file.form) < BEST_FIRST.index(known.form):
            best[file.hour, file.stem] = file
    return list(best.values())
