"""Days and topics are added up; the reserve is of the limits per topic."""

from __future__ import annotations

import json

from limiter.quota_snapshot import Quota
from spark_jobs.backtest.contender import make_contender
from spark_jobs.backtest.reserve import add_reserve
from spark_jobs.backtest.result import Outcome, sum_outcomes


def outcome(topic: str, refused: int, blackout: int, **more: object) -> Outcome:
    return Outcome("tried", "rocketmq", topic, offered=1000, refused=refused, blackout=blackout, **more)  # type: ignore[arg-type]


def test_days_and_topics_add_up_and_the_longest_blackout_says_where_it_was() -> None:
    found = sum_outcomes("exact", "2026-11-19", "2026-11-20", [
        ("2026-11-19", [outcome("a", 10, 2, clients={"x": 10}), outcome("b", 0, 0)]),
        ("2026-11-20", [outcome("a", 30, 7, clients={"x": 10, "y": 20})]),
    ])  # fmt: skip
    total = found.totals["tried"]
    assert (total.days, total.offered, total.refused) == (2, 3000, 40)
    assert (total.blackout, total.blackout_at) == (7, "2026-11-20 a")
    assert [(each.topic, each.refused, each.days) for each in found.topics] == [("a", 40, 2), ("b", 0, 1)]
    document = json.loads(json.dumps(found.to_json()))
    assert document["totals"]["tried"]["clients"] == [{"client": "x", "refused": 20}, {"client": "y", "refused": 20}]
    assert document["totals"]["tried"]["refused_share"] == 40 / 3000
    assert (document["from"], document["to"], document["days"]) == ("2026-11-19", "2026-11-20", ["2026-11-19", "2026-11-20"])


def test_the_quick_answers_blackout_stays_unknown() -> None:
    found = sum_outcomes("quick", "2026-11-19", "2026-11-19", [("2026-11-19", [outcome("a", 1, 0, limited_seconds=None)])])
    assert found.totals["tried"].blackout is None


def test_the_reserve_is_what_the_rate_would_pass_and_unused_what_did_not() -> None:
    tried = make_contender("tried", (), [Quota("rocketmq", "a", (2, 10), (50.5, 100)), Quota("rocketmq", "silent", (1, 1))])[0]
    found = {each.topic: each for each in add_reserve(tried, [outcome("a", 400, 0), outcome("free", 0, 0)], 1000)}
    assert (found["a"].reserved, found["a"].unused) == (2000, 1400)
    assert (found["a"].reserved_bytes, found["a"].unused_bytes) == (50_500, 50_500)
    assert (found["silent"].offered, found["silent"].unused) == (0, 1000)
    assert found["free"].reserved == 0
