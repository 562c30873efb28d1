"""A generator of weeks, pure numpy and seeded: per-second counts of topics, as the job gets them from the log.

A day is `per_hour` seconds of each of 24 hours: 3600 is the whole day, 600 a sample of ten minutes an hour with gaps between them, which
costs a sixth. The kinds are those that real fleets have; none is fitted to a series.

The job gets what the log says, which is not what clients wanted where a limit was in the way: `Week.topics` has the refused, delayed and
dropped messages of throttled topics and of storms, and what a missing gateway would have had is not there. `Week.wanted` is what clients
wanted, and judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date as calendar_date
from datetime import timedelta
from typing import Final

import numpy as np

from spark_jobs.days import Day
from spark_jobs.state.topic_day import TopicSeconds

FIRST: Final = calendar_date(2026, 3, 2)  # a Monday


@dataclass
class Topic:
    """How one topic sends. Levels are messages per second."""

    name: str
    level: Callable[[int], float]  # by day
    swing: float = 0.6  # how much of the level the night loses
    phase: float = 0.0  # hours by which the busiest hour (14:00) is later
    noise: float = 0.1  # of a minute's level, lognormal
    batch: float = 1.0  # messages come in batches of this mean
    event_share: float = 0.0  # of the days that have an event
    event_size: float = 3.0  # median factor of an event
    event_minutes: float = 20.0  # median length
    jobs: float = 0.0  # short jobs a day: all messages but a trickle
    job_rate: float = 300.0
    job_seconds: float = 40.0
    weekend: float = 0.5  # level of Saturday and Sunday
    size: int = 400  # bytes of a message, about
    throttled: tuple[int, int] = (0, 0)  # days (from, to) on which a rule held it at `throttle` of the day's mean
    throttle: float = 0.6
    action: str = "refuse"  # what that rule does: refuse, delay or drop
    storm_share: float = 0.0  # of the days that have a storm: a limit of twice the mean is hit, and what is refused comes 50 times


@dataclass(frozen=True)
class Week:
    """One day of a series: what each topic did in it."""

    day: Day
    observed_seconds: int
    topics: list[TopicSeconds]
    wanted: list[TopicSeconds] = field(default_factory=list)  # as `topics`, had nothing been in the way; empty: nothing was
    gateways: dict[str, dict[str, int]] = field(default_factory=dict)  # for the day's manifest
    missing: list[str] = field(default_factory=list)  # gateways


def weeks(
    topics: list[Topic], seed: int, days: int, per_hour: int = 600, gaps: float = 0.0, *, missing: Mapping[int, str] | None = None
) -> Iterator[Week]:
    """`gaps`: share of the days of which some hours are missing, as where a clock jumps. `missing`: day -> the one of the gateways a and b
    whose log is not there; they have 60 and 40 % of all messages."""
    rng = np.random.default_rng(seed)
    for at in range(days):
        day = Day((FIRST + timedelta(days=at)).isoformat())
        offset = (np.arange(24)[:, None] * 3600 + np.arange(per_hour)).reshape(-1)
        if rng.random() < gaps:
            lost = int(rng.integers(0, 20))
            hour = offset // 3600
            offset = offset[(hour < lost) | (hour >= lost + 3)]
        found = [(each, topic) for topic in topics if (each := _seconds(topic, at, day, offset, rng)) is not None]
        wanted = [each for each, _ in found]
        got = [logged(topic, at, each, len(offset), np.random.default_rng([seed, at, place])) for place, (each, topic) in enumerate(found)]
        absent = (missing or {}).get(at)
        if missing is not None:
            got = [among_gateways(each, absent) for each in got]
        names = {name: {"seconds": len(offset)} for name in (GATEWAYS if missing is not None else ()) if name != absent}
        yield Week(day, len(offset), got, wanted, names, [absent] if absent else [])


def _seconds(topic: Topic, at: int, day: Day, offset: np.ndarray, rng: np.random.Generator) -> TopicSeconds | None:
    level = topic.level(at) * (topic.weekend if day.weekday >= 5 else 1.0)
    if level <= 0:
        return None
    hours = offset / 3600
    shape = 1 - topic.swing * (0.5 + 0.5 * np.cos((hours - 2 - topic.phase) / 12 * np.pi)) ** 2
    minutes = np.exp(topic.noise * _slow_noise(rng, 1440))
    rate = level * shape / shape.mean() * minutes[offset // 60]
    tick, whole = np.arange(len(offset)), len(offset)
    if rng.random() < topic.event_share:  # as long a part of the day, whatever is observed of it
        start, length = rng.integers(0, whole), whole * topic.event_minutes / 1440 * np.exp(0.7 * rng.standard_normal())
        factor = 1 + (topic.event_size - 1) * np.exp(0.6 * rng.standard_normal())
        rate = np.where((tick >= start) & (tick < start + length), rate * factor, rate)
    for _ in range(rng.poisson(topic.jobs)):
        start, length = rng.integers(0, whole), topic.job_seconds * np.exp(0.8 * rng.standard_normal())
        rate = rate + np.where((tick >= start) & (tick < start + length), topic.job_rate * np.exp(0.5 * rng.standard_normal()), 0.0)
    counts = rng.poisson(rate / topic.batch)
    if topic.batch > 1:
        counts = np.where(counts > 0, rng.negative_binomial(np.maximum(counts, 1), 1 / topic.batch) + counts, 0)
    at_ = np.flatnonzero(counts)
    if not at_.size:
        return None
    return seconds_of(topic.name, day.start + offset[at_], at_, counts[at_], topic.size)


def logged(topic: Topic, at: int, wanted: TopicSeconds, observed_seconds: int, rng: np.random.Generator) -> TopicSeconds:
    """What the log says of the topic on day `at`, with its throttle and its storm."""
    first, last = topic.throttled
    counts = wanted.passed
    if first <= at < last:
        rate = max(1.0, topic.throttle * counts.sum() / observed_seconds)
        passed = bucket(counts, wanted.tick, rate)
        over = counts - passed
        if topic.action == "delay":  # held back, and let through evenly after it
            return _through(wanted, *_delayed(counts, rate))
        return _through(wanted, passed, **{"dropped" if topic.action == "drop" else "refused": over})
    if rng.random() < topic.storm_share:
        n = max(1, observed_seconds // 300)  # less than 1 % of the day
        start = int(rng.integers(0, max(1, len(counts) - n)))
        storm = np.zeros_like(counts)
        storm[start : start + n] = int(50 * max(1.0, 2 * counts.sum() / observed_seconds))
        return _through(wanted, counts, refused=storm)
    return wanted


def bucket(counts: np.ndarray, tick: np.ndarray, rate: float) -> np.ndarray:
    """What a token bucket with a burst of a second lets pass."""
    passed, level, before = np.zeros_like(counts), rate, -1
    for at, (amount, second) in enumerate(zip(counts.tolist(), tick.tolist(), strict=True)):
        level = min(rate, level + rate * (second - before))
        passed[at] = min(int(level), amount)
        level, before = level - passed[at], second
    return passed


def _delayed(counts: np.ndarray, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """(passed, delayed) by second: what is over `rate` waits for the seconds after it, in which something is logged."""
    passed, delayed, queue = np.zeros_like(counts), np.zeros_like(counts), 0
    for at, amount in enumerate(counts.tolist()):
        passed[at] = min(int(rate) + 1, queue + amount)
        delayed[at] = max(0, amount - max(0, int(passed[at]) - queue))
        queue += amount - int(passed[at])
    passed[-1] += queue
    return passed, delayed


def _through(wanted: TopicSeconds, passed: np.ndarray, delayed: np.ndarray | None = None, **lost: np.ndarray) -> TopicSeconds:
    none = np.zeros_like(passed)
    size = wanted.passed_bytes // np.maximum(wanted.passed, 1)
    refused = lost.get("refused", none)
    return wanted._replace(
        passed=passed, refused=refused, dropped=lost.get("dropped", none), delayed=none if delayed is None else delayed,
        passed_bytes=passed * size, refused_bytes=refused * size, gateways=(("a", int(passed.sum()), int((passed * size).sum())),),
    )  # fmt: skip


GATEWAYS: Final = {"a": 0.6, "b": 0.4}


def among_gateways(each: TopicSeconds, absent: str | None) -> TopicSeconds:
    """The topic's messages at the gateways that are there."""
    left = 1.0 - GATEWAYS.get(absent or "", 0.0)
    arrays = {
        name: (getattr(each, name) * left).astype(np.int64)
        for name in ("passed", "refused", "delayed", "dropped", "passed_bytes", "refused_bytes")
    }
    whole = (int(each.passed.sum()), int(each.passed_bytes.sum()))
    parts = tuple((name, int(whole[0] * share), int(whole[1] * share)) for name, share in GATEWAYS.items() if name != absent)
    return each._replace(**arrays, gateways=parts)


