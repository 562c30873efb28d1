"""The access log of one day: which files it is made of, and its lines as rows.

Closed files (`.jsonl`) and open ones (`.jsonl.open`) are both read: a gateway that crashed leaves whole lines in an open file and
at most one torn line, which is counted as corrupt. Where both names of a file exist, the closed one is read. A file that is renamed
while the job looks is found under its new name. Run the job some minutes after midnight (UTC), when the last files of the day are
closed: what is still being written is hashed and read at different moments.

Lines are read as text and parsed with an explicit schema (PERMISSIVE), so the text of a bad line is still there to be kept aside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from spark_jobs.errors import InsufficientInputError
from spark_jobs.paths import day_start, read_url
from spark_jobs.schemas import CORRUPT, LINE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLOSED: Final = ".jsonl"
OPEN: Final = ".jsonl.open"
MAX_COUNT: Final = (
    10**12
)  # messages or bytes of one line: a second of a terabyte is no measurement, and sums of sane counts cannot overflow
LOOKS: Final = 3  # times to look again when a file vanishes between listing and hashing: one rename per file and day


class LogFile(NamedTuple):
    """One file of the day: where it is, its name under the log's directory (with `/`), and the hash of its bytes."""

    path: Path
    name: str
    sha256: str


def files_of(log: Path, date: str) -> list[LogFile]:
    """The files of `date`, sorted by name. Raises InsufficientInputError where there are none."""
    folder = log / f"dt={date}"
    for _ in range(LOOKS):
        paths = _listed(folder)
        try:
            files = [LogFile(path, path.relative_to(log).as_posix(), _sha256(path)) for path in paths]
        except FileNotFoundError:
            continue
        if not files:
            raise InsufficientInputError(f"no access log for {date}: no hr=HH/*{CLOSED} under {folder}")
        return files
    raise InsufficientInputError(f"{folder}: files vanish while they are read; is the log being deleted?")


def _listed(folder: Path) -> list[Path]:
    closed = set(folder.glob(f"hr=*/*{CLOSED}"))
    still_open = {path for path in folder.glob(f"hr=*/*{OPEN}") if path.with_suffix("") not in closed}
    return sorted(closed | still_open)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_lines(spark: SparkSession, files: Iterable[LogFile]) -> DataFrame:
    """The lines of `files` as (file, line); `file` is a URL, see `name_of`. Blank lines are left out."""
    lines = spark.read.text([read_url(file.path) for file in files], lineSep="\n")
    return lines.select(F.col("_metadata.file_path").alias("file"), F.col("value").alias("line")).where("trim(line) != ''")


def name_of(url: str, log: Path) -> str:
    """The name, under the log's directory, of the file at `url` as `read_lines` gives it."""
    return Path(unquote(urlsplit(url).path)).relative_to(log.resolve()).as_posix()


def parse(lines: DataFrame, date: str) -> DataFrame:
    """Each line's fields, and its `fault`: null, `json`, `version`, `fields`, `range`, or `stray` (not of this
    day).

    All but `stray` count as corrupt. A line with a bad type keeps its good fields, so check `fault` before use.
    """
    start = day_start(date)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    rows = lines.select("file", "line", F.from_json("line", LINE, options).alias("fields")).select("file", "line", "fields.*")
    # Jackson stops after the first value: a torn line with the next one glued to it would pass as one good line.
    glued = F.col("line").contains('}{"') | ~F.rtrim("line").endswith("}")
    counts = ["messages", "bytes", "refused_messages", "refused_bytes", "dropped_messages", "max_100ms_messages"]
    bare = F.expr("v is null or ts is null or gateway is null or boot is null or seq is null")
    empty = F.expr(
        "not coalesce(heartbeat, false) and (protocol is null or topic is null or operation is null or messages is null or bytes is null)"
    )
    range_ = F.expr(" or ".join(f"not coalesce({name}, 0) between 0 and {MAX_COUNT}" for name in counts))
    fault = (
        F.when(F.col(CORRUPT).isNotNull() | glued, "json")
        .when(F.col("v") != 1, "version")
        .when(bare | empty, "fields")
        .when(range_, "range")
        .when(~F.col("ts").between(start, start + 86_399), "stray")
    )
    return rows.withColumn("fault", fault).drop(CORRUPT)
