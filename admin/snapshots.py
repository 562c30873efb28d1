"""Quota snapshots on disk: `quotas/<sha256>.json`, each named after its own bytes, never changed once written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from admin.files import FileSystem, replace
from admin.state import StateError
from limiter.keys import parse_topic
from limiter.rules import RuleError
from limiter.snapshot import Snapshot, SnapshotError, dump, load

if TYPE_CHECKING:
    from limiter.keys import TopicName
    from limiter.snapshot import Quota

FOLDER: Final = "quotas"
KEEP: Final = 8  # a guess: a week of nightly runs and one more


class Snapshots:
    """The folder of snapshots. All methods block."""

    def __init__(self, state_directory: Path, files: FileSystem) -> None:
        self.folder = state_directory / FOLDER
        self._files = files

    def path(self, sha256: str) -> Path:
        return self.folder / f"{sha256}.json"

    def keep(self, snapshot: Snapshot) -> None:
        """Make `snapshot` durable; raises OSError."""
        data = dump(snapshot)
        path = self.path(snapshot.sha256())
        if path.exists() and path.read_bytes() == data:
            return
        if not self.folder.exists():
            self.folder.mkdir(mode=0o700)
            self._files.sync_folder(self.folder.parent)
        replace(self._files, path, data)

    def read(self, sha256: str) -> Snapshot | None:
        """A kept snapshot, None where there is none; raises StateError where it is damaged, OSError where it cannot be read."""
        path = self.path(sha256)
        try:
            snapshot = load(path.read_bytes())
        except FileNotFoundError:
            return None
        except SnapshotError as error:
            raise StateError(f"{path}: {error}; put it back, or move {self.folder} aside to start without quotas") from error
        if snapshot.sha256() != sha256:
            raise StateError(f"{path} was altered or damaged; put it back, or move {self.folder} aside to start without quotas")
        return snapshot

    def drop(self, names: Iterable[str]) -> None:
        """Remove what is not needed any more; what cannot be removed only takes up space."""
        for name in names:
            with contextlib.suppress(OSError):
                self._files.unlink(self.path(name))

    def __repr__(self) -> str:
        return f"<Snapshots {self.folder}>"


def by_topic(snapshot: Snapshot) -> dict[TopicName, Quota]:
    """A snapshot's quotas by their topics; raises RuleError where a topic's text is none."""
    found: dict[TopicName, Quota] = {}
    for at, quota in enumerate(snapshot.quotas):
        try:
            found[parse_topic(quota.protocol, quota.topic)] = quota
        except ValueError as error:
            raise RuleError(f"quotas[{at}].topic", str(error)) from None
    return found
