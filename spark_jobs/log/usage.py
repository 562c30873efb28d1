"""Usage: each topic's counts of each second, handed topic by topic to numpy (`state/topic_day.py`), which makes the rows of the table.

Lines are added up to one row per topic and second, and one per topic and gateway. Both are brought together by topic and sorted, and a
worker gets them as a stream of Arrow batches. It cuts the stream where a topic ends, so it holds some hundred thousand rows at a time,
however many topics there are and however large they are. Producers only: quotas ignore lines of consumers.

The lines of a small day (FEW_BYTES) go to the workers as they are, and numpy adds them up there: one shuffle instead of three, and less
code that Java has to compile, which is most of a small day's cost. A large day's lines would not fit: a worker holds all of a topic's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import functions as F  # noqa: N812

from limiter.protocols import PROTOCOL_NAMES
from limiter.quota_snapshot import MAX_TEXT_CHARS
from spark_jobs.log.exclusions import count_excluded_seconds
from spark_jobs.schemas import COUNTS, KEY, TOPICS
from spark_jobs.state.topic_day import TOPICS as TOPICS_ARROW
from spark_jobs.state.topic_day import TopicSeconds, make_topic_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_jobs.days import Day
    from spark_jobs.log.exclusions import Exclusion

# Columns of the stream: sums of a second, or (`gateway` not null, `second` SHARE) of a gateway.
SUMS: Final = {
    "passed": "sum(messages)",
    "refused": "sum(refused_messages)",
    "delayed": "sum(delayed_messages)",
    "dropped": "sum(dropped_messages)",
    "passed_bytes": "sum(bytes)",
    "refused_bytes": "sum(refused_bytes)",
    "peak_100ms": "sum(max_100ms_messages)",
    "largest": "max(coalesce(cast(ceil((bytes + refused_bytes) / nullif(messages + refused_messages, 0L)) as bigint), 0L))",
}
SHARE: Final = -1  # value of `second` in a gateway's row: before all seconds
ADDED: Final = {
    "passed": "messages", "refused": "refused_messages", "delayed": "delayed_messages", "dropped": "dropped_messages",
    "passed_bytes": "bytes", "refused_bytes": "refused_bytes", "peak_100ms": "max_100ms_messages",
}  # fmt: skip
PLACE: Final = "place"  # column: a topic's place in the stream of lines, a hash, by which Spark sorts faster than by two texts
FEW_BYTES: Final = 2**30  # bytes of lines in a day; some 2.5 M lines: if all were of one topic, a worker would hold 400 MB
MIN_ROWS: Final = 200_000  # rows of the stream that are held before it is cut; 80 B each, and a topic's day is at most 90,000 seconds
MAX_TOPICS: Final = 256  # topics handed over at a time: their loss surfaces are made side by side


def learn_topics(
    rows: DataFrame,
    day: Day,
    observed: NDArray[np.bool_],
    exclusions: Sequence[Exclusion],
    storm_share_ppm: int,
    *,
    few: bool = False,
    folder: Path | None = None,
) -> DataFrame:
    """Good rows of `parse.ROW`, each once → the table `schemas.TOPICS` of the day. `few`: the day's lines are at most FEW_BYTES.

    With `folder`, which exists and which the workers see, they write the table into it, and return only their numbers of rows: 20,000 loss
    surfaces through Java would make it load and compile its own writer.
    """
    make = TopicRows(day, observed, exclusions, storm_share_ppm, make_quota_filter(), few=few)
    if few:
        stream = select_lines(rows, exclusions).repartition(*KEY).sortWithinPartitions(PLACE)
    else:
        stream = sum_usage(rows, exclusions).repartition(*KEY).sortWithinPartitions(*KEY, "second")
    if folder is not None:
        return stream.mapInArrow(_Written(make, str(folder)), "rows long")
    return stream.mapInArrow(make, TOPICS)


def select_lines(rows: DataFrame, exclusions: Sequence[Exclusion] = ()) -> DataFrame:
    """Good rows → those of topics as they are, with their PLACE in the stream."""
    second = F.col("ts").alias("second")
    return _drop_excluded(rows, exclusions).select(*KEY, F.xxhash64(*KEY).alias(PLACE), second, *COUNTS, "gateway")


def _drop_excluded(rows: DataFrame, exclusions: Sequence[Exclusion]) -> DataFrame:
    wanted = rows.where("topic is not null")
    for each in exclusions:
        wanted = wanted.where(~each.rows())
    return wanted


def sum_usage(rows: DataFrame, exclusions: Sequence[Exclusion] = ()) -> DataFrame:
    """Good rows → one per topic and second with SUMS, and one per topic and gateway (`second` SHARE) with its passed messages and bytes."""
    wanted = _drop_excluded(rows, exclusions)
    seconds = wanted.groupBy(*KEY, F.col("ts").alias("second")).agg(*[F.expr(f"{sql} as {name}") for name, sql in SUMS.items()])
    shares = wanted.groupBy(*KEY, "gateway").agg(F.sum("messages").alias("passed"), F.sum("bytes").alias("passed_bytes"))
    nothing = {name: F.lit(0).cast("long").alias(name) for name in SUMS}
    order = [*KEY, "second", *SUMS, "gateway"]
    of_gateways = shares.select(
        *KEY, F.lit(SHARE).cast("long").alias("second"), "passed", "passed_bytes", "gateway",
        *[column for name, column in nothing.items() if not name.startswith("passed")],
    )  # fmt: skip
    return seconds.withColumn("gateway", F.lit(None).cast("string")).select(order).unionAll(of_gateways.select(order))


class TopicRows:
    """The function for mapInArrow: usage of whole topics, sorted → rows of the table. It runs on the workers, which may lack `limiter`."""

    def __init__(
        self,
        day: Day,
        observed: NDArray[np.bool_],
        exclusions: Sequence[Exclusion],
        storm_share_ppm: int,
        can_have_quota: Callable[[str, str], bool],
        *,
        few: bool = False,
    ) -> None:
        self.day = day
        self.observed = observed
        self.exclusions = tuple(exclusions)
        self.storm_share_ppm = storm_share_ppm
        self.can_have_quota = can_have_quota  # made outside: this class is sent by value, with all that its methods name
        self.few = few  # whether the stream is of `select_lines`; else of `sum_usage`
        self.schema = TOPICS_ARROW

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in self.make_tables(batches):
            yield from table.to_batches()

    def make_tables(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        tick = np.cumsum(self.observed, dtype=np.int64) - 1
        seconds = int(self.observed.sum())
        for table in map(sum_lines, split_by_topic(batches, [PLACE])) if self.few else split_by_topic(batches):
            found = [each for each in self._topics(table, tick) if len(each.second)]
            found.sort(key=lambda each: len(each.second))  # the surfaces of days of one length take the fewest steps
            for first in range(0, len(found), MAX_TOPICS):
                yield make_topic_rows(found[first : first + MAX_TOPICS], self.day, seconds, self.storm_share_ppm)

    def _topics(self, table: pa.Table, tick: NDArray[np.int64]) -> Iterator[TopicSeconds]:
        bounds = find_topic_bounds(table)
        second, *sums = (table.column(name).to_numpy() for name in ("second", *SUMS))
        day_start = self.day.start
        for start, end in pairwise(bounds.tolist()):
            protocol, topic = table.column("protocol")[start].as_py(), table.column("topic")[start].as_py()
            if not self.can_have_quota(protocol, topic):
                continue
            begin = start + int(np.searchsorted(second[start:end], 0))
            names = table.column("gateway").slice(start, begin - start).to_pylist()
            gateways = sorted(zip(names, sums[0][start:begin].tolist(), sums[4][start:begin].tolist(), strict=True))
            own = second[begin:end]
            excluded = count_excluded_seconds(self.exclusions, topic, self.observed, self.day) if self.exclusions else 0
            columns = {name: each[begin:end] for name, each in zip(SUMS, sums, strict=True)}
            yield TopicSeconds(protocol, topic, own, tick[own - day_start], **columns, gateways=gateways, excluded_seconds=excluded)


class _Written:
    """The function for mapInArrow that writes a partition's table (of `make`) as a file of `folder`, and yields the number of its rows."""

    def __init__(self, make: TopicRows, folder: str) -> None:
        self.make = make
        self.folder = folder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyarrow.parquet import ParquetWriter
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None, "runs on a worker"
        count = 0
        with ParquetWriter(f"{self.folder}/part-{task.partitionId():05}.parquet", self.make.schema) as file:
            for table in self.make.make_tables(batches):
                count += table.num_rows
                file.write_table(table)
        yield pa.RecordBatch.from_arrays([pa.array([count], pa.int64())], ["rows"])


