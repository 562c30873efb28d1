"""The replay of a day on Spark: its lines by unit (`units`) to the workers, in order of time, and one row per contender and topic back.

A worker reads its lines as they come, sorted by second, and remembers no more than the limiter does: buckets and keys of its topics. Within
one instant lines have no order in the log, so they get one by a hash of second, topic and sender: no client is always the first, and the
same day gives the same result on one worker or on twenty.

The workers need the limiter. On the driver's own machine they import it from where the driver has it (compiled, where that is); to a
cluster it is sent, as pure Python, together with `spark_jobs`. Where mypyc's run-time library is not installed, Python's own lock and
integers stand in for it.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import threading
import types
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

import limiter
from spark_jobs.backtest.result import Outcome
from spark_jobs.backtest.units import Seen, Units, group_into_units
from spark_jobs.state.topic_day import STORM_SHARE_PPM, find_refused_cap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.backtest.contender import Contender

# As they are called here; in the wheel they stand in a package. Texts, because a worker gets them before it can import either.
LIMITER: Final = limiter.__name__
SPARK_JOBS: Final = __name__.removesuffix(".backtest.distribution")
MAX_SEEN: Final = 2_000_000  # senders and topics of a day that the driver puts into units: 1 GB of its memory (guess)
MAX_CLIENTS_TOLD: Final = 100  # clients of each topic and contender, the most refused first: the driver adds them up over topics
DAY_S: Final = 86_400  # seconds
PARTS_PER_CORE: Final = 3  # so that a worker with large topics does not keep all others waiting (guess)

COUNTS: Final = {  # a line's counts: name in the log -> in `replay.ReplayedLine`
    "messages": "messages", "bytes": "bytes", "refused_messages": "refused", "refused_bytes": "refused_bytes",
    "delayed_messages": "delayed", "dropped_messages": "dropped", "max_100ms_messages": "peak_100ms",
}  # fmt: skip
RESULT: Final = (
    "contender int, protocol string, topic string, offered bigint, offered_bytes bigint, refused bigint, refused_bytes bigint, "
    "held bigint, limited_seconds bigint, blackout bigint, clients map<string,bigint>, lines bigint"
)


def replay_day(
    lines: DataFrame, contenders: Sequence[Contender], observed_seconds: int = DAY_S, storm_share_ppm: int = STORM_SHARE_PPM
) -> tuple[list[Outcome], int, list[str]]:
    """Good lines of one day, each once, with its sender (`log.read.read_rows`): one outcome per contender and topic (`days` 0, no reserve),
    the number of lines of messages, and notes for a person. Raises ValueError for more senders than can be told apart.
    """
    spark = lines.sparkSession
    chosen = _select_columns(lines)
    notes: list[str] = []
    if any(contender.rules for contender in contenders):
        found = _find_units(chosen, contenders)
        notes = found.notes
        rows = [(protocol, topic, unit) for (protocol, topic), unit in found.of_topic.items()]
        table = spark.createDataFrame(rows, "protocol string, topic string, unit long")
        placed = chosen.join(F.broadcast(table), ["protocol", "topic"])
    else:
        placed = chosen.withColumn("unit", F.xxhash64("protocol", "topic"))
    parts = max(1, spark.sparkContext.defaultParallelism * PARTS_PER_CORE)
    ordered = placed.repartition(parts, "unit").sortWithinPartitions(
        "ts", "turn", "sender_turn", "client", "user", "group", "gateway", "seq"
    )
    judged = ordered.select("ts", "protocol", "topic", "client", "user", "group", *COUNTS.values()).mapInArrow(
        make_worker(spark, contenders, _find_refused_caps(chosen, observed_seconds, storm_share_ppm)), RESULT
    )
    outcomes = []
    count = storm = 0
    for row in judged.collect():
        if row.contender < 0:
            count += row.lines
            storm += row.refused
            continue
        fields = row.asDict()
        del fields["lines"]
        outcomes.append(Outcome(**{**fields, "contender": contenders[row.contender].name, "clients": dict(row.clients)}))
    if storm:
        notes.append(f"{storm} refused messages were attempts of a storm and are no demand, as in the daily states")
    outcomes.sort(key=lambda each: (each.protocol, each.topic))
    return outcomes, count, notes


def _select_columns(lines: DataFrame) -> DataFrame:
    """The columns that a replay needs, of the lines of published messages."""
    counts = [F.coalesce(name, F.lit(0)).alias(short) for name, short in COUNTS.items()]
    asked = " + ".join(f"coalesce({name}, 0)" for name in ("messages", "refused_messages", "dropped_messages", "delayed_messages"))
    published = lines.where(f"topic is not null and {asked} > 0")
    return published.select(
        "ts", "protocol", "topic", F.coalesce("client", F.lit("")).alias("client"), "user", "group", "gateway", "seq", *counts,
        F.xxhash64("ts", "protocol", "topic").alias("turn"), F.xxhash64("ts", "client", "user", "group").alias("sender_turn"),
    )  # fmt: skip


def _find_units(chosen: DataFrame, contenders: Sequence[Contender]) -> Units:
    apart = any(contender.tells_senders_apart() for contender in contenders)
    names = ["protocol", "topic", *(["client", "user", "group"] if apart else [])]
    rows = chosen.groupBy(*names).agg(F.count("*").alias("lines")).limit(MAX_SEEN + 1).collect()
    if len(rows) > MAX_SEEN:
        raise ValueError(
            f"more than {MAX_SEEN} senders and topics in one day, too many to see which share a bucket: leave out the rules per client, "
            "user or group, or replay fewer hours"
        )
    seen = [Seen(row.protocol, row.topic, row.client, row.user, row.group, row.lines) if apart else _ignore_sender(row) for row in rows]
    return group_into_units(seen, contenders)


def _find_refused_caps(chosen: DataFrame, observed_seconds: int, storm_share_ppm: int) -> dict[tuple[str, str], int]:
    """The most refused messages that count in a second, of each topic that had any; as for its daily state."""
    refusing = chosen.where("refused + dropped > 0").select("protocol", "topic").distinct()
    per_second = chosen.join(F.broadcast(refusing), ["protocol", "topic"], "left_semi").groupBy("protocol", "topic", "ts").agg(
        F.expr("sum(messages) as passed"), F.expr("sum(refused + dropped) as refused"), F.expr("sum(delayed) as delayed")
    )  # fmt: skip
    found = per_second.where("refused + delayed > 0").groupBy("protocol", "topic").agg(
        F.expr("sum(refused) as refused"), F.expr("sum(passed) as passed"), F.expr("count(*) as seconds")
    )  # fmt: skip
    return {
        (row.protocol, row.topic): find_refused_cap(row.refused, row.passed, row.seconds, observed_seconds, storm_share_ppm)
        for row in found.collect()
    }


def _ignore_sender(row: Any) -> Seen:
    return Seen(row.protocol, row.topic, "", None, None, row.lines)


def make_worker(spark: SparkSession, contenders: Sequence[Contender], counted: dict[tuple[str, str], int]) -> Any:
    """The function for `mapInArrow`. It knows nothing of the limiter until it has found it."""
    root = Path(limiter.__file__).parents[LIMITER.count(".") + 1]  # the folder on the path
    here = (spark.sparkContext.master or "").startswith("local")
    if not here and root.is_dir():  # not a zip that was given to spark-submit, and so to the workers
        _send(spark, root)
    sent = spark.sparkContext.broadcast(([contender.to_plain() for contender in contenders], counted))

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        find_limiter(str(root) if here else None)
        from spark_jobs.backtest.contender import Contender
        from spark_jobs.backtest.replay import Replay, ReplayedLine

        plains, most = sent.value
        replay = Replay([Contender.from_plain(plain) for plain in plains], most)
        now = -1
        second: list[ReplayedLine] = []
        for batch in batches:
            for ts, *fields in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if ts != now:
                    if second:
                        replay.replay_second(now, second)
                    now, second = ts, []
                second.append(ReplayedLine(*fields))
        if second:
            replay.replay_second(now, second)
        yield from make_result_rows(replay)

    return judge


def make_result_rows(replay: Any) -> Iterator[pa.RecordBatch]:
    """The findings of a replay as rows of RESULT; and one row with contender -1: the numbers of its lines, and of messages of storms."""
    names = [
        "contender",
        "protocol",
        "topic",
        "offered",
        "offered_bytes",
        "refused",
        "refused_bytes",
        "held",
        "limited_seconds",
        "blackout",
    ]
    kinds = [pa.int32(), pa.string(), pa.string(), *[pa.int64()] * 7, pa.map_(pa.string(), pa.int64()), pa.int64()]
    schema = pa.schema(list(zip([*names, "clients", "lines"], kinds, strict=True)))
    rows: list[dict[str, Any]] = [{"contender": -1, "lines": replay.lines, "refused": replay.storm}]
    for number, side in enumerate(replay.sides):
        for topic, asked in enumerate(replay.topics):
            if not asked.messages:
                continue
            count = side.counts.get(topic)
            values: list[Any] = [number, *asked.name, asked.messages, asked.bytes, 0, 0, 0, 0, 0]
            clients: list[tuple[str, int]] = []
            if count is not None:
                values[5:] = [count.refused, count.refused_bytes, count.held, count.limited_seconds, count.blackout]
                clients = sorted(count.clients.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_CLIENTS_TOLD]
            rows.append({**dict(zip(names, values, strict=True)), "clients": clients, "lines": 0})
    yield from pa.Table.from_pylist(rows, schema).to_batches()


def find_limiter(root: str | None) -> None:
    """Make `limiter` and `spark_jobs` importable in this worker, from `root` where nothing else has them. Raises ImportError."""
    if not (_is_importable(LIMITER) and _is_importable(SPARK_JOBS)) and root is not None:
        sys.path.append(root)
        importlib.invalidate_caches()
    if not _is_importable(LIMITER):
        raise ImportError("this worker has no limiter: give spark-submit the zip of sluice by --py-files")
    stand_in_for_mypyc()


def _is_importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # its own package is missing, too
        return False


def stand_in_for_mypyc() -> None:
    """Let Python's own lock and integers stand in for mypyc's run-time library, where that is not installed."""
    if importlib.util.find_spec("librt") is None:
        package, module = types.ModuleType("librt"), types.ModuleType("librt.threading")
        module.Lock = threading.Lock  # type: ignore[attr-defined]
        package.threading = module  # type: ignore[attr-defined]
        sys.modules |= {"librt": package, "librt.threading": module}
    if importlib.util.find_spec("mypy_extensions") is None:
        names = types.ModuleType("mypy_extensions")
        names.i64 = int  # type: ignore[attr-defined]
        sys.modules["mypy_extensions"] = names


def _send(spark: SparkSession, root: Path) -> None:
    """Send limiter and spark_jobs to the workers of a cluster; a session sends them once."""
    folder = Path(tempfile.mkdtemp(prefix="sluice-limiter-"))
    path = folder / "sluice-limiter.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        folders = [root / package.replace(".", "/") for package in (LIMITER, SPARK_JOBS)]
        sources = {above / "__init__.py" for folder in folders for above in folder.parents if root in above.parents}
        for folder in folders:
            sources.update(folder.rglob("*.py"))
        for source in sorted(sources):
            file.write(source, source.relative_to(root).as_posix())
    spark.sparkContext.addPyFile(str(path))
