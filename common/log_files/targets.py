"""What a target of `sluice log ship` does: one small interface for a folder, S3 and HDFS.

No JVM and no Hadoop client: a gateway's host has none. S3 is spoken by boto3 (the extra `ship`, 17 MB of wheels: it finds credentials
wherever AWS' own tools do, and S3 servers are tested with it; pyarrow.fs would be 48 MB and needs a JVM for HDFS). WebHDFS is plain HTTP,
for which the standard library does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple, Protocol

from common.masking import mask_secrets

UNREACHABLE: Final = "unreachable"
REFUSED: Final = "refused"  # no credentials, wrong ones, or no right
MISSING: Final = "missing"  # the bucket or folder that must be there
FAILED: Final = "failed"
SLOWEST: Final = 65_536  # bytes a second; of a file, on top of the time that an exchange may take; a guess
MAX_MANIFEST_BYTES: Final = 64 << 20  # bytes; of an hour's manifest, with some 300 bytes a file; a guess


class TargetError(Exception):
    """The target does not do its part; `kind` is one of the words above, and the message has the way out."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(mask_secrets(message))
        self.kind = kind


class Stored(NamedTuple):
    """What is at the target under a name."""

    size: int  # bytes
    sha256: str  # "" where it is not known


class Target(Protocol):
    """Names are relative, with `/`. All raise TargetError."""

    url: str  # canonical: two ways to write the same target have one

    def stat(self, name: str, size: int) -> Stored | None:
        """None: there is nothing. Where the target keeps no hashes, one is computed if the size is `size`."""

    def put(self, name: str, path: Path, sha256: str) -> None:
        """Whole or not at all under this name; replaces. The source must have this hash."""

    def put_bytes(self, name: str, data: bytes) -> None: ...

    def get(self, name: str) -> bytes | None:
        """None: there is nothing."""