def sum_lines(table: pa.Table) -> pa.Table:
    """Whole topics of `select_lines` → the same of `sum_usage`: by topic, first its gateways' rows, then its seconds."""
    codes, names = [], []
    for name in (*KEY, "gateway"):
        found = table.column(name).combine_chunks().dictionary_encode()
        codes.append(found.indices.to_numpy().astype(np.int64))
        names.append(found.dictionary)
    topic = codes[0] * len(names[1]) + codes[1]
    counts = {name: table.column(name).to_numpy() for name in COUNTS}
    sums = {name: counts[of] for name, of in ADDED.items()}
    with np.errstate(divide="ignore", invalid="ignore"):
        known = counts["messages"] + counts["refused_messages"]
        mean = np.ceil((counts["bytes"] + counts["refused_bytes"]) / known)
    sums["largest"] = np.where(known > 0, mean, 0).astype(np.int64)
    parts = []
    for second in (table.column("second").to_numpy(), None):  # of the seconds, of the gateways
        by = second if second is not None else codes[2]
        order = np.lexsort((by, topic))
        starts = np.flatnonzero(np.diff(topic[order], prepend=-1) | np.diff(by[order], prepend=by[order[:1]]))
        at = order[starts]
        added = {name: np.add.reduceat(each[order], starts) for name, each in sums.items() if name != "largest"}
        added["largest"] = np.maximum.reduceat(sums["largest"][order], starts)
        if second is None:
            added = {name: each if name.startswith("passed") else np.zeros_like(each) for name, each in added.items()}
        parts.append(
            pa.table({
                "protocol": names[0].take(pa.array(codes[0][at])),
                "topic": names[1].take(pa.array(codes[1][at])),
                "second": second[at] if second is not None else np.full(len(at), SHARE),
                **{name: added[name] for name in SUMS},
                "gateway": pa.nulls(len(at), names[2].type) if second is not None else names[2].take(pa.array(codes[2][at])),
                PLACE: topic[at],
            })
        )  # fmt: skip
    both = pa.concat_tables(parts).combine_chunks()
    order = np.lexsort((both.column("second").to_numpy(), both.column(PLACE).to_numpy()))
    return both.take(pa.array(order)).drop_columns([PLACE]).combine_chunks()


