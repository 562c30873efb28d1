"""A location: the value of `--log`, `--state`, `--output` or `--previous`, as a path of this machine or a URL of Hadoop's file systems.

Plain text, checked before a JVM starts: a scheme that nobody knows is refused at once, and `s3://` says what to write instead.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

LOCAL: Final = "file"
# Schemes of Hadoop's file systems, and the library that serves each (Maven coordinates; None: Spark brings it).
SCHEMES: Final[dict[str, str | None]] = {
    LOCAL: None,
    "hdfs": None,
    "viewfs": None,
    "webhdfs": None,
    "swebhdfs": None,
    "s3a": "org.apache.hadoop:hadoop-aws",
    "gs": "com.google.cloud.bigdataoss:gcs-connector",
    "abfs": "org.apache.hadoop:hadoop-azure",
    "abfss": "org.apache.hadoop:hadoop-azure",
    "oss": "org.apache.hadoop:hadoop-aliyun",
    "cosn": "org.apache.hadoop:hadoop-cos",
    "obs": "org.apache.hadoop:hadoop-huaweicloud",
    "ofs": "org.apache.ozone:ozone-filesystem-hadoop3",
}
INSTEAD: Final = {"s3": "s3a", "s3n": "s3a", "wasb": "abfs", "wasbs": "abfss"}  # old or vendors' names -> the one Hadoop serves
NEEDS_AUTHORITY: Final = frozenset(SCHEMES) - {LOCAL, "hdfs", "viewfs", "webhdfs", "swebhdfs"}  # a bucket or an account


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A file or folder: `scheme`, `authority` (bucket or host and port; "" where the cluster's default is meant) and absolute `path`."""

    scheme: str
    authority: str
    path: str

    @staticmethod
    def of(option: str, text: str | os.PathLike[str]) -> Location:
        """The location that `--option text` names. Raises ValueError with the way out; nothing is opened or asked."""
        given = os.fspath(text)
        found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", given)
        if found is None:
            if not given:
                raise ValueError(f"--{option}: empty; give a path or a URL like s3a://bucket/folder")
            return Location(LOCAL, "", os.path.abspath(given))  # noqa: PTH100 - symbolic links stay as they were given
        scheme = found[1].lower()
        rest = given[found.end() - 1 :]
        if scheme not in SCHEMES:
            hint = f"; write {INSTEAD[scheme]}://" if scheme in INSTEAD else ""
            raise ValueError(f"--{option}: {given}: unknown scheme {scheme}{hint}; known: {', '.join(SCHEMES)}")
        if not rest.startswith("//"):
            if scheme != LOCAL:
                raise ValueError(f"--{option}: {given}: one / is missing; write {scheme}://{rest.lstrip('/')}")
            return Location(LOCAL, "", os.path.normpath(rest))
        authority, slash, path = rest[2:].partition("/")
        if scheme == LOCAL:
            if authority not in ("", "localhost"):
                raise ValueError(f"--{option}: {given}: {authority} is not this machine; write file:///{authority}/… or a plain path")
            return Location(LOCAL, "", os.path.normpath(slash + path))
        if not authority and scheme in NEEDS_AUTHORITY:
            raise ValueError(f"--{option}: {given}: no bucket; write {scheme}://BUCKET/FOLDER")
        if "@" in authority and scheme == "s3a":
            raise ValueError(
                f"--{option}: {scheme}://…: no keys in URLs, they end up in logs; use the environment or spark.hadoop.fs.s3a.*"
            )
        clean = "/" + "/".join(part for part in path.split("/") if part)
        if any(part in (".", "..") for part in clean.split("/")):
            raise ValueError(f"--{option}: {given}: . and .. mean nothing in a URL; write the whole path")
        return Location(scheme, authority, clean)

    @property
    def is_local(self) -> bool:
        return self.scheme == LOCAL

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Location:
        return Location(self.scheme, self.authority, self.path.rpartition("/")[0] or "/")

    @property
    def local(self) -> Path:
        """The location as a path of this machine. Raises ValueError for any other."""
        if not self.is_local:
            raise ValueError(f"{self} is no path of this machine")
        return Path(self.path)

    @property
    def shown(self) -> str:
        """The location for people: a path of this machine without `file://`."""
        return self.path if self.is_local else str(self)

    @property
    def glob(self) -> str:
        """The URL for `spark.read`, which takes it as a glob: its special characters are escaped."""
        return re.sub(r"([\[\]{}*?\\,])", r"\\\1", str(self))

    def child(self, *names: str) -> Location:
        """The location `names` below this one; a name may hold `/`."""
        return Location(self.scheme, self.authority, "/".join([self.path.rstrip("/"), *(name.strip("/") for name in names)]))

    def relative(self, other: Location | str) -> str:
        """The name of `other` below this location, with `/`. A text is a URL as Spark gives it (percent-encoded, any authority).

        Raises ValueError where it is not below.
        """
        path = other.path if isinstance(other, Location) else unquote(urlsplit(other).path)
        start = self.path.rstrip("/") + "/"
        if not path.startswith(start):
            raise ValueError(f"{other} is not below {self}")
        return path.removeprefix(start)

    def __str__(self) -> str:
        """The URL for Hadoop and Spark: not percent-encoded, because their paths are not."""
        return f"{self.scheme}://{self.authority}{self.path}"
