"""What the job refuses as it runs, with the k that it finds, on fleets of one to a hundred topics, all cut from one pool of topics.

A fleet of one topic with rare events says little in 70 days; a hundred of them do. The rows of the pool are made once for all.

    python -m support.quota_weeks.fleets [--topics 100] [--days 70] [--per-hour 300] [--seed 1]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.state.topic_day import make_topic_rows
from support.quota_weeks.score import SETTLED, Series, calibrated, nights, series_of_rows, walk
from support.quota_weeks.weeks import Topic, steady, weeks

SIZES: Final = (1, 2, 10, 100)


def pools(seed: int, topics: int) -> dict[str, list[Topic]]:
    """Kinds of topics that refuse little for weeks, and then much."""
    rng = np.random.default_rng(seed)

    def spread(least: float, most: float) -> float:
        return float(np.exp(rng.uniform(np.log(least), np.log(most))))

    def pool(one: Callable[[str], Topic]) -> list[Topic]:
        return [one(f"t{at:03}") for at in range(topics)]

    return {
        "an event a month": pool(lambda name: Topic(name, steady(spread(5, 100)), event_share=0.03, event_size=4, noise=0.2)),
        "an event a week": pool(lambda name: Topic(name, steady(spread(5, 100)), event_share=0.15, event_size=4, noise=0.2)),
        "jobs every day": pool(
            lambda name: Topic(
                name, steady(spread(0.3, 2)), jobs=spread(1, 6), job_rate=spread(50, 300), job_seconds=spread(40, 120), noise=0.3
            )
        ),
        "a job in ten days": pool(
            lambda name: Topic(name, steady(spread(5, 50)), jobs=0.1, job_rate=spread(50, 300), job_seconds=spread(40, 120), noise=0.2)
        ),
    }


class Fleet(NamedTuple):
    """Shares, from the fourth week on."""

    refused: float
    early: float  # refused in the weeks before
    reserved: float  # times what was offered
    k: float  # of the last night


def tables_of(topics: list[Topic], seed: int, days: int, per_hour: int) -> tuple[list[pa.Table], dict[str, int]]:
    """The rows of each day, and its observed seconds."""
    tables, observed = [], {}
    for week in weeks(topics, seed, days, per_hour):
        tables.append(make_topic_rows(week.topics, week.day, week.observed_seconds))
        observed[week.day.date] = week.observed_seconds
    return tables, observed


def cut(tables: Sequence[pa.Table], observed: dict[str, int], topics: Sequence[Topic], size: int) -> Iterator[Series]:
    """The fleets of `size` topics."""
    for first in range(0, len(topics) - size + 1, size):
        names = pa.array([each.name for each in topics[first : first + size]])
        yield series_of_rows([table.filter(pc.is_in(table["topic"], value_set=names)) for table in tables], observed)


def run(series: Series) -> Fleet:
    """A fleet's nights as published: rails, guard and moving k."""
    known = nights(series)
    ks, families = calibrated(series, known)
    found = walk(series, known, ks, families, 1.0)
    first = min(SETTLED, len(known) // 2)
    late, early = found[first:].sum(axis=0), found[:first].sum(axis=0)
    return Fleet(late[0] / max(late[2], 1.0), early[0] / max(early[2], 1.0), late[1] / max(late[2], 1.0), ks[-1])


def main() -> None:
    options = argparse.ArgumentParser(description="Realised refusals by size of the fleet; the target is 0.1 %.")
    options.add_argument("--topics", type=int, default=100)
    options.add_argument("--days", type=int, default=70)
    options.add_argument("--per-hour", type=int, default=300)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    columns = f"{'topics':20}{'size':>5}{'fleets':>7}{'refused: mean':>14}{'median':>8}{'most':>8}{'> 1 %':>7}"
    print(f"{columns}{'first weeks':>12}{'reserved':>9}{'k':>6}")
    for name, topics in pools(given.seed, given.topics).items():
        tables, observed = tables_of(topics, given.seed, given.days, given.per_hour)
        for size in SIZES:
            fleets = [run(series) for series in cut(tables, observed, topics, min(size, len(topics)))]
            refused, early, reserved, k = (np.array(values) for values in zip(*fleets, strict=True))
            print(
                f"{name:20}{size:>5}{len(fleets):>7}{refused.mean():>14.3%}{np.median(refused):>8.3%}{refused.max():>8.2%}"
                f"{np.mean(refused > 0.01):>7.0%}{early.mean():>12.3%}{reserved.mean():>9.1f}{np.median(k):>6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