def make_quota_filter() -> Callable[[str, str], bool]:
    """A function (protocol, topic) → whether the topic can have a quota: a snapshot can hold its name, and it is not the broker's own, a
    retry, a dead letter or a generated name (`limiter.protocols`). Those keep the file's rule. The function needs no module of ours."""
    rules = {names.name: (names.no_quota_pattern(), len(names.topic_parts)) for names in PROTOCOL_NAMES.values()}
    most = MAX_TEXT_CHARS

    def can_have_quota(protocol: str, topic: str) -> bool:
        if protocol not in rules or not 1 <= len(topic) <= most:
            return False
        pattern, parts = rules[protocol]
        return (parts == 1 or topic.count("/") == parts - 1) and not (pattern and re.search(pattern, topic))

    return can_have_quota


def split_by_topic(batches: Iterable[pa.RecordBatch], names: Sequence[str] = KEY) -> Iterator[pa.Table]:
    """The stream in tables of at least MIN_ROWS rows (but the last), cut where a topic ends: where one of `names` changes."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count < MIN_ROWS:
            continue
        table = pa.Table.from_batches(held).combine_chunks()
        end = int(find_topic_bounds(table, names)[-2])  # where the last topic begins, which may go on
        if end:
            yield table.slice(0, end)
        rest = table.slice(end)
        held, count = rest.to_batches(), rest.num_rows
    if count:
        yield pa.Table.from_batches(held).combine_chunks()


def find_topic_bounds(table: pa.Table, names: Sequence[str] = KEY) -> NDArray[np.int64]:
    """Where each topic of a sorted table begins, and the number of rows at the end."""
    changes = np.zeros(table.num_rows, dtype=np.bool_)
    for name in names:
        codes = table.column(name).combine_chunks().dictionary_encode().indices.to_numpy()
        changes[1:] |= codes[1:] != codes[:-1]
    return np.concatenate([[0], np.flatnonzero(changes), [table.num_rows]]).astype(np.int64)
