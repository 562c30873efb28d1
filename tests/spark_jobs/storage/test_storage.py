"""What every storage promises, for each implementation: this machine's files in plain Python, and Hadoop's FileSystem in Spark's JVM.

Hadoop's is tried on `file:` here, so that the way through the JVM is tested everywhere; on HDFS and S3 by `make test-storage` (the fixture
`place` of `conftest.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.storage.choice import storage_for
from spark_jobs.storage.hadoop import HadoopStorage
from spark_jobs.storage.local import LocalStorage, write_durably
from spark_jobs.storage.location import Location
from spark_jobs.storage.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_is_written_is_read_and_replaced_whole(place: tuple[Storage, Location]) -> None:
    storage, root = place
    file = root.child("new", "deeper", "manifest.json")
    storage.write(file, b"1")
    data = bytes(range(256)) * 1000
    storage.write(file, data)
    assert storage.read(file) == data
    assert [(entry.name, entry.size, entry.is_folder) for entry in storage.list(file.parent)] == [("manifest.json", len(data), False)]
    storage.write(file, b"")
    assert storage.read(file) == b""


def test_a_listing_has_files_and_folders_in_order_of_names(place: tuple[Storage, Location]) -> None:
    storage, root = place
    for name in ("dt=2026-11-20/hr=01/b.jsonl", "dt=2026-11-20/hr=00/c{1}*.jsonl", "dt=2026-11-20/hr=00/a ü.jsonl", "top"):
        storage.write(root.child(name), name.encode())
    assert [(entry.name, entry.is_folder, entry.location) for entry in storage.list(root)] == [
        ("dt=2026-11-20", True, root.child("dt=2026-11-20")),
        ("top", False, root.child("top")),
    ]
    files = list(storage.files(root))
    assert [root.relative(entry.location) for entry in files] == [
        "dt=2026-11-20/hr=00/a ü.jsonl",
        "dt=2026-11-20/hr=00/c{1}*.jsonl",
        "dt=2026-11-20/hr=01/b.jsonl",
        "top",
    ]
    for entry in files:
        assert entry.name == entry.location.name
        assert storage.read(entry.location) == root.relative(entry.location).encode()
        assert entry.size == len(root.relative(entry.location).encode())
        assert not entry.is_folder
        assert entry.modified_ms > 1_600_000_000_000


def test_a_folder_that_is_not_there_is_empty(place: tuple[Storage, Location]) -> None:
    storage, root = place
    assert storage.list(root.child("none")) == []
    assert list(storage.files(root.child("none"))) == []


def test_what_is_removed_is_gone_and_absent_is_fine(place: tuple[Storage, Location]) -> None:
    storage, root = place
    for name in ("data-1/usage/part", "data-1/part", "data-10/part", "manifest.json"):
        storage.write(root.child(name), b"x")
    storage.remove(root.child("data-1"))
    storage.remove(root.child("data-1"))
    storage.remove(root.child("manifest.json"))
    assert [root.relative(entry.location) for entry in storage.files(root)] == ["data-10/part"]


def test_a_file_that_is_not_there_is_named(place: tuple[Storage, Location]) -> None:
    storage, root = place
    with pytest.raises(FileNotFoundError) as caught:
        storage.read(root.child("none"))
    assert "none" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_equal_bytes_have_one_checksum_and_others_another(place: tuple[Storage, Location]) -> None:
    storage, root = place
    for name, data in (("a", b"1" * 1000), ("b", b"1" * 1000), ("c", b"2" * 1000)):
        storage.write(root.child(name), data)
    one, other, third = [storage.checksum(entry) for entry in storage.list(root)]
    assert one == other
    assert one is None or one != third
    if isinstance(storage, LocalStorage):
        assert one == f"sha256:{hashlib.sha256(b'1' * 1000).hexdigest()}"


def test_a_local_file_is_replaced_in_one_step_and_leaves_nothing_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_durably(tmp_path / "new" / "a", b"1")
    monkeypatch.setattr(Path, "replace", _dies)
    with pytest.raises(InterruptedError):
        write_durably(tmp_path / "new" / "a", b"2")
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "new").iterdir()] == [("a", b"1")]


def _dies(*_: object) -> None:
    raise InterruptedError


@pytest.mark.spark
def test_a_write_that_fails_through_hadoop_leaves_the_old_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Location.of("log", tmp_path)
    storage = HadoopStorage(spark, root)
    storage.write(root.child("a"), b"1")
    put: Callable[[Location, bytes], None] = storage._put

    def torn(location: Location, data: bytes) -> None:
        put(location, data[:1])
        raise InterruptedError

    monkeypatch.setattr(storage, "_put", torn)
    with pytest.raises(InterruptedError):
        storage.write(root.child("a"), b"23")
    assert [(entry.name, storage.read(entry.location)) for entry in storage.list(root)] == [("a", b"1")]


@pytest.mark.spark
def test_a_store_without_its_library_is_one_line_with_the_way_out(spark: SparkSession) -> None:
    with pytest.raises(
        OSError, match=r"^gs://bucket/log: Spark has no library for gs://.*--conf spark\.jars\.packages=com\.google"
    ) as caught:
        storage_for(Location.of("log", "gs://bucket/log"), spark)
    assert "\n" not in str(caught.value)


@pytest.mark.spark
def test_a_host_that_is_away_is_one_line(spark: SparkSession) -> None:
    root = Location.of("log", "hdfs://127.0.0.1:1/log")
    with pytest.raises(OSError, match=r"^hdfs://127\.0\.0\.1:1/log: it cannot be reached .*is it up") as caught:
        storage_for(root, spark).list(root)
    assert "\n" not in str(caught.value)


def test_a_remote_location_needs_a_session() -> None:
    with pytest.raises(ValueError, match="a session is needed first"):
        storage_for(Location.of("log", "hdfs:///log"))
