"""Fill levels over a restart."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from gateway.clock import now_ns
from gateway.lifecycle.fill_levels import FillLevelsFile, parse
from limiter.algorithms import RATE_ALGORITHMS
from limiter.judge import Judge
from limiter.limits import Limit, Rate
from limiter.request import Request
from limiter.rules.rule_set import Rule, RuleSet
from limiter.topics import amqp_topic, rocketmq_topic

S = 1_000_000_000
RULES = RuleSet((Rule("topics", limit=Limit(messages=Rate(100)), open_for_ns=0),))


def flood(judge: Judge, count: int = 1000) -> int:
    origin = judge.origin("rocketmq", "rocket", "10.0.0.7", None)
    request = Request(judge.key(origin, b"t", rocketmq_topic(b"orders")), count, 1, 10)
    judge.decide([request], now_ns())
    return request.passed


def test_a_restart_gives_no_fresh_burst(tmp_path: Path) -> None:
    before = Judge(RULES)
    assert flood(before) == 100
    FillLevelsFile(tmp_path, before, lambda: 1000.0).save()
    after = Judge(RULES)
    FillLevelsFile(tmp_path, after, lambda: 1000.0).restore()
    assert flood(after) <= 10  # what a tenth of a second brings, however slow this machine is


def test_two_that_save_at_once_leave_a_whole_file_and_what_is_frozen_stays(tmp_path: Path) -> None:
    judge = Judge(RuleSet((Rule("topics", limit=Limit(messages=Rate(1, 3600 * S), messages_burst=100), open_for_ns=0),)))
    assert flood(judge) == 100  # and for an hour no other, however slow this machine is
    file = FillLevelsFile(tmp_path, judge, lambda: 1000.0)

    def save_often() -> None:
        for _ in range(100):
            file.save()

    threads = [threading.Thread(target=save_often) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.freeze()
    last = (tmp_path / "fills").read_bytes()
    assert len(parse(last)[2]) == 4
    assert file.failed_writes == 0
    file.save()
    assert (tmp_path / "fills").read_bytes() == last


@pytest.mark.parametrize("algorithm", RATE_ALGORITHMS)
def test_a_used_up_bucket_stays_so_with_every_algorithm(tmp_path: Path, algorithm: str) -> None:
    rules = RuleSet((Rule("topics", limit=Limit(messages=Rate(1, 60 * 10**9)), algorithm=algorithm, open_for_ns=0),))
    before = Judge(rules)
    assert flood(before) == 1
    FillLevelsFile(tmp_path, before, lambda: 1000.0).save()
    after = Judge(rules)
    FillLevelsFile(tmp_path, after, lambda: 1000.0).restore()
    assert flood(after) == 0


def passing(judge: Judge, start: int, seconds: float) -> int:
    """Messages that pass of a thousand a second."""
    key = judge.key(judge.origin("rocketmq", "rocket", "10.0.0.7", None), b"t", rocketmq_topic(b"orders"))
    passed = 0
    for step in range(int(seconds * 1000)):
        request = Request(key, 1, 1, 10)
        judge.decide([request], start + step * 1_000_000)
        passed += request.passed
    return passed


def test_a_warm_bucket_stays_warm_over_a_restart_even_when_full() -> None:
    rules = RuleSet(
        (Rule("topics", limit=Limit(messages=Rate(100), messages_burst=1, warm_up_ns=10 * S), algorithm="warm_up", open_for_ns=0),)
    )
    before, after, cold = Judge(rules), Judge(rules), Judge(rules)
    passing(before, S, 15.0)
    paused = 16 * S + 100_000_000  # long enough for one message, far too short to cool down
    (rows,) = [rows for rows in before.fills(paused) if rows]
    after.restore(before.secret, rows, paused, 0)
    assert passing(cold, paused, 1.0) < 50
    assert passing(after, paused, 1.0) > 80


def test_the_time_away_fills_the_bucket_as_if_it_had_run(tmp_path: Path) -> None:
    before = Judge(RULES)
    flood(before)
    FillLevelsFile(tmp_path, before, lambda: 1000.0).save()
    after = Judge(RULES)
    FillLevelsFile(tmp_path, after, lambda: 1000.5).restore()
    assert 50 <= flood(after) <= 60


def test_a_wall_clock_that_went_back_gives_nothing(tmp_path: Path) -> None:
    before = Judge(RULES)
    flood(before)
    FillLevelsFile(tmp_path, before, lambda: 1000.0).save()
    after = Judge(RULES)
    FillLevelsFile(tmp_path, after, lambda: 10.0).restore()
    assert flood(after) <= 10


def test_names_of_any_bytes_survive(tmp_path: Path) -> None:
    def odd(judge: Judge) -> int:
        origin = judge.origin("amqp", "rabbit", "10.0.0.7", "shop")
        request = Request(judge.key(origin, b"k", amqp_topic(b"/", b"o/x", b"a.\xff\n")), 1000, 1, 10)
        judge.decide([request], now_ns())
        return request.passed

    before, after = Judge(RULES), Judge(RULES)
    assert odd(before) == 100
    FillLevelsFile(tmp_path, before).save()
    FillLevelsFile(tmp_path, after).restore()
    assert odd(after) <= 10
    assert flood(after) == 100


def test_a_restored_bucket_that_is_not_used_survives_the_next_restart_too(tmp_path: Path) -> None:
    slow = RuleSet((Rule("topics", limit=Limit(messages=Rate(1, 3600 * 10**9), messages_burst=50), open_for_ns=0),))
    before, between, after = Judge(slow), Judge(slow), Judge(slow)
    assert flood(before) == 50
    FillLevelsFile(tmp_path, before).save()
    again = FillLevelsFile(tmp_path, between)
    again.restore()
    again.save()
    FillLevelsFile(tmp_path, after).restore()
    assert flood(after) == 0


def test_shelved_buckets_are_in_the_file(tmp_path: Path) -> None:
    slow = RuleSet((Rule("topics", limit=Limit(messages=Rate(1, 3600 * 10**9), messages_burst=50), open_for_ns=0),))
    before, after = Judge(slow, live=1), Judge(slow, live=1)
    assert flood(before) == 50
    origin = before.origin("rocketmq", "rocket", "10.0.0.7", None)
    before.decide([Request(before.key(origin, b"u", rocketmq_topic(b"other")), 1, 1, 10)], now_ns() + 1)
    assert before.usage()["shelved"] == 1
    FillLevelsFile(tmp_path, before).save()
    assert len(parse((tmp_path / "fills").read_bytes())[2]) == 2 * 4
    FillLevelsFile(tmp_path, after).restore()
    assert flood(after) == 0


SECRET = b"00" * 16
GOOD = b'{"at": 1, "secret": "%s", "order": "%s"}\n' % (SECRET, sys.byteorder.encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"at":1}',
        b'{"at": 1, "secret": "00", "order": "middle"}\n\0\0\0\0',
        b'{"at": 1, "secret": "no hex", "order": "%s"}\n\0\0\0\0' % sys.byteorder.encode(),
        b'{"at": NaN, "secret": "%s", "order": "%s"}\n\0\0\0\0' % (SECRET, sys.byteorder.encode()),
        b'{"at": 1, "secret": "00", "order": "%s"}\n\0\0\0\0' % sys.byteorder.encode(),
        GOOD,
        GOOD + bytes(32) + b"\0\0\0\1",
        GOOD + bytes(31) + b"\0\0\0\0",
    ],
)
def test_a_file_that_cannot_be_read_leaves_full_buckets_and_is_replaced(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "fills").write_bytes(data)
    judge = Judge(RULES)
    fills = FillLevelsFile(tmp_path, judge)
    fills.restore()
    assert flood(judge) == 100
    fills.save()
    assert len(parse((tmp_path / "fills").read_bytes())[2]) == 4


def test_a_full_disk_is_counted_and_hurts_nobody(tmp_path: Path) -> None:
    judge = Judge(RULES)
    flood(judge)
    fills = FillLevelsFile(tmp_path / "gone", judge)
    fills.save()
    assert fills.failed_writes == 1