def _slow_noise(rng: np.random.Generator, minutes: int) -> np.ndarray:
    """Noise of unit variance that lasts about a quarter of an hour."""
    smooth = np.convolve(rng.standard_normal(minutes + 14), np.ones(15) / np.sqrt(15), mode="valid")
    return np.asarray(0.8 * smooth + 0.6 * rng.standard_normal(minutes))


def seconds_of(name: str, second: np.ndarray, tick: np.ndarray, counts: np.ndarray, size: int | np.ndarray) -> TopicSeconds:
    """A topic that nothing limited."""
    counts = counts.astype(np.int64)
    none = np.zeros_like(counts)
    octets = counts * size if isinstance(size, int) else size.astype(np.int64)
    largest = -(-octets // np.maximum(counts, 1))
    through = ((("a"), int(counts.sum()), int(octets.sum())),)
    return TopicSeconds(
        "rocketmq", name, second.astype(np.int64), tick.astype(np.int64), counts, none, none, none, octets, none, counts, largest, through
    )


def steady(level: float, growth: float = 1.0) -> Callable[[int], float]:
    return lambda day: level * growth**day


def from_day(level: float, first: int, last: int = 10_000, growth: float = 1.0) -> Callable[[int], float]:
    return lambda day: level * growth ** (day - first) if first <= day < last else 0.0


def step(level: float, at: int, factor: float) -> Callable[[int], float]:
    return lambda day: level * (factor if day >= at else 1.0)


def troubled(seed: int) -> list[Topic]:
    """Topics that limits were in the way of: throttled for some days, by each action, and stormed at; two that nothing happens to."""
    rng = np.random.default_rng(seed)

    def level() -> Callable[[int], float]:
        return steady(float(np.exp(rng.uniform(np.log(5), np.log(80)))))

    return [
        Topic("refused", level(), throttled=(8, 11)),
        Topic("delayed", level(), throttled=(9, 12), action="delay"),
        Topic("dropped", level(), throttled=(10, 13), action="drop"),
        Topic("stormy", level(), storm_share=0.25),
        Topic("stormy-too", level(), storm_share=0.1, event_share=0.05),
        Topic("calm", level(), noise=0.15),
        Topic("workdays", level(), weekend=0.1),
    ]


def kinds(seed: int) -> dict[str, list[Topic]]:
    """The families, by name. `seed` draws the topics' levels."""
    rng = np.random.default_rng(seed)

    def spread(least: float, most: float) -> float:
        return float(np.exp(rng.uniform(np.log(least), np.log(most))))

    return {
        "regular": [Topic("orders", steady(150), noise=0.15)],
        "big with events": [Topic("feed", steady(200, 1.008), event_share=0.15, event_size=4, noise=0.2)],
        "bursty": [
            Topic("import", steady(0.3), jobs=6, job_rate=300, job_seconds=45, noise=0.3),
            Topic("export", steady(2), jobs=2, job_rate=120, job_seconds=120, noise=0.3),
        ],
        "sparse": [
            Topic(f"rare-{at}", steady(spread(5, 400) / 14_400), noise=0.5, batch=float(rng.choice([1, 1, 2, 6])), swing=0.5)
            for at in range(60)
        ],
        "ten with events": [
            Topic(
                f"t{at}", steady(spread(2, 60)), phase=float(rng.uniform(-6, 6)), event_share=0.2, event_size=3, event_minutes=30, noise=0.2
            )
            for at in range(10)
        ],
        "changing": [
            Topic("new-1", from_day(20, 6), event_share=0.05),
            Topic("new-2", from_day(60, 11, growth=1.05)),
            Topic("dying", from_day(50, 0, 15)),
            Topic("fading", steady(60, 0.88)),
            Topic("growing", steady(10, 1.06)),
            Topic("moved", step(15, 12, 4.0)),
            Topic("shrunk", step(60, 14, 0.25)),
            Topic("weekend", steady(10), weekend=3.0),
            Topic("workdays", steady(30), weekend=0.02),
            Topic("steady", steady(40)),
        ],
        "mixed": [
            Topic("a", steady(80), noise=0.15),
            Topic("b", steady(30, 1.01), event_share=0.1),
            Topic("c", steady(0.5), jobs=3, job_rate=100),
            Topic("d", steady(spread(5, 20)), batch=8),
            *(Topic(f"e{at}", steady(spread(20, 2000) / 14_400), batch=2) for at in range(10)),
            Topic("f", steady(spread(5, 30)), weekend=0.1, phase=8),
        ],
    }
