"""Fill levels over a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.fills import Fills, parse
from gateway.sweep import now_ns
from limiter.judge import Judge
from limiter.keys import amqp_topic, rocketmq_topic
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules import Rule, RuleSet

RULES = RuleSet((Rule("topics", limit=Limit(messages=Rate(100)), open_for_ns=0),))


def flood(judge: Judge, count: int = 1000) -> int:
    origin = judge.origin("rocketmq", "rocket", "10.0.0.7", None)
    request = Request(judge.key(origin, b"t", rocketmq_topic(b"orders")), count, 1, 10)
    judge.decide([request], now_ns())
    return request.passed


def test_a_restart_gives_no_fresh_burst(tmp_path: Path) -> None:
    before = Judge(RULES)
    assert flood(before) == 100
    Fills(tmp_path, before, lambda: 1000.0).save()
    after = Judge(RULES)
    Fills(tmp_path, after, lambda: 1000.0).restore()
    assert flood(after) <= 10  # what a tenth of a second brings, however slow this machine is


def test_the_time_away_fills_the_bucket_as_if_it_had_run(tmp_path: Path) -> None:
    before = Judge(RULES)
    flood(before)
    Fills(tmp_path, before, lambda: 1000.0).save()
    after = Judge(RULES)
    Fills(tmp_path, after, lambda: 1000.5).restore()
    assert 50 <= flood(after) <= 60


def test_a_wall_clock_that_went_back_gives_nothing(tmp_path: Path) -> None:
    before = Judge(RULES)
    flood(before)
    Fills(tmp_path, before, lambda: 1000.0).save()
    after = Judge(RULES)
    Fills(tmp_path, after, lambda: 10.0).restore()
    assert flood(after) <= 10


def test_names_of_any_bytes_survive(tmp_path: Path) -> None:
    before = Judge(RULES)
    origin = before.origin("amqp", "rabbit", "10.0.0.7", "shop")
    before.decide([Request(before.key(origin, b"k", amqp_topic(b"/", b"o/x", b"a.\xff\n")), 1000, 1, 10)], now_ns())
    Fills(tmp_path, before).save()
    _, fills = parse((tmp_path / "fills.json").read_bytes())
    assert set(fills) == set(before.fills(now_ns()))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"at":1}',
        b'{"at":1,"fills":[["a","b","c","d"]]}',
        b'{"at":1,"fills":[["a","b","c","d",2]]}',
        b'{"at":1,"fills":[["a","b","c","d",-Infinity]]}',
    ],
)
def test_a_file_that_cannot_be_read_leaves_full_buckets_and_is_replaced(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "fills.json").write_bytes(data)
    judge = Judge(RULES)
    fills = Fills(tmp_path, judge)
    fills.restore()
    assert flood(judge) == 100
    fills.save()
    assert parse((tmp_path / "fills.json").read_bytes())[1]


def test_a_full_disk_is_counted_and_hurts_nobody(tmp_path: Path) -> None:
    judge = Judge(RULES)
    flood(judge)
    fills = Fills(tmp_path / "gone", judge)
    fills.save()
    assert fills.failed_writes == 1
