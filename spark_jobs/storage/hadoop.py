"""The storage behind Hadoop's FileSystem, in the JVM that Spark runs in: HDFS, S3 and whatever else has a connector.

Whole or not at all: an object store's `create` shows nothing before `close`, so a file is put there directly. A file system with
atomic rename (HDFS; the local one, for tests) shows a file while it is written: there it is written beside and renamed over the old one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.storage.failures import BRIEF, as_os_error
from spark_jobs.storage.location import LOCAL, Location
from spark_jobs.storage.storage import StoredFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RENAMES: Final = frozenset({LOCAL, "hdfs", "viewfs", "webhdfs", "swebhdfs", "ofs", "abfs", "abfss"})  # schemes whose rename is atomic
MAX_READ_BYTES: Final = 512 * 2**20  # bytes; a file read through the driver; twice the largest snapshot (limiter.quota_snapshot)


class HadoopStorage:
    """`storage.Storage` for every location of the file system that `root` is on. Errors of the JVM become OSError of one line."""

    def __init__(self, spark: SparkSession, root: Location) -> None:
        context: Any = spark.sparkContext
        self._jvm: Any = context._jvm
        self._array = context._gateway.new_array
        self._configuration = self._jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
        for name, value in BRIEF.items():
            if not self._was_set(context, name):
                self._configuration.set(name, value)
        self._root = root
        with _report_errors(root):
            self._system = self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(self._path(root).toUri(), self._configuration)

    def read(self, location: Location) -> bytes:
        with _report_errors(location):
            size = int(self._system.getFileStatus(self._path(location)).getLen())
            if size > MAX_READ_BYTES:
                raise OSError(f"{location}: {size} bytes, at most {MAX_READ_BYTES} are read through the driver; is it the right file?")
            stream = self._system.open(self._path(location))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def write(self, location: Location, data: bytes) -> None:
        with _report_errors(location):
            if location.scheme not in RENAMES:
                self._put(location, data)
                return
            beside = location.parent.child(f".{location.name}.{uuid.uuid4().hex}")
            try:
                self._put(beside, data)
                files = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._path(location).toUri(), self._configuration)
                replacing = self._array(self._jvm.org.apache.hadoop.fs.Options.Rename, 1)
                replacing[0] = self._jvm.org.apache.hadoop.fs.Options.Rename.OVERWRITE
                files.rename(self._path(beside), self._path(location), replacing)
            finally:
                self._system.delete(self._path(beside), False)

    def list(self, folder: Location) -> list[StoredFile]:
        with _report_errors(folder):
            try:
                found = self._system.listStatus(self._path(folder))
            except Exception as error:
                if _is_absent(error):
                    return []
                raise
            return sorted(self._entry(folder.child(str(each.getPath().getName())), each) for each in found)

    def files(self, folder: Location) -> Iterator[StoredFile]:
        entries = []
        with _report_errors(folder):
            try:
                found = self._system.listFiles(self._path(folder), True)
                while found.hasNext():
                    status = found.next()
                    entries.append(self._entry(folder.child(folder.relative(str(status.getPath().toUri()))), status))
            except Exception as error:
                if not _is_absent(error):
                    raise
        return iter(sorted(entries))

    def remove(self, location: Location) -> None:
        with _report_errors(location):
            self._system.delete(self._path(location), True)

    def checksum(self, entry: StoredFile) -> str | None:
        with _report_errors(entry.location):
            found = self._system.getFileChecksum(self._path(entry.location))
            if found is not None:
                return str(found)
            status = self._system.getFileStatus(self._path(entry.location))
            if self._jvm.org.apache.hadoop.fs.EtagSource._java_lang_class.isInstance(status):
                return f"etag:{status.getEtag()}"
            return None

    def _put(self, location: Location, data: bytes) -> None:
        """Write in one go; a stream that was not closed has put nothing into an object store."""
        stream = self._system.create(self._path(location), True)
        stream.write(data)
        if location.scheme in RENAMES:
            stream.hsync()
        stream.close()

    def _path(self, location: Location) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(str(location))

    def _entry(self, location: Location, status: Any) -> StoredFile:
        folder = bool(status.isDirectory())
        return StoredFile(location, location.name, 0 if folder else int(status.getLen()), int(status.getModificationTime()), folder)

    def _was_set(self, context: Any, name: str) -> bool:
        """Whether a person chose a value: in Spark's configuration or a `*-site.xml`."""
        if context.getConf().contains(f"spark.hadoop.{name}"):
            return True
        sources = self._configuration.getPropertySources(name)
        return sources is not None and any(str(source).endswith("-site.xml") for source in sources)

    def __repr__(self) -> str:
        return f"<HadoopStorage {self._root}>"


def _is_absent(error: Exception) -> bool:
    return isinstance(as_os_error(error, None), FileNotFoundError)


@contextmanager
def _report_errors(location: Location) -> Iterator[None]:
    """Errors of the JVM within, as OSError."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in {"py4j", "pyspark"}:
            raise
        raise as_os_error(error, location) from None
