"""A day replayed on Spark is the day replayed in one place."""

from __future__ import annotations

import importlib.util
import random
import sys
from typing import TYPE_CHECKING, Any

import pytest

from limiter.limits import Limit, Rate
from limiter.quota_snapshot import Quota
from limiter.rules.match import Match
from limiter.rules.rule import Rule
from spark_jobs.backtest.contender import make_contender
from support.access_logs import day_start, usage_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.backtest.result import Outcome

pytestmark = pytest.mark.spark

START = day_start("2026-11-20")
RULES = [
    Rule("all", Match(protocol="rocketmq"), limit=Limit(Rate(30))),
    Rule("each-client", Match(protocol="rocketmq"), per="client", limit=Limit(Rate(60))),
]
QUOTAS = [Quota("rocketmq", f"t{number}", (25, 40), (2500, 5000)) for number in range(6)]


def lines(seconds: int) -> list[dict[str, Any]]:
    chance = random.Random(3)
    found: list[dict[str, Any]] = []
    for second in range(seconds):
        for topic in range(8):
            for client in (topic % 3, 3):
                asked = chance.choice([0, 0, 8, 40])
                if asked:
                    fields = {"messages": asked, "bytes": 100 * asked, "max_100ms_messages": asked // 2, "client": f"10.0.0.{client}"}
                    found.append(usage_line("g1", "b1", len(found), START + second, f"t{topic}", **fields))
    found.append({"v": 1, "ts": START, "gateway": "g1", "boot": "b1", "seq": len(found), "heartbeat": True})
    return found


def replayed(spark: SparkSession, rows: list[dict[str, Any]]) -> tuple[list[Outcome], int, list[str]]:
    from spark_jobs.backtest.distribution import replay_day
    from spark_jobs.schemas import WITH_SENDER as schema  # noqa: N811

    tried = [make_contender("quotas", (), QUOTAS)[0], make_contender("rules", RULES)[0], make_contender("both", RULES, QUOTAS)[0]]
    return replay_day(spark.createDataFrame([{name: row.get(name) for name in schema.names} for row in rows], schema), tried)


def test_the_order_and_the_partitions_of_the_lines_change_nothing(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_jobs.backtest import distribution

    rows = lines(40)
    many, count, notes = replayed(spark, rows)
    monkeypatch.setattr(distribution, "PARTS_PER_CORE", 0)  # one part
    random.Random(1).shuffle(rows)
    one, _, _ = replayed(spark, rows)
    assert count == len(rows) - 1
    assert "rule each-client" in notes[0]
    key = lambda each: (each.contender, each.topic)  # noqa: E731
    assert sorted(many, key=key) == sorted(one, key=key)
    assert len(many) == 3 * 8
    by_name = {name: sum(each.refused for each in many if each.contender == name) for name in ("quotas", "rules", "both")}
    assert min(by_name.values()) > 500
    assert all(sum(each.clients.values()) == each.refused <= each.offered for each in many)


def test_a_worker_without_mypycs_library_judges_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_jobs.backtest.distribution import stand_in_for_mypyc

    for name in ("librt", "librt.threading", "mypy_extensions"):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    stand_in_for_mypyc()
    from librt.threading import Lock
    from mypy_extensions import i64

    with Lock():
        assert i64 is int
