"""Which target a URL names (`sluice log ship --to`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from common.log_files.folder import Folder
from common.log_files.targets import Target

SCHEMES: Final = ("s3://BUCKET/PREFIX", "webhdfs://HOST:9870/PATH", "swebhdfs://HOST:9871/PATH", "file:///PATH", "a folder")


def target_of(text: str, environ: Mapping[str, str], endpoint: str | None = None) -> Target:
    """The target that `text` names. Raises ValueError for what is none, with the way out; ModuleNotFoundError without boto3."""
    scheme, separator, _ = text.partition("://")
    if not separator:
        if not text:
            raise ValueError(f"--to is empty; known are {', '.join(SCHEMES)}")
        return Folder(Path(text).expanduser())
    found = urlsplit(text)
    path = found.path.strip("/")
    if scheme == "file":
        if found.netloc not in {"", "localhost"} or not path:
            raise ValueError(f"{text}: a folder of this machine is written file:///PATH")
        return Folder(Path(found.path))
    if scheme in {"s3", "s3a", "s3n"}:
        if not found.netloc or "@" in found.netloc:
            raise ValueError(f"{text}: write it like s3://BUCKET/PREFIX; credentials are taken from where AWS' own tools find them")
        from common.log_files.s3 import S3

        return S3(found.netloc, path, endpoint or environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL"))
    if scheme in {"webhdfs", "swebhdfs"}:
        from common.log_files.webhdfs import WebHdfs

        if not found.hostname:
            raise ValueError(f"{text}: write it like webhdfs://HOST:9870/PATH")
        return WebHdfs(scheme, found.hostname, found.port, f"/{path}", found.username or environ.get("HADOOP_USER_NAME", ""), environ)
    if scheme == "hdfs":
        host = found.hostname or "NAMENODE"
        raise ValueError(
            f"{text}: hdfs:// needs a JVM, which a gateway's host does not have; write webhdfs://{host}:9870/{path} (the same files, over "
            "the name node's HTTP port), or let `hdfs dfs -put` ship (docs/access-log.md)"
        )
    raise ValueError(f"{text}: unknown scheme {scheme}; known are {', '.join(SCHEMES)}")
