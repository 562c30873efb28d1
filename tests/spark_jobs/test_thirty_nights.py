"""Thirty nights in a row: a day of traffic through a gateway's real judge, its log, `sluice quotas nightly`, and the next day under what
that has published. No night stops but the one whose log lacks a gateway; a launch is not strangled, a topic that was throttled is not
for long, what a rule has closed stays closed, no quota passes a ceiling, a pin is what it says, all are within a capacity, a storm teaches
nothing, seconds that a clock has jumped over are missing and not idle, a second run of a night changes nothing.

Days are short: ten minutes of a day are observed, which is all the job knows of it. A burst of ten seconds would be a part of such a day
that no method could overlook, so bursts are of two seconds here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.main import main
from limiter.topics import rocketmq_topic
from support.access_logs import SyntheticLog
from support.admin.admin_client import folder_in_memory
from support.admin.serving import Serving, serving

pytestmark = pytest.mark.long

NIGHTS = 30
ROOF = 9  # messages a second
FIRST = date(2026, 10, 5)  # a Monday
SECONDS = 600
LAUNCH, STORM, DEATH, SALE = 10, 16, 13, 21  # days
GROWN, JUMP, ABSENT = 12, 18, 24  # days: twelve times as much from here on; a clock jumps; the log of gateway "two" is not there
JUMPED_S = range(100, 120)  # less than a twentieth of the day, which would be a gateway that is missing
OF_TWO = 0.3  # of what passed
LAST_S = 86_399  # of the day: who wrote then is expected on the next one
STORM_S = range(300, 303)  # with the breaker's second less than 1 % of the day's
SECOND_NS = 1_000_000_000


def mean_of(topic: str, day: int, chance: np.random.Generator) -> float:
    """Messages a second that clients want to send on that day."""
    weekend = 0.5 if (FIRST + timedelta(day)).weekday() >= 5 else 1.0
    return {
        "steady": 20 * weekend,
        "noisy": 30 * math.exp(chance.normal(0, 0.12)),
        "sparse": 1 / 60,
        "growing": 5 * 1.05**day,
        "launch": 0 if day < LAUNCH - 2 else 1 if day < LAUNCH else 60,
        "stormy": 10,
        "dying": 10 if day < DEATH else 0,
        "sale": 12 * (6 if day == SALE else 1),
        "throttled": 5 * (12 if day >= GROWN else 1),
        "legacy": 5,
        "roofed": 6,
        "pinned": 4,
    }[topic] * chance.lognormal(0, 0.05)


TOPICS = ("steady", "noisy", "sparse", "growing", "launch", "stormy", "dying", "sale", "throttled", "legacy", "roofed", "pinned")


@dataclass
class Days:
    """What became of each topic's messages, by day."""

    offered: dict[tuple[str, int], int] = field(default_factory=dict)
    refused: dict[tuple[str, int], int] = field(default_factory=dict)
    rates: dict[tuple[str, int], float] = field(default_factory=dict)  # published after that day

    def share(self, topic: str, days: range) -> float:
        offered = sum(self.offered.get((topic, day), 0) for day in days)
        return sum(self.refused.get((topic, day), 0) for day in days) / max(1, offered)


