"""Usage per second and the state of a day, against the plain-Python oracle."""

from __future__ import annotations

import json
import random
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.access_log import parse
from spark_jobs.arrival_curve import RATE_RATIO
from spark_jobs.daily_state import daily_state
from spark_jobs.sequence import once
from spark_jobs.usage import per_second, ticks, with_ticks
from support.access_logs import day_start, heartbeat_line, usage_line
from support.models import quota_oracle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DATE = "2026-11-20"
START = day_start(DATE)


def good(spark: SparkSession, lines: list[dict[str, Any]]) -> DataFrame:
    texts = spark.createDataFrame([("f", json.dumps(line)) for line in lines], "file string, line string")
    return once(parse(texts, DATE)).where("fault is null")


def random_day(seed: int) -> list[dict[str, Any]]:
    """Two gateways, three topics, several clients per second; observed seconds with a hole of forty minutes."""
    chance = random.Random(seed)
    lines = []
    for gateway in ("g1", "g2"):
        seq = 0
        for second in [*range(3000, 3400), *range(5800, 6100), *range(50_000, 50_010)]:
            for topic in ("orders", "audit", "%2F/orders/x"):
                for client in range(chance.choice([0, 0, 1, 2])):
                    messages, refused = chance.choice([0, 1, 5, 60, 2000]), chance.choice([0, 0, 3])
                    if messages + refused:
                        lines.append(usage_line(
                            gateway, "b", seq, START + second, topic, client=f"10.0.0.{client}", messages=messages, bytes=messages * 70,
                            refused_messages=refused, refused_bytes=refused * 70, protocol="amqp" if "/" in topic else "rocketmq",
                            operation=chance.choice(["produce", "produce", "produce", "consume"]),
                        ))  # fmt: skip
                        seq += 1
            if gateway == "g1":
                lines.append(heartbeat_line(gateway, "b", seq, START + second))
                seq += 1
    return lines


def test_usage_is_demand_of_producers_summed_over_clients_and_gateways(spark: SparkSession) -> None:
    lines = random_day(1)
    found: dict[tuple[str, str, str], dict[int, int]] = {}
    for row in per_second(good(spark, lines)).collect():
        found.setdefault((row.protocol, row.topic, row.dimension), {})[row.second] = row.amount
    assert found == quota_oracle.usage(lines)


def test_dropped_messages_are_demand_of_the_second_s_mean_size(spark: SparkSession) -> None:
    lines = [
        usage_line(
            "g", "b", 0, START, "t", messages=2, bytes=301, refused_messages=1, refused_bytes=149, dropped_messages=3, max_100ms_messages=4
        ),
        usage_line("g", "b", 1, START, "t", messages=1, bytes=1000, client="other", max_100ms_messages=1),
        usage_line("g", "b", 2, START + 1, "t", messages=0, bytes=0, dropped_messages=5, max_100ms_messages=5),
    ]
    rows = {(row.dimension, row.second - START): row for row in per_second(good(spark, lines)).collect()}
    assert sorted(rows) == [("bytes", 0), ("messages", 0), ("messages", 1)]
    messages, octets = rows[("messages", 0)], rows[("bytes", 0)]
    assert (messages.amount, messages.refused, messages.largest, messages.peak_100ms) == (7, 4, 1, 5)
    dropped = -(-3 * 1450 // 4)  # three more of 1450 bytes in 4 messages, rounded up
    assert (octets.amount, octets.refused, octets.largest, octets.peak_100ms) == (1450 + dropped, 149 + dropped, 1000, None)


TOPICS = [
    ("rocketmq", "orders", True),
    ("rocketmq", "BenchmarkTest2", True),
    ("rocketmq", "TBW102", False),
    ("rocketmq", "rmq_sys_SYNC_BROKER_MEMBER", False),
    ("rocketmq", "RMQ_SYS_TRANS_HALF_TOPIC", False),
    ("rocketmq", "DefaultCluster_REPLY_TOPIC", False),
    ("rocketmq", "%RETRY%group", False),
    ("rocketmq", "%DLQ%group", False),
    ("rocketmq", "", False),
    ("amqp", "%2F/orders/order.created", True),
    ("amqp", "%2F/amq.default/TBW102", True),
    ("amqp", "%2F/amq.default/amq.gen-JzTY20BRgKO", False),
    ("amqp", "not-a-topic", False),
    ("mqtt", "a/b/c", False),
]


def test_topics_that_can_have_no_quota_are_left_out(spark: SparkSession) -> None:
    lines = [usage_line("g", "b", seq, START, topic, protocol=protocol) for seq, (protocol, topic, _) in enumerate(TOPICS)]
    kept = {(row.protocol, row.topic) for row in per_second(good(spark, lines)).collect()}
    assert [(protocol, topic, (protocol, topic) in kept) for protocol, topic, _ in TOPICS] == TOPICS


@pytest.fixture(scope="module")
def state(spark: SparkSession) -> tuple[list[dict[str, Any]], list[Any]]:
    lines = random_day(2)
    rows = good(spark, lines)
    observed = ticks(rows)
    return lines, daily_state(with_ticks(per_second(rows), observed), observed, DATE).collect()


def test_the_state_holds_the_sums_and_maxima_of_the_day(state: tuple[list[dict[str, Any]], list[Any]]) -> None:
    lines, rows = state
    usage, numbers = quota_oracle.usage(lines), quota_oracle.ticks(lines)
    assert {(row.protocol, row.topic, row.dimension) for row in rows} == set(usage)
    for row in rows:
        series = usage[(row.protocol, row.topic, row.dimension)]
        span = numbers[max(series)] - numbers[min(series)]
        assert (row.active_seconds, row.total, row.max, row.span) == (len(series), sum(series.values()), max(series.values()), span)


def test_the_histogram_counts_every_observed_second_and_no_other(state: tuple[list[dict[str, Any]], list[Any]]) -> None:
    lines, rows = state
    usage, numbers = quota_oracle.usage(lines), quota_oracle.ticks(lines)
    for row in rows:
        series = usage[(row.protocol, row.topic, row.dimension)]
        expected = Counter((second % 86_400 // 3600, quota_oracle.bucket(series[second]) if second in series else -1) for second in numbers)
        assert [(at.hour, at.bucket, at.seconds) for at in row.histogram] == sorted((*place, count) for place, count in expected.items())
    hours = {at.hour for row in rows for at in row.histogram}
    assert hours == {0, 1, 13}, "hours nobody observed are missing, not idle"


def test_the_curve_is_that_of_the_observed_seconds(state: tuple[list[dict[str, Any]], list[Any]]) -> None:
    lines, rows = state
    usage, numbers = quota_oracle.usage(lines), quota_oracle.ticks(lines)
    row = max(rows, key=lambda row: len(row.curve))
    series = {numbers[second]: amount for second, amount in usage[(row.protocol, row.topic, row.dimension)].items()}
    assert len(row.curve) > 5
    for point in (row.curve[0], row.curve[len(row.curve) // 2], row.curve[-1]):
        exact = quota_oracle.burst(series, Fraction(RATE_RATIO**point.step))
        assert exact <= point.burst + 1e-6 < exact + 1.01
