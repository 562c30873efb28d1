"""Paths and days, as options name them. Log and state are folders of a file system that the driver and all workers see under the
same path."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path


def write_url(path: Path) -> str:
    """The URL of a path to write to, for any default file system of the cluster."""
    return f"file://{path.resolve()}"


def read_url(path: Path) -> str:
    """The URL of a path to read from: Spark takes it as a glob, so its special characters are escaped."""
    return re.sub(r"([\[\]{}*?\\,])", r"\\\1", write_url(path))


def local_folder(option: str, path: Path | str) -> Path:
    """The folder an option names. Raises ValueError for URLs: object stores and HDFS are read through a mount."""
    if "://" in str(path):
        raise ValueError(f"--{option}: {path} is a URL; give a folder that the driver and all workers see under the same path (a mount)")
    return Path(path)


def day_start(date: str) -> int:
    """The first second (epoch) of a day of UTC. Raises ValueError."""
    try:
        day = datetime.strptime(date, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"--date: {date!r} is not a day like 2026-11-20") from None
    if f"{day:%Y-%m-%d}" != date:
        raise ValueError(f"--date: {date!r} is not a day like 2026-11-20")
    return int(day.timestamp())
