"""The manifest of an hour: which files hold it, their sizes and hashes. `MANIFEST/GATEWAY/dt=.../hr=....json` beside the log.

It is written last, so it says that the hour is whole: at a target of `sluice log ship`, and where `sluice log compact` has worked. The
nightly job holds files against it, and takes its hashes for those of its inputs.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from common.log_files.names import PARQUET, folder_of, hour_text

MANIFEST: Final = "manifest"  # the folder beside the log
VERSION: Final = 1


@dataclass(frozen=True)
class ManifestEntry:
    """One file. `sources` are the names, without `.gz` or `.zst`, of the files that a compacted one stands for."""

    name: str  # under the log's directory
    size: int  # bytes
    sha256: str
    lines: int | None = None  # None: they were not counted
    corrupt: int = 0  # lines of its sources that are not in it
    sources: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        return self.name.rpartition("/")[2].removesuffix(f".{PARQUET}").partition(".jsonl")[0]


@dataclass
class HourManifest:
    """Of one gateway and hour."""

    gateway: str  # as in the files' names
    hour: int  # epoch seconds
    files: dict[str, ManifestEntry] = field(default_factory=dict)  # by name

    @property
    def name(self) -> str:
        """Under the log's directory."""
        return f"{MANIFEST}/{self.gateway}/{folder_of(self.hour)}.json"

    def add(self, entry: ManifestEntry) -> None:
        """`entry`, in the place of what holds the same lines in another form."""
        gone = {source.removesuffix(".jsonl") for source in entry.sources} | {entry.stem}
        self.files = {name: known for name, known in self.files.items() if known.stem not in gone}
        self.files[entry.name] = entry

    def text(self) -> bytes:
        """Canonical JSON: the same files make the same bytes."""
        files = [{**asdict(entry), "sources": list(entry.sources)} for _, entry in sorted(self.files.items())]
        made = {"v": VERSION, "gateway": self.gateway, "hour": hour_text(self.hour), "files": files}
        return (json.dumps(made, sort_keys=True, separators=(",", ":")) + "\n").encode()

    def sources(self) -> dict[str, ManifestEntry]:
        """By the names of the files that compacted ones stand for."""
        return {source: entry for entry in self.files.values() for source in entry.sources}


def read(data: bytes, gateway: str, hour: int) -> HourManifest:
    """A manifest as it was written. Raises ValueError, with the way out."""
    way_out = "remove it, and ship or compact the hour again"
    try:
        found: dict[str, Any] = json.loads(data)
        version = found["v"]
        entries = [
            ManifestEntry(
                str(each["name"]), int(each["size"]), str(each["sha256"]), each.get("lines"), int(each.get("corrupt", 0)),
                tuple(map(str, each.get("sources", ()))),
            )
            for each in found["files"]
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a manifest of the access log ({error!r}); {way_out}") from None
    if version != VERSION:
        raise ValueError(f"a manifest of version {version}, and this sluice reads {VERSION}; {way_out}")
    return HourManifest(gateway, hour, {entry.name: entry for entry in entries})


def local(directory: Path, gateway: str, hour: int) -> HourManifest:
    """The manifest beside a local log; an empty one where there is none. Raises OSError, ValueError with the path."""
    made = HourManifest(gateway, hour)
    path = directory / made.name
    try:
        return read(path.read_bytes(), gateway, hour)
    except FileNotFoundError:
        return made
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
