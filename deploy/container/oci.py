"""Writes an OCI image (image-spec 1.1) as an archive: what skopeo, podman and `docker load` read. Equal trees are equal bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"


def layer(tree: Path, at: int, owners: Mapping[str, int]) -> bytes:
    """A tar of `tree`: sorted, of one moment, root's but for the folders in `owners` (path -> user and group id)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(tree.rglob("*")):
            name = path.relative_to(tree).as_posix()
            kind = path.lstat().st_mode
            if not (stat.S_ISDIR(kind) or stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
                continue  # devices: the runtime brings them
            entry = tarfile.TarInfo(name)
            entry.mtime, entry.uid, entry.gid = at, owners.get(name, 0), owners.get(name, 0)
            if stat.S_ISLNK(kind):
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, os.readlink(path), 0o777  # noqa: PTH115  -- as it is written
                archive.addfile(entry)
            elif stat.S_ISDIR(kind):
                entry.type, entry.mode = tarfile.DIRTYPE, stat.S_IMODE(kind)
                archive.addfile(entry)
            else:
                entry.size, entry.mode = path.stat().st_size, stat.S_IMODE(kind)
                with path.open("rb") as content:
                    archive.addfile(entry, content)
    return packed.getvalue()


def image(layers: Sequence[bytes], config: Mapping[str, Any], processor: str, at: int, name: str) -> bytes:
    """The archive. `processor`: as Go calls it. `name`: the reference that it is loaded under."""
    blobs: dict[str, bytes] = {}

    def put(content: bytes, kind: str, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content), **more}

    packed = [gzip.compress(each, compresslevel=9, mtime=0) for each in layers]
    created = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    diffs = [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in layers]
    about = {
        "created": created, "architecture": processor, "os": "linux", "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": diffs},
        "history": [{"created": created, "created_by": "make image"} for _ in layers],
    }  # fmt: skip
    manifest = {
        "schemaVersion": 2, "mediaType": MANIFEST, "config": put(_json(about), CONFIG), "layers": [put(each, LAYER) for each in packed],
    }  # fmt: skip
    platform = {"architecture": processor, "os": "linux"}
    found = put(_json(manifest), MANIFEST, platform=platform, annotations={"org.opencontainers.image.ref.name": name})
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [found]}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index)}
    files |= {f"blobs/sha256/{digest}": content for digest, content in blobs.items()}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as written:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mtime = len(content), at
            written.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
