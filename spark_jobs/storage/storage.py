"""The parts of a file system that the job needs. Two implementations (`local.py`, `hadoop.py`) pass the same contract tests.

No rename is relied on, because object stores have none: data folders are written once and never changed, and one small file that is
written last, whole or not at all, makes them visible (`state/state.py`). Tables are read and written by Spark at `str(location)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from spark_jobs.storage.location import Location


class StoredFile(NamedTuple):
    """A file or folder as it is listed; `size` in bytes, `modified_ms` since the epoch (0 where the store keeps none for folders)."""

    location: Location
    name: str
    size: int
    modified_ms: int
    is_folder: bool


class Storage(Protocol):
    """Errors: FileNotFoundError, or another OSError whose text has the location and the way out (credentials missing, host away)."""

    def read(self, location: Location) -> bytes:
        """The bytes of a small file, through the driver."""

    def write(self, location: Location, data: bytes) -> None:
        """Replace a small file: whole or not at all, durable when this returns. Missing folders are made."""

    def list(self, folder: Location) -> list[StoredFile]:
        """The entries of `folder`, in order of names; [] where there is no such folder."""

    def files(self, folder: Location) -> Iterator[StoredFile]:
        """All files below `folder`, in order of paths; none where there is no such folder."""

    def remove(self, location: Location) -> None:
        """Remove a file, or a folder with all that is in it; a file that is absent is fine."""

    def checksum(self, entry: StoredFile) -> str | None:
        """`sha256:…` of the bytes for a local file, else the store's own checksum (`etag:…`, HDFS's block checksum); None: there is none.

        Never reads a remote file.
        """
