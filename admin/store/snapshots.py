"""Quota snapshots on disk: `quotas/<sha256>.json`, each named after its own bytes, never changed once written."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from admin.store.state import StateError
from common.durable_files import FileSystem, replace
from limiter.quota_snapshot import Snapshot, SnapshotError, dump, load
from limiter.rules.rule_set import RuleError
from limiter.topics import parse_topic

if TYPE_CHECKING:
    from limiter.quota_snapshot import Quota
    from limiter.topics import TopicName

FOLDER: Final = "quotas"
KEEP: Final = 8  # snapshots; a week of nightly runs and one more (guess)


@dataclass(frozen=True, slots=True, eq=False)
class Publication:
    """A snapshot, its bytes, their SHA-256, and its quotas by topic. Making one of 16 MiB takes seconds."""

    snapshot: Snapshot
    data: bytes
    sha256: str
    by_topic: Mapping[TopicName, Quota]

    def __repr__(self) -> str:
        return f"<Publication {self.sha256[:8]} {len(self.by_topic)} quotas>"


def publication(snapshot: Snapshot) -> Publication:
    """Raises RuleError where a topic's text cannot be read, SnapshotError where a value cannot be written."""
    data = dump(snapshot)
    return Publication(snapshot, data, hashlib.sha256(data).hexdigest(), by_topic(snapshot))


class Snapshots:
    """The folder of snapshots. All methods block."""

    def __init__(self, state_directory: Path, files: FileSystem) -> None:
        self.folder = state_directory / FOLDER
        self._files = files

    def path(self, sha256: str) -> Path:
        return self.folder / f"{sha256}.json"

    def keep(self, published: Publication) -> None:
        """Make it durable; raises OSError."""
        path = self.path(published.sha256)
        if path.exists() and path.read_bytes() == published.data:
            return
        if not self.folder.exists():
            self.folder.mkdir(mode=0o700)
            self._files.sync_folder(self.folder.parent)
        replace(self._files, path, published.data)

    def read(self, sha256: str) -> Publication | None:
        """A kept snapshot, None where there is none; raises StateError where it is damaged, OSError where it cannot be read."""
        path = self.path(sha256)
        try:
            found = publication(load(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (SnapshotError, RuleError) as error:
            raise StateError(f"{path}: {error}; put it back, or move {self.folder} aside to start without quotas") from error
        if found.sha256 != sha256:
            raise StateError(f"{path} was altered or damaged; put it back, or move {self.folder} aside to start without quotas")
        return found

    def drop(self, names: Iterable[str]) -> None:
        """Remove snapshots that are no longer needed; one that cannot be removed only takes up space."""
        for name in names:
            with contextlib.suppress(OSError):
                self._files.unlink(self.path(name))

    def __repr__(self) -> str:
        return f"<Snapshots {self.folder}>"


def by_topic(snapshot: Snapshot) -> dict[TopicName, Quota]:
    """A snapshot's quotas by their topics; raises RuleError where a topic's text cannot be read."""
    found: dict[TopicName, Quota] = {}
    for at, quota in enumerate(snapshot.quotas):
        try:
            found[parse_topic(quota.protocol, quota.topic)] = quota
        except ValueError as error:
            raise RuleError(f"quotas[{at}].topic", str(error)) from None
    return found
