"""Stores on this machine: HDFS (with YARN) of Hadoop's own mini cluster, and an S3 server. For `make test-storage`."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from support.java import ROOT, compiled, jars, java
from support.processes import LOOPBACK, Process, accepts, free_ports

MOTO: Final = ROOT / "build" / "moto" / "bin" / "moto_server"  # `make test-storage` installs it, apart from the product's environment
READY_S: Final = 90.0  # seconds; HDFS and YARN take 8 s on a quiet machine (2026-11)


class HadoopCluster(NamedTuple):
    """`url` of HDFS's root, and `web` over HTTP; `conf`: the folder for HADOOP_CONF_DIR."""

    url: str
    web: str
    conf: Path


@contextmanager
def hadoop_cluster(folder: Path) -> Iterator[HadoopCluster]:
    """HDFS and YARN of one node each, in one process."""
    class_path = compiled(ROOT / "tests" / "support" / "hadoop", "hadoop-cluster")
    folder.mkdir(parents=True)
    words = [*java(class_path, "MiniHadoop", folder, ("-Xmx512m",)), str(folder), "yarn"]
    with Process(words, log=folder / "log", cwd=folder) as process:
        ready = folder / "ready"
        process.wait_until(ready.exists, within=READY_S, what="HDFS and YARN are up")
        url, web = ready.read_text().split()
        yield HadoopCluster(url, web, folder / "conf")


@contextmanager
def s3_server(folder: Path, *buckets: str) -> Iterator[str]:
    """The address of an S3 server that holds these empty buckets and takes any keys."""
    assert MOTO.exists(), f"{MOTO} is missing: run `make test-storage`, which installs it"
    (port,) = free_ports(1)
    folder.mkdir(parents=True)
    with Process([MOTO, "-H", LOOPBACK, "-p", str(port)], log=folder / "log", cwd=folder) as process:
        process.wait_until(lambda: accepts(LOOPBACK, port), within=READY_S, what="the S3 server is up")
        for bucket in buckets:
            urllib.request.urlopen(urllib.request.Request(f"http://{LOOPBACK}:{port}/{bucket}", method="PUT"), timeout=10).close()
        yield f"http://{LOOPBACK}:{port}"


def with_s3_library() -> None:
    """Sessions that are started from here on have hadoop-aws: on the driver's class path, as nothing is to be sent to workers."""
    found = ":".join(str(path) for path in sorted(jars("hadoop-aws").glob("*.jar")) if not path.name.startswith("hadoop-client"))
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-class-path {found} pyspark-shell"