def day_of_traffic(served: Serving, log: Path, day: int, found: Days) -> None:
    """Ten minutes through the judge, and the access log of them."""
    chance = np.random.default_rng(day)
    wanted = {topic: chance.poisson(mean_of(topic, day, chance), SECONDS) for topic in TOPICS}
    for second in STORM_S if day == STORM else ():
        wanted["stormy"][second] = 4000
    one, two = (SyntheticLog(log, f"{FIRST + timedelta(day)}", name, f"b{day}") for name in ("one", "two"))
    gateway = served.gateways[0].gateway
    began = (day + 1) * 86_400 * SECOND_NS

    def pass_through() -> None:
        for second in range(SECONDS):
            for topic in TOPICS:
                asked = int(wanted[topic][second])
                if not asked:
                    continue
                passed = gateway.flood(rocketmq_topic(topic.encode()), asked, began + second * SECOND_NS)
                found.offered[topic, day] = found.offered.get((topic, day), 0) + asked
                found.refused[topic, day] = found.refused.get((topic, day), 0) + asked - passed
                if day == JUMP and second in JUMPED_S:
                    continue
                other = int(passed * OF_TWO)
                one.usage(
                    43_200 + second, topic, messages=passed - other, bytes=(passed - other) * 100, refused_messages=asked - passed,
                    refused_bytes=(asked - passed) * 100, max_100ms_messages=-(-passed // 10),
                )  # fmt: skip
                if other:
                    two.usage(43_200 + second, topic, messages=other, bytes=other * 100, max_100ms_messages=-(-other // 10))
            if day != JUMP or second not in JUMPED_S:
                one.heartbeat(43_200 + second)
                two.heartbeat(43_200 + second)

    served.call(pass_through)
    for lines in (one, two):
        lines.heartbeat(LAST_S)
        if lines is one or day != ABSENT:
            lines.write()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    with folder_in_memory(tmp_path) as folder:
        yield folder


def test_thirty_nights(memory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = Days()
    pins = memory / "pins.yaml"
    pins.write_text("pins: [{protocol: rocketmq, topic: pinned, messages: 20/s, burst: 40}]")
    with serving(memory, "one") as served:
        closed = {"match": {"topic": "legacy*"}, "limit": {"messages": "0/s"}}
        roof = {"match": {"topic": "roofed*"}, "limit": {"messages": f"{ROOF}/s", "burst": "2s"}, "ceiling": True}
        served.ask(0, "PUT", "/v1/rules/legacy?force=1", closed)
        served.ask(0, "PUT", "/v1/rules/roof?force=1", roof)

        def nightly(day: int, *words: str) -> tuple[int, str]:
            capsys.readouterr()
            code = main([
                "quotas", "nightly", "--log", str(memory / "log"), "--state", str(memory / "state"), "--date", f"{FIRST + timedelta(day)}",
                *served.options(), "--set", "burst_seconds=2", "--pins", str(pins), *words,
            ])  # fmt: skip
            return code, capsys.readouterr().err

        def live() -> Any:
            return served.ask(0, "GET", "/v1/quotas").json()

        def limit_of(topic: str) -> Any:
            found_levels = served.ask(0, "GET", f"/v1/limits/rocketmq/{topic}").json()["levels"]
            return next(level["limit"] for level in found_levels if level["per"] == "topic")

        for day in range(NIGHTS):
            day_of_traffic(served, memory / "log", day, found)
            began = time.process_time()
            code, said = nightly(day)
            if day == ABSENT:
                assert (code, live()["date"]) == (5, f"{FIRST + timedelta(day - 1)}"), said
                assert "missing in the log: two (absent" in said
                code, said = nightly(day, "--allow-partial")
                assert live()["night"]["missing_gateways"] == ["two"]
            assert code == 0, f"night {day}: {said}"
            assert live()["date"] == f"{FIRST + timedelta(day)}", f"night {day} took {time.process_time() - began:.1f} s: {said}"
            for quota in live()["quotas"]:
                found.rates[quota["topic"], day] = quota["messages"]["rate"]
            if day % 10 == 9:
                before = (live(), served.gateways[0].store.revision)
                code, said = nightly(day)
                assert (code, live(), served.gateways[0].store.revision) == (0, *before), said
                assert "nothing to do" in said
        limit_of_roofed = limit_of("roofed")
        again = live()
        assert nightly(NIGHTS - 1, "--again")[0] == 0
        assert live()["quotas"] == again["quotas"], "a night computed anew comes out as before"
        whole = sum(quota["messages"]["rate"] for quota in live()["quotas"])
        capacity = round(0.8 * whole)
        code, said = nightly(NIGHTS - 1, "--again", "--capacity", str(capacity))
        assert code == 0, said
        within = {quota["topic"]: quota["messages"]["rate"] for quota in live()["quotas"]}

    report = {topic: [round(found.rates.get((topic, day), 0), 2) for day in range(NIGHTS)] for topic in TOPICS}
    assert found.share("launch", range(LAUNCH, LAUNCH + 1)) < 0.01, report
    assert found.share("launch", range(LAUNCH, LAUNCH + 7)) < 0.05, report
    assert found.rates["launch", NIGHTS - 1] > 60, report
    earlier = {
        topic: found.rates[topic, day - 1] for topic, day in (("stormy", STORM), ("dying", DEATH), ("sale", SALE), ("steady", ABSENT))
    }
    for day in range(STORM, STORM + 7):  # it asks for four hundred times as much, and a night's rail is x2; without the storm it has 1.4
        assert found.rates["stormy", day] < 1.6 * earlier["stormy"], report
    assert found.rates["dying", NIGHTS - 1] < 0.7 * earlier["dying"], report
    assert found.rates["sale", NIGHTS - 1] < 2.5 * earlier["sale"], report
    assert found.share("sale", range(SALE + 1, NIGHTS)) < 0.01, report
    assert found.share("sparse", range(4, NIGHTS)) < 0.1, report  # 0.056 where a night has a few of its messages
    assert found.rates["sparse", NIGHTS - 1] < 1, report
    assert found.share("throttled", range(GROWN + 5, NIGHTS)) < 0.02, report
    assert found.rates["throttled", NIGHTS - 1] > 60, report
    assert found.rates["steady", ABSENT] > 0.85 * earlier["steady"], "what a missing gateway had is not what nobody sent"
    assert found.share("steady", range(JUMP, JUMP + 3)) < 0.02, report
    assert found.share("legacy", range(NIGHTS)) == 1, "a rule of 0/s"
    assert not any(topic == "legacy" for topic, _ in found.rates), report
    assert found.rates["roofed", NIGHTS - 1] > ROOF, "its quota is above the ceiling, as k is 1 or more"
    assert limit_of_roofed["messages_per_second"] == ROOF, "and does not hold there"
    assert {rate for (topic, _), rate in found.rates.items() if topic == "pinned"} == {20}
    assert sum(within.values()) == pytest.approx(capacity, rel=1e-4), within
    assert within["pinned"] == 20, "pins come off first"
    for topic in ("steady", "noisy", "growing"):
        assert found.share(topic, range(4, NIGHTS)) < 0.02, (topic, report)
        assert found.rates[topic, NIGHTS - 1] < 10 * mean_of(topic, NIGHTS - 1, np.random.default_rng(0)), (topic, report)
