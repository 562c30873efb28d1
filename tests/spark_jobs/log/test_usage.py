"""The stream of usage is cut where topics end, and topics that get no quota are left out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from spark_jobs.days import Day
from spark_jobs.log import usage
from spark_jobs.log.exclusions import Exclusion
from spark_jobs.log.unpack import Unpack
from spark_jobs.log.usage import PLACE, SHARE, SUMS, TopicRows, find_topic_bounds, make_quota_filter, split_by_topic, sum_lines
from spark_jobs.schemas import COUNTS
from spark_jobs.session import ship_by_value

DAY = Day("2026-11-20")


def stream(lengths: dict[str, int], size: int) -> list[pa.RecordBatch]:
    """Each topic with so many seconds of 7 messages, after one row of its gateway; in batches of `size` rows."""
    rows = []
    for topic, length in lengths.items():
        share = dict.fromkeys(SUMS, 0) | {"passed": 7 * length, "passed_bytes": 700 * length}
        rows.append({"protocol": "rocketmq", "topic": topic, "second": SHARE, **share, "gateway": "g"})
        second = dict.fromkeys(SUMS, 0) | {"passed": 7, "passed_bytes": 700, "peak_100ms": 2, "largest": 100}
        rows += [{"protocol": "rocketmq", "topic": topic, "second": DAY.start + at, **second, "gateway": None} for at in range(length)]
    table = pa.Table.from_pylist(rows).set_column(11, "gateway", pa.array([row["gateway"] for row in rows], pa.string()))
    batches: list[pa.RecordBatch] = table.to_batches(size)
    return batches


@pytest.mark.parametrize("size", [1, 7, 50, 10_000])
def test_topics_stay_whole_however_the_stream_is_cut(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(usage, "MIN_ROWS", 30)
    lengths = {f"t{at:02}": at % 5 * 20 + 1 for at in range(30)}
    tables = list(split_by_topic(stream(lengths, size)))
    seen = [name for table in tables for name in dict.fromkeys(table.column("topic").to_pylist())]
    assert seen == list(lengths)
    assert sum(table.num_rows for table in tables) == sum(lengths.values()) + len(lengths)
    assert len(tables) > 5 or size > 1000
    assert list(split_by_topic([])) == []


def test_the_rows_of_each_topic_have_its_sums_and_its_gateways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MIN_ROWS", 30)
    monkeypatch.setattr(usage, "MAX_TOPICS", 2)
    lengths = {"%RETRY%p1": 9, **{f"t{at}": at + 1 for at in range(9)}}
    make = TopicRows(DAY, np.ones(DAY.seconds, dtype=np.bool_), (), 10_000, make_quota_filter())
    rows = [row for batch in make(iter(stream(lengths, 11))) for row in batch.to_pylist()]
    found = {(row["topic"], row["dimension"]): row for row in rows}
    assert len(found) == len(rows) == 18
    assert all(found[f"t{at}", "messages"]["total"] == 7 * (at + 1) for at in range(9))
    assert found["t4", "bytes"]["gateways"] == [{"gateway": "g", "total": 3500}]
    assert found["t4", "messages"]["active_seconds"] == 5


def line(topic: str, second: int, gateway: str, **counts: int) -> dict[str, object]:
    return {"protocol": "rocketmq", "topic": topic, PLACE: 7, "second": second, **dict.fromkeys(COUNTS, 0), **counts, "gateway": gateway}


def test_lines_are_added_up_to_seconds_and_gateways_also_where_two_topics_share_a_hash() -> None:
    given = pa.Table.from_pylist([
        line("b", 20, "g2", messages=4, bytes=41),
        line("a", 10, "g1", messages=1, bytes=100, refused_messages=2, refused_bytes=110, max_100ms_messages=3),
        line("b", 20, "g1", messages=2, bytes=10, delayed_messages=5),
        line("a", 9, "g1", dropped_messages=6),
        line("a", 10, "g1", messages=1, bytes=1, max_100ms_messages=1),
    ])  # fmt: skip
    none = dict.fromkeys(SUMS, 0)
    expected: list[dict[str, object]] = [
        {"topic": "b", "second": SHARE, **none, "passed": 4, "passed_bytes": 41, "gateway": "g2"},
        {"topic": "b", "second": SHARE, **none, "passed": 2, "passed_bytes": 10, "gateway": "g1"},
        {"topic": "b", "second": 20, **none, "passed": 6, "passed_bytes": 51, "delayed": 5, "largest": 11, "gateway": None},
        {"topic": "a", "second": SHARE, **none, "passed": 2, "passed_bytes": 101, "gateway": "g1"},
        {"topic": "a", "second": 9, **none, "dropped": 6, "gateway": None},
        {"topic": "a", "second": 10, **none, "passed": 2, "refused": 2, "passed_bytes": 101, "refused_bytes": 110, "peak_100ms": 4,
         "largest": 70, "gateway": None},
    ]  # fmt: skip
    assert sum_lines(given).to_pylist() == [{"protocol": "rocketmq"} | each for each in expected]


ON_A_WORKER = """
import sys
for ours in ("spark_jobs", "limiter", "gateway", "admin"):
    sys.modules[ours] = None  # importing it fails
from pyspark import cloudpickle
make, unpack, stream = cloudpickle.loads(sys.stdin.buffer.read())
rows = [row for batch in make(iter(stream)) for row in batch.to_pylist()]
print(len(rows), rows[0]["total"], unpack.codec)
"""


def test_what_runs_on_the_workers_needs_nothing_of_ours_there(tmp_path: Path) -> None:
    ship_by_value()
    exclusion = Exclusion.of("2026-11-20T00:00:00Z/2026-11-20T00:00:05Z:a*")
    make = TopicRows(DAY, np.ones(DAY.seconds, dtype=np.bool_), (exclusion,), 10_000, make_quota_filter())
    shipped = cloudpickle.dumps((make, Unpack("gzip"), stream({"t1": 5, "t2": 6}, 3)))  # type: ignore[no-untyped-call]
    done = subprocess.run([sys.executable, "-c", ON_A_WORKER], input=shipped, cwd=tmp_path, capture_output=True, check=False)
    assert (done.stdout.decode().split(), done.stderr.decode()) == (["4", "35", "gzip"], "")


def test_bounds_are_where_protocol_or_topic_change() -> None:
    table = pa.table({"protocol": ["a", "a", "b", "b"], "topic": ["x", "x", "x", "y"]})
    assert find_topic_bounds(table).tolist() == [0, 2, 3, 4]


@pytest.mark.parametrize(
    ("protocol", "topic", "can"),
    [("rocketmq", "orders", True), ("rocketmq", "%RETRY%g", False), ("rocketmq", "c_REPLY_TOPIC", False), ("rocketmq", "", False),
     ("rocketmq", "x" * 5000, False), ("amqp", "%2F/orders/new", True), ("amqp", "%2F/amq.default/amq.gen-x", False),
     ("amqp", "orders", False), ("smtp", "orders", False)],
)  # fmt: skip
def test_the_brokers_own_topics_and_names_that_no_snapshot_holds_get_no_quota(protocol: str, topic: str, can: bool) -> None:
    assert make_quota_filter()(protocol, topic) is can
