"""One Spark session for all tests, as starting one takes seconds; and the storages that are tried."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from spark_jobs.storage.hadoop import HadoopStorage
from spark_jobs.storage.local import LocalStorage
from spark_jobs.storage.location import Location
from spark_jobs.storage.storage import Storage
from support.stores import HadoopCluster, hadoop_cluster, s3_server, with_s3_library

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKETS = ("quotas", "keyless")  # of the S3 server; for the second one nobody has keys
LARGE = [pytest.mark.spark, pytest.mark.storage, pytest.mark.slow]


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    from spark_jobs.session import spark_session

    if any(item.get_closest_marker("storage") for item in request.session.items):
        with_s3_library()
    with spark_session("local[2]") as session:
        yield session


@pytest.fixture(scope="session", autouse=True)
def same_code() -> Iterator[None]:
    """`make test` installs the product while these tests run: what was `source` in one night had a version in the next.

    Of the session, for nights that a module's fixtures compute begin before a test's own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_jobs.commands.code_version", lambda: "source")
        yield


@pytest.fixture(scope="session")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HadoopCluster]:
    with hadoop_cluster(tmp_path_factory.mktemp("hadoop") / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def s3(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bucket `quotas`, which the session has keys for."""
    with s3_server(tmp_path_factory.mktemp("s3") / "server", *BUCKETS) as address:
        of_s3(spark, "quotas", address, keys=True)
        of_s3(spark, "keyless", address, keys=False)
        yield "s3a://quotas"


def of_s3(spark: SparkSession, bucket: str, address: str, *, keys: bool) -> None:
    """Where the session finds a bucket, as `--conf spark.hadoop.fs.s3a.…` says it."""
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    settings = {"endpoint": address, "endpoint.region": "us-east-1", "path.style.access": "true"}
    settings |= {"access.key": "any", "secret.key": "any"} if keys else {}
    for name, value in settings.items():
        configuration.set(f"fs.s3a.bucket.{bucket}.{name}", value)


class Place(NamedTuple):
    """A storage and an empty folder on it."""

    storage: Storage
    root: Location


@pytest.fixture(
    params=[
        "local",
        pytest.param("hadoop", marks=pytest.mark.spark),
        pytest.param("hdfs", marks=LARGE),
        pytest.param("s3a", marks=LARGE),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Each storage: this machine's files in plain Python; Hadoop's FileSystem on the same; HDFS and S3 in `make test-storage`."""
    if request.param == "local":
        return Place(LocalStorage(), Location.of("log", tmp_path / "a b%20[x]"))
    spark = request.getfixturevalue("spark")
    if request.param == "hadoop":
        root = Location.of("log", tmp_path / "a b%20[x]")
    else:
        base = request.getfixturevalue("hadoop").url if request.param == "hdfs" else request.getfixturevalue("s3")
        root = Location.of("log", f"{base}/{uuid.uuid4().hex}/a b%20[x]")
    return Place(HadoopStorage(spark, root), root)
